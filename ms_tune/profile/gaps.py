"""The times in which a rank's compute queue is empty: under communication, before the host's launch, or behind it.

Density is that of the compute queue alone: a collective occupies its own stream while it waits, so that all queues together look
dense where the device does next to nothing.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

from ms_tune.profile.result import Gap, QueueState
from ms_tune.readers.profile_tables import is_point_to_point
from ms_tune.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ms_tune.readers.trace_events import Intervals, ProfileEvents

_LOOKED_AT = 50  # names beside a gap, for one that computes
_NEAR = 1000  # nanoseconds between an idle time's end and the start of what ends it
_TOUCH = 0.01  # microseconds between intervals that belong together
# Tasks of a stream that compute nothing.
_NO_KERNEL = re.compile(r"[A-Z][A-Z_]+|\w+(?: \w+)+|Notify_\w+|Memcpy|Reduce_Inline|RDMASend")
_MOST_OF = 0.9  # of a gap, that a host event covers which explains it
_OWN = ("ProfilerStep", "PROFILING")


class Idle(Record):
    """Idle time in microseconds, by what it waited for; ``unlinked`` is what nothing tells about."""

    host: float
    dependency: float
    unlinked: float

    @property
    def linked_share(self) -> float:
        """The share that something tells about."""
        whole = self.host + self.dependency + self.unlinked
        return (self.host + self.dependency) / whole if whole else 1.0


def idle_times(events: ProfileEvents) -> Idle:
    """Free time: before the launch of what comes next it is the host's, behind it is a dependency's."""
    host = dependency = unlinked = 0.0
    for start, length in zip(events.overlap["free"].start, events.overlap["free"].length, strict=True):
        launch = _launch_time(events, start + length)
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
        kinds[is_point_to_point(name)].append((start, start + length))
    if not kinds[True]:
        return None
    alone = list(_intersect_spans(_join_intervals(events.overlap["exposed"]), list(_join_spans(kinds[True]))))
    return _total_length(alone) - _total_length(_intersect_spans(alone, list(_join_spans(kinds[False]))))


def longest_gaps(events: ProfileEvents, rank: int | None, count: int) -> list[Gap]:
    """The longest times between two kernels that compute."""
    compute = pairwise(_join_intervals(events.overlap["compute"]))
    ends = heapq.nsmallest(count, ((end, after) for (_, end), (after, _) in compute), key=lambda gap: gap[0] - gap[1])
    exposed = list(_join_intervals(events.overlap["exposed"]))
    return [_make_gap(events, rank, gap, exposed) for gap in ends]


def _make_gap(
    events: ProfileEvents, rank: int | None, gap: tuple[float, float], exposed: Sequence[tuple[float, float]]
) -> Gap:
    start, end = gap
    under = sum(max(min(end, stop) - max(start, begin), 0.0) for begin, stop in exposed if begin < end and stop > start)
    launch = _launch_time(events, end)
    late = min(max(launch - start, 0.0), end - start) if launch is not None else 0.0
    parts = {QueueState.COMMUNICATION: under}
    if launch is None:
        parts[QueueState.FREE] = end - start - under
    else:
        # What is launched late while a collective runs is not the host's fault alone: the collective comes first.
        parts[QueueState.HOST] = max(late - under, 0.0)
        parts[QueueState.DEPENDENCY] = max(end - start - under - parts[QueueState.HOST], 0.0)
    cause = max(parts, key=lambda one: parts[one])
    whole = events.base + int(start)
    stamp = f"{whole}.{round((start - int(start)) * 1000):03d}"
    names = events.names
    ended, begun = bisect_left(names.times, round(start * 1000)), bisect_left(names.times, round(end * 1000) - _NEAR)
    before = _first_kernel(names.values[max(ended - _LOOKED_AT, 0) : ended][::-1])
    after = _first_kernel(names.values[begun : begun + _LOOKED_AT])
    return Gap(rank, stamp, end - start, cause, before, after, _host_event(events, start, end))


def _launch_time(events: ProfileEvents, moment: float) -> float | None:
    wanted, starts = round(moment * 1000), events.launches.times
    near = range(bisect_left(starts, wanted - _NEAR), bisect_right(starts, wanted + _NEAR))
    nearest = min(near, key=lambda place: abs(starts[place] - wanted), default=None)
    return None if nearest is None else events.launches.values[nearest]


def _first_kernel(names: Sequence[str]) -> str:
    return next((name for name in names if not _NO_KERNEL.fullmatch(name)), "")


def _host_event(events: ProfileEvents, start: float, end: float) -> str:
    # the shortest event that covers the gap, or else the one that covers most of it
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


def _join_intervals(intervals: Intervals) -> Iterator[tuple[float, float]]:
    return _join_spans((start, start + length) for start, length in zip(intervals.start, intervals.length, strict=True))


def _join_spans(spans: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    begun, last = None, 0.0
    for start, end in spans:
        if begun is not None and start <= last + _TOUCH:
            last = max(last, end)
            continue
        if begun is not None:
            yield begun, last
        begun, last = start, end
    if begun is not None:
        yield begun, last


def _intersect_spans(
    some: Iterable[tuple[float, float]], others: Sequence[tuple[float, float]]
) -> Iterator[tuple[float, float]]:
    place = 0
    for start, end in some:
        while place < len(others) and others[place][1] <= start:
            place += 1
        at = place
        while at < len(others) and others[at][0] < end:
            yield max(start, others[at][0]), min(end, others[at][1])
            at += 1


def _total_length(spans: Iterable[tuple[float, float]]) -> float:
    return sum(end - start for start, end in spans)
