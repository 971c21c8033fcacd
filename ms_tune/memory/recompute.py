"""What recompute or swap of all layers would save, as far as a trace tells.

Both take the activations of the numbered layers out of memory, but for one run of one layer, a micro-batch's, which is back
while its backward pass runs. The layers' inputs, which recompute keeps, are not known and not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.memory.contents import Content, code
from ms_tune.memory.curve import peak_if
from ms_tune.memory.phases import EAGER
from ms_tune.memory.places import layer_of_scope

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ms_tune.memory.contents import Contents
    from ms_tune.memory.curve import Curve
    from ms_tune.trace.table import Table


@dataclass(frozen=True, slots=True)
class Recompute:
    """What is left if every numbered layer is recomputed or swapped out.

    Attributes:
        saving: Bytes that are not there at the moment of today's peak.
        peak: The peak that there would be, wherever it is then.
    """

    saving: int
    peak: int


def recompute_of(table: Table, contents: Contents, curve: Curve) -> Recompute:
    """The effect on a trace of a static graph; none where no scope path tells the layers."""
    rows = curve.rows[contents.codes[curve.rows] == code(Content.ACTIVATIONS)]
    layer = _layers(table, rows)
    rows, layer = rows[layer >= 0], layer[layer >= 0]
    largest = _largest_run(table, rows, layer)
    size = table.size.copy()
    size[rows] = 0
    at_peak = int(table.size[rows[table.live(curve.peak_tick)[rows]]].sum())
    return Recompute(max(0, at_peak - largest), min(curve.peak_bytes, peak_if(curve, table, table.end, size) + largest))


def _layers(table: Table, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number for the layer of each row; -1 where it has none."""
    nodes = table.node.codes[rows]
    known: dict[str, int] = {}
    of_node = np.full(max(len(table.node.values), 1), -1, np.int64)
    for node in np.unique(nodes[~table.task.where([EAGER])[rows]]).tolist():
        layer = layer_of_scope(table.node.values[node])
        if layer.rpartition(".")[2].isdigit():
            of_node[node] = known.setdefault(layer, len(known))
    return np.asarray(of_node[nodes], np.int64)


def _largest_run(table: Table, rows: NDArray[np.int64], layer: NDArray[np.int64]) -> int:
    """The most bytes that a layer allocates before another layer does."""
    if not len(rows):
        return 0
    order = np.argsort(table.start[rows], kind="stable")
    first = np.flatnonzero(np.append([True], np.diff(layer[order]) != 0))
    return int(np.add.reduceat(table.size[rows][order], first).max())
