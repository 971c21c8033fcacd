"""Off-line placement: blocks whose lives are known beforehand get addresses; what a problem and its plan are."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_MOST_FAULTS = 100


@dataclass(frozen=True, slots=True, eq=False)
class PackingProblem:
    """Blocks to place, one item a block in every array."""

    # `lower`, `upper`: ticks; a block lives in `[lower, upper)`
    lower: NDArray[np.int64]
    upper: NDArray[np.int64]
    size: NDArray[np.int64]  # bytes
    alignment: NDArray[np.int64]  # bytes; the block's address is to be a multiple of it
    names: tuple[str, ...] = ()  # what the file calls each block; empty if it is called by its position
    capacity: int | None = None  # bytes that there are; None if any height will do

    def __len__(self) -> int:
        return len(self.size)

    def take_rows(self, rows: NDArray[np.int64]) -> PackingProblem:
        """The problem of some of the blocks."""
        names = tuple(self.names[row] for row in rows.tolist()) if self.names else ()
        return PackingProblem(
            self.lower[rows], self.upper[rows], self.size[rows], self.alignment[rows], names, self.capacity
        )

    def block_name(self, block: int) -> str:
        """What to call a block."""
        return self.names[block] if self.names else str(block)


class BlockLives(NamedTuple):
    """The lives of blocks in as few ticks as tell which of them meet: block i lives in ``[lower[i], upper[i])``."""

    # `lower`, `upper`: numbers of ticks from 0
    lower: NDArray[np.int32]
    upper: NDArray[np.int32]
    ticks: int  # how many there are
    live: NDArray[np.int64]  # bytes of live blocks at each tick


@dataclass(frozen=True, slots=True, eq=False)
class PackingPlan:
    """Addresses for the blocks of a problem."""

    problem: PackingProblem  # what was to be placed
    address: NDArray[np.int64]  # bytes from the beginning of the planned memory, by block
    lower_bound: int  # the largest live sum; no plan is lower
    height: int  # where the highest block ends
    method: str  # what found it: `order` (a first-fit order), `improved` or `search`
    order: str  # the name of the order that it began with
    seconds: float  # time it took
    engine: str  # what ran the inner loops: `compiled` or `numpy`
    proven: bool  # whether it is known that no plan is lower
    folded: int = 1  # how many equal steps were planned as one; 1 if none were
    # Whether the clock ended it before the work of its time was done, so that another run may find another plan
    late: bool = False

    @property
    def gap(self) -> float:
        """How far the height is above the lower bound, as a share of the bound."""
        return self.height / self.lower_bound - 1 if self.lower_bound else 0.0

    @property
    def utilisation(self) -> float:
        """The largest live sum as a share of the height."""
        return self.lower_bound / self.height if self.height else 1.0


def compress_lives(problem: PackingProblem) -> BlockLives:
    """The lives of a problem's blocks, counted in ticks at which the set of live blocks is not part of another's.

    Such a tick is the last start before an end. Two blocks meet if and only if they meet at one of them.
    """
    starts, ends = np.unique(problem.lower), np.unique(problem.upper)
    if not len(starts):
        none = np.zeros(0, np.int32)
        return BlockLives(none, none, 0, np.zeros(0, np.int64))
    next_end = ends[np.searchsorted(ends, starts, side="right")]
    kept = starts[np.append(next_end[:-1] <= starts[1:], True)]
    lower = np.searchsorted(kept, problem.lower).astype(np.int32)
    upper = np.searchsorted(kept, problem.upper).astype(np.int32)
    change = np.zeros(len(kept) + 1, np.int64)
    np.add.at(change, lower, problem.size)
    np.subtract.at(change, upper, problem.size)
    return BlockLives(lower, upper, len(kept), np.cumsum(change)[:-1])


def lower_bound(problem: PackingProblem) -> int:
    """The largest sum of live sizes, in bytes: no placement is lower."""
    return int(compress_lives(problem).live.max(initial=0))


def find_most_live(lives: BlockLives) -> NDArray[np.int64]:
    """By block: the largest live sum while it lives. A sparse table of range maxima: O(ticks log ticks)."""
    rows = [lives.live]
    width = 1
    while 2 * width <= lives.ticks:
        rows.append(np.maximum(rows[-1][:-width], rows[-1][width:]))
        width *= 2
    length = (lives.upper - lives.lower).astype(np.int64)
    level = np.frexp(length.astype(np.float64))[1] - 1
    result = np.empty(len(length), np.int64)
    for number, row in enumerate(rows):
        here = np.flatnonzero(level == number)
        result[here] = np.maximum(row[lives.lower[here]], row[lives.upper[here] - (1 << number)])
    return result


def count_meetings(lives: BlockLives) -> NDArray[np.int64]:
    """By block: how many are alive with it at some time, itself among them."""
    begun = np.searchsorted(np.sort(lives.lower), lives.upper, side="left")
    ended = np.searchsorted(np.sort(lives.upper), lives.lower, side="right")
    return np.asarray(begun - ended, np.int64)


class PackingFault(NamedTuple):
    """What is wrong with a plan."""

    kind: str  # `overlap`, `alignment` or `negative`
    block: int
    other_block: int | None  # the block that it overlaps; None for other kinds


class Placed(NamedTuple):
    """One block of a plan: lives in ``[lower, upper)``; bytes; what its address is to be a multiple of; its address."""

    lower: int
    upper: int
    size: int
    alignment: int
    address: int


def find_faults(blocks: Sequence[Placed]) -> list[PackingFault]:
    """The faults of a plan, a hundred at most: two live blocks that overlap, addresses that are not aligned.

    Independent of the planner: a sweep through time that keeps the live blocks sorted by address and looks at the two
    neighbours of each new one. If no block overlaps a neighbour when it is placed, no two overlap at all.
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
        if len(faults) >= _MOST_FAULTS:
            break
    return faults[:_MOST_FAULTS]
