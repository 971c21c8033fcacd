"""What STAlloc's allocator needs to know of a trace to serve the next run by a plan of ours.

``Allocator/StaticAllocator.hpp`` counts the allocations above 512 bytes. The first ones, of the time before the first
iteration and of iteration 0, come once; those of iteration 1 come again in each iteration after it, and have the places
of the plan again. An allocation whose size is not the plan's, or whose place is -1, goes to PyTorch's allocator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ms_tune.packing.placement import PackingProblem
from ms_tune.pools.memlog_report import VARIABLE, rounded
from ms_tune.pools.pool import ALIGNMENT
from ms_tune.readers.memlog import HEAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.readers.memlog import LogBlock, MemLog


class StaticBlocks(NamedTuple):
    """The allocations that a plan file has a line for."""

    sizes: tuple[int, ...]  # what each asks for, in their order
    # Those that get a place, as numbers of `sizes`; the others outlive the iteration that makes them anew.
    planned: tuple[int, ...]
    problem: PackingProblem  # the planned ones, to be placed
    once: int  # how many come before iteration 1, and only once
    allocated: int  # bytes: the largest live sum of those that get a place
    small: int  # bytes: that of all blocks up to 512 bytes, which have a pool of their own
    later: int  # allocations of the iterations after iteration 1
    other: int  # those of them whose size is not what the plan has at their turn


def static_blocks(log: MemLog) -> StaticBlocks | None:
    """What is planned of a trace; None if it has no iterations 0 and 1.

    Args:
        log: A trace without layers of experts, whose blocks are placed while the training runs.
    """
    counted = [block for block in log.blocks if block.size > VARIABLE and block.iteration != log.tail]
    once = [block for block in counted if block.iteration in (HEAD, 0)]
    again = [block for block in counted if block.iteration == 1]
    if not again or not any(block.iteration == 0 for block in once):
        return None
    later = [block for block in counted if block.iteration > 1]
    begin = again[0].start
    end = min((block.start for block in log.blocks if block.iteration > 1), default=log.events)
    spans: list[tuple[int, int] | None] = [
        (block.start, end if block.end is None else min(block.end, end)) for block in once
    ]
    following = [block for block in later if block.iteration == 2]  # noqa: PLR2004 - the first that repeats
    spans += [_span(block, place, following, (begin, end)) for place, block in enumerate(again)]
    rows = [*once, *again]
    planned = tuple(number for number, span in enumerate(spans) if span is not None)
    lower, upper = zip(*(span for span in spans if span is not None), strict=True)
    size = np.array([rounded(rows[number].size) for number in planned], np.int64)
    problem = PackingProblem(
        np.array(lower, np.int64), np.maximum(upper, np.array(lower, np.int64) + 1), size, np.full(len(size), ALIGNMENT)
    )
    return StaticBlocks(
        sizes=tuple(block.size for block in rows),
        planned=planned,
        problem=problem,
        once=len(once),
        allocated=_peak(log, [rows[number] for number in planned]),
        small=_peak(log, [block for block in log.blocks if block.size <= VARIABLE and block.iteration != log.tail]),
        later=len(later),
        other=_other(later, [block.size for block in again]),
    )


def _span(
    block: LogBlock, place: int, following: Sequence[LogBlock], iteration: tuple[int, int]
) -> tuple[int, int] | None:
    """When a block of iteration 1 has its place for itself; None if it may still be there when its turn comes again."""
    if block.end_iteration == 1 and block.end is not None:
        return block.start, block.end
    if block.end is None or place >= len(following) or block.end > following[place].start:
        return None
    return iteration  # it lasts into the next iteration, which has the same places


def _other(later: Sequence[LogBlock], sizes: Sequence[int]) -> int:
    """How many allocations of later iterations are not of the size of their turn; turns are counted through."""
    return sum(block.size != sizes[turn % len(sizes)] for turn, block in enumerate(later))


def _peak(log: MemLog, blocks: Sequence[LogBlock]) -> int:
    change = np.zeros(log.events + 1, np.int64)
    for block in blocks:
        change[block.start] += rounded(block.size)
        if block.end is not None:
            change[block.end] -= rounded(block.size)
    return int(np.cumsum(change).max())
