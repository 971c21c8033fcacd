"""The modules that patterns of the dynamic graph reach, where the config's model is known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ms_tune.source.yaml import parse_source
from tests.jobs import dynamic_plan

if TYPE_CHECKING:
    from ms_tune.dialects import LayerPlan

QWEN = "model: {model_type: qwen3, num_hidden_layers: 4}\nparallelism: {tensor_parallel: 2}\n"
DEEPSEEK = (
    "model: {model_type: deepseek_v3, num_hidden_layers: 3, num_nextn_predict_layers: 1, first_k_dense_replace: 1}\n"
    "parallelism: {tensor_parallel: 2}\n"
)


def plan_of(text: str, version: str = "2.1") -> LayerPlan:
    return dynamic_plan(parse_source(text, Path("c.yaml")), version)


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_patterns_become_modules(version: str) -> None:
    plan = plan_of(QWEN + "recompute: {mode: select, select_module: {'mlp\\.linear_.*': [1], mlpx: [0]}}\n", version)
    chosen = plan.layers[1].select_patterns
    assert {"mlp.linear_fc1", "mlp.linear_fc2"} <= set(chosen)
    assert all(name.startswith("mlp.linear_fc") for name in chosen)
    assert not plan.layers[0].select_patterns
    assert "no-match" in {problem.id for problem in plan.problems}
    assert f"Set select recompute at layer 1: {', '.join(chosen)}" in plan.log


def test_kinds_of_layers() -> None:
    patterns = "{'mlp\\.experts': [0-3], 'transformer_layer\\.mlp\\.experts': [0-3]}"
    plan = plan_of(DEEPSEEK + f"recompute: {{mode: select, select_module: {patterns}}}\n")
    assert [layer.select_patterns for layer in plan.layers] == [
        (),
        ("mlp.experts",),
        ("mlp.experts",),
        ("transformer_layer.mlp.experts",),
    ]


def test_communication_is_not_known() -> None:
    section = "recompute_comm: {enable: True, select_module: {'self_attention\\.input\\.allgather': [0]}}\n"
    plan = plan_of(QWEN + section)
    assert plan.layers[0].comm_patterns == ("self_attention\\.input\\.allgather",)
    assert "no-match" not in {problem.id for problem in plan.problems}


def test_other_models_keep_their_patterns() -> None:
    plan = plan_of(QWEN.replace("qwen3", "mine") + "recompute: {mode: select, select_module: {'mlp.*': [1]}}\n")
    assert plan.layers[1].select_patterns == ("mlp.*",)
    assert "as-written" in {problem.id for problem in plan.problems}
