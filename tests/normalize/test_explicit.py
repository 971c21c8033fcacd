"""Explicit lists of the dynamic-graph dialects; those of the static graph are in ``test_edits.py``."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from ms_tune.enums import Dialect
from ms_tune.errors import MsTuneError, UsageError
from ms_tune.source.yaml import parse_source
from tests.jobs import dynamic_plan, explicit, mindspeed_plan
from tests.oracle import mindspeed_cases, pynative_cases

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


def test_ranges_of_stages() -> None:
    head = "model: {num_hidden_layers: 4}\n"
    body = "parallelism: {pipeline_parallel: 2, pipeline_parallel_layers_per_stage: [' 0 - 1 ', 2-3]}\n"
    after = body.replace("' 0 - 1 '", "'0-1'")
    assert written(Dialect.MINDFORMERS_PYNATIVE, head, body) == after


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


@pytest.mark.slow
def test_random_configs_of_mindspeed() -> None:
    count = 0
    for number in range(150):
        text = yaml.safe_dump(mindspeed_cases.random_config(Random(number)))  # noqa: S311 - the same cases every time
        source = parse_source(text, Path("c.yaml"))
        plan = mindspeed_plan(source)
        if plan.failure is None:
            result = parse_source(explicit(source, Dialect.MINDSPEED_MS).text, Path("c.yaml"))
            assert mindspeed_plan(result).layers == plan.layers
            assert explicit(result, Dialect.MINDSPEED_MS).change_count == 0
            count += 1
    assert count > 40


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_random_configs_of_the_dynamic_graph(version: str) -> None:
    count = 0
    for number in range(150):
        config, layers, mtp = pynative_cases.random_config(Random(number), version)  # noqa: S311 - as above
        whole: dict[str, Any] = {**config, "model": {"num_layers": layers, "mtp_num_layers": mtp}}
        source = parse_source(yaml.safe_dump(whole), Path("c.yaml"))
        plan = dynamic_plan(source, version)
        if plan.failure is None and plan.formative is not None:
            result = parse_source(explicit(source, Dialect.MINDFORMERS_PYNATIVE, version).text, Path("c.yaml"))
            assert dynamic_plan(result, version).layers == plan.layers
            assert explicit(result, Dialect.MINDFORMERS_PYNATIVE, version).change_count == 0
            count += 1
    assert count > 30
