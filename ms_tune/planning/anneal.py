"""Anneal plans: many small random changes, of which worse ones are accepted less and less often.

In C where a compiler is found, else in numpy, which tries a small part of the plans in the same time and finds others.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_tune.enums import RecomputeMode
from ms_tune.errors import StandInBuildError
from ms_tune.native import compiled_library
from ms_tune.planning.costs import Costs, IntArray

# Independent chains, each with its own random numbers. Long chains find better plans than many short ones.
_CHAINS = 8
_TRIED = 16  # moves that numpy tries at once for each chain: the first acceptable one is made
# Cumulative percentages of moves: within the cell, to another chunk of the stage, to an adjacent cell; else to any cell.
_SAME, _CHUNK, _NEXT = 45, 60, 80
_HOTTEST, _COLDEST = 2_000, 50  # millionths of the best time
_MILLION = 1_000_000
_BLOCKS, _RENEWALS = 200, 4  # temperatures; number of times that the best quarter of the chains replaces the worst
_DRAWS = 1024
# Accepted loss of a step, in millionths of the temperature, for a draw from an exponential distribution.
_EXPONENTIAL = np.array([round(-math.log((index + 0.5) / _DRAWS) * _MILLION) for index in range(_DRAWS)], np.int64)
_OVER, _OVER_IN_C = 2**61, 2**52  # score of a plan over the limit, plus 1 for each KiB of excess
_PACE = 100  # steps of a chain in C in the time of one of numpy
_FLAGS = ("-std=gnu11", "-O3", "-shared", "-fPIC", "-fvisibility=hidden")


class BestState(NamedTuple):
    """The best plan so far."""

    score: int
    state: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class PlanSpace:
    """The table and the rules for moves of a search."""

    costs: Costs  # the table
    fixed_layers: bool = False  # layers stay in their cells; only their recompute modes change

    def scores(self, states: IntArray) -> IntArray:
        """Return the scores of plans, shape (plans,): ticks, or a value above any time for plans over the limit."""
        over = (self.costs.peak_bytes(states) - self.costs.table.limit_bytes).max(axis=1)
        times = self.costs.step_ticks(states)
        found: IntArray = np.where(over > 0, _OVER + (over + 1023) // 1024, times)
        return found


def is_within_limit(score: int) -> bool:
    """Return whether a score is a time, so that the plan is within the limit."""
    return score < _OVER


def is_allowed(costs: Costs, states: IntArray) -> NDArray[np.bool_]:
    """Return which states MindFormers can express and accepts, shape (plans,); see :mod:`ms_tune.planning.table`."""
    found: NDArray[np.bool_] = (states.sum(axis=2)[:, costs.table.filled_cells] > 0).all(axis=1)
    kinds = costs.table.kinds
    if RecomputeMode.SELECT in kinds and RecomputeMode.COMM in kinds:
        both = (states[:, :, kinds.index(RecomputeMode.SELECT)] > 0) & (
            states[:, :, kinds.index(RecomputeMode.COMM)] > 0
        )
        found &= ~both.any(axis=1)
    return found


def anneal_plans(
    space: PlanSpace, starts: Sequence[IntArray], steps: int, seed: int, on_step: Callable[[int, BestState], bool]
) -> BestState:
    """Return the best state found from allowed starts; ``on_step`` regularly receives it and returns whether to stop."""
    states = np.stack([starts[index % len(starts)] for index in range(_CHAINS)])
    scores = space.scores(states)
    first = int(scores.argmin())
    best = BestState(int(scores[first]), states[first].copy())
    blocks = min(_BLOCKS, steps)
    advance = _chains_in_c(space, seed) or _chains_in_numpy(space, seed)
    for block in range(blocks):
        count = steps * (block + 1) // blocks - steps * block // blocks
        best = advance(states, scores, best, _temperature(best.score, block, blocks), count)
        if (block + 1) % max(blocks // _RENEWALS, 1) == 0:
            ranked, quarter = np.argsort(scores, kind="stable"), _CHAINS // 4
            worst, leading = ranked[-quarter:], ranked[:quarter]
            states[worst], scores[worst] = states[leading], scores[leading]
        if on_step(steps * block // blocks, best):
            break
    return best


_Advance = Callable[[IntArray, IntArray, BestState, int, int], BestState]


def _temperature(best: int, step: int, steps: int) -> int:
    # Return the temperature in ticks, an integer: geometric from the hottest to the coldest.
    if not is_within_limit(best):
        return 0
    done = step / max(steps - 1, 1)
    millionths: int = round(_HOTTEST * (_COLDEST / _HOTTEST) ** done)
    return max(best * millionths // _MILLION, 1)


@cache
def _library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(compiled_library("planning", "anneal.c", _FLAGS)))
    except (StandInBuildError, OSError):
        return None


def _chains_in_c(space: PlanSpace, seed: int) -> _Advance | None:
    # Return a function that advances all chains in C; None without a compiler, or if times are too long for exact doubles.
    costs, library = space.costs, _library()
    longest = int(max(costs.forward[:, -1].max(), costs.backward[:, -1].max()) + 2 * costs.ends.sum())
    if library is None or longest * 2 * costs.table.micro_batches * costs.table.cells >= _OVER_IN_C:
        return None
    numbers, arrays = _problem_of(space)
    problem = np.array([*numbers, *(array.ctypes.data for array in arrays)], np.int64)
    randoms = np.asarray(np.random.PCG64(seed).random_raw(_CHAINS)) | np.uint64(1)

    def advance(states: IntArray, scores: IntArray, best: BestState, heat: int, steps: int) -> BestState:
        shift = _OVER - _OVER_IN_C if len(arrays) else 0  # the arrays must live as long as their addresses are used
        floats = np.where(scores >= _OVER, scores - shift, scores).astype(float)
        state, score = best.state.copy(), np.array([best.score - shift * (best.score >= _OVER)], float)
        pointers = (ctypes.c_void_p(array.ctypes.data) for array in (problem, states, floats, randoms, state, score))
        if library.anneal(*pointers, ctypes.c_double(heat), ctypes.c_int64(steps * _PACE)):
            raise MemoryError
        found = floats.astype(np.int64)
        scores[:] = found + shift * (found >= _OVER_IN_C)
        least = int(score[0])
        return BestState(least + shift * (least >= _OVER_IN_C), state)

    return advance


def _problem_of(space: PlanSpace) -> tuple[list[int], list[IntArray]]:
    # Return the numbers and the arrays of `Problem` in anneal.c, in its order.
    costs, table, graph = space.costs, space.costs.table, space.costs.graph
    kinds, nothing = table.kinds, len(graph.kind)

    def place(kind: RecomputeMode) -> int:
        return kinds.index(kind) if kind in kinds else -1

    filled = range(table.cells)[table.filled_cells]
    adds = bool(costs.transients.any() or costs.piled.any() or costs.on_top.any() or table.tail.transient_bytes)
    final = np.setdiff1d(np.arange(nothing), graph.before)
    numbers = [table.cells, len(kinds), len(costs.runs), table.stages, table.chunks, nothing, costs.in_flight.shape[1]]
    numbers += [table.layer_count, table.limit_bytes, space.fixed_layers]
    numbers += [*map(place, (RecomputeMode.SELECT, RecomputeMode.COMM, RecomputeMode.FULL)), filled.start, filled.stop]
    numbers += [adds, adds and bool(costs.back.any()), table.update is not None]
    numbers.append(table.tail.transient_bytes)
    again, update = table.again, table.update
    nothings = np.zeros(table.cells, np.int64)
    arrays: list[NDArray[Any]] = [
        costs.forward,
        costs.backward,
        costs.kept,
        costs.once,
        costs.left,
        costs.weights,
        costs.ends,
        costs.fixed,
    ]
    arrays += [costs.in_flight, costs.returning, costs.back, costs.transients, costs.piled, costs.on_top]
    arrays += [np.array([*(first for first, _ in costs.runs), table.layer_count])]
    arrays += [np.array(again.first_bytes if again else nothings), np.array(again.layer_bytes if again else nothings)]
    arrays += [
        np.array(update.stage_bytes if update else nothings),
        np.array(update.layer_bytes if update else nothings),
    ]
    arrays += [graph.kind, graph.before, graph.source, final, _EXPONENTIAL]
    return numbers, [np.ascontiguousarray(array, np.int64) for array in arrays]


def _chains_in_numpy(space: PlanSpace, seed: int) -> _Advance:
    rows, random = np.arange(_CHAINS), np.random.PCG64(seed)

    def advance(states: IntArray, scores: IntArray, best: BestState, heat: int, steps: int) -> BestState:
        for _ in range(steps):
            drawn = (np.asarray(random.random_raw((_CHAINS * _TRIED, 12))) >> np.uint64(33)).astype(
                np.int64
            )  # 31 bits each
            moved, fine = _with_moves(space, np.repeat(states, _TRIED, axis=0), drawn)
            news, olds = space.scores(moved), np.repeat(scores, _TRIED)
            gain = news - olds <= (heat * _EXPONENTIAL[drawn[:, 11] % _DRAWS]) // _MILLION
            good = (fine & np.where(news >= _OVER, news <= olds, gain)).reshape(_CHAINS, _TRIED)
            taken = good.any(axis=1)
            first_good = (rows * _TRIED + good.argmax(axis=1))[taken]
            states[taken], scores[taken] = moved[first_good], news[first_good]
            lowest = int(scores.argmin())
            if scores[lowest] < best.score:
                best = BestState(int(scores[lowest]), states[lowest].copy())
        return best

    return advance


def _with_moves(space: PlanSpace, states: IntArray, drawn: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
    # Apply one or two moves to each state; also return whether each result is allowed and another plan.
    moved = states.copy()
    _apply_move(space, moved, drawn[:, :5], np.ones(len(states), np.int64))
    _apply_move(space, moved, drawn[:, 5:10], 1 - drawn[:, 10] % 2)
    return moved, is_allowed(space.costs, moved) & (moved != states).any(axis=(1, 2))


def _apply_move(space: PlanSpace, states: IntArray, drawn: IntArray, change: IntArray) -> None:
    # Move one layer of the states to be changed to another cell or recompute mode.
    plans, cells, kinds = states.shape
    stages, rows = space.costs.table.stages, np.arange(plans)
    counted = np.cumsum((states > 0).reshape(plans, -1), axis=1)
    place = (counted <= (drawn[:, 0] % counted[:, -1])[:, None]).sum(axis=1)
    cell, kind = place // kinds, place % kinds
    way, step = drawn[:, 1] % 100, drawn[:, 2]
    chunk = (cell + stages * (1 + step % max(cells // stages - 1, 1))) % cells
    adjacent = np.clip(cell + np.where(step % 2 == 0, 1, -1), 0, cells - 1)
    aim = np.select([way < _SAME, way < _CHUNK, way < _NEXT], [cell, chunk, adjacent], step % cells)
    if space.fixed_layers:
        aim = cell
    new = np.where((drawn[:, 3] % 2 == 0) & (aim != cell), kind, drawn[:, 4] % kinds)
    states[rows, cell, kind] -= change
    states[rows, aim, new] += change
