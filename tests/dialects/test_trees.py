"""Operator patterns and the layers of the models they are meant for."""

from __future__ import annotations

import re
import time

import pytest

from ms_tune.dialects.mindformers.operators import ahead_lines, find, find_unmatched, layer_lines, narrowed
from ms_tune.dialects.mindformers.placement import RecomputeInputs, RecomputeValues
from ms_tune.dialects.mindformers.recompute import normalize
from ms_tune.dialects.operators import LayerModel, Tree, expert_layers, layer_model
from ms_tune.dialects.values import full_match, is_risky
from ms_tune.facts.query import load

_W1 = Tree(["matmul"], [("activation", Tree(["silu"]))])
TREE = Tree(["add"], [("norm", Tree(["norm"])), ("mlp", Tree(["mul"], [("w1", _W1), ("w3", Tree(["matmul"]))]))])


def model(name: str, variant: str = "", dense: int = 0, release: str = "1.9") -> LayerModel:
    found = layer_model(name, release, variant, (*(False,) * dense, True))
    assert found is not None
    return found


def unmatched(name: str, variant: str = "", *, legacy: bool = True, **values: object) -> list[tuple[str, object]]:
    inputs = RecomputeInputs(layers=2, legacy=legacy, values=RecomputeValues(**values))
    problems = find_unmatched(inputs, normalize(inputs), model(name, variant))
    return [(problem.id, problem.message.params["pattern"]) for problem in problems]


@pytest.mark.parametrize(
    ("pattern", "operators", "cells", "text"),
    [
        (r"mlp\.mul", ["mlp.mul"], [], ".mlp.mul"),
        (r"mlp\.w1\.activation\.silu", ["mlp.w1.activation.silu"], [], " mlp.w1.activation.silu"),
        (r"mlp\.w.\.matmul", ["mlp.w1.matmul", "mlp.w3.matmul"], [], " mlp.w1.matmul, mlp.w3.matmul"),
        (r"mlp\.(w1|w3)", [], ["mlp.w1", "mlp.w3"], " mlp.w3"),
        ("mlp", [], ["mlp"], ".mlp"),
        ("norm", [], ["norm"], ".norm"),
        (r".*\.norm", ["norm.norm"], [], " norm.norm"),
        ("mlp.mul", [], [], ""),
        (r"layers\.mlp\.mul", [], [], ""),
        (r"mlp\.", [], [], ""),
        ("", [], [], ""),
    ],
)
def test_finding(pattern: str, operators: list[str], cells: list[str], text: str) -> None:
    found = find(TREE, pattern, takes_cells=True)
    assert list(found.operators) == operators
    assert list(found.cells) == cells
    assert found.text.removeprefix(" ").removeprefix(".") == text.removeprefix(" ").removeprefix(".")


def test_no_regular_expression() -> None:
    with pytest.raises(re.error):
        find(TREE, "mlp(", takes_cells=True)


def test_patterns_that_explode_are_not_tried() -> None:
    start = time.process_time()
    for segment in ("(a+)+b", "(a|a)*b", "(.*)*x", "a*" * 20 + "b", r"(a*)\1b", "(a?){30}a{30}", "x" * 1000):
        assert is_risky(segment)
        assert not full_match(segment, "a" * 40)
    assert time.process_time() - start < 5  # any one of them would run for ages
    for segment in ("feed_forward", ".*norm.*", "(mlp|attention)", "w[13]", "w?x+", r"a{2}"):
        assert not is_risky(segment)


def test_every_model_has_a_layer_with_a_norm() -> None:
    for name, variants in load("trees")["static"].items():
        for variant in variants:
            tree = model(name, variant).tree(0)
            assert tree is not None
            assert find(tree, r".*\.norm", takes_cells=False).operators


@pytest.mark.parametrize(
    ("name", "legacy", "variant"),
    [("LlamaForCausalLM", True, ""), ("qwen3", False, "silu"), ("telechat3_moe", False, "silu")],
)
def test_default_patterns_fit_their_models(name: str, variant: str, *, legacy: bool) -> None:
    assert unmatched(name, variant, legacy=legacy, select_recompute=True, select_comm_recompute=True) == []


def test_defaults_that_fit_nothing() -> None:
    found = unmatched("ChatGLM2ForConditionalGeneration", select_recompute=True)
    assert found == [("pattern-unmatched", r"feed_forward\.mul, feed_forward\.w1\.activation\.silu")]


