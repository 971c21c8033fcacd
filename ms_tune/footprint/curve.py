"""Compute the memory of a trace over time, and its address space at one tick.

Bytes in use are the running sum of block sizes over ``[start, end)``. It equals the tracker's own
``actual_used_memory`` at every allocation, ``ms.runtime.max_memory_allocated()`` at its peak, and, in whole MiB, the
"Used peak memory usage" of MindSpore's log.

MindSpore's pool takes memory from the device in units (1 GiB by default; ``abstract_dynamic_mem_pool.cc``). The
footprint counts, unit by unit, the addresses from the lowest to the highest that was ever used; free ranges in between
are holes. In every real trace we have, this equals the tracker's footprint at every row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.readers.table import NONE, Table
from ms_tune.records import Record

# Memory of the GE back end: MindSpore reports it as allocated and freed on adjacent ticks (ge_graph_executor.cc).
_NOT_LIVE = frozenset({"GeFixed", "GeConst"})


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Memory in use and footprint over time."""

    tick: NDArray[np.int64]  # ticks of all allocations and releases, ascending; the last of equal ticks counts
    used: NDArray[np.int64]  # bytes in use after each, over all pools
    # Bytes between the lowest and the highest address used so far, summed over the pools and their units: the tracker's
    # `actual_peak_memory`. All zero if the trace does not record it.
    footprint: NDArray[np.int64]
    rows: NDArray[np.int64]  # the rows that count as live memory
    # Rows whose `actual_used_memory` differs from the sum of their pool's live blocks. If there are any, the trace
    # lacks rows or MindSpore counted differently.
    mismatches: NDArray[np.int64]

    @property
    def peak_bytes(self) -> int:
        """Return the most bytes in use."""
        return int(self.used.max()) if len(self.used) else 0

    @property
    def peak_tick(self) -> int:
        """Return the first tick with the most bytes in use."""
        return int(self.tick[int(self.used.argmax())]) if self.peak_bytes else 0

    @property
    def footprint_bytes(self) -> int:
        """Return the largest footprint."""
        return int(self.footprint.max()) if len(self.footprint) else 0

    def counted_rows(self, table: Table) -> NDArray[np.bool_]:
        """Return a mask of the trace's rows that count as live memory."""
        found = np.zeros(len(table), np.bool_)
        found[self.rows] = True
        return found

    def bytes_at(self, tick: int) -> int:
        """Return the bytes in use at a tick."""
        place = int(np.searchsorted(self.tick, tick, side="right")) - 1
        return int(self.used[place]) if place >= 0 else 0


def compute_curve(table: Table) -> Curve:
    """Return the curve of a trace; empty if it has no blocks (a run on the CPU)."""
    rows = np.flatnonzero((table.start >= 0) & ~table.kind.rows_in(_NOT_LIVE))
    tick, change, row = _allocation_events(table, rows)
    used = np.cumsum(change)
    footprint = np.zeros(len(tick), np.int64)
    mismatches = [np.zeros(0, np.int64)]
    for pool in np.unique(table.pool.codes[rows]).tolist():
        mine = table.pool.codes[row] == pool
        reported = mine & (tick == table.start[row]) & (table.footprint_after[row] != NONE)
        last = np.maximum.accumulate(np.where(reported, np.arange(len(row)), -1))
        footprint += np.where(last >= 0, table.footprint_after[row[np.maximum(last, 0)]], 0)
        own = np.cumsum(change[mine])
        is_allocation = tick[mine] == table.start[row[mine]]
        mismatches.append(_find_mismatches(table, row[mine][is_allocation], own[is_allocation]))
    return Curve(tick, used, footprint, rows, np.sort(np.concatenate(mismatches)))


class ChangedLives:
    """Lifetimes and sizes of a trace's blocks that can be changed, to compute the peak after the change."""

    def __init__(self, table: Table, curve: Curve) -> None:
        self._table, self._curve = table, curve
        self.start, self.end, self.size = table.start.copy(), table.end.copy(), table.size.copy()
        # Ticks and bytes in addition to the blocks' own.
        self._freed: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._allocated: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []

    def end_sooner(self, rows: NDArray[np.int64], tick: NDArray[np.int64] | int) -> None:
        """Free blocks at a tick, if they live that long."""
        self.end[rows] = np.minimum(tick, self.end[rows])

    def end_later(self, rows: NDArray[np.int64], tick: int) -> None:
        """Keep blocks until a tick at least."""
        self.end[rows] = np.maximum(tick, self.end[rows])

    def start_later(self, rows: NDArray[np.int64], tick: int) -> None:
        """Move the allocation of blocks to a later tick; blocks that end before it are unchanged."""
        late = self._table.end[rows] > tick
        self.start[rows] = np.where(late, np.maximum(self.start[rows], tick), self.start[rows])

    def bring_back(self, rows: NDArray[np.int64], tick: NDArray[np.int64] | int) -> None:
        """Allocate freed blocks again at a tick, until the trace frees them."""
        again, size = np.maximum(tick, self.end[rows]), self.size[rows]
        self._freed.append((np.maximum(self._table.end[rows], again), size))
        self._allocated.append((again, size))

    def need_for_a_moment(self, tick: int, size: int) -> None:
        """Add temporary memory at one tick, in addition to the blocks."""
        self._allocated += [(np.array([tick]), np.array([size])), (np.array([tick]), np.array([-size]))]

    def bytes_at(self, tick: int) -> int:
        """Return the bytes of the blocks at a tick."""
        rows = self._curve.rows
        return int(self.size[rows[(self.start[rows] <= tick) & (tick < self.end[rows])]].sum())

    def peak_moment(self) -> tuple[int, int]:
        """Return the remaining peak and its tick; blocks that end before they start are ignored."""
        rows = self._curve.rows[self.start[self._curve.rows] < self.end[self._curve.rows]]
        freed = rows[self.end[rows] != NEVER_FREED]
        frees = [(self.end[freed], self.size[freed]), *self._freed]
        allocations = [(self.start[rows], self.size[rows]), *self._allocated]
        tick = np.concatenate([tick for tick, _ in (*frees, *allocations)])
        change = np.concatenate([*(-bytes_ for _, bytes_ in frees), *(bytes_ for _, bytes_ in allocations)])
        return find_highest_moment(tick, change)


