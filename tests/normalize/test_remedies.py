"""What a refused config is told to write instead: it passes, it changes no more than it must, and lint can write it."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ms_tune.cli.main import main
from ms_tune.errors import MsTuneError
from ms_tune.source.edit import EditRefusedError
from ms_tune.source.edit_proof import prove
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language, render
from tests.jobs import normalize_source, plan_of, remedy_of
from tests.oracle import cases, lint_cases, mindspeed_cases, pynative_cases

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "1"))
CASES = 150

STATIC = "parallel_config: {pipeline_stage: 4}\nmodel: {model_config: {num_layers: 8, offset: 0}}\nrecompute_config:\n"
INTERLEAVED = (
    "parallel: {pipeline_config: {pipeline_interleave: True, pipeline_scheduler: 1f1b}}\n"
    "parallel_config: {pipeline_stage: 2}\nmodel: {model_config: {num_layers: 8, pp_interleave_num: 2}}\nrecompute_config:\n"
)
DYNAMIC = "training: {steps: 1}\nmodel: {num_layers: 8}\n"
MINDSPEED = "model_config: {num_layers: 8}\nparallel_config:\n  pipeline_model_parallel_size: 2\n"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (STATIC.replace("num_layers: 8", "num_layers: 9"), "model.model_config.offset: [0, 1, 0, 0]"),
        (STATIC.replace("offset: 0", "offset: [1, 1, 0, 0]"), "model.model_config.offset"),
        (STATIC.replace("offset: 0", "offset: auto"), "model.model_config.offset: 0"),
        (STATIC + "  recompute: [1, 1, 1, 1, 1]\n", "recompute_config.recompute: [1, 1, 1, 1]"),
        (STATIC + "  recompute: [-1, 1, 0, 0]\n", "recompute_config.recompute[0]: 0"),
        (STATIC + "  recompute: ['1', 1, 0, 0]\n", "recompute_config.recompute[0]: 1"),
        (STATIC + "  select_recompute: {a: [1, 1, 1, 1, 1]}\n", "recompute_config.select_recompute.a: [1, 1, 1, 1]"),
        (INTERLEAVED + "  select_recompute: [[9, 0], [1, 1]]\n", "recompute_config.select_recompute[0][0]: 2"),
        (INTERLEAVED + "  recompute: [[1], [1, 1]]\n", "recompute_config.recompute[0]: [1, 0]"),
        (
            STATIC + "  recompute: [[1]]\nswap_config: {swap: True, layer_swap: []}\n",
            "recompute_config.recompute[0]: 1",
        ),
        (STATIC + "  recompute: False\nswap_config: {swap: 1}\n", "swap_config.swap: True"),
        (DYNAMIC + "parallelism: {pipeline_parallel: 3}\n", "parallelism.pipeline_parallel_layers_per_stage: ["),
        (
            DYNAMIC + "recompute: {mode: full, full_recompute_layer: ['0-9']}\n",
            'recompute.full_recompute_layer[0]: "0-7"',
        ),
        (DYNAMIC + "recompute: {mode: full, full_recompute_layer: [3, 3]}\n", "recompute.full_recompute_layer: ['3']"),
        (DYNAMIC + "swap: {enable: True, default_prefetch: 9}\n", "swap.default_prefetch: 7"),
        (MINDSPEED + "  num_layer_list: [3, 4]\n", "parallel_config.num_layer_list"),
        (
            MINDSPEED + "  recompute_config: {recompute: [9, 1, 1]}\n",
            "parallel_config.recompute_config.recompute: [4, 1]",
        ),
        (
            MINDSPEED + "  recompute_config: {recompute: [4, 1], select_recompute: [1, 1]}\n",
            "parallel_config.recompute_config.select_recompute[0]: 0",
        ),
    ],
)
def test_remedies(text: str, hint: str) -> None:
    plan = normalize_source(parse_source(text, Path("c.yaml")))
    assert plan.failure is not None
    told = plan.problems[0].help
    assert told is not None
    assert hint in render(told, Language.EN)
    assert render(told, Language.ZH)
    assert render(told, Language.EN).count(";") == 0  # one change is enough for each


@pytest.mark.parametrize("stages", [2, 3, 4, 6])
@pytest.mark.parametrize("base", [1, 3])
def test_layers_that_are_left_over_go_to_the_ends_last(stages: int, base: int) -> None:
    """The first stage has the embedding, the last one the head."""
    order = [*range(1, stages - 1), stages - 1, 0]
    for over in range(1, stages):
        config = STATIC.replace("stage: 4", f"stage: {stages}")
        offset = [int(stage in order[:over]) for stage in range(stages)]
        hint = f"model.model_config.offset: {offset}"
        assert_hint(config.replace("num_layers: 8", f"num_layers: {base * stages + over}"), hint)


@pytest.mark.parametrize(
    ("layers", "written", "hint"),
    [
        (8, [1, 0, 0, 0], "offset: 0"),
        (8, [3, 0, 0, 0], "offset: 0"),
        (8, [0, 0, 0, -3], "offset: 0"),
        (8, [-1, 0, 0, 0], "offset: 0"),
        (9, [0, 0, 2, 0], "offset[2]: 1"),
        (9, [2, 0, 0, 0], "offset[0]: 1"),
        (9, [2, 0, 0, -2], "offset[3]: -1"),  # no stage without a layer
        (10, [1, 0], "offset: [1, 0, 1, 0]"),  # as if written for each half
        (8, [1, 1, 1], "offset: 0"),
    ],
)
def test_an_offset_is_changed_as_little_as_can_be(layers: int, written: list[int], hint: str) -> None:
    config = STATIC.replace("num_layers: 8", f"num_layers: {layers}").replace("offset: 0", f"offset: {written}")
    assert_hint(config, f"model.model_config.{hint}")


def test_a_layer_for_each_stage_leaves_one_chunk() -> None:
    assert_hint(INTERLEAVED.replace("num_layers: 8", "num_layers: 2"), "model.model_config.pp_interleave_num: 1")


def test_a_layer_for_each_place_is_enough() -> None:
    config = STATIC.replace("num_layers: 8", "num_layers: 4").replace("offset: 0", "offset: [1, 1, 0, 0]")
    assert_hint(config, "model.model_config.offset: 0")


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        (
            "['mlp', '(', 'self_attention', 3, ' ']",
            "recompute.select_module: {mlp: [0-7], self_attention: [0-7]}",  # and no anchor for what is alike
        ),
        ("'mlp'", "recompute.select_module: {mlp: [0-7]}"),
        ("['(']", "recompute.mode: None"),
    ],
)
def test_of_a_list_of_modules_the_patterns_stay(written: str, hint: str) -> None:
    assert_hint(DYNAMIC + f"recompute: {{mode: select, select_module: {written}}}\n", hint)


ZERO_BUBBLE = (
    "use_legacy: False\nparallel: {pipeline_config: {pipeline_interleave: True, pipeline_scheduler: zero_bubble_v}}\n"
    "parallel_config: {pipeline_stage: 2, micro_batch_num: 4}\n"
    "model: {model_config: {num_layers: 8, pp_interleave_num: 2}}\nrecompute_config: {recompute: True}\n"
)


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("recompute: True", "recompute: [1, 1]", "recompute_config.recompute[0]: [1, 1]; recompute_config.recompute[1]: [0, 0]"),
        ("recompute: True", "recompute: [2, 1]", "recompute_config.recompute[0]: [1, 1]; recompute_config.recompute[1]: [0, 1]"),
        ("recompute: True", "recompute: [1]", "recompute_config.recompute: [[1, 0], [0, 0]]"),
        ("recompute: True", "recompute: 3", "recompute_config.recompute: [[2, 2], [1, 1]]"),
        ("pipeline_stage: 2", "pipeline_stage: 1", "parallel_config.pipeline_stage: 2"),
        ("micro_batch_num: 4", "micro_batch_num: 3", "parallel_config.micro_batch_num: 4"),
        ("interleave_num: 2", "interleave_num: 3", "model.model_config.pp_interleave_num: 2"),
        ("recompute: True", "recompute: True, recompute_slice_activation: True", "recompute_config.recompute_slice_activation: False"),
    ],
)  # fmt: skip
def test_remedies_of_pipelines_that_turn_round(old: str, new: str, hint: str) -> None:
    assert normalize_source(parse_source(ZERO_BUBBLE, Path("c.yaml"))).failure is None
    assert_hint(ZERO_BUBBLE.replace(old, new), hint)


ONE_STAGE = MINDSPEED.replace("size: 2", "size: 1")
BLOCK = "num_layers: 8, recompute_granularity: full, recompute_method: block, recompute_num_layers:"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("recompute: {mode: FULL, full_recompute_layer: [1]}", "recompute.mode: full"),
        ("recompute: {mode: ' Select ', select_module: {mlp: ['1']}}", "recompute.mode: select"),
        ("recompute: {mode: some, select_module: {mlp: ['1']}}", "recompute.mode: select"),
        ("recompute: {mode: some, full_recompute_layer: [1]}", "recompute.mode: full"),
        ("recompute: {mode: some}", "recompute.mode: None"),
        ("recompute: {mode: '', full_recompute_layer: [1]}", "recompute.mode: None"),
        ("recompute: 3", "-recompute"),
        ("recompute_comm: {enable: 'on', select_module: {mlp: ['1']}}", "recompute_comm.enable: True"),
        ("swap: {enable: 'true'}", "swap.enable: True"),
        ("swap: {enable: ' True '}", "swap.enable: True"),
        ("swap: {enable: 1}", "swap.enable: True"),
        ("swap: {enable: 'off'}", "swap.enable: False"),
        ("swap: {enabled: True}", "swap: {}"),
        ("swap: {enable: False, enabled: True}", "-swap.enabled"),
        (
            "swap: {enable: True, op_swap: [{op_name: mlp, layers: ['0']}, {op_name: '(', layers: ['1']}]}",
            "swap.op_swap: [{op_name: mlp, layers: ['0']}]",
        ),
        ("swap: {enable: True, op_swap: [{op_name: mlp, layers: ['5-9']}]}", 'swap.op_swap[0].layers[0]: "5-6"'),
        ("parallelism: {pipeline_parallel: '2'}", "parallelism.pipeline_parallel: 2"),
        ("parallelism: {pipeline_parallel: 2.0}", "parallelism.pipeline_parallel: 2"),
        ("parallelism: {pipeline_parallel: 2.5}", "parallelism.pipeline_parallel: 1"),
        ("parallelism: {pipeline_parallel: -2.0}", "parallelism.pipeline_parallel: 1"),
        ("parallelism: {pipeline_parallel: .inf}", "parallelism.pipeline_parallel: 1"),
        ("parallelism: {pipeline_parallel: x}", "parallelism.pipeline_parallel: 1"),
        ("parallelism: {pipeline_parallel: [2]}", "parallelism.pipeline_parallel: 1"),
        ("parallelism: {pipeline_parallel: null, tensor_parallel: 1}", "-parallelism.pipeline_parallel"),
        ("parallelism: {pipeline_parallel_schedule: 3, tensor_parallel: 1}", "-parallelism.pipeline_parallel_schedule"),
        (
            "parallelism: {pipeline_parallel: 2, pipeline_parallel_schedule: zb}",
            'parallelism.pipeline_parallel_schedule: "1f1b"',
        ),
        (
            "parallelism: {pipeline_parallel: 2, pipeline_parallel_schedule: interleaved_1f1b}",
            'parallelism.pipeline_parallel_schedule: "1f1b"',
        ),
    ],
)
def test_remedies_of_the_dynamic_graph(text: str, hint: str) -> None:
    """To the letter; a key that goes has a minus before it."""
    assert_hint(DYNAMIC + text + "\n", hint)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            MINDSPEED + "  virtual_pipeline_model_parallel_size: 0\n",
            "-parallel_config.virtual_pipeline_model_parallel_size",
        ),
        (
            MINDSPEED + "  virtual_pipeline_model_parallel_size: 5\n",
            "-parallel_config.virtual_pipeline_model_parallel_size",
        ),
        (
            ONE_STAGE + "  virtual_pipeline_model_parallel_size: 2\n",
            "-parallel_config.virtual_pipeline_model_parallel_size",
        ),
        (
            MINDSPEED + "  virtual_pipeline_model_parallel_size: 2\n  num_layer_list: [[3,1]]\n",
            "parallel_config.num_layer_list: [[3, 2], [2, 1]]",
        ),
        (MINDSPEED.replace("size: 2", "size: 9"), "model_config.num_layers: 9"),
        (MINDSPEED.replace("size: 2", "size: '2'"), "parallel_config.pipeline_model_parallel_size: 2"),
        (MINDSPEED.replace("size: 2", "size: 0"), "parallel_config.pipeline_model_parallel_size: 1"),
        (MINDSPEED.replace("layers: 8", "layers: '8'"), "model_config.num_layers: 8"),
        (MINDSPEED.replace("layers: 8", "layers: 8, hidden_act: 3"), "-model_config.hidden_act"),
        (MINDSPEED.replace("layers: 8", "layers: 8, recompute_method: some"), "-model_config.recompute_method"),
        (MINDSPEED.replace("num_layers: 8", f"{BLOCK} 9"), "model_config.recompute_num_layers: 8"),
        (MINDSPEED.replace("num_layers: 8", f"{BLOCK} x"), "model_config.recompute_num_layers: 1"),
        (MINDSPEED + "  recompute_config: [1]\n", "-parallel_config.recompute_config"),
        (MINDSPEED + "  recompute_config: {recompute: 1}\n", "parallel_config.recompute_config.recompute: [1, 0]"),
        (
            MINDSPEED + "  recompute_config: {recompute: x, select_recompute: [1, 0]}\n",
            "-parallel_config.recompute_config.recompute",
        ),
        (
            MINDSPEED + "  recompute_config: {foo: [1, 1], select_recompute: [1, 0]}\n",
            "-parallel_config.recompute_config.foo",
        ),
        (MINDSPEED + "  recompute: [1, 1]\n", "-parallel_config.recompute"),
        (
            ONE_STAGE + "  num_layer_list: [3]\n  recompute_config: {recompute: [9]}\n",  # nothing reads the first list
            "parallel_config.recompute_config.recompute[0]: 8",
        ),
        (MINDSPEED + "  sequence_parallel: 'on'\n", "parallel_config.sequence_parallel: True"),
        (MINDSPEED + "  sequence_parallel: 'no'\n", "parallel_config.sequence_parallel: False"),
        (
            STATIC.replace("stage: 4", "stage: 4, seq_split_num: 2") + "  recompute: True\n",
            "parallel_config.seq_split_num: 1",
        ),
        (STATIC + "  recompute: [1.5, 1, 0, 0]\n", "recompute_config.recompute[0]: 1"),
        (STATIC + "  recompute: ['x', 1, 0, 0]\n", "recompute_config.recompute[0]: 0"),
        (STATIC + "  recompute: {a: 1}\n", "recompute_config.recompute: False"),
        (INTERLEAVED + "  recompute: [[1, 1]]\n", "recompute_config.recompute: [[1, 1], [0, 0]]"),
        (INTERLEAVED + "  recompute: [[1, 1], [1, 1], [1, 1]]\n", "recompute_config.recompute: [[1, 1], [1, 1]]"),
    ],
)
def test_remedies_of_the_others(text: str, hint: str) -> None:
    assert_hint(text, hint)


def assert_hint(text: str, hint: str) -> None:
    plan = normalize_source(parse_source(text, Path("c.yaml")))
    assert plan.failure is not None
    told = plan.problems[0].help
    assert told is not None
    passes = f"remove {hint[1:]}" if hint[0] == "-" else f"change to: {hint}"
    assert render(told, Language.EN) == passes


@pytest.mark.parametrize(
    ("layers", "stages", "chunks", "hint"),
    [
        (2, 2, 2, "-parallel_config.virtual_pipeline_model_parallel_size"),  # enough for the stages
        (3, 2, 2, "-parallel_config.virtual_pipeline_model_parallel_size"),
        (1, 2, 2, "model_config.num_layers: 4"),
        (1, 2, None, "model_config.num_layers: 2"),
        (2, 3, None, "model_config.num_layers: 3"),
    ],
)
def test_fewer_layers_than_places_for_them(layers: int, stages: int, chunks: int | None, hint: str) -> None:
    text = MINDSPEED.replace("num_layers: 8", f"num_layers: {layers}").replace("size: 2", f"size: {stages}")
    more = f"  virtual_pipeline_model_parallel_size: {chunks}\n" if chunks else ""
    assert_hint(text + more, hint)


@pytest.mark.parametrize(
    ("lists", "hint"),
    [
        ("{full_recompute_list: [1, 1]}", "recompute: [1, 1]"),
        ("{full_recompute_list: [9, 1]}", "recompute: [4, 1]"),
        ("{recompute: [1, 0], select_recompute_list: [1, 2]}", "select_recompute: [1, 2]"),
        ("{recompute: [1, 0], select_comm_recompute_list: [1, 2]}", "select_comm_recompute: [1, 2]"),
    ],
)
def test_lists_under_the_names_of_the_guide_are_kept_under_their_own(lists: str, hint: str) -> None:
    """The framework would do without them, but they are what the author wants."""
    plan = normalize_source(parse_source(MINDSPEED + f"  recompute_config: {lists}\n", Path("c.yaml")))
    told = plan.problems[0].help
    assert told is not None
    assert f"parallel_config.recompute_config.{hint}" in render(told, Language.EN)


def test_a_list_under_both_names_is_kept_once() -> None:
    text = MINDSPEED + "  recompute_config: {full_recompute_list: [1, 1], recompute: [1, 0]}\n"
    assert_hint(text, "-parallel_config.recompute_config.full_recompute_list")


class Plain(yaml.SafeDumper):
    """Writes what stands twice out twice."""

    def ignore_aliases(self, _: object) -> bool:
        return True


def static(random: Random) -> tuple[dict[str, Any], str]:
    version = random.choice(("1.6", "1.7", "1.8", "1.9", "2.1"))
    return yaml.safe_load(cases.text_of(lint_cases.random_config(random, version))), version


def dynamic(random: Random) -> tuple[dict[str, Any], str]:
    version = random.choice(("2.0", "2.1"))
    config, layers, ahead = pynative_cases.random_config(random, version)
    return {"training": {}, "model": {"num_layers": layers, "mtp_num_layers": ahead}, **config}, version


def mindspeed(random: Random) -> tuple[dict[str, Any], None]:
    return mindspeed_cases.random_config(random), None


@pytest.mark.slow
@pytest.mark.parametrize("make", [static, dynamic, mindspeed])
def test_every_remedy_passes(make: Callable[[Random], tuple[dict[str, Any], str | None]]) -> None:
    """The framework's rules, asked again about the changed values, go to the end."""
    random = Random(SEED)  # noqa: S311 - the same cases every time
    counts: Counter[str] = Counter()
    for _ in range(CASES):
        config, version = make(random)
        try:
            source = parse_source(yaml.dump(config, Dumper=Plain, sort_keys=False), Path("c.yaml"))
            plan = plan_of(source, version)
        except MsTuneError:
            continue
        if plan.failure is None:
            continue
        changes = remedy_of(source, version)
        counts["remedied" if changes else "not"] += 1
        if changes:
            data: object = source.data
            for change in changes:
                data = change.applied(data)
            try:
                edits = [edit for change in changes for edit in change.edits(source)]
                assert prove(source, changes, edits), (config, changes)
            except EditRefusedError:
                counts["not written"] += 1  # a key behind a question mark
            again = normalize_source(parse_source(yaml.safe_dump(data, sort_keys=False), Path("c.yaml")), version)
            assert again.failure is None, (config, changes)
    assert counts["remedied"] > 8 * counts["not"], counts
    assert counts["remedied"] > 20 * counts["not written"], counts
    assert counts["remedied"] > CASES // 10


REFUSED = (
    "use_legacy: True\nrun_mode: train\nparallel_config: {pipeline_stage: 4}  # four\n"
    "model: {arch: {type: LlamaForCausalLM}, model_config: {num_layers: 9, offset: 0, type: LlamaConfig}}\n"
    "# kept\nrecompute_config:\n  recompute: [1, 2, -3, 1, 1]  # five\n"
)


def test_lint_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(REFUSED)
    assert main(["lint", "--lang", "en", str(path)]) == 1
    assert "available with --fix=unsafe" in capsys.readouterr().out
    assert main(["lint", "--lang", "en", "--fix=unsafe", str(path)]) == 0
    assert path.read_text() == REFUSED.replace("offset: 0", "offset: [0, 1, 0, 0]").replace(
        "[1, 2, -3, 1, 1]", "[1, 2, 0, 1]"
    )
    assert main(["normalize-recompute", str(path)]) == 0
