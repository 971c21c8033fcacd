"""Store the events of a profile's time line: intervals and moments as columns, for millions of events."""

from __future__ import annotations

import itertools
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from sys import intern
from typing import Any, Generic, TypeVar

from ms_tune.records import Record

_T = TypeVar("_T")
OVERLAP = {"Computing": "compute", "Communication(Not Overlapped)": "exposed", "Free": "free", "Communication": "comm"}
FLOW = "HostToDevice"  # the flow from a launch on the host to its start on the device
_MOST = 2_000_000  # events of each kind; the others are only counted
_FARTHEST = 9e15  # microseconds from the base, so that nanoseconds fit into 64 bits: 285 years
SHORTEST_US = 20.0  # microseconds from which a host event can explain a gap
_MOST_NAMES = 100_000
_LONGEST_STACK = 16_384  # characters
LIBRARY = re.compile(r"(?:^|/)(?:site-packages|torch|torch_npu|mindspore|lib/python3[.\d]*)/|^<")  # not the user's code
_NOT_HOST = (
    *("Ascend Hardware", "HCCL", "Communication", "Overlap Analysis"),
    *("HBM", "LLC", "NPU MEM", "Stars Soc Info", "AI Core Freq"),
)


@dataclass(frozen=True, slots=True)
class Intervals:
    """Starts and lengths in microseconds since the trace's base, ordered by start."""

    start: array[float] = field(default_factory=lambda: array("d"))
    length: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.start)

    def in_order(self) -> Intervals:
        """Return the intervals ordered by start; exporters mostly write them in that order."""
        if all(sooner < later for sooner, later in itertools.pairwise(self.start)):
            return self
        return make_intervals(sorted(zip(self.start, self.length, strict=True)))

    @property
    def total_length(self) -> float:
        """Return the sum of the lengths."""
        return sum(self.length)


@dataclass(frozen=True, slots=True)
class Moments(Generic[_T]):
    """Moments on the device with a value for each."""

    times: array[int]  # the moments, in nanoseconds since the trace's base, ascending
    values: Sequence[_T]  # the value of each

    def __len__(self) -> int:
        return len(self.times)


class ProfileEvents(Record):
    """The stored events of a trace."""

    base: int  # base of all times, in microseconds: a whole number, as a float has too few digits for a time stamp
    # Intervals by device activity: `compute`, `exposed` (communication alone), `free`, `comm`.
    overlap: dict[str, Intervals]
    collectives: list[tuple[float, float, str]]  # collectives and sends: start, length, name
    # For starts on the device: the time of the launch on the host, in microseconds since the base.
    launches: Moments[float]
    host: Intervals  # long events of the host, as many as `host_names`
    host_names: list[str]
    host_places: list[str]  # for each: the line of the user's code that called it; empty without stacks
    short: dict[str, int]  # numbers of host events by name that are too short to explain a gap
    names: Moments[str]  # names of the events that start on the device
    events: int  # number of events read
    dropped: int  # events beyond the maximum, which were not stored
    truncated: bool  # the file ends within an event


def make_intervals(rows: Iterable[tuple[float, float]]) -> Intervals:
    """Return columns of starts and lengths."""
    kept = [*rows]
    return Intervals(array("d", [start for start, _ in kept]), array("d", [length for _, length in kept]))


def order_moments(at: array[int], told: Sequence[_T]) -> Moments[_T]:
    """Return the moments ordered by time; of several at one moment the last counts."""
    if all(sooner < later for sooner, later in itertools.pairwise(at)):
        return Moments(at, told)
    order = sorted(range(len(at)), key=at.__getitem__)
    order = [place for place, after in zip(order, [*order[1:], -1], strict=True) if after < 0 or at[after] != at[place]]
    return Moments(array("q", [at[place] for place in order]), [told[place] for place in order])


class EventKind(Enum):
    """The part of an event to store; device activities are named as in :class:`ProfileEvents`."""

    COMPUTE = "compute"
    EXPOSED = "exposed"
    FREE = "free"
    COMMUNICATION = "comm"
    COLLECTIVE = "collective"
    DEVICE = "device"  # the name of an event that starts on the device
    HOST = "host"  # name and process of a long event
    LAUNCH = "launch"  # the beginning of a flow
    START = "start"  # its end
    METADATA = "metadata"  # may name a process


def classify_event(event: dict[str, Any]) -> EventKind | None:
    """Return the part of an event to store; None for nothing."""
    phase = event.get("ph")
    if phase in ("s", "f") and event.get("cat") == FLOW:
        return EventKind.LAUNCH if phase == "s" else EventKind.START
    if phase != "X":
        return EventKind.METADATA if phase == "M" else None
    name, arguments = str(event.get("name")), event.get("args")
    if name in OVERLAP and not arguments:
        return EventKind(OVERLAP[name])
    if name.startswith(("hcom_", "hccl_")):
        return EventKind.COLLECTIVE
    if isinstance(arguments, dict) and ("Task Type" in arguments or "Physic Stream Id" in arguments):
        return EventKind.DEVICE
    return EventKind.HOST


