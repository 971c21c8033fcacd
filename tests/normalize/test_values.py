"""Test values of configs: explicit lists of the dynamic-graph dialects, and values that prevent a plan, with message and line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError, MsTuneError, UsageError
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language, render
from tests.jobs import explicit, normalize_source

if TYPE_CHECKING:
    from ms_tune.dialects import LayerPlan


CHUNKED = """\
# a comment
parallelism: {pipeline_parallel: 2, pipeline_parallel_interleave_num: 2}
model: {num_hidden_layers: 8}   # eight
"""
FOUR_LAYERS = """\
model_config: {num_layers: 4}  # four
parallel_config:
  pipeline_model_parallel_size: 2
"""


def written(dialect: Dialect, head: str, body: str, version: str | None = None) -> str:
    source = parse_source(head + body, Path("c.yaml"))
    result = explicit(source, dialect, version)
    assert result.text.startswith(head)
    again = explicit(parse_source(result.text, Path("c.yaml")), dialect, version)
    assert again.text == result.text
    assert again.change_count == 0
    return result.text.removeprefix(head)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "recompute: {mode: full, full_recompute_layer: [0, '1', 2-4, 6]} # why\n",
            "recompute: {mode: full, full_recompute_layer: ['0-4', '6']} # why\n",
        ),
        (
            "recompute: {mode: full, full_recompute_layer: [0, 3]}\n",
            "recompute: {mode: full, full_recompute_layer: [0, 3]}\n",
        ),
        ("recompute: {mode: None, full_recompute_layer: [0, 1]}\n", "recompute: {mode: None, full_recompute_layer: [0, 1]}\n"),
        ("recompute:\n  mode: select\n  select_module:\n    mlp: ['0', '1']\n", "recompute:\n  mode: select\n  select_module:\n    mlp: ['0-1']\n"),
        ("recompute:\n  mode: select\n  full_recompute_layer: [0]\n  select_module:\n    mlp: [2, 3-99]\n", 'recompute:\n  mode: select\n  full_recompute_layer: [0]\n  select_module:\n    mlp: ["2-7"]\n'),
        ("recompute_comm: {enable: True, select_module: {a.b: [1, 2]}}\n", 'recompute_comm: {enable: True, select_module: {a.b: ["1-2"]}}\n'),
        ("recompute: {mode: full, full_recompute_layer: [0], exclude_op: {mlp: [' 0 ', 1]}}\n", "recompute: {mode: full, full_recompute_layer: [0], exclude_op: {mlp: ['0-1']}}\n"),
    ],
)  # fmt: skip
def test_ranges(before: str, after: str) -> None:
    assert written(Dialect.MINDFORMERS_PYNATIVE, CHUNKED, before) == after


def test_ranges_of_swap() -> None:
    head = "model: {num_hidden_layers: 6}\nparallelism: {}\n"
    body = "swap: {enable: True, layer_swap: [{layers: [0, 1]}, {layers: [2]}], op_swap: [{op_name: mlp, layers: [2, 3]}]}\n"
    after = body.replace("[0, 1]", '["0-1"]').replace("[2, 3]", '["2-3"]')
    assert written(Dialect.MINDFORMERS_PYNATIVE, head, body) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  recompute_config: {recompute: [True, 0]}  # one\n", "  recompute_config: {recompute: [1, 0]}  # one\n"),
        ("  recompute_config:\n    recompute:\n    - True\n    - 0\n", "  recompute_config:\n    recompute:\n    - 1\n    - 0\n"),
        ("  num_layer_list: '(1, 3)'\n", "  num_layer_list: [1, 3]\n"),
        ("  recompute: '[True,  1]'\n", "  recompute: '[1, 1]'\n"),
        ("  recompute_config: {recompute: [1, 0], select_recompute: False}\n", "  recompute_config: {recompute: [1, 0], select_recompute: False}\n"),
    ],
)  # fmt: skip
def test_whole_numbers(before: str, after: str) -> None:
    assert written(Dialect.MINDSPEED_MS, FOUR_LAYERS, before) == after


@pytest.mark.parametrize(
    ("dialect", "text", "framework"),
    [
        (Dialect.MINDSPEED_MS, FOUR_LAYERS + "  recompute_config: {recompute: [9, 0]}\n", "MindSpeed-Core-MS"),
        (Dialect.MINDFORMERS_PYNATIVE, CHUNKED + "recompute: {mode: full, full_recompute_layer: [9]}\n", "MindFormers"),
    ],
)
def test_what_the_framework_refuses(dialect: Dialect, text: str, framework: str) -> None:
    with pytest.raises(UsageError) as caught:
        explicit(parse_source(text, Path("c.yaml")), dialect)
    assert f"nothing written: {framework} rejects this config" in str(caught.value)


def test_a_shared_list_is_refused() -> None:
    body = "recompute: {mode: full, full_recompute_layer: &l [0, 1]}\nrecompute_comm: {enable: True, select_module: {m: *l}}\n"
    with pytest.raises(MsTuneError) as caught:
        explicit(parse_source(CHUNKED + body, Path("c.yaml")), Dialect.MINDFORMERS_PYNATIVE)
    assert "used elsewhere" in str(caught.value)


STATIC = """\
use_legacy: False
run_mode: train
parallel:
  pipeline_config: {pipeline_interleave: True, pipeline_scheduler: 1f1b}
