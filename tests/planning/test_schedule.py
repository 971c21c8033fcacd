"""Compare the order of passes with independent orders and with MindSpore's, and simulate all stages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.planning.schedule import (
    PipelinePass,
    Schedule,
    enough_micro_batches,
    few_micro_batches,
    in_flight_per_chunk,
    peak_in_flight,
    stage_passes,
    warm_up_passes,
    why_refused,
)
from ms_tune.text import Language, render
from tests.planning import orders

SHAPES = [(1, 1), (2, 1), (3, 1), (4, 1), (8, 1), (2, 2), (3, 2), (4, 2), (4, 3), (4, 4)]
FULL_WARM_UP, LESS = Schedule.INTERLEAVED_FULL_WARM_UP, Schedule.INTERLEAVED_LESS_MEMORY


def pass_order(schedule: Schedule, stage: int, stages: int, chunks: int, count: int) -> list[orders.Step]:
    return [(one.forward, one.chunk, one.micro_batch) for one in stage_passes(schedule, stage, stages, chunks, count)]


def in_flight(order: list[PipelinePass], chunks: int) -> list[tuple[int, ...]]:
    """Return the micro-batches of each chunk between forward and backward, after every pass."""
    count = [0] * chunks
    seen = []
    for one in order:
        count[one.chunk] += 1 if one.forward else -1
        seen.append(tuple(count))
    return seen


def largest(seen: list[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Return the items that no other item exceeds in every chunk."""
    every = set(seen)
    return {
        one
        for one in every
        if not any(other != one and all(a >= b for a, b in zip(other, one, strict=True)) for other in every)
    }


@given(st.integers(1, 6), st.integers(2, 4), st.integers(1, 20), st.data())
def test_every_pass_is_where_the_frameworks_have_it(stages: int, chunks: int, count: int, data: st.DataObject) -> None:
    stage = data.draw(st.integers(0, stages - 1))
    sizes = (stage, stages, chunks, count)
    assert pass_order(Schedule.INTERLEAVED_SPREAD, *sizes) == orders.hyper_parallel(*sizes)
    if count >= stages:
        assert pass_order(Schedule.INTERLEAVED, *sizes) == orders.mindspore(*sizes, less_memory=False)
        assert pass_order(LESS, *sizes) == orders.mindspore(*sizes, less_memory=True)
        if count % stages == 0:
            assert pass_order(FULL_WARM_UP, *sizes) == orders.megatron(*sizes, full_warm_up=True)
            assert pass_order(Schedule.INTERLEAVED, *sizes) == orders.megatron(*sizes, full_warm_up=False)


# Kernels of FlashAttention in the order of MindSpore 2.9.0 in simulation: one layer in each cell, `jit_level` O0. "5FB"
# is five forward passes and then one forward and one backward pass in turn.
SEEN = {
    (Schedule.INTERLEAVED, 2, 2): (3, 2),
    (Schedule.INTERLEAVED, 2, 4): (4, 2),
    (Schedule.INTERLEAVED, 2, 5): (5, 3),
    (Schedule.INTERLEAVED, 4, 4): (7, 7, 6, 4),
    (Schedule.INTERLEAVED, 4, 8): (10, 8, 6, 4),
    (Schedule.INTERLEAVED, 4, 10): (12, 10, 8, 6),
}


@pytest.mark.parametrize(("schedule", "stages", "count"), SEEN)
def test_passes_lie_as_mindspore_ran_them(schedule: Schedule, stages: int, count: int) -> None:
    for stage, warm_up in enumerate(SEEN[schedule, stages, count]):
        turns = 2 * count - warm_up
        ran = "F" * warm_up + "FB" * turns + "B" * warm_up
        assert "".join("FB"[not one.forward] for one in stage_passes(schedule, stage, stages, 2, count)) == ran


@given(st.sampled_from(Schedule), st.sampled_from(SHAPES), st.integers(1, 20), st.data())
def test_every_micro_batch_goes_forward_and_then_back(
    schedule: Schedule, shape: tuple[int, int], count: int, data: st.DataObject
) -> None:
    stages, chunks = shape
    stage = data.draw(st.integers(0, stages - 1))
    if why_refused(schedule, stages, chunks, count) is not None:
        assert in_flight_per_chunk(schedule, stage, stages, chunks, count) is None
        return
    order = stage_passes(schedule, stage, stages, chunks, count)
    places = {(one.forward, one.chunk, one.micro_batch): index for index, one in enumerate(order)}
    assert len(places) == len(order) == 2 * chunks * count
    assert all(places[True, c, m] < places[False, c, m] for c in range(chunks) for m in range(count))
    assert in_flight_per_chunk(schedule, stage, stages, chunks, count) == peak_in_flight(order, chunks)
    most = max(map(sum, in_flight(order, chunks)))
    assert most == min(warm_up_passes(schedule, stage, stages, chunks, count) + 1, chunks * count)


