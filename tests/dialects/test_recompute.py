"""Every way to write a recompute value: the rules of MindFormers 1.8 to 2.1, by hand-made cases.

The numbers are those that MindFormers 1.9 gave (``tests/oracle`` asks it again where it is installed).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ms_tune.diagnostics import Severity
from ms_tune.dialects import ENDLESS_LOOP
from ms_tune.dialects.mindformers.placement import RecomputeInputs, RecomputeValues
from ms_tune.dialects.mindformers.recompute import normalize
from ms_tune.enums import RecomputeMode
from ms_tune.text import Language, render

if TYPE_CHECKING:
    from ms_tune.dialects import LayerPlan

GUIDE = RecomputeInputs(
    layers=48, stages=5, offset=[[0, 1, 1, 1, 1], [1, 1, 1, 1, 0]], interleave=True, interleave_num=2
)
FLAT = RecomputeInputs(layers=8, stages=4)
SMALL = RecomputeInputs(layers=7, stages=2, offset=[[0, 1], [1, 1]], interleave=True, interleave_num=2)
EVEN = RecomputeInputs(layers=8, stages=2, interleave=True, interleave_num=2)
ILLEGAL = "ValueError: Illegal input list for select_recompute: "


def plan_of(inputs: RecomputeInputs, **values: object) -> LayerPlan:
    return normalize(inputs._replace(values=RecomputeValues(**values)))


def full(inputs: RecomputeInputs, value: object) -> list[list[int]]:
    plan = plan_of(inputs, recompute=value)
    assert plan.formative is not None
    return [list(row) for row in plan.formative["layer_recompute"]]


def failure(plan: LayerPlan) -> str:
    assert plan.failure is not None
    assert plan.formative is None
    assert plan.problems[0].severity is Severity.ERROR
    return f"{plan.failure.exception}: {plan.failure.text}"


def ids(plan: LayerPlan) -> set[str]:
    return {problem.id for problem in plan.problems}


def test_the_guides_example_to_the_letter() -> None:
    plan = plan_of(
        GUIDE,
        recompute=[[2, 1, 0, 0, 0], [1, 0, 0, 0, 0]],
        select_recompute={
            r"feed_forward\.w1\.activation\.silu": True,
            r"feed_forward\.mul": True,
            r"feed_forward\.w1\.matmul": [[1, 0, 0, 0, 0], [2, 1, 0, 0, 0]],
            r"feed_forward\.w3\.matmul": [2, 1, 0, 0, 0],
        },
        select_comm_recompute=[r"ffn_norm\.norm", r"attention_norm\.norm"],
    )
    # The guide shows patterns with one backslash; a real log has Python's own quoting.
    lines = [line.replace("\\\\", "\\") for line in plan.log]
    every = "[[4, 5, 5, 5, 5], [5, 5, 5, 5, 4]]"
    assert lines[0] == f"num_layers per stage: {every}"
    assert lines[1] == "Accumulated num_layers per stage: [[4, 9, 14, 19, 24], [29, 34, 39, 44, 48]]"
    assert lines[4] == "Formative layer_recompute: [[2, 1, 0, 0, 0], [1, 0, 0, 0, 0]]"
    assert lines[6] == (
        rf"Formative select_recompute: {{'feed_forward\.w1\.activation\.silu': {every}, 'feed_forward\.mul': {every}, "
        r"'feed_forward\.w1\.matmul': [[1, 0, 0, 0, 0], [2, 1, 0, 0, 0]], "
        r"'feed_forward\.w3\.matmul': [[1, 1, 0, 0, 0], [1, 0, 0, 0, 0]]}"
    )
    assert lines[7] == (
        rf"Formative select_comm_recompute: {{'ffn_norm\.norm': {every}, 'attention_norm\.norm': {every}}}"
    )
    assert [layer.layer for layer in plan.layers if layer.recompute is RecomputeMode.FULL] == [0, 1, 4, 24]
    assert plan.layers[25].select_patterns == (
        r"feed_forward\.w1\.activation\.silu",
        r"feed_forward\.mul",
        r"feed_forward\.w1\.matmul",
    )
    assert {problem.severity for problem in plan.problems} == {Severity.INFO}  # w3.matmul is behind full recompute


@pytest.mark.parametrize(
    ("inputs", "value", "rows"),
    [
        (GUIDE, True, [[4, 5, 5, 5, 5], [5, 5, 5, 5, 4]]),
        (GUIDE, False, [[0] * 5, [0] * 5]),
        (GUIDE, [3, 4, 5, 1, 0], [[2, 2, 3, 1, 0], [1, 2, 2, 0, 0]]),
        (GUIDE, [99, 9, 10, 11, 100], [[4, 5, 5, 5, 5], [5, 4, 5, 5, 4]]),
        (GUIDE, [True, False, 3, True, 0], [[4, 0, 2, 5, 0], [5, 0, 1, 5, 0]]),
        (FLAT, [True, False, True, False], [[2, 0, 2, 0]]),
        (FLAT, [1, 2], [[1, 2, 0, 0]]),
        (FLAT, [], [[0, 0, 0, 0]]),
        (FLAT, ["1", "1", "1", "1"], [[2, 2, 2, 2]]),
        (FLAT, [[1, 1, 1, 1]], [[1, 1, 1, 1]]),
        (SMALL, [[9, 1], [0, 3]], [[1, 1], [0, 2]]),
        (SMALL, [[True, False], [1, True]], [[1, 0], [1, 2]]),
        (SMALL, [True, [0, 1]], [[1, 2], [0, 1]]),
        (SMALL, [[-1, 1], [1, 1]], [[-1, 1], [1, 1]]),
        (SMALL, [[1, 1], [1, 1], []], [[1, 1], [1, 1], []]),
        (RecomputeInputs(layers=10, stages=2, offset=[[-1, 1], [1, 1]], interleave=True, interleave_num=2), [4, 5], [[1, 3], [3, 2]]),
        (RecomputeInputs(layers=12, stages=2, interleave=True, interleave_num=3), [5, 4], [[2, 2], [2, 1], [1, 1]]),
    ],
)  # fmt: skip
def test_every_form(inputs: RecomputeInputs, value: object, rows: list[list[int]]) -> None:
    assert full(inputs, value) == rows


@pytest.mark.parametrize(
    ("inputs", "value", "text"),
    [
        (FLAT, [1.0, 1, 1, 1], ILLEGAL + "[1.0, 1, 1, 1]"),
        (FLAT, 2, ILLEGAL + "2"),
        (FLAT, None, ILLEGAL + "None"),
        (FLAT, "True", ILLEGAL + "True"),
        (FLAT, {"a": True}, ILLEGAL + "{'a': True}"),
        (FLAT, [None, 1], ILLEGAL + "[None, 1]"),
        (EVEN, [[1, 1], 2], ILLEGAL + "[[1, 1], 2]"),
        (EVEN, [[1.5, 1], [1, 1]], ILLEGAL + "[[1.5, 1], [1, 1]]"),
        (EVEN, [True, None], ILLEGAL + "[array([2, 2], dtype=int32), None]"),
        (EVEN, [[[1]]], ILLEGAL + "[[[1]]]"),
        (EVEN, [[1, 1, 1], [1, 1]], "IndexError: index 2 is out of bounds for axis 1 with size 2"),
        (EVEN, [[1, 1]] * 3, "IndexError: index 2 is out of bounds for axis 0 with size 2"),
        (FLAT, [[1] * 4] * 2, "IndexError: index 1 is out of bounds for axis 0 with size 1"),
        (EVEN, [(1, 1), [1, 1]], "TypeError: 'tuple' object does not support item assignment"),
        (
            FLAT,
            [1, 1, 1, 1, 1],
            (
                "ValueError: length of recompute should be equal or less than pipeline_stage number, but get "
                "length of recompute ([1, 1, 1, 1, 1]) > pp(4)"
            ),
        ),
        (FLAT, (1, 1, 1, 1, 0), "IndexError: index 4 is out of bounds for axis 0 with size 4"),
    ],
)
def test_what_the_framework_refuses(inputs: RecomputeInputs, value: object, text: str) -> None:
    plan = plan_of(inputs, recompute=value)
    assert failure(plan) == text
    assert text in render(plan.problems[0].message, Language.EN)
    assert text in render(plan.problems[0].message, Language.ZH)


@pytest.mark.parametrize("value", [[-1, 0, 0, 0], [0, -5]])
def test_a_negative_count_never_comes_back(value: list[int]) -> None:
    plan = plan_of(FLAT, recompute=value)
    assert failure(plan) == f"{ENDLESS_LOOP}: "
    assert ids(plan) >= {ENDLESS_LOOP}


@pytest.mark.parametrize(
    ("value", "layer"),
    [([[1], [1, 1]], 2), ([[1, 1]], 4)],
)
def test_rows_that_are_missing_show_at_the_first_layer_that_needs_them(value: object, layer: int) -> None:
    plan = plan_of(EVEN, recompute=value)
    assert failure(plan) == "IndexError: list index out of range"
    assert plan.failure is not None
    assert plan.failure.layer == layer
    assert plan.problems[0].id == "layer-rejected"
    assert plan.log[4].startswith("Formative layer_recompute: ")  # it is logged all the same


def test_default_patterns() -> None:
    legacy = plan_of(EVEN, select_recompute=[1, 3], select_comm_recompute=True)
    assert legacy.formative is not None
    assert legacy.formative["select_recompute"] == {
        r"feed_forward\.mul": [[1, 2], [0, 1]],
        r"feed_forward\.w1\.activation\.silu": [[1, 2], [0, 1]],
    }
    assert legacy.formative["select_comm_recompute"] == {r".*\.norm": [[2, 2], [2, 2]]}
    core = plan_of(EVEN._replace(legacy=False), select_recompute=True)
    assert core.formative is not None
    assert list(core.formative["select_recompute"]) == [
        r"mlp\.shared_experts\.mul",
        r"mlp\.shared_experts\.activation_func\.silu",
        r"mlp\.mul",
        r"mlp\.activation_func\.silu",
    ]


@pytest.mark.parametrize("value", [[], {}])
def test_no_patterns(value: object) -> None:
    plan = plan_of(EVEN, select_recompute=value, select_recompute_exclude=value)
    assert plan.formative is not None
    assert plan.formative["select_recompute"] == {}


def test_a_dict_of_patterns() -> None:
    plan = plan_of(EVEN, select_recompute={"a": True, "b": False, "c": [3, 0], "d": [[9, 0], [0, 1]], "e": ["x"]})
    assert plan.formative is not None
    assert plan.formative["select_recompute"] == {
        "a": [[2, 2], [2, 2]],
        "b": [[0, 0], [0, 0]],
        "c": [[2, 0], [1, 0]],
        "d": [[2, 0], [0, 1]],
        "e": [[2, 2], [2, 2]],
    }
    assert ids(plan) >= {"strings-mean-all", "count-clamped"}


@pytest.mark.parametrize("value", [1, None, {"b": True}])
def test_what_a_pattern_cannot_have(value: object) -> None:
    assert failure(plan_of(EVEN, select_recompute={"a": value})) == f"{ILLEGAL}{value}"


def test_rows_for_the_default_patterns_must_not_need_cutting() -> None:
    assert plan_of(EVEN, select_recompute=[[1, 0], [2, 2]]).failure is None
    plan = plan_of(EVEN, select_recompute=[[1, 0], [2, 9]])
    assert failure(plan) == ILLEGAL + "[[1, 0], [2, 2]]"
    assert "more than once" in render(plan.problems[0].message, Language.EN)


def test_rows_that_are_cut_fail_when_the_prediction_block_reads_them_again() -> None:
    core = EVEN._replace(legacy=False, mtp_layers=1)
    assert plan_of(core, recompute=[[1, 2], [0, 2]]).failure is None
    plan = plan_of(core, recompute=[[1, 3], [0, 2]])
    assert plan.problems[0].id == "mtp-rejected"
    assert plan_of(core._replace(legacy=True), recompute=[[1, 3], [0, 2]]).failure is None


def test_one_list_under_two_keys() -> None:
    shared = [[1, 3], [0, 2]]
    plan = plan_of(EVEN, recompute=shared, select_recompute={"a": shared})
    assert failure(plan) == ILLEGAL + "[[1, 2], [0, 2]]"
    assert shared == [[1, 3], [0, 2]]
    assert plan_of(EVEN, recompute=shared, select_recompute={"a": [[1, 3], [0, 2]]}).failure is None


def test_full_recompute_wins() -> None:
    plan = plan_of(EVEN, recompute=[[1, 0], [0, 0]], select_recompute=["a"], select_comm_recompute=["b"])
    first, second = plan.layers[0], plan.layers[1]
    assert (first.recompute, first.select_patterns, first.comm_patterns) == (RecomputeMode.FULL, (), ())
    assert (second.recompute, second.select_patterns, second.comm_patterns) == (RecomputeMode.SELECT, ("a",), ("b",))
    assert plan_of(EVEN, select_comm_recompute=["b"]).layers[0].recompute is RecomputeMode.COMM


def test_a_list_too_short_for_layers_in_full_recompute_fails_nowhere() -> None:
    """The framework does not look up patterns there."""
    for rows in ([[1, 1]], [[1], [1]]):  # one of two chunks, one of two stages
        plan = plan_of(EVEN, recompute=True, select_recompute={"a": rows}, select_comm_recompute=["b"])
        assert plan.failure is None
        assert plan.formative is not None
        assert plan.formative["select_recompute"] == {"a": rows}
        hidden = {(layer.chunk, layer.stage) for layer in plan.layers if "a" in layer.overridden}
        assert hidden == {(chunk, stage) for chunk, row in enumerate(rows) for stage, _ in enumerate(row)}


def test_excludes_reach_full_layers_too() -> None:
    plan = plan_of(EVEN, recompute=True, select_recompute_exclude={"a": [1, 0]}, select_comm_recompute_exclude=["b"])
    assert [layer.select_excludes for layer in plan.layers] == [("a",), *[()] * 7]
    assert {layer.comm_excludes for layer in plan.layers} == {("b",)}


def test_an_exclude_pattern_drops_the_pattern_that_says_the_same() -> None:
    plan = plan_of(EVEN, select_recompute=[r"mlp\.mul", "x"], select_recompute_exclude={r".*\.mul": False})
    assert plan.formative is not None
    assert list(plan.formative["select_recompute"]) == ["x"]
    assert plan.log[6] == (
        r"The pattern mlp\.mul in select_recompute conflicts with select_recompute_exclude and will be removed."
    )
    assert ids(plan) == {"pattern-excluded"}


def test_zero_bubble_reverses_the_second_row() -> None:
    inputs = RecomputeInputs(
        layers=9,
        stages=4,
        offset=[[0, 0, 0, 1], [0, 0, 0, 0]],
        interleave=True,
        interleave_num=2,
        scheduler="zero_bubble_v",
    )
    assert full(inputs, [[1, 1, 1, 1], [0, 0, 1, 1]]) == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert failure(plan_of(inputs, recompute=[1, 1])) == "TypeError: 'int' object is not subscriptable"
    assert failure(plan_of(inputs, recompute=[[1]])) == "IndexError: list index out of range"
    assert failure(plan_of(inputs._replace(legacy=False, micro_batches=8), recompute=[1, 1])).startswith(
        "ValueError: When zero_bubble_v is enabled, 'recompute' must provide explicit 2D configuration"
    )
    assert failure(plan_of(inputs._replace(legacy=False))) == (
        "ValueError: When zero_bubble_v is enabled, micro_batch_num(1) >= 2 * stage_num(4) must be met."
    )


def test_slice_activation_is_for_legacy_models() -> None:
    assert plan_of(EVEN._replace(slice_activation=True)).failure is None
    assert failure(plan_of(EVEN._replace(slice_activation=True, legacy=False))) == (
        "ValueError: For recompute, `recompute_slice_activation` is not supported in Mcore."
    )


@pytest.mark.parametrize("value", [True, [0, 0]])
def test_split_sequences_refuse_full_recompute(value: object) -> None:
    plan = plan_of(EVEN._replace(sequence_splits=2), recompute=value)
    assert failure(plan) == "ValueError: When using seq pipe, cannot apply full recompute."


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"recompute": [1, 1]}, {"list-short"}),
        ({"recompute": [9, 0, 0, 0]}, {"count-clamped"}),
        ({"recompute": ["a"]}, {"strings-mean-all"}),
        ({"recompute": [[-1, 0, 0, 0]]}, {"count-negative"}),
        ({"recompute": True, "select_recompute": True}, {"select-hidden"}),
        ({"select_recompute": ["feed_forward.mul"]}, {"pattern-dot"}),
        ({"select_recompute": [r"feed_forward\."]}, {"pattern-empty"}),
        ({"select_recompute": [r"feed_forward\..*"]}, {"pattern-any"}),
        ({"select_comm_recompute": ["feed_forward("]}, {"pattern-invalid", "layer-rejected"}),
        ({"select_comm_recompute": [r".*\.norm"]}, set()),
    ],
)
def test_traps(values: dict[str, object], expected: set[str]) -> None:
    plan = plan_of(FLAT, **values)
    assert ids(plan) == expected
    for problem in plan.problems:
        assert render(problem.message, Language.EN) != render(problem.message, Language.ZH)
