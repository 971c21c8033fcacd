"""Where the time of a step goes: work, recomputation, filling and emptying the pipeline, stages that wait for slower ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.planning.costs import costs_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ms_tune.enums import RecomputeMode
    from ms_tune.planning.table import CostTable


@dataclass(frozen=True, slots=True)
class StepTimeBreakdown:
    """Parts of the time of all stages in a step; they add up to 1."""

    work: float  # forward passes and backward passes
    recompute: float  # what is computed once more, and what copies to the host and back take longer than passes
    fill: float  # waiting that stages of equal work would do as well: the pipeline fills and empties
    imbalance: float  # the rest of the waiting: for stages that take longer than others
    busy: tuple[float, ...]  # the part of the step in which each stage works


def breakdown(table: CostTable, cells: Sequence[Mapping[RecomputeMode, int]]) -> StepTimeBreakdown:
    """Where the time of a plan's step goes.

    Args:
        table: The table; of its sizes nothing is read.
        cells: How many layers of each kind of recompute every cell has.
    """
    costs = costs_of(table)
    durations = costs.durations(costs.state(cells)[None])
    step, count = int(costs.graph.step(durations)[0]), table.micro_batches
    by_cell = durations[: table.cells, 0] + durations[table.cells :, 0]
    busy = by_cell.reshape(table.chunks, table.stages).sum(axis=0) * count
    # The same work shared out evenly: what stages wait then is the schedule's own.
    halves = durations.reshape(2, table.cells).sum(axis=1) * count
    even = np.repeat(halves, table.cells)[:, None]
    least = int(costs.graph.step(even)[0]) / (table.cells * count)
    whole, all_work = table.stages * step, int(busy.sum())
    plain = costs_of(_without_extra(table))
    useful = int(plain.durations(plain.state(cells)[None]).sum()) * count * float(plain.unit / costs.unit)
    fill = max(table.stages * least - all_work, 0.0)
    waits = whole - all_work
    return StepTimeBreakdown(
        work=useful / whole,
        recompute=(all_work - useful) / whole,
        fill=min(fill, waits) / whole,
        imbalance=max(waits - fill, 0.0) / whole,
        busy=tuple(float(one) / step for one in busy),
    )


def _without_extra(table: CostTable) -> CostTable:
    return replace(
        table,
        layers=tuple(
            replace(
                layer,
                recompute={
                    kind: kept._replace(backward_extra=0.0, forward_extra=0.0) for kind, kept in layer.recompute.items()
                },
            )
            for layer in table.layers
        ),
    )
