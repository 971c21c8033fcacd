"""The search for the cheapest plan that fits, and the proof of how good it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ms_tune.planning.anneal import Best, PlanSpace, allowed, anneal, fits
from ms_tune.planning.bound import least_limit, lower_bound, next_whole, relaxation_of
from ms_tune.planning.costs import costs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ms_tune.planning.bound import Relaxation
    from ms_tune.planning.costs import Costs, Whole
    from ms_tune.planning.table import CostTable


class Effort(Enum):
    """How long to search."""

    QUICK = "quick"
    NORMAL = "normal"
    BEST = "best"


class _Budget(NamedTuple):
    """What an effort may spend. Nothing of it is time: that would make a plan depend on the machine."""

    work: int  # of annealing, about microseconds of an idle core
    steps: int  # of annealing at most
    rounds: int  # of the relaxation
    nodes: int  # of a search in whole numbers
    wholes: int  # such searches


_BUDGETS = {
    Effort.QUICK: _Budget(1_000_000, 2_500, 25, 500, 12),
    Effort.NORMAL: _Budget(6_000_000, 20_000, 50, 1_500, 25),
    Effort.BEST: _Budget(60_000_000, 200_000, 200, 50_000, 300),
}


# Variables that are still searched in whole numbers. The paths of an interleaved pipeline are many, and prove little.
_MOST_WHOLE, _MOST_INTERLEAVED = 320, 40
_SMALL = 500_000  # passes x cells of a pipeline that is bounded with all rounds


class SearchProgress(NamedTuple):
    """How far the search is: its part, how much of the part is done, and the best step and the bound so far."""

    part: str
    done: float
    time: float | None
    bound: float | None


@dataclass(slots=True)
class Search:
    """What a search knows so far; it can be stopped at any time."""

    table: CostTable
    costs: Costs  # it in arrays
    best: Best  # the best state and its score
    bound: int = 0  # no plan takes fewer ticks
    least_bytes: int = 0  # no plan keeps a smaller limit; 0 if nothing is known
    stopped: bool = False  # the user stopped the search

    @property
    def found(self) -> bool:
        """Whether there is a plan within the limit."""
        return fits(self.best.score)

    def optimal(self) -> bool:
        """Whether nothing is better, proved."""
        return self.found and self.bound >= self.best.score

    def offer(self, state: Whole) -> bool:
        """Keep a state if it is the best so far."""
        if not allowed(self.costs, state[None])[0]:
            return False
        score = int(PlanSpace(self.costs).scores(state[None])[0])
        if score >= self.best.score:
            return False
        self.best = Best(score, state)
        return True


def search(
    table: CostTable,
    effort: Effort,
    seed: int,
    on_progress: Callable[[SearchProgress], None],
    starts: Sequence[Whole] = (),
) -> Search:
    """The best plan found, with a lower bound for every plan. An interrupt ends the search with what it has."""
    costs = costs_of(table)
    even = even_state(costs)
    found = Search(table, costs, Best(int(PlanSpace(costs).scores(even[None])[0]), even))
    for start in starts:
        found.offer(start)
    try:
        _search(found, _BUDGETS[effort], seed, on_progress)
    except KeyboardInterrupt:
        found.stopped = True
    return found


def _search(found: Search, budget: _Budget, seed: int, on_progress: Callable[[SearchProgress], None]) -> None:
    costs, relaxation = found.costs, relaxation_of(found.costs)
    found.least_bytes, state = least_limit(relaxation, budget.nodes)
    if found.least_bytes > found.table.limit_bytes:
        if state is not None:
            found.offer(state)
        return
    if state is not None:
        found.offer(state)
    steps = annealing_steps(costs, budget.work, budget.steps)
    short = steps // 8
    _anneal(found, [found.best.state], short, seed, on_progress)
    on_progress(_progress(found, "bound", 0.0))
    rounds = min(budget.rounds, max(budget.rounds * _SMALL // (len(costs.graph.kind) * costs.table.cells), 4))
    bounded = lower_bound(relaxation, costs.parts(found.best.state), rounds)
    found.bound = max(found.bound, bounded.ticks)
    if found.optimal():
        return
    if bounded.layers is not None:
        found.offer(_rounded(costs, bounded.layers))
    half = budget.wholes // 2
    used = _prove(found, relaxation, budget, half, on_progress)
    if found.optimal():
        return
    starts = [found.best.state]
    if bounded.layers is not None:
        starts.append(_rounded(costs, bounded.layers))
    starts = [start for start in starts if allowed(costs, start[None])[0]]
    before = found.best.score
    _anneal(found, starts, steps - short, seed + 1, on_progress)
    if found.best.score < before or used == half:
        _prove(found, relaxation, budget, budget.wholes - used, on_progress)


def _anneal(
    found: Search, starts: Sequence[Whole], steps: int, seed: int, on_progress: Callable[[SearchProgress], None]
) -> None:
    def tell(step: int, best: Best) -> bool:
        if best.score < found.best.score:
            found.best = best
        on_progress(_progress(found, "search", step / steps))
        return found.optimal()

    best = anneal(PlanSpace(found.costs), starts, steps, seed, tell)
    if best.score < found.best.score:
        found.best = best


def _prove(
    found: Search, relaxation: Relaxation, budget: _Budget, most: int, on_progress: Callable[[SearchProgress], None]
) -> int:
    """Search in whole numbers for something better, until there is nothing or that was done so often; how often it was."""
    cells, _, kinds = relaxation.shape
    if cells * kinds > (_MOST_WHOLE if found.table.chunks == 1 else _MOST_INTERLEAVED):
        return 0
    seen: set[bytes] = set()
    for number in range(most):
        if found.optimal() or not found.found:
            return number
        on_progress(_progress(found, "proof", number / most))
        proof = next_whole(relaxation, found.best.score, budget.nodes)
        found.bound = max(found.bound, proof.ticks)
        if proof.state is None:
            return number + 1
        found.offer(proof.state)
        # A state that comes again is one that the paths do not tell from a plan: one with transients, or with mixed runs.
        if proof.done or proof.state.tobytes() in seen:
            return number + 1
        seen.add(proof.state.tobytes())
    return most


def annealing_steps(costs: Costs, work: int, most: int) -> int:
    """So many steps that they cost about so much work, whatever the pipeline's size."""
    each = 200 + 6 * len(costs.graph.levels) + len(costs.graph.kind) // 4 + costs.table.cells * len(costs.table.kinds)
    return max(min(work // each, most), 80)


def even_state(costs: Costs) -> Whole:
    """The layers shared out evenly, every one recomputing as much as it can; cells at the ends have what is left over."""
    table = costs.table
    base, rest = divmod(table.layer_count, table.cells)
    counts = np.full(table.cells, base, np.int64)
    counts[table.cells - rest :] += 1  # later stages hold fewer micro-batches
    if base == 0:  # fewer layers than cells: the first or the last cell, or both, have none
        counts[:] = 1
        lacking, ends = table.cells - table.layer_count, [0] * (not table.head.filled) + [-1] * (not table.tail.filled)
        counts[ends[:lacking]] -= 1
    state = np.zeros((table.cells, len(table.kinds)), np.int64)
    state[:, 0] = counts
    return state


def _rounded(costs: Costs, layers: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Whole:
    """A state in whole layers that is near a fractional one."""
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


def _progress(found: Search, part: str, done: float) -> SearchProgress:
    unit = float(found.costs.unit)
    time = found.best.score * unit if found.found else None
    return SearchProgress(part, done, time, found.bound * unit if found.bound else None)


def without(table: CostTable, kinds: Sequence[object]) -> CostTable:
    """The table without some kinds of recompute."""
    layers = tuple(
        replace(layer, recompute={kind: kept for kind, kept in layer.recompute.items() if kind not in kinds})
        for layer in table.layers
    )
    return replace(table, layers=layers, present=None)
