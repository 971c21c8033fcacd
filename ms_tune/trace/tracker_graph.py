"""Reads ``tracker_graph.ir``: shape and number format of the tensors in the blocks, and which operator reads which.

Three lines an operator (``tracker_graph.cc``, MindSpore 2.5 and later)::

    (%7) = MatMul(%2, %5), task_info: 6, attrs {stream_id=0}
        (Float32:[64, 512]{strdes=[512, 1],offset=0}) <- (Float32:[64, 256], Float32:[256, 512])
        # File:train.py;Line:42;Function:<module>|

``%7`` is the block that starts at tick 7. A block may be shown with several shapes: views of one storage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ms_tune.texts import msg
from ms_tune.trace.memory_block import DROPPED_KEPT, DroppedRow, lines_of, unreadable
from ms_tune.trace.parts import no_progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from ms_tune.trace.parts import Progress

# Bytes of an element (``mindspore/core/include/mindapi/base/type_id.h``).
_ITEM = {
    **dict.fromkeys(("Bool", "Int8", "UInt8", "Float8_E4M3FN", "Float8_E5M2", "HiFloat8"), 1),
    **dict.fromkeys(("Int16", "UInt16", "Float16", "BFloat16"), 2),
    **dict.fromkeys(("Int32", "UInt32", "Float32"), 4),
    **dict.fromkeys(("Int64", "UInt64", "Float64", "Complex64"), 8),
    "Complex128": 16,
}
_HEAD = re.compile(r"\(([^()]*)\) = (.*)\(([^()]*)\), task_info: (\d{1,18}), attrs \{(.*)\}\s*")
_TYPES = re.compile(r"\s*\((.*)\) <- \((.*)\)\s*")
_TYPE = re.compile(r"(\w{1,40}):\[([0-9, -]{0,400})\](\{[^{}]{0,800}\})?")
_BLOCK = re.compile(r"%(\d{1,18})")
_MOST_DIGITS = 12  # of a dimension
_EVERY = 4 * 1024**2  # bytes between two words about progress


@dataclass(frozen=True, slots=True)
class TensorType:
    """Number format and shape of a tensor.

    Attributes:
        dtype: Such as ``Float32``.
        shape: The dimensions.
        bytes: Elements times bytes of an element; None if the format is not known or a dimension is not.
    """

    dtype: str
    shape: tuple[int, ...]
    bytes: int | None

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True, eq=False)
class TrackerGraph:
    """What the graph file tells.

    Attributes:
        tensors: The largest tensor that each block was seen to hold, by the tick at which the block starts.
        operators: How many operators the file holds.
        dropped: Some of the operators that were refused.
        dropped_count: How many were refused.
    """

    tensors: Mapping[int, TensorType]
    operators: int
    dropped: tuple[DroppedRow, ...]
    dropped_count: int


def read_tracker_graph(path: Path, on_bytes: Progress = no_progress) -> TrackerGraph:
    """Read a ``tracker_graph.ir``.

    Raises:
        TraceError: The file cannot be read.
    """
    reader = _Reader()
    try:
        with path.open("rb") as file:
            reader.read(file, on_bytes)
    except OSError as error:
        raise unreadable(error, path) from error
    return TrackerGraph(reader.tensors, reader.operators, tuple(reader.dropped), reader.dropped_count)


class _Reader:
    """The operators so far."""

    def __init__(self) -> None:
        self.tensors: dict[int, TensorType] = {}
        self.operators = 0
        self.dropped: list[DroppedRow] = []
        self.dropped_count = 0
        self._types: dict[str, tuple[list[TensorType], list[TensorType]] | None] = {}
        self._single: dict[str, TensorType] = {}

    def read(self, file: BinaryIO, on_bytes: Progress) -> None:
        """Two lines belong together if the first is a head and the second, indented, holds types; a stack may follow."""
        head: tuple[int, re.Match[str]] | None = None
        for number, text in _with_progress(file, on_bytes):
            if text is None:
                self._refuse(number)
                head = None
            elif text.startswith("("):
                if head is not None:
                    self._refuse(head[0])  # its types are missing
                match = _HEAD.fullmatch(text)
                head = (number, match) if match else None
                if match is None:
                    self._refuse(number)
            elif head is not None and not text.lstrip().startswith("#"):
                self._operator(head[0], head[1], text)
                head = None
        if head is not None:
            self._refuse(head[0])

    def _operator(self, number: int, head: re.Match[str], text: str) -> None:
        if text not in self._types:
            self._types[text] = self._both(text)
        types = self._types[text]
        written = [int(tick) for tick in _BLOCK.findall(head[1])]
        read = [int(tick) for tick in _BLOCK.findall(head[3])]
        if types is None or len(types[0]) != len(written) or len(types[1]) != len(read):
            if not (types == ([], []) or (not written and not read)):  # on the CPU blocks have no names
                self._refuse(number)
                return
            self.operators += 1
            return
        self.operators += 1
        for tick, tensor in zip((*read, *written), (*types[1], *types[0]), strict=True):
            known = self.tensors.get(tick)
            if known is None or (tensor.bytes or 0) > (known.bytes or 0):
                self.tensors[tick] = tensor

    def _both(self, text: str) -> tuple[list[TensorType], list[TensorType]] | None:
        match = _TYPES.fullmatch(text)
        return (self._list(match[1]), self._list(match[2])) if match else None

    def _list(self, text: str) -> list[TensorType]:
        return [self._tensor(match[0], match[1], match[2]) for match in _TYPE.finditer(text)]

    def _tensor(self, text: str, dtype: str, dimensions: str) -> TensorType:
        known = self._single.get(text)
        if known is None:
            sizes = [part.strip() for part in dimensions.split(",") if part.strip()]
            plain = all(part.isdigit() and len(part) <= _MOST_DIGITS for part in sizes)
            shape = tuple(int(part) for part in sizes) if plain else ()
            item = _ITEM.get(dtype)
            size = item * prod(shape) if plain and item is not None else None
            known = self._single[text] = TensorType(dtype, shape, size)
        return known

    def _refuse(self, number: int) -> None:
        self.dropped_count += 1
        if len(self.dropped) < DROPPED_KEPT:
            self.dropped.append(DroppedRow(number, msg("trace.graph.malformed")))


def _with_progress(file: BinaryIO, on_bytes: Progress) -> Iterator[tuple[int, str | None]]:
    told = 0
    for number, text, _ in lines_of(file):
        yield number, text
        if file.tell() - told > _EVERY:
            on_bytes(file.tell() - told)
            told = file.tell()
    on_bytes(file.tell() - told)
