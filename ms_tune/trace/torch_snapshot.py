"""Reads memory snapshots of PyTorch's and torch_npu's caching allocator (``_dump_snapshot``), also packed with gzip.

The file is a pickle of plain containers; no class is ever looked up, so that a file can do nothing but be refused. All
generations are read: a bare list of segments, blocks with ``history``, with and without addresses, ``time_us``, categories,
expandable segments, several devices (``torch/cuda/memory.py`` 2.0 to 2.13, ``torch_npu/npu/memory.py`` and ``Module.cpp``).
Sizes of ``alloc`` and ``free_*`` events are those that were asked for; of ``segment_*`` events those that were taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, cast

from ms_tune.trace.memory_block import Frame
from ms_tune.trace.plain_pickle import GZIP, read_plain, refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_MOST_ADDRESS, _MOST_SIZE, _MOST_STREAM, _MOST_TIME = 1 << 63, 1 << 46, 1 << 64, 1 << 63
_MOST_TEXT, _MOST_FRAMES, _MOST_DEVICES = 1000, 1000, 1024
_PICKLE = b"\x80"
_SUFFIXES = (".pickle", ".pkl", ".pickle.gz", ".pkl.gz")


class Action(IntEnum):
    """What an event of the allocator is."""

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


_ACTIONS = {
    **{action.name.lower(): action for action in Action if action is not Action.OTHER},
    "free": Action.FREE_COMPLETED,
}


class Event(NamedTuple):
    """One thing that the allocator did.

    Attributes:
        action: What.
        address: Of the block or segment; of an OOM the free bytes of the device.
        size: Bytes.
        stream: The stream.
        stack: The place of its Python stack in the snapshot's stacks; 0 is the empty one.
        category: What PyTorch says it holds; empty if it does not say.
    """

    action: Action
    address: int
    size: int
    stream: int
    stack: int
    category: str


@dataclass(frozen=True, slots=True)
class FinalBlock:
    """A block when the snapshot was taken.

    Attributes:
        address: Its address.
        size: Bytes that it takes.
        requested: Bytes that were asked for; for a free block what was last.
        active: Whether it is in use, or waits for a stream before it is free.
        allocated: Whether it is in use.
        stack: As in :class:`Event`.
    """

    address: int
    size: int
    requested: int
    active: bool
    allocated: bool
    stack: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Memory that the allocator holds when the snapshot was taken."""

    address: int
    size: int
    stream: int
    small: bool
    expandable: bool
    blocks: tuple[FinalBlock, ...]


@dataclass(frozen=True, slots=True)
class DeviceTrace:
    """One device: its events in order and what is held at the end."""

    number: int
    events: tuple[Event, ...]
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class TorchSnapshot:
    """A snapshot.

    Attributes:
        path: The file.
        devices: Those that have events or segments, by number.
        stacks: The Python stacks, outermost frame first; the first one is empty.
        timed: Whether events have times.
        max_split: ``max_split_size`` as the file tells it; None if it does not, or none is set.
        roundup: ``roundup_power2_divisions`` as the file tells it; empty if it does not, or none is set.
    """

    path: Path
    devices: tuple[DeviceTrace, ...]
    stacks: tuple[tuple[Frame, ...], ...]
    timed: bool
    max_split: int | None
    roundup: tuple[int, ...]


