"""What plans cost: how long a training step takes and the peak of every stage, for many plans at once, in whole numbers.

A step is the longest path through the passes of all stages: each pass waits for the pass before it on its stage and for the
neighbour's pass that it takes its input from; sending takes no time. With the order fixed, a step's time is the largest of many
sums of pass times, so it is convex in the plan.

A state is how many layers of each kind of recompute every cell has, in the order of ``CostTable.kinds``. Times are whole ticks and
sizes whole bytes, so that the same table gives the same plan on any machine.

The peak of a stage is what it holds for the whole run and the largest sum of activations in flight. A layer that is computed once
more holds something on top for that time; by then the layers behind it in its cell have given back the activations of that
micro-batch, and those of them that were computed once more may have left something until the pass ends. (Measured: Llama-2-7B in
four stages, MindSpeed-Core-MS on MindSpore 2.9, within 0.5 % of whole runs.)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import gcd, lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from ms_tune.enums import RecomputeMode
from ms_tune.planning.schedule import passes_in_turn, stage_passes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ms_tune.planning.schedule import PassKey, PipelinePass
    from ms_tune.planning.table import CostTable, LayerGroup

    IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PassMoment:
    """Micro-batches that a stage holds right before a backward pass."""

    held: tuple[int, ...]  # by chunk
    chunk: int  # the chunk whose backward pass comes next
    # By chunk, whether its last pass was a backward one; for none where a table has nothing that stays behind it.
    back: tuple[bool, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PassGraph:
    """The passes of one training step of all stages, level by level: a pass waits for passes of lower levels only."""

    cells: int  # how many (chunk, stage) there are
    kind: NDArray[np.intp]  # Of each pass, its cell, or `cells` and its cell for a backward pass. Shape (passes,).
    before: NDArray[np.intp]  # The pass before it on its stage; `passes` for none. Shape (passes,).
    source: NDArray[np.intp]  # The neighbour's pass that it takes its input from; `passes` for none. Shape (passes,).
    levels: tuple[tuple[int, int], ...]  # first and last-but-one pass of each level
    # Of each stage, when it may hold most; a moment that another one outdoes is left out.
    moments: tuple[tuple[PassMoment, ...], ...]

    def end_ticks(self, durations: NDArray[Any]) -> NDArray[Any]:
        """When each pass ends. ``durations`` is by kind and plan, shape (2 x cells, plans); the result (passes + 1, plans)."""
        ends = np.zeros((len(self.kind) + 1, durations.shape[1]), durations.dtype)
        for start, stop in self.levels:
            level = ends[start:stop]
            np.maximum(ends[self.before[start:stop]], ends[self.source[start:stop]], out=level)
            level += durations[self.kind[start:stop]]
        return ends

    def path_to(self, one: int, ends: NDArray[Any]) -> Iterator[int]:
        """A pass, the one that it waits for longest, and so on back to the step's begin."""
        nothing = len(self.kind)
        while one != nothing:
            yield one
            one = int(max(self.before[one], self.source[one], key=lambda other: (ends[other], other != nothing)))

    def step_ticks(self, durations: NDArray[Any]) -> NDArray[Any]:
        """How long the step takes, shape (plans,)."""
        found: NDArray[Any] = self.end_ticks(durations).max(axis=0)
        return found


