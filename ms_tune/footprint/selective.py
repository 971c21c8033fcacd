"""The peak that recompute of some cells of every layer would leave in a static graph, as MindSpore carries it out.

As simulated runs of MindFormers 1.9's Qwen3 on MindSpore 2.9 show it, operators of a marked cell are computed once more for their gradients:
of the cell only what another cell reads is kept, and what the cell reads is kept for as long. The second run is right before the first of its
gradients.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.enums import MemoryCategory
from ms_tune.footprint.category import code
from ms_tune.footprint.curve import highest
from ms_tune.footprint.scoped_layers import layers_of
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.readers.table import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ms_tune.footprint.category import Contents
    from ms_tune.footprint.curve import Curve
    from ms_tune.footprint.scoped_layers import ScopedLayer
    from ms_tune.readers.table import Table


def selective_peak(table: Table, contents: Contents, curve: Curve, cells: str) -> int:
    """The peak, wherever it is then. O(blocks log blocks).

    Args:
        table: The trace.
        contents: What its blocks hold.
        curve: Its curve.
        cells: A pattern of scopes: the cells that are recomputed.
    """
    marked = np.array([re.search(cells, path) is not None for path in table.node.values] or [False])[table.node.codes]
    counted = np.isin(np.arange(len(table)), curve.rows)
    lives = _SelectiveLives(table, counted & (contents.codes == code(MemoryCategory.ACTIVATIONS)))
    for layer in layers_of(table, contents):
        lives.recompute(layer, layer.rows[marked[layer.rows]])
    return lives.peak(curve)


class _SelectiveLives:
    """When each block lives, if cells are recomputed.

    Args:
        table: The trace.
        activations: Which rows are kept for the backward pass, or were made for it.
    """

    def __init__(self, table: Table, activations: NDArray[np.bool_]) -> None:
        self._table, self._activations = table, activations
        self._used = np.where(table.last_user == NONE, table.end - 1, table.last_user)
        self._end = table.end.copy()
        self._again: list[tuple[NDArray[np.int64], int]] = []  # blocks, and when they are there once more

    def recompute(self, layer: ScopedLayer, cell: NDArray[np.int64]) -> None:
        """Of the blocks that one layer's run has of a cell."""
        table, ticks = self._table, self._table.start[cell]
        first = table.first_user[cell]
        within = np.isin(first, ticks)
        dropped = cell[self._activations[cell] & (self._used[cell] > layer.end) & (within | (first > layer.end))]
        if not len(dropped):
            return
        begin = int(self._used[dropped].min()) - 1
        # A trace tells the first reader and the last, not the last of the forward pass: at most until the cell is through.
        self._end[dropped] = np.minimum(int(ticks.max()) + 1, self._end[dropped])
        self._again.append((dropped, begin))
        others = np.setdiff1d(layer.rows, cell)
        read = others[np.isin(table.first_user[others], ticks) | np.isin(self._used[others], ticks)]
        self._end[read] = np.maximum(self._end[read], begin + 1)

    def peak(self, curve: Curve) -> int:
        """The peak, wherever it is then."""
        table, rows = self._table, curve.rows
        freed = rows[self._end[rows] != NEVER_FREED]
        ticks, change = [self._end[freed], table.start[rows]], [-table.size[freed], table.size[rows]]
        for dropped, begin in self._again:
            again = np.maximum(begin, self._end[dropped])
            ticks += [np.maximum(table.end[dropped], again), again]
            change += [-table.size[dropped], table.size[dropped]]
        return highest(np.concatenate(ticks), np.concatenate(change))
