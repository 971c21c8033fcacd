"""Test layers of MindSpeed-LLM's programs: recorded results of the frameworks' own code, and single rules."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ms_tune.dialects import FrameworkStop
from ms_tune.dialects.megatron.arguments import command_of
from ms_tune.dialects.megatron.placement import MOST_LAYERS, MegatronInputs, parse_table
from ms_tune.dialects.megatron.read import ArgumentReader, find_vocabulary, inputs_of
from ms_tune.dialects.megatron.recompute import normalize_megatron
from ms_tune.dialects.megatron.refusals import check_split
from ms_tune.dialects.megatron.write import canonical, remedy, same_layers
from ms_tune.enums import RecomputeMode
from ms_tune.source.shell.read import read_launches
from tests.oracle.make_megatron_layers import FILE, shortened
from tests.oracle.megatron_cases import ALWAYS, random_arguments
from tests.oracle.megatron_layers import command_with as command
from tests.oracle.megatron_layers import describe_plan

EIGHT = MegatronInputs(release="2.3", layers=8, stages=2)


@pytest.mark.slow
def test_what_the_frameworks_own_code_said() -> None:
    rows = json.loads(FILE.read_text("utf-8"))
    assert {row["release"] for row in rows} == {"2.2", "2.3", "26.0", "26.1"}
    assert sum(len(row["layers"]) > 1 for row in rows) > 50
    different = [
        row for row in rows if shortened(describe_plan([*ALWAYS, *row["arguments"]], row["release"])) != row["layers"]
    ]
    assert different == []


def full(inputs: MegatronInputs) -> list[int]:
    plan = normalize_megatron(inputs)
    assert plan.failure is None, plan.failure
    return [layer.layer for layer in plan.layers if layer.recompute is RecomputeMode.FULL]


def stops(inputs: MegatronInputs) -> str:
    failure = normalize_megatron(inputs).failure
    assert failure is not None
    return f"{failure.exception}: {failure.text}"


def test_what_experts_recompute_besides_is_reported() -> None:
    asked = replace(EIGHT, experts=8, checked_settings={"moe_zero_memory": "level0"})
    assert problems(asked) == ["zero-memory"]
    assert problems(replace(asked, checked_settings={"moe_zero_memory": "disable"})) == []
    words = [*ALWAYS, "--num-layers", "8", "--num-experts", "8", "--moe-zero-memory", "level1"]
    assert problems(inputs_of(command(words, "2.3"))) == ["zero-memory"]


def problems(inputs: MegatronInputs) -> list[str]:
    return [problem.id for problem in normalize_megatron(inputs).problems]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"noop": "3"}, ["looked-up", "noop-missed"]),  # stage 0 builds layers 0 to 2, stage 1 looks up 4 to 8
        ({"experts": 8}, []),
    ],
)
def test_stages_of_unequal_size_look_up_other_layers(changes: dict[str, object], expected: list[str]) -> None:
    assert problems(replace(EIGHT, first=3, **changes)) == expected  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize(
    ("changes", "refused"),
    [({}, False), ({"stages": 1}, True), ({"overlap": False}, True), ({"overlap": False, "stages": 4}, False)],
)
def test_how_few_stages_may_interleave(changes: dict[str, object], *, refused: bool) -> None:
    """More than one, and more than two without overlapped communication (``validate_args`` of Megatron-LM)."""
    plan = normalize_megatron(replace(EIGHT, chunks=2, **changes))  # type: ignore[arg-type]  # fields by name
    assert (plan.failure is not None) is refused


@pytest.mark.parametrize("release", ["2.2", "2.3", "26.0", "26.1"])
def test_two_features_that_replace_one_function_stop_the_program_before_all_else(release: str) -> None:
    """As in the real features of these releases, regardless of other arguments."""
    both = replace(EIGHT, release=release, stages=4, layers=16, layers_of_chunk=2, in_bubble=True, in_advance=True)
    reported = "RuntimeError: the patch of get_forward_backward_func exist !"
    assert stops(both) == stops(replace(both, layers=17)) == stops(replace(both, number=3)) == reported
    assert stops(replace(both, schedule="dualpipev", layer_list="4,4,4,4")) == reported
    assert normalize_megatron(replace(both, in_advance=False)).failure is None
    assert remedy(both) is not None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"noop": "a"}, "noop layer must be digit, but it's a"),
        ({"noop": "1" * 5_000}, "smaller than args.num_layers(8)"),
        ({"layer_list": "3,x"}, "invalid literal for int()"),
        ({"layer_list": "8,0,0,0"}, "len(args.num_layer_list) != args.pipeline_model_parallel_size"),
        ({"layer_list": "4,4", "layers_of_chunk": 3, "release": "26.0"}, "is not support work with num_layer_list"),
        ({"layer_list": "4,4", "schedule": "dualpipev"}, "exist !"),
        ({"unaligned": "3"}, "has no len()"),
        ({"unaligned": "[*2]"}, "pop from empty list"),
        ({"first": 0}, "must be larger than 0"),
        ({"first": 3, "embedding": True}, "cannot beset at the same time"),
        ({"modules": ("nothing",), "granularity": "selective"}, "Invalid choices for recompute_modules"),
        ({"distributed": True, "tensor": 2}, "only application to full"),
        ({"distributed": True, "tensor": 2, "granularity": "full"}, "need to use a recompute method"),
    ],
)
def test_what_is_refused(changes: dict[str, object], text: str) -> None:
    assert text in stops(replace(EIGHT, **changes))  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"granularity": "full"}, "--recompute-method uniform; --recompute-num-layers 1"),
        ({"granularity": "full", "method": "uniform", "number": 3}, "--recompute-num-layers 2"),
        ({"layer_list": "3,5", "noop": "7"}, "- --noop-layers"),
    ],
)
def test_what_would_pass(changes: dict[str, object], said: str) -> None:
    refused = replace(EIGHT, **changes)  # type: ignore[arg-type]  # fields by name
    assert normalize_megatron(refused).failure is not None
    found = remedy(refused)
    assert found is not None
    assert found.params["changes"] == said


def test_absurd_tables_are_bounded() -> None:
    rows = parse_table("[[1]*99999999999999]")
    assert len(rows) == MOST_LAYERS
    with pytest.raises(FrameworkStop):
        parse_table("[" * 100_000)


def test_the_canonical_form_keeps_every_layer_and_is_its_own() -> None:
    random = Random(20261122)  # noqa: S311 - cases, no secrets
    changed = 0
    for _ in range(80):
        inputs = inputs_of(command(random_arguments(random), "2.3"))
        found = canonical(inputs)
        plan = normalize_megatron(inputs)
        step = inputs
        for field, value in found.items():
            step = replace(step, **{field: value})  # type: ignore[arg-type]  # a field by its name
            assert same_layers(plan, normalize_megatron(step)), (inputs, found)
        assert not canonical(step), (inputs, found)
        changed += bool(found)
        assert not (found and plan.failure)
    assert changed > 12


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"granularity": "full", "method": "block", "number": 9}, {"number": 4}),
        (
            {"granularity": "full", "method": "block", "number": 0},
            {"granularity": None, "method": None, "number": None},
        ),
        ({"granularity": "full", "method": "uniform", "number": 4, "by_rank": True}, {"by_rank": False}),
        ({"method": "block", "number": 2}, {"method": None, "number": None}),
        ({"norm": True, "norm_layers": 7}, {"norm_layers": 4}),
        ({"norm": True, "norm_layers": 0}, {"norm": False, "norm_layers": None}),
        ({"activation_layers": 3}, {"activation_layers": None}),
        ({"activations": True, "modules": ("core_attn", "moe")}, {"modules": ("core_attn",)}),
        ({"granularity": "full", "activations": True}, {"granularity": None}),
        ({"granularity": "full", "method": "block", "number": 9, "swap": True}, {}),
        ({"granularity": "full"}, {}),
    ],
)
def test_what_is_ignored_is_left_out(given: dict[str, object], expected: dict[str, object]) -> None:
    assert canonical(replace(EIGHT, **given)) == expected  # type: ignore[arg-type]  # fields by their names


def test_stages_between_a_first_and_a_last_one_of_their_own_size_have_whole_chunks() -> None:
    twelve = replace(EIGHT, layers=12, stages=4, first=4, last=4)
    check_split(twelve, 2)
    check_split(replace(twelve, layers=14), None)
    with pytest.raises(
        FrameworkStop, match=r"each middle pipeline rank:3 must be divisible by virtualpipeline parallel degree 2"
    ):
        check_split(replace(twelve, layers=14), 2)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("[[3],[5]]", ((3,), (5,))),
        ("[[2,2]*2]", ((2, 2), (2, 2))),
        ("[[2]*2,[1,3]]", ((2,), (2,), (1, 3))),
        ("[[1*2,4],[0]*2]", ((1, 1, 4), (0,), (0,))),
    ],
)
def test_a_table_of_layers_with_repeats(text: str, counts: tuple[tuple[int, ...], ...]) -> None:
    assert parse_table(text) == counts


def test_uniform_needs_groups_of_one_size() -> None:
    uniform = replace(EIGHT, granularity="full", method="uniform", number=2)
    assert full(uniform) == list(range(8))
    assert stops(replace(uniform, number=3)) == "IndexError: list index out of range"
    assert stops(replace(uniform, number=0)).startswith("endless-loop")


@pytest.mark.parametrize(
    ("arguments", "name", "found"),
    [
        ("", "pretrain_qwen3_8b.sh", ("pretrain_qwen3_8b.sh", "Qwen3-8B")),
        ("--tokenizer-name-or-path ./Llama-2-7B", "pretrain_qwen3_8b.sh", ("--tokenizer-name-or-path", "Llama-2-7B")),
        ("--padded-vocab-size 32000", "pretrain_qwen3_8b.sh", None),
        ("", "pretrain.sh", None),
    ],
)
def test_whose_vocabulary_a_program_has(arguments: str, name: str, found: tuple[str, str] | None) -> None:
    script = f"torchrun pretrain_gpt.py --hidden-size 4096 --num-attention-heads 32 {arguments}\n"
    program = command_of(read_launches(Path(name), script).launches[0], "2.3")
    assert program is not None
    seen = find_vocabulary(ArgumentReader(program))
    assert (None if seen is None else (seen[0], seen[1].name)) == found
