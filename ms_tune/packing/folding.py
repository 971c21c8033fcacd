"""Steps that repeat are planned once: their blocks share addresses, and the planner sees one step.

Time is counted in allocations, which tells just as well which blocks meet. Where the allocations of a trace repeat with
a period, the ticks of all periods are laid on one, and alike blocks of different periods become one block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ms_tune.packing.placement import PackingProblem, lower_bound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

_FEWEST_BLOCKS = 64  # shorter periods are not worth it
_LEAST_ALIKE = 0.9  # share of the blocks of the repeating part that must have their like one period later
_CANDIDATES = 24  # periods to look at
_TRIES = 12  # parts to fold for a trial
_TOLERANCE = 1e-5  # by how much the bound may rise: a few blocks of some kB cross the borders of every step
_MOST_TOGETHER = 8  # periods that may make one step


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """A problem with its repeating steps laid on each other."""

    problem: PackingProblem  # the smaller problem
    block: Numbers  # by block of the whole problem: its block of the smaller one
    periods: int  # how many steps became one


class _FoldedStep(NamedTuple):
    """Allocations ``[first, last)`` repeat with a period that divides their number."""

    first: int
    last: int
    period: int

    @property
    def saved_allocations(self) -> int:
        """Allocations that need not be planned."""
        return self.last - self.first - self.period


def fold_steps(problem: PackingProblem) -> Folded | None:
    """The problem with its repeating steps planned as one, or None if there are none or the bound would rise much.

    Blocks that live across the border of a step take part in the one step from its beginning to its end. Where many do,
    several periods together may be a step: the micro-batches of a pipeline.
    """
    count = len(problem)
    if count < 2 * _FEWEST_BLOCKS:
        return None
    order = np.lexsort((np.arange(count), problem.lower))
    ordered = problem.take_rows(order)
    position = np.arange(count)
    # Positions at which each block lives: [begin, end). What starts at one tick starts at one position.
    begin = np.searchsorted(ordered.lower, ordered.lower, side="left")
    end = np.maximum(np.searchsorted(ordered.lower, ordered.upper, side="left"), begin + 1)
    bound = lower_bound(problem)
    change = np.bincount(begin, ordered.size, count + 1) - np.bincount(end, ordered.size, count + 1)
    sign = np.unique(np.stack((begin - position, end - position, ordered.size)), axis=1, return_inverse=True)[1]
    for part in _repeated_parts(sign.reshape(-1), np.cumsum(change)):
        low, high, inside = _folded_lives(begin, end, part)
        turn = np.where(inside, (position - part.first) % part.period, -1 - position)
        keys = np.stack((turn, low, high, ordered.size, ordered.alignment))
        chosen, block = np.unique(keys, axis=1, return_index=True, return_inverse=True)[1:]
        smaller = PackingProblem(low[chosen], high[chosen], ordered.size[chosen], ordered.alignment[chosen])
        if lower_bound(smaller) <= bound * (1 + _TOLERANCE):
            result = np.empty(count, np.int64)
            result[order] = block.reshape(-1)
            return Folded(smaller, result, (part.last - part.first) // part.period)
    return None


def _folded_lives(begin: Numbers, end: Numbers, part: _FoldedStep) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
    """Lives in a time that runs through the repeating part once, and which blocks live within one step of it."""
    first, last, period = part

    def at(tick: Numbers) -> Numbers:
        folded = first + (tick - first) % period
        return np.where(tick < first, tick, np.where(tick >= last, tick - part.saved_allocations, folded))

    steps = (last - first) // period
    step_begin = np.clip((begin - first) // period, -1, steps)
    step_end = np.clip((end - 1 - first) // period, -1, steps)
    crosses = step_begin != step_end
    low, high = at(begin), at(end - 1) + 1
    # A block that crosses a border is alive at the end of one step and at the beginning of the next: at both of the one.
    low = np.where(crosses & (begin >= first), np.minimum(low, first), low)
    high = np.where(crosses & (end <= last), np.maximum(high, first + period), high)
    return low, high, ~crosses & (step_begin >= 0) & (step_begin < steps)


def _repeated_parts(sign: Numbers, live: NDArray[np.float64]) -> Iterator[_FoldedStep]:
    found: set[_FoldedStep] = set()
    for period in _likely_periods(sign):
        part = _longest_alike(sign[:-period] == sign[period:])
        if part is None:
            continue
        first, last = part[0], part[1] + period
        for together in range(1, _MOST_TOGETHER + 1):
            length = period * together
            # The first step is special: it makes the optimizer's state and whatever else then stays.
            for skipped in range(2):
                begin = first + skipped * length
                steps = (last - begin) // length
                if steps > 1:
                    begin += _emptiest_position(live[begin : begin + steps * length].reshape(-1, length))
                    steps = (last - begin) // length
                if steps > 1:
                    found.add(_FoldedStep(begin, begin + steps * length, length))
    yield from sorted(found, key=lambda part: (-part.saved_allocations, part))[:_TRIES]


def _emptiest_position(live: NDArray[np.float64]) -> int:
    """The position within the step, one row a step, at which fewest bytes are live in the step with most."""
    return int(live.max(axis=0).argmin())


def _likely_periods(sign: Numbers) -> list[int]:
    """Frequent distances between one allocation and the next that is alike."""
    order = np.argsort(sign, kind="stable")
    same = sign[order][1:] == sign[order][:-1]
    distance = np.diff(order)[same]
    values, counts = np.unique(distance[distance >= _FEWEST_BLOCKS], return_counts=True)
    frequent = np.argsort(-counts, kind="stable")[:_CANDIDATES]
    return [int(value) for value in values[frequent]]


def _longest_alike(alike: NDArray[np.bool_]) -> tuple[int, int] | None:
    """The longest part ``[first, last)`` of a column of truth values of which nearly all are true."""
    score = np.concatenate(([0.0], np.cumsum(alike - _LEAST_ALIKE)))
    # The lowest score up to a position never rises, so where it first is low enough for an end is found by bisection.
    lowest = np.minimum.accumulate(score)
    starts = np.searchsorted(-lowest, -score, side="left")
    last = int((np.arange(len(score)) - starts).argmax())
    return (int(starts[last]), last) if last > starts[last] else None
