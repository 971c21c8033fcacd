"""Place blocks offline: try several first-fit orders, improve them, and search exactly if the problem is small.

Repeated steps are planned once: their blocks share addresses, and the planner sees one step. Time is counted in allocations,
which show equally well which blocks overlap. If the allocations of a trace repeat with a period, the ticks of all periods are
mapped to one, and equal blocks of different periods become one block.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_tune.packing.engine import SEARCHES, CompiledEngine, GapFit, Items, NumpyEngine
from ms_tune.packing.exact import MOST_BLOCKS, improve_exactly
from ms_tune.packing.placement import (
    BlockLives,
    PackingPlan,
    PackingProblem,
    RepeatedStep,
    compress_lives,
    count_meetings,
    find_most_live,
    lower_bound,
)

Numbers = NDArray[np.int64]

_FEWEST_BLOCKS = 64  # shorter periods are ignored
_LEAST_ALIKE = 0.9  # minimum fraction of blocks in the repeating part with an equal block one period later
_CANDIDATES = 24  # number of periods to consider
_TRIES = 12  # number of parts to try to fold
_TOLERANCE = 1e-5  # allowed relative increase of the bound: a few blocks of some kB cross the border of every step
_MOST_TOGETHER = 8  # maximum number of periods in one step


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """A problem whose repeated steps are mapped to one."""

    problem: PackingProblem  # the smaller problem
    block: Numbers  # index in the smaller problem, per block of the whole problem
    step: RepeatedStep  # the steps that became one


def fold_steps(problem: PackingProblem) -> Folded | None:
    """Return the problem with its repeated steps planned as one, or None without repetition or if the bound would increase much.

    A block that lives across the border of a step occupies the whole merged step. If there are many, several periods together can
    be a step: the micro-batches of a pipeline.
    """
    count = len(problem)
    if count < 2 * _FEWEST_BLOCKS:
        return None
    order = np.lexsort((np.arange(count), problem.lower))
    ordered = problem.take_rows(order)
    position = np.arange(count)
    # Positions at which each block lives: [begin, end). Blocks that start at one tick start at one position.
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
            return Folded(smaller, result, part)
    return None


def find_repeated_step(problem: PackingProblem) -> RepeatedStep | None:
    """Return the requests whose sizes repeat; None if there are too few. The blocks must be in the order of their requests."""
    if len(problem) < 2 * _FEWEST_BLOCKS:
        return None
    return next(_repeated_parts(problem.size, np.zeros(len(problem))), None)


def _folded_lives(begin: Numbers, end: Numbers, part: RepeatedStep) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
    # Map lifetimes to a time that contains the repeating part once; also return which blocks live within one step of it.
    first, last, period = part

    def at(tick: Numbers) -> Numbers:
        folded = first + (tick - first) % period
        return np.where(tick < first, tick, np.where(tick >= last, tick - part.saved_allocations, folded))

    steps = (last - first) // period
    step_begin = np.clip((begin - first) // period, -1, steps)
    step_end = np.clip((end - 1 - first) // period, -1, steps)
    crosses = step_begin != step_end
    low, high = at(begin), at(end - 1) + 1
    # A block that crosses a border lives at the end of one step and at the start of the next: at both ends of the merged one.
    low = np.where(crosses & (begin >= first), np.minimum(low, first), low)
    high = np.where(crosses & (end <= last), np.maximum(high, first + period), high)
    # The next step's block at this turn can follow a block that crosses one border and is released before it.
    short = (step_end == step_begin + 1) & (end - begin <= period) & (step_end < steps)
    return low, high, (~crosses | short) & (step_begin >= 0) & (step_begin < steps)


def _repeated_parts(sign: Numbers, live: NDArray[np.float64]) -> Iterator[RepeatedStep]:
    found: set[RepeatedStep] = set()
    for period in _likely_periods(sign):
        part = _longest_alike(sign[:-period] == sign[period:])
        if part is None:
            continue
        first, last = part[0], part[1] + period
        for together in range(1, _MOST_TOGETHER + 1):
            length = period * together
            # Optionally skip the first step, which also creates the optimizer state and other persistent blocks.
            for skipped in range(2):
                begin = first + skipped * length
                steps = (last - begin) // length
                if steps > 1:
                    # Begin where the maximum of live bytes over all steps is lowest.
                    by_step = live[begin : begin + steps * length].reshape(-1, length)
                    begin += int(by_step.max(axis=0).argmin())
                    steps = (last - begin) // length
                if steps > 1:
                    found.add(RepeatedStep(begin, begin + steps * length, length))
    yield from sorted(found, key=lambda part: (-part.saved_allocations, part))[:_TRIES]


def _likely_periods(sign: Numbers) -> list[int]:
    order = np.argsort(sign, kind="stable")
    same = sign[order][1:] == sign[order][:-1]
    distance = np.diff(order)[same]
    values, counts = np.unique(distance[distance >= _FEWEST_BLOCKS], return_counts=True)
    frequent = np.argsort(-counts, kind="stable")[:_CANDIDATES]
    return [int(value) for value in values[frequent]]


def _longest_alike(alike: NDArray[np.bool_]) -> tuple[int, int] | None:
    # Return the longest part ``[first, last)`` of a boolean column in which nearly all values are true.
    score = np.concatenate(([0.0], np.cumsum(alike - _LEAST_ALIKE)))
    # The minimum score so far never increases, so bisection finds the first position that is low enough for an end.
    lowest = np.minimum.accumulate(score)
    starts = np.searchsorted(-lowest, -score, side="left")
    last = int((np.arange(len(score)) - starts).argmax())
    return (int(starts[last]), last) if last > starts[last] else None


_SEARCH_SECONDS = 8.25  # default time limit with the exact stage
_SECONDS = 15.0  # default time limit without it
_FURTHER = 1.0  # seconds to search for a lower plan once it is within the requested capacity
_ENOUGH = 1.001  # a plan of less than this part of the bound ends the search: further seconds gain some hundred bytes
_ORDERING = 2e-7  # seconds per block to compute an order
_NO_LIMIT = (1 << 63) - 2
_STALE = 40  # failed improvements before restarting from the best order
# A block counts as live at the peak from these fractions of the peak on. Measured on traces of MindSpore, where slightly below 1
# is best, and on SOMAS problems, where size alone is best.
_NEAR_PEAK = (0.999, 0.99, 0.97, 0.95, 0.9, 0.8)
_LEVELS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99, 0.999, 1.0)


class PackingProgress(NamedTuple):
    """Progress of the planner."""

    seconds: float  # time used, computed from the work done
    limit: float  # time limit
    lower_bound: int  # bytes
    height: int | None  # bytes of the best plan so far, or None


@dataclass(slots=True, eq=False)
class _Best:
    """The best placement so far, and the time used, computed from the work done so that it is the same on every machine."""

    limit: float
    bound: int
    on_progress: Callable[[PackingProgress], None]
    begin: float
    cores: int = 1  # threads that search
    capacity: int | None = None  # a height that a lower bound of 0.1 % does not replace
    enough: int | None = None  # once this height is reached, the search ends soon
    address: NDArray[np.int64] | None = None
    height: int | None = None
    method: str = "order"
    name: str = ""
    used: float = 0.0
    late: bool = False  # the processor clock ended planning
    begun: float = field(default_factory=time.process_time)

    def report_progress(self, height: int | None, seconds: float = 0.0) -> float:
        """Report progress, add the seconds used, and return how many seconds are left."""
        self.used += seconds
        self.on_progress(PackingProgress(self.used, self.limit, self.bound, height))
        if self.enough is not None and height is not None and height <= self.enough:
            self.limit, self.enough = min(self.limit, self.used + _FURTHER), None
        left = self.limit - self.used
        self.late = self.late or (left > 0 and time.process_time() - self.begun > self.cores * self.limit)
        return 0.0 if self.late or self.is_low(height) else left

    def is_low(self, height: int | None) -> bool:
        """Return whether a height is so near the bound, and within the capacity, that no more time is spent."""
        low = height is not None and (height <= self.bound or height < self.bound * _ENOUGH)
        return low and (self.capacity is None or not self.bound <= self.capacity < (height or 0))

    def try_order(self, items: Items, order: NDArray[np.int32], engine: NumpyEngine) -> GapFit:
        """Run first fit in an order, stopping at the best height so far; blocks that the first order has no time for get slots."""
        limit = _NO_LIMIT if self.height is None else self.height - 1
        fit = engine.first_fit(items, order, limit, int((self.limit - self.used) * engine.pace))
        self.report_progress(self.height, fit.work / engine.pace + _ORDERING * len(order))
        if self.height is not None or fit.height <= limit:
            return fit
        self.method = "slots"
        return _fill_slots(items, fit)

    def is_finished(self) -> bool:
        return self.height is not None and (self.is_low(self.height) or self.late or self.used >= self.limit)


def plan_addresses(
    problem: PackingProblem,
    engine: NumpyEngine,
    seconds: float | None = None,
    on_progress: Callable[[PackingProgress], None] = lambda _: None,
) -> PackingPlan:
    """Place all blocks as low as possible within the time limit.

    Ends early if the height is less than 0.1 % above the lower bound. Time is computed from the work done, so that a busy machine
    finds the same plan as an idle one, unless the process has used the limit's processor time on each core before. There is always
    a plan, if not a low one. The exact
    stage first searches for a plan within the problem's capacity, then for lower ones. The default limit is 8.25 s with the
    exact stage, else 15 s; once the plan is within the capacity, one more second.
    """
    begin = time.monotonic()
    folded = fold_steps(problem)
    smaller = folded.problem if folded else problem
    searching = engine if len(smaller) <= MOST_BLOCKS and isinstance(engine, CompiledEngine) else None
    limit = seconds or (_SEARCH_SECONDS if searching else _SECONDS)
    enough = problem.capacity if seconds is None else None
    best = _Best(limit, 0, on_progress, begin, SEARCHES if searching else 1, problem.capacity, enough)
    result = _make_plan(smaller, engine, searching, best)
    if folded:
        address = result.address[folded.block]
        bound = lower_bound(problem)  # that of the folded problem may be slightly higher
        proven = result.height <= bound
        result = replace(result, problem=problem, address=address, step=folded.step, lower_bound=bound, proven=proven)
    return result


def _make_plan(
    problem: PackingProblem, engine: NumpyEngine, searching: CompiledEngine | None, best: _Best
) -> PackingPlan:
    lives = compress_lives(problem)
    items = Items(lives, problem.size, problem.alignment)
    floor = best.bound = int(lives.live.max(initial=0))
    lead = np.zeros(0, np.int32)  # the best order
    for name, order in orders_to_try(problem, lives) if len(problem) else ():
        if best.is_finished():
            break
        fit = best.try_order(items, order, engine)
        if best.height is None or fit.height < best.height:
            best.address, best.height, best.name, lead = fit.address, fit.height, name, order
    if searching and best.height is not None and not best.is_finished():
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
    # squeaky wheel: blocks that rise above the best height so far come earlier next time
    random = np.random.default_rng(0)
    turns, stale = _turn_by_block(begun), 0
    while not best.is_finished():
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


def _fill_slots(items: Items, fit: GapFit) -> GapFit:
    """Place the blocks that first fit had no time for, above all others: in slots of their size, which later ones reuse."""
    lives, size, alignment = items
    address = fit.address.copy()
    top, step = int((address + size)[address >= 0].max(initial=0)), int(alignment.max())
    free: defaultdict[int, list[tuple[int, int]]] = defaultdict(
        list
    )  # by size class: end of the last block and address
    left = np.flatnonzero(address < 0)
    for block in left[np.argsort(lives.lower[left], kind="stable")].tolist():
        unit = 1 << max(int(size[block]).bit_length() - 4, 0)
        room = -(-int(size[block]) // unit) * unit  # at most an eighth more
        slots = free[room]
        if slots and slots[0][0] <= lives.lower[block]:
            start = heappop(slots)[1]
        else:
            start = top + -top % step
            top = start + room
        address[block] = start
        heappush(slots, (int(lives.upper[block]), start))
    return GapFit(address, int((address + size).max()), fit.work)


def _turn_by_block(order: NDArray[np.int32]) -> NDArray[np.float64]:
    turns = np.empty(len(order), np.float64)
    turns[order] = np.arange(1, len(order) + 1)
    return turns


def orders_to_try(problem: PackingProblem, lives: BlockLives) -> Iterator[tuple[str, NDArray[np.int32]]]:
    """Yield names and orders of block numbers: blocks live at the peak, large blocks and long-lived blocks come first.

    The most promising and cheap orders come first: on a real trace of 97,143 blocks, the first four take 0.7 s together, and
    ``size`` alone takes as long.
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
    """Return block numbers in descending order of the first key, then of the next; ties keep their order."""
    count = len(keys[0])
    reverse = np.arange(count)[::-1]
    ascending = np.lexsort((reverse, *(np.asarray(key, np.float64) for key in reversed(keys))))
    return np.asarray(ascending[::-1], np.int32)
