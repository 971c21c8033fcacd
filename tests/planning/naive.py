"""Simulate a pipeline pass by pass, and count a stage's memory block by block, independently of the package.

Of ``ms_tune.planning`` only the frozen table is used. Orders come from ``tests.planning.orders``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING

from ms_tune.enums import RecomputeMode
from ms_tune.planning.schedule import Schedule
from tests.planning import orders

if TYPE_CHECKING:
    from ms_tune.planning.table import CostTable

# In the framework's order: fully recomputed layers come first in a cell.
ORDER = (
    RecomputeMode.FULL,
    RecomputeMode.BOTH,
    RecomputeMode.SELECT,
    RecomputeMode.COMM,
    RecomputeMode.SWAP,
    RecomputeMode.NONE,
)


def order_of(table: CostTable, stage: int) -> list[orders.Step]:
    sizes = (stage, table.stages, table.chunks, table.micro_batches)
    if table.order is Schedule.GPIPE:
        forward = [(True, chunk, micro) for chunk in range(table.chunks) for micro in range(table.micro_batches)]
        chunks = reversed(range(table.chunks))
        return forward + [(False, chunk, micro) for chunk in chunks for micro in range(table.micro_batches)]
    if table.chunks == 1:
        return orders.one_chunk(stage, table.stages, table.micro_batches)
    if table.order is Schedule.INTERLEAVED_SPREAD:
        return orders.hyper_parallel(*sizes)
    if table.order is Schedule.INTERLEAVED_FULL_WARM_UP:
        return orders.megatron(*sizes, full_warm_up=True)
    return orders.mindspore(*sizes, less_memory=table.order is Schedule.INTERLEAVED_LESS_MEMORY)


def layers_of(table: CostTable, cells: Sequence[dict[RecomputeMode, int]]) -> list[list[tuple[int, RecomputeMode]]]:
    """Return the layers of each cell in order: the group of each, and its recompute mode."""
    runs = [number for number, layer in enumerate(table.layers) for _ in range(layer.layer_count)]
    found, first = [], 0
    for cell in cells:
        kinds = [kind for kind in ORDER for _ in range(cell.get(kind, 0))]
        found.append(list(zip(runs[first : first + len(kinds)], kinds, strict=True)))
        first += len(kinds)
    assert first == len(runs)
    return found


def time_of(table: CostTable, cells: Sequence[dict[RecomputeMode, int]]) -> Fraction:
    """Return the time of a step: stages in turn run any pass whose inputs are ready."""
    exact = {number: Fraction(repr(layer.forward)) for number, layer in enumerate(table.layers)}
    forward, backward = [], []
    for place, layers in enumerate(layers_of(table, cells)):
        ends = Fraction(0)
        if place == 0:
            ends += Fraction(repr(table.head.forward))
        if place == table.cells - 1:
            ends += Fraction(repr(table.tail.forward))
        ways = (
            exact[run] * (1 + Fraction(repr(table.layers[run].recompute[kind].forward_extra))) for run, kind in layers
        )
        forward.append(ends + sum(ways, Fraction(0)))
        longer = (
            2 * exact[run] * (1 + Fraction(repr(table.layers[run].recompute[kind].backward_extra)))
            for run, kind in layers
        )
        backward.append(2 * ends + sum(longer, Fraction(0)))
    todo = [order_of(table, stage) for stage in range(table.stages)]
    clock, done = [Fraction(0)] * table.stages, dict[tuple[bool, int, int], Fraction]()
    while any(todo):
        moved = False
        for stage, steps in enumerate(todo):
            while steps:
                is_forward, chunk, micro = steps[0]
                place = chunk * table.stages + stage
                if is_forward:
                    needed = (True, place - 1, micro) if place else None
                else:
                    needed = (False, place + 1, micro) if place + 1 < table.cells else (True, place, micro)
                if needed is not None and needed not in done:
                    break
                start = max(clock[stage], done[needed] if needed is not None else Fraction(0))
                clock[stage] = start + (forward if is_forward else backward)[place]
                done[is_forward, place, micro] = clock[stage]
                steps.pop(0)
                moved = True
        assert moved
    return max(clock)


def peaks_of(table: CostTable, cells: Sequence[dict[RecomputeMode, int]]) -> list[int]:
    """Return the peak of each stage: forward passes add activations, backward passes free them layer by layer, last first."""
    layers = layers_of(table, cells)
    found = []
    for stage in range(table.stages):
        own = [layers[chunk * table.stages + stage] for chunk in range(table.chunks)]
        held = table.fixed_bytes(stage) + sum(
            table.layers[run].bytes + table.layers[run].recompute[kind].once_bytes for cell in own for run, kind in cell
        )
        full = [sum(kind is RecomputeMode.FULL for _, kind in cell) for cell in own]
        first, on_top = 0, [0] * table.chunks
        if table.again is not None and any(full):
            each = table.again.layer_bytes[stage :: table.stages]
            first = table.again.first_bytes[stage] + sum(count * size for count, size in zip(full, each, strict=True))
            on_top = list(table.again.transient_bytes[stage :: table.stages])
        held += first
        most = held
        lingers, lingering = table.again is not None and table.again.lingers, [0] * table.chunks
        for is_forward, chunk, _ in order_of(table, stage):
            if (is_forward, chunk, stage) == (False, table.chunks - 1, table.stages - 1):
                most = max(most, held + sum(lingering) + table.tail.transient_bytes)
            kept = [table.layers[run].recompute[kind] for run, kind in own[chunk]]
            kinds = [kind for _, kind in own[chunk]]
            if is_forward:
                held += sum(one.activation_bytes for one in kept)
                lingering[chunk] = 0
                most = max(most, held + sum(lingering))
                continue
            left = sum(lingering)
            most = max(most, held + left)
            replaces, lingering[chunk] = lingering[chunk] > 0, 0
            for one, kind in zip(reversed(kept), reversed(kinds), strict=True):
                left += 0 if replaces else one.again_bytes
                most = max(
                    most, held + left + one.transient_bytes + (on_top[chunk] if kind is RecomputeMode.FULL else 0)
                )
                held -= one.activation_bytes
                lingering[chunk] += one.again_bytes if lingers else 0
        if table.update is not None:
            most = max(most, table.update.stage_bytes[stage] + table.update.layer_bytes[stage] * sum(map(len, own)))
        found.append(most)
    return found


def every_plan(table: CostTable) -> Iterator[list[dict[RecomputeMode, int]]]:
    """Yield every plan that MindFormers can express, for tables with few layers."""
    kinds = [kind for kind in ORDER if kind in table.layers[0].recompute]
    for counts in _splits(table.layer_count, table.cells):
        if all(counts[0 if table.head.filled else 1 : None if table.tail.filled else -1]):
            yield from _cells(counts, kinds)


def _cells(counts: Sequence[int], kinds: Sequence[RecomputeMode]) -> Iterator[list[dict[RecomputeMode, int]]]:
    choices = [
        [
            cell
            for split in _splits(count, len(kinds))
            for cell in [dict(zip(kinds, split, strict=True))]
            if not (cell.get(RecomputeMode.SELECT) and cell.get(RecomputeMode.COMM))
        ]
        for count in counts
    ]
    for chosen in product(*choices):
        yield list(chosen)


def _splits(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _splits(total - first, parts - 1):
            yield (first, *rest)
