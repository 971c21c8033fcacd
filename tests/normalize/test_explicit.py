"""Test explicit lists of the dynamic-graph dialects; those of the static graph are in ``test_write.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.enums import Dialect
from ms_tune.errors import MsTuneError, UsageError
from ms_tune.source.yaml import parse_source
from tests.jobs import explicit

DYNAMIC = """\
# a comment
parallelism: {pipeline_parallel: 2, pipeline_parallel_interleave_num: 2}
model: {num_hidden_layers: 8}   # eight
"""
MINDSPEED = """\
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
    assert written(Dialect.MINDFORMERS_PYNATIVE, DYNAMIC, before) == after


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
    assert written(Dialect.MINDSPEED_MS, MINDSPEED, before) == after


@pytest.mark.parametrize(
    ("dialect", "text", "framework"),
    [
        (Dialect.MINDSPEED_MS, MINDSPEED + "  recompute_config: {recompute: [9, 0]}\n", "MindSpeed-Core-MS"),
        (Dialect.MINDFORMERS_PYNATIVE, DYNAMIC + "recompute: {mode: full, full_recompute_layer: [9]}\n", "MindFormers"),
    ],
)
def test_what_the_framework_refuses(dialect: Dialect, text: str, framework: str) -> None:
    with pytest.raises(UsageError) as caught:
        explicit(parse_source(text, Path("c.yaml")), dialect)
    assert f"nothing written: {framework} rejects this config" in str(caught.value)


def test_a_shared_list_is_refused() -> None:
    body = "recompute: {mode: full, full_recompute_layer: &l [0, 1]}\nrecompute_comm: {enable: True, select_module: {m: *l}}\n"
    with pytest.raises(MsTuneError) as caught:
        explicit(parse_source(DYNAMIC + body, Path("c.yaml")), Dialect.MINDFORMERS_PYNATIVE)
    assert "used elsewhere" in str(caught.value)
