"""The peak of a trace that is a list of blocks; :mod:`ms_tune.memory.curve` has the arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.memory.curve import curve_of
from ms_tune.trace.table import table_from

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ms_tune.trace.memory_block import Block


@dataclass(frozen=True, slots=True)
class Peak:
    """The moment of most memory.

    Attributes:
        bytes: The largest sum of live block sizes, over all pools.
        tick: The first tick at which it is reached.
        footprint_bytes: The largest address range that the pools ever used, summed over the pools; fragmentation is
            what it exceeds ``bytes`` by.
        live: The blocks alive at the tick, in the trace's order. Their sizes add up to ``bytes``.
        mismatches: How many rows' ``used_after`` is not the sum of their pool's live blocks. Other than 0, the trace
            lacks rows or MindSpore counted otherwise.
    """

    bytes: int
    tick: int
    footprint_bytes: int
    live: tuple[Block, ...]
    mismatches: int


def peak_of(blocks: Iterable[Block]) -> Peak:
    """The peak of a trace; all zero if it holds no blocks (a run on the CPU)."""
    rows = tuple(blocks)
    table = table_from(rows)
    curve = curve_of(table)
    if not curve.peak_bytes:
        return Peak(0, 0, curve.footprint_bytes, (), len(curve.mismatches))
    alive = table.live(curve.peak_tick)
    live = tuple(rows[row] for row in curve.rows.tolist() if alive[row])
    return Peak(curve.peak_bytes, curve.peak_tick, curve.footprint_bytes, live, len(curve.mismatches))
