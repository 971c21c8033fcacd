"""What recompute of all layers would save, as far as a trace tells.

It takes the activations of the layers out of memory until the backward pass of their layer, keeps what each layer begins with, and has in use for a moment what its forward pass needs beyond what it leaves. The order of the backward pass is
that of the trace; MindSpore may choose another one for what is recomputed.

A layer is told by the scopes of a static graph, and by what is repeated, the same stacks, in a dynamic one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.enums import MemoryCategory
from ms_tune.footprint.category import code
from ms_tune.footprint.phases import EAGER, Phase, number
from ms_tune.footprint.scoped_layers import KINDS, are_one_graph, layers_of
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.readers.table import NONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ms_tune.footprint.category import Contents
    from ms_tune.footprint.curve import Curve
    from ms_tune.footprint.scoped_layers import ScopedLayer
    from ms_tune.readers.table import Table

_LEAST_BLOCKS = 3  # of a layer: what is repeated with less is no layer
_RECOMPUTE_FILE = "mindspore/common/recompute.py"  # MindSpore 2.3 to 2.10
_PERIODS = 8  # lengths of a layer that are tried
_NEARLY = 0.5


@dataclass(frozen=True, slots=True)
class RecomputeSaving:
    """What is left if every layer is recomputed.

    Attributes:
        saving: Bytes that recompute takes away at the moment of today's peak.
        peak: The peak that recompute would leave, wherever it is then.
        reordered: Whether what recompute leaves is at its highest in the backward pass of a static graph's layer, whose order
            MindSpore then chooses anew.
        one_graph: Whether ``lazy_inline`` made one graph of the layers.
    """

    saving: int
    peak: int
    reordered: bool
    one_graph: bool


def recompute_of(table: Table, contents: Contents, curve: Curve) -> RecomputeSaving:
    """The effect on a trace; none where nothing tells the layers."""
    counted = np.zeros(len(table), np.bool_)
    counted[curve.rows] = True
    open_ = counted & (contents.codes == code(MemoryCategory.ACTIVATIONS))
    eager = table.task.where([EAGER])
    kept, reads = _RecomputeLives(table), _TensorRead(table, counted)
    used = np.where(table.last_user == NONE, table.end - 1, table.last_user)
    dynamic = np.flatnonzero(
        open_ & eager & ~_is_recomputed(table) & (contents.phases.settled == number(Phase.FORWARD))
    )
    dynamic = dynamic[np.argsort(table.start[dynamic], kind="stable")]
    for run in _by_repetition(table, dynamic, table.stack.codes[dynamic].astype(np.int64)):
        backward = _first(table.end[run], int(table.start[run[-1]]))
        if backward is not None:
            kept.postpone(run[:-1], backward)
    passes = []  # ticks of the backward passes of a static graph's layers
    layers = layers_of(table, contents)
    for layer in layers:
        made = layer.rows[open_[layer.rows]]
        backward = _first(used[made], layer.end)
        if backward is not None:
            read = reads.by(layer)
            passing = layer.rows[table.end[layer.rows] < backward]
            kept.postpone(made, backward)
            kept.end[read] = np.maximum(kept.end[read], backward)
            kept.meanwhile.append((backward, _more_at_most(table, made, np.concatenate([read, passing]))))
            passes.append((backward, int(used[made].max()) + 1))
    peak, tick = kept.peak(curve)
    reordered = any(begin <= tick < end for begin, end in passes)
    return RecomputeSaving(curve.peak_bytes - kept.at(curve), peak, reordered, are_one_graph(table, layers))


class _TensorRead:
    """What layers begin with.

    Args:
        table: The trace.
        counted: Which rows take memory of the device.
    """

    def __init__(self, table: Table, counted: NDArray[np.bool_]) -> None:
        self._table = table
        kernels = np.flatnonzero(counted & table.kind.where(KINDS) & (table.last_user != NONE))
        self._rows = kernels[np.argsort(table.last_user[kernels], kind="stable")]
        self._last = table.last_user[self._rows]

    def by(self, layer: ScopedLayer) -> NDArray[np.int64]:
        """What this layer begins with, and nobody needs after it."""
        first, last = np.searchsorted(self._last, [layer.begin, layer.end + 1])
        rows = self._rows[first:last]
        return np.asarray(rows[self._table.start[rows] < layer.begin], np.int64)


def _first(ticks: NDArray[np.int64], after: int) -> int | None:
    """Right before the first of the ticks that are after the forward pass of a layer: its backward pass begins there."""
    later = ticks[(ticks > after) & (ticks < NEVER_FREED - 1)]
    return int(later.min()) - 1 if len(later) else None


def _more_at_most(table: Table, made: NDArray[np.int64], passing: NDArray[np.int64]) -> int:
    """What a layer's forward pass has in use at most beyond the blocks that it leaves, up to the last of them."""
    start = np.concatenate([table.start[made], table.start[passing]])
    size = np.concatenate([table.size[made], table.size[passing]])
    tick = np.concatenate([table.end[passing], start])
    order = np.argsort(tick, kind="stable")
    used = np.cumsum(np.concatenate([-table.size[passing], size])[order])
    most = int(used[tick[order] <= table.start[made].max()].max())
    return max(most - int(table.size[made].sum()), 0)


