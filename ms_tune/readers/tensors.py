"""Read which tensors are in the blocks: ``tracker_graph.ir`` of the tracker, ``tensors.json`` of a dryrun.

``tracker_graph.ir`` has the shape and number format of tensors, and which operator reads which, in three lines per
operator (``tracker_graph.cc``, MindSpore 2.5 and later)::

    (%7) = MatMul(%2, %5), task_info: 6, attrs {stream_id=0}
        (Float32:[64, 512]{strdes=[512, 1],offset=0}) <- (Float32:[64, 256], Float32:[256, 512])
        # File:train.py;Line:42;Function:<module>|

``%7`` is the block that starts at tick 7. A block may appear with several shapes: views of one storage.

``tensors.json`` has the addresses of weights, optimizer state and gradients after the last training step. The child
process of ``dryrun`` writes it, because the tracker does not name tensors in the dynamic graph::

    {"schema_version": 1, "weights": [{"name": "head.weight", "address": 140737353973975, "bytes": 8192}],
     "optimizer_state": [], "gradients": []}

Addresses are those of ``device_addr`` in ``memory_block.csv``; ``Tensor.data_ptr()`` may also point into a block.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ms_tune.encode import schema_version_of
from ms_tune.errors import TraceError
from ms_tune.readers.lines import FilePart, Progress, iterate_parts, no_progress, read_json, reading
from ms_tune.readers.memory_block import DroppedRow, RefusedRow
from ms_tune.records import Record
from ms_tune.source.files import open_bytes
from ms_tune.text import Message, msg

# Bytes per element (``mindspore/core/include/mindapi/base/type_id.h``).
ITEM_BYTES = {
    **dict.fromkeys(("Bool", "Int8", "UInt8", "Float8_E4M3FN", "Float8_E5M2", "HiFloat8"), 1),
    **dict.fromkeys(("Int16", "UInt16", "Float16", "BFloat16"), 2),
    **dict.fromkeys(("Int32", "UInt32", "Float32"), 4),
    **dict.fromkeys(("Int64", "UInt64", "Float64", "Complex64"), 8),
    "Complex128": 16,
}
# Linear time for every line: once the task number has matched, the rest cannot fail.
_HEAD = re.compile(r"\(([^()]*)\) = (?:[^(]*\()+?([^()]*)\), task_info: [0-9]{1,18}, attrs \{")
_BLOCKS = r"((?:%[0-9]{1,18}(?:, )?)*)"
_PLAIN_HEAD = re.compile(
    rf"^\({_BLOCKS}\) = (?:[^(\n]*\()+?{_BLOCKS}\), task_info: [0-9]{{1,18}}, attrs \{{".encode(), re.MULTILINE
)
_TYPE = re.compile(r"(\w{1,40}):\[([0-9, -]{0,400})\](\{[^{}]{0,800}\})?")
_BLOCK = re.compile(r"%([0-9]{1,18})")
_TO_NUMBERS = bytes.maketrans(b"%,", b"  ")
_MOST_DIGITS = 12  # per dimension
_LINES = 3  # per operator
_COUNTED = 2**63  # bytes; MindSpore rejects sizes up to the next power (``The int64_t value ... is less than 0``)
_LARGEST_ITEM = max(ITEM_BYTES.values())
# Shorter shapes cannot reach 2^63 bytes. A shape followed by strides is a view, which uses no memory of its own. The
# pattern begins with literal characters, which are found fast.
_SHAPE = re.compile(rb":\[([0-9, ]{18,400})\](?!\{)")
_FORMAT = re.compile(rb"\w{1,40}$")
_OPERATOR = re.compile(rb"= (.{1,200}?)\([^()\n]{0,4000}\), task_info")
_READ = b" <- ("


class TensorType(Record):
    """Number format and shape of a tensor."""

    dtype: str  # such as `Float32`
    shape: tuple[int, ...]  # the dimensions
    bytes: int | None  # elements x bytes per element; None if the format or a dimension is unknown

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True, eq=False)
class TrackerGraph:
    """The contents of a graph file."""

    # The largest tensor seen in each block, by the tick at which the block starts.
    tensors: Mapping[int, TensorType]
    operators: int  # number of operators in the file
    dropped: tuple[DroppedRow, ...]  # some of the rejected operators
    dropped_count: int  # number of rejected operators


def read_tracker_graph(path: Path, on_bytes: Progress = no_progress) -> TrackerGraph:
    """Read a ``tracker_graph.ir``. Raises TraceError: the file is unreadable."""
    reader = _GraphReader()
    with reading(path), open_bytes(path) as file:
        reader.read(file, on_bytes)
    return TrackerGraph(reader.tensors, reader.operators, tuple(reader.refused.rows), reader.refused.count)


class _Types(Record):
    written: tuple[TensorType, ...]
    read: tuple[TensorType, ...]


class _GraphReader:
    def __init__(self) -> None:
        self.tensors: dict[int, TensorType] = {}
        self.operators = 0
        self.refused = RefusedRow()
        self._types: dict[str, _Types | None] = {}
        self._single: dict[str, TensorType] = {}
        self._head: tuple[int, re.Match[str]] | None = None

    def read(self, file: BinaryIO, on_bytes: Progress) -> None:
        # Process the file in stretches that begin with the first line of an operator.
        rest, first = b"", 1
        for part in iterate_parts(file, 1, on_bytes):
            if part.data is None or not part.complete:
                self._take_stretch(rest, first)
                self._take_lines(part.lines())
                rest, first = b"", part.first + part.height
                continue
            data = rest + part.data
            cut = data.rfind(b"\n(") + 1 or len(data)
            self._take_stretch(data[:cut], first)
            first += data.count(b"\n", 0, cut)
            rest = data[cut:]
        self._take_stretch(rest, first)
        if self._head is not None:
            self._refuse_line(self._head[0])

    def _take_stretch(self, data: bytes, first: int) -> None:
        if data and (self._head is not None or not self._take_plain(data)):
            self._take_lines(FilePart(first, data, data.count(b"\n"), complete=True).lines())

    def _take_plain(self, data: bytes) -> bool:
        lines = data.split(b"\n")
        heads, types = lines[:-1:_LINES], lines[1::_LINES]
        if len(lines) != _LINES * len(heads) + 1 or data.count(b"\n    #") != len(heads):
            return False
        text = b"\n".join([*heads, b""])
        blocks: list[tuple[bytes, bytes]] = _PLAIN_HEAD.findall(text)
        if len(blocks) != len(heads) or text.count(b"} \n") != len(heads):
            return False
        different = {text: place for place, text in enumerate(dict.fromkeys(types))}
        known = [self._parse_types(text.decode("utf-8", errors="replace")) for text in different]
        all_types = [each for each in known if each is not None]
        code = np.array([different[text] for text in types], np.int64)
        if len(all_types) < len(known):
            return False
        shown = np.array([(len(each.written), len(each.read)) for each in all_types], np.int64)[code]
        if (shown != [(written.count(b"%"), read.count(b"%")) for written, read in blocks]).any():
            return False
        ticks = b" ".join([b"%b %b" % (read, written) for written, read in blocks]).translate(_TO_NUMBERS)
        if not ticks.isspace():
            self._keep_largest(np.fromstring(ticks, np.int64, sep=" "), all_types, code)
        self.operators += len(heads)
        return True

    def _keep_largest(self, ticks: NDArray[np.int64], types: Sequence[_Types], code: NDArray[np.int64]) -> None:
        # Of equal sizes the first is kept. Types are those of the tensors that are read, then written.
        tensors = [tensor for each in types for tensor in (*each.read, *each.written)]
        length = np.array([len(each.read) + len(each.written) for each in types], np.int64)
        begin = np.cumsum(length) - length
        lengths = length[code]
        place = np.repeat(begin[code] - (np.cumsum(lengths) - lengths), lengths) + np.arange(len(ticks))
        size = np.array([tensor.bytes or 0 for tensor in tensors], np.float64)[place]
        blocks, block = np.unique(ticks, return_inverse=True)
        largest = np.full(len(blocks), -1.0)
        np.maximum.at(largest, block, size)
        candidates = np.flatnonzero(size == largest[block])[::-1]
        chosen = np.empty(len(blocks), np.int64)
        chosen[block[candidates]] = place[candidates]  # the first is assigned last
        for tick, at in zip(blocks.tolist(), chosen.tolist(), strict=True):
            self._see_tensor(tick, tensors[at])

    def _see_tensor(self, tick: int, tensor: TensorType) -> None:
        known = self.tensors.get(tick)
        if known is None or (tensor.bytes or 0) > (known.bytes or 0):
            self.tensors[tick] = tensor

    def _take_lines(self, lines: Iterable[tuple[int, str | None, bool]]) -> None:
        # Two lines belong together if the first is a head and the second, indented, contains types; a stack may follow.
        for number, text, _ in lines:
            if text is None:
                self._refuse_line(number)
                self._head = None
            elif text.startswith("("):
                if self._head is not None:
                    self._refuse_line(self._head[0])  # its types are missing
                match = _HEAD.match(text) if text.rstrip().endswith("}") else None
                self._head = (number, match) if match else None
                if match is None:
                    self._refuse_line(number)
            elif self._head is not None and not text.lstrip().startswith("#"):
                self._read_operator(*self._head, text)
                self._head = None

    def _read_operator(self, number: int, head: re.Match[str], text: str) -> None:
        types = self._parse_types(text)
        written = [int(tick) for tick in _BLOCK.findall(head[1])]
        read = [int(tick) for tick in _BLOCK.findall(head[2])]
        fitting = types is not None and (len(types.written), len(types.read)) == (len(written), len(read))
        if types is None or not fitting:
            if types == _Types((), ()) or not (written or read):  # on the CPU blocks have no names
                self.operators += 1
            else:
                self._refuse_line(number)
            return
        self.operators += 1
        for tick, tensor in zip((*read, *written), (*types.read, *types.written), strict=True):
            self._see_tensor(tick, tensor)

    def _parse_types(self, text: str) -> _Types | None:
        if text not in self._types:
            written, arrow, read = text.strip().partition(") <- (")
            whole = arrow and written.startswith("(") and read.endswith(")")
            lists = (
                tuple(self._parse_tensor(match[0], match[1], match[2]) for match in _TYPE.finditer(part))
                for part in (written[1:], read[:-1])
            )
            self._types[text] = _Types(*lists) if whole else None
        return self._types[text]

    def _parse_tensor(self, text: str, dtype: str, dimensions: str) -> TensorType:
        known = self._single.get(text)
        if known is None:
            sizes = [part.strip() for part in dimensions.split(",") if part.strip()]
            plain = all(part.isdecimal() and len(part) <= _MOST_DIGITS for part in sizes)
            shape = tuple(int(part) for part in sizes) if plain else ()
            item = ITEM_BYTES.get(dtype)
            size = item * prod(shape) if plain and item is not None else None
            known = self._single[text] = TensorType(dtype, shape, size)
        return known

    def _refuse_line(self, number: int) -> None:
        self.refused.add(number, msg("trace.graph.malformed"))


class SizeOverflow(Record):
    """A tensor of 2^63 bytes or more."""

    operator: str  # the operator that creates it; empty if unknown
    tensor: str  # its number format and shape, as written


def find_size_overflow(path: Path) -> SizeOverflow | None:
    """Return the first tensor of 2^63 bytes or more that an operator of a ``tracker_graph.ir`` creates, or None.

    The size of a tensor is its elements x bytes per element, and 2^64 bytes overflow to 0: ``mint.zeros((2**31,
    2**31))`` uses 512 bytes in simulation (MindSpore 2.9, dynamic graph; a static graph rejects such a shape). The
    tracker writes the true shape next to the block that MindSpore makes too small.
    """
    small: set[bytes] = set()  # a file repeats the same few shapes
    with reading(path), open_bytes(path) as file:
        for part in iterate_parts(file, 1, lambda _: None):
            data = part.data or b""
            for match in _SHAPE.finditer(data):
                if match[1] in small:
                    continue
                if _element_count(match[1]) * _LARGEST_ITEM < _COUNTED:
                    small.add(match[1])
                elif (found := _made_tensor(data, match)) is not None:
                    return found
    return None


def _element_count(shape: bytes) -> int:
    return prod(int(size) for size in shape.replace(b",", b" ").split())


def _made_tensor(data: bytes, match: re.Match[bytes]) -> SizeOverflow | None:
    # The tensors that an operator creates are on the left of the arrow.
    named = _FORMAT.search(data, max(match.start() - 40, 0), match.start())
    tensor = named[0].decode("ascii", "replace") if named else ""
    begin = data.rfind(b"\n", 0, match.start()) + 1
    end = data.find(b"\n", match.end())
    read = _READ in data[begin : match.start()] or _READ not in data[match.end() : end if end >= 0 else len(data)]
    if read or _element_count(match[1]) * ITEM_BYTES.get(tensor, _LARGEST_ITEM) < _COUNTED:
        return None
    head = _OPERATOR.search(data, data.rfind(b"\n", 0, max(begin - 1, 0)) + 1, begin)
    operator = head[1].decode("utf-8", "replace") if head else ""
    return SizeOverflow(operator, f"{tensor}[{match[1].decode('ascii')}]")


VERSION = 1
_MAX_FILE = 256 * 1024**2  # bytes: two million tensors
_MAX_NUMBER = 2**64 - 1


class ListedTensor(Record):
    """A tensor of the training script: its name, device address and bytes."""

    name: str
    address: int
    bytes: int


class TensorList(Record):
    """The tensors that outlive a training step, by category."""

    weights: tuple[ListedTensor, ...]
    optimizer_state: tuple[ListedTensor, ...]
    gradients: tuple[ListedTensor, ...]


def read_tensor_list(path: Path) -> TensorList | None:
    """Read a tensor list; None if the file does not exist. Raises TraceError: the file is unreadable or malformed."""
    with reading(path):
        if not path.exists():
            return None
        size = path.stat().st_size
    too_long = msg("trace.tensors.large", size=size, limit=_MAX_FILE)
    content = read_json(path, _MAX_FILE, too_long, "trace.tensors.json")
    if not isinstance(content, dict):
        raise TraceError(_malformed_error("$"), path=path)
    version = schema_version_of(content)
    if version is not VERSION:
        found = str(version)[:20]
        raise TraceError(msg("trace.tensors.version", found=found, expected=VERSION), path=path)
    groups = (_parse_tensors(content, group, path) for group in ("weights", "optimizer_state", "gradients"))
    return TensorList(*groups)


def _parse_tensors(content: dict[object, object], group: str, path: Path) -> tuple[ListedTensor, ...]:
    entries = content.get(group)
    if not isinstance(entries, list):
        raise TraceError(_malformed_error(f"$.{group}"), path=path)
    tensors = []
    for position, entry in enumerate(entries):
        name, *sizes = [entry.get(field) for field in ListedTensor._fields] if isinstance(entry, dict) else [None]
        if not isinstance(name, str) or any(type(size) is not int or not 0 <= size <= _MAX_NUMBER for size in sizes):
            raise TraceError(_malformed_error(f"$.{group}[{position}]"), path=path)
        tensors.append(ListedTensor(name, *sizes))
    return tuple(tensors)


def _malformed_error(where: str) -> Message:
    return msg("trace.tensors.shape", where=where)
