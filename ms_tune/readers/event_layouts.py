"""Where an event of a time line says what: events that differ in digits alone say the same in the same places.

An exporter writes millions of events and a few thousand of such layouts. Of an event whose layout is known nothing is decoded but what is kept.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

OVERLAP = {"Computing": "compute", "Communication(Not Overlapped)": "exposed", "Free": "free", "Communication": "comm"}
FLOW = "HostToDevice"  # the flow from a launch on the host to its start on the device
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_MOST_KNOWN = 100_000  # layouts
_LONGEST = 2048  # bytes of an event whose layout is kept
_WHOLE = 19  # digits of a time stamp before and behind its point
_VALUES = {
    "ts": rb'"ts": ?"([0-9]{1,%d})(?:\.([0-9]{1,%d}))?"' % (_WHOLE, _WHOLE),
    "dur": rb'"dur": ?"?([0-9]{1,15}(?:\.[0-9]{0,20})?)"?(?=[,}]|$)',
    "name": rb'"name": ?"([^"\\]*)"',
    "id": rb'"id": ?"?((?<=")[^"\\]*(?=")|[0-9]+)"?(?=[,}]|$)',
    "pid": rb'"pid": ?"?((?<=")[^"\\]*(?=")|[0-9]+)"?(?=[,}]|$)',
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in _VALUES.items()}


class EventKind(Enum):
    """What is kept of an event; what the device does has the names of :class:`~ms_tune.readers.time_line.ProfileEvents`."""

    NOTHING = "nothing"
    COMPUTE = "compute"
    EXPOSED = "exposed"
    FREE = "free"
    COMMUNICATION = "comm"
    COLLECTIVE = "collective"
    DEVICE = "device"  # the name of what starts on the device
    HOST = "host"  # of a long one: name and process
    HOST_NAMED = "host-named"  # the same, where processes have names in place of numbers
    LAUNCH = "launch"  # the beginning of a flow
    START = "start"  # its end
    DECODED = "decoded"  # all of it, by a decoder


# What each kind takes beside its time stamp.
KEPT = {
    **dict.fromkeys((EventKind.COMPUTE, EventKind.EXPOSED, EventKind.FREE, EventKind.COMMUNICATION), ("dur",)),
    **dict.fromkeys((EventKind.COLLECTIVE, EventKind.DEVICE), ("dur", "name")),
    EventKind.HOST: ("dur", "name", "pid"),
    **dict.fromkeys((EventKind.LAUNCH, EventKind.START), ("id",)),
}


class EventLayout(NamedTuple):
    """What is kept of events of one layout."""

    place: int  # of what is kept in `Kind`; 0 is nothing
    # From an event to its values as they are written: the time stamp before and behind its point, and what the kind
    # needs; for `Kind.DECODED` the event.
    take: Callable[[bytes], tuple[bytes, ...]] = itemgetter(slice(None), slice(0))


_PLACES = {kind: place for place, kind in enumerate(EventKind)}


class EventLayouts:
    """The layouts met so far."""

    def __init__(self) -> None:
        self._known: dict[bytes, EventLayout] = {}

    def of(self, events: list[bytes], keys: list[bytes]) -> list[EventLayout]:
        """The layout of each event.

        Args:
            events: Their texts, without their braces.
            keys: The same without the values of their digits: see :func:`without_digits`.

        Raises:
            ValueError: One is no event.
        """
        found = [*map(self._known.get, keys)]
        for place, layout in enumerate(found):
            if layout is None:
                found[place] = self._known.get(keys[place]) or self._learnt(events[place], keys[place])
        return found  # type: ignore[return-value]  # those that were None are learnt

    def _learnt(self, event: bytes, key: bytes) -> EventLayout:
        layout = layout_of(event)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        if len(event) <= _LONGEST:
            self._known[key] = layout
        return layout


def without_digits(text: bytes) -> bytes:
    """A text in which all digits are 0."""
    return text.translate(_DIGITS)


def kind_of(event: dict[str, Any]) -> EventKind:
    """What is kept of a decoded event."""
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


def layout_of(text: bytes) -> EventLayout:
    """The layout of an event.

    Args:
        text: Without its braces.

    Raises:
        ValueError: It is none.
    """
    event = json.loads(b"{%b}" % text)
    kind = kind_of(event)
    if kind not in KEPT:
        return EventLayout(_PLACES[kind])
    slices = []
    for name in ("ts", *KEPT[kind]):
        found = _PATTERNS[name].search(text)
        # What is written twice, or in another way, is left to the decoder.
        if found is None or text.count(b'"%b"' % name.encode()) > 1 or not _says(event.get(name), found):
            return EventLayout(_PLACES[EventKind.DECODED])
        slices += [slice(*found.span(group)) for group in range(1, found.re.groups + 1)]
    if kind is EventKind.HOST and not isinstance(event["pid"], int):
        kind = EventKind.HOST_NAMED
    return EventLayout(_PLACES[kind], itemgetter(*slices))


def _says(value: object, found: re.Match[bytes]) -> bool:
    """Whether what was found in the text is what the decoder found."""
    written = b".".join(part for part in found.groups() if part is not None).decode("utf-8", "replace")
    return not isinstance(value, bool) and (
        value == written or (isinstance(value, int | float) and value == float(written))
    )