def graph_of(table: CostTable) -> PassGraph:
    """The passes of a table's pipeline."""
    stages, chunks, cells = table.stages, table.chunks, table.cells
    lingers = table.again is not None and table.again.lingers
    orders = [stage_passes(table.order, stage, stages, chunks, table.micro_batches) for stage in range(stages)]
    # The level of a pass is one more than of those that it waits for, so that levels rise on each stage.
    level: dict[PassKey, int] = {}
    latest = [-1] * stages
    ranked = []
    for stage, key, giver in passes_in_turn(orders, chunks):
        latest[stage] = level[key] = max(latest[stage], level[giver] if giver is not None else -1) + 1
        ranked.append((level[key], stage, key, giver))
    ranked.sort()
    place = {key: at for at, (_, _, key, _) in enumerate(ranked)}
    nothing = len(ranked)
    kind = np.array([cell + (0 if forward else cells) for _, _, (forward, cell, _), _ in ranked], np.intp)
    source = np.array([nothing if giver is None else place[giver] for _, _, _, giver in ranked], np.intp)
    before, last = np.empty(nothing, np.intp), [nothing] * stages
    for at, (_, stage, _, _) in enumerate(ranked):
        before[at], last[stage] = last[stage], at
    bounds = np.flatnonzero(np.diff([one[0] for one in ranked], prepend=-1, append=-1))
    spans = tuple(pairwise(bounds.tolist()))
    moments = tuple(_peak_moments(order, chunks, lingers=lingers) for order in orders)
    return PassGraph(cells, kind, before, source, spans, moments)


def _peak_moments(order: list[PipelinePass], chunks: int, *, lingers: bool) -> tuple[PassMoment, ...]:
    # Right before backward passes: there a stage holds most. Of one chunk, only those that no other one outdoes.
    held, back = [0] * chunks, [False] * chunks
    found: dict[tuple[int, tuple[bool, ...]], set[tuple[int, ...]]] = {}
    for one in order:
        if not one.forward:
            found.setdefault((one.chunk, tuple(back)), set()).add(tuple(held))
        held[one.chunk] += 1 if one.forward else -1
        back[one.chunk] = lingers and not one.forward
    return tuple(
        PassMoment(vector, *place)
        for place in sorted(found)
        for vector in sorted(_undominated(found[place]), reverse=True)
    )


def _undominated(vectors: set[tuple[int, ...]]) -> list[tuple[int, ...]]:
    kept: list[tuple[int, ...]] = []
    for one in sorted(vectors, key=lambda vector: (-sum(vector), vector)):
        if not any(all(a >= b for a, b in zip(other, one, strict=True)) for other in kept):
            kept.append(one)
    return kept


