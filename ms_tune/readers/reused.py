"""End the blocks of a trace whose release MindSpore's tracker leaves out.

A block that another stream still uses is released only when that stream is known to be done. If
``ms.runtime.synchronize()`` finds that out, the pool frees the block itself (``DoSyncAllEvents`` in
``abstract_dynamic_mem_pool.cc``), and the tracker of MindSpore 2.9 and 2.10 writes that it was never freed.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.readers.table import NONE, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray


def end_reused_blocks(table: Table) -> Table:
    """Return the trace with an end for every block whose release it lacks.

    A block has ended when its address is given out again. If the trace has the bytes in use (``actual_used_memory``), they
    show when: after the block's last use, as soon as more was released than the trace says.
    """
    end = table.end.copy()
    in_pool = (table.start >= 0) & (table.address > 0) & (table.size > 0)
    for pool in np.unique(table.pool.codes[in_pool]).tolist():
        rows = table.rows_by_start(in_pool & (table.pool.codes == pool))
        end[rows] = _end_at_reuse(table, rows)
        _end_at_silent_releases(table, rows, end)
    return replace(table, end=end, unreleased=int((end < table.end).sum()))


def _end_at_reuse(table: Table, rows: NDArray[np.int64]) -> list[int]:
    # A pool serves requests from the lowest address of a free range, so the first block that overlaps an earlier one
    # contains its first byte. (In a batch of the older pool, whose first row has the size of all, the others do not.)
    ends: list[int] = table.end[rows].tolist()
    live: list[int] = []  # first addresses, ascending
    holder: dict[int, int] = {}
    columns = (table.start[rows].tolist(), table.address[rows].tolist(), table.size[rows].tolist())
    for number, (start, address, size) in enumerate(zip(*columns, strict=True)):
        at = bisect_left(live, address)
        to = bisect_left(live, address + size, at)
        for before in live[at:to]:
            ends[holder[before]] = min(start, ends[holder[before]])
        live[at:to] = [address]
        holder[address] = number
    return ends


def _end_at_silent_releases(table: Table, rows: NDArray[np.int64], end: NDArray[np.int64]) -> None:
    # Blocks that no later task uses: all of them, or those allocated at the same places as the blocks whose address is given out
    # again, if they add up to the released bytes; else the latter alone.
    size, freed = table.size[rows], table.end[rows]
    order = np.argsort(freed, kind="stable")
    released = np.append(0, np.cumsum(size[order]))
    swept = np.cumsum(size) - released[np.searchsorted(freed[order], table.start[rows], side="right")]
    surplus = np.where(table.used_after[rows] == NONE, 0, swept - table.used_after[rows])
    # The rows of one continuous allocation all show the bytes after the last of them: a surplus below an earlier one.
    highest = np.maximum.accumulate(np.append(0, surplus))
    last_use = np.maximum(table.start[rows], table.last_user[rows])
    places = np.stack([table.stack.codes[rows], table.node.codes[rows], size], axis=1)
    place = np.unique(places, axis=0, return_inverse=True)[1].reshape(-1)
    reused = end[rows] < freed
    alike = np.isin(place, place[reused])
    for number in np.flatnonzero(surplus > highest[:-1]).tolist():
        tick = table.start[rows[number]]
        unused = (last_use < tick) & (end[rows] >= tick) & (freed == NEVER_FREED)
        for chosen in (unused, unused & alike, unused & reused):
            if size[chosen].sum() == surplus[number] - highest[number]:
                break
        end[rows[chosen]] = tick
