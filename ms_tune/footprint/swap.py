"""The peak that swap of all layers would leave in a static graph, as MindSpore carries it out.

MindSpore 2.9 (``frontend/parallel/pass/offload_activation.cc``, and runs beside it) moves the output of an operator that a cell to
be swapped holds as its own primitive, if the backward pass reads that output itself: it is gone once the forward pass has read
it, and is copied back an operator ahead of the first that reads it again (``backward_prefetch: 1``). Of an operator of several outputs only what its own
gradient reads is moved. All of this happens in cells with ``lazy_inline`` only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.enums import MemoryCategory
from ms_tune.footprint.category import code, operator_of
from ms_tune.footprint.curve import highest
from ms_tune.footprint.phases import Phase, number
from ms_tune.footprint.scoped_layers import KINDS
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.readers.table import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ms_tune.footprint.category import Contents
    from ms_tune.footprint.curve import Curve
    from ms_tune.readers.table import Table

_GONE = 2  # operators after the first one that reads it: it is copied out beside them


def swap_peak(table: Table, contents: Contents, curve: Curve, cells: str) -> int:
    """The peak, wherever it is then.

    Args:
        table: The trace.
        contents: What its blocks hold.
        curve: Its curve.
        cells: A pattern of scopes: cells whose operators are all their own primitives.

    O(blocks log blocks).
    """
    moved = _moved(table, contents, cells)
    moved &= np.isin(np.arange(len(table)), curve.rows)
    operators = _operators(table)
    first, last, end = table.first_user[moved], table.last_user[moved], table.end.copy()
    first = np.where(_backward(table, contents, first), table.start[moved], first)
    left = np.searchsorted(operators, first, side="right") - 1 + _GONE
    end[moved] = np.minimum(operators.take(left, mode="clip"), table.end[moved])
    back = np.searchsorted(operators, last, side="right") - 2
    again = np.maximum(operators.take(back, mode="clip"), end[moved])
    size, rows = table.size, curve.rows
    freed = rows[end[rows] != NEVER_FREED]
    until = np.maximum(table.end[moved], again)
    ticks = np.concatenate([end[freed], until, table.start[rows], again])
    change = np.concatenate([-size[freed], -size[moved], size[rows], size[moved]])
    return highest(ticks, change)


def _moved(table: Table, contents: Contents, cells: str) -> NDArray[np.bool_]:
    """The blocks that are moved out."""
    paths = table.node.values
    inside = np.array([re.search(cells, path) is not None for path in paths] or [False])[table.node.codes]
    moved = inside & table.kind.where(KINDS) & (contents.codes == code(MemoryCategory.ACTIVATIONS))
    moved &= (contents.phases.own == number(Phase.FORWARD)) & (table.first_user != NONE) & (table.last_user != NONE)
    rows = np.flatnonzero(moved)
    last = table.last_user[rows]
    pairs = zip(table.node.codes[_readers(table, last)].tolist(), table.node.codes[rows].tolist(), strict=True)
    own = [operator_of(paths[reader]) == f"{operator_of(paths[node])}Grad" for reader, node in pairs]
    moved[rows] = _backward(table, contents, last) & (np.array(own, np.bool_) | ~_several_outputs(table)[rows])
    return np.asarray(moved, np.bool_)


def _readers(table: Table, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
    """The last row that began at each tick, or before it."""
    order = np.argsort(table.start, kind="stable")
    return np.asarray(order[np.searchsorted(table.start[order], ticks, side="right") - 1], np.int64)


def _backward(table: Table, contents: Contents, ticks: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which ticks are of the backward pass."""
    return np.asarray(contents.phases.own[_readers(table, ticks)] == number(Phase.BACKWARD), np.bool_)


def _several_outputs(table: Table) -> NDArray[np.bool_]:
    """Which blocks are one of several outputs of an operator: these stand side by side."""
    order = np.argsort(table.start, kind="stable")
    same = table.node.codes[order][1:] == table.node.codes[order][:-1]
    found = np.zeros(len(table), np.bool_)
    found[order[1:][same]] = found[order[:-1][same]] = True
    return found


def _operators(table: Table) -> NDArray[np.int64]:
    """The ticks at which the graphs' operators allocate, the first of each."""
    rows = np.flatnonzero(table.kind.where(KINDS))
    rows = rows[np.argsort(table.start[rows], kind="stable")]
    nodes = table.node.codes[rows]
    return np.asarray(table.start[rows][np.append(True, nodes[1:] != nodes[:-1])], np.int64)
