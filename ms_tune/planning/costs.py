"""Compute the step time and the peak memory of every stage, for many plans at once, in integers.

The step time is the longest path through the passes of all stages: each pass waits for the previous pass on its stage and for the
adjacent stage's pass that produces its input; sending takes no time. With a fixed order, it is the maximum of many sums of pass
times, and therefore convex in the plan.

A state is the number of layers per cell and recompute mode, in the order of ``CostTable.kinds``. Times are integer ticks and
sizes integer bytes, so that the same table gives the same plan on any machine.

The peak of a stage is its persistent memory plus the largest sum of activations in flight. While a layer is recomputed, the stage
needs transient memory; by then, the later layers of its cell have freed their activations of that micro-batch, and recomputed
ones among them may have left some memory until the pass ends. (Measured: Llama-2-7B in four stages, MindSpeed-Core-MS on
MindSpore 2.9, within 0.5 % of full-size runs.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import gcd, lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ms_tune.enums import RecomputeMode
from ms_tune.planning.schedule import PassKey, PipelinePass, passes_in_turn, stage_passes
from ms_tune.planning.table import CostTable, LayerGroup

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PassMoment:
    """Micro-batches in flight on a stage right before a backward pass."""

    in_flight: tuple[int, ...]  # per chunk
    chunk: int  # the chunk of the next backward pass
    # Per chunk, whether its last pass was a backward one; all False if the table has no lingering memory.
    back: tuple[bool, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PassGraph:
    """The passes of all stages in one training step, by level: a pass only waits for passes of lower levels."""

    cells: int  # number of (chunk, stage) pairs
    kind: NDArray[np.intp]  # Each pass's cell, plus ``cells`` for a backward pass. Shape (passes,).
    before: NDArray[np.intp]  # The previous pass on its stage; ``passes`` for none. Shape (passes,).
    source: NDArray[np.intp]  # The pass that produces its input; ``passes`` for none. Shape (passes,).
    levels: tuple[tuple[int, int], ...]  # first pass and end (exclusive) of each level
    # Moments at which each stage can peak; moments with no more in flight than another one are omitted.
    moments: tuple[tuple[PassMoment, ...], ...]

    def end_ticks(self, durations: NDArray[Any]) -> NDArray[Any]:
        """Return the end time of each pass, shape (passes + 1, plans); ``durations`` by kind and plan, shape (2 x cells, plans)."""
        ends = np.zeros((len(self.kind) + 1, durations.shape[1]), durations.dtype)
        for start, stop in self.levels:
            level = ends[start:stop]
            ends.take(self.before[start:stop], axis=0, out=level, mode="clip")  # the fastest way of NumPy to read rows
            np.maximum(level, ends.take(self.source[start:stop], axis=0, mode="clip"), out=level)
            level += durations.take(self.kind[start:stop], axis=0, mode="clip")
        return ends

    def path_to(self, one: int, ends: NDArray[Any]) -> Iterator[int]:
        """Yield a pass, the one that it waits for longest, and so on back to the start of the step."""
        nothing = len(self.kind)
        while one != nothing:
            yield one
            one = int(max(self.before[one], self.source[one], key=lambda other: (ends[other], other != nothing)))

    def step_ticks(self, durations: NDArray[Any]) -> NDArray[Any]:
        """Return the step times, shape (plans,)."""
        found: NDArray[Any] = self.end_ticks(durations).max(axis=0)
        return found


def graph_of(table: CostTable) -> PassGraph:
    """Build the graph of a table's passes."""
    stages, chunks, cells = table.stages, table.chunks, table.cells
    lingers = table.again is not None and table.again.lingers
    orders = [stage_passes(table.order, stage, stages, chunks, table.micro_batches) for stage in range(stages)]
    # The level of a pass is one above those it waits for, so levels increase on each stage.
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
    # A stage peaks right before a backward pass. For each chunk, keep only moments that no other one dominates.
    in_flight, back = [0] * chunks, [False] * chunks
    found: dict[tuple[int, tuple[bool, ...]], set[tuple[int, ...]]] = {}
    for one in order:
        if not one.forward:
            found.setdefault((one.chunk, tuple(back)), set()).add(tuple(in_flight))
        in_flight[one.chunk] += 1 if one.forward else -1
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


