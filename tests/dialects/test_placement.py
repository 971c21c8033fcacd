"""Test the placement of layers by the rules of MindFormers 1.8 to 2.1, with hand-made cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.dialects.mindformers.placement import RecomputeInputs
from ms_tune.dialects.mindformers.recompute import normalize

if TYPE_CHECKING:
    from ms_tune.dialects import LayerPlan


def counts(plan: LayerPlan) -> list[list[int]]:
    assert plan.placement is not None
    return [list(row) for row in plan.placement]


def failure(plan: LayerPlan) -> str:
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
    assert failure(plan) == text
    assert plan.placement is None
    assert plan.problems[0].id == "offset-rejected"


def test_a_chunk_number_is_needed_with_interleave() -> None:
    plan = normalize(RecomputeInputs(layers=8, stages=2, interleave=True, interleave_num=None, legacy=False))
    assert failure(plan) == "TypeError: unsupported operand type(s) for *: 'int' and 'NoneType'"


def test_only_one_scheduler_goes_without_interleave() -> None:
    plan = normalize(RecomputeInputs(layers=8, stages=2, scheduler="seqpipe"))
    assert failure(plan).startswith("TypeError: When pipeline_interleave is False, 'seqpipe' is not supported")


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
