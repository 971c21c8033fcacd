"""The exact stage: many short searches for a placement within a height, each with other preferences.

How long such a search takes has a heavy tail: what one set of preferences does not find in hours another finds at once.
So there are restarts, in Luby's sequence (Luby, Sinclair, Zuckerman 1993), and in every other round
blocks that live where searches failed are preferred.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ms_tune.packing.engine import SEARCHES, CompiledEngine, Items, PackingTask, find_twins
from ms_tune.packing.placement import BlockLives, PackingProblem, count_meetings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray


MOST_BLOCKS = 1200  # beyond, a search has no chance
# Nanoseconds for a block that is left at a node: at least, for each block of the problem, for each tick of a mean life. Fitted to
# MiniMalloc's problems A to K, where it is 0.7 to 1.5 times as much.
_NODE_COST = (2.0, 0.07, 0.9)
_EASIER = 5  # every so many turns something easier than the capacity is looked for, lest nothing be found
_NODES = 3000  # of the shortest search
_DRAWN = 16  # orders by keys that are drawn, every round
_NOISE = 0.3  # standard deviation of the logarithm of a preference
_LEAST_WEIGHT = 0.01
# Where between the bound (0) and the best height (1) a placement is looked for. Every other time at the bound itself.
_TARGETS = (0.0, 0.5, 0.0, 0.9, 0.25, 0.0, 0.75, 0.0, 0.9)  # an odd number: every preference meets every target


@dataclass(frozen=True, slots=True, eq=False)
class Improved:
    """What the exact stage found."""

    address: NDArray[np.int64] | None  # by block; None if nothing lower was found
    height: int  # the best height now
    floor: int  # no placement is lower than this, by proof


class _Preferred(NamedTuple):
    """What a search prefers, by block: the most first; and what decides in parts that are ranked anew, if they are."""

    most: NDArray[np.float64]
    tie: NDArray[np.float64] | None


def improve_exactly(
    problem: PackingProblem,
    lives: BlockLives,
    engine: CompiledEngine,
    bounds: tuple[int, int],
    tell: Callable[[int, float], float],
) -> Improved:
    """Look for lower placements until one reaches the bound, none can be lower, or the time is up.

    ``bounds`` are the lowest height that is possible, and the height that is to be beaten. ``tell`` is told the height now and
    then, and the seconds used since, with a core for each task; it tells how many are left.
    """
    floor, height = bounds
    order = np.lexsort((problem.size, lives.upper, lives.lower))
    blocks = problem.take_rows(order)
    lives = BlockLives(lives.lower[order], lives.upper[order], lives.ticks, lives.live)
    # All heights of placements that rest on each other are multiples of this.
    aligned = problem.alignment[problem.alignment > 1]
    step = max(1, int(np.gcd.reduce(np.concatenate((problem.size, aligned)))))
    failures = np.zeros(lives.ticks + 1, np.float64)
    best: NDArray[np.int64] | None = None
    preferences = _search_preferences(blocks, lives, failures)
    count, (least, for_block, for_tick) = max(len(lives.lower), 1), _NODE_COST
    cost = 1e-9 * (least + for_block * count + for_tick * float((lives.upper - lives.lower).sum()) / count)
    turn, used = 0, 0.0
    while height > floor and (left := tell(height, used)) > 0:
        tasks = []
        for _ in range(SEARCHES):
            preferred, nodes = next(preferences)
            capacity = _next_height(turn, (floor, height), step, problem.capacity)
            tasks.append(_make_task(blocks, lives, preferred, capacity))
            turn += 1
        results = engine.search(tasks, nodes, int(left / cost), failures)
        used = cost * sum(found.work for found in results) / len(tasks)
        for task, found in zip(tasks, results, strict=True):
            if found.address is not None:
                reached = int((found.address + blocks.size).max())
                if reached < height:
                    height = reached
                    best = np.empty_like(found.address)
                    best[order] = found.address
            elif found.exhausted:
                floor = max(floor, (task.capacity // step + 1) * step)
    return Improved(best, height, min(floor, height))


def _next_height(turn: int, bounds: tuple[int, int], step: int, capacity: int | None) -> int:
    floor, height = bounds
    if capacity is not None and floor <= capacity < height and turn % _EASIER:
        return capacity
    floor = max(floor, capacity) if capacity is not None and capacity < height else floor
    target = floor + int((height - floor) * _TARGETS[turn % len(_TARGETS)]) // step * step
    return max(floor, min(target, height - step))


def _make_task(blocks: PackingProblem, lives: BlockLives, preferred: _Preferred, capacity: int) -> PackingTask:
    order = np.argsort(-preferred.most, kind="stable").astype(np.int32)
    items = Items(lives, blocks.size, blocks.alignment)
    tie = None if preferred.tie is None else _ranks_in_order(np.argsort(-preferred.tie, kind="stable").astype(np.int32))
    return PackingTask(items, _ranks_in_order(order), find_twins(items, order), capacity, tie)


def _ranks_in_order(order: NDArray[np.int32]) -> NDArray[np.int32]:
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(1, len(order) + 1)
    return rank


def _search_preferences(
    blocks: PackingProblem, lives: BlockLives, failures: NDArray[np.float64]
) -> Iterator[tuple[_Preferred, int]]:
    random = np.random.default_rng(0)
    span = (lives.upper - lives.lower).astype(np.float64)
    size = blocks.size.astype(np.float64)
    lifetime = (blocks.upper - blocks.lower).astype(np.float64)
    live = [lives.live[low:high] for low, high in zip(lives.lower.tolist(), lives.upper.tolist(), strict=True)]
    peak = float(max(lives.live.max(initial=1), 1))
    most = np.array([part.max() for part in live]) / peak
    mean = np.array([part.mean() for part in live]) / peak
    area = size * span
    meets = count_meetings(lives)
    plain = [size * lifetime, area, most, span, size, most**8 * area, most**8 * span, mean**4 * area]
    # Keys one after the other, as MiniMalloc orders blocks (its talk at ASPLOS 2024): where many blocks live at the
    # peak, what decides is the second key.
    plain += [_prefer_by(most, lifetime, size), _prefer_by(most, size * lifetime)]
    plain += [_prefer_by(lifetime, size, most), _prefer_by(most, span, lifetime)]
    plain += [_prefer_by(blocks.upper, lifetime, size), _prefer_by(meets, most, size * lifetime)]
    ties = (_prefer_by(lifetime, size), _prefer_by(size * lifetime, lifetime))
    kinds = [*(_Preferred(each, None) for each in plain), *(_Preferred(_prefer_by(most, tie), tie) for tie in ties)]
    keys = (most, size * lifetime, lifetime, size, span, meets, blocks.lower, blocks.upper)
    turn = 0
    while True:
        turn += 1
        for kind in kinds:
            preferred = kind
            if turn & (turn + 1):  # whenever more nodes are allowed than ever before, there is no noise
                noise = np.exp(_NOISE * random.standard_normal(len(size)))
                noise *= _failure_weights(lives, failures) if turn % 2 else 1.0
                preferred = _Preferred(kind.most * noise, None if kind.tie is None else kind.tie * noise)
            yield preferred, _NODES * luby_item(turn)
        for _ in range(_DRAWN):
            first, *others = (keys[place] for place in random.permutation(len(keys))[:3])
            tie = _prefer_by(*others) if first is most else None
            yield _Preferred(_prefer_by(first, *others), tie), _NODES * luby_item(turn)


def _prefer_by(*keys: NDArray[np.generic]) -> NDArray[np.float64]:
    # Most for the block that is first in descending order of the first key, then of the next.
    order = np.lexsort(tuple(-np.asarray(key, np.float64) for key in reversed(keys)))
    preference = np.empty(len(order), np.float64)
    preference[order] = np.arange(len(order), 0, -1)
    return preference


def _failure_weights(lives: BlockLives, failures: NDArray[np.float64]) -> NDArray[np.float64]:
    # By block: how often a search failed at a tick of its life, as a share of the worst tick.
    worst = failures.max(initial=0.0)
    if worst <= 0:
        return np.ones(len(lives.lower))
    spans = zip(lives.lower.tolist(), lives.upper.tolist(), strict=True)
    shares = np.array([failures[low:high].max() for low, high in spans]) / worst
    return np.asarray(_LEAST_WEIGHT + shares, np.float64)


def luby_item(number: int) -> int:
    """Item ``number``, from 1, of the sequence 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ..."""
    power = 1 << number.bit_length() - 1
    if number == 2 * power - 1:
        return power
    return luby_item(number - power + 1)
