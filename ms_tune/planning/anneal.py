"""Search plans by simulated annealing: many chains at once, in integers, for a fixed number of steps and with a seed.

The result depends neither on the clock nor on how a machine rounds: times are integer ticks, accepted losses are integers, and
random numbers are the raw ones of PCG64, whose stream NumPy keeps stable. So the same table, steps and seed give the same plan
everywhere.

A plan over the limit scores worse than any plan within it, and the less it exceeds the limit the better, so a start that does not
fit is improved by the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_tune.enums import RecomputeMode

if TYPE_CHECKING:
    from ms_tune.planning.costs import Costs, IntArray

_CHAINS = 64
# Cumulative percentages of moves: within the cell, to another chunk of the stage, to an adjacent cell; else to any cell.
_SAME, _CHUNK, _NEXT = 45, 60, 80
_HOTTEST, _COLDEST = 4_000, 100  # millionths of the best time
_MILLION = 1_000_000
_RENEWED = 200  # number of steps after which the best quarter replaces the worst
_DRAWS = 1024
# Accepted loss of a step, in millionths of the temperature, for a draw from an exponential distribution.
_EXPONENTIAL = np.array([round(-math.log((index + 0.5) / _DRAWS) * _MILLION) for index in range(_DRAWS)], np.int64)
_OVER = 2**61  # score of a plan over the limit, plus 1 for each KiB of excess


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
    random = np.random.PCG64(seed)
    for step in range(steps):
        drawn = (np.asarray(random.random_raw((_CHAINS, 12))) >> np.uint64(33)).astype(np.int64)  # 31 bits each
        moved, fine = _with_moves(space, states, drawn)
        news = np.where(fine, space.scores(moved), np.iinfo(np.int64).max)
        heat = _temperature(best.score, step, steps)
        gain = news - scores <= (heat * _EXPONENTIAL[drawn[:, 11] % _DRAWS]) // _MILLION
        taken = fine & np.where(news >= _OVER, news <= scores, gain)
        states[taken], scores[taken] = moved[taken], news[taken]
        lowest = int(scores.argmin())
        if scores[lowest] < best.score:
            best = BestState(int(scores[lowest]), states[lowest].copy())
        if (step + 1) % _RENEWED == 0:
            ranked, quarter = np.argsort(scores, kind="stable"), _CHAINS // 4
            worst, leading = ranked[-quarter:], ranked[:quarter]
            states[worst], scores[worst] = states[leading], scores[leading]
        if step % 50 == 0 and on_step(step, best):
            break
    return best


def _temperature(best: int, step: int, steps: int) -> int:
    # Return the temperature in ticks, an integer: geometric from the hottest to the coldest.
    if not is_within_limit(best):
        return 0
    done = step / max(steps - 1, 1)
    millionths: int = round(_HOTTEST * (_COLDEST / _HOTTEST) ** done)
    return max(best * millionths // _MILLION, 1)


def _with_moves(space: PlanSpace, states: IntArray, drawn: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
    # Apply one move to each state, and a second to half of them; also return whether each result is allowed.
    moved = states.copy()
    _apply_move(space, moved, drawn[:, :5], np.ones(len(states), np.bool_))
    _apply_move(space, moved, drawn[:, 5:10], drawn[:, 10] % 2 == 0)
    return moved, is_allowed(space.costs, moved)


def _apply_move(space: PlanSpace, states: IntArray, drawn: IntArray, chosen: NDArray[np.bool_]) -> None:
    # Move one layer of the chosen states to another cell or recompute mode.
    plans, cells, kinds = states.shape
    stages, rows = space.costs.table.stages, np.arange(plans)
    there = (states > 0).reshape(plans, -1)
    counted = np.cumsum(there, axis=1)
    place = (counted <= (drawn[:, 0] % counted[:, -1])[:, None]).sum(axis=1)
    cell, kind = place // kinds, place % kinds
    way, step = drawn[:, 1] % 100, drawn[:, 2]
    chunk = (cell + stages * (1 + step % max(cells // stages - 1, 1))) % cells
    adjacent = np.clip(cell + np.where(step % 2 == 0, 1, -1), 0, cells - 1)
    aim = np.select([way < _SAME, way < _CHUNK, way < _NEXT], [cell, chunk, adjacent], step % cells)
    if space.fixed_layers:
        aim = cell
    new = np.where((drawn[:, 3] % 2 == 0) & (aim != cell), kind, drawn[:, 4] % kinds)
    change = chosen.astype(np.int64)
    states[rows, cell, kind] -= change
    states[rows, aim, new] += change
