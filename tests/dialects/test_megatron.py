"""The layers of MindSpeed-LLM's programs: what the frameworks' own code said once, and single rules."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest

from ms_tune.dialects import FrameworkStop
from ms_tune.dialects.megatron.placement import MOST_LAYERS, MegatronInputs, _number, parse_table
from ms_tune.dialects.megatron.read import inputs_of
from ms_tune.dialects.megatron.recompute import normalize_megatron
from ms_tune.dialects.megatron.refusals import check_split, validated
from ms_tune.dialects.megatron.write import canonical, remedy, same_layers
from ms_tune.enums import RecomputeMode
from tests.oracle.make_megatron_layers import FILE, shortened
from tests.oracle.megatron_cases import ALWAYS, random_arguments
from tests.oracle.megatron_layers import command_with as command
from tests.oracle.megatron_layers import told

EIGHT = MegatronInputs(release="2.3", layers=8, stages=2)


@pytest.mark.slow
def test_what_the_frameworks_own_code_said() -> None:
    rows = json.loads(FILE.read_text("utf-8"))
    assert {row["release"] for row in rows} == {"2.2", "2.3", "26.0", "26.1"}
    assert sum(len(row["layers"]) > 1 for row in rows) > 50
    different = [row for row in rows if shortened(told([*ALWAYS, *row["arguments"]], row["release"])) != row["layers"]]
    assert different == []


def full(inputs: MegatronInputs) -> list[int]:
    plan = normalize_megatron(inputs)
    assert plan.failure is None, plan.failure
    return [layer.layer for layer in plan.layers if layer.recompute is RecomputeMode.FULL]


def stops(inputs: MegatronInputs) -> str:
    failure = normalize_megatron(inputs).failure
    assert failure is not None
    return f"{failure.exception}: {failure.text}"


def test_what_experts_recompute_besides_is_told() -> None:
    asked = replace(EIGHT, experts=8, others={"moe_zero_memory": "level0"})
    assert problems(asked) == ["zero-memory"]
    assert problems(replace(asked, others={"moe_zero_memory": "disable"})) == []
    words = [*ALWAYS, "--num-layers", "8", "--num-experts", "8", "--moe-zero-memory", "level1"]
    assert problems(inputs_of(command(words, "2.3"))) == ["zero-memory"]


def problems(inputs: MegatronInputs) -> list[str]:
    return [problem.id for problem in normalize_megatron(inputs).problems]


@pytest.mark.parametrize("release", ["2.2", "2.3", "26.0", "26.1"])
def test_two_features_that_replace_one_function_stop_the_program_before_all_else(release: str) -> None:
    """As the real features do of these releases, whatever else stands beside them."""
    both = replace(EIGHT, release=release, stages=4, layers=16, layers_of_chunk=2, in_bubble=True, in_advance=True)
    told = "RuntimeError: the patch of get_forward_backward_func exist !"
    assert stops(both) == stops(replace(both, layers=17)) == stops(replace(both, number=3)) == told
    assert stops(replace(both, schedule="dualpipev", layer_list="4,4,4,4")) == told
    assert normalize_megatron(replace(both, in_advance=False)).failure is None
    assert remedy(both) is not None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"layers": 9}, "Number of layers should be divisible by the pipeline-model-parallel size"),
        ({"granularity": "full"}, "so recompute_method must be"),
        ({"granularity": "full", "method": "block"}, "recompute_num_layers must be between 1 and"),
        ({"activations": True, "method": "block"}, "not yet supported for selective"),
        ({"granularity": "selective", "number": 2}, "recompute_num_layers must be None"),
        ({"layers_of_chunk": 3}, "must be divisible number of layers per virtual pipeline stage"),
        ({"layers_of_chunk": 4}, "turn down args.num_layers_per_virtual_pipeline_stage"),
        ({"stages": 4, "layers_of_chunk": 1, "chunks": 2}, "cannot be set at the same time"),
        ({"stages": 1, "chunks": 2}, "pipeline-model-parallel size should be greater than 1"),
        ({"chunks": 2, "overlap": False}, "should be greater than 2"),
        ({"noop": "8"}, "smaller than args.num_layers(8)"),
        ({"noop": "a"}, "noop layer must be digit, but it's a"),
        ({"layer_list": "3,4"}, "its sum(7 is unequal"),
        ({"layer_list": "3,x"}, "invalid literal for int()"),
        ({"layer_list": "8,0,0,0"}, "len(args.num_layer_list) != args.pipeline_model_parallel_size"),
        ({"layer_list": "4,4", "layers_of_chunk": 3}, "must be divisible number of layers per virtual"),
        ({"layer_list": "4,4", "layers_of_chunk": 3, "release": "26.0"}, "is not support work with num_layer_list"),
        ({"layer_list": "4,4", "schedule": "dualpipev"}, "exist !"),
        ({"unaligned": "[[3]]"}, "should equal to pipeline_model_parallel_size2"),
        ({"unaligned": "[[3,1],[4]]"}, "vpp_layers' length: 2 should equal to 1."),
        ({"unaligned": "[[5],[4]]"}, "sum9should be smaller than num_layers8"),
        ({"unaligned": "3"}, "has no len()"),
        ({"unaligned": "[*2]"}, "pop from empty list"),
        ({"first": 0}, "must be larger than 0"),
        ({"first": 3, "embedding": True}, "cannot beset at the same time"),
        ({"stages": 3, "first": 3}, "number of layers at middle stage: 5"),
        ({"first": 4, "last": 4}, "integer modulo by zero"),
        ({"dense": 8, "experts": 2}, "must be greater than first-k-dense-replace"),
        ({"dense": 4, "experts": 2}, "not allowed for all layers within a pp stage"),
        ({"norm_layers": 9}, "cannot be greater than --num-layers (8)"),
        ({"activation_layers": -1}, "cannot be less than 0"),
        ({"in_bubble": True}, "only support pipelining with interleaving"),
        ({"in_advance": True}, "recompute_num_layers can not be None or 0"),
        ({"in_advance": True, "method": "uniform"}, "does not support uniform"),
        ({"modules": ("nothing",), "granularity": "selective"}, "Invalid choices for recompute_modules"),
        ({"modules": ("moe_act",), "granularity": "selective"}, "only supported with moe_grouped_gemm"),
        ({"modules": ("mla_up_proj",), "granularity": "selective"}, "multi_latent_attention"),
        ({"whole_experts": True, "granularity": "full", "method": "block", "number": 1}, "--moe-layer-recompute"),
        ({"distributed": True}, "can distribute recomputed activations only"),
        ({"distributed": True, "tensor": 2}, "only application to full"),
        ({"distributed": True, "tensor": 2, "granularity": "full"}, "need to use a recompute method"),
        ({"schedule": "dualpipev"}, "requires untie_embeddings_and_output_weights"),
        ({"stages": 4, "chunks": 2, "norm": True}, "unsupported operand type(s) for %"),
    ],
)
def test_what_is_refused(changes: dict[str, object], text: str) -> None:
    assert text in stops(replace(EIGHT, **changes))  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"granularity": "full"}, "--recompute-method uniform; --recompute-num-layers 1"),
        ({"granularity": "full", "method": "uniform", "number": 3}, "--recompute-num-layers 2"),
        ({"granularity": "selective", "method": "block"}, "- --recompute-method"),
        ({"norm_layers": 20}, "--recompute-norm-num-layers 8"),
        ({"layers_of_chunk": 3}, "--num-layers-per-virtual-pipeline-stage 2"),
        ({"experts": 4, "dense": 5}, "--first-k-dense-replace 3"),
        ({"layer_list": "3,4"}, "--num-layer-list 4,4"),
        ({"layer_list": "3,5", "noop": "7"}, "- --noop-layers"),
        ({"distributed": True}, "- --distribute-saved-activations"),
    ],
)
def test_what_would_pass(changes: dict[str, object], said: str) -> None:
    refused = replace(EIGHT, **changes)  # type: ignore[arg-type]  # fields by name
    assert normalize_megatron(refused).failure is not None
    found = remedy(refused)
    assert found is not None
    assert found.params["changes"] == said


@pytest.mark.parametrize(
    ("changes", "trap"),
    [
        ({"method": "block"}, "method-alone"),
        ({"modules": ("mlp",)}, "modules-ignored"),
        ({"norm_layers": 2}, "number-alone"),
        ({"granularity": "full", "method": "block", "number": 0}, "full-nothing"),
        ({"granularity": "full", "method": "block", "number": 1, "by_rank": True}, "by-rank-ignored"),
        ({"unaligned": "[[3],[4]]"}, "layers-built"),
        ({"layers": 7, "loss": True, "noop": "3"}, "looked-up"),
        ({"layers_of_chunk": 2, "in_bubble": True}, "at-run-time"),
    ],
)
def test_traps(changes: dict[str, object], trap: str) -> None:
    assert problems(replace(EIGHT, **changes)) == [trap]  # type: ignore[arg-type]  # fields by name


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
        ({"noop": "7,1,7"}, {"noop": "1,7"}),
        ({"layer_list": "03, 5"}, {"layer_list": "3,5"}),
        ({"unaligned": "[[4]*2]"}, {"unaligned": "[[4],[4]]"}),
        ({"granularity": "full", "method": "block", "number": 9, "swap": True}, {}),
        ({"granularity": "full"}, {}),
    ],
)
def test_what_is_ignored_is_left_out(given: dict[str, object], expected: dict[str, object]) -> None:
    assert canonical(replace(EIGHT, **given)) == expected  # type: ignore[arg-type]  # fields by their names


@pytest.mark.parametrize("overlap", ["--moe-alltoall-overlap-comm", "--moe-allgather-overlap-comm", ""])
def test_grouped_experts_recompute_their_activation_beside_overlapped_communication_too(overlap: str) -> None:
    words = f"--num-layers 4 --num-experts 4 --moe-grouped-gemm --recompute-activation-function {overlap}"
    plan = normalize_megatron(inputs_of(command(words.split(), "2.3")))
    assert {layer.select_patterns for layer in plan.layers} == {("mlp.experts.activation_func",)}


def test_layers_without_experts_have_no_activation_of_experts_to_recompute() -> None:
    words = "--num-layers 4 --num-experts 4 --first-k-dense-replace 1 --moe-layer-freq 1 --moe-grouped-gemm"
    recompute = ["--recompute-granularity", "selective", "--recompute-modules", "moe_act"]
    plan = normalize_megatron(inputs_of(command([*words.split(), *recompute], "26.0")))
    assert [bool(layer.select_patterns) for layer in plan.layers] == [False, True, True, True]


@pytest.mark.parametrize(("release", "refused"), [("2.2", False), ("2.3", True), ("26.1", True)])
def test_gradients_reduced_apart_go_with_recomputation_in_bubbles_in_2_2_alone(release: str, *, refused: bool) -> None:
    apart = replace(
        EIGHT, release=release, stages=2, layers_of_chunk=2, in_bubble=True, others={"align_grad_reduce": False}
    )
    failure = normalize_megatron(apart).failure
    assert (failure is not None and "recompute-in-bubble" in failure.text) is refused


def test_stages_between_a_first_and_a_last_one_of_their_own_size_have_whole_chunks() -> None:
    twelve = replace(EIGHT, layers=12, stages=4, first=4, last=4)
    check_split(twelve, 2)
    check_split(replace(twelve, layers=14), None)
    with pytest.raises(
        FrameworkStop, match=r"each middle pipeline rank:3 must be divisible by virtualpipeline parallel degree 2"
    ):
        check_split(replace(twelve, layers=14), 2)


@pytest.mark.parametrize("chunks", [None, 2])
def test_layers_of_uneven_stages_are_numbered_without_a_gap(chunks: int | None) -> None:
    uneven = replace(EIGHT, layers=12, stages=4, first=4, last=4, chunks=chunks)
    settled = validated(uneven)
    cells = [(stage, chunk) for chunk in range(chunks or 1) for stage in range(4)]
    begin = [_number(uneven, settled, stage, chunk) for stage, chunk in cells]
    assert begin == ([0, 4, 6, 8] if chunks is None else [0, 2, 3, 4, 6, 8, 9, 10])
    even = replace(uneven, first=None, last=None, layers=16)
    begin = [_number(even, validated(even), stage, chunk) for stage, chunk in cells]
    assert begin == ([0, 4, 8, 12] if chunks is None else [0, 2, 4, 6, 8, 10, 12, 14])


@pytest.mark.parametrize("chunks", [None, 2])
def test_an_embedding_that_counts_as_a_layer_moves_all_numbers_but_the_first(chunks: int | None) -> None:
    counted = replace(EIGHT, layers=15, stages=4, embedding=True, chunks=chunks)
    settled = validated(counted)
    cells = [(stage, chunk) for chunk in range(chunks or 1) for stage in range(4)]
    begin = [_number(counted, settled, stage, chunk) for stage, chunk in cells]
    assert begin == ([0, 3, 7, 11] if chunks is None else [0, 1, 3, 5, 7, 9, 11, 13])


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