parallel_config:
  pipeline_stage: 2
  micro_batch_num: 4
model:
  model_config:
    num_layers: 8
    pp_interleave_num: 2
    nothing: 0
recompute_config:
  recompute: False
swap_config: {}
"""
DYNAMIC = """\
training: {steps: 1}
parallelism:
  pipeline_parallel: 2
model:
  num_layers: 8
  num_nextn_predict_layers: 0
"""
MINDSPEED = """\
model_config:
  num_layers: 8
parallel_config:
  pipeline_model_parallel_size: 2
"""


def plan_of(text: str) -> LayerPlan:
    return normalize_source(parse_source(text, Path("c.yaml")))


def with_line(text: str, old: str, new: str) -> tuple[str, int]:
    """Return the text with a replacement, and its line."""
    assert text.count(old) == 1
    return text.replace(old, new), text[: text.index(old)].count("\n") + 1


@pytest.mark.parametrize(
    ("text", "old", "new", "said"),
    [
        (STATIC, "num_layers: 8", "num_layers: {}", "num_layers must be an integer from 1 to 10000"),
        (STATIC, "pipeline_stage: 2", "pipeline_stage: {}", "pipeline_stage must be an integer from 0 to 10000"),
        (STATIC, "interleave_num: 2", "interleave_num: {}", "pp_interleave_num must be an integer from 1 to 10000"),
        (DYNAMIC, "num_layers: 8", "num_layers: {}", "num_layers must be an integer from 1 to 10000"),
        (DYNAMIC, "predict_layers: 0", "predict_layers: {}", "num_nextn_predict_layers must be an integer from 0 to 10000"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", ["10001", "True", "'2'", "2.0", "[2]"])
def test_what_is_no_count(text: str, old: str, new: str, said: str, value: str) -> None:
    refused, line = with_line(text, old, new.format(value))
    with pytest.raises(ConfigError) as caught:
        plan_of(refused)
    assert said in render(caught.value.message, Language.EN)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "old", "new", "line", "said"),
    [
        (STATIC, "num_layers: 8", "num_layers: 0", 10, "num_layers must be an integer from 1 to 10000, not 0"),
        (STATIC, "num_layers: 8", "num_layers: -1", 10, "num_layers must be"),
        (STATIC, "pipeline_stage: 2", "pipeline_stage: -1", 6, "pipeline_stage must be"),
        (STATIC, "micro_batch_num: 4", "micro_batch_num: 0", 7, "micro_batch_num must be"),
        (STATIC, "num_layers: 8", "a: 1", 9, "does not give the number"),
        (DYNAMIC, "num_layers: 8", "num_layers: 0", 5, "num_layers must be"),
        (DYNAMIC, "predict_layers: 0", "predict_layers: -1", 6, "num_nextn_predict_layers must be"),
        (DYNAMIC, "pipeline_parallel: 2", "pipeline_parallel: 10001", 2, "stages exceeds 10000"),
        (DYNAMIC, "pipeline_parallel: 2", "pipeline_parallel_interleave_num: 10001", 2, "chunks exceeds 10000"),
        (MINDSPEED, "num_layers: 8", "num_layers: 10001", 2, "exceeds 10000"),
        (MINDSPEED, "num_layers: 8", "num_layers: null", 1, "the number of layers"),
        (MINDSPEED, "num_layers: 8", "hidden_size: 8", 1, "the number of layers"),
        (MINDSPEED, "\n  num_layers: 8", " 3", 1, "must be a mapping"),
        (STATIC, "nothing: 0", "num_hidden_layers: 9", 12, "num_layers and num_hidden_layers are the same setting"),
        (DYNAMIC, "num_nextn_predict_layers: 0", "num_hidden_layers: 9", 6, "are the same setting"),
        (STATIC, "pipeline_interleave: True, ", "", 4, "nothing else; found: pipeline_scheduler"),  # both or none
        (STATIC, "1f1b}", "1f1b, more: 1}", 4, "nothing else; found: "),
        (STATIC, "1f1b}", "zero}", 4, "'zero' is not one of 1f1b"),
        (STATIC, "pipeline_interleave: True", "pipeline_interleave: 1", 4, "pipeline_interleave must be"),
        (STATIC, "recompute: False", "recomputes: False", 14, "recompute_config has no key 'recomputes'"),
        (STATIC, "recompute: False", "parallel_optimizer_comm_recompute: 1", 14, "must be True or False"),
        (STATIC, "recompute: False", "recompute_slice_activation: 2", 14, "must be True or False"),
        (STATIC, "swap_config: {}", "swap_config: {swaps: True}", 15, "swap_config has no key 'swaps'"),
        (STATIC, "swap_config: {}", "swap_config: 1", 15, "swap_config must be a mapping"),
        (STATIC, "parallel:\n  pipeline_config: {pipeline_interleave: True, pipeline_scheduler: 1f1b}", "parallel: 1", 3, "parallel must be a mapping"),
    ],
)  # fmt: skip
def test_what_is_reported_with_its_line(text: str, old: str, new: str, line: int, said: str) -> None:
    refused, _ = with_line(text, old, new)
    with pytest.raises(ConfigError) as caught:
        plan_of(refused)
    assert caught.value.line == line
    assert said in render(caught.value.message, Language.EN)
    assert render(caught.value.message, Language.ZH)


@pytest.mark.parametrize(
    ("text", "old", "new", "layers"),
    [
        (STATIC, "num_layers: 8", "num_layers: 10000", 10000),
        (STATIC, "pipeline_stage: 2", "pipeline_stage: null", 8),  # null is the default
        (STATIC, "micro_batch_num: 4", "micro_batch_num: 1", 8),
        (STATIC, "pp_interleave_num: 2", "pp_interleave_num: 1", 8),
        (STATIC, "nothing: 0", "num_hidden_layers: 8", 8),  # twice the same
        (DYNAMIC, "num_layers: 8", "num_layers: 10000", 10000),
        (DYNAMIC, "pipeline_parallel: 2", "pipeline_parallel: 1", 8),
        (DYNAMIC, "num_nextn_predict_layers: 0", "num_hidden_layers: 8", 8),
        (DYNAMIC, "predict_layers: 0", "predict_layers: 1", 9),
        (MINDSPEED, "num_layers: 8", "num_layers: 10000", 10000),
        (MINDSPEED, "num_layers: 8", "num_layers: 2", 2),
    ],
)
def test_up_to_the_bounds_there_is_a_plan(text: str, old: str, new: str, layers: int) -> None:
    assert len(plan_of(text).layers) == 8
    plan = plan_of(with_line(text, old, new)[0])
    assert plan.failure is None
    assert len(plan.layers) == layers


def test_layers_are_set_before_the_network_is_wrapped() -> None:
    text = """\
use_legacy: False
run_mode: train
parallel_config: {pipeline_stage: 2, seq_split_num: 2}
model: {model_config: {model_type: qwen3, num_hidden_layers: 4, swap: True, op_swap: {OP}}}
"""
    swap = r"{op_name: 'mlp\.mul', layers: [1], backward_prefetch: PREFETCH}"
    for prefetch, layer, words in (("null", 1, "must be int, but got 'NoneType'"), ("1", None, "seq_split_num > 1")):
        source = parse_source(text.replace("OP", swap.replace("PREFETCH", prefetch)[1:-1]), Path("a.yaml"))
        failure = normalize_source(source, "1.9").failure
        assert failure is not None
        assert (failure.layer, words in failure.text) == (layer, True)