class StoredEvents:
    """The stored events so far; processes are distinguished at the end, when all their names are known."""

    def __init__(self) -> None:
        self.count = self._dropped = 0
        self.truncated = False
        self._base: int | None = None
        self._processes: dict[object, str] = {}
        self._overlap = {name: Intervals() for name in OVERLAP.values()}
        self._launched: dict[str, float] = {}  # launch time on the host, by flow ID
        self._starts: array[int] = array("q")  # start times on the device
        self._hosts: array[float] = array("d")  # the launch times of these starts
        self._waiting: list[tuple[str, int]] = []  # starts whose launches were not found yet
        self._long: list[tuple[float, float, str, object, str]] = []
        self._short: dict[str, int] = {}
        self._collectives: list[tuple[float, float, str]] = []
        self._device: array[int] = array("q")
        self._names: list[str] = []  # names of the events in `_device`

    def take(self, event: dict[str, Any]) -> None:
        """Store an event if it is needed."""
        self.count += 1
        kind = classify_event(event)
        if kind is EventKind.METADATA:
            arguments = event.get("args")
            if event.get("name") == "process_name" and isinstance(arguments, dict) and len(self._processes) < _MOST:
                self._processes[_process_key(event.get("pid"))] = str(arguments.get("name"))
        elif kind is not None and (at := self._parse_time(event.get("ts"))) is not None:
            if kind in (EventKind.LAUNCH, EventKind.START):
                self._take_flow(kind, str(event.get("id")), at)
            elif (length := _parse_length(event.get("dur"))) is not None:
                self._take_interval(kind, at, length, event)

    def _take_flow(self, kind: EventKind, number: str, at: float) -> None:
        if kind is EventKind.LAUNCH:
            if self._has_room(len(self._launched)):
                self._launched[number] = at
        elif self._has_room(len(self._starts) + len(self._waiting)):
            launched, start = self._launched.get(number), round(at * 1000)  # usually the launch was written before
            if launched is None:
                self._waiting.append((number, start))
            else:
                self._starts.append(start)
                self._hosts.append(launched)

    def _take_interval(self, kind: EventKind, at: float, length: float, event: dict[str, Any]) -> None:
        name = intern(str(event.get("name")))  # few distinct names, millions of times
        if kind is EventKind.HOST:
            if length < SHORTEST_US:
                if name in self._short or len(self._short) < _MOST_NAMES:
                    self._short[name] = self._short.get(name, 0) + 1
            elif self._has_room(len(self._long)):
                self._long.append((at, length, name[:200], _process_key(event.get("pid")), _place_of(event)))
        elif kind is EventKind.DEVICE:
            if len(self._names) < _MOST:
                self._device.append(round(at * 1000))
                self._names.append(name)
        elif kind is EventKind.COLLECTIVE:
            if self._has_room(len(self._collectives)):
                self._collectives.append((at, length, name))
        elif self._has_room(len(self._overlap[kind.value])):
            self._overlap[kind.value].start.append(at)
            self._overlap[kind.value].length.append(length)

    def _has_room(self, count: int) -> bool:
        self._dropped += count >= _MOST
        return count < _MOST

    def _parse_time(self, value: object) -> float | None:
        # A float has too few digits for a time stamp.
        whole, _, part = str(value).partition(".")
        if not (whole.isdecimal() and len(whole) < 20 and (not part or (part.isdecimal() and len(part) < 20))):  # noqa: PLR2004 - digits
            return None
        if self._base is None:
            self._base = int(whole)
        at = int(whole) - self._base + (float(f"0.{part}") if part else 0.0)
        return at if abs(at) < _FARTHEST else None

    def events_in_order(self) -> ProfileEvents:
        """Return all stored events, ordered by time."""
        host = [one for one in self._long if not self._processes.get(one[3], "").startswith(_NOT_HOST)]
        host.sort(key=lambda one: one[0])
        for number, at in self._waiting:
            if (launched := self._launched.get(number)) is not None:
                self._starts.append(at)
                self._hosts.append(launched)
        self._collectives.sort()
        for start, _, name in self._collectives:
            self._device.append(round(start * 1000))
            self._names.append(name)
        return ProfileEvents(
            base=self._base or 0,
            overlap={name: rows.in_order() for name, rows in self._overlap.items()},
            collectives=self._collectives,
            launches=order_moments(self._starts, self._hosts),
            host=make_intervals((start, length) for start, length, *_ in host),
            host_names=[one[2] for one in host],
            host_places=[one[4] for one in host],
            short=self._short,
            names=order_moments(self._device, self._names),
            events=self.count,
            dropped=self._dropped,
            truncated=self.truncated,
        )


def _place_of(event: dict[str, Any]) -> str:
    """Return the innermost line of the user's own code in an event's stack (torch_npu, ``with_stack=True``)."""
    arguments = event.get("args")
    stack = arguments.get("Call stack") if isinstance(arguments, dict) else None
    frames = stack[:_LONGEST_STACK].split(";") if isinstance(stack, str) else []
    lines = [frame.strip() for frame in frames if ".py(" in frame]
    return intern(next((line for line in lines if not LIBRARY.search(line)), "")[-200:])


def _process_key(value: object) -> object:
    return value if isinstance(value, int | str) else str(value)


def _parse_length(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type]  # other values raise
    except (TypeError, ValueError):
        return None
    return number if 0 <= number < 1e15 else None  # noqa: PLR2004 - 30 years
