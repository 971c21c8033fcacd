"""Define problems and plans of offline placement: addresses for blocks with known lifetimes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_MOST_FAULTS = 100


@dataclass(frozen=True, slots=True, eq=False)
class PackingProblem:
    """Blocks to place; every array has one item per block."""

    # `lower`, `upper`: ticks; a block lives in `[lower, upper)`
    lower: NDArray[np.int64]
    upper: NDArray[np.int64]
    size: NDArray[np.int64]  # bytes
    alignment: NDArray[np.int64]  # bytes; the block's address must be a multiple of it
    names: tuple[str, ...] = ()  # block names in the file; empty if blocks are named by their position
    capacity: int | None = None  # available bytes; None for no limit

    def __len__(self) -> int:
        return len(self.size)

    def take_rows(self, rows: NDArray[np.int64]) -> PackingProblem:
        """Return the problem of some of the blocks."""
        names = tuple(self.names[row] for row in rows.tolist()) if self.names else ()
        return PackingProblem(
            self.lower[rows], self.upper[rows], self.size[rows], self.alignment[rows], names, self.capacity
        )

    def block_name(self, block: int) -> str:
        """Return the name of a block."""
        return self.names[block] if self.names else str(block)


class BlockLives(NamedTuple):
    """Lifetimes of blocks in the fewest ticks that show which blocks overlap: block i lives in ``[lower[i], upper[i])``."""

    # `lower`, `upper`: ticks from 0
    lower: NDArray[np.int32]
    upper: NDArray[np.int32]
    ticks: int  # number of ticks
    live: NDArray[np.int64]  # bytes of live blocks at each tick


class RepeatedStep(NamedTuple):
    """Repeating part of a trace: allocations ``[first, last)`` have a period that divides their number."""

    first: int
    last: int
    period: int

    @property
    def saved_allocations(self) -> int:
        """Return how many fewer allocations one step has than all of them."""
        return self.last - self.first - self.period

    @property
    def times(self) -> int:
        """Return the number of steps."""
        return (self.last - self.first) // self.period


@dataclass(frozen=True, slots=True, eq=False)
class PackingPlan:
    """Addresses for the blocks of a problem."""

    problem: PackingProblem  # the problem that is solved
    address: NDArray[np.int64]  # bytes from the start of the planned memory, per block
    lower_bound: int  # the largest sum of live bytes; no plan is lower
    height: int  # end of the highest block
    method: str  # the method that found it: `order` (a first-fit order), `improved` or `search`
    order: str  # name of the order it started from
    seconds: float  # duration of planning
    engine: str  # the engine of the inner loops: `compiled` or `numpy`
    proven: bool  # the plan is proved optimal
    step: RepeatedStep | None = None  # the equal steps that were planned as one
    # True if the processor clock ended planning before its work limit, so that another run can find another plan.
    late: bool = False

    @property
    def folded(self) -> int:
        """Return the number of equal steps planned as one; 1 if none were."""
        return self.step.times if self.step else 1

    @property
    def gap(self) -> float:
        """Return how far the height exceeds the lower bound, as a fraction of the bound."""
        return self.height / self.lower_bound - 1 if self.lower_bound else 0.0

    @property
    def utilisation(self) -> float:
        """Return the largest sum of live bytes as a fraction of the height."""
        return self.lower_bound / self.height if self.height else 1.0


def compress_lives(problem: PackingProblem) -> BlockLives:
    """Return the lifetimes of a problem's blocks in ticks at which the set of live blocks is not part of another's.

    Such a tick is the last start before an end. Two blocks overlap if and only if they overlap at one of them.
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
    """Return the largest sum of live sizes, in bytes: no placement is lower."""
    return int(compress_lives(problem).live.max(initial=0))


def find_most_live(lives: BlockLives) -> NDArray[np.int64]:
    """Return, per block, the largest sum of live bytes during its lifetime. Uses range maxima in O(ticks log ticks)."""
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
    """Return, per block, how many blocks are alive at some time during its lifetime, including itself."""
    begun = np.searchsorted(np.sort(lives.lower), lives.upper, side="left")
    ended = np.searchsorted(np.sort(lives.upper), lives.lower, side="right")
    return np.asarray(begun - ended, np.int64)


class PackingFault(NamedTuple):
    """An error in a plan."""

    kind: str  # `overlap`, `alignment` or `negative`
    block: int
    other_block: int | None  # the block that it overlaps; None for other kinds


class Placed(NamedTuple):
    """One block of a plan: lifetime ``[lower, upper)``, size and alignment in bytes, and address."""

    lower: int
    upper: int
    size: int
    alignment: int
    address: int


def find_faults(blocks: Sequence[Placed]) -> list[PackingFault]:
    """Return the errors of a plan, at most a hundred: overlapping live blocks, and negative or unaligned addresses.

    Independent of the planner: a sweep over time keeps the live blocks sorted by address and checks the two neighbours of each
    new one. If no block overlaps a neighbour when it is placed, no two overlap at all. An invalid plan has at least one error,
    but not every overlapping pair is listed.
    """
    faults = [PackingFault("negative", number, None) for number, block in enumerate(blocks) if block.address < 0]
    for number, block in enumerate(blocks):
        if block.alignment > 1 and block.address % block.alignment:
            faults.append(PackingFault("alignment", number, None))
    # At one tick, blocks end before others start. Blocks without bytes or lifetime overlap nothing.
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
            if at < len(live) and live[at] == item:  # overlapping blocks were never inserted
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
