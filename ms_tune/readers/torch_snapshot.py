"""Read memory snapshots of the caching allocator of PyTorch and torch_npu (``_dump_snapshot``), also packed with gzip.

The file is a pickle of plain containers; no class is ever looked up, so a file cannot run code. All generations are
supported: a bare list of segments, blocks with ``history``, with and without addresses, ``time_us``, categories,
expandable segments, several devices (``torch/cuda/memory.py`` 2.0 to 2.13, ``torch_npu/npu/memory.py`` and
``Module.cpp``). Sizes of ``alloc`` and ``free_*`` events are requested bytes, of ``segment_*`` reserved ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ms_tune.readers.memory_block import NEVER_FREED, Frame
from ms_tune.readers.plain_pickle import read_plain, refusal_of_pickle
from ms_tune.records import Record

Columns = tuple[
    NDArray[np.int8], NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64], NDArray[np.int32], NDArray[np.int32]
]

_CHUNK = 1 << 16


class Action(IntEnum):
    """The kind of an allocator event."""

    ALLOC = 0
    FREE_REQUESTED = 1
    FREE_COMPLETED = 2
    SEGMENT_ALLOC = 3
    SEGMENT_FREE = 4
    SEGMENT_MAP = 5
    SEGMENT_UNMAP = 6
    OOM = 7
    SNAPSHOT = 8
    OTHER = 9


class Event(NamedTuple):
    """One event of the allocator."""

    action: Action  # its kind
    address: int  # of the block or segment; for an OOM the free bytes of the device
    size: int  # bytes
    stream: int
    stack: int  # index of its Python stack in the snapshot's stacks; 0 is the empty one
    category: str  # PyTorch's category of the data; empty if unknown


class Turns(NamedTuple):
    """The allocations and releases of blocks ordered by address, then by time."""

    place: NDArray[np.int64]  # their indices among all events
    address: NDArray[np.int64]  # their addresses, ascending
    allocates: NDArray[np.bool_]  # whether each is an allocation
    first: NDArray[np.bool_]  # whether each is the first at its address
    last: NDArray[np.bool_]  # whether each is the last at its address


@dataclass(frozen=True, eq=False)
class Events:
    """The events of one device in their order."""

    action: NDArray[np.int8]  # values of `Action`
    # As in `Event`.
    address: NDArray[np.int64]
    size: NDArray[np.int64]
    stream: NDArray[np.uint64]
    stack: NDArray[np.int32]
    category: NDArray[np.int32]  # indices into `categories`
    categories: Sequence[str]  # the texts
    unknown: Mapping[str, int]  # number of events of each unknown action, the most frequent first

    def __len__(self) -> int:
        return len(self.action)

    def __getitem__(self, place: int) -> Event:
        return Event(
            Action(int(self.action[place])),
            int(self.address[place]),
            int(self.size[place]),
            int(self.stream[place]),
            int(self.stack[place]),
            self.categories[int(self.category[place])],
        )

    def rows_with(self, *actions: Action) -> NDArray[np.bool_]:
        """Return which events have one of these actions."""
        return np.isin(self.action, actions)

    def places_with(self, *actions: Action) -> NDArray[np.int64]:
        """Return the indices of the events with these actions."""
        return np.flatnonzero(self.rows_with(*actions))

    def iterate_rows(self, places: NDArray[np.int64]) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield index, action, address, size and stream of some events, as plain numbers, in order."""
        for begin in range(0, len(places), _CHUNK):
            part = places[begin : begin + _CHUNK]
            columns = (self.action, self.address, self.size, self.stream)
            yield from zip(part.tolist(), *(column[part].tolist() for column in columns), strict=True)

    @cached_property
    def turns_by_address(self) -> Turns:
        """Return the allocations and releases of blocks by address."""
        places = self.places_with(Action.ALLOC, Action.FREE_COMPLETED)
        found = self.address[places]
        order = np.argsort(found, kind="stable")
        place, address = places[order], found[order]
        changes = np.flatnonzero(address[1:] != address[:-1])
        first, last = np.zeros(len(place), np.bool_), np.zeros(len(place), np.bool_)
        if len(place):
            first[0] = last[-1] = True
            first[changes + 1] = last[changes] = True
        return Turns(place, address, self.action[place] == Action.ALLOC, first, last)

    def first_turns(self) -> Iterable[tuple[int, int, bool]]:
        """Return address, index and kind (True: allocation) of the first allocation or release at each address."""
        turns = self.turns_by_address
        return zip(
            turns.address[turns.first].tolist(),
            turns.place[turns.first].tolist(),
            turns.allocates[turns.first].tolist(),
            strict=True,
        )

    def release_events(self) -> NDArray[np.int64]:
        """Return for each allocation event the release of the block (in damaged files: the reuse of its address).

        :data:`~ms_tune.readers.memory_block.NEVER_FREED` without such an event, and for all other events.
        """
        turns = self.turns_by_address
        following = np.append(turns.place[1:], NEVER_FREED)
        following[turns.last] = NEVER_FREED
        found = np.full(len(self), NEVER_FREED, np.int64)
        found[turns.place[turns.allocates]] = following[turns.allocates]
        return found


