"""The memory curve of a trace and its peak.

The curve is the running sum of block sizes over ``[start, end)``. It equals the tracker's own ``actual_used_memory`` at
every allocation, ``ms.runtime.max_memory_allocated()`` at its peak, and, in whole MiB, the "Used peak memory usage" of
MindSpore's log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ms_tune.trace.memory_block import Block

# Memory of the GE back end: MindSpore reports it as allocated and freed on adjacent ticks (ge_graph_executor.cc).
_NOT_LIVE = frozenset({"GeFixed", "GeConst"})


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
    counted = [block for block in blocks if _counts(block)]
    peak, tick = _highest(counted)
    live = tuple(block for block in counted if block.start <= tick and (block.end is None or tick < block.end))
    pools: dict[str, list[Block]] = {}
    for block in counted:
        pools.setdefault(block.pool, []).append(block)
    footprint = sum(max(block.footprint_after or 0 for block in pool) for pool in pools.values())
    mismatches = sum(_mismatches(pool) for pool in pools.values())
    return Peak(peak, tick, footprint, live if peak else (), mismatches)


def _counts(block: Block) -> bool:
    """Whether the block takes part in the curve: static rows and GE's notes about its own memory do not."""
    return block.start >= 0 and block.kind not in _NOT_LIVE


def _highest(blocks: Sequence[Block]) -> tuple[int, int]:
    """Largest sum of live sizes, and the first tick that has it."""
    events = [(block.start, block.size) for block in blocks]
    events += [(block.end, -block.size) for block in blocks if block.end is not None]
    events.sort()  # what is freed at a tick comes before what is allocated at it: lives are half open
    used = peak = tick = 0
    for at, change in events:
        used += change
        if used > peak:
            peak, tick = used, at
    return peak, tick


def _mismatches(pool: Sequence[Block]) -> int:
    """How many rows of one pool disagree with the sum of live blocks."""
    rows = sorted(pool, key=lambda block: block.start)
    frees = sorted((block.end, block.size) for block in rows if block.end is not None)
    swept: list[int] = []
    used = freed = 0
    for row in rows:
        while freed < len(frees) and frees[freed][0] <= row.start:
            used -= frees[freed][1]
            freed += 1
        used += row.size
        swept.append(used)
    wrong = position = 0
    while position < len(rows):
        if rows[position].used_after in (None, swept[position]):
            position += 1
        elif size := _batch(rows, swept, position):
            position += size
        else:
            wrong += 1
            position += 1
    return wrong


def _batch(rows: Sequence[Block], swept: Sequence[int], first: int) -> int:
    """How many rows from this one on are one batch of AllocContinuous, or 0.

    MindSpore allocates such a batch at once, so that each of its rows shows the total after the whole batch
    (``ascend_memory_pool.cc``).
    """
    total = rows[first].used_after
    last = first
    while (
        last + 1 < len(rows)
        and rows[last + 1].used_after == total
        and swept[last + 1] == swept[last] + rows[last + 1].size
    ):
        last += 1
    return last - first + 1 if last > first and swept[last] == total else 0