def is_snapshot(path: Path) -> bool:
    """Whether a path names a file that is, or pretends to be, such a snapshot."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            head = file.read(2)
    except OSError:
        return False
    return head[:1] == _PICKLE or head == GZIP or path.name.lower().endswith(_SUFFIXES)


def read_torch_snapshot(path: Path) -> TorchSnapshot:
    """Read a snapshot.

    Raises:
        TraceError: The file cannot be read, is too large, holds anything but plain containers, or is no snapshot.
    """
    return read_plain(path, lambda content, size: _Reader(path, size).snapshot(content))


class _BadValueError(Exception):
    """A value that no allocator writes; says which."""

    def __init__(self, *, what: str) -> None:
        super().__init__(what)


class _Reader:
    """Turns the containers into a snapshot, walking them by what a snapshot has: shared parts can't make it long.

    Args:
        path: The file, for messages.
        most: How many things there may be: no more than the file has bytes.
    """

    def __init__(self, path: Path, most: int) -> None:
        self._path = path
        self._left = most
        self._frames: dict[int, Frame | None] = {}
        self._stacks: dict[int, int] = {}
        self._found: dict[tuple[Frame, ...], int] = {(): 0}
        self._texts: dict[str, str] = {}
        self._timed = False
        self._kept: list[object] = []

    def snapshot(self, content: object) -> TorchSnapshot:
        """The snapshot.

        Raises:
            TraceError: It is none.
        """
        try:
            return self._snapshot(content)
        except _BadValueError as error:
            raise refused(text="snapshot.not-snapshot", path=self._path, detail=str(error)) from None

    def _snapshot(self, content: object) -> TorchSnapshot:
        whole = {"segments": content} if isinstance(content, list) else content
        if not isinstance(whole, dict) or not isinstance(whole.get("segments"), list):
            raise _BadValueError(what="segments")
        traces = whole.get("device_traces", [])
        if not isinstance(traces, list) or len(traces) > _MOST_DEVICES:
            raise _BadValueError(what="device_traces")
        full = [id(trace) for trace in traces if trace]
        if len(set(full)) < len(full):  # one list for two devices: no allocator writes that
            raise _BadValueError(what="device_traces")
        segments: dict[int, dict[int, Segment]] = {}
        for entry in whole["segments"]:
            device, segment = self._segment(entry)
            if segments.setdefault(device, {}).setdefault(segment.address, segment) is not segment:
                raise _BadValueError(what="segments: address")
        events = {number: self._events(trace) for number, trace in enumerate(traces)}
        numbers = sorted({number for number, found in events.items() if found} | set(segments))
        devices = tuple(
            DeviceTrace(
                number,
                events.get(number, ()),
                tuple(segment for _, segment in sorted(segments.get(number, {}).items())),
            )
            for number in numbers
        )
        told = whole.get("allocator_settings")
        settings = told if isinstance(told, dict) else {}
        return TorchSnapshot(
            self._path, devices, tuple(self._found), self._timed, _max_split(settings), _roundup(settings)
        )

    def _take(self, entry: object, what: str) -> Mapping[object, object]:
        self._left -= 1
        if self._left < 0 or not isinstance(entry, dict):
            raise _BadValueError(what=what)
        return entry

    def _segment(self, entry: object) -> tuple[int, Segment]:
        held = self._take(entry, "segments")
        address, size = _whole(held, "address", _MOST_ADDRESS), _whole(held, "total_size", _MOST_SIZE)
        blocks = held.get("blocks")
        if not isinstance(blocks, list):
            raise _BadValueError(what="blocks")
        found: list[FinalBlock] = []
        place = address
        for each in blocks:
            block = self._block(each, place)
            place = block.address + block.size
            if block.address < address or place > address + size or (found and block.address < _end(found[-1])):
                raise _BadValueError(what="blocks: address")
            found.append(block)
        segment = Segment(
            address=address,
            size=size,
            stream=_whole(held, "stream", _MOST_STREAM, 0),
            small=held.get("segment_type") == "small",
            expandable=held.get("is_expandable") is True,
            blocks=tuple(found),
        )
        return _whole(held, "device", _MOST_DEVICES, 0), segment

    def _block(self, entry: object, place: int) -> FinalBlock:
        block = self._take(entry, "blocks")
        size = _whole(block, "size", _MOST_SIZE)
        history = block.get("history")
        last = history[0] if isinstance(history, list) and history and isinstance(history[0], dict) else {}
        state = block.get("state")
        if not isinstance(state, str) or size == 0:
            raise _BadValueError(what="blocks: state")
        frames = block.get("frames", last.get("frames"))
        return FinalBlock(
            address=_whole(block, "address", _MOST_ADDRESS, place),
            size=size,
            requested=min(
                _whole(block, "requested_size", _MOST_SIZE, _whole(last, "real_size", _MOST_SIZE, size)), size
            ),
            active=state.startswith("active"),
            allocated=state == "active_allocated",
            stack=self._stack(frames),
        )

    def _events(self, trace: object) -> tuple[Event, ...]:
        if not isinstance(trace, list):
            raise _BadValueError(what="device_traces")
        trace.reverse()
        found = []
        while trace:  # what was read is not kept: it takes more than what is made of it
            found.append(self._event(trace.pop()))
        return tuple(found)

    def _event(self, entry: object) -> Event:
        event = self._take(entry, "device_traces")
        get = event.get
        name, category = get("action"), get("category")
        if type(name) is not str:
            raise _BadValueError(what="action")
        action = _ACTIONS.get(name, Action.OTHER)
        self._timed = self._timed or "time_us" in event
        if action >= Action.OOM:
            where = "device_free" if action is Action.OOM and "device_free" in event else "addr"
            address, size = _whole(event, where, _MOST_ADDRESS, 0), _whole(event, "size", _MOST_SIZE, 0)
        else:
            address, size = _whole(event, "addr", _MOST_ADDRESS), _whole(event, "size", _MOST_SIZE)
        stream = _whole(event, "stream", _MOST_STREAM, 0)
        frames = get("frames")
        stack = self._stack(frames) if frames else 0
        return Event(action, address, size, stream, stack, self._text(category) if isinstance(category, str) else "")

    def _stack(self, frames: object) -> int:
        if not isinstance(frames, (list, tuple)) or not frames:
            return 0
        known = self._stacks.get(id(frames))  # events share their stacks
        if known is None:
            self._kept.append(frames)  # so that no other gets its id
            self._left -= min(len(frames), _MOST_FRAMES)
            stack = tuple(frame for each in reversed(frames[:_MOST_FRAMES]) if (frame := self._frame(each)) is not None)
            known = self._stacks[id(frames)] = self._found.setdefault(stack, len(self._found))
        return known

    def _frame(self, entry: object) -> Frame | None:
        if id(entry) not in self._frames:  # it lives as long as its stack
            if not isinstance(entry, dict):
                raise _BadValueError(what="frames")
            file, name, line = entry.get("filename"), entry.get("name"), entry.get("line")
            self._frames[id(entry)] = Frame(
                self._text(file) if isinstance(file, str) else "",
                line if type(line) is int and 0 <= line < _MOST_SIZE else 0,
                self._text(name) if isinstance(name, str) else "",
            )
        return self._frames[id(entry)]

    def _text(self, text: str) -> str:
        return self._texts.setdefault(text[:_MOST_TEXT], text[:_MOST_TEXT])


def _end(block: FinalBlock) -> int:
    return block.address + block.size


def _whole(entry: Mapping[object, object], key: str, most: int, default: int | None = None) -> int:
    """A natural number below a bound; the default where there is none at all."""
    value = entry.get(key, default)
    if value is None and default is not None:
        return default
    if type(value) is not int or not 0 <= value < most:
        raise _BadValueError(what=key)
    return value


def _max_split(settings: Mapping[object, object]) -> int | None:
    limit = settings.get("max_split_size")
    return limit if type(limit) is int and 0 < limit < _MOST_SIZE else None


def _roundup(settings: Mapping[object, object]) -> tuple[int, ...]:
    """By rising sizes, as ``{"1": 0, "2": 0, ..., "32768": 0}`` in MiB tells; empty where all are off."""
    told = settings.get("roundup_power2_divisions")
    values: Sequence[object] = list(told.values())[:16] if isinstance(told, dict) else []
    if not all(type(value) is int and 0 <= value <= 1 << 20 for value in values):
        return ()
    whole = cast("Sequence[int]", values)
    return tuple(whole) if any(value > 1 for value in whole) else ()
