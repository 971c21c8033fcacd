"""Store the events of a profile's time line: intervals and moments as columns, for millions of events.

An exporter writes millions of events in a few thousand layouts: events that differ only in digits have the same fields
at the same positions. For an event with a known layout, only the stored fields are decoded.
"""

from __future__ import annotations

import itertools
import json
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import itemgetter
from sys import intern
from typing import Any, Generic, NamedTuple, TypeVar

from ms_tune.records import Record

_T = TypeVar("_T")
OVERLAP = {"Computing": "compute", "Communication(Not Overlapped)": "exposed", "Free": "free", "Communication": "comm"}
FLOW = "HostToDevice"  # the flow from a launch on the host to its start on the device
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_MAX_LAYOUTS = 100_000  # layouts
_LONGEST = 2048  # bytes of an event; the layouts of longer ones are not kept
_WHOLE = 19  # digits of a time stamp before and after its point
_VALUES = {
    "ts": rb'"ts": ?"([0-9]{1,%d})(?:\.([0-9]{1,%d}))?"' % (_WHOLE, _WHOLE),
    "dur": rb'"dur": ?"?([0-9]{1,15}(?:\.[0-9]{0,20})?)"?(?=[,}]|$)',
    "name": rb'"name": ?"([^"\\]*)"',
    "id": rb'"id": ?"?((?<=")[^"\\]*(?=")|[0-9]+)"?(?=[,}]|$)',
    "pid": rb'"pid": ?"?((?<=")[^"\\]*(?=")|[0-9]+)"?(?=[,}]|$)',
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in _VALUES.items()}
_MOST = 2_000_000  # events of each kind; the others are only counted
_FARTHEST = 9e15  # microseconds from the base, so that nanoseconds fit into 64 bits: 285 years
_LONG = 20.0  # microseconds from which a host event can explain a gap
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

    NOTHING = "nothing"
    COMPUTE = "compute"
    EXPOSED = "exposed"
    FREE = "free"
    COMMUNICATION = "comm"
    COLLECTIVE = "collective"
    DEVICE = "device"  # the name of an event that starts on the device
    HOST = "host"  # name and process of a long event
    HOST_NAMED = "host-named"  # the same, if processes have names instead of numbers
    LAUNCH = "launch"  # the beginning of a flow
    START = "start"  # its end
    DECODED = "decoded"  # the whole event, by a JSON decoder


# Fields of each kind in addition to the time stamp.
STORED_FIELDS = {
    **dict.fromkeys((EventKind.COMPUTE, EventKind.EXPOSED, EventKind.FREE, EventKind.COMMUNICATION), ("dur",)),
    **dict.fromkeys((EventKind.COLLECTIVE, EventKind.DEVICE), ("dur", "name")),
    EventKind.HOST: ("dur", "name", "pid"),
    **dict.fromkeys((EventKind.LAUNCH, EventKind.START), ("id",)),
}


class EventLayout(NamedTuple):
    """The stored fields of events of one layout."""

    place: int  # index in `EventKind`; 0 is nothing
    # Extracts the values of an event as written: the parts of the time stamp, then the fields of the kind; for
    # `DECODED` the whole event.
    take: Callable[[bytes], tuple[bytes, ...]] = itemgetter(slice(None), slice(0))


_PLACES = {kind: place for place, kind in enumerate(EventKind)}


def classify_event(event: dict[str, Any]) -> EventKind:
    """Return the part of a decoded event to store."""
    phase = event.get("ph")
    if phase in ("s", "f") and event.get("cat") == FLOW:
        return EventKind.LAUNCH if phase == "s" else EventKind.START
    if phase != "X":
        return EventKind.DECODED if phase == "M" else EventKind.NOTHING
    name, arguments = str(event.get("name")), event.get("args")
    if name in OVERLAP and not arguments:
        return EventKind(OVERLAP[name])
    if name.startswith(("hcom_", "hccl_")):
        return EventKind.COLLECTIVE
    if isinstance(arguments, dict) and ("Task Type" in arguments or "Physic Stream Id" in arguments):
        return EventKind.DEVICE
    return EventKind.HOST