_MOST_ADDRESS, _MOST_SIZE, _MOST_STREAM, _MOST_TIME = 1 << 63, 1 << 46, 1 << 64, 1 << 63
_MOST_TEXT, _MOST_FRAMES, _MOST_DEVICES = 1000, 1000, 1024
_MOST_TOTAL = 1 << 62  # of all sizes together, so that sums fit into 64-bit columns
_SLAB = 1 << 16  # events that are converted into columns at once
_STATES = ("active", "inactive")  # prefixes of block states; others are of an unknown allocator
# Not about a block: annotations (torch/csrc/cuda/Module.cpp, 2.6), a mark of torch_npu (torch_npu/csrc/npu/Module.cpp).
_MARKS = ("user_defined", "workspace_snapshot")
_MOST_NAME, _MOST_NAMES = 40, 1000
_KEPT = ("action", "stream", "frames", "category", "time_us")  # the only keys that are kept of events without a block


class _Actions(dict[str, int]):
    """Codes of actions by name; others are :attr:`Action.OTHER`."""

    def __missing__(self, name: str) -> int:
        return int(Action.OTHER)


_ACTIONS = _Actions({action.name.lower(): int(action) for action in Action if action is not Action.OTHER})
_ACTIONS["free"] = int(Action.FREE_COMPLETED)


class FinalBlock(Record):
    """A block at the time of the snapshot."""

    address: int
    size: int  # allocated bytes
    requested: int  # requested bytes; for a free block the last request
    active: bool  # whether it is in use, or waits for a stream before it is free
    allocated: bool  # whether it is in use
    stack: int  # as in `ms_tune.readers.torch_snapshot.Event`


class SnapshotSegment(Record):
    """A segment that the allocator has reserved at the time of the snapshot."""

    address: int
    size: int
    stream: int
    small: bool
    expandable: bool
    blocks: tuple[FinalBlock, ...]


class DeviceTrace(Record):
    """One device: its events in order and its segments at the end."""

    number: int
    events: Events
    segments: tuple[SnapshotSegment, ...]


class TorchSnapshot(Record):
    """The contents of a snapshot."""

    path: Path  # the file
    devices: tuple[DeviceTrace, ...]  # devices with events or segments, by number
    stacks: tuple[tuple[Frame, ...], ...]  # the Python stacks, outermost frame first; the first one is empty
    timed: bool  # whether events have times
    max_split: int | None  # `max_split_size`; None if not set or not in the file
    roundup: tuple[int, ...]  # `roundup_power2_divisions`; empty if not set or not in the file


def read_torch_snapshot(path: Path) -> TorchSnapshot:
    """Read a snapshot."""
    return read_plain(path, lambda content, size: _SnapshotReader(path, size).read_content(content))


class _BadValueError(Exception):
    def __init__(self, *, what: str) -> None:
        super().__init__(what)