_MOST_TICKS = 2**61  # per step; sums must not overflow
_DIGITS = 10**9  # resolution of the longest time, if times have no usable common unit


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """A table as arrays; arrays of ``layers + 1`` are cumulative sums over layers."""

    table: CostTable
    graph: PassGraph  # the passes
    unit: Fraction  # time of a tick, in the table's unit
    forward: IntArray  # Ticks by recompute mode. Shape (kinds, layers + 1).
    backward: IntArray  # Ticks by recompute mode. Shape (kinds, layers + 1).
    kept: IntArray  # Bytes of activations by recompute mode. Shape (kinds, layers + 1).
    weights: IntArray  # Bytes of persistent memory. Shape (layers + 1,).
    # Forward ticks of head and tail, by cell; a backward pass takes twice as long. Shape (cells,).
    ends: IntArray
    fixed: IntArray  # Bytes of each stage regardless of its layers. Shape (stages,).
    in_flight: IntArray  # Micro-batches in flight by stage, moment and chunk. Shape (stages, moments, chunks).
    returning: NDArray[np.intp]  # The chunk whose backward pass is next, by stage and moment. Shape (stages, moments).
    # Whether memory left by a chunk's backward pass is still in use. Shape (stages, moments, chunks).
    back: NDArray[np.bool_]
    transients: IntArray  # Bytes by recompute mode and layer group. Shape (kinds, runs).
    piled: IntArray  # Bytes that a layer leaves until its cell's backward pass ends. Shape (kinds, runs).
    left: IntArray  # The same, by layer. Shape (kinds, layers + 1).
    on_top: IntArray  # Bytes by cell while a layer is fully recomputed. Shape (cells,).
    once: IntArray  # Bytes by recompute mode, regardless of micro-batches in flight. Shape (kinds, layers + 1).
    runs: tuple[tuple[int, int], ...]  # first layer and end (exclusive) of each group

    def pass_durations(self, states: IntArray) -> IntArray:
        """Return the ticks of passes, shape (2 x cells, plans), for states of shape (plans, cells, kinds)."""
        spans = self._run_spans(states)
        forward, backward = (_sum_kinds(ticks, *spans) for ticks in (self.forward, self.backward))
        found: IntArray = np.concatenate((self.ends + forward, 2 * self.ends + backward), axis=1)
        return found.T.copy()

    def peak_bytes(self, states: IntArray) -> IntArray:
        """Return the peak bytes, shape (plans, stages)."""
        table, (stop, start) = self.table, self._run_spans(states)
        shape = (len(states), table.chunks, table.stages)
        kept = _sum_kinds(self.kept, stop, start).reshape(shape).transpose(2, 1, 0)
        # Products of floats are exact below 2**53, and much faster than those of integers.
        moments = np.matmul(self.in_flight.astype(float), kept.astype(float)).astype(np.int64).transpose(2, 0, 1)
        if self.transients.any() or self.piled.any() or self.on_top.any() or table.tail.transient_bytes:
            moments = moments + self._on_top(stop, start)
        weights = self.weights[stop[:, :, -1]] - self.weights[start[:, :, 0]] + _sum_kinds(self.once, stop, start)
        found: IntArray = self.fixed + weights.reshape(shape).sum(axis=1) + moments.max(axis=2)
        if table.again is not None and RecomputeMode.FULL in table.kinds:
            full = states[:, :, table.kinds.index(RecomputeMode.FULL)]
            layers = (full * np.array(table.again.layer_bytes, np.int64)).reshape(shape).sum(axis=1)
            full = full.reshape(shape).sum(axis=1)
            found += np.where(full > 0, np.array(table.again.first_bytes), 0) + layers
        if table.update is not None:
            layers = states.sum(axis=2).reshape(shape).sum(axis=1)
            np.maximum(
                found, np.array(table.update.stage_bytes) + np.array(table.update.layer_bytes) * layers, out=found
            )
        return found

    def step_ticks(self, states: IntArray) -> IntArray:
        """Return the ticks of steps, shape (plans,)."""
        found: IntArray = self.graph.step_ticks(self.pass_durations(states))
        return found

    def state_of(self, cells: Sequence[Mapping[RecomputeMode, int]]) -> IntArray:
        """Convert a plan to a state, shape (cells, kinds)."""
        return np.array([[cell.get(kind, 0) for kind in self.table.kinds] for cell in cells], np.int64)

    def cells_of(self, state: IntArray) -> list[dict[RecomputeMode, int]]:
        """Convert a state to the number of layers by recompute mode, for each cell."""
        return [dict(zip(self.table.kinds, map(int, row), strict=True)) for row in state]

    def parts_of(self, state: IntArray) -> IntArray:
        """Split a state by cell, layer group and recompute mode."""
        stop, start = (part[0] for part in self._run_spans(state[None]))
        spans = [np.minimum(stop, last) - np.maximum(start, first) for first, last in self.runs]
        found: IntArray = np.maximum(np.stack(spans, axis=1), 0)
        return found

    def _run_spans(self, states: IntArray) -> tuple[IntArray, IntArray]:
        # Return the end (exclusive) and the first layer of each part (one mode) of each cell.
        plans, cells, kinds = states.shape
        stop = np.cumsum(states.reshape(plans, cells * kinds), axis=1).reshape(states.shape)
        return stop, stop - states

    def _on_top(self, stop: IntArray, start: IntArray) -> IntArray:
        # Return the bytes on top of all activations, shape (plans, stages, moments).
        table, stages = self.table, np.arange(self.table.stages)[:, None]
        shape = (len(stop), table.chunks, table.stages)

        def of_returning(bytes_: IntArray) -> IntArray:
            np.maximum(bytes_[:, -1], table.tail.transient_bytes, out=bytes_[:, -1])
            found: IntArray = bytes_.reshape(shape)[:, self.returning, stages]
            return found

        again = of_returning(self._recompute_transient(stop, start, self.piled))
        if not self.back.any():
            return again
        # When a layer is recomputed, it frees the memory that it left in the chunk's previous backward pass.
        replaced = of_returning(self._recompute_transient(stop, start, np.zeros_like(self.piled)))
        left = _sum_kinds(self.left, stop, start)
        was_back = np.take_along_axis(self.back, self.returning[:, :, None], axis=2)[:, :, 0]
        still = np.einsum("smc,kcs->ksm", self.back.astype(np.int64), left.reshape(shape))
        found: IntArray = still + np.where(was_back, replaced, again)
        return found

    def _recompute_transient(self, stop: IntArray, start: IntArray, piled: IntArray) -> IntArray:
        # Return the bytes on top of all activations while layers of a cell are recomputed, shape (plans, cells).
        most = np.zeros(stop.shape[:2], np.int64)
        more = np.zeros_like(most)  # bytes left by later layers, minus their freed activations
        full = self.table.kinds.index(RecomputeMode.FULL) if RecomputeMode.FULL in self.table.kinds else None
        for kind in reversed(range(len(self.transients))):
            for run in reversed(range(len(self.runs))):
                first, last = self.runs[run]
                end, begin = np.minimum(stop[:, :, kind], last), np.maximum(start[:, :, kind], first)
                count = np.maximum(end - begin, 0)
                kept = int(self.kept[kind][first + 1] - self.kept[kind][first])
                left = int(piled[kind, run])
                size = self.transients[kind, run] + left + (self.on_top if kind == full else 0)
                # These bytes change linearly from layer to layer: the maximum is at the last or the first layer of a group.
                ends = more + size + np.maximum((count - 1) * (left - kept), 0)
                np.maximum(most, np.where(count > 0, ends, 0), out=most)
                more += count * (left - kept)
        return most


