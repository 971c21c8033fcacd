"""Test remedies of refused configs and lists: they pass, they change only what they must, and lint can write them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from ms_tune.cli.main import main
from ms_tune.errors import MsTuneError
from ms_tune.source.edit import EditRefusedError, prove
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language, render
from tests.jobs import normalize_source, plan_of, remedy_of
from tests.normalize.recorded import text_of
from tests.oracle import cases, lint_cases, mindspeed_cases, pynative_cases

SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "1"))
CASES = 150

STATIC = "parallel_config: {pipeline_stage: 4}\nmodel: {model_config: {num_layers: 8, offset: 0}}\nrecompute_config:\n"
INTERLEAVED = (
    "parallel: {pipeline_config: {pipeline_interleave: True, pipeline_scheduler: 1f1b}}\n"
    "parallel_config: {pipeline_stage: 2}\nmodel: {model_config: {num_layers: 8, pp_interleave_num: 2}}\nrecompute_config:\n"
)
DYNAMIC = "training: {steps: 1}\nmodel: {num_layers: 8}\n"
MINDSPEED = "model_config: {num_layers: 8}\nparallel_config:\n  pipeline_model_parallel_size: 2\n"


def test_a_layer_for_each_stage_leaves_one_chunk() -> None:
    assert_hint(INTERLEAVED.replace("num_layers: 8", "num_layers: 2"), "model.model_config.pp_interleave_num: 1")


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
        ("swap: {enabled: True}", "swap: {}"),
        ("swap: {enable: False, enabled: True}", "-swap.enabled"),
        (
            "swap: {enable: True, op_swap: [{op_name: mlp, layers: ['0']}, {op_name: '(', layers: ['1']}]}",
            "swap.op_swap: [{op_name: mlp, layers: ['0']}]",
        ),
        ("swap: {enable: True, op_swap: [{op_name: mlp, layers: ['5-9']}]}", 'swap.op_swap[0].layers[0]: "5-6"'),
        ("parallelism: {pipeline_parallel: '2'}", "parallelism.pipeline_parallel: 2"),
        ("parallelism: {pipeline_parallel: 2.0}", "parallelism.pipeline_parallel: 2"),
        (
            "parallelism: {pipeline_parallel: 2, pipeline_parallel_layers_per_stage: ['0-x', '4-7']}",
            "parallelism.pipeline_parallel_layers_per_stage: auto",
        ),
    ],
)
def test_remedies_of_the_dynamic_graph(text: str, hint: str) -> None:
    """Compared literally; a removed key is preceded by a minus."""
    assert_hint(DYNAMIC + text + "\n", hint)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            MINDSPEED + "  virtual_pipeline_model_parallel_size: 2\n  num_layer_list: [[3,1]]\n",
            "parallel_config.num_layer_list: [[3, 2], [2, 1]]",
        ),
        (MINDSPEED.replace("size: 2", "size: 9"), "model_config.num_layers: 9"),
        (MINDSPEED.replace("size: 2", "size: '2'"), "parallel_config.pipeline_model_parallel_size: 2"),
        (MINDSPEED.replace("layers: 8", "layers: 8, hidden_act: 3"), "-model_config.hidden_act"),
        (MINDSPEED.replace("num_layers: 8", f"{BLOCK} 9"), "model_config.recompute_num_layers: 8"),
        (MINDSPEED + "  recompute_config: [1]\n", "-parallel_config.recompute_config"),
        (MINDSPEED + "  recompute_config: {recompute: 1}\n", "parallel_config.recompute_config.recompute: [1, 0]"),
        (
            MINDSPEED + "  recompute_config: {foo: [1, 1], select_recompute: [1, 0]}\n",
            "-parallel_config.recompute_config.foo",
        ),
        (
            ONE_STAGE + "  num_layer_list: [3]\n  recompute_config: {recompute: [9]}\n",  # nothing reads the first list
            "parallel_config.recompute_config.recompute[0]: 8",
        ),
        (MINDSPEED + "  sequence_parallel: 'on'\n", "parallel_config.sequence_parallel: True"),
        (MINDSPEED + "  sequence_parallel: 'no'\n", "parallel_config.sequence_parallel: False"),
        (STATIC + "  recompute: [1.5, 1, 0, 0]\n", "recompute_config.recompute[0]: 1"),
        (STATIC + "  recompute: ['x', 1, 0, 0]\n", "recompute_config.recompute[0]: 0"),
        (INTERLEAVED + "  recompute: [[1, 1]]\n", "recompute_config.recompute: [[1, 1], [0, 0]]"),
        (INTERLEAVED + "  recompute: [[1, 1], [1, 1], [1, 1]]\n", "recompute_config.recompute: [[1, 1], [1, 1]]"),
    ],
)
def test_remedies_of_the_others(text: str, hint: str) -> None:
    assert_hint(text, hint)


def assert_hint(text: str, hint: str) -> None:
    plan = normalize_source(parse_source(text, Path("c.yaml")))
    assert plan.failure is not None
    reported = plan.problems[0].help
    assert reported is not None
    passes = f"remove {hint[1:]}" if hint[0] == "-" else f"change to: {hint}"
    assert render(reported, Language.EN) == passes


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
    """The framework's rules accept the changed values."""
    random = Random(SEED)  # noqa: S311 - the same cases every time
    counts: Counter[str] = Counter()
    for _ in range(CASES):
        config, version = make(random)
        try:
            source = parse_source(text_of(config), Path("c.yaml"))
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
                counts["not written"] += 1  # a key after a question mark
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