_MOST_TICKS = 2**61  # of a step; a sum of them must not overflow
_DIGITS = 10**9  # significant, of times that no common unit holds


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """A table in arrays. ``layers + 1`` entries are sums over the layers before."""

    table: CostTable
    graph: PassGraph  # the passes
    unit: Fraction  # time of a tick, in the table's unit
    forward: IntArray  # Ticks by kind of recompute. Shape (kinds, layers + 1).
    backward: IntArray  # Ticks by kind of recompute. Shape (kinds, layers + 1).
    kept: IntArray  # Bytes of activations by kind of recompute. Shape (kinds, layers + 1).
    weights: IntArray  # Bytes held for the whole run. Shape (layers + 1,).
    # Ticks of head and tail in a forward pass, by cell; a backward pass takes twice as long. Shape (cells,).
    ends: IntArray
    fixed: IntArray  # Bytes that every stage holds whatever layers it has. Shape (stages,).
    held: IntArray  # Micro-batches in flight by stage, moment and chunk. Shape (stages, moments, chunks).
    returning: NDArray[np.intp]  # The chunk whose backward pass is next, by stage and moment. Shape (stages, moments).
    # Whether what a chunk's layers left in their backward pass is still there, by stage, moment and chunk. Shape (stages, moments, chunks).
    back: NDArray[np.bool_]
    transients: IntArray  # Bytes by kind of recompute and run of layers. Shape (kinds, runs).
    piled: IntArray  # Bytes that a layer leaves until its cell's backward pass ends, likewise. Shape (kinds, runs).
    left: IntArray  # The same by layer. Shape (kinds, layers + 1).
    on_top: IntArray  # Bytes by cell while a layer is recomputed in full. Shape (cells,).
    once: IntArray  # Bytes that are kept whatever is in flight, by kind of recompute. Shape (kinds, layers + 1).
    runs: tuple[tuple[int, int], ...]  # first and last-but-one layer of each run

    def pass_durations(self, states: IntArray) -> IntArray:
        """Ticks of a pass by kind and plan, shape (2 x cells, plans), of states of shape (plans, cells, kinds)."""
        spans = self._run_spans(states)
        forward, backward = (_sum_kinds(ticks, *spans) for ticks in (self.forward, self.backward))
        found: IntArray = np.concatenate((self.ends + forward, 2 * self.ends + backward), axis=1)
        return found.T.copy()

    def peak_bytes(self, states: IntArray) -> IntArray:
        """Bytes of the peak by plan and stage, shape (plans, stages)."""
        table, (stop, start) = self.table, self._run_spans(states)
        shape = (len(states), table.chunks, table.stages)
        moments = np.einsum("smc,kcs->ksm", self.held, _sum_kinds(self.kept, stop, start).reshape(shape))
        if self.transients.any() or self.piled.any() or self.on_top.any() or table.tail.transient_bytes:
            moments = moments + self._on_top(stop, start)
        weights = self.weights[stop[:, :, -1]] - self.weights[start[:, :, 0]] + _sum_kinds(self.once, stop, start)
        found: IntArray = self.fixed + weights.reshape(shape).sum(axis=1) + moments.max(axis=2)
        if table.again is not None and RecomputeMode.FULL in table.kinds:
            full = states[:, :, table.kinds.index(RecomputeMode.FULL)]
            layers = (full * np.array(table.again.layer_bytes, np.int64)).reshape(shape).sum(axis=1)
            full = full.reshape(shape).sum(axis=1)
            found += np.where(full > 0, np.array(table.again.first_bytes), 0) + layers
        for end, cell in ((table.head, 0), (table.tail, -1)):
            if end.empty_bytes:
                found[:, cell % table.stages] -= np.where(states[:, cell].any(axis=1), 0, end.empty_bytes)
        if table.update is not None:
            layers = states.sum(axis=2).reshape(shape).sum(axis=1)
            np.maximum(
                found, np.array(table.update.stage_bytes) + np.array(table.update.layer_bytes) * layers, out=found
            )
        return found

    def step_ticks(self, states: IntArray) -> IntArray:
        """Ticks of the step, shape (plans,)."""
        found: IntArray = self.graph.step_ticks(self.pass_durations(states))
        return found

    def state_of(self, cells: Sequence[Mapping[RecomputeMode, int]]) -> IntArray:
        """A plan as a state, shape (cells, kinds)."""
        return np.array([[cell.get(kind, 0) for kind in self.table.kinds] for cell in cells], np.int64)

    def cells_of(self, state: IntArray) -> list[dict[RecomputeMode, int]]:
        """A state as what every cell has."""
        return [dict(zip(self.table.kinds, map(int, row), strict=True)) for row in state]

    def parts_of(self, state: IntArray) -> IntArray:
        """A state by cell, run of layers and kind of recompute."""
        stop, start = (part[0] for part in self._run_spans(state[None]))
        spans = [np.minimum(stop, last) - np.maximum(start, first) for first, last in self.runs]
        found: IntArray = np.maximum(np.stack(spans, axis=1), 0)
        return found

    def _run_spans(self, states: IntArray) -> tuple[IntArray, IntArray]:
        # The first layer behind each part of each cell, and its first layer.
        plans, cells, kinds = states.shape
        stop = np.cumsum(states.reshape(plans, cells * kinds), axis=1).reshape(states.shape)
        return stop, stop - states

    def _on_top(self, stop: IntArray, start: IntArray) -> IntArray:
        # Bytes on top of all activations by plan, stage and moment, shape (plans, stages, moments).
        table, stages = self.table, np.arange(self.table.stages)[:, None]
        shape = (len(stop), table.chunks, table.stages)

        def of_returning(bytes_: IntArray) -> IntArray:
            np.maximum(bytes_[:, -1], table.tail.transient_bytes, out=bytes_[:, -1])
            found: IntArray = bytes_.reshape(shape)[:, self.returning, stages]
            return found

        again = of_returning(self._recompute_transient(stop, start, self.piled))
        if not self.back.any():
            return again
        # What the chunk's layers left in the backward pass before is let go by each when it is computed once more.
        replaced = of_returning(self._recompute_transient(stop, start, np.zeros_like(self.piled)))
        left = _sum_kinds(self.left, stop, start)
        was_back = np.take_along_axis(self.back, self.returning[:, :, None], axis=2)[:, :, 0]
        still = np.einsum("smc,kcs->ksm", self.back.astype(np.int64), left.reshape(shape))
        found: IntArray = still + np.where(was_back, replaced, again)
        return found

    def _recompute_transient(self, stop: IntArray, start: IntArray, piled: IntArray) -> IntArray:
        # Bytes on top of all activations while a cell's layers are computed once more, shape (plans, cells).
        most = np.zeros(stop.shape[:2], np.int64)
        more = np.zeros_like(most)  # what the layers behind have left, less what they kept
        full = self.table.kinds.index(RecomputeMode.FULL) if RecomputeMode.FULL in self.table.kinds else None
        for kind in reversed(range(len(self.transients))):
            for run in reversed(range(len(self.runs))):
                first, last = self.runs[run]
                end, begin = np.minimum(stop[:, :, kind], last), np.maximum(start[:, :, kind], first)
                count = np.maximum(end - begin, 0)
                kept = int(self.kept[kind][first + 1] - self.kept[kind][first])
                left = int(piled[kind, run])
                size = self.transients[kind, run] + left + (self.on_top if kind == full else 0)
                # What is on top changes evenly from layer to layer: it is most at the last one of a run, or at the first.
                ends = more + size + np.maximum((count - 1) * (left - kept), 0)
                np.maximum(most, np.where(count > 0, ends, 0), out=most)
                more += count * (left - kept)
        return most


