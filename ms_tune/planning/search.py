"""Search for the cheapest plan that fits, and prove how close it is to the optimum."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_tune.enums import RecomputeMode
from ms_tune.planning.bound import PlanRelaxation, least_limit, lower_bound, relaxation_of, search_better_plan
from ms_tune.planning.costs import Costs, IntArray, costs_of
from ms_tune.planning.table import CostTable

if TYPE_CHECKING:
    from ms_tune.planning.costs import Costs, IntArray
# Independent chains, each with its own random numbers, and moves tried at once by each: the first acceptable one is made. Simulating
# many plans at once costs little more than one, and long chains find better plans than many short ones.
_CHAINS, _TRIED = 8, 16
# Cumulative percentages of moves: within the cell, to another chunk of the stage, to an adjacent cell; else to any cell.
_SAME, _CHUNK, _NEXT = 45, 60, 80
_EXCHANGED = 20  # percentage of moves that exchange two cells instead
_HOTTEST, _COLDEST = 2_000, 50  # millionths of the best time
_MILLION = 1_000_000
_RENEWALS = 4  # number of times that the best quarter of the chains replaces the worst
_DRAWS = 1024
# Accepted loss of a step, in millionths of the temperature, for a draw from an exponential distribution.
_EXPONENTIAL = np.array([round(-math.log((index + 0.5) / _DRAWS) * _MILLION) for index in range(_DRAWS)], np.int64)
_SIGINT = 2  # the number of the signal of Ctrl-C
_OVER = 2**61  # score of a plan over the limit, plus 1 for each KiB of excess


class Effort(Enum):
    """How long to search."""

    QUICK = "quick"
    NORMAL = "normal"
    BEST = "best"


class _Budget(NamedTuple):
    """Limits of an effort. None of them is a time, so that plans do not depend on the machine."""

    work: int  # for annealing, roughly microseconds of an idle core
    steps: int  # maximum for annealing
    rounds: int  # for the relaxation
    nodes: int  # for each integer search
    wholes: int  # number of integer searches


_BUDGETS = {
    Effort.QUICK: _Budget(1_500_000, 2_500, 25, 500, 12),
    Effort.NORMAL: _Budget(8_000_000, 20_000, 50, 1_500, 25),
    Effort.BEST: _Budget(60_000_000, 200_000, 200, 50_000, 300),
}


# Maximum number of variables for integer searches. Interleaved pipelines have many paths, and searching them proves little.
_MOST_WHOLE, _MOST_INTERLEAVED = 320, 40
_QUICKLY_WHOLE = 40  # maximum number for which there are all integer searches of a budget
_SMALL = 500_000  # maximum passes x cells for which the bound gets all rounds


class SearchProgress(NamedTuple):
    """Progress of a search: its phase, the completed fraction of it, and the best step time and bound so far."""

    part: str
    done: float
    time: float | None
    bound: float | None


@dataclass(slots=True)
class PlanSearch:
    """State of a search, which can be stopped at any time."""

    table: CostTable
    costs: Costs  # the table as arrays
    best: BestState  # the best state and its score
    bound: int = 0  # lower bound of every plan's ticks
    least_bytes: int = 0  # lower bound of the limit that any plan needs; 0 if unknown
    stopped: int = 0  # the number of the signal with which the user stopped the search

    @property
    def found(self) -> bool:
        """Return whether there is a plan within the limit."""
        return is_within_limit(self.best.score)

    def is_optimal(self) -> bool:
        """Return whether the plan is proved optimal."""
        return self.found and self.bound >= self.best.score

    def keep_if_better(self, state: IntArray) -> bool:
        """Keep a state if it is the best so far."""
        if not is_allowed(self.costs, state[None])[0]:
            return False
        score = int(PlanSpace(self.costs).scores(state[None])[0])
        if score >= self.best.score:
            return False
        self.best = BestState(score, state)
        return True


def search_plans(
    table: CostTable,
    effort: Effort,
    seed: int,
    on_progress: Callable[[SearchProgress], None],
    present: Sequence[Mapping[RecomputeMode, int]] | None = None,
) -> PlanSearch:
    """Search for the best plan, starting from the present or an even one, and compute a lower bound for every plan.

    An interrupt ends the search with the best result so far.
    """
    costs = costs_of(table)
    even = even_state(costs)
    found = PlanSearch(table, costs, BestState(int(PlanSpace(costs).scores(even[None])[0]), even))
    if present is not None:
        found.keep_if_better(costs.state_of(present))
    try:
        _run_search(found, _BUDGETS[effort], seed, on_progress)
    except KeyboardInterrupt as stop:
        found.stopped = number_of_stop(stop)
    return found


def number_of_stop(stop: KeyboardInterrupt) -> int:
    """Return the number of the signal to end that was raised; Python raises Ctrl-C without a number."""
    return int(stop.args[0]) if stop.args else _SIGINT


def _run_search(found: PlanSearch, budget: _Budget, seed: int, on_progress: Callable[[SearchProgress], None]) -> None:
    costs, relaxation = found.costs, relaxation_of(found.costs)
    # The even plan may exceed the limit: the search repairs it, and often ends lower than from the plan of least memory.
    starts = [even_state(costs), found.best.state]
    found.least_bytes, state = least_limit(relaxation, budget.nodes)
    if state is not None:
        found.keep_if_better(state)
        starts.append(state)
    if found.least_bytes > found.table.limit_bytes:
        return
    starts = [start for start in starts if is_allowed(costs, start[None])[0]]
    steps = annealing_steps(costs, budget.work, budget.steps)
    short = steps // 8
    _improve_plan(found, starts, short, seed, on_progress)
    on_progress(_report_progress(found, "bound", 0.0))
    rounds = min(budget.rounds, max(budget.rounds * _SMALL // (len(costs.graph.kind) * costs.table.cells), 4))
    bounded = lower_bound(relaxation, costs.parts_of(found.best.state), rounds)
    found.bound = max(found.bound, bounded.ticks)
    if found.is_optimal():
        return
    if bounded.layers is not None:
        found.keep_if_better(_round_state(costs, bounded.layers))
    wholes = min(max(budget.wholes * _QUICKLY_WHOLE // even_state(costs).size, 4), budget.wholes)
    half = wholes // 2
    used = _prove_optimal(found, relaxation, budget, half, on_progress)
    if found.is_optimal():
        return
    starts[1:] = [found.best.state]
    if bounded.layers is not None:
        starts.append(_round_state(costs, bounded.layers))
    starts = [start for start in starts if is_allowed(costs, start[None])[0]]
    before = found.best.score
    _improve_plan(found, starts, steps - short, seed + 1, on_progress)
    if found.best.score < before or used == half:
        _prove_optimal(found, relaxation, budget, wholes - used, on_progress)


def _improve_plan(
    found: PlanSearch, starts: Sequence[IntArray], steps: int, seed: int, on_progress: Callable[[SearchProgress], None]
) -> None:
    def report_step(step: int, best: BestState) -> bool:
        if best.score < found.best.score:
            found.best = best
        on_progress(_report_progress(found, "search", step / steps))
        return found.is_optimal()

    best = anneal_plans(PlanSpace(found.costs), starts, steps, seed, report_step)
    if best.score < found.best.score:
        found.best = best


def _prove_optimal(
    found: PlanSearch,
    relaxation: PlanRelaxation,
    budget: _Budget,
    most: int,
    on_progress: Callable[[SearchProgress], None],
) -> int:
    # Run up to ``most`` integer searches for a better plan, and return their number.
    cells, _, kinds = relaxation.shape
    if cells * kinds > (_MOST_WHOLE if found.table.chunks == 1 else _MOST_INTERLEAVED):
        return 0
    seen: set[bytes] = set()
    for number in range(most):
        if found.is_optimal() or not found.found:
            return number
        on_progress(_report_progress(found, "proof", number / most))
        proof = search_better_plan(relaxation, found.best.score, budget.nodes)
        found.bound = max(found.bound, proof.ticks)
        if proof.state is None:
            return number + 1
        found.keep_if_better(proof.state)
        # A repeated state means that its real cost differs from its path cuts: it has transients or mixes layer groups.
        if proof.done or proof.state.tobytes() in seen:
            return number + 1
        seen.add(proof.state.tobytes())
    return most


def annealing_steps(costs: Costs, work: int, most: int) -> int:
    """Return a number of steps that costs about ``work``, at most ``most``, for any pipeline size."""
    size = costs.table.cells * len(costs.table.kinds)
    each = 400 + 12 * len(costs.graph.levels) + len(costs.graph.kind) // 2 + 2 * size
    return max(min(work // each, most), 80)


def even_state(costs: Costs) -> IntArray:
    """Return an even split with the strongest recompute mode for all layers; the last cells get the remainder."""
    table = costs.table
    base, rest = divmod(table.layer_count, table.cells)
    counts = np.full(table.cells, base, np.int64)
    counts[table.cells - rest :] += 1  # later stages have fewer micro-batches in flight
    if base == 0:  # fewer layers than cells: the first or the last cell, or both, are empty
        counts[:] = 1
        lacking, ends = table.cells - table.layer_count, [0] * (not table.head.filled) + [-1] * (not table.tail.filled)
        counts[ends[:lacking]] -= 1
    state = np.zeros((table.cells, len(table.kinds)), np.int64)
    state[:, 0] = counts
    return state


def _round_state(costs: Costs, layers: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> IntArray:
    table = costs.table
    edges = np.round(np.cumsum(layers.sum(axis=1))).astype(np.int64)
    edges[-1] = table.layer_count
    counts = np.diff(edges, prepend=0)
    state = np.zeros(layers.shape, np.int64)
    for cell, count in enumerate(counts.tolist()):
        share = layers[cell] / max(layers[cell].sum(), 1e-9) * count
        marks = np.round(np.cumsum(share)).astype(np.int64)
        marks[-1] = count
        state[cell] = np.diff(marks, prepend=0)
    return state


def _report_progress(found: PlanSearch, part: str, done: float) -> SearchProgress:
    unit = float(found.costs.unit)
    time = found.best.score * unit if found.found else None
    return SearchProgress(part, done, time, found.bound * unit if found.bound else None)


def without_kinds(table: CostTable, kinds: Collection[RecomputeMode]) -> CostTable:
    """Return the table without some recompute modes."""
    return table.map_costs(lambda kind, cost: None if kind in kinds else cost)._replace(present=None)


_MOST, _MOST_TIMED = 20_000, 2_000  # variants of a stage to check for peak memory, and for step time
_AT_ONCE = 2_000

Cell = tuple[int, ...]  # layers by recompute mode, in the order of ``CostTable.kinds``


def add_recompute(
    table: CostTable, cells: Sequence[Mapping[RecomputeMode, int]], stages: Collection[int], margin_bytes: int
) -> list[dict[RecomputeMode, int]] | None:
    """Return the fastest plan with the same layers per cell in which these stages keep the limit.

    A layer never recomputes less than before, and layers of other stages are unchanged. None if more recomputation does not
    suffice.
    """
    costs = costs_of(table)
    state: IntArray | None = costs.state_of(cells)
    for stage in sorted(stages):
        if state is not None:
            state = _add_to_stage(costs, state, stage, table.limit_bytes - margin_bytes)
    return None if state is None else costs.cells_of(state)


def _add_to_stage(costs: Costs, state: IntArray, stage: int, limit: int) -> IntArray | None:
    # Return the state with the variant of one stage that keeps the limit and increases the step time least.
    chunks, stages, kinds = costs.table.chunks, costs.table.stages, costs.table.kinds
    most = max(int(_MOST ** (1 / chunks)), 2)
    places = list(range(stage, costs.table.cells, stages))
    every = list(product(*(list(_cell_variants(tuple(state[place].tolist()), kinds))[:most] for place in places)))
    fine = []
    for start in range(0, len(every), _AT_ONCE):
        variants = every[start : start + _AT_ONCE]
        states = np.repeat(state[None], len(variants), axis=0)
        states[:, places] = np.array(variants, np.int64)
        fine.append(states[is_allowed(costs, states) & (costs.peak_bytes(states)[:, stage] <= limit)])
    states = np.concatenate(fine)
    if not len(states):
        return None
    durations = costs.pass_durations(states)
    busy = durations.reshape(2, chunks, stages, len(states))[:, :, stage].sum(axis=(0, 1))
    least = np.argsort(busy, kind="stable")[:_MOST_TIMED]
    steps = costs.graph.step_ticks(durations[:, least])
    # Among equal steps, choose the one whose stage works least: its slack absorbs effects that the table does not model.
    found: IntArray = states[least[np.argsort(steps, kind="stable")[0]]]
    return found


def _cell_variants(cell: Cell, kinds: Sequence[RecomputeMode]) -> Iterator[Cell]:
    # Yield the variants of a cell: first those with more layers fully recomputed, then the others by number of changes.
    whole = {
        one: sum(abs(count - old) for count, old in zip(one, cell, strict=True)) for one in _deeper_cells(cell, kinds)
    }
    full = kinds.index(RecomputeMode.FULL) if RecomputeMode.FULL in kinds else None
    simple = dict.fromkeys(_more_full(cell, full)) if full is not None else {cell: None}
    yield from simple
    yield from sorted(whole.keys() - simple.keys(), key=lambda one: (whole[one], one))


def _more_full(cell: Cell, full: int) -> Iterator[Cell]:
    # Yield cells with more and more fully recomputed layers, starting with those that recompute least.
    counts = list(cell)
    yield tuple(counts)
    for kind in reversed(range(len(cell))):
        while kind != full and counts[kind]:
            counts[kind] -= 1
            counts[full] += 1
            yield tuple(counts)


def _deeper_cells(cell: Cell, kinds: Sequence[RecomputeMode]) -> Iterator[Cell]:
    # Yield cells with equally many layers and swaps, at least as many fully recomputed, no more without recomputation.
    total = sum(cell)
    free = [index for index, kind in enumerate(kinds) if kind not in (RecomputeMode.NONE, RecomputeMode.SWAP)]
    swaps = cell[kinds.index(RecomputeMode.SWAP)] if RecomputeMode.SWAP in kinds else 0
    none = cell[kinds.index(RecomputeMode.NONE)] if RecomputeMode.NONE in kinds else 0
    lows = [cell[index] if kinds[index] is RecomputeMode.FULL else 0 for index in free]
    for counts in product(*(range(low, total - swaps + 1) for low in lows)):
        left = total - swaps - sum(counts)
        if 0 <= left <= none:
            found = [0] * len(kinds)
            for index, count in zip(free, counts, strict=True):
                found[index] = count
            for kind, count in ((RecomputeMode.SWAP, swaps), (RecomputeMode.NONE, left)):
                if kind in kinds:
                    found[kinds.index(kind)] = count
            yield tuple(found)


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
    scores, rows = space.scores(states), np.arange(_CHAINS)
    first = int(scores.argmin())
    best = BestState(int(scores[first]), states[first].copy())
    random = np.random.PCG64(seed)
    for step in range(steps):
        drawn = (np.asarray(random.random_raw((_CHAINS * _TRIED, 12))) >> np.uint64(33)).astype(
            np.int64
        )  # 31 bits each
        moved, fine = _with_moves(space, np.repeat(states, _TRIED, axis=0), drawn)
        news, olds = space.scores(moved), np.repeat(scores, _TRIED)
        heat = _temperature(best.score, step, steps)
        gain = news - olds <= (heat * _EXPONENTIAL[drawn[:, 11] % _DRAWS]) // _MILLION
        good = (fine & np.where(news >= _OVER, news <= olds, gain)).reshape(_CHAINS, _TRIED)
        taken = good.any(axis=1)
        first_good = (rows * _TRIED + good.argmax(axis=1))[taken]
        states[taken], scores[taken] = moved[first_good], news[first_good]
        lowest = int(scores.argmin())
        if scores[lowest] < best.score:
            best = BestState(int(scores[lowest]), states[lowest].copy())
        if (step + 1) % max(steps // _RENEWALS, 1) == 0:
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
    # Apply one or two moves to each state, or exchange two of its cells; also return whether each result is allowed and another plan.
    moved = states.copy()
    exchanged = (drawn[:, 11] // _DRAWS % 100 < _EXCHANGED) & (not space.fixed_layers)
    _apply_move(space, moved, drawn[:, :5], ~exchanged)
    _apply_move(space, moved, drawn[:, 5:10], ~exchanged & (drawn[:, 10] % 2 == 0))
    cells, stages, rows = states.shape[1], space.costs.table.stages, np.flatnonzero(exchanged)
    cell, way, step = drawn[rows, 0] % cells, drawn[rows, 1] % 3, drawn[rows, 2]
    aim = np.select(
        [way == 0, way == 1], [_other_chunk(cell, step, cells, stages), _adjacent(cell, step, cells)], step % cells
    )
    moved[rows, cell], moved[rows, aim] = states[rows, aim], states[rows, cell]
    return moved, is_allowed(space.costs, moved) & (moved != states).any(axis=(1, 2))


def _other_chunk(cell: IntArray, step: IntArray, cells: int, stages: int) -> IntArray:
    return (cell + stages * (1 + step % max(cells // stages - 1, 1))) % cells


def _adjacent(cell: IntArray, step: IntArray, cells: int) -> IntArray:
    found: IntArray = np.clip(cell + np.where(step % 2 == 0, 1, -1), 0, cells - 1)
    return found


def _apply_move(space: PlanSpace, states: IntArray, drawn: IntArray, chosen: NDArray[np.bool_]) -> None:
    # Move one layer of the chosen states to another cell or recompute mode.
    plans, cells, kinds = states.shape
    stages, rows = space.costs.table.stages, np.arange(plans)
    there = (states > 0).reshape(plans, -1)
    counted = np.cumsum(there, axis=1)
    place = (counted <= (drawn[:, 0] % counted[:, -1])[:, None]).sum(axis=1)
    cell, kind = place // kinds, place % kinds
    way, step = drawn[:, 1] % 100, drawn[:, 2]
    chunk, adjacent = _other_chunk(cell, step, cells, stages), _adjacent(cell, step, cells)
    aim = np.select([way < _SAME, way < _CHUNK, way < _NEXT], [cell, chunk, adjacent], step % cells)
    if space.fixed_layers:
        aim = cell
    new = np.where((drawn[:, 3] % 2 == 0) & (aim != cell), kind, drawn[:, 4] % kinds)
    change = chosen.astype(np.int64)
    states[rows, cell, kind] -= change
    states[rows, aim, new] += change