def find_highest_moment(tick: NDArray[np.int64], change: NDArray[np.int64]) -> tuple[int, int]:
    """Return the peak and its tick from changes at ticks; changes at one tick apply in the given order."""
    order = np.argsort(tick, kind="stable")
    used = np.cumsum(change[order])
    if not len(used):
        return 0, 0
    place = int(used.argmax())
    return max(int(used[place]), 0), int(tick[order[place]])


def _allocation_events(
    table: Table, rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    # At one tick, releases come before allocations.
    freed = rows[table.end[rows] != NEVER_FREED]
    tick = np.concatenate([table.end[freed], table.start[rows]])
    change = np.concatenate([-table.size[freed], table.size[rows]])
    order = np.argsort(tick, kind="stable")
    return tick[order], change[order], np.concatenate([freed, rows])[order]


def _find_mismatches(table: Table, row: NDArray[np.int64], swept: NDArray[np.int64]) -> NDArray[np.int64]:
    # Return the rows of one pool, in the order of allocation, that disagree with the sum of live blocks. MindSpore
    # allocates a batch of AllocContinuous at once, so each of its rows shows the total after the whole batch
    # (`ascend_memory_pool.cc`): a series of rows with the same total, of which the last agrees.
    reported = table.used_after[row]
    size = table.size[row]
    goes_on = (reported[1:] == reported[:-1]) & (swept[1:] == swept[:-1] + size[1:])
    ends = np.flatnonzero(np.append(~goes_on, True)) if len(row) else np.zeros(0, np.int64)
    last = ends[np.searchsorted(ends, np.arange(len(row)))]
    wrong: NDArray[np.int64] = row[(reported != NONE) & (reported != swept) & (swept[last] != reported)]
    return wrong


class Hole(Record):
    """A range of free addresses between used ones."""

    address: int
    bytes: int


class AddressRange(Record):
    """A contiguous range of addresses that the pool has used up to a tick."""

    address: int  # where it begins
    bytes: int  # its length
    used: int  # bytes of it in use
    pool: str
    stream: int | None  # the stream of its blocks; None if there are several
    rows: tuple[int, ...]  # the rows in use, by address
    holes: tuple[Hole, ...]  # free ranges in it, by address


class AddressMap(Record):
    """The address space at a tick."""

    tick: int
    segments: tuple[AddressRange, ...]  # the used ranges, the largest first
    free_bytes: int  # total size of the holes
    largest_hole: int  # the largest request that the pool can serve without growing
    # Number of live blocks that overlap another one. If not 0, the trace is damaged or its pool has virtual memory
    # management, and the map is unreliable.
    overlaps: int


def map_addresses(table: Table, curve: Curve, tick: int) -> AddressMap:
    """Return the address space at a tick."""
    used = curve.counted_rows(table) & (table.start <= tick) & (table.address > 0) & (table.size > 0)
    live = used & (tick < table.end)
    segments: list[AddressRange] = []
    overlaps = 0
    for pool in np.unique(table.pool.codes[used]).tolist():
        mine = np.flatnonzero(used & (table.pool.codes == pool))
        found, crossed = _address_ranges(table, mine, live)
        segments += found
        overlaps += crossed
    segments.sort(key=lambda segment: (-segment.bytes, segment.address))
    holes = [hole.bytes for segment in segments for hole in segment.holes]
    return AddressMap(tick, tuple(segments), sum(holes), max(holes, default=0), overlaps)


def _address_ranges(table: Table, rows: NDArray[np.int64], live: NDArray[np.bool_]) -> tuple[list[AddressRange], int]:
    rows = rows[np.argsort(table.address[rows], kind="stable")]
    begin = table.address[rows]
    end = begin + table.size[rows].astype(np.uint64)
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.append([True], begin[1:] > reach[:-1]))
    alive = rows[live[rows]]
    alive_begin = table.address[alive]
    segments, overlaps = [], 0
    for place, start in enumerate(first.tolist()):
        stop = int(first[place + 1]) if place + 1 < len(first) else len(rows)
        low, high = int(begin[start]), int(reach[stop - 1])
        inside = alive[np.searchsorted(alive_begin, np.uint64(low)) : np.searchsorted(alive_begin, np.uint64(high))]
        holes, crossed = _find_holes(table, inside, low, high)
        overlaps += crossed
        streams = np.unique(table.stream[rows[start:stop]])
        segments.append(
            AddressRange(
                address=low,
                bytes=high - low,
                used=int(table.size[inside].sum()),
                pool=table.pool.value_at(int(rows[start])),
                stream=int(streams[0]) if len(streams) == 1 else None,
                rows=tuple(inside.tolist()),
                holes=tuple(holes),
            )
        )
    return segments, overlaps


def _find_holes(table: Table, rows: NDArray[np.int64], low: int, high: int) -> tuple[list[Hole], int]:
    holes, overlaps, at = [], 0, low
    for row in rows.tolist():
        address = int(table.address[row])
        if address > at:
            holes.append(Hole(at, address - at))
        elif address < at:
            overlaps += 1
        at = max(at, address + int(table.size[row]))
    if at < high:
        holes.append(Hole(at, high - at))
    return holes, overlaps