def _sum_kinds(sums: IntArray, stop: IntArray, start: IntArray) -> IntArray:
    # What the layers of each cell have together, shape (plans, cells), of sums over the layers before, by kind of recompute.
    found = np.zeros(stop.shape[:2], np.int64)
    for kind, row in enumerate(sums):
        found += row[stop[:, :, kind]] - row[start[:, :, kind]]
    return found


def costs_of(table: CostTable) -> Costs:
    """A table in arrays."""
    graph, kinds = graph_of(table), table.kinds
    unit, ticks = _choose_tick(table)

    def sums(figure: Callable[[LayerGroup], int]) -> IntArray:
        each = [figure(layer) for layer in table.layers for _ in range(layer.layer_count)]
        return np.cumsum([0, *each], dtype=np.int64)

    def sums_by_kind(figure: Callable[[LayerGroup, RecomputeMode], int]) -> IntArray:
        return np.stack([sums(lambda layer, kind=kind: figure(layer, kind)) for kind in kinds])  # type: ignore[misc]

    ends = np.zeros(table.cells, np.int64)
    ends[0] += ticks(_exact_fraction(table.head.forward))
    ends[-1] += ticks(_exact_fraction(table.tail.forward))
    most = max(map(len, graph.moments))
    # A stage with fewer moments than another one has its last one several times.
    moments = [[*stage, *[stage[-1]] * (most - len(stage))] for stage in graph.moments]
    starts = np.cumsum([0, *(layer.layer_count for layer in table.layers)])
    return Costs(
        table=table,
        graph=graph,
        unit=unit,
        forward=sums_by_kind(lambda layer, kind: ticks(_forward_time(layer, kind))),
        backward=sums_by_kind(lambda layer, kind: ticks(_backward_time(layer, kind))),
        kept=sums_by_kind(lambda layer, kind: layer.recompute[kind].activation_bytes),
        weights=sums(lambda layer: layer.bytes),
        ends=ends,
        fixed=np.array([table.held_by(stage) for stage in range(table.stages)], np.int64),
        held=np.array([[moment.held for moment in stage] for stage in moments], np.int64),
        returning=np.array([[moment.chunk for moment in stage] for stage in moments], np.intp),
        once=sums_by_kind(lambda layer, kind: layer.recompute[kind].once_bytes),
        back=np.array([[moment.back for moment in stage] for stage in moments], np.bool_),
        transients=np.array([[layer.recompute[kind].transient_bytes for layer in table.layers] for kind in kinds]),
        piled=np.array([[layer.recompute[kind].again_bytes for layer in table.layers] for kind in kinds], np.int64),
        left=sums_by_kind(lambda layer, kind: layer.recompute[kind].again_bytes),
        on_top=np.array(table.again.transient_bytes if table.again is not None else (0,) * table.cells, np.int64),
        runs=tuple(pairwise(starts.tolist())),
    )


