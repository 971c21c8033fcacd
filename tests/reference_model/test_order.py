"""The order of passes in HyperParallel's pipelines, beside a simulation of them written down from its description."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

import pytest

from ms_tune.reference_model.schedule import Pass, dynamic_passes, passes

SIZES = [(stages, chunks, count) for stages in (2, 3, 4) for chunks in (2, 3) for count in range(1, 14)]


def by_operation(stage: int, stages: int, chunks: int, count: int) -> list[Pass]:
    """Operation by operation: ``forward_stage_index``, ``backward_stage_index`` and a count for each chunk."""
    rounds = max(1, count // stages)
    # With fewer micro-batches than stages, the one round is as long as there are micro-batches.
    base, rest = (count - stages, 0) if count < stages else divmod(count % stages, rounds)
    sizes = [stages + base + (1 if number < rest else 0) for number in range(rounds)]
    starts = [0, *accumulate(size * chunks for size in sizes)]
    seen: Counter[tuple[bool, int]] = Counter()

    def take(number: int, *, forward: bool) -> Pass:
        own = max(place for place, start in enumerate(starts[:-1]) if start <= number)
        chunk = (number - starts[own]) // sizes[own]
        chunk = chunk if forward else chunks - 1 - chunk
        seen[forward, chunk] += 1
        return Pass(forward, chunk, seen[forward, chunk] - 1)

    total = chunks * count
    warm_up = min((chunks - 1) * sizes[0] + 2 * (stages - 1 - stage), total)
    order = [take(number, forward=True) for number in range(warm_up)]
    for number in range(total - warm_up):
        order += [take(warm_up + number, forward=True), take(number, forward=False)]
    return order + [take(number, forward=False) for number in range(total - warm_up, total)]


@pytest.mark.parametrize(("stages", "chunks", "count"), SIZES)
def test_every_pass_is_where_the_schedule_has_it(stages: int, chunks: int, count: int) -> None:
    for stage in range(stages):
        made = dynamic_passes(stage, stages, chunks, count)
        assert made == by_operation(stage, stages, chunks, count)
        assert Counter(made) == Counter(
            Pass(forward, chunk, number)
            for forward in (True, False)
            for chunk in range(chunks)
            for number in range(count)
        )


def test_one_chunk_and_full_rounds_are_as_in_megatron() -> None:
    for stage in range(4):
        assert dynamic_passes(stage, 4, 1, 6) == passes(stage, 4, 1, 6)
        assert dynamic_passes(stage, 4, 2, 8) == passes(stage, 4, 2, 8)


def test_one_round_does_not_warm_up_with_everything() -> None:
    in_flight = [
        max(accumulate(1 if one.forward else -1 for one in order))
        for order in (dynamic_passes(3, 4, 2, 4), passes(3, 4, 2, 4))
    ]
    assert in_flight == [5, 8]
