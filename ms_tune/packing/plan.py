"""Off-line placement of blocks: a portfolio of first-fit orders, improvement, and an exact stage for small problems.

MindSpore up to 2.10 cannot take addresses of single tensors from outside (its ``PluggableAllocator`` is called for each
unit of the pool, ``runtime/memory.py``), so a plan is a floor for what its pool could reach, and a guide.

Steps that repeat are planned once: their blocks share addresses, and the planner sees one step. Time is counted in allocations,
which tells just as well which blocks meet. Where the allocations of a trace repeat with a period, the ticks of all periods are laid
on one, and alike blocks of different periods become one block.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ms_tune.packing.engine import CompiledEngine, GapFit, Items, NumpyEngine
from ms_tune.packing.exact import MOST_BLOCKS, improve_exactly
from ms_tune.packing.placement import (
    BlockLives,
    PackingPlan,
    PackingProblem,
    compress_lives,
    count_meetings,
    find_most_live,
    lower_bound,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    # Lives in a time that runs through the repeating part once, and which blocks live within one step of it.
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
                    # Where fewest bytes are live in the step with most.
                    by_step = live[begin : begin + steps * length].reshape(-1, length)
                    begin += int(by_step.max(axis=0).argmin())
                    steps = (last - begin) // length
                if steps > 1:
                    found.add(_FoldedStep(begin, begin + steps * length, length))
    yield from sorted(found, key=lambda part: (-part.saved_allocations, part))[:_TRIES]


def _likely_periods(sign: Numbers) -> list[int]:
    order = np.argsort(sign, kind="stable")
    same = sign[order][1:] == sign[order][:-1]
    distance = np.diff(order)[same]
    values, counts = np.unique(distance[distance >= _FEWEST_BLOCKS], return_counts=True)
    frequent = np.argsort(-counts, kind="stable")[:_CANDIDATES]
    return [int(value) for value in values[frequent]]


def _longest_alike(alike: NDArray[np.bool_]) -> tuple[int, int] | None:
    # The longest part ``[first, last)`` of a column of truth values of which nearly all are true.
    score = np.concatenate(([0.0], np.cumsum(alike - _LEAST_ALIKE)))
    # The lowest score up to a position never rises, so where it first is low enough for an end is found by bisection.
    lowest = np.minimum.accumulate(score)
    starts = np.searchsorted(-lowest, -score, side="left")
    last = int((np.arange(len(score)) - starts).argmax())
    return (int(starts[last]), last) if last > starts[last] else None


_SEARCH_SECONDS = 8.25  # default limit where the exact stage runs
_SECONDS = 15.0  # default limit elsewhere
_FURTHER = 1.0  # of them for looking for less, once the plan is within the capacity that is asked for
_GRACE, _PATIENCE = 10.0, 20  # the clock ends what is counted in work at so many seconds and so many times the limit
_ORDERING = 2e-7  # seconds for each block in order to make an order
_NO_LIMIT = (1 << 63) - 2
_STALE = 40  # improvements that did not improve before one begins again at the best order
# The shares of the peak from which on a block counts as being there at the peak; measured on traces of MindSpore, where
# a little less than the whole is best, and on SOMAS problems, where size alone is.
_NEAR_PEAK = (0.999, 0.99, 0.97, 0.95, 0.9, 0.8)
_LEVELS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99, 0.999, 1.0)


class PackingProgress(NamedTuple):
    """How far the planner is."""

    seconds: float  # time used, by the work that was done
    limit: float  # time that it may use
    lower_bound: int  # bytes
    height: int | None  # bytes of the best plan so far; None before the first


@dataclass(slots=True, eq=False)
class _Best:
    """The best placement so far, and what of the time is used: by the work that was done, so that it is the same everywhere."""

    limit: float
    bound: int
    on_progress: Callable[[PackingProgress], None]
    begin: float
    enough: int | None = None  # the height from which on nobody waits long for less
    address: NDArray[np.int64] | None = None
    height: int | None = None
    method: str = "order"
    name: str = ""
    used: float = 0.0
    late: bool = False  # whether the clock ended it

    def report_progress(self, height: int | None, seconds: float = 0.0) -> float:
        """Tell how far it is, and count what was used; how many seconds are left."""
        self.used += seconds
        self.on_progress(PackingProgress(self.used, self.limit, self.bound, height))
        if self.enough is not None and height is not None and height <= self.enough:
            self.limit, self.enough = min(self.limit, self.used + _FURTHER), None
        left = self.limit - self.used
        self.late = self.late or (left > 0 and time.monotonic() - self.begin > _GRACE + _PATIENCE * self.limit)
        return 0.0 if self.late else left

    def try_order(self, items: Items, order: NDArray[np.int32], engine: NumpyEngine) -> GapFit:
        """First fit in an order, below the best height so far; the first is always finished."""
        limit, work = _NO_LIMIT, _NO_LIMIT
        if self.height is not None:
            limit, work = self.height - 1, int((self.limit - self.used) * engine.pace)
        fit = engine.first_fit(items, order, limit, work)
        self.report_progress(self.height, fit.work / engine.pace + _ORDERING * len(order))
        return fit

    def is_done(self) -> bool:
        return self.height is not None and (self.height <= self.bound or self.late or self.used >= self.limit)


def plan_addresses(
    problem: PackingProblem,
    engine: NumpyEngine,
    seconds: float | None = None,
    on_progress: Callable[[PackingProgress], None] = lambda _: None,
) -> PackingPlan:
    """Place all blocks as low as can be found in the time.

    Ends before the time if the height reaches the lower bound. The time is counted by work, so that there is the same plan
    on a busy machine as on an idle one, unless the clock shows several times as much. The first order is always finished, so
    that there is a plan in any case. The exact stage looks for a plan within the problem's capacity first, then for lower ones.
    Without a limit in seconds it is 8.25 s where the exact stage runs, else 15, and one more once the plan is within the capacity.
    """
    begin = time.monotonic()
    folded = fold_steps(problem)
    smaller = folded.problem if folded else problem
    searching = engine if len(smaller) <= MOST_BLOCKS and isinstance(engine, CompiledEngine) else None
    limit = seconds or (_SEARCH_SECONDS if searching else _SECONDS)
    enough = problem.capacity if seconds is None else None
    result = _make_plan(smaller, engine, searching, _Best(limit, 0, on_progress, begin, enough))
    if folded:
        address = result.address[folded.block]
        bound = lower_bound(problem)  # the folded one's may be a little higher
        proven = result.height <= bound
        result = replace(
            result, problem=problem, address=address, folded=folded.periods, lower_bound=bound, proven=proven
        )
    return result


def _make_plan(
    problem: PackingProblem, engine: NumpyEngine, searching: CompiledEngine | None, best: _Best
) -> PackingPlan:
    lives = compress_lives(problem)
    items = Items(lives, problem.size, problem.alignment)
    floor = best.bound = int(lives.live.max(initial=0))
    lead = np.zeros(0, np.int32)  # the best order
    for name, order in orders_to_try(problem, lives) if len(problem) else ():
        if best.is_done():
            break
        fit = best.try_order(items, order, engine)
        if best.height is None or fit.height < best.height:
            best.address, best.height, best.name, lead = fit.address, fit.height, name, order
    if searching and best.height is not None and not best.is_done():
        found = improve_exactly(problem, lives, searching, (best.bound, best.height), best.report_progress)
        floor = found.floor
        if found.address is not None:
            best.address, best.height, best.method = found.address, found.height, "search"
    elif len(problem):
        _improve_order(items, lead, engine, best)
    height = best.height or 0
    return PackingPlan(
        problem=problem,
        address=np.zeros(0, np.int64) if best.address is None else best.address,
        lower_bound=best.bound,
        height=height,
        method=best.method,
        order=best.name,
        seconds=time.monotonic() - best.begin,
        engine=engine.name,
        proven=height <= floor,
        late=best.late,
    )


def _improve_order(items: Items, begun: NDArray[np.int32], engine: NumpyEngine, best: _Best) -> None:
    # squeaky wheel: the block that rises above the best height so far comes earlier the next time
    random = np.random.default_rng(0)
    turns, stale = _turn_by_block(begun), 0
    while not best.is_done():
        order = np.argsort(turns, kind="stable").astype(np.int32)
        fit = best.try_order(items, order, engine)
        if best.height is None or fit.height < best.height:
            best.address, best.height, best.method, begun = fit.address, fit.height, "improved", order
            turns, stale = _turn_by_block(order), 0
        else:
            too_high = (fit.address >= 0) & (fit.address + items.size >= best.height)
            turns[too_high] *= random.uniform(0.2, 0.9, int(too_high.sum()))
            stale += 1
        if stale >= _STALE:
            turns, stale = _turn_by_block(begun) * random.uniform(0.9, 1.1, len(turns)), 0


def _turn_by_block(order: NDArray[np.int32]) -> NDArray[np.float64]:
    turns = np.empty(len(order), np.float64)
    turns[order] = np.arange(1, len(order) + 1)
    return turns


def orders_to_try(problem: PackingProblem, lives: BlockLives) -> Iterator[tuple[str, NDArray[np.int32]]]:
    """Names and orders of block numbers: blocks of the peak, large ones and long ones lead.

    The most promising come first, and cheap ones before dear ones: on a real trace of 97,143 blocks the first four take 0.7 s
    together, and ``size`` alone takes as long.
    """
    size, span = problem.size, (lives.upper - lives.lower).astype(np.int64)
    most = find_most_live(lives)
    peak = lives.live.max(initial=0)
    area = size.astype(np.float64) * span
    yield "peak-first-by-size", sort_blocks(most >= peak, size)
    yield f"near-peak-{_NEAR_PEAK[0]:.1%}-by-size", sort_blocks(most >= _NEAR_PEAK[0] * peak, size)
    yield "near-peak-99.9%-by-start", sort_blocks(most >= 0.999 * peak, -lives.lower, size)
    yield "live-by-size", sort_blocks(most, size)
    for share in _NEAR_PEAK[1:]:
        yield f"near-peak-{share:.1%}-by-size", sort_blocks(most >= share * peak, size)
    yield "neighbours-times-size", sort_blocks(count_meetings(lives) * size.astype(np.float64), size)
    yield "size", sort_blocks(size, span)
    yield "peak-first-by-span", sort_blocks(most, span, size)
    yield "area", sort_blocks(area, size)
    yield "weighed-size", sort_blocks(size * (most / max(peak, 1)) ** 4, span)
    yield "span", sort_blocks(span, size)
    levels = np.searchsorted(_LEVELS, most / max(peak, 1), side="right")
    yield "levels-by-start", sort_blocks(levels, -lives.lower, size)
    yield "size-class-by-span", sort_blocks(np.frexp(size.astype(np.float64))[1], span, size)
    yield "start", sort_blocks(-lives.lower, size)


def sort_blocks(*keys: NDArray[np.generic]) -> NDArray[np.int32]:
    """Block numbers in descending order of the first key, then of the next; equal ones in their own order."""
    count = len(keys[0])
    reverse = np.arange(count)[::-1]
    ascending = np.lexsort((reverse, *(np.asarray(key, np.float64) for key in reversed(keys))))
    return np.asarray(ascending[::-1], np.int32)
