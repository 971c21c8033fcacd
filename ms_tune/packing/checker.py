"""Whether a plan is one: no two live blocks overlap, and addresses are aligned.

Independent of the planner: a sweep through time that keeps the live blocks sorted by address and looks at the two
neighbours of each new one. If no block overlaps a neighbour when it is placed, no two overlap at all.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class PackingFault(NamedTuple):
    """What is wrong with a plan."""

    kind: str  # `overlap`, `alignment` or `negative`
    block: int
    other: int | None  # the block that it overlaps; None for other kinds


class Placed(NamedTuple):
    """One block of a plan: lives in ``[lower, upper)``; bytes; what its address is to be a multiple of; its address."""

    lower: int
    upper: int
    size: int
    alignment: int
    address: int


def faults_of(blocks: Sequence[Placed], most: int = 100) -> list[PackingFault]:
    """The faults of a plan, at most so many.

    A valid plan has none, and one that is not valid has at least one; not every pair that overlaps is listed.
    """
    faults = [PackingFault("negative", number, None) for number, block in enumerate(blocks) if block.address < 0]
    for number, block in enumerate(blocks):
        if block.alignment > 1 and block.address % block.alignment:
            faults.append(PackingFault("alignment", number, None))
    # At one tick, blocks end before others start. Blocks without bytes or life meet nobody.
    events = [
        event
        for number, block in enumerate(blocks)
        if block.size > 0 and block.upper > block.lower
        for event in ((block.lower, 1, number), (block.upper, 0, number))
    ]
    live: list[tuple[int, int]] = []  # (address, block)
    for _, starts, number in sorted(events):
        block = blocks[number]
        item = (block.address, number)
        at = bisect_left(live, item)
        if not starts:
            if at < len(live) and live[at] == item:  # one that overlapped was never taken in
                del live[at]
        elif at and live[at - 1][0] + blocks[live[at - 1][1]].size > block.address:
            faults.append(PackingFault("overlap", number, live[at - 1][1]))
        elif at < len(live) and block.address + block.size > live[at][0]:
            faults.append(PackingFault("overlap", number, live[at][1]))
        else:
            live.insert(at, item)
        if len(faults) >= most:
            break
    return faults[:most]
