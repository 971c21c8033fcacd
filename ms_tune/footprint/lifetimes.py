"""Analyse how long blocks live: released late, never released, growing with every step, or short-lived spikes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ms_tune.enums import MemoryCategory
from ms_tune.footprint.category import CONTENTS, Contents, category_code
from ms_tune.footprint.curve import ChangedLives, Curve
from ms_tune.footprint.layers import find_location, find_operator
from ms_tune.footprint.steps import Steps
from ms_tune.readers.memory_block import NEVER_FREED, Frame
from ms_tune.readers.table import NONE, Table
from ms_tune.records import Record

_SHORT = 0.01  # of all ticks: blocks with a shorter life are spikes
_MAX_REPORTED = 10


@dataclass(frozen=True, slots=True)
class Waste:
    """Blocks of one operator at one place that are released later than their last use."""

    operator: str
    where: str
    category: MemoryCategory
    count: int
    bytes: int
    bytes_ticks: int


class BlockGrowth(Record):
    """Blocks of one operator, place and category that grow in total with every step."""

    operator: str
    where: str
    category: MemoryCategory
    bytes_per_step: int  # the least that any of the last steps added
    stack: tuple[Frame, ...]  # the Python stack; may be empty


class Lifetimes(Record):
    """Results of the analysis of block lifetimes."""

    late_frees: tuple[Waste, ...]  # the largest products of size and ticks between last use and release
    peak_if_freed_after_last_use: int  # peak if every block were released directly after its last use
    # Blocks that grow with every step; requires three steps, as the first one creates optimizer state.
    growth: tuple[BlockGrowth, ...]
    spike_bytes: int  # bytes at the peak in blocks that live for less than 1% of the trace
    peak_without_spikes: int  # peak without these blocks


def analyse_lifetimes(table: Table, contents: Contents, curve: Curve, steps: Steps) -> Lifetimes:
    """Return the analysis of the lifetimes of all blocks."""
    counted = curve.counted_rows(table)
    prompt, plain = ChangedLives(table, curve), ChangedLives(table, curve)
    freed = np.flatnonzero((table.end != NEVER_FREED) & (table.last_user != NONE))
    prompt.end_sooner(freed, np.maximum(table.last_user, table.start)[freed] + 1)
    spikes = _find_spikes(table, contents, curve, counted)
    plain.size[spikes] = 0
    return Lifetimes(
        late_frees=_late_frees(table, contents, counted),
        peak_if_freed_after_last_use=prompt.peak_moment()[0],
        growth=_find_growth(table, contents, counted, steps),
        spike_bytes=int(table.size[spikes].sum()),
        peak_without_spikes=plain.peak_moment()[0],
    )


def _late_frees(table: Table, contents: Contents, counted: NDArray[np.bool_]) -> tuple[Waste, ...]:
    freed = counted & (table.end != NEVER_FREED) & (table.last_user >= table.start) & (table.last_user < table.end)
    rows = np.flatnonzero(freed)
    ticks = table.end[rows] - table.last_user[rows]
    size = table.size[rows]
    products = size.astype(np.float64) * ticks  # may exceed 64 bits
    keys, group = _group_rows(table, contents, rows)
    sums = np.zeros(len(keys))
    np.add.at(sums, group, products)
    sizes, counts = np.zeros(len(keys), np.int64), np.bincount(group, minlength=len(keys))
    np.add.at(sizes, group, size)
    merged: dict[tuple[str, str, MemoryCategory], list[int]] = {}
    # Finding names for thousands of small groups is slow: those that make up 98% are enough.
    order = np.argsort(sums, kind="stable")[::-1]
    enough = np.searchsorted(np.cumsum(sums[order]), 0.98 * sums.sum()) + 1
    for place in order[:enough].tolist():
        row = int(keys[place])
        key = (find_operator(table, row), find_location(table, row), CONTENTS[contents.codes[row]])
        total = merged.setdefault(key, [0, 0, 0])
        for at, value in enumerate((counts[place], sizes[place], sums[place])):
            total[at] += int(value)
    largest = sorted(merged.items(), key=lambda item: (-item[1][2], item[0]))[:_MAX_REPORTED]
    return tuple(Waste(*key, *values) for key, values in largest)


def _group_rows(
    table: Table, contents: Contents, rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if not len(rows):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    key = (table.node.codes[rows].astype(np.int64) * len(table.stack.values) + table.stack.codes[rows]) * len(CONTENTS)
    _, first, group = np.unique(key + contents.codes[rows], return_index=True, return_inverse=True)
    return rows[first], group.reshape(-1)


def _find_spikes(table: Table, contents: Contents, curve: Curve, counted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    if not curve.peak_bytes:
        return np.zeros(len(table), np.bool_)
    ticks = int(curve.tick[-1] - curve.tick[0])
    short = (table.end != NEVER_FREED) & ((table.end - table.start) < _SHORT * ticks)
    kept = contents.codes == category_code(MemoryCategory.ACTIVATIONS)
    return np.asarray(counted & table.live_at(curve.peak_tick) & short & ~kept, np.bool_)


def _find_growth(table: Table, contents: Contents, counted: NDArray[np.bool_], steps: Steps) -> tuple[BlockGrowth, ...]:
    # A step ends at the last tick of its update. Blocks that every step replaces (the loss, gradients kept until the
    # next backward pass) are alive at every end, but do not grow.
    needed = 3
    ends = steps.ends[1:][-8:]  # the first step creates state that all later steps keep
    if len(ends) < needed - 1 or len(steps.ends) < needed:
        return ()
    at_an_end = np.zeros(len(table), np.bool_)
    for end in ends:
        at_an_end |= table.live_at(end)
    rows = np.flatnonzero(counted & at_an_end)
    keys, group = _group_rows(table, contents, rows)
    totals = []
    for end in ends:
        sizes = np.zeros(len(keys), np.int64)
        live = (table.start[rows] <= end) & (end < table.end[rows])
        np.add.at(sizes, group[live], table.size[rows[live]])
        totals.append(sizes)
    added = np.diff(np.array(totals), axis=0)
    found = []
    for place in np.flatnonzero((added > 0).all(axis=0)).tolist():
        row = int(keys[place])
        per_step = int(added[:, place].min())
        stack = table.stack.value_at(row)
        what = (find_operator(table, row), find_location(table, row), CONTENTS[contents.codes[row]])
        found.append(BlockGrowth(*what, per_step, stack))
    found.sort(key=lambda growth: (-growth.bytes_per_step, growth.operator, growth.where))
    return tuple(found[:_MAX_REPORTED])
