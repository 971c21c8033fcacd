"""Test operator patterns with the layers of their models."""

from __future__ import annotations

import time

import pytest

from ms_tune.dialects.mindformers.operators import find, find_unmatched
from ms_tune.dialects.mindformers.placement import RecomputeInputs, RecomputeValues
from ms_tune.dialects.mindformers.recompute import normalize
from ms_tune.dialects.operators import LayerModel, Tree, layer_model
from ms_tune.dialects.values import full_match, is_risky

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
    found = find(TREE, pattern, matches_cells=True)
    assert list(found.operators) == operators
    assert list(found.cells) == cells
    assert found.text.removeprefix(" ").removeprefix(".") == text.removeprefix(" ").removeprefix(".")


def test_patterns_that_explode_are_not_tried() -> None:
    start = time.process_time()
    for segment in ("(a+)+b", "(a|a)*b", "(.*)*x", "a*" * 20 + "b", r"(a*)\1b", "(a?){30}a{30}", "x" * 1000):
        assert is_risky(segment)
        assert not full_match(segment, "a" * 40)
    assert time.process_time() - start < 5  # any one of them would run for a very long time
    for segment in ("feed_forward", ".*norm.*", "(mlp|attention)", "w[13]", "w?x+", r"a{2}"):
        assert not is_risky(segment)


def test_defaults_that_fit_nothing() -> None:
    found = unmatched("ChatGLM2ForConditionalGeneration", select_recompute=True)
    assert found == [("pattern-unmatched", r"feed_forward\.mul, feed_forward\.w1\.activation\.silu")]


def test_own_patterns_that_fit_nothing() -> None:
    values = {r"feed_forward\.mul": True, r"mlp\.mul": True, "feed_forward": [1]}
    assert unmatched("LlamaForCausalLM", select_recompute=values) == [("pattern-unmatched", r"mlp\.mul")]
    assert unmatched("LlamaForCausalLM", select_comm_recompute=["attention_norm"]) == [
        ("pattern-cell", "attention_norm")
    ]
