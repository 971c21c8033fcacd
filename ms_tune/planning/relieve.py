"""A plan whose layers stay where they are, while some stages recompute more: what other stages hold does not change."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.enums import RecomputeMode
from ms_tune.planning.anneal import allowed
from ms_tune.planning.costs import costs_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from ms_tune.planning.costs import Costs, Whole
    from ms_tune.planning.table import CostTable

_MOST, _MOST_TIMED = 20_000, 2_000  # variants of a stage whose peak is asked, and whose step is
_AT_ONCE = 2_000

Cell = tuple[int, ...]  # layers by kind of recompute, in the order of Table.kinds


def relieved(
    table: CostTable, cells: Sequence[Mapping[RecomputeMode, int]], stages: Collection[int], margin_bytes: int
) -> list[dict[RecomputeMode, int]] | None:
    """The fastest plan with as many layers in each cell in which some stages keep the limit.

    A layer never recomputes less than before, and those of other stages do what they did.

    Args:
        table: The table, with all that these stages hold.
        cells: How many layers of each kind of recompute every cell has.
        stages: The stages that are to hold less.
        margin_bytes: What they are to leave of the limit.

    Returns:
        The cells; None where recomputing more does not suffice.
    """
    costs = costs_of(table)
    state: Whole | None = costs.state(cells)
    for stage in sorted(stages):
        if state is not None:
            state = _relieved(costs, state, stage, table.limit_bytes - margin_bytes)
    return None if state is None else costs.cells(state)


def _relieved(costs: Costs, state: Whole, stage: int, limit: int) -> Whole | None:
    """The state with the variant of one stage that keeps the limit and makes the step least longer."""
    chunks, stages, kinds = costs.table.chunks, costs.table.stages, costs.table.kinds
    most = max(int(_MOST ** (1 / chunks)), 2)
    places = list(range(stage, costs.table.cells, stages))
    every = list(product(*(list(_variants(tuple(state[place].tolist()), kinds))[:most] for place in places)))
    fine = []
    for start in range(0, len(every), _AT_ONCE):
        states = _with(state, places, every[start : start + _AT_ONCE])
        fine.append(states[allowed(costs, states) & (costs.peaks(states)[:, stage] <= limit)])
    states = np.concatenate(fine)
    if not len(states):
        return None
    durations = costs.durations(states)
    busy = durations.reshape(2, chunks, stages, len(states))[:, :, stage].sum(axis=(0, 1))
    least = np.argsort(busy, kind="stable")[:_MOST_TIMED]
    steps = costs.graph.step(durations[:, least])
    # Of equally long steps the one whose stage works least: what it has to spare hides what the table does not know.
    found: Whole = states[least[np.argsort(steps, kind="stable")[0]]]
    return found


def _with(state: Whole, places: Sequence[int], variants: Sequence[Sequence[Cell]]) -> Whole:
    states = np.repeat(state[None], len(variants), axis=0)
    states[:, places] = np.array(variants, np.int64)
    return states


def _variants(cell: Cell, kinds: Sequence[RecomputeMode]) -> Iterator[Cell]:
    """What a cell's layers may do in place of what they do: first more of them recomputed in full, then the least changed."""
    whole = {one: sum(abs(count - old) for count, old in zip(one, cell, strict=True)) for one in _deeper(cell, kinds)}
    full = kinds.index(RecomputeMode.FULL) if RecomputeMode.FULL in kinds else None
    simple = dict.fromkeys(_more_full(cell, full)) if full is not None else {cell: None}
    yield from simple
    yield from sorted(whole.keys() - simple.keys(), key=lambda one: (whole[one], one))


def _more_full(cell: Cell, full: int) -> Iterator[Cell]:
    """More and more layers recomputed in full, those first that recompute least."""
    counts = list(cell)
    yield tuple(counts)
    for kind in reversed(range(len(cell))):
        while kind != full and counts[kind]:
            counts[kind] -= 1
            counts[full] += 1
            yield tuple(counts)


def _deeper(cell: Cell, kinds: Sequence[RecomputeMode]) -> Iterator[Cell]:
    """All cells of as many layers with no fewer recomputed in full, no more of them idle, and as many that swap."""
    total = sum(cell)
    free = [index for index, kind in enumerate(kinds) if kind not in (RecomputeMode.NONE, RecomputeMode.SWAP)]
    swaps = cell[kinds.index(RecomputeMode.SWAP)] if RecomputeMode.SWAP in kinds else 0
    none = cell[kinds.index(RecomputeMode.NONE)] if RecomputeMode.NONE in kinds else 0
    lows = [cell[index] if kinds[index] is RecomputeMode.FULL else 0 for index in free]
    for counts in product(*(range(low, total - swaps + 1) for low in lows)):
        left = total - swaps - sum(counts)
        if 0 <= left <= none:
            found = [0] * len(kinds)
            for index, count in zip(free, counts, strict=True):
                found[index] = count
            for kind, count in ((RecomputeMode.SWAP, swaps), (RecomputeMode.NONE, left)):
                if kind in kinds:
                    found[kinds.index(kind)] = count
            yield tuple(found)