class _SnapshotReader:
    """Converter of the containers into a snapshot; it follows only known keys, so shared parts cannot make it slow.

    It raises an error if there are more entries than the file has bytes (``most``).
    """

    def __init__(self, path: Path, most: int) -> None:
        self._path = path
        self._remaining = most
        self._frames: dict[int, Frame | None] = {}
        self._stacks: dict[int, int] = {}
        self._parts: dict[tuple[int, ...], int] = {}
        self._found: dict[tuple[Frame, ...], int] = {(): 0}
        self._texts: dict[str, str] = {}
        self._timed = False
        self._categories: dict[str, int] = {"": 0}
        self._unknown: Counter[str] = Counter()  # of one device

    def read_content(self, content: object) -> TorchSnapshot:
        try:
            return self._read_whole(content)
        except _BadValueError as error:
            raise refusal_of_pickle(text="snapshot.not-snapshot", path=self._path, detail=str(error)) from None

    def _read_whole(self, content: object) -> TorchSnapshot:
        whole = {"segments": content} if isinstance(content, list) else content
        if not isinstance(whole, dict) or not isinstance(whole.get("segments"), list):
            raise _BadValueError(what="segments")
        traces = whole.get("device_traces", [])
        if not isinstance(traces, list) or len(traces) > _MOST_DEVICES:
            raise _BadValueError(what="device_traces")
        full = [id(trace) for trace in traces if trace]
        if len(set(full)) < len(full):  # one list for two devices: no allocator writes that
            raise _BadValueError(what="device_traces")
        segments: dict[int, dict[int, SnapshotSegment]] = {}
        for entry in whole["segments"]:
            device, segment = self._read_segment(entry)
            if segments.setdefault(device, {}).setdefault(segment.address, segment) is not segment:
                raise _BadValueError(what="segments: address")
        events = {number: self._read_events(trace) for number, trace in enumerate(traces)}
        numbers = sorted({number for number, found in events.items() if len(found)} | set(segments))
        devices = tuple(
            DeviceTrace(
                number,
                events[number] if number in events else self._read_events([]),
                tuple(segment for _, segment in sorted(segments.get(number, {}).items())),
            )
            for number in numbers
        )
        given = whole.get("allocator_settings")
        settings = given if isinstance(given, dict) else {}
        limit = settings.get("max_split_size")
        max_split = limit if type(limit) is int and 0 < limit < _MOST_SIZE else None
        return TorchSnapshot(self._path, devices, tuple(self._found), self._timed, max_split, _parse_roundup(settings))

    def _take_entry(self, entry: object, what: str) -> Mapping[object, object]:
        self._remaining -= 1
        if self._remaining < 0 or not isinstance(entry, dict):
            raise _BadValueError(what=what)
        return entry

    def _read_segment(self, entry: object) -> tuple[int, SnapshotSegment]:
        fields = self._take_entry(entry, "segments")
        address, size = _whole_number(fields, "address", _MOST_ADDRESS), _whole_number(fields, "total_size", _MOST_SIZE)
        blocks = fields.get("blocks")
        if not isinstance(blocks, list):
            raise _BadValueError(what="blocks")
        found: list[FinalBlock] = []
        place = address
        for each in blocks:
            block = self._read_block(each, place)
            before, place = place, block.address + block.size
            if block.address < before or place > address + size:
                raise _BadValueError(what="blocks: address")
            found.append(block)
        segment = SnapshotSegment(
            address=address,
            size=size,
            stream=_whole_number(fields, "stream", _MOST_STREAM, 0),
            small=fields.get("segment_type") == "small",
            expandable=fields.get("is_expandable") is True,
            blocks=tuple(found),
        )
        return _whole_number(fields, "device", _MOST_DEVICES, 0), segment

    def _read_block(self, entry: object, place: int) -> FinalBlock:
        block = self._take_entry(entry, "blocks")
        size = _whole_number(block, "size", _MOST_SIZE)
        history = block.get("history")
        last = history[0] if isinstance(history, list) and history and isinstance(history[0], dict) else {}
        state = block.get("state")
        if not isinstance(state, str) or not state.startswith(_STATES) or size == 0:
            raise _BadValueError(what="blocks: state")
        frames = block.get("frames", last.get("frames"))
        return FinalBlock(
            address=_whole_number(block, "address", _MOST_ADDRESS, place),
            size=size,
            requested=min(
                _whole_number(block, "requested_size", _MOST_SIZE, _whole_number(last, "real_size", _MOST_SIZE, size)),
                size,
            ),
            active=state.startswith("active"),
            allocated=state == "active_allocated",
            stack=self._stack_code(frames),
        )

    def _read_events(self, trace: object) -> Events:
        if not isinstance(trace, list):
            raise _BadValueError(what="device_traces")
        trace.reverse()
        self._unknown.clear()
        parts = [self._read_columns([])]
        while trace:  # free each part after it is read: it needs more memory than the result
            slab = trace[: -_SLAB - 1 : -1]
            del trace[-_SLAB:]
            parts.append(self._read_columns(slab))
        action, address, size, stream, stack, category = (np.concatenate(column) for column in zip(*parts, strict=True))
        if float(size.sum(dtype=np.float64)) >= _MOST_TOTAL:
            raise _BadValueError(what="size")
        return Events(
            action, address, size, stream, stack, category, tuple(self._categories), dict(self._unknown.most_common())
        )

    def _read_columns(self, slab: list[object]) -> Columns:
        self._remaining -= len(slab)
        if self._remaining < 0 or set(map(type, slab)) - {dict}:
            raise _BadValueError(what="device_traces")
        rows = cast("list[dict[object, object]]", slab)
        names = _column_values(rows, "action")
        if set(map(type, names)) - {str}:
            raise _BadValueError(what="action")
        action = np.fromiter(map(_ACTIONS.__getitem__, cast("list[str]", names)), np.int8, len(rows))
        for place in np.flatnonzero(action >= Action.OOM).tolist():
            if action[place] == Action.OTHER and names[place] not in _MARKS:
                name = str(names[place])[:_MOST_NAME]
                self._unknown[name if name in self._unknown or len(self._unknown) < _MOST_NAMES else "…"] += 1
            rows[place] = _without_block(rows[place], out_of_memory=int(action[place]) == Action.OOM)
        self._timed = self._timed or any(map(dict.__contains__, rows, repeat("time_us")))
        address = _whole_column(rows, "addr", _MOST_ADDRESS).astype(np.int64)
        size = _whole_column(rows, "size", _MOST_SIZE).astype(np.int64)
        stream = _whole_column(rows, "stream", _MOST_STREAM, 0).astype(np.uint64)
        known, made = self._stacks.get, self._stack_code
        stack = [(known(id(frames)) or made(frames)) if frames else 0 for frames in _column_values(rows, "frames")]
        category = [self._category_code(each) for each in _column_values(rows, "category")]
        return action, address, size, stream, np.array(stack, np.int32), np.array(category, np.int32)

    def _category_code(self, category: object) -> int:
        if category is None or not isinstance(category, str):
            return 0
        return self._categories.setdefault(self._share_text(category), len(self._categories))

    def _stack_code(self, frames: object) -> int:
        # Events share stacks, which are identified by their frames; these live until everything is read.
        if not isinstance(frames, (list, tuple)) or not frames:
            return 0
        known = self._stacks.get(id(frames))
        if known is None:
            self._remaining -= min(len(frames), _MOST_FRAMES)
            parts = tuple(map(id, frames[:_MOST_FRAMES]))
            known = self._parts.get(parts)
            if known is None:
                stack = tuple(
                    frame for part in reversed(frames[:_MOST_FRAMES]) if (frame := self._read_frame(part)) is not None
                )
                known = self._parts[parts] = self._found.setdefault(stack, len(self._found))
            self._stacks[id(frames)] = known
        return known

    def _read_frame(self, entry: object) -> Frame | None:
        if id(entry) not in self._frames:  # it lives as long as its stack
            if not isinstance(entry, dict):
                raise _BadValueError(what="frames")
            file, name, line = entry.get("filename"), entry.get("name"), entry.get("line")
            self._frames[id(entry)] = Frame(
                self._share_text(file) if isinstance(file, str) else "",
                line if type(line) is int and 0 <= line < _MOST_SIZE else 0,
                self._share_text(name) if isinstance(name, str) else "",
            )
        return self._frames[id(entry)]

    def _share_text(self, text: str) -> str:
        return self._texts.setdefault(text[:_MOST_TEXT], text[:_MOST_TEXT])


