"""Reads ``trace_view.json`` of Ascend's profilers, however large: what decides about gaps, and nothing else.

torch_npu (``_ascend_pt``) writes one list in one line, MindSpore (``_ascend_ms``) the same, older ones an object with
``traceEvents``. It is read in blocks of whole events. Kept are the intervals of "Overlap Analysis", collectives, the flows from a launch on
the host to its start on the device, and host events that are long enough to cover a gap.
"""

from __future__ import annotations

import itertools
import json
from array import array
from dataclasses import dataclass, field
from sys import intern
from typing import TYPE_CHECKING

from ms_tune.errors import TraceError
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any, TextIO

_BLOCK = 4 * 1024**2  # characters read at once
_MOST_REST = 64 * 1024**2  # characters of one event
_MOST = 2_000_000  # of each kind of event; what is beyond is counted
_LONG = 20.0  # microseconds, from which a host event can explain a gap
_OVERLAP = {"Computing": "compute", "Communication(Not Overlapped)": "exposed", "Free": "free", "Communication": "comm"}
_NOT_HOST = (
    "Ascend Hardware",
    "HCCL",
    "Communication",
    "Overlap Analysis",
    "HBM",
    "LLC",
    "NPU MEM",
    "Stars Soc Info",
    "AI Core Freq",
)


@dataclass(frozen=True, slots=True)
class Intervals:
    """Starts and lengths in microseconds since the trace's base, in order of their starts."""

    start: array[float] = field(default_factory=lambda: array("d"))
    length: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.start)

    @property
    def total(self) -> float:
        """The sum of the lengths."""
        return sum(self.length)


@dataclass(frozen=True, slots=True)
class ProfileEvents:
    """What was kept of a trace.

    Attributes:
        base: Microseconds that all times count from: a whole number, as a float has too few digits for a time stamp.
        overlap: Intervals by what the device did: ``compute``, ``exposed`` (communication alone), ``free``, ``comm``.
        collectives: Collectives and sends, by their names.
        launches: When what starts on the device was launched on the host, by the start in nanoseconds since the base.
        host: Long events of the host; of equal length with ``host_names``.
        host_names: Their names.
        names: What starts on the device, by the start in nanoseconds since the base.
        events: How many events were read.
        dropped: Events beyond the most that are kept.
        truncated: The file ends within an event.
    """

    base: int
    overlap: dict[str, Intervals]
    collectives: list[tuple[float, float, str]]
    launches: dict[int, float]
    host: Intervals
    host_names: list[str]
    names: dict[int, str]
    events: int
    dropped: int
    truncated: bool


def read_events(path: Path, on_bytes: Callable[[int], None] = lambda _count: None) -> ProfileEvents:
    """Read a trace.

    Args:
        path: The file.
        on_bytes: Told how many characters more are read.

    Raises:
        TraceError: The file cannot be read, or is no such trace.
    """
    reader = _Reader()
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for event in _events(file, reader, on_bytes, path):
                reader.take(event)
    except OSError as error:
        raise TraceError(msg("trace.unreadable", detail=error.strerror or str(error)), path=path) from error
    if not reader.count and not reader.truncated:
        raise TraceError(msg("trace.profile.empty"), path=path)
    return reader.found()


def _events(file: TextIO, reader: _Reader, on_bytes: Callable[[int], None], path: Path) -> Iterator[dict[str, Any]]:
    """The events one by one, decoded a block at a time."""
    rest, begun = "", False
    while chunk := file.read(_BLOCK):
        on_bytes(len(chunk))
        rest += chunk
        if not begun:
            start = _start(rest)
            if start is None:
                if len(rest) > _BLOCK // 4:
                    raise TraceError(msg("trace.profile.not-trace"), path=path)
                continue
            rest, begun = rest[start:], True
        events, rest = _decoded(rest)
        yield from events
        if len(rest) > _MOST_REST:
            raise TraceError(msg("trace.profile.long-event"), path=path)
    if not begun:
        if rest.strip():
            raise TraceError(msg("trace.profile.not-trace"), path=path)
        return
    events, rest = _decoded(rest)
    yield from events
    reader.truncated = not rest.lstrip().startswith("]")


def _start(text: str) -> int | None:
    """Where the first event may stand: behind the list's bracket."""
    stripped = text.lstrip()
    if stripped.startswith("["):
        return text.index("[") + 1
    at = text.find('"traceEvents"')
    if stripped.startswith("{") and at >= 0:
        bracket = text.find("[", at)
        return bracket + 1 if bracket >= 0 else None
    return None


_DECODER = json.JSONDecoder()


