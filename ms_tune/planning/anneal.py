"""Simulated annealing over plans: many chains at once, in whole numbers, for a number of steps and with a seed.

Nothing depends on the clock or on how a machine rounds: times are ticks, what a step may lose is a whole number, and random
numbers are the raw ones of PCG64, whose stream NumPy keeps. So the same table, steps and seed give the same plan everywhere.

A plan over the limit is worse than any that keeps it, and the less it is over the better; so a start that does not fit is mended
by the same steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ms_tune.enums import RecomputeMode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ms_tune.planning.costs import Costs, IntArray

_CHAINS = 64
_SAME, _CHUNK, _NEXT = (
    45,
    60,
    80,
)  # of 100 moves, up to: within the cell, the stage's other chunks, a neighbour; else anywhere
_HOTTEST, _COLDEST = 4_000, 100  # millionths of the best time
_MILLION = 1_000_000
_RENEWED = 200  # steps, after which the worst quarter becomes the best one
_DRAWS = 1024
# What a step may lose, in millionths of the temperature, if drawn from an exponential distribution.
_EXPONENTIAL = np.array([round(-math.log((index + 0.5) / _DRAWS) * _MILLION) for index in range(_DRAWS)], np.int64)
_OVER = 2**61  # ticks of a plan that is over the limit, and a kibibyte more for each KiB that it is


class BestState(NamedTuple):
    """The best plan so far."""

    score: int
    state: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class PlanSpace:
    """What moves are made in."""

    costs: Costs  # the table
    fixed_layers: bool = False  # layers stay where they are; only what they recompute changes

    def scores(self, states: IntArray) -> IntArray:
        """Ticks of plans, shape (plans,); of those over the limit, more than any time."""
        over = (self.costs.peak_bytes(states) - self.costs.table.limit_bytes).max(axis=1)
        times = self.costs.step_ticks(states)
        found: IntArray = np.where(over > 0, _OVER + (over + 1023) // 1024, times)
        return found


def is_within_limit(score: int) -> bool:
    """Whether a score is a time."""
    return score < _OVER


def is_allowed(costs: Costs, states: IntArray) -> NDArray[np.bool_]:
    """Whether MindFormers can express states and takes them, shape (plans,): see :mod:`ms_tune.planning.table`."""
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
    """The best state met from some that are allowed; ``on_step`` is told of it now and then, and says whether to stop."""
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
    # The temperature in ticks: geometric from the hottest to the coldest, in whole numbers.
    if not is_within_limit(best):
        return 0
    done = step / max(steps - 1, 1)
    millionths: int = round(_HOTTEST * (_COLDEST / _HOTTEST) ** done)
    return max(best * millionths // _MILLION, 1)


def _with_moves(space: PlanSpace, states: IntArray, drawn: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
    # Each state with one move made, half of them with two, and whether the result is allowed.
    moved = states.copy()
    _apply_move(space, moved, drawn[:, :5], np.ones(len(states), np.bool_))
    _apply_move(space, moved, drawn[:, 5:10], drawn[:, 10] % 2 == 0)
    return moved, is_allowed(space.costs, moved)


def _apply_move(space: PlanSpace, states: IntArray, drawn: IntArray, chosen: NDArray[np.bool_]) -> None:
    # Take one layer of the chosen states from where one is, and put it back.
    plans, cells, kinds = states.shape
    stages, rows = space.costs.table.stages, np.arange(plans)
    there = (states > 0).reshape(plans, -1)
    counted = np.cumsum(there, axis=1)
    place = (counted <= (drawn[:, 0] % counted[:, -1])[:, None]).sum(axis=1)
    cell, kind = place // kinds, place % kinds
    way, step = drawn[:, 1] % 100, drawn[:, 2]
    chunk = (cell + stages * (1 + step % max(cells // stages - 1, 1))) % cells
    beside = np.clip(cell + np.where(step % 2 == 0, 1, -1), 0, cells - 1)
    aim = np.select([way < _SAME, way < _CHUNK, way < _NEXT], [cell, chunk, beside], step % cells)
    if space.fixed_layers:
        aim = cell
    new = np.where((drawn[:, 3] % 2 == 0) & (aim != cell), kind, drawn[:, 4] % kinds)
    change = chosen.astype(np.int64)
    states[rows, cell, kind] -= change
    states[rows, aim, new] += change
