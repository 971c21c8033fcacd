"""Search exactly: many short searches for a placement within a height, each with other preferences.

Search times have a heavy tail: a placement that one set of preferences does not find in hours is found at once by another. So
searches are restarted in Luby's sequence (Luby, Sinclair, Zuckerman 1993), and every other round prefers blocks that live where
searches failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_tune.packing.engine import SEARCHES, CompiledEngine, Items, PackingTask, find_identical_blocks
from ms_tune.packing.placement import BlockLives, PackingProblem, count_meetings

MOST_BLOCKS = 1200  # with more blocks, a search is hopeless
# Nanoseconds per remaining block at a node: constant, per block of the problem, and per tick of the mean lifetime. Three times
# the fit to MiniMalloc's problems A to K on an idle machine, so that work ends before the clock does.
_NODE_COST = (6.0, 0.21, 2.7)
_EASIER = 5  # every so many turns, search above the capacity, in case no plan within it can be found
_NODES = 3000  # nodes of the shortest search
_DRAWN = 16  # random key orders per round
_NOISE = 0.3  # standard deviation of the logarithm of a preference
_LEAST_WEIGHT = 0.01
# Target heights between the bound (0) and the best height (1); nearly every other one is the bound.
_TARGETS = (0.0, 0.5, 0.0, 0.9, 0.25, 0.0, 0.75, 0.0, 0.9)  # odd length, to combine all preferences and targets


@dataclass(frozen=True, slots=True, eq=False)
class Improved:
    """Result of the exact stage."""

    address: NDArray[np.int64] | None  # per block; None if no lower placement was found
    height: int  # the best height so far
    floor: int  # proved lower bound of any placement's height


class _Preferred(NamedTuple):
    """Keys of blocks that a search places largest first: for all blocks, and for parts that it ranks again."""

    most: NDArray[np.float64]
    tie: NDArray[np.float64] | None


def improve_exactly(
    problem: PackingProblem,
    lives: BlockLives,
    engine: CompiledEngine,
    bounds: tuple[int, int],
    tell: Callable[[int, float], float],
) -> Improved:
    """Search for lower placements until one reaches the bound, none can be lower, or the time is used up.

    ``bounds`` are the proved lower bound and the height to improve on. ``tell`` is called with the current height and the seconds
    used since the last call, assuming a core per task; it returns how many seconds are left.
    """
    floor, height = bounds
    order = np.lexsort((problem.size, lives.upper, lives.lower))
    blocks = problem.take_rows(order)
    lives = BlockLives(lives.lower[order], lives.upper[order], lives.ticks, lives.live)
    # All heights of stacked placements are multiples of this.
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
    return PackingTask(items, _ranks_in_order(order), find_identical_blocks(items, order), capacity, tie)


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
    # Lexicographic keys, as in MiniMalloc (its talk at ASPLOS 2024): if many blocks live at the peak, the second key decides.
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
            if turn & (turn + 1):  # no noise whenever more nodes are allowed than ever before
                noise = np.exp(_NOISE * random.standard_normal(len(size)))
                noise *= _failure_weights(lives, failures) if turn % 2 else 1.0
                preferred = _Preferred(kind.most * noise, None if kind.tie is None else kind.tie * noise)
            yield preferred, _NODES * luby_item(turn)
        for _ in range(_DRAWN):
            first, *others = (keys[place] for place in random.permutation(len(keys))[:3])
            tie = _prefer_by(*others) if first is most else None
            yield _Preferred(_prefer_by(first, *others), tie), _NODES * luby_item(turn)


def _prefer_by(*keys: NDArray[np.generic]) -> NDArray[np.float64]:
    # Return preferences, the highest for the block that is first in descending order of the first key, then of the next.
    order = np.lexsort(tuple(-np.asarray(key, np.float64) for key in reversed(keys)))
    preference = np.empty(len(order), np.float64)
    preference[order] = np.arange(len(order), 0, -1)
    return preference


def _failure_weights(lives: BlockLives, failures: NDArray[np.float64]) -> NDArray[np.float64]:
    # Return, per block, how often a search failed during its lifetime, relative to the worst tick.
    worst = failures.max(initial=0.0)
    if worst <= 0:
        return np.ones(len(lives.lower))
    spans = zip(lives.lower.tolist(), lives.upper.tolist(), strict=True)
    shares = np.array([failures[low:high].max() for low, high in spans]) / worst
    return np.asarray(_LEAST_WEIGHT + shares, np.float64)


def luby_item(number: int) -> int:
    """Return item ``number``, from 1, of the sequence 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ..."""
    power = 1 << number.bit_length() - 1
    if number == 2 * power - 1:
        return power
    return luby_item(number - power + 1)
