"""Break down the memory at a tick by category, parameter, operator, script line and layer, and compare it with theory.

Theory: Adam keeps two moments for every parameter (``mint.optim.AdamW``, ``nn.Adam``, MindFormers' ``AdamW``), and one
set of gradients has as many elements as the parameters. Number formats come from ``tracker_graph.ir``; without it all
tensors are assumed to have one format. A rank with less state than that shares it with other ranks
(``enable_parallel_optimizer``, ZeRO); a rank with more has float32 copies of its weights, or another optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeVar

from ms_tune.enums import MemoryCategory
from ms_tune.footprint.category import CONTENTS, Contents, category_code
from ms_tune.footprint.curve import Curve
from ms_tune.footprint.layers import find_layer, find_location, find_operator, strip_state_prefix
from ms_tune.readers.scopes import mask_layer_number
from ms_tune.readers.table import Table
from ms_tune.readers.tensors import TensorType
from ms_tune.records import Record
from ms_tune.units import whole_number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Key = TypeVar("Key", bound=Hashable)

_MOMENTS = 2  # moments of Adam per parameter
_CLOSE = 0.03  # relative tolerance, for padding and for scalars that are not sharded


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """Blocks that share a key."""

    key: str  # the shared property, such as a parameter, operator, line or layer
    bytes: int  # total size
    count: int  # number of blocks
    categories: Mapping[MemoryCategory, int]  # bytes by category, without zeros


@dataclass(frozen=True, slots=True)
class Holder:
    """Blocks of one category that one operator allocated at one place, with layer numbers masked."""

    operator: str
    where: str
    category: MemoryCategory
    bytes: int
    count: int
    tensor: str  # number format and shape; empty if unknown or not the same for all
    rows: tuple[int, ...]  # their rows, the largest first


@dataclass(frozen=True, slots=True)
class PeakBreakdown:
    """The memory in use at a tick, grouped in several ways."""

    tick: int
    rows: NDArray[np.int64]  # the live rows, in the order of the file; their sizes add up to the curve's value
    contents: Mapping[MemoryCategory, int]  # bytes by category: all nine, in their order; they add up, too
    holders: tuple[Holder, ...]  # by operator and script line, the largest first
    parameters: tuple[BlockGroup, ...]  # by parameter (layer numbers masked), with its gradients and optimizer state
    operators: tuple[BlockGroup, ...]  # by operator
    lines: tuple[BlockGroup, ...]  # by script line; in graph mode by scope path, layer numbers masked
    layers: tuple[BlockGroup, ...]  # by layer of the model


def break_down_memory(
    table: Table, contents: Contents, curve: Curve, tick: int, tensor_of: Callable[[int], str] | None = None
) -> PeakBreakdown:
    """Return the breakdown of the memory at a tick."""
    alive = table.live_at(tick)
    rows = curve.rows[alive[curve.rows]]
    codes = contents.codes[rows]
    totals = {content: int(table.size[rows[codes == category_code(content)]].sum()) for content in CONTENTS}

    def grouped(key_of: Callable[[int], str]) -> tuple[BlockGroup, ...]:
        return _group_blocks(table, contents, rows, key_of)

    named = rows[[row in contents.names for row in rows.tolist()]] if len(rows) else rows
    return PeakBreakdown(
        tick=tick,
        rows=rows,
        contents=totals,
        holders=_find_holders(table, contents, rows, tensor_of),
        parameters=_group_blocks(
            table, contents, named, lambda row: mask_layer_number(strip_state_prefix(contents.names[row]))
        ),
        operators=grouped(lambda row: find_operator(table, row)),
        lines=grouped(lambda row: find_location(table, row)),
        layers=grouped(lambda row: find_layer(table, row, contents.names.get(row))),
    )


def _group_blocks(
    table: Table, contents: Contents, rows: NDArray[np.int64], key_of: Callable[[int], str]
) -> tuple[BlockGroup, ...]:
    found: dict[str, tuple[int, int, dict[MemoryCategory, int]]] = {}
    sizes, codes = table.size[rows].tolist(), contents.codes[rows].tolist()
    for row, size, place in zip(rows.tolist(), sizes, codes, strict=True):
        key = key_of(row)
        total, count, parts = found.get(key, (0, 0, {}))
        parts[CONTENTS[place]] = parts.get(CONTENTS[place], 0) + size
        found[key] = (total + size, count + 1, parts)
    groups = [BlockGroup(key, *values) for key, values in found.items()]
    return tuple(sorted(groups, key=lambda group: (-group.bytes, natural_order(group.key))))


def _find_holders(
    table: Table, contents: Contents, rows: NDArray[np.int64], tensor_of: Callable[[int], str] | None
) -> tuple[Holder, ...]:
    found: dict[tuple[str, str, MemoryCategory], list[int]] = {}
    for row in rows.tolist():
        key = (find_operator(table, row), find_location(table, row), CONTENTS[contents.codes[row]])
        found.setdefault(key, []).append(row)
    holders = []
    for key, members in found.items():
        members.sort(key=lambda row: (-int(table.size[row]), row))
        tensors = {tensor_of(row) for row in members} if tensor_of else set()
        tensor = tensors.pop() if len(tensors) == 1 else ""
        holders.append(Holder(*key, int(table.size[members].sum()), len(members), tensor, tuple(members)))
    return tuple(sorted(holders, key=lambda holder: (-holder.bytes, holder.operator, holder.where, holder.category)))


@dataclass(frozen=True, slots=True)
class LayerActivations:
    """Activations that one layer keeps for the backward pass at the peak."""

    layer: str  # the layer; empty for activations outside any layer
    bytes: int  # total size: the saving if the layer's activations were swapped to the host
    count: int  # blocks


def group_activations(table: Table, contents: Contents, parts: PeakBreakdown) -> tuple[LayerActivations, ...]:
    """Return the activations at a tick by layer, in layer order; they add up to all activations."""
    rows = parts.rows[contents.codes[parts.rows] == category_code(MemoryCategory.ACTIVATIONS)]
    groups = _group_blocks(table, contents, rows, lambda row: find_layer(table, row, contents.names.get(row)))
    found = [LayerActivations(group.key, group.bytes, group.count) for group in groups]
    return tuple(sorted(found, key=lambda layer: natural_order(layer.layer)))


def natural_order(layer: str) -> tuple[str, int]:
    """Return a sort key that places ``layers.10`` after ``layers.9``."""
    name, _, digits = layer.rpartition(".")
    number = whole_number(digits)
    return (layer, -1) if number is None else (name, number)


def group_alike_layers(layers: Sequence[LayerActivations]) -> tuple[tuple[LayerActivations, ...], ...]:
    """Group consecutive layers that keep the same bytes in the same number of blocks."""
    runs: list[list[LayerActivations]] = []
    for layer in layers:
        last = runs[-1][-1] if runs else None
        (name, number), (before, previous) = natural_order(layer.layer), natural_order(last.layer) if last else ("", -1)
        follows = number > 0 and (name, number) == (before, previous + 1)
        if last and follows and (layer.bytes, layer.count) == (last.bytes, last.count):
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return tuple(map(tuple, runs))


class Expected(Record):
    """Bytes of one category at the peak: measured, and expected from the weights."""

    content: MemoryCategory  # gradients or optimizer state
    bytes: int  # bytes at the peak
    expected_bytes: int  # one set of gradients, or Adam's two moments, for all weights on the rank
    shards: int | None  # number of ranks that seem to share it; None if it is not shared
    typed: bool = True  # False if the number formats are unknown and assumed to be equal


class Theory(Record):
    """Expected memory of gradients and optimizer state, computed from the weights."""

    weights_bytes: int  # bytes of weights at the peak
    parameters: int  # number of blocks of weights
    states: tuple[Expected, ...]  # gradients and optimizer state; empty without weights
    gradients_ratio: float | None  # gradients / weights: 1 for one set of gradients in the weights' own format
    # Optimizer state / weights: 2 for Adam in the weights' own format, 4 for 4-byte state of 2-byte weights, 6 with
    # float32 copies of the weights too; less if the state is sharded.
    optimizer_ratio: float | None


def compare_with_theory(
    table: Table, contents: Contents, parts: PeakBreakdown, tensor_of: Callable[[int], TensorType | None]
) -> Theory:
    """Compare the gradients and optimizer state at the peak with the sizes that the weights predict."""
    weights = parts.contents[MemoryCategory.WEIGHTS]
    rows = _rows_with(table, contents, parts, MemoryCategory.WEIGHTS)
    if not weights:
        return Theory(0, 0, (), None, None)
    item = _element_bytes([tensor_of(row) for row in rows])
    states = []
    for content, sets in ((MemoryCategory.GRADIENTS, 1), (MemoryCategory.OPTIMIZER_STATE, _MOMENTS)):
        own = _element_bytes([tensor_of(row) for row in _rows_with(table, contents, parts, content)])
        expected = round(sets * weights * (own / item if own and item else 1))
        measured = parts.contents[content]
        states.append(Expected(content, measured, expected, _shard_count(expected, measured), typed=bool(own and item)))
    gradients, state = (each.bytes / weights for each in states)
    return Theory(weights, len(rows), tuple(states), gradients, state)


def _rows_with(table: Table, contents: Contents, parts: PeakBreakdown, content: MemoryCategory) -> list[int]:
    wanted = category_code(content)
    return [row for row in parts.rows.tolist() if contents.codes[row] == wanted and table.size[row] > 0]


def _element_bytes(tensors: Sequence[TensorType | None]) -> float | None:
    known = [tensor for tensor in tensors if tensor is not None and tensor.bytes]
    elements = sum(prod(tensor.shape) for tensor in known)
    return sum(tensor.bytes or 0 for tensor in known) / elements if elements else None


def _shard_count(expected: int, measured: int) -> int | None:
    if not measured:
        return None
    ratio = expected / measured
    return round(ratio) if ratio > 2 - _CLOSE and abs(ratio - round(ratio)) < _CLOSE * ratio else None
