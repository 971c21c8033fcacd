"""Search for the cheapest plan that fits, and prove how close it is to the optimum."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ms_tune.enums import RecomputeMode
from ms_tune.planning.anneal import BestState, PlanSpace, anneal_plans, is_allowed, is_within_limit
from ms_tune.planning.bound import PlanRelaxation, least_limit, lower_bound, relaxation_of, search_better_plan
from ms_tune.planning.costs import Costs, IntArray, costs_of
from ms_tune.planning.table import CostTable

if TYPE_CHECKING:
    from ms_tune.planning.costs import Costs, IntArray
_SIGINT = 2  # the number of the signal of Ctrl-C


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
    Effort.NORMAL: _Budget(5_000_000, 20_000, 50, 1_500, 25),
    Effort.BEST: _Budget(60_000_000, 200_000, 200, 50_000, 300),
}


# Maximum number of variables for integer searches. Interleaved pipelines have many paths, and searching them proves little.
_MOST_WHOLE, _MOST_INTERLEAVED = 320, 40
_QUICKLY_WHOLE, _WHOLES = 40, 4  # maximum number for which there are all integer searches of a budget; else how many
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
    few = even_state(costs).size <= _QUICKLY_WHOLE
    wholes = budget.wholes if few else min(budget.wholes, _WHOLES)
    used = _prove_optimal(found, relaxation, budget, wholes // 2, on_progress) if few else 0
    if found.is_optimal():
        return
    starts[1:] = [found.best.state]
    if bounded.layers is not None:
        starts.append(_round_state(costs, bounded.layers))
    starts = [start for start in starts if is_allowed(costs, start[None])[0]]
    before, tried = found.best.score, few and used < wholes // 2
    _improve_plan(found, starts, steps - short, seed + 1, on_progress)
    if found.best.score < before or not tried:
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