def learn_event_layout(text: bytes) -> EventLayout:
    """Return the layout of an event, a text without its braces; ValueError if it is invalid."""
    event = json.loads(b"{%b}" % text)
    kind = classify_event(event)
    if kind not in STORED_FIELDS:
        return EventLayout(_PLACES[kind])
    slices = []
    for name in ("ts", *STORED_FIELDS[kind]):
        found = _PATTERNS[name].search(text)
        # Fields that appear twice, or in another format, are left to the decoder.
        if found is None or text.count(b'"%b"' % name.encode()) > 1 or not _matches_text(event.get(name), found):
            return EventLayout(_PLACES[EventKind.DECODED])
        slices += [slice(*found.span(group)) for group in range(1, found.re.groups + 1)]
    if kind is EventKind.HOST and not isinstance(event["pid"], int):
        kind = EventKind.HOST_NAMED
    return EventLayout(_PLACES[kind], itemgetter(*slices))


def _matches_text(value: object, found: re.Match[bytes]) -> bool:
    written = b".".join(part for part in found.groups() if part is not None).decode("utf-8", "replace")
    return not isinstance(value, bool) and (
        value == written or (isinstance(value, int | float) and value == float(written))
    )


class StoredEvents:
    """The stored events so far; processes are distinguished at the end, when all their names are known."""

    def __init__(self) -> None:
        self.count = self._dropped = 0
        self.truncated = False
        self._layouts: dict[bytes, EventLayout] = {}  # those found so far
        self._base: int | None = None
        self._processes: dict[object, str] = {}
        self._overlap = {name: Intervals() for name in OVERLAP.values()}
        self._launched: dict[bytes, float] = {}  # launch time on the host, by flow ID
        self._starts: array[int] = array("q")  # start times on the device
        self._hosts: array[float] = array("d")  # the launch times of these starts
        self._waiting: list[tuple[bytes, int]] = []  # starts whose launches were not found yet
        self._long: list[tuple[float, float, str, object]] = []
        self._collectives: list[tuple[float, float, str]] = []
        self._device: array[int] = array("q")
        self._names: list[str] = []  # names of the events in `_device`

    def take_together(self, text: str, between: str) -> bool:
        """Process events with this text between any two; False, without any processed, if it also appears elsewhere."""
        if self._base is None or not text.startswith("{"):
            return False
        data, mark = text[1:-1].encode(), between.encode()
        events = data.split(mark)
        try:
            layouts = self._find_layouts(events, data.translate(_DIGITS).split(mark))
        except (ValueError, RecursionError):
            return False
        self.count += len(events)
        # Indexed by the positions of the kinds, as looking up an Enum is slow.
        rows: list[list[tuple[bytes, ...]]] = [[] for _ in EventKind]
        add = [some.append for some in rows]
        for event, (place, take) in zip(events, layouts, strict=True):
            if place:
                add[place](take(event))
        for kind, some in zip(EventKind, rows, strict=True):
            if some:
                self._store_rows(kind, some)
        return True

    def _find_layouts(self, events: list[bytes], keys: list[bytes]) -> list[EventLayout]:
        found = [*map(self._layouts.get, keys)]
        for place, layout in enumerate(found):
            if layout is None:
                found[place] = self._layouts.get(keys[place]) or self._learn_layout(events[place], keys[place])
        return found  # type: ignore[return-value]  # those that were None are now known

    def _learn_layout(self, event: bytes, key: bytes) -> EventLayout:
        layout = learn_event_layout(event)
        if len(self._layouts) >= _MAX_LAYOUTS:
            self._layouts.clear()
        if len(event) <= _LONGEST:
            self._layouts[key] = layout
        return layout

    def take(self, event: dict[str, Any]) -> None:
        """Process a decoded event."""
        self.count += 1
        self._take_decoded(event)

    def _store_rows(self, kind: EventKind, rows: Sequence[tuple[bytes, ...]]) -> None:
        if kind is EventKind.DECODED:
            for text, _ in rows:
                self._take_decoded(json.loads(b"{%b}" % text))
            return
        whole, part, *fields = zip(*rows, strict=True)
        base = self._base or 0
        times = [int(one) - base + float(b"0." + digits) for one, digits in zip(whole, part, strict=True)]
        if not -_FARTHEST < min(times) <= max(times) < _FARTHEST:
            near = [place for place, at in enumerate(times) if abs(at) < _FARTHEST]
            times, fields = [times[place] for place in near], [tuple(one[place] for place in near) for one in fields]
        if kind is EventKind.LAUNCH:
            self._add_launches(fields[0], times)
        elif kind is EventKind.START:
            self._add_starts(fields[0], times)
        elif kind in (EventKind.HOST, EventKind.HOST_NAMED):
            self._take_host_events(kind, times, fields)
        else:
            self._store_intervals(
                kind, times, map(float, fields[0]), _intern_names(fields[1]) if len(fields) > 1 else ()
            )

    def _store_intervals(
        self, kind: EventKind, times: Sequence[float], lengths: Iterable[float], names: Sequence[str]
    ) -> None:
        if kind is EventKind.DEVICE:
            room = max(_MOST - len(self._names), 0)
            self._device.extend([round(at * 1000) for at in times[:room]])
            self._names += names[:room]
        elif kind is EventKind.COLLECTIVE:
            self._collectives += self._cut_to_room(self._collectives, [*zip(times, lengths, names, strict=True)])
        else:
            during = self._overlap[kind.value]
            during.start.extend(self._cut_to_room(during.start, times))
            during.length.extend(itertools.islice(lengths, len(during.start) - len(during.length)))

    def _take_host_events(self, kind: EventKind, times: Sequence[float], fields: Sequence[Sequence[bytes]]) -> None:
        long = [
            (at, length, intern(name.decode()[:200]), int(process) if kind is EventKind.HOST else process.decode())
            for at, length, name, process in zip(times, map(float, fields[0]), fields[1], fields[2], strict=True)
            if length >= _LONG
        ]
        self._long += self._cut_to_room(self._long, long)

    def _take_decoded(self, event: dict[str, Any]) -> None:
        kind = classify_event(event)
        if kind is EventKind.DECODED:
            arguments = event.get("args")
            if event.get("name") == "process_name" and isinstance(arguments, dict) and len(self._processes) < _MOST:
                self._processes[_process_key(event.get("pid"))] = str(arguments.get("name"))
            return
        at = self._parse_time(event.get("ts")) if kind in STORED_FIELDS else None
        if at is None:
            return
        if kind in (EventKind.LAUNCH, EventKind.START):
            number = str(event.get("id")).encode("utf-8", "replace")
            (self._add_launches if kind is EventKind.LAUNCH else self._add_starts)([number], [at])
        elif (length := _parse_length(event.get("dur"))) is not None:
            name = intern(str(event.get("name")))  # few distinct names, millions of times
            if kind is not EventKind.HOST:
                self._store_intervals(kind, [at], [length], [name])
            elif length >= _LONG:
                self._long += self._cut_to_room(self._long, [(at, length, name[:200], _process_key(event.get("pid")))])

    def _add_launches(self, numbers: Sequence[bytes], times: Sequence[float]) -> None:
        room = len(self._cut_to_room(self._launched, numbers))
        self._launched.update(zip(numbers[:room], times[:room], strict=True))

    def _add_starts(self, numbers: Sequence[bytes], times: Sequence[float]) -> None:
        # usually the launch was written before
        room = max(_MOST - len(self._starts) - len(self._waiting), 0)
        self._dropped += max(len(numbers) - room, 0)
        starts = [round(at * 1000) for at in times[:room]]
        launched = [*map(self._launched.get, numbers[:room])]
        if None in launched:
            rows = [*zip(numbers, starts, launched, strict=False)]
            self._waiting += [(number, at) for number, at, host in rows if host is None]
            starts = [at for _, at, host in rows if host is not None]
        self._starts.extend(starts)
        self._hosts.extend([host for host in launched if host is not None])

    def _cut_to_room(self, kept: Sequence[object] | dict[bytes, float], more: Sequence[_T]) -> Sequence[_T]:
        room = max(_MOST - len(kept), 0)
        self._dropped += max(len(more) - room, 0)
        return more[:room]

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
            host=make_intervals((start, length) for start, length, _, _ in host),
            host_names=[name for _, _, name, _ in host],
            names=order_moments(self._device, self._names),
            events=self.count,
            dropped=self._dropped,
            truncated=self.truncated,
        )


def _intern_names(names: Iterable[bytes]) -> list[str]:
    # few distinct names, millions of times
    known = {name: intern(name.decode()) for name in {*names}}
    return [known[name] for name in names]


def _process_key(value: object) -> object:
    return value if isinstance(value, int | str) else str(value)


def _parse_length(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type]  # other values raise
    except (TypeError, ValueError):
        return None
    return number if 0 <= number < 1e15 else None  # noqa: PLR2004 - 30 years
