"""What recompute or swap of all layers would save, as far as a trace tells.

Both take the activations of the layers out of memory until the backward pass of their layer, which begins right before the
first of them is released. Recompute keeps what each layer begins with: the last activation of the layer before it.

A layer is what is repeated: the same operators in a static graph, whose scope paths mix up layers that share a
subgraph, and the same stacks in a dynamic one. Where nothing is repeated in a static graph, numbers in scope paths tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.memory.contents import Content, code
from ms_tune.memory.phases import EAGER, Phase, number
from ms_tune.memory.places import layer_of_scope, operator_at
from ms_tune.trace.memory_block import NEVER_FREED
from ms_tune.trace.scopes import Pass, pass_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ms_tune.memory.contents import Contents
    from ms_tune.memory.curve import Curve
    from ms_tune.trace.table import Table

_LEAST_BLOCKS = 3  # of a layer: what is repeated with less is no layer
_RECOMPUTE_FILE = "mindspore/common/recompute.py"  # MindSpore 2.3 to 2.10
_PERIODS = 8  # lengths of a layer that are tried
_NEARLY = 0.5


@dataclass(frozen=True, slots=True)
class Recompute:
    """What is left if every layer is recomputed or swapped out.

    Attributes:
        saving: Bytes that recompute takes away at the moment of today's peak.
        peak: The peak that recompute would leave, wherever it is then.
        swap_peak: The peak that swap would leave.
    """

    saving: int
    peak: int
    swap_peak: int


def recompute_of(table: Table, contents: Contents, curve: Curve) -> Recompute:
    """The effect on a trace; none where nothing tells the layers."""
    rows = curve.rows[contents.codes[curve.rows] == code(Content.ACTIVATIONS)]
    rows = rows[np.argsort(table.start[rows], kind="stable")]
    rows = rows[~_is_recomputed(table)[rows]]
    eager = table.task.where([EAGER])[rows]
    static, dynamic = rows[~eager], rows[eager & (contents.phases.settled[rows] == number(Phase.FORWARD))]
    runs = list(_by_repetition(table, dynamic, table.stack.codes[dynamic].astype(np.int64)))
    repeated = list(_by_repetition(table, static, _operators(table, static)))
    runs += repeated or list(_by_scope(table, static))
    start = table.start.copy()
    kept = start.copy()
    for run in runs:
        _postpone(table, run, kept)
        _postpone(table, run, start)
    for run in runs:
        kept[run[-1]] = table.start[run[-1]]
    at_peak = np.concatenate([run[:-1] for run in runs]) if runs else rows[:0]
    alive = at_peak[table.live(curve.peak_tick)[at_peak]]
    saving = int(table.size[alive[kept[alive] > curve.peak_tick]].sum())
    return Recompute(saving, _peak(table, curve, kept), _peak(table, curve, start))


def _is_recomputed(table: Table) -> NDArray[np.bool_]:
    """By row: whether it is of what is recomputed in this run already, in its first pass or in its second."""
    scopes = [pass_of(path) is Pass.RECOMPUTE for path in table.node.values]
    stacks = [any(frame.file.endswith(_RECOMPUTE_FILE) for frame in stack) for stack in table.stack.values]
    by_scope = np.array(scopes or [False], np.bool_)[table.node.codes]
    return np.asarray(by_scope | np.array(stacks or [False], np.bool_)[table.stack.codes], np.bool_)


def _postpone(table: Table, run: NDArray[np.int64], start: NDArray[np.int64]) -> None:
    """Allocate a layer's activations right before the first of them is released in its backward pass."""
    ends = table.end[run]
    later = ends[(ends > table.start[run[-1]]) & (ends != NEVER_FREED)]
    if len(later):
        begin = int(later.min()) - 1
        start[run] = np.where(ends > begin, np.maximum(start[run], begin), start[run])


def _peak(table: Table, curve: Curve, start: NDArray[np.int64]) -> int:
    """The peak with other moments of allocation."""
    freed = curve.rows[table.end[curve.rows] != NEVER_FREED]
    tick = np.concatenate([table.end[freed], start[curve.rows]])
    change = np.concatenate([-table.size[freed], table.size[curve.rows]])
    used = np.cumsum(change[np.argsort(tick, kind="stable")])
    return min(curve.peak_bytes, max(int(used.max(initial=0)), 0))


def _by_scope(table: Table, rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The runs of numbered layers: what one allocates before another does."""
    layer = _layers(table, rows)
    rows, layer = rows[layer >= 0], layer[layer >= 0]
    if len(rows):
        yield from np.split(rows, np.flatnonzero(np.diff(layer)) + 1)


def _layers(table: Table, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number for the layer of each row; -1 where it has none."""
    nodes = table.node.codes[rows]
    known: dict[str, int] = {}
    of_node = np.full(max(len(table.node.values), 1), -1, np.int64)
    for node in np.unique(nodes).tolist():
        layer = layer_of_scope(table.node.values[node])
        if layer.rpartition(".")[2].isdigit():
            of_node[node] = known.setdefault(layer, len(known))
    return np.asarray(of_node[nodes], np.int64)


def _operators(table: Table, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number for the operator of each row, by its name."""
    known: dict[str, int] = {}
    nodes, places, again = np.unique(table.node.codes[rows], return_index=True, return_inverse=True)
    names = [operator_at(table, int(rows[place])) for place in places.tolist()]
    codes = [known.setdefault(name, len(known)) for name in names]
    return np.array(codes or [0], np.int64)[again.reshape(-1)] if len(nodes) else rows


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
        for begin, end in pairwise(_finest(key, stretch)):
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
