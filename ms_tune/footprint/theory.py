"""What weights, gradients and optimizer state should need, beside what they do need.

Adam keeps two numbers for every parameter (``mint.optim.AdamW``, ``nn.Adam``, MindFormers' ``AdamW``), and one set of
gradients has as many as there are parameters. Number formats come from ``tracker_graph.ir``; without it all are taken for
one. A rank that holds less state than that shares the rest with others (``enable_parallel_optimizer``, ZeRO); one that
holds more has float32 copies of its weights, or another optimizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.enums import MemoryCategory
from ms_tune.footprint.category import code

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ms_tune.footprint.category import Contents
    from ms_tune.footprint.groups import PeakBreakdown
    from ms_tune.readers.table import Table
    from ms_tune.readers.tracker_graph import TensorType

_MOMENTS = 2  # of Adam
_CLOSE = 0.03  # padding, and the scalars that are no share of anything


@dataclass(frozen=True, slots=True)
class Expected:
    """Bytes of one content at the peak, and by theory."""

    content: MemoryCategory  # gradients or optimizer state
    measured: int  # bytes at the peak
    expected: int  # one set of gradients, or Adam's two moments, of all weights on the rank
    shards: int | None  # over how many ranks it seems to be shared; None if it does not
    typed: bool = True  # whether the number formats are known; else all are taken for one


@dataclass(frozen=True, slots=True)
class Theory:
    """What the weights make one expect."""

    weights: int  # bytes of weights at the peak
    parameters: int  # how many blocks hold them
    states: tuple[Expected, ...]  # gradients and optimizer state; empty where there are no weights
    gradients_ratio: float | None  # gradients divided by weights: 1 where one set in the weights' own format is held
    # Optimizer state divided by weights: 2 for Adam in the weights' own format, 4 with weights of two bytes and state
    # of four, 6 with float32 copies of them; less where the state is shared.
    optimizer_ratio: float | None


def theory_of(
    table: Table, contents: Contents, parts: PeakBreakdown, tensor_of: Callable[[int], TensorType | None]
) -> Theory:
    """The theory of what is held at the peak.

    Args:
        table: The trace.
        contents: What its rows hold.
        parts: The memory at the peak.
        tensor_of: Number format and shape of a row's tensor, if known.
    """
    weights = parts.contents[MemoryCategory.WEIGHTS]
    rows = _rows(table, contents, parts, MemoryCategory.WEIGHTS)
    if not weights:
        return Theory(0, 0, (), None, None)
    item = _item([tensor_of(row) for row in rows])
    states = []
    for content, sets in ((MemoryCategory.GRADIENTS, 1), (MemoryCategory.OPTIMIZER_STATE, _MOMENTS)):
        own = _item([tensor_of(row) for row in _rows(table, contents, parts, content)])
        expected = round(sets * weights * (own / item if own and item else 1))
        measured = parts.contents[content]
        states.append(Expected(content, measured, expected, _shards(expected, measured), typed=bool(own and item)))
    gradients, state = (each.measured / weights for each in states)
    return Theory(weights, len(rows), tuple(states), gradients, state)


def _rows(table: Table, contents: Contents, parts: PeakBreakdown, content: MemoryCategory) -> list[int]:
    wanted = code(content)
    return [row for row in parts.rows.tolist() if contents.codes[row] == wanted and table.size[row] > 0]


def _item(tensors: Sequence[TensorType | None]) -> float | None:
    """Bytes of an element, over all tensors that are known."""
    known = [tensor for tensor in tensors if tensor is not None and tensor.bytes]
    elements = sum(tensor.elements for tensor in known)
    return sum(tensor.bytes or 0 for tensor in known) / elements if elements else None


def _shards(expected: int, measured: int) -> int | None:
    if not measured:
        return None
    ratio = expected / measured
    return round(ratio) if ratio > 2 - _CLOSE and abs(ratio - round(ratio)) < _CLOSE * ratio else None
