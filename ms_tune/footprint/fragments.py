"""The address space at one tick: what is in use, what is free between it, and how much a request could still get.

MindSpore's pool takes memory from the device in units (1 GiB unless set otherwise; ``abstract_dynamic_mem_pool.cc``). What
the footprint counts is, unit by unit, the stretch of addresses from the lowest to the highest that was ever used; free
stretches in it are holes. In every real trace at hand the stretches add up to the tracker's footprint at every row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ms_tune.footprint.curve import Curve
    from ms_tune.readers.table import Table


@dataclass(frozen=True, slots=True)
class Hole:
    """Free addresses between used ones."""

    address: int
    bytes: int


@dataclass(frozen=True, slots=True)
class AddressRange:
    """A stretch of addresses that the pool has used without a gap up to a tick."""

    address: int  # where it begins
    bytes: int  # how long it is
    used: int  # bytes of it in use
    pool: str
    stream: int | None  # the stream whose blocks are in it; None if there are those of several
    rows: tuple[int, ...]  # the rows in use, by address
    holes: tuple[Hole, ...]  # what is free, by address


@dataclass(frozen=True, slots=True)
class StreamHoles:
    """The holes that a stream can use: MindSpore's pool keeps the units of different streams apart."""

    pool: str
    stream: int | None  # the stream; None for stretches that several streams use
    free: int  # all holes together
    largest: int  # the largest one


@dataclass(frozen=True, slots=True)
class AddressMap:
    """The address space at a tick."""

    tick: int
    segments: tuple[AddressRange, ...]  # the stretches in use, the largest first
    free_bytes: int  # all holes together
    largest_hole: int  # the largest request that the pool could serve without growing
    # How many live blocks lie on another one: other than 0, the trace is of a pool with virtual memory management, or
    # damaged, and the map is not to be trusted.
    overlaps: int

    @property
    def by_stream(self) -> tuple[StreamHoles, ...]:
        """The holes by pool and stream."""
        found: dict[tuple[str, int | None], list[int]] = {}
        for segment in self.segments:
            found.setdefault((segment.pool, segment.stream), []).extend(hole.bytes for hole in segment.holes)
        ordered = sorted(found.items(), key=lambda item: (item[0][0], item[0][1] is None, item[0][1] or 0))
        return tuple(StreamHoles(*key, sum(holes), max(holes, default=0)) for key, holes in ordered)


def address_map(table: Table, curve: Curve, tick: int) -> AddressMap:
    """The address space at a tick."""
    counted = np.zeros(len(table), np.bool_)
    counted[curve.rows] = True
    used = counted & (table.start <= tick) & (table.address > 0) & (table.size > 0)
    live = used & (tick < table.end)
    segments: list[AddressRange] = []
    overlaps = 0
    for pool in np.unique(table.pool.codes[used]).tolist():
        mine = np.flatnonzero(used & (table.pool.codes == pool))
        found, crossed = _segments(table, mine, live)
        segments += found
        overlaps += crossed
    segments.sort(key=lambda segment: (-segment.bytes, segment.address))
    holes = [hole.bytes for segment in segments for hole in segment.holes]
    return AddressMap(tick, tuple(segments), sum(holes), max(holes, default=0), overlaps)


def _segments(table: Table, rows: NDArray[np.int64], live: NDArray[np.bool_]) -> tuple[list[AddressRange], int]:
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
        holes, crossed = _holes(table, inside, low, high)
        overlaps += crossed
        streams = np.unique(table.stream[rows[start:stop]])
        segments.append(
            AddressRange(
                address=low,
                bytes=high - low,
                used=int(table.size[inside].sum()),
                pool=table.pool.at(int(rows[start])),
                stream=int(streams[0]) if len(streams) == 1 else None,
                rows=tuple(inside.tolist()),
                holes=tuple(holes),
            )
        )
    return segments, overlaps


def _holes(table: Table, rows: NDArray[np.int64], low: int, high: int) -> tuple[list[Hole], int]:
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