def _sum_kinds(sums: IntArray, stop: IntArray, start: IntArray) -> IntArray:
    # Return the sums of each cell's layers, shape (plans, cells), from cumulative sums by recompute mode.
    found = np.zeros(stop.shape[:2], np.int64)
    for kind, row in enumerate(sums):
        found += row[stop[:, :, kind]] - row[start[:, :, kind]]
    return found


def costs_of(table: CostTable) -> Costs:
    """Convert a table to arrays."""
    graph, kinds = graph_of(table), table.kinds
    unit, ticks = _choose_tick(table)
    counts = [1, *(layer.layer_count for layer in table.layers)]  # a zero first: sums of the layers before each

    def sums(figure: Callable[[LayerGroup], int]) -> IntArray:
        each = np.repeat([0, *map(figure, table.layers)], counts)
        return np.cumsum(each, dtype=np.int64)

    def sums_by_kind(figure: Callable[[LayerGroup, RecomputeMode], int]) -> IntArray:
        return np.stack([sums(lambda layer, kind=kind: figure(layer, kind)) for kind in kinds])  # type: ignore[misc]

    ends = np.zeros(table.cells, np.int64)
    ends[0] += ticks(_exact_fraction(table.head.forward))
    ends[-1] += ticks(_exact_fraction(table.tail.forward))
    most = max(map(len, graph.moments))
    # If a stage has fewer moments than another, repeat its last one.
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
        fixed=np.array([table.fixed_bytes(stage) for stage in range(table.stages)], np.int64),
        in_flight=np.array([[moment.in_flight for moment in stage] for stage in moments], np.int64),
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
    # Convert a number to a fraction exactly as written, not as its nearest binary value.
    return Fraction(repr(number))


def _forward_time(layer: LayerGroup, kind: RecomputeMode) -> Fraction:
    return _exact_fraction(layer.forward) * (1 + _exact_fraction(layer.recompute[kind].forward_extra))


def _backward_time(layer: LayerGroup, kind: RecomputeMode) -> Fraction:
    return 2 * _exact_fraction(layer.forward) * (1 + _exact_fraction(layer.recompute[kind].backward_extra))


def _choose_tick(table: CostTable) -> tuple[Fraction, Callable[[Fraction], int]]:
    # Return the largest unit of which all times are multiples, or a billionth of the longest time; and a conversion to ticks.
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
    """Shares of the time of all stages in a step; they add up to 1."""

    work: float  # forward passes and backward passes
    recompute: float  # recomputation, and copies to and from the host beyond the duration of the passes
    fill: float  # waiting that equally loaded stages would have too: the pipeline fills and empties
    imbalance: float  # the rest of the waiting: for slower stages
    busy: tuple[float, ...]  # fraction of the step in which each stage computes


def break_down_step(table: CostTable, cells: Sequence[Mapping[RecomputeMode, int]]) -> StepTimeBreakdown:
    """Break down the step time of a plan; the table's sizes are not used."""
    costs = costs_of(table)
    durations = costs.pass_durations(costs.state_of(cells)[None])
    step, count = int(costs.graph.step_ticks(durations)[0]), table.micro_batches
    by_cell = durations[: table.cells, 0] + durations[table.cells :, 0]
    busy = by_cell.reshape(table.chunks, table.stages).sum(axis=0) * count
    # With the same work split evenly, stages wait only because of the schedule.
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