def _exact_fraction(number: float) -> Fraction:
    # A number as it was written, not as the nearest binary fraction.
    return Fraction(repr(number))


def _forward_time(layer: LayerGroup, kind: RecomputeMode) -> Fraction:
    return _exact_fraction(layer.forward) * (1 + _exact_fraction(layer.recompute[kind].forward_extra))


def _backward_time(layer: LayerGroup, kind: RecomputeMode) -> Fraction:
    return 2 * _exact_fraction(layer.forward) * (1 + _exact_fraction(layer.recompute[kind].backward_extra))


def _choose_tick(table: CostTable) -> tuple[Fraction, Callable[[Fraction], int]]:
    # The longest time of which all times of a table are multiples; else nine digits of the longest time.
    times = [_exact_fraction(end.forward) for end in (table.head, table.tail)]
    times += [
        way(layer, kind) for way in (_forward_time, _backward_time) for layer in table.layers for kind in table.kinds
    ]
    common = lcm(*(time.denominator for time in times))
    unit = Fraction(gcd(*(int(time * common) for time in times)), common)
    longest = max(times)
    if longest / unit * 6 * (table.layer_count + 2) * table.micro_batches > _MOST_TICKS:
        unit = longest / _DIGITS
    return unit, lambda time: round(time / unit)


@dataclass(frozen=True, slots=True)
class StepTimeBreakdown:
    """Parts of the time of all stages in a step; they add up to 1."""

    work: float  # forward passes and backward passes
    recompute: float  # what is computed once more, and what copies to the host and back take longer than passes
    fill: float  # waiting that stages of equal work would do as well: the pipeline fills and empties
    imbalance: float  # the rest of the waiting: for stages that take longer than others
    busy: tuple[float, ...]  # the part of the step in which each stage works


def break_down_step(table: CostTable, cells: Sequence[Mapping[RecomputeMode, int]]) -> StepTimeBreakdown:
    """Where the time of a plan's step goes; nothing is read of the table's sizes."""
    costs = costs_of(table)
    durations = costs.pass_durations(costs.state_of(cells)[None])
    step, count = int(costs.graph.step_ticks(durations)[0]), table.micro_batches
    by_cell = durations[: table.cells, 0] + durations[table.cells :, 0]
    busy = by_cell.reshape(table.chunks, table.stages).sum(axis=0) * count
    # The same work shared out evenly: what stages wait then is the schedule's own.
    halves = durations.reshape(2, table.cells).sum(axis=1) * count
    even = np.repeat(halves, table.cells)[:, None]
    least = int(costs.graph.step_ticks(even)[0]) / (table.cells * count)
    whole, all_work = table.stages * step, int(busy.sum())
    plain = costs_of(table.map_costs(lambda _, cost: cost._replace(backward_extra=0.0, forward_extra=0.0)))
    useful = int(plain.pass_durations(plain.state_of(cells)[None]).sum()) * count * float(plain.unit / costs.unit)
    fill = max(table.stages * least - all_work, 0.0)
    waits = whole - all_work
    return StepTimeBreakdown(
        work=useful / whole,
        recompute=(all_work - useful) / whole,
        fill=min(fill, waits) / whole,
        imbalance=max(waits - fill, 0.0) / whole,
        busy=tuple(float(one) / step for one in busy),
    )
