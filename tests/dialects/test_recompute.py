"""Test recompute and the placement of layers in the static graph: the guide's examples, and what the framework refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.diagnostics import Severity
from ms_tune.dialects.mindformers.placement import RecomputeInputs, RecomputeValues
from ms_tune.dialects.mindformers.recompute import normalize
from ms_tune.enums import RecomputeMode
from ms_tune.text import Language, render
from tests.jobs import failure, ids

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
    assert {problem.severity for problem in plan.problems} == {Severity.INFO}  # w3.matmul is inside full recompute


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
        (FLAT, None, ILLEGAL + "None"),
        (FLAT, "True", ILLEGAL + "True"),
        (FLAT, {"a": True}, ILLEGAL + "{'a': True}"),
        (FLAT, [None, 1], ILLEGAL + "[None, 1]"),
        (EVEN, [True, None], ILLEGAL + "[array([2, 2], dtype=int32), None]"),
        (EVEN, [(1, 1), [1, 1]], "TypeError: 'tuple' object does not support item assignment"),
    ],
)
def test_what_the_framework_refuses(inputs: RecomputeInputs, value: object, text: str) -> None:
    plan = plan_of(inputs, recompute=value)
    assert failure(plan) == text
    assert text in render(plan.problems[0].message, Language.EN)
    assert text in render(plan.problems[0].message, Language.ZH)


def test_a_list_too_short_for_layers_in_full_recompute_fails_nowhere() -> None:
    """The framework does not look up patterns in these layers."""
    for rows in ([[1, 1]], [[1], [1]]):  # one row of two chunks, one column of two stages
        plan = plan_of(EVEN, recompute=True, select_recompute={"a": rows}, select_comm_recompute=["b"])
        assert plan.failure is None
        assert plan.formative is not None
        assert plan.formative["select_recompute"] == {"a": rows}
        hidden = {(layer.chunk, layer.stage) for layer in plan.layers if "a" in layer.overridden}
        assert hidden == {(chunk, stage) for chunk, row in enumerate(rows) for stage, _ in enumerate(row)}


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
def test_silent_problems(values: dict[str, object], expected: set[str]) -> None:
    plan = plan_of(FLAT, **values)
    assert ids(plan) == expected
    for problem in plan.problems:
        assert render(problem.message, Language.EN) != render(problem.message, Language.ZH)


def test_the_words_of_a_bad_pattern() -> None:
    settings: dict[str, object] = {"select_recompute": ["x"], "select_recompute_exclude": ["a("]}
    assert failure(plan_of(FLAT, **settings)) == "regex.error: "
    assert failure(plan_of(FLAT._replace(version="1.6"), **settings)) == (
        "re.error: missing ), unterminated subpattern at position 1"
    )


def counts(plan: LayerPlan) -> list[list[int]]:
    assert plan.placement is not None
    return [list(row) for row in plan.placement]


def why_refused(plan: LayerPlan) -> str:
    assert plan.failure is not None
    assert plan.formative is None
    assert plan.layers == ()
    return f"{plan.failure.exception}: {plan.failure.text}"


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        ([-3, 2, 3], "ValueError: Head stage has negative layers. Offset must be ≥ -2."),
        ("auto", "ValueError: invalid literal for int() with base 10: 'auto'"),
        (float("nan"), "ValueError: cannot convert float NaN to integer"),
        ([float("inf")], "OverflowError: cannot convert float infinity to integer"),
        ([2**63], "OverflowError: Python int too large to convert to C long"),
        ([[[0, 1, 1]]], "ValueError: input operand has more dimensions than allowed by the axis remapping"),
    ],
)
def test_offsets_that_the_framework_refuses(offset: object, text: str) -> None:
    plan = normalize(RecomputeInputs(layers=8, stages=3, offset=offset))
    assert why_refused(plan) == text
    assert plan.placement is None
    assert plan.problems[0].id == "offset-rejected"


def test_a_chunk_number_is_needed_with_interleave() -> None:
    plan = normalize(RecomputeInputs(layers=8, stages=2, interleave=True, interleave_num=None, legacy=False))
    assert why_refused(plan) == "TypeError: unsupported operand type(s) for *: 'int' and 'NoneType'"


def test_only_one_scheduler_goes_without_interleave() -> None:
    plan = normalize(RecomputeInputs(layers=8, stages=2, scheduler="seqpipe"))
    assert why_refused(plan).startswith("TypeError: When pipeline_interleave is False, 'seqpipe' is not supported")


@given(
    stages=st.integers(1, 6),
    chunks=st.integers(1, 4),
    base=st.integers(1, 5),
    extra=st.lists(st.integers(0, 2), min_size=24, max_size=24),
)
def test_every_layer_has_one_place(stages: int, chunks: int, base: int, extra: list[int]) -> None:
    offset = [extra[chunk * stages : (chunk + 1) * stages] for chunk in range(chunks)]
    rest = sum(map(sum, offset))
    layers = base * stages * chunks + rest
    if rest >= stages * chunks:
        return
    plan = normalize(
        RecomputeInputs(layers=layers, stages=stages, offset=offset, interleave=True, interleave_num=chunks)
    )
    table = counts(plan)
    assert sum(map(sum, table)) == layers
    assert [(layer.chunk, layer.stage) for layer in plan.layers] == [
        (chunk, stage) for chunk, row in enumerate(table) for stage, count in enumerate(row) for _ in range(count)
    ]


def test_what_is_logged_of_a_part_that_begins_at_another_stage() -> None:
    """Columns of the tables count from the first stage of the part (``Pipeline id list with start_stage``)."""
    inputs = RecomputeInputs(
        layers=4, stages=4, stage_num=2, start_stage=1, offset=[1, -1], interleave=False, version="1.9"
    )
    plan = normalize(inputs)
    assert counts(plan) == [[3, 1]]
    assert list(plan.log[:4]) == [
        "num_layers per stage: [[3, 1]]",
        "Accumulated num_layers per stage: [[3, 4]]",
        "Pipeline id list with start_stage: [1, 1, 1, 2]",
        "Interleave id list: [0, 0, 0, 0]",
    ]
    assert [layer.stage for layer in plan.layers] == [1, 1, 1, 2]
