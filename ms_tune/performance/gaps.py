"""The times in which a rank's compute queue is empty: under communication, before the host's launch, or behind it.

Density is that of the compute queue alone: a collective occupies its own stream while it waits, so that all queues together look
dense where the device does next to nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ms_tune.performance.profile_result import Cause, Gap

if TYPE_CHECKING:
    from ms_tune.trace.profile_events import Intervals, ProfileEvents

_NEAR = 1000  # nanoseconds between an idle time's end and the start of what ends it
_TOUCH = 0.01  # microseconds between intervals that belong together
# Tasks of a stream that compute nothing.
_NO_KERNEL = re.compile(r"[A-Z][A-Z_]+|\w+(?: \w+)+|Notify_\w+|Memcpy|Reduce_Inline|RDMASend")
_POINT_TO_POINT = ("send", "receive", "recv")
_MOST_OF = 0.9  # of a gap, that a host event covers which explains it
_OWN = ("ProfilerStep", "PROFILING")


@dataclass(frozen=True, slots=True)
class Idle:
    """Idle time in microseconds, by what it waited for; ``unlinked`` is what nothing tells about."""

    host: float
    dependency: float
    unlinked: float

    @property
    def linked(self) -> float:
        """The share that something tells about."""
        whole = self.host + self.dependency + self.unlinked
        return (self.host + self.dependency) / whole if whole else 1.0


def idle_times(events: ProfileEvents) -> Idle:
    """Free time: before the launch of what comes next it is the host's, behind it is a dependency's."""
    starts = sorted(events.launches)
    host = dependency = unlinked = 0.0
    for start, length in zip(events.overlap["free"].start, events.overlap["free"].length, strict=True):
        launch = _launch(events, starts, start + length)
        if launch is None:
            unlinked += length
            continue
        late = min(max(launch - start, 0.0), length)
        host += late
        dependency += length - late
    return Idle(host, dependency, unlinked)


def in_point_to_point(events: ProfileEvents) -> float | None:
    """Microseconds of exposed communication in sends and receives and in no collective; None where the trace has none."""
    kinds: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for start, length, name in events.collectives:
        kinds[any(word in name.lower() for word in _POINT_TO_POINT)].append((start, start + length))
    if not kinds[True]:
        return None
    alone = _common(_joined(events.overlap["exposed"]), _union(kinds[True]))
    return _length(alone) - _length(_common(alone, _union(kinds[False])))


def longest_gaps(events: ProfileEvents, rank: int | None, count: int) -> list[Gap]:
    """The longest times between two kernels that compute."""
    compute = _joined(events.overlap["compute"])
    ends = [(end, after) for (_, end), (after, _) in pairwise(compute)]
    ends.sort(key=lambda gap: gap[0] - gap[1])
    starts, names = sorted(events.launches), sorted(events.names)
    exposed = _joined(events.overlap["exposed"])
    return [_gap(events, rank, gap, (starts, names, exposed)) for gap in ends[:count]]


def _gap(
    events: ProfileEvents,
    rank: int | None,
    gap: tuple[float, float],
    known: tuple[list[int], list[int], list[tuple[float, float]]],
) -> Gap:
    start, end = gap
    starts, names, exposed = known
    under = sum(max(min(end, stop) - max(start, begin), 0.0) for begin, stop in exposed if begin < end and stop > start)
    launch = _launch(events, starts, end)
    late = min(max(launch - start, 0.0), end - start) if launch is not None else 0.0
    parts = {Cause.COMMUNICATION: under}
    if launch is None:
        parts[Cause.FREE] = end - start - under
    else:
        # What is launched late while a collective runs is not the host's fault alone: the collective comes first.
        parts[Cause.HOST] = max(late - under, 0.0)
        parts[Cause.DEPENDENCY] = max(end - start - under - parts[Cause.HOST], 0.0)
    cause = max(parts, key=lambda one: parts[one])
    whole = events.base + int(start)
    stamp = f"{whole}.{round((start - int(start)) * 1000):03d}"
    before, after = _name_before(events, names, start), _name_at(events, names, end)
    return Gap(rank, stamp, end - start, cause, before, after, _host(events, start, end))


def _launch(events: ProfileEvents, starts: list[int], moment: float) -> float | None:
    """When what starts on the device at a moment was launched."""
    wanted = round(moment * 1000)
    place = bisect_left(starts, wanted - _NEAR)
    near = starts[place : bisect_right(starts, wanted + _NEAR)]
    if not near:
        return None
    return events.launches[min(near, key=lambda one: abs(one - wanted))]


def _name_before(events: ProfileEvents, names: list[int], moment: float) -> str:
    place = bisect_left(names, round(moment * 1000)) - 1
    for one in range(place, max(place - 50, -1), -1):
        if not _NO_KERNEL.fullmatch(events.names[names[one]]):
            return events.names[names[one]]
    return ""


def _name_at(events: ProfileEvents, names: list[int], moment: float) -> str:
    place = bisect_left(names, round(moment * 1000) - _NEAR)
    for one in range(place, min(place + 50, len(names))):
        if not _NO_KERNEL.fullmatch(events.names[names[one]]):
            return events.names[names[one]]
    return ""


def _host(events: ProfileEvents, start: float, end: float) -> str:
    """The shortest host event that covers a gap, or else the one that covers most of it."""
    best, name = (0.0, 0.0), ""
    for place in range(bisect_right(events.host.start, end)):
        begin, length = events.host.start[place], events.host.length[place]
        common = min(end, begin + length) - max(start, begin)
        if common <= 0 or events.host_names[place].startswith(_OWN):
            continue
        covered = min(common / (end - start), _MOST_OF)
        if (covered, -length) > best or not name:
            best, name = (covered, -length), events.host_names[place]
    return name


def _joined(intervals: Intervals) -> list[tuple[float, float]]:
    """Intervals that touch or overlap as one."""
    pairs = zip(intervals.start, intervals.length, strict=True)
    return _union([(start, start + length) for start, length in pairs])


def _union(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for start, end in spans:
        if found and start <= found[-1][1] + _TOUCH:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _common(some: list[tuple[float, float]], others: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """What two lists of spans, each in order and apart, have in common."""
    found, place = [], 0
    for start, end in some:
        while place < len(others) and others[place][1] <= start:
            place += 1
        at = place
        while at < len(others) and others[at][0] < end:
            found.append((max(start, others[at][0]), min(end, others[at][1])))
            at += 1
    return found


def _length(spans: list[tuple[float, float]]) -> float:
    return sum(end - start for start, end in spans)
