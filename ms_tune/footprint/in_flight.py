"""The peak that one micro-batch less in flight would leave in a static graph with a pipeline.

A micro-batch is in flight from its forward pass to its backward pass on a stage. Each operator of the forward pass comes once for every micro-batch:
that of the newest one is carried out only when the backward pass of the oldest one is over.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.enums import MemoryCategory
from ms_tune.footprint.category import code
from ms_tune.footprint.curve import highest, peak_if
from ms_tune.footprint.phases import EAGER, Phase, number
from ms_tune.footprint.scoped_layers import KINDS
from ms_tune.readers.memory_block import NEVER_FREED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ms_tune.footprint.category import Contents
    from ms_tune.footprint.curve import Curve
    from ms_tune.readers.table import Table

_LEAST = 3  # in flight: a pipeline does not start with a single micro-batch (MindSpore 2.9)


def fewer_in_flight(table: Table, contents: Contents, curve: Curve) -> int:
    """The peak, wherever it is then; today's where there are not three in flight, as far as the trace tells. O(blocks log blocks)."""
    forward = np.isin(np.arange(len(table)), curve.rows) & table.kind.where(KINDS) & (table.end != NEVER_FREED)
    forward &= ~table.task.where([EAGER]) & (contents.phases.settled == number(Phase.FORWARD))
    kept = contents.codes == code(MemoryCategory.ACTIVATIONS)
    runs = [(run, _together(table, run)) for run in _by_operator(table, forward & kept)]
    sizes = Counter[int]()
    for run, together in runs:
        sizes[together] += int(table.size[run].sum())
    # What most bytes tell; an operator that comes twice in each micro-batch has twice as many blocks.
    flying = sizes.most_common(1)[0][0] if runs else 1
    each = [(run, together // flying) for run, together in runs if together % flying == 0]
    batches = Counter(len(run) // times for run, times in each).most_common(1)[0][0] if each else 0
    if flying < _LEAST or batches <= flying:
        return curve.peak_bytes
    told = [run.reshape(batches, -1) for run, times in each if len(run) == batches * times]
    over = np.max([table.end[run].max(axis=1) for run in told], axis=0)  # of each micro-batch's backward pass
    begun = np.min([table.end[run].min(axis=1) for run in told], axis=0) - 1
    told += [run.reshape(batches, -1) for run in _by_operator(table, forward & ~kept) if len(run) % batches == 0]
    start = table.start.copy()
    for run in told:
        # Each has the moment of the one after it; the last of a step runs before the backward pass of the oldest but one.
        following = np.append(run[1:], run[-1:], axis=0)
        newest, oldest = run[flying - 1 :], over[: -(flying - 1), None]
        turn = table.start[following[flying - 1 :]]
        turn = np.where(
            (turn > table.start[newest]) & (turn < over[flying - 1 :, None]),
            turn,
            begun[1 : len(begun) - flying + 2, None],
        )
        start[newest] = np.where(oldest > table.start[newest], turn, table.start[newest])
    return peak_if(curve, table, table.end, table.size, start)


def _by_operator(table: Table, taken: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """The blocks of each operator and size, by time: the operators of micro-batches differ by the numbers behind their names."""
    rows = np.flatnonzero(taken)
    names = {path: path.rpartition("-")[0] for path in table.node.values}
    numbers = {name: at for at, name in enumerate(dict.fromkeys(names.values()))}
    maker = np.array([numbers[names[path]] for path in table.node.values] or [0], np.int64)[table.node.codes[rows]]
    order = np.lexsort((table.start[rows], table.size[rows], maker))
    ordered = rows[order]
    changes = (np.diff(maker[order]) != 0) | (np.diff(table.size[ordered]) != 0)
    return np.split(ordered, np.flatnonzero(changes) + 1) if len(ordered) else []


def _together(table: Table, run: NDArray[np.int64]) -> int:
    """How many of these blocks are alive together at most."""
    return highest(np.concatenate([table.end[run], table.start[run]]), np.repeat([-1, 1], len(run)))