@pytest.mark.parametrize(
    ("schedule", "sizes", "words"),
    [
        (Schedule.ONE_FORWARD_ONE_BACKWARD, (4, 2, 8), "one chunk per stage, not 2"),
        (Schedule.INTERLEAVED, (4, 2, 3), "3 micro-batches for 4 stages"),
        (FULL_WARM_UP, (4, 2, 6), "a multiple of the 4 stages"),
    ],
)
def test_what_no_framework_runs_is_refused(schedule: Schedule, sizes: tuple[int, int, int], words: str) -> None:
    refused = why_refused(schedule, *sizes)
    assert refused is not None
    assert words in render(refused, Language.EN)
    assert in_flight_per_chunk(schedule, 0, *sizes) is None


def test_more_passes_than_anybody_follows_are_not_followed() -> None:
    assert in_flight_per_chunk(Schedule.INTERLEAVED, 0, 2, 2, 10**18) is None
    assert in_flight_per_chunk(Schedule.ONE_FORWARD_ONE_BACKWARD, 1, 4, 1, 10**18) == (3,)
    assert in_flight_per_chunk(Schedule.GPIPE, 1, 4, 2, 10**18) == (10**18, 10**18)


@pytest.mark.parametrize(("stages", "chunks"), SHAPES)
def test_more_micro_batches_than_enough_hold_no_more(stages: int, chunks: int) -> None:
    enough = enough_micro_batches(stages, chunks)
    for stage in range(stages):
        expected = largest(in_flight(stage_passes(FULL_WARM_UP, stage, stages, chunks, enough), chunks))
        for rounds in range(1, 5):
            more = enough + rounds * (stages if chunks > 1 else 1)
            assert largest(in_flight(stage_passes(FULL_WARM_UP, stage, stages, chunks, more), chunks)) == expected


INTERLEAVED = [one for one in Schedule if one.value.startswith("interleaved")]


def in_flight_with_gradients(order: list[PipelinePass], chunks: int) -> list[tuple[int, ...]]:
    """Return the micro-batches in flight once every chunk had a backward pass, which allocates its gradients; only the largest."""
    now, begun = [0] * chunks, set[int]()
    found = set()
    for one in order:
        now[one.chunk] += 1 if one.forward else -1
        begun |= set() if one.forward else {one.chunk}
        if len(begun) == chunks:
            found.add(tuple(now))
    return sorted(
        one
        for one in found
        if not any(one != other and all(a <= b for a, b in zip(one, other, strict=True)) for other in found)
    )


@pytest.mark.parametrize("schedule", INTERLEAVED)
@pytest.mark.parametrize(("stages", "chunks"), [(2, 2), (4, 2), (3, 3), (4, 4), (8, 2)])
def test_with_enough_micro_batches_all_that_is_ever_in_flight_meets_all_gradients(
    schedule: Schedule, stages: int, chunks: int
) -> None:
    enough, fewer = enough_micro_batches(stages, chunks), []
    for stage in range(stages):
        ever = in_flight_with_gradients(stage_passes(schedule, stage, stages, chunks, 8 * stages), chunks)
        assert in_flight_with_gradients(stage_passes(schedule, stage, stages, chunks, enough), chunks) == ever
        fewer.append(
            in_flight_with_gradients(stage_passes(schedule, stage, stages, chunks, enough - stages), chunks) == ever
        )
    assert not all(fewer)  # one round fewer is not enough


Moment = tuple[tuple[int, ...], int, frozenset[int]]


def moments(order: list[PipelinePass], chunks: int) -> set[Moment]:
    """Return at each backward pass the micro-batches in flight, its chunk, and the chunks with remaining forward passes."""
    now, found = [0] * chunks, set()
    for place, one in enumerate(order):
        if not one.forward:
            found.add((tuple(now), one.chunk, frozenset(other.chunk for other in order[place:] if other.forward)))
        now[one.chunk] += 1 if one.forward else -1
    return found


def outdone(one: Moment, others: set[Moment]) -> bool:
    held, chunk, ahead = one
    return any(
        chunk == other and ahead <= more and all(a <= b for a, b in zip(held, most, strict=True))
        for most, other, more in others
    )


@pytest.mark.drawn(6)
@pytest.mark.parametrize("schedule", [Schedule.INTERLEAVED, Schedule.INTERLEAVED_LESS_MEMORY])
@pytest.mark.parametrize(("stages", "chunks"), SHAPES[1:])
def test_few_micro_batches_hold_as_much_next_to_all_that_is_still_to_come(
    schedule: Schedule, stages: int, chunks: int
) -> None:
    for left in range(stages):
        many = stages * 7 + left
        few = few_micro_batches(schedule, stages, chunks, many)
        assert few < 5 * stages
        for stage in range(stages):
            there = moments(stage_passes(schedule, stage, stages, chunks, few), chunks)
            assert all(
                outdone(one, there) for one in moments(stage_passes(schedule, stage, stages, chunks, many), chunks)
            )