def _decoded(text: str) -> tuple[list[dict[str, Any]], str]:
    """The whole events at the beginning of a text, and what is left."""
    end = max(text.rfind("}, {"), text.rfind("},{"), text.rfind("},\n"))
    if end > 0:
        head = text[: end + 1].lstrip().removeprefix(",")
        try:
            found = json.loads(f"[{head}]")
            return [event for event in found if isinstance(event, dict)], text[end + 1 :]
        except (ValueError, RecursionError):
            pass  # what looked like an end is inside a text: one by one
    events: list[dict[str, Any]] = []
    at = 0
    while True:
        while at < len(text) and text[at] in " ,\r\n\t":
            at += 1
        if at >= len(text) or text[at] != "{":
            return events, text[at:]
        try:
            event, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return events, text[at:]
        events.append(event)


class _Reader:
    """What is kept of the events met so far; processes are told apart at the end, when all their names are known."""

    def __init__(self) -> None:
        self.count = self.dropped = 0
        self.truncated = False
        self._base: int | None = None
        self._processes: dict[object, str] = {}
        self._overlap = {name: Intervals() for name in _OVERLAP.values()}
        self._starts: dict[str, float] = {}
        self._ends: list[tuple[str, int]] = []
        self._long: list[tuple[float, float, str, object]] = []
        self._collectives: list[tuple[float, float, str]] = []
        self._device: dict[int, str] = {}

    def take(self, event: dict[str, Any]) -> None:
        """Look at one event."""
        self.count += 1
        phase = event.get("ph")
        if phase == "X":
            self._interval(event)
        elif phase in ("s", "f") and event.get("cat") == "HostToDevice":
            self._flow(event, phase)
        elif phase == "M" and event.get("name") == "process_name":
            arguments = event.get("args")
            if isinstance(arguments, dict) and len(self._processes) < _MOST:
                self._processes[_key(event.get("pid"))] = str(arguments.get("name"))

    def _interval(self, event: dict[str, Any]) -> None:
        start, length = self._time(event.get("ts")), _number(event.get("dur"))
        if start is None or length is None:
            return
        name = intern(str(event.get("name")))  # a few names, millions of times
        kind = _OVERLAP.get(name)
        arguments = event.get("args")
        if kind is not None and not arguments:
            self._during(self._overlap[kind], start, length)
        elif name.startswith(("hcom_", "hccl_")):
            self._keep(self._collectives, (start, length, name))
        elif isinstance(arguments, dict) and ("Task Type" in arguments or "Physic Stream Id" in arguments):
            if len(self._device) < _MOST:
                self._device[round(start * 1000)] = name
        elif length >= _LONG:
            self._keep(self._long, (start, length, name[:200], _key(event.get("pid"))))

    def _during(self, kept: Intervals, start: float, length: float) -> None:
        if len(kept) < _MOST:
            kept.start.append(start)
            kept.length.append(length)
        else:
            self.dropped += 1

    def _flow(self, event: dict[str, Any], phase: str) -> None:
        at, number = self._time(event.get("ts")), str(event.get("id"))
        if at is None:
            return
        if phase == "f":
            self._keep(self._ends, (number, round(at * 1000)))
        elif len(self._starts) < _MOST:
            self._starts[number] = at
        else:
            self.dropped += 1

    def _keep(self, column: list[Any], value: object) -> None:
        if len(column) < _MOST:
            column.append(value)
        else:
            self.dropped += 1

    def _time(self, value: object) -> float | None:
        """Microseconds since the base, from digits that a float would not hold."""
        whole, _, part = str(value).partition(".")
        if not (whole.isdecimal() and len(whole) < 20 and (not part or (part.isdecimal() and len(part) < 20))):  # noqa: PLR2004 - digits
            return None
        if self._base is None:
            self._base = int(whole)
        return int(whole) - self._base + (float(f"0.{part}") if part else 0.0)

    def found(self) -> ProfileEvents:
        """All of it, in order of time."""
        host = [one for one in self._long if not self._processes.get(one[3], "").startswith(_NOT_HOST)]
        host.sort(key=lambda one: one[0])
        return ProfileEvents(
            base=self._base or 0,
            overlap={name: _in_order(rows) for name, rows in self._overlap.items()},
            collectives=sorted(self._collectives),
            launches={at: self._starts[number] for number, at in self._ends if number in self._starts},
            host=_columns([(start, length) for start, length, _, _ in host]),
            host_names=[name for _, _, name, _ in host],
            names=self._device | {round(start * 1000): name for start, _, name in self._collectives},
            events=self.count,
            dropped=self.dropped,
            truncated=self.truncated,
        )


def _key(value: object) -> object:
    return value if isinstance(value, int | str) else str(value)


def _in_order(rows: Intervals) -> Intervals:
    """By their starts, as exporters write them most of the time."""
    if all(sooner < later for sooner, later in itertools.pairwise(rows.start)):
        return rows
    return _columns(sorted(zip(rows.start, rows.length, strict=True)))


def _columns(rows: list[tuple[float, float]]) -> Intervals:
    return Intervals(array("d", [start for start, _ in rows]), array("d", [length for _, length in rows]))


def _number(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type]  # what is no number raises
    except (TypeError, ValueError):
        return None
    return number if 0 <= number < 1e15 else None  # noqa: PLR2004 - 30 years
