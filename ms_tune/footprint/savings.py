"""Compute the peak after a change of the training: recomputation, swap, or fewer micro-batches in flight.

As in MindSpore, every change gives the blocks of the trace other lifetimes (:class:`~ms_tune.footprint.curve.ChangedLives`), which are
then summed up again. A layer is recognized by its scopes in a static graph, and by repeated stacks in a dynamic graph.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ms_tune.enums import MemoryCategory
from ms_tune.footprint.category import Contents, category_code, parse_operator
from ms_tune.footprint.curve import ChangedLives, Curve, find_highest_moment
from ms_tune.footprint.layers import KINDS, find_scoped_layers, share_graph
from ms_tune.footprint.phases import EAGER, Phase, phase_code
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.readers.table import NONE, Table
from ms_tune.records import Record

_LEAST_BLOCKS = 3  # per layer: a repetition with fewer blocks is not a layer
_RECOMPUTE_FILE = "mindspore/common/recompute.py"  # MindSpore 2.3 to 2.10
_PERIODS = 8  # number of layer lengths to try
_NEARLY = 0.5
_FREED_AFTER = 2  # a swapped block is freed this many operators after its first reader, during which it is copied out
_LEAST_IN_FLIGHT = 3  # with two, one would remain, and a pipeline cannot start with one (MindSpore 2.9)


class RecomputeSaving(Record):
    """Memory that remains if every layer is recomputed."""

    saving: int  # bytes that recomputation frees at the moment of the current peak
    peak: int  # the remaining peak, perhaps at another moment
    # Whether the remaining peak is in the backward pass of a static graph's layer; MindSpore may reorder its operators
    reordered: bool
    one_graph: bool  # whether `lazy_inline` shares one graph between the layers


def recompute_all_layers(table: Table, contents: Contents, curve: Curve) -> RecomputeSaving:
    """Return the saving of recomputing all layers, as far as the trace shows it; none if no layers are recognized.

    Recomputation frees the activations of a layer until its backward pass, keeps the layer's inputs, and briefly needs
    the temporary memory of its forward pass again. The order of the backward pass is that of the trace; MindSpore may
    choose another one for recomputed operators.
    """
    counted = curve.counted_rows(table)
    activations = counted & (contents.codes == category_code(MemoryCategory.ACTIVATIONS))
    eager = table.task.rows_in([EAGER])
    lives, used = ChangedLives(table, curve), _find_last_uses(table)
    # Blocks that this run already recomputes, in their first pass or their second.
    again = table.stack.rows_matching(lambda stack: any(frame.file.endswith(_RECOMPUTE_FILE) for frame in stack))
    forward = contents.phases.sure_codes == phase_code(Phase.FORWARD)
    dynamic = table.rows_by_start(activations & (eager | table.is_logical) & ~again & forward)
    if table.is_logical:  # PyTorch's tracker counts all outputs of the forward pass
        begins = np.sort(table.start[contents.phases.rows_of(Phase.BACKWARD)])
        following = np.append(begins, NEVER_FREED)[np.searchsorted(begins, table.start[dynamic])]
        dynamic = dynamic[table.end[dynamic] > following]
    maker = table.node if table.is_logical else table.stack
    for run in _split_repetitions(table, dynamic, maker.codes[dynamic].astype(np.int64)):
        backward = _find_backward_begin(table.end[run], int(table.start[run[-1]]))
        if backward is not None:
            lives.start_later(run[:-1], backward)
    passes = []  # ticks of the backward passes of a static graph's layers
    layers = find_scoped_layers(table, contents)
    kernels = np.flatnonzero(counted & table.kind.rows_in(KINDS) & (table.last_user != NONE))
    kernels = kernels[np.argsort(table.last_user[kernels], kind="stable")]
    for layer in layers:
        made = layer.rows[activations[layer.rows]]
        backward = _find_backward_begin(used[made], layer.end)
        if backward is not None:
            # Inputs of the layer whose last use is in it.
            first, last = np.searchsorted(table.last_user[kernels], [layer.begin, layer.end + 1])
            read = kernels[first:last][table.start[kernels[first:last]] < layer.begin]
            passing = layer.rows[table.end[layer.rows] < backward]
            lives.start_later(made, backward)
            lives.end_later(read, backward)
            lives.need_for_a_moment(backward, _sum_passing_peak(table, made, np.concatenate([read, passing])))
            passes.append((backward, int(used[made].max()) + 1))
    peak, tick = lives.peak_moment()
    reordered = any(begin <= tick < end for begin, end in passes)
    saving = curve.peak_bytes - lives.bytes_at(curve.peak_tick)
    return RecomputeSaving(saving, min(curve.peak_bytes, peak), reordered, share_graph(table, layers))


def _find_last_uses(table: Table) -> NDArray[np.int64]:
    return np.where(table.last_user == NONE, table.end - 1, table.last_user)


def _find_backward_begin(ticks: NDArray[np.int64], after: int) -> int | None:
    later = ticks[(ticks > after) & (ticks < NEVER_FREED - 1)]
    return int(later.min()) - 1 if len(later) else None


def _sum_passing_peak(table: Table, made: NDArray[np.int64], passing: NDArray[np.int64]) -> int:
    # Return the most that a layer's forward pass uses in addition to the blocks it leaves, up to the last of them.
    start = np.concatenate([table.start[made], table.start[passing]])
    size = np.concatenate([table.size[made], table.size[passing]])
    tick = np.concatenate([table.end[passing], start])
    order = np.argsort(tick, kind="stable")
    used = np.cumsum(np.concatenate([-table.size[passing], size])[order])
    most = int(used[tick[order] <= table.start[made].max()].max())
    return max(most - int(table.size[made].sum()), 0)


def _split_repetitions(table: Table, rows: NDArray[np.int64], maker: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    # Yield the adjacent runs of equal makers and sizes that cover most rows: one per layer.
    if len(rows) < 2 * _LEAST_BLOCKS:
        return
    pairs = np.stack([maker, table.size[rows]])
    _, key = np.unique(pairs, axis=1, return_inverse=True)
    key = key.reshape(-1)
    found = [list(_repeated_stretches(key, period)) for period in _likely_periods(key)]
    covered = [sum(stretch[-1] - stretch[0] for stretch in each) for each in found]
    # A micro-batch repeats as a whole, too: the shortest period that covers nearly as much is the layer.
    most = max(covered, default=0)
    best = next((each for each, total in zip(found, covered, strict=True) if total > _NEARLY * most), [])
    for stretch in best:
        runs = list(pairwise(_shortest_periods(key, stretch)))
        # A layer's activations are alive when the next layer begins; if not, a recomputed micro-batch repeats.
        first, second = (rows[begin:end] for begin, end in runs[:2])
        if 2 * table.size[first[table.end[first] > table.start[second[0]]]].sum() > table.size[first].sum():
            for begin, end in runs:
                yield rows[begin:end]


def _shortest_periods(key: NDArray[np.int64], stretch: list[int]) -> list[int]:
    # Layers of two blocks also repeat with a period of four.
    begin, end = stretch[0], stretch[-1]
    whole = stretch[1] - begin
    for period in range(2, whole // 2 + 1):
        if whole % period == 0 and np.array_equal(key[begin + period : end], key[begin : end - period]):
            return list(range(begin, end + 1, period))
    return stretch


def _likely_periods(key: NDArray[np.int64]) -> list[int]:
    # Return the most frequent distances between successive equal keys.
    order = np.argsort(key, kind="stable")
    same = key[order][1:] == key[order][:-1]
    distance = np.diff(order)[same]
    lengths, counts = np.unique(distance[distance >= _LEAST_BLOCKS], return_counts=True)
    return sorted(lengths[np.argsort(-counts, kind="stable")[:_PERIODS]].tolist())


def _repeated_stretches(key: NDArray[np.int64], period: int) -> Iterator[list[int]]:
    # Yield stretches of at least two whole periods: the start of each period, then the end of the last.
    equal = np.concatenate([[False], key[period:] == key[:-period], [False]])
    changes = np.flatnonzero(equal[1:] != equal[:-1])
    for begin, end in changes.reshape(-1, 2).tolist():
        if end - begin >= period:
            count = (end - begin) // period + 1
            yield [begin + at * period for at in range(count + 1)]


def recompute_cells(table: Table, contents: Contents, curve: Curve, cells: str) -> ChangedLives:
    """Return the lifetimes after recomputing the cells of a static graph whose scopes match a pattern.

    In simulated runs of MindFormers 1.9's Qwen3 on MindSpore 2.9, operators of a marked cell are computed again for
    their gradients: the cell keeps only the outputs that other cells read, and its inputs live as long as those. The
    second run is directly before the first of its gradients.
    """
    marked = table.node.rows_matching(lambda path: re.search(cells, path) is not None)
    activations = curve.counted_rows(table) & (contents.codes == category_code(MemoryCategory.ACTIVATIONS))
    lives, used = ChangedLives(table, curve), _find_last_uses(table)
    for layer in find_scoped_layers(table, contents):
        cell = layer.rows[marked[layer.rows]]
        ticks, first = table.start[cell], table.first_user[cell]
        read_outside = ~np.isin(first, ticks) & (first <= layer.end)
        dropped = cell[activations[cell] & (used[cell] > layer.end) & ~read_outside]
        if not len(dropped):
            continue
        begin = int(used[dropped].min()) - 1
        # A trace shows the first and the last reader, not the last one of the forward pass: assume the end of the cell.
        lives.end_sooner(dropped, int(ticks.max()) + 1)
        lives.bring_back(dropped, begin)
        others = np.setdiff1d(layer.rows, cell)
        read = others[np.isin(table.first_user[others], ticks) | np.isin(used[others], ticks)]
        lives.end_later(read, begin + 1)
    return lives


def swap_layers(table: Table, contents: Contents, curve: Curve, cells: str) -> ChangedLives:
    """Return the lifetimes after swapping the activations of all layers of a static graph to the host.

    MindSpore 2.9 (``frontend/parallel/pass/offload_activation.cc``, and runs of it) swaps the output of an operator if
    the operator is a primitive directly in a swapped cell and the backward pass reads that output itself. The block is
    freed after its last read in the forward pass, and copied back one operator before the next read
    (``backward_prefetch: 1``). An operator with several outputs swaps only those that its own gradient reads. Only
    cells with ``lazy_inline`` do this: the pattern of scopes matches cells whose operators are all direct primitives.
    """
    moved = np.flatnonzero(_swapped_blocks(table, contents, cells) & curve.counted_rows(table))
    kernels, lives = table.rows_by_start(table.kind.rows_in(KINDS)), ChangedLives(table, curve)
    nodes = table.node.codes[kernels]
    operators = table.start[kernels][np.append(True, nodes[1:] != nodes[:-1])]
    first, last = table.first_user[moved], table.last_user[moved]
    first = np.where(_is_backward(table, contents, first), table.start[moved], first)
    left = np.searchsorted(operators, first, side="right") - 1 + _FREED_AFTER
    lives.end_sooner(moved, operators.take(left, mode="clip"))
    back = np.searchsorted(operators, last, side="right") - 2
    lives.bring_back(moved, operators.take(back, mode="clip"))
    return lives


def _swapped_blocks(table: Table, contents: Contents, cells: str) -> NDArray[np.bool_]:
    paths = table.node.values
    inside = table.node.rows_matching(lambda path: re.search(cells, path) is not None)
    moved = inside & table.kind.rows_in(KINDS) & (contents.codes == category_code(MemoryCategory.ACTIVATIONS))
    moved &= contents.phases.rows_of(Phase.FORWARD) & (table.first_user != NONE) & (table.last_user != NONE)
    rows = np.flatnonzero(moved)
    last = table.last_user[rows]
    pairs = zip(table.node.codes[_last_row_begun(table, last)].tolist(), table.node.codes[rows].tolist(), strict=True)
    own = [parse_operator(paths[reader]) == f"{parse_operator(paths[node])}Grad" for reader, node in pairs]
    moved[rows] = _is_backward(table, contents, last) & (np.array(own, np.bool_) | ~_have_several_outputs(table)[rows])
    return np.asarray(moved, np.bool_)


def _last_row_begun(table: Table, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
    order = np.argsort(table.start, kind="stable")
    return np.asarray(order[np.searchsorted(table.start[order], ticks, side="right") - 1], np.int64)


def _is_backward(table: Table, contents: Contents, ticks: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.asarray(contents.phases.own_codes[_last_row_begun(table, ticks)] == phase_code(Phase.BACKWARD), np.bool_)


def _have_several_outputs(table: Table) -> NDArray[np.bool_]:
    # The outputs of an operator are adjacent.
    order = np.argsort(table.start, kind="stable")
    same = table.node.codes[order][1:] == table.node.codes[order][:-1]
    found = np.zeros(len(table), np.bool_)
    found[order[1:][same]] = found[order[:-1][same]] = True
    return found


def keep_fewer_in_flight(table: Table, contents: Contents, curve: Curve, _cells: str) -> ChangedLives:
    """Return the lifetimes with one micro-batch less in flight, for a static graph with a pipeline.

    A micro-batch is in flight from its forward pass to its backward pass on a stage. Each operator of the forward pass
    appears once per micro-batch; that of the newest micro-batch is delayed until the backward pass of the oldest is
    over. Nothing changes if the trace shows fewer than three in flight.
    """
    lives = ChangedLives(table, curve)
    forward = curve.counted_rows(table) & table.kind.rows_in(KINDS) & (table.end != NEVER_FREED)
    forward &= ~table.task.rows_in([EAGER]) & (contents.phases.sure_codes == phase_code(Phase.FORWARD))
    kept = contents.codes == category_code(MemoryCategory.ACTIVATIONS)
    runs = [
        (run, find_highest_moment(np.concatenate([table.end[run], table.start[run]]), np.repeat([-1, 1], len(run)))[0])
        for run in _split_by_operator(table, forward & kept)
    ]
    runs = [(run, together) for run, together in runs if together]  # of a damaged trace, none may be there
    sizes = Counter[int]()
    for run, together in runs:
        sizes[together] += int(table.size[run].sum())
    # Use the number with the most bytes; an operator that runs twice per micro-batch has twice as many blocks.
    flying = sizes.most_common(1)[0][0] if runs else 1
    each = [(run, together // flying) for run, together in runs if together % flying == 0]
    batches = Counter(len(run) // times for run, times in each).most_common(1)[0][0] if each else 0
    if flying < _LEAST_IN_FLIGHT or batches <= flying:
        return lives
    batched = [run.reshape(batches, -1) for run, times in each if len(run) == batches * times]
    over = np.max([table.end[run].max(axis=1) for run in batched], axis=0)  # end of each micro-batch's backward pass
    begun = np.min([table.end[run].min(axis=1) for run in batched], axis=0) - 1
    batched += [
        run.reshape(batches, -1) for run in _split_by_operator(table, forward & ~kept) if len(run) % batches == 0
    ]
    for run in batched:
        # Each starts when the next one does; the last of a step starts before the backward pass of the second oldest.
        following = np.append(run[1:], run[-1:], axis=0)
        newest, oldest = run[flying - 1 :], over[: -(flying - 1), None]
        turn = table.start[following[flying - 1 :]]
        turn = np.where(
            (turn > table.start[newest]) & (turn < over[flying - 1 :, None]),
            turn,
            begun[1 : len(begun) - flying + 2, None],
        )
        lives.start[newest] = np.where(oldest > table.start[newest], turn, table.start[newest])
    return lives


def _split_by_operator(table: Table, taken: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    # Operators of different micro-batches differ only by the number at the end of their names.
    rows = np.flatnonzero(taken)
    names = {path: path.rpartition("-")[0] for path in table.node.values}
    numbers = {name: at for at, name in enumerate(dict.fromkeys(names.values()))}
    maker = np.array([numbers[names[path]] for path in table.node.values] or [0], np.int64)[table.node.codes[rows]]
    order = np.lexsort((table.start[rows], table.size[rows], maker))
    ordered = rows[order]
    changes = (np.diff(maker[order]) != 0) | (np.diff(table.size[ordered]) != 0)
    return np.split(ordered, np.flatnonzero(changes) + 1) if len(ordered) else []


# Functions by the `method` in the file of remedies.
SAVINGS: Mapping[str, Callable[[Table, Contents, Curve, str], ChangedLives]] = {
    "selective": recompute_cells,
    "swap": swap_layers,
    "in-flight": keep_fewer_in_flight,
}
