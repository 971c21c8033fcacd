"""The share of a step in which pipeline stages wait: the passes of the schedule played with equal micro-batches.

A backward pass takes two forward passes, sending takes no time, and chunks take what their layers do: what is left is the
schedule's own, and the least that a run can have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.planning.schedule import MOST_PASSES, Schedule, stage_passes, why_refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.planning.schedule import PipelinePass


def bubble(schedule: Schedule, placement: Sequence[Sequence[int]], micro_batches: int) -> float | None:
    """The waiting share; None where no framework runs these sizes, or nobody would follow so many passes.

    Args:
        schedule: The schedule.
        placement: Layers of each chunk on each stage.
        micro_batches: Micro-batches of a step.
    """
    chunks, stages = len(placement), len(placement[0])
    if chunks * stages * micro_batches > MOST_PASSES or why_refused(schedule, stages, chunks, micro_batches):
        return None
    orders = [stage_passes(schedule, stage, stages, chunks, micro_batches) for stage in range(stages)]
    ends: dict[tuple[bool, int, int], float] = {}
    clock, place, moved = [0.0] * stages, [0] * stages, True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while place[stage] < len(order):
                one = order[place[stage]]
                cell = one.chunk * stages + stage
                ready = _ready(one, cell, stages * chunks, ends)
                if ready is None:
                    break
                length = placement[one.chunk][stage] * (1 if one.forward else 2)
                clock[stage] = ends[one.forward, cell, one.micro_batch] = max(clock[stage], ready) + length
                place[stage] += 1
                moved = True
    whole = max(clock)
    if not whole or any(at < len(order) for at, order in zip(place, orders, strict=True)):
        return None
    busy = 3 * micro_batches * sum(map(sum, placement))
    return 1 - busy / (stages * whole)


def _ready(one: PipelinePass, cell: int, cells: int, ends: dict[tuple[bool, int, int], float]) -> float | None:
    """When what a pass takes its input from is done; None if it is not."""
    before = cell - 1 if one.forward else cell + 1
    if before < 0:
        return 0.0
    if before == cells:
        return ends.get((True, cell, one.micro_batch))
    return ends.get((one.forward, before, one.micro_batch))