class _RecomputeLives:
    """When each block lives, if layers run their forward pass right before their backward pass.

    Args:
        table: The trace.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self.start, self.end = table.start.copy(), table.end.copy()
        self.meanwhile: list[tuple[int, int]] = []  # ticks, and bytes in use just then beside the blocks

    def postpone(self, rows: NDArray[np.int64], backward: int) -> None:
        """Allocate a layer's activations right before its backward pass."""
        late = self._table.end[rows] > backward
        self.start[rows] = np.where(late, np.maximum(self.start[rows], backward), self.start[rows])

    def at(self, curve: Curve) -> int:
        """What is in use when today's peak was."""
        alive = (self.start[curve.rows] <= curve.peak_tick) & (curve.peak_tick < self.end[curve.rows])
        return int(self._table.size[curve.rows[alive]].sum())

    def peak(self, curve: Curve) -> tuple[int, int]:
        """The peak that is left, wherever it is then, and its tick."""
        freed = curve.rows[self.end[curve.rows] != NEVER_FREED]
        more = np.array(self.meanwhile, np.int64).reshape(-1, 2)
        tick = np.concatenate([self.end[freed], self.start[curve.rows], more[:, 0], more[:, 0]])
        size = self._table.size
        change = np.concatenate([-size[freed], size[curve.rows], more[:, 1], -more[:, 1]])
        order = np.argsort(tick, kind="stable")
        used = np.cumsum(change[order])
        if not len(used):
            return 0, 0
        place = int(used.argmax())
        return min(curve.peak_bytes, max(int(used[place]), 0)), int(tick[order[place]])


def _is_recomputed(table: Table) -> NDArray[np.bool_]:
    """By row of a dynamic graph: whether it is of what is recomputed in this run already, in its first pass or in its second."""
    stacks = [any(frame.file.endswith(_RECOMPUTE_FILE) for frame in stack) for stack in table.stack.values]
    return np.asarray(np.array(stacks or [False], np.bool_)[table.stack.codes], np.bool_)


def _by_repetition(table: Table, rows: NDArray[np.int64], maker: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The runs of equal makers and sizes, side by side, that cover most rows: one a layer."""
    if len(rows) < 2 * _LEAST_BLOCKS:
        return
    pairs = np.stack([maker, table.size[rows]])
    _, key = np.unique(pairs, axis=1, return_inverse=True)
    key = key.reshape(-1)
    found = [list(_repeated(key, period)) for period in _periods(key)]
    covered = [sum(stretch[-1] - stretch[0] for stretch in each) for each in found]
    # What repeats as a whole is a micro-batch, too: the shortest of those that cover nearly as much is the layer.
    most = max(covered, default=0)
    best = next((each for each, total in zip(found, covered, strict=True) if total > _NEARLY * most), [])
    for stretch in best:
        runs = list(pairwise(_finest(key, stretch)))
        # A layer's activations are there when the next layer begins; what repeats where all layers are recomputed is a micro-batch.
        first, second = (rows[begin:end] for begin, end in runs[:2])
        if 2 * table.size[first[table.end[first] > table.start[second[0]]]].sum() > table.size[first].sum():
            for begin, end in runs:
                yield rows[begin:end]


def _finest(key: NDArray[np.int64], stretch: list[int]) -> list[int]:
    """A stretch in its shortest periods: layers of two blocks repeat by four, too."""
    begin, end = stretch[0], stretch[-1]
    whole = stretch[1] - begin
    for period in range(2, whole // 2 + 1):
        if whole % period == 0 and np.array_equal(key[begin + period : end], key[begin : end - period]):
            return list(range(begin, end + 1, period))
    return stretch


def _periods(key: NDArray[np.int64]) -> list[int]:
    """The distances at which equal keys follow each other most often, the shortest first."""
    order = np.argsort(key, kind="stable")
    same = key[order][1:] == key[order][:-1]
    distance = np.diff(order)[same]
    lengths, counts = np.unique(distance[distance >= _LEAST_BLOCKS], return_counts=True)
    return sorted(lengths[np.argsort(-counts, kind="stable")[:_PERIODS]].tolist())


def _repeated(key: NDArray[np.int64], period: int) -> Iterator[list[int]]:
    """Stretches of whole periods, two at least: the place where each begins, and the one behind the last."""
    equal = np.concatenate([[False], key[period:] == key[:-period], [False]])
    changes = np.flatnonzero(equal[1:] != equal[:-1])
    for begin, end in changes.reshape(-1, 2).tolist():
        if end - begin >= period:
            count = (end - begin) // period + 1
            yield [begin + at * period for at in range(count + 1)]
