"""Compute a lower bound of any plan's step time: a linear relaxation with cuts, and an integer program for small pipelines.

The step time is the maximum of many linear functions of the plan, one for each path through the passes. A few of them
suffice: solve, simulate the solution, add its longest path and the longest path through each cell, until no longer one is
found. The bound is valid for *every* plan, whichever paths were added. It is computed from the dual solution, so it is
valid for any result of the solver. With integer layers, the same loop proves that no plan is better than a given one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from ms_tune.enums import RecomputeMode
from ms_tune.planning.costs import Costs, IntArray

Floats = NDArray[np.float64]

_MOST_CUTS = 96  # added per solution
_TRACED = 150_000  # passes of all stages, summed over the paths that are followed per solution
_STALLED, _PATIENCE = 1e-7, 5  # minimum relative gain of a round; number of rounds that may gain less
_PROGRESS_SHARES = (0.5, 0.8, 0.95)
_FAR = 0.05  # relative distance from the longest path at which a cut is dropped: many make every solution slow
_CLOSE = 1e-9  # relative tolerance of floating-point results


class PathCut(NamedTuple):
    """A path through the passes: how many forward and backward passes of each cell it contains."""

    forward: Floats
    backward: Floats


@dataclass(frozen=True, slots=True, eq=False)
class PlanRelaxation:
    """Plans with fractional layers. Variables: layers by cell, layer group and recompute mode, then the time."""

    costs: Costs  # the table
    forward: Floats  # Ticks per layer by group and mode. Shape (runs, kinds).
    backward: Floats  # Ticks per layer by group and mode. Shape (runs, kinds).
    counts: NDArray[np.int64]  # layers of each group (a run of equal layers)
    # Memory rows per stage and moment, and the memory left for layers, both as fractions of the limit.
    memory: sparse.csr_matrix
    room: Floats
    followers: NDArray[np.intp]  # The passes that wait for each pass. Shape (passes, 2).
    cuts: list[PathCut] = field(default_factory=list)  # paths added so far

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the numbers of cells, layer groups and recompute modes."""
        return self.costs.table.cells, len(self.counts), self.backward.shape[1]

    @property
    def size(self) -> int:
        """Return the number of variables without the time."""
        cells, runs, kinds = self.shape
        return cells * runs * kinds

    def equality_rows(self) -> sparse.csr_matrix:
        """Return the constraints that place all layers of each group."""
        cells, runs, kinds = self.shape
        one = sparse.kron(sparse.kron(np.ones((1, cells)), sparse.identity(runs)), np.ones((1, kinds)))
        return sparse.hstack([one, sparse.csr_matrix((runs, 1))], format="csr")

    def limit_rows(self) -> tuple[sparse.csr_matrix, Floats]:
        """Return the constraints with upper limits: memory, cells that must not be empty, paths."""
        cells, runs, kinds = self.shape
        inner = sparse.identity(cells, format="csr")[self.costs.table.filled_cells]
        filled = -sparse.kron(inner, np.ones((1, runs * kinds)), format="csr")
        ends = self.costs.ends.astype(float)
        paths = [
            np.append(
                (cut.forward[:, None, None] * self.forward + cut.backward[:, None, None] * self.backward).ravel(), -1.0
            )
            for cut in self.cuts
        ]
        limits = [-float(cut.forward @ ends + 2 * cut.backward @ ends) for cut in self.cuts]
        blocks = [sparse.hstack([part, sparse.csr_matrix((part.shape[0], 1))]) for part in (self.memory, filled)]
        rows = sparse.vstack(
            [*blocks, sparse.csr_matrix(np.array(paths).reshape(len(paths), self.size + 1))], format="csr"
        )
        return rows, np.concatenate([self.room, -np.ones(filled.shape[0]), limits])

    def add_cuts(self, layers: Floats) -> float:
        """Add the longest paths of a solution, and return its time."""
        parts = layers.reshape(self.shape)
        forward = np.einsum("crk,rk->c", parts, self.forward) + self.costs.ends
        backward = np.einsum("crk,rk->c", parts, self.backward) + 2 * self.costs.ends
        durations = np.concatenate([forward, backward])
        graph = self.costs.graph
        ends = graph.end_ticks(durations[:, None])[:, 0]
        rests = _times_to_end(self, durations)
        through = ends[:-1] + rests - durations[graph.kind]
        whole = float(ends.max())
        best: dict[int, int] = {}
        for one in np.argsort(through, kind="stable")[::-1].tolist():
            best.setdefault(int(graph.kind[one]) % graph.cells, one)
        most = min(max(_TRACED // len(graph.kind), 2), _MOST_CUTS)
        ranked = sorted(best.values(), key=lambda one: -through[one])[:most]
        known = {(cut.forward.tobytes(), cut.backward.tobytes()) for cut in self.cuts}
        for counted in self._longest_paths(ranked, ends, rests):
            cut = PathCut(counted[: graph.cells], counted[graph.cells :])
            key = (cut.forward.tobytes(), cut.backward.tobytes())
            if key not in known:
                known.add(key)
                self.cuts.append(cut)
        return whole

    def _longest_paths(self, passes: Sequence[int], ends: Floats, rests: Floats) -> Floats:
        # Count the passes of each kind on the longest path through each of these passes, all paths in step.
        graph = self.costs.graph
        nothing, rows = len(graph.kind), np.arange(len(passes))
        kinds, rests = np.append(graph.kind, 2 * graph.cells), np.append(rests, -1.0)
        counted = np.zeros((len(passes), 2 * graph.cells + 1))
        waits, ends = np.append(np.stack([graph.before, graph.source], axis=1), [[nothing] * 2], axis=0), ends.copy()
        ends[nothing] = -1.0
        after = np.append(self.followers, [[nothing] * 2], axis=0)
        for others, ranks, first in ((waits, ends, True), (after, rests, False)):
            at = np.array(passes)
            while (at != nothing).any():
                counted[rows, kinds[at]] += first or at != passes
                one, other = others[at].T
                at = np.where(ranks[one] >= ranks[other], one, other)
        return counted[:, :-1]


def _following_passes(costs: Costs) -> NDArray[np.intp]:
    # Return the passes that wait for each pass, shape (passes, 2).
    graph = costs.graph
    nothing = len(graph.kind)
    found = np.full((nothing + 1, 2), nothing, np.intp)
    numbers = np.arange(nothing)
    found[graph.before, 0] = numbers
    found[graph.source, 1] = numbers
    return found[:-1]


def _times_to_end(relaxation: PlanRelaxation, durations: Floats) -> Floats:
    # Return the time from the start of each pass to the end of the step, along the longest path.
    graph, followers = relaxation.costs.graph, relaxation.followers
    rests = np.zeros(len(graph.kind) + 1)
    for start, stop in reversed(graph.levels):
        rests[start:stop] = rests[followers[start:stop]].max(axis=1) + durations[graph.kind[start:stop]]
    return rests[:-1]


def relaxation_of(costs: Costs) -> PlanRelaxation:
    """Return the relaxation of a table, without cuts."""
    table = costs.table
    firsts = [first for first, _ in costs.runs]
    each = np.array([layer.layer_count for layer in table.layers])
    forward, backward = (np.diff(ticks, axis=1)[:, firsts].T.astype(float) for ticks in (costs.forward, costs.backward))
    kept, weights = np.diff(costs.kept, axis=1)[:, firsts].T, np.diff(costs.weights)[firsts]
    once = np.diff(costs.once, axis=1)[:, firsts].T
    rows, room = [], []
    size = (table.chunks, table.stages, len(firsts), len(table.kinds))
    for stage in range(table.stages):
        for in_flight, late in _stage_moments(costs, stage).items():
            row = np.zeros(size)
            row[:, stage] = weights[:, None] + once + np.array(in_flight)[:, None, None] * kept
            if table.again is not None and RecomputeMode.FULL in table.kinds:
                more = np.array(table.again.layer_bytes).reshape(table.chunks, table.stages)[:, stage, None]
                row[:, stage, :, table.kinds.index(RecomputeMode.FULL)] += more
            rows.append(sparse.csr_matrix(row.reshape(1, -1) / table.limit_bytes))
            room.append((table.limit_bytes - int(costs.fixed[stage]) - late) / table.limit_bytes)
        if table.update is not None:
            row = np.zeros(size)
            row[:, stage] = table.update.layer_bytes[stage]
            rows.append(sparse.csr_matrix(row.reshape(1, -1) / table.limit_bytes))
            room.append((table.limit_bytes - table.update.stage_bytes[stage]) / table.limit_bytes)
    memory = sparse.vstack(rows, format="csr")
    return PlanRelaxation(costs, forward, backward, each, memory, np.array(room), _following_passes(costs))


def _stage_moments(costs: Costs, stage: int) -> dict[tuple[int, ...], int]:
    # Map the micro-batches in flight at each moment of a stage to the bytes that the end of the last forward pass adds.
    table = costs.table
    found: dict[tuple[int, ...], int] = {}
    for vector, chunk in zip(costs.in_flight[stage].tolist(), costs.returning[stage].tolist(), strict=True):
        last = (stage, chunk) == (table.stages - 1, table.chunks - 1)
        late = table.tail.transient_bytes if last else 0
        found[tuple(vector)] = max(found.get(tuple(vector), 0), late)
    return dict(sorted(found.items()))


class LowerBound(NamedTuple):
    """A lower bound for every plan, in ticks, and the fractional layers by cell and mode that reach it; None if none fits."""

    ticks: int
    layers: Floats | None


def lower_bound(relaxation: PlanRelaxation, known: IntArray, rounds: int) -> LowerBound:
    """Solve with cuts until no longer path is found, for at most ``rounds`` rounds.

    Paths of points on the way to a known good plan are added too, so that far fewer cuts are needed.
    """
    cells, runs, kinds = relaxation.shape
    target_plan = known.astype(float).ravel()
    even = np.zeros(relaxation.shape)
    even[:, :, -1] = relaxation.counts / cells
    for point in (even.ravel(), target_plan):
        relaxation.add_cuts(point)
    equal = relaxation.equality_rows()
    best, layers, stalled = 0.0, None, 0
    for _ in range(rounds):
        rows, limits = relaxation.limit_rows()
        target = np.zeros(relaxation.size + 1)
        target[-1] = 1.0
        solved = linprog(
            target, A_ub=rows, b_ub=limits, A_eq=equal, b_eq=relaxation.counts, bounds=(0, None), method="highs"
        )
        if solved.status != 0:
            return LowerBound(ceil(best), None if solved.status == 2 else layers)  # noqa: PLR2004 - HiGHS: infeasible
        found = _from_duals(relaxation, rows, limits, solved.ineqlin.marginals, solved.eqlin.marginals)
        won, best = found - best, max(best, found)
        layers = solved.x[:-1].reshape(cells, runs, kinds).sum(axis=1)
        spare = solved.ineqlin.residual[-len(relaxation.cuts) :]
        relaxation.cuts[:] = [cut for cut, ticks in zip(relaxation.cuts, spare, strict=True) if ticks <= _FAR * best]
        time = relaxation.add_cuts(solved.x[:-1])
        for weight in _PROGRESS_SHARES:
            relaxation.add_cuts((1 - weight) * solved.x[:-1] + weight * target_plan)
        stalled = stalled + 1 if won < best * _STALLED else 0
        if time <= best * (1 + _STALLED) or stalled > _PATIENCE:
            break
    return LowerBound(ceil(best * (1 - _CLOSE) - 1e-6), layers)


def _from_duals(
    relaxation: PlanRelaxation, rows: sparse.csr_matrix, limits: Floats, prices: Floats, equal_prices: Floats
) -> float:
    # Return the bound that these dual prices prove, exact or not: the limits at their prices, plus the negative reduced costs.
    prices = np.minimum(prices, 0)
    paths = len(relaxation.cuts)
    total = -prices[len(prices) - paths :].sum()
    if total > 0:  # the price of the time must be exactly 1: scale all
        prices, equal_prices = prices / total, equal_prices / total
    left = -(rows.T @ prices + relaxation.equality_rows().T @ equal_prices)[:-1]
    cells, runs, kinds = relaxation.shape
    most = np.broadcast_to(relaxation.counts[:, None], (cells, runs, kinds)).ravel()
    return float(prices @ limits + equal_prices @ relaxation.counts + np.minimum(left, 0) @ most)


class IntegerProof(NamedTuple):
    """Result of an integer search: a bound in ticks, and a state that may be better."""

    ticks: int
    state: IntArray | None
    done: bool


def search_better_plan(relaxation: PlanRelaxation, best: int, nodes: int) -> IntegerProof:
    """Search for a plan of fewer than ``best`` ticks, using the paths so far, and add its own longest paths.

    Without such a plan, the result is ``done`` with the bound ``best``. Otherwise its state is the plan found, whose real time may
    be longer, or None if the search did not end within ``nodes`` nodes.
    """
    cells, runs, kinds = relaxation.shape
    rows, limits = relaxation.limit_rows()
    size = relaxation.size
    exclusive, binaries = _exclusive_rows(relaxation)
    rows = sparse.hstack([rows, sparse.csr_matrix((rows.shape[0], binaries))], format="csr")
    equal = sparse.hstack([relaxation.equality_rows(), sparse.csr_matrix((runs, binaries))], format="csr")
    most = np.broadcast_to(relaxation.counts[:, None], (cells, runs, kinds)).ravel()
    target = np.zeros(size + 1 + binaries)
    target[size] = 1.0
    constraints = [
        LinearConstraint(rows, -np.inf, limits),
        LinearConstraint(equal, relaxation.counts, relaxation.counts),
    ]
    if binaries:
        constraints.append(LinearConstraint(exclusive[0], -np.inf, exclusive[1]))
    solved = milp(
        target,
        integrality=np.concatenate([np.ones(size), [0], np.ones(binaries)]),
        bounds=Bounds(np.zeros(len(target)), np.concatenate([most, [best - 1], np.ones(binaries)])),
        constraints=constraints,
        options={"node_limit": nodes, "mip_rel_gap": 0.0},
    )
    if solved.status == 2:  # noqa: PLR2004 - HiGHS: infeasible, so nothing is better
        return IntegerProof(best, None, done=True)
    dual = getattr(solved, "mip_dual_bound", None)
    ticks = 0 if dual is None or not np.isfinite(dual) else min(ceil(dual * (1 - _CLOSE) - 1e-4), best)
    if solved.x is None:
        return IntegerProof(ticks, None, done=True)
    whole = np.round(solved.x[:size])
    relaxation.add_cuts(whole)
    state = whole.reshape(cells, runs, kinds).sum(axis=1).astype(np.int64)
    return IntegerProof(ticks, state, done=solved.status != 0)


def _exclusive_rows(relaxation: PlanRelaxation) -> tuple[tuple[sparse.csr_matrix, Floats], int]:
    # A cell may not contain both layers that recompute only selected operators and layers that recompute only communication.
    cells, runs, kinds = relaxation.shape
    names = relaxation.costs.table.kinds
    if RecomputeMode.SELECT not in names or RecomputeMode.COMM not in names:
        return (sparse.csr_matrix((0, 0)), np.zeros(0)), 0
    total = float(relaxation.counts.sum())
    rows = np.zeros((2 * cells, relaxation.size + 1 + cells))
    parts = rows[:, : relaxation.size].reshape(2 * cells, cells, runs, kinds)
    for cell in range(cells):
        parts[2 * cell, cell, :, names.index(RecomputeMode.SELECT)] = 1
        parts[2 * cell + 1, cell, :, names.index(RecomputeMode.COMM)] = 1
        rows[2 * cell, relaxation.size + 1 + cell] = -total
        rows[2 * cell + 1, relaxation.size + 1 + cell] = total
    return (sparse.csr_matrix(rows), np.tile([0.0, total], cells)), cells


def least_limit(relaxation: PlanRelaxation, nodes: int) -> tuple[int, IntArray | None]:
    """Return a lower bound of the memory limit that any plan needs, in bytes without recompute transients, and a plan near it."""
    cells, runs, kinds = relaxation.shape
    table, size = relaxation.costs.table, relaxation.size
    fixed = 1.0 - relaxation.room  # fractions of the limit
    rows = sparse.hstack([relaxation.memory, -np.ones((relaxation.memory.shape[0], 1))], format="csr")
    inner = sparse.identity(cells, format="csr")[table.filled_cells]
    inner = sparse.kron(inner, np.ones((1, runs * kinds)), format="csr")
    filled = sparse.hstack([inner, sparse.csr_matrix((inner.shape[0], 1))], format="csr")
    target = np.zeros(size + 1)
    target[-1] = 1.0
    solved = milp(
        target,
        integrality=np.append(np.ones(size), 0),
        bounds=Bounds(np.zeros(size + 1), np.full(size + 1, np.inf)),
        constraints=[
            LinearConstraint(rows, -np.inf, -fixed),
            LinearConstraint(filled, 1, np.inf),
            LinearConstraint(relaxation.equality_rows(), relaxation.counts, relaxation.counts),
        ],
        options={"node_limit": nodes, "mip_rel_gap": 1e-4},
    )
    bound = getattr(solved, "mip_dual_bound", None)
    least = 0 if bound is None or not np.isfinite(bound) else int(bound * (1 - _CLOSE) * table.limit_bytes)
    state = (
        None if solved.x is None else np.round(solved.x[:size]).reshape(cells, runs, kinds).sum(axis=1).astype(np.int64)
    )
    return least, state