OTHER = "{op_name: a, layers: [1], backward_prefetch: 1}"
LAYER = "{layers: [1], backward_prefetch: 1}"


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        (f"layer_swap: [3, {LAYER}]", f"layer_swap: [{LAYER}]"),
        (f"default_prefetch: 3, layer_swap: [3, {LAYER}]", f"layer_swap: [{LAYER}]"),  # one separate entry stays
        (f"op_swap: [{{op_name: 3, layers: [1], backward_prefetch: 1}}, {OTHER}]", f"op_swap: [{OTHER}]"),
        (f"op_swap: [{LAYER}, {OTHER}]", f"op_swap: [{OTHER}]"),
        (
            "op_swap: [{op_name: [a, b], layers: [1], backward_prefetch: 0}]",
            "op_swap[0]: {op_name: [a, b], layers: [1], backward_prefetch: 1}",
        ),
        (
            "layer_swap: [{layers: ['1', 2], backward_prefetch: 1}]",
            "layer_swap[0]: {layers: [1, 2], backward_prefetch: 1}",
        ),
        (
            "layer_swap: [{layers: True, backward_prefetch: 1}, {layers: [2], backward_prefetch: 2}]",
            "layer_swap[1]: {layers: [2], backward_prefetch: 1}",
        ),
        ("layer_swap: [{layers: [1]}], default_prefetch: 3", "layer_swap[0]: {layers: [1], backward_prefetch: 3}"),
        (
            "layer_swap: {layers: [1]}, default_prefetch: 0",
            f"default_prefetch: 1; swap_config.layer_swap: {LAYER}",
        ),
    ],
)
def test_entries_of_swap(settings: str, hint: str) -> None:
    assert_hint(f"{STATIC}  recompute: False\nswap_config: {{swap: True, {settings}}}\n", f"swap_config.{hint}")


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ("select_recompute: mlp", "select_recompute: {mlp: true}"),
        ("select_recompute: {'(': [1, 1, 1, 1], a: True}", "select_recompute: {a: true}"),
        ("select_recompute: ['(', a]", "select_recompute: [a]"),
    ],
)
def test_patterns(settings: str, hint: str) -> None:
    assert_hint(f"{STATIC}  recompute: False\n  {settings}\n", f"recompute_config.{hint}")


def test_who_asks_for_no_remedy_gets_none() -> None:
    source = parse_source(
        f"{STATIC}  recompute: [9, 1, 0]\n".replace("offset: 0", "offset: [1, 1, 0, 0]"), Path("c.yaml")
    )
    reported, bare = normalize_source(source).problems[0], plan_of(source).problems[0]
    assert reported.help is not None
    assert bare.help is None
    assert bare.message == reported.message


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("parallelism: {pipeline_parallel: 9}", "model.num_layers: 9"),
        (  # the remainder goes to the middle, then to the last chunk
            "parallelism: {pipeline_parallel: 3, pipeline_parallel_interleave_num: 2}",
            "parallelism.pipeline_parallel_layers_per_stage: ['0,5', '1-2,6', '3-4,7']",
        ),
        ("recompute: {mode: full}", "recompute.full_recompute_layer: [0-7]"),
        ("recompute: {mode: full, full_recompute_layer: 3}", "recompute.full_recompute_layer: ['3']"),
        ("recompute: {mode: full, full_recompute_layer: ['5-2', '9']}", "recompute.full_recompute_layer: [2-5]"),
        ("recompute: {mode: select, select_module: {mlp: ['0'], ' ': ['1']}}", "recompute.select_module: {mlp: ['0']}"),
        (
            "recompute: {mode: full, full_recompute_layer: ['0'], exclude_op: [' ', a]}",
            "recompute.exclude_op: {a: [0-7]}",
        ),
        (
            "recompute: {mode: full, full_recompute_layer: ['0'], exclude_op: {mlp: ['99']}}",
            "recompute.exclude_op.mlp: []",
        ),
        (
            "recompute_comm: {enable: True, select_module: {'(': ['0'], mlp: ['1']}}",
            "recompute_comm.select_module: {mlp: ['1']}",
        ),
    ],
)
def test_lists_and_switches_of_the_dynamic_graph(text: str, hint: str) -> None:
    assert_hint(f"{DYNAMIC}{text}\n", hint)


def test_operators_to_leave_out_are_a_list_of_names_in_2_0() -> None:
    text = f"{DYNAMIC}recompute: {{mode: full, full_recompute_layer: ['0'], exclude_op: {{mlp: ['99'], ' ': []}}}}\n"
    hint = normalize_source(parse_source(text, Path("c.yaml")), "2.0").problems[0].help
    assert hint is not None
    assert render(hint, Language.EN) == "change to: recompute.exclude_op: [mlp]"
