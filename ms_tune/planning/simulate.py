"""How long a training step takes: the longest path through the passes of all stages, for many plans at once.

Each pass waits for the pass before it on its stage and for the neighbour's pass that it takes its input from; sending takes
no time. With the order fixed, a step's time is the largest of many sums of pass times, so it is convex in the plan.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ms_tune.planning.schedule import PipelinePass, stage_passes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ms_tune.planning.table import CostTable


@dataclass(frozen=True, slots=True, eq=False)
class PassMoment:
    """Micro-batches that a stage holds right before a backward pass."""

    held: tuple[int, ...]  # by chunk
    chunk: int  # the chunk whose backward pass comes next
    # By chunk, whether its last pass was a backward one; for none where a table has nothing that stays behind it.
    back: tuple[bool, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PassGraph:
    """The passes of one training step of all stages, level by level: a pass waits for passes of lower levels only."""

    cells: int  # how many (chunk, stage) there are
    kind: NDArray[np.intp]  # Of each pass, its cell, or `cells` and its cell for a backward pass. Shape (passes,).
    before: NDArray[np.intp]  # The pass before it on its stage; `passes` for none. Shape (passes,).
    source: NDArray[np.intp]  # The neighbour's pass that it takes its input from; `passes` for none. Shape (passes,).
    levels: tuple[tuple[int, int], ...]  # first and last-but-one pass of each level
    # Of each stage, when it may hold most; a moment that another one outdoes is left out.
    moments: tuple[tuple[PassMoment, ...], ...]

    def end_ticks(self, durations: NDArray[Any]) -> NDArray[Any]:
        """When each pass ends. ``durations`` is by kind and plan, shape (2 x cells, plans); the result (passes + 1, plans)."""
        ends = np.zeros((len(self.kind) + 1, durations.shape[1]), durations.dtype)
        for start, stop in self.levels:
            level = ends[start:stop]
            np.maximum(ends[self.before[start:stop]], ends[self.source[start:stop]], out=level)
            level += durations[self.kind[start:stop]]
        return ends

    def step_ticks(self, durations: NDArray[Any]) -> NDArray[Any]:
        """How long the step takes, shape (plans,)."""
        found: NDArray[Any] = self.end_ticks(durations).max(axis=0)
        return found


def graph_of(table: CostTable) -> PassGraph:
    """The passes of a table's pipeline."""
    stages, chunks, cells = table.stages, table.chunks, table.cells
    lingers = table.again is not None and table.again.lingers
    orders = [stage_passes(table.order, stage, stages, chunks, table.micro_batches) for stage in range(stages)]
    levels = _pass_levels(orders, stages, cells)
    ranked = sorted(levels, key=lambda key: (levels[key], key[0], key[1]))
    place = {key: index for index, key in enumerate(ranked)}
    nothing = len(ranked)
    kind, before, source = (np.full(nothing, nothing, np.intp) for _ in range(3))
    for stage, order in enumerate(orders):
        for index, one in enumerate(order):
            here = place[stage, index]
            kind[here] = one.chunk * stages + stage + (0 if one.forward else cells)
            if index:
                before[here] = place[stage, index - 1]
    where = {(one.forward, one.chunk * stages + stage, one.micro_batch): place[stage, index]
             for stage, order in enumerate(orders) for index, one in enumerate(order)}  # fmt: skip
    for (forward, cell, micro), here in where.items():
        giver = _source_pass(forward=forward, cell=cell, cells=cells)
        if giver is not None:
            source[here] = where[giver[0], giver[1], micro]
    bounds = np.flatnonzero(np.diff([levels[key] for key in ranked], prepend=-1, append=-1))
    spans = tuple(pairwise(bounds.tolist()))
    return PassGraph(
        cells, kind, before, source, spans, tuple(_peak_moments(order, chunks, lingers=lingers) for order in orders)
    )


def _source_pass(*, forward: bool, cell: int, cells: int) -> tuple[bool, int] | None:
    # The pass, of the same micro-batch, that a pass takes its input from.
    if forward:
        return (True, cell - 1) if cell else None
    return (False, cell + 1) if cell < cells - 1 else (True, cell)


def _pass_levels(orders: list[list[PipelinePass]], stages: int, cells: int) -> dict[tuple[int, int], int]:
    # The level of each pass, by stage and place in the stage's order: one more than of those that it waits for.
    level: dict[tuple[int, int], int] = {}
    arrived: dict[tuple[bool, int, int], int] = {}
    waiting: dict[tuple[bool, int, int], int] = {}
    next_of = [0] * stages
    todo = deque(range(stages))
    while todo:
        stage = todo.popleft()
        while next_of[stage] < len(orders[stage]):
            index = next_of[stage]
            one = orders[stage][index]
            cell = one.chunk * stages + stage
            giver = _source_pass(forward=one.forward, cell=cell, cells=cells)
            needs = (*giver, one.micro_batch) if giver is not None else None
            if needs is not None and needs not in arrived:
                waiting[needs] = stage
                break
            own = max(level[stage, index - 1] if index else -1, arrived[needs] if needs is not None else -1) + 1
            level[stage, index] = own
            done = (one.forward, cell, one.micro_batch)
            arrived[done] = own
            next_of[stage] += 1
            if done in waiting:
                todo.append(waiting.pop(done))
    return level


def _peak_moments(order: list[PipelinePass], chunks: int, *, lingers: bool) -> tuple[PassMoment, ...]:
    # Right before backward passes: there a stage holds most. Of one chunk, only those that no other one outdoes.
    held, back = [0] * chunks, [False] * chunks
    found: dict[tuple[int, tuple[bool, ...]], set[tuple[int, ...]]] = {}
    for one in order:
        if not one.forward:
            found.setdefault((one.chunk, tuple(back)), set()).add(tuple(held))
        held[one.chunk] += 1 if one.forward else -1
        back[one.chunk] = lingers and not one.forward
    return tuple(
        PassMoment(vector, *place)
        for place in sorted(found)
        for vector in sorted(_undominated(found[place]), reverse=True)
    )


def _undominated(vectors: set[tuple[int, ...]]) -> list[tuple[int, ...]]:
    kept: list[tuple[int, ...]] = []
    for one in sorted(vectors, key=lambda vector: (-sum(vector), vector)):
        if not any(all(a >= b for a, b in zip(other, one, strict=True)) for other in kept):
            kept.append(one)
    return kept