def _whole_number(entry: Mapping[object, object], key: str, most: int, default: int | None = None) -> int:
    value = entry.get(key, default)
    if value is None and default is not None:
        return default
    if type(value) is not int or not 0 <= value < most:
        raise _BadValueError(what=key)
    return value


def _column_values(rows: list[dict[object, object]], key: str) -> list[object]:
    return list(map(dict.get, rows, repeat(key)))


def _whole_column(
    rows: list[dict[object, object]], key: str, most: int, default: int | None = None
) -> NDArray[np.int64] | NDArray[np.uint64]:
    values = _column_values(rows, key)
    kinds = set(map(type, values))
    if kinds - {int} and default is not None:
        values = [default if value is None else value for value in values]
        kinds.discard(type(None))
    if kinds - {int}:
        raise _BadValueError(what=key)
    try:
        found = np.array(values, np.int64)
    except OverflowError:
        if not all(0 <= value < most for value in cast("list[int]", values)):
            raise _BadValueError(what=key) from None
        return np.array(values, np.uint64)
    if len(found) and not 0 <= found.min() <= found.max() < most:
        raise _BadValueError(what=key)
    return found


def _without_block(event: Mapping[object, object], *, out_of_memory: bool) -> dict[object, object]:
    where = "device_free" if out_of_memory and "device_free" in event else "addr"
    kept: dict[object, object] = {key: event[key] for key in _KEPT if key in event}
    return {
        **kept,
        "addr": _whole_number(event, where, _MOST_ADDRESS, 0),
        "size": _whole_number(event, "size", _MOST_SIZE, 0),
    }


def _parse_roundup(settings: Mapping[object, object]) -> tuple[int, ...]:
    # In order of sizes in MiB, such as `{"1": 0, "2": 0, ..., "32768": 0}`; empty if all are off.
    divisions = settings.get("roundup_power2_divisions")
    values: Sequence[object] = list(divisions.values())[:16] if isinstance(divisions, dict) else []
    if not all(type(value) is int and 0 <= value <= 1 << 20 for value in values):
        return ()
    whole = cast("Sequence[int]", values)
    return tuple(whole) if any(value > 1 for value in whole) else ()
