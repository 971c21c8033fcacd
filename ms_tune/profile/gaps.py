"""Find the gaps of a rank's compute queue: their length, their cause, and the host's activity.

A gap is a period in which the compute queue is empty: during communication, before the host's launch, or after it.
"""

from __future__ import annotations

import heapq
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise

from ms_tune.profile.result import Gap, QueueState
from ms_tune.readers.profile_tables import is_point_to_point
from ms_tune.readers.trace_events import Intervals, ProfileEvents
from ms_tune.records import Record

_LOOKED_AT = 50  # names before or after a gap, to find a compute kernel
_NEAR = 1000  # nanoseconds between the end of an idle time and the start of the kernel that ends it
_TOUCH = 0.01  # microseconds between intervals that belong together
# Tasks of a stream that compute nothing.
_NO_KERNEL = re.compile(r"[A-Z][A-Z_]+|\w+(?: \w+)+|Notify_\w+|Memcpy|Reduce_Inline|RDMASend")
_MOST_OF = 0.9  # of a gap: a host event that covers it explains the gap


class Idle(Record):
    """Idle time in microseconds, by the cause of waiting; ``unlinked`` has no known cause."""

    host: float
    dependency: float
    unlinked: float

    @property
    def linked_share(self) -> float:
        """Return the share of the idle time that has a known cause."""
        whole = self.host + self.dependency + self.unlinked
        return (self.host + self.dependency) / whole if whole else 1.0


def idle_times(events: ProfileEvents) -> Idle:
    """Return the free time by cause: the host's before the launch of the next kernel, a dependency's after it."""
    host = dependency = unlinked = 0.0
    for _, length, late in late_spans(events):
        if late is None:
            unlinked += length
        else:
            host += late
            dependency += length - late
    return Idle(host, dependency, unlinked)


def late_spans(events: ProfileEvents) -> Iterator[tuple[float, float, float | None]]:
    """Yield start and length of each free time, and the part of it before the next launch (None if unknown)."""
    for start, length in zip(events.overlap["free"].start, events.overlap["free"].length, strict=True):
        launch = _launch_time(events, start + length)
        yield start, length, None if launch is None else min(max(launch - start, 0.0), length)


def in_point_to_point(events: ProfileEvents) -> float | None:
    """Return the microseconds of exposed sends and receives outside all collectives; None without sends."""
    kinds: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for start, length, name in events.collectives:
        kinds[is_point_to_point(name)].append((start, start + length))
    if not kinds[True]:
        return None
    alone = list(intersect_spans(join_intervals(events.overlap["exposed"]), list(join_spans(kinds[True]))))
    return total_length(alone) - total_length(intersect_spans(alone, list(join_spans(kinds[False]))))


def longest_gaps(events: ProfileEvents, rank: int | None, count: int) -> list[Gap]:
    """Return the longest times between two compute kernels."""
    compute = pairwise(join_intervals(events.overlap["compute"]))
    ends = heapq.nsmallest(count, ((end, after) for (_, end), (after, _) in compute), key=lambda gap: gap[0] - gap[1])
    exposed = list(join_intervals(events.overlap["exposed"]))
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
        # A late launch during a collective is not only the host's fault: the collective counts first.
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
    # Prefer the shortest event that covers the gap, else the one that covers most of it.
    best, name = (0.0, 0.0), ""
    for place in range(bisect_right(events.host.start, end)):
        begin, length = events.host.start[place], events.host.length[place]
        common = min(end, begin + length) - max(start, begin)
        if common <= 0 or events.host_names[place].startswith(("ProfilerStep", "PROFILING")):
            continue
        covered = min(common / (end - start), _MOST_OF)
        if (covered, -length) > best or not name:
            best, name = (covered, -length), events.host_names[place]
    return name


def join_intervals(intervals: Intervals) -> Iterator[tuple[float, float]]:
    """Yield the unions of intervals that touch, as starts and ends."""
    return join_spans((start, start + length) for start, length in zip(intervals.start, intervals.length, strict=True))


def join_spans(spans: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield the unions of ordered spans that touch."""
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


def intersect_spans(
    some: Iterable[tuple[float, float]], others: Sequence[tuple[float, float]]
) -> Iterator[tuple[float, float]]:
    """Yield the common parts of two ordered lists of disjoint spans."""
    place = 0
    for start, end in some:
        while place < len(others) and others[place][1] <= start:
            place += 1
        at = place
        while at < len(others) and others[at][0] < end:
            yield max(start, others[at][0]), min(end, others[at][1])
            at += 1


def subtract_spans(
    some: Iterable[tuple[float, float]], others: Sequence[tuple[float, float]]
) -> Iterator[tuple[float, float]]:
    """Yield the parts of one ordered list of disjoint spans outside another."""
    edges = [-math.inf, *chain.from_iterable(others), math.inf]
    return intersect_spans(some, list(zip(edges[::2], edges[1::2], strict=True)))


def total_length(spans: Iterable[tuple[float, float]]) -> float:
    """Return the sum of the lengths."""
    return sum(end - start for start, end in spans)
