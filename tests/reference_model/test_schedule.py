"""The order of passes, against a pipeline of all stages that is played through message by message."""

from __future__ import annotations

from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.reference_model.schedule import Pass, enough_micro_batches, passes, warm_up_passes

SHAPES = [(1, 1), (2, 1), (3, 1), (4, 1), (8, 1), (2, 2), (3, 2), (4, 2), (4, 3), (4, 4)]


def in_flight(order: list[Pass], chunks: int) -> list[tuple[int, ...]]:
    """Micro-batches of each chunk between forward and backward, after every pass."""
    held = [0] * chunks
    seen = []
    for one in order:
        held[one.chunk] += 1 if one.forward else -1
        seen.append(tuple(held))
    return seen


def largest(seen: list[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Those that no other one outdoes in every chunk."""
    every = set(seen)
    return {
        one
        for one in every
        if not any(other != one and all(a >= b for a, b in zip(other, one, strict=True)) for other in every)
    }


@given(st.sampled_from(SHAPES), st.integers(1, 6), st.data())
def test_every_micro_batch_goes_forward_and_then_back(shape: tuple[int, int], rounds: int, data: st.DataObject) -> None:
    stages, chunks = shape
    stage = data.draw(st.integers(0, stages - 1))
    count = rounds * stages if chunks > 1 else rounds
    order = passes(stage, stages, chunks, count)
    places = {(one.forward, one.chunk, one.micro_batch): index for index, one in enumerate(order)}
    assert len(places) == len(order) == 2 * chunks * count
    assert all(places[True, c, m] < places[False, c, m] for c in range(chunks) for m in range(count))


@pytest.mark.parametrize(("stages", "chunks"), SHAPES)
@pytest.mark.parametrize("rounds", [1, 2, 3, 5])
def test_the_stages_agree_on_an_order_that_ends(stages: int, chunks: int, rounds: int) -> None:
    """Play all stages: each waits for the message that its next pass needs, from the neighbour that sends it."""
    count = rounds * stages if chunks > 1 else rounds
    todo = [deque(passes(stage, stages, chunks, count)) for stage in range(stages)]
    arrived: Counter[tuple[bool, int, int]] = Counter()  # direction, place in the whole model, micro-batch
    last = stages * chunks - 1
    while any(todo):
        moved = False
        for stage, queue in enumerate(todo):
            while queue:
                one = queue[0]
                place = one.chunk * stages + stage
                edge = place == 0 if one.forward else place == last
                if not edge and not arrived[one.forward, place, one.micro_batch]:
                    break
                arrived[one.forward, place + (1 if one.forward else -1), one.micro_batch] += 1
                queue.popleft()
                moved = True
        assert moved, f"every stage waits: {[queue[0] for queue in todo if queue]}"


@pytest.mark.parametrize(("stages", "chunks"), SHAPES)
def test_what_is_in_flight_is_the_warm_up_and_one(stages: int, chunks: int) -> None:
    count = 4 * stages
    for stage in range(stages):
        seen = in_flight(passes(stage, stages, chunks, count), chunks)
        assert max(map(sum, seen)) == warm_up_passes(stage, stages, chunks, count) + 1
        assert seen[-1] == (0,) * chunks


def test_the_first_stage_of_four_holds_four_and_the_last_one() -> None:
    assert [warm_up_passes(stage, 4, 1, 16) for stage in range(4)] == [3, 2, 1, 0]
    # Megatron-LM, schedules.py: (stages - stage - 1) * 2 + (chunks - 1) * stages
    assert [warm_up_passes(stage, 4, 2, 16) for stage in range(4)] == [10, 8, 6, 4]
    assert warm_up_passes(0, 4, 2, 4) == 8  # as many micro-batches as stages: all of them


@pytest.mark.parametrize(("stages", "chunks"), SHAPES)
def test_more_micro_batches_than_enough_hold_no_more(stages: int, chunks: int) -> None:
    enough = enough_micro_batches(stages, chunks)
    for stage in range(stages):
        expected = largest(in_flight(passes(stage, stages, chunks, enough), chunks))
        for rounds in range(1, 5):
            more = enough + rounds * (stages if chunks > 1 else 1)
            assert largest(in_flight(passes(stage, stages, chunks, more), chunks)) == expected