def test_own_patterns_that_fit_nothing() -> None:
    values = {r"feed_forward\.mul": True, r"mlp\.mul": True, "feed_forward": [1]}
    assert unmatched("LlamaForCausalLM", select_recompute=values) == [("pattern-unmatched", r"mlp\.mul")]
    assert unmatched("LlamaForCausalLM", select_comm_recompute=["attention_norm"]) == [
        ("pattern-cell", "attention_norm")
    ]


def test_layers_with_experts() -> None:
    inputs = RecomputeInputs(layers=3, legacy=False, values=RecomputeValues(select_recompute=[r"mlp\.experts\..*glu"]))
    lines = layer_lines(inputs, normalize(inputs), model("deepseek_v3", "fusedswiglu", dense=1))
    assert lines == [f"Set select recompute on at layer {layer}: mlp.experts.swiglu" for layer in (1, 2)]


def test_a_model_of_unknown_settings_has_no_lines() -> None:
    inputs = RecomputeInputs(layers=1, values=RecomputeValues(select_recompute=True))
    assert layer_lines(inputs, normalize(inputs), model("LlamaForCausalLM", "?")) == []
    assert layer_model("MyForCausalLM", "1.9") is None


def test_what_patterns_match() -> None:
    values = {r"feed_forward\.w.\.matmul": True, "attention": False, r"nothing\.here": True}
    inputs = RecomputeInputs(
        layers=1, values=RecomputeValues(select_recompute=values, select_comm_recompute=["attention_norm"])
    )
    seen = narrowed(normalize(inputs), model("LlamaForCausalLM"))
    assert seen is not None
    layers, found = seen
    assert [layer.select_patterns for layer in layers] == [(r"feed_forward\.w.\.matmul",)]
    assert not layers[0].comm_patterns  # a cell, where only operators count
    assert found == {
        r"feed_forward\.w.\.matmul": (
            "feed_forward.w1.matmul",
            "feed_forward.w2.matmul",
            "feed_forward.w3.matmul",
        ),
    }


def test_prediction_layers_log_everything_once_more() -> None:
    values = RecomputeValues(recompute=[1], select_recompute=[r"mlp\..*func\.silu", r".*\.mlp\.activation_func\.silu"])
    inputs = RecomputeInputs(layers=2, mtp_layers=1, legacy=False, values=values)
    plan = normalize(inputs)
    found = model("deepseek_v3", "silu", dense=1)
    assert ahead_lines(inputs, plan, found) == list(plan.log)  # an expert's activation lies deeper still
    assert found.ahead is not None
    assert "transformer_layer.mlp.shared_experts.activation_func.silu" in set(found.ahead.paths())
    everything = inputs._replace(values=RecomputeValues(recompute=True, select_comm_recompute=True))
    assert ahead_lines(everything, normalize(everything), found)[-1] == "Set full recompute at layer 1"
    listed = inputs._replace(values=RecomputeValues(recompute=[2]))
    plan = normalize(listed)
    assert ahead_lines(listed, plan, found) == [*plan.log, "Set full recompute at layer 1"]
    assert ahead_lines(listed._replace(mtp_layers=0), plan, found) == []


def test_the_layer_that_predicts_is_of_the_last_layers_kind() -> None:
    ahead = layer_model("deepseek_v3", "2.1", "silu", expert_layers(2, 2, 1))
    assert ahead is not None
    assert ahead.ahead is not None
    paths = set(ahead.ahead.paths())
    assert "transformer_layer.mlp.activation_func.silu" in paths
    assert "transformer_layer.mlp.shared_experts" not in paths


@pytest.mark.parametrize(
    ("dense", "frequency", "experts"),
    [
        (0, 1, "1111"),
        (1, 1, "0111"),
        (None, 2, "1010"),
        (-1, 1, "1111"),
        (0, [1, 0, 0, 1], "1001"),
        (4, 1, "0000"),
        (10**30, 1, "0000"),
        (-(10**30), 1, "1111"),
    ],
)
def test_which_layers_have_experts(dense: object, frequency: object, experts: str) -> None:
    found = expert_layers(4, dense, frequency)
    assert found is not None
    assert "".join("01"[one] for one in found[:4]) == experts


@pytest.mark.parametrize(("dense", "frequency"), [(0, 0), (None, None), (0, [1]), (0, "1"), ("2", 1.0)])
def test_what_the_framework_refuses_tells_nothing_of_experts(dense: object, frequency: object) -> None:
    assert expert_layers(4, dense, frequency) is None
