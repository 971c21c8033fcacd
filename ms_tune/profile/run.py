"""Analyse Ascend profiles: find where the time of a step went per rank, collectives, gaps, and problems of the data.

A gap is a period in which a rank's compute queue is empty: during communication, before the host's launch, or after it.
Density refers to the compute queue alone: a waiting collective occupies its own stream, so all queues together look
dense even if the device does almost nothing.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.profile.result import CollectiveTime, Gap, ProfileReport, QueueState, RankTimes, rank_name
from ms_tune.profile.verdict import idle_window, judge_profile
from ms_tune.readers.lines import ByteCounter
from ms_tune.readers.profile_export import (
    CLUSTER,
    EVENTS,
    STEPS,
    RankProfile,
    export_files,
    find_profiles,
    is_framework_export,
    read_rank,
)
from ms_tune.readers.profile_tables import ProfileCollective, StepRow, is_point_to_point, read_steps
from ms_tune.readers.trace_events import Intervals, ProfileEvents
from ms_tune.records import Record
from ms_tune.text import msg

_EXACT = 1.0  # microseconds by which the parts of a step may differ from it
_SOME_RANKS = 8  # that are named


def analyse_profiles(
    *sources: str | Path, gaps: int = 10, on_bytes: Callable[[int, int], None] = lambda _done, _all: None
) -> ProfileReport:
    """Analyse why a step takes as long as it does, from the text exports of Ascend's profilers.

    Args:
        sources: Exports (``*_ascend_ms``, ``*_ascend_pt``), folders above them, or a cluster's step table.
        gaps: How many of the longest gaps to report.
        on_bytes: Called with the bytes of time lines read so far, and of all.

    Raises:
        TraceError: No export was found.

    Example::

        report = ms_tune.analyse_profiles("prof/")
        print(report.verdict.bound.value, {cause.value: share for cause, share in report.shares.items()})
    """
    paths = tuple(map(Path, sources))
    folders = [folder for path in paths for folder in find_profiles(path)]
    traces = [trace for folder in folders if folder.is_dir() for trace in export_files(folder, EVENTS)[:1]]
    counter = ByteCounter(sum(trace.stat().st_size for trace in traces), on_bytes)
    ranks: list[RankTimes] = []
    found: list[Gap] = []
    collectives: list[ProfileCollective] = []
    problems: list[Diagnostic] = []
    peers: set[int] = set()
    for folder in folders:
        if folder.is_file():
            ranks += _cluster_ranks(folder)
            continue
        profile = read_rank(folder, counter.add)
        ranks.append(_rank_times(profile))
        collectives += profile.collectives
        peers |= profile.peers
        problems += _rank_doubts(profile, ranks[-1])
        if profile.events is not None:
            found += longest_gaps(profile.events, profile.rank, gaps)
    found.sort(key=lambda gap: -gap.microseconds)
    problems += [*_missing_ranks(ranks, peers), *_profile_doubts(ranks, found)]
    ranks.sort(key=lambda one: (one.rank is None, one.rank or 0))
    shares, imbalance = _mean_shares(ranks), _compute_imbalance(ranks)
    return ProfileReport(
        sources=paths,
        ranks=tuple(ranks),
        shares=shares,
        verdict=judge_profile(ranks, shares, imbalance, found[:gaps]),
        gaps=tuple(found[:gaps]),
        collectives=tuple(_collectives_by_kind(collectives)),
        imbalance=imbalance,
        problems=tuple(problems),
    )


def _cluster_ranks(path: Path) -> Iterator[RankTimes]:
    rows: dict[str, list[StepRow]] = {}
    for row in read_steps(path):
        if row.kind == "rank":
            rows.setdefault(row.index, []).append(row)
    for index, steps in rows.items():
        bubble = sum(min(row.bubble, row.exposed) for row in steps)
        exposed = sum(row.exposed for row in steps)
        times = {
            QueueState.COMPUTE: sum(row.compute for row in steps),
            QueueState.COMMUNICATION: exposed - bubble,
            QueueState.BUBBLE: bubble,
            QueueState.FREE: sum(row.free for row in steps),
        }
        rank = int(index) if index.isdecimal() and len(index) < 7 else None  # noqa: PLR2004 - digits of a rank
        error = max((row.error_us for row in steps if row.error_us is not None), default=None)
        whole = sum(row.whole_us for row in steps)
        yield RankTimes(path, rank, "", whole, len(steps), times, error, {}, None, 0.0)


def _rank_times(profile: RankProfile) -> RankTimes:
    events = profile.events
    idle = idle_times(events) if events is not None else Idle(0.0, 0.0, 0.0)
    if events is not None and (events.overlap["compute"] or events.overlap["free"]):
        compute, exposed, free = (events.overlap[name].total_length for name in ("compute", "exposed", "free"))
    else:
        compute, exposed, free = (
            sum(getattr(row, name) for row in profile.steps) for name in ("compute", "exposed", "free")
        )
        if not profile.steps and profile.kernels is not None and profile.kernels.split is not None:
            compute, exposed, free = profile.kernels.split
        idle = Idle(0.0, 0.0, free)
    times = {QueueState.COMPUTE: compute, **_communication_times(profile, exposed)}
    times |= {QueueState.HOST: idle.host, QueueState.DEPENDENCY: idle.dependency, QueueState.FREE: idle.unlinked}
    whole = compute + exposed + free
    queues = {}
    if profile.kernels is not None and whole:
        queues = {name: (count, length / whole) for name, (count, length) in profile.kernels.streams.items()}
    return RankTimes(
        profile.folder,
        profile.rank,
        profile.level,
        whole,
        max(len(profile.steps), 1),
        {cause: time for cause, time in times.items() if time},
        _identity_error(profile),
        queues,
        profile.kernels,
        idle.linked_share,
        (events is not None and events.truncated) or (profile.kernels is not None and profile.kernels.cut_off),
        events is not None and bool(events.launches),
        _whole_capture(profile),
    )


def _whole_capture(profile: RankProfile) -> Diagnostic | None:
    rank = rank_name(profile.rank)
    if not profile.steps:
        # A table that cannot be read is reported as such.
        if (profile.folder / STEPS).is_file():
            return None
        kind = "no-steps" if is_framework_export(profile.folder) else "msprof"
        return Diagnostic.note("no-steps", msg(f"profile.problem.{kind}", rank=rank))
    if not any(row.step for row in profile.steps):
        return Diagnostic.note("unnamed-step", msg("profile.problem.unnamed-step", rank=rank))
    return None


def _identity_error(profile: RankProfile) -> float | None:
    """Return the difference between a step and the sum of its parts, in microseconds; None if unknown.

    MindSpore's table has no column with the step: there the parts of the time line are compared with its length.
    """
    if not profile.mindspore:
        return max((row.error_us for row in profile.steps if row.error_us is not None), default=None)
    if profile.events is None:
        return None
    parts = [profile.events.overlap[name] for name in ("compute", "exposed", "free")]
    ends = [start + length for part in parts for start, length in zip(part.start, part.length, strict=True)]
    if not ends:
        return None
    begin = min(part.start[0] for part in parts if len(part))
    return abs(sum(part.total_length for part in parts) - (max(ends) - begin))


def _communication_times(profile: RankProfile, exposed: float) -> dict[QueueState, float]:
    """Split the exposed communication into data transfer, waiting for stages and waiting for ranks, by its collectives.

    A waiting collective takes until the slowest rank is ready; its transit time is the time that it would take alone.
    """
    elapsed = sum(one.elapsed for one in profile.collectives)
    if not exposed:
        return {}
    if not elapsed:
        bubble = min(sum(row.bubble for row in profile.steps), exposed)
        return {QueueState.BUBBLE: bubble, QueueState.COMMUNICATION: exposed - bubble}
    peer_time = in_point_to_point(profile.events) if profile.events is not None else None
    both = {kind: [one for one in profile.collectives if one.point_to_point is kind] for kind in (True, False)}
    if not both[True]:
        peer_time = 0.0
    elif not both[False]:
        peer_time = exposed
    elif peer_time is None:
        peer_time = exposed * sum(one.elapsed for one in both[True]) / elapsed
    stages, ranks = min(peer_time, exposed), max(exposed - peer_time, 0.0)
    moving = stages * _transit_share(both[True])
    # The exporter's own bubble counts if it exceeds that of the sends and receives; MindSpore's includes hidden ones.
    exporters = 0.0 if profile.mindspore else sum(row.bubble for row in profile.steps)
    bubble = max(stages - moving, min(exporters, exposed))
    transfer = min(moving + ranks * _transit_share(both[False]), exposed - bubble)
    return {
        QueueState.TRANSFER: transfer,
        QueueState.BUBBLE: bubble,
        QueueState.WAITING: max(exposed - transfer - bubble, 0.0),
    }


def _transit_share(collectives: Sequence[ProfileCollective]) -> float:
    elapsed = sum(one.elapsed for one in collectives)
    return sum(min(one.transit, one.elapsed) for one in collectives) / elapsed if elapsed else 0.0


def _mean_shares(ranks: Sequence[RankTimes]) -> dict[QueueState, float]:
    counted = [rank for rank in ranks if rank.microseconds]
    if not counted:
        return {}
    shares = {cause: sum(rank.share_of(cause) for rank in counted) / len(counted) for cause in QueueState}
    return {cause: share for cause, share in shares.items() if share}


def _compute_imbalance(ranks: Sequence[RankTimes]) -> float | None:
    times = [rank.times_us.get(QueueState.COMPUTE, 0.0) / rank.steps for rank in ranks]
    if len(times) < 2 or not sum(times):  # noqa: PLR2004 - one rank has no other to compare with
        return None
    return max(times) * len(times) / sum(times)


def _collectives_by_kind(collectives: Sequence[ProfileCollective]) -> list[CollectiveTime]:
    found: dict[tuple[str, bool], list[float]] = {}
    for one in collectives:
        kind = found.setdefault((one.name.partition("__")[0], one.point_to_point), [0, 0.0, 0.0])
        kind[0] += 1
        kind[1] += one.elapsed
        kind[2] += min(one.transit, one.elapsed)
    times = [
        CollectiveTime(name, int(count), elapsed, transit, point_to_point)
        for (name, point_to_point), (count, elapsed, transit) in found.items()
    ]
    return sorted(times, key=lambda one: -one.elapsed_us)


def _rank_doubts(profile: RankProfile, times: RankTimes) -> Iterator[Diagnostic]:
    rank = rank_name(profile.rank)
    for error in profile.broken:
        name = getattr(error.path, "name", error.path)
        yield Diagnostic.note(
            "unreadable", msg("profile.problem.unreadable", rank=rank, file=name, error=error.message)
        )
    yield from _event_doubts(profile, rank)
    kernels = profile.kernels
    if times.whole_capture is not None:
        yield times.whole_capture
    if any(row.stage is None for row in profile.steps) and not profile.mindspore:
        yield Diagnostic.note("no-stage", msg("profile.problem.no-stage", rank=rank))
    if kernels is not None and kernels.cut_off:
        yield Diagnostic("truncated", Severity.ERROR, msg("profile.problem.kernels", rank=rank))
    if kernels is not None and kernels.count and not kernels.cores:
        yield Diagnostic.note("no-cores", msg("profile.problem.no-cores", rank=rank))
    if profile.stacks:
        yield Diagnostic.note("stacks", msg("profile.problem.stacks", rank=rank))
    yield from _identity_doubt(times)


def _event_doubts(profile: RankProfile, rank: object) -> Iterator[Diagnostic]:
    events = profile.events
    if events is None:
        # A time line that cannot be read is reported as such; the note on msprof's export says what gaps need.
        absent = not export_files(profile.folder, EVENTS)
        if absent and is_framework_export(profile.folder):
            yield Diagnostic.note("no-trace", msg("profile.problem.no-trace", rank=rank), msg("profile.capture"))
    elif events.truncated:
        yield Diagnostic("truncated", Severity.ERROR, msg("profile.problem.truncated", rank=rank, events=events.events))
    elif not events.launches:
        yield Diagnostic.note("no-launches", msg("profile.problem.no-launches", rank=rank), msg("profile.capture"))
    if events is not None and events.dropped:
        yield Diagnostic.note("events-left-out", msg("profile.problem.dropped", rank=rank, count=events.dropped))


def _missing_ranks(ranks: Sequence[RankTimes], peers: set[int]) -> Iterator[Diagnostic]:
    missing = sorted(peers - {rank.rank for rank in ranks})
    if missing and len(missing) < len(peers):
        names = ", ".join(map(str, missing[:_SOME_RANKS])) + (", …" if len(missing) > _SOME_RANKS else "")
        yield Diagnostic.note("missing-ranks", msg("profile.problem.missing", count=len(missing), ranks=names))


def _profile_doubts(ranks: Sequence[RankTimes], gaps: Sequence[Gap]) -> Iterator[Diagnostic]:
    numbers = [rank.rank for rank in ranks if rank.rank is not None]
    levels = sorted({rank.level for rank in ranks if rank.level})
    if len(levels) > 1:
        yield Diagnostic("levels", Severity.ERROR, msg("profile.problem.levels", levels=", ".join(levels)))
    if len(set(numbers)) < len(numbers):
        yield Diagnostic("several-captures", Severity.ERROR, msg("profile.problem.several"))
    for rank in ranks:
        if rank.folder.name == CLUSTER:
            yield from _identity_doubt(rank)
    window = idle_window(ranks, gaps)
    if window is not None:
        rank, gap = window
        share = f"{gap.microseconds / rank.microseconds:.0%}"
        text = msg("profile.problem.window", rank=rank_name(rank.rank), share=share, start=gap.timestamp_us)
        yield Diagnostic.note("idle-window", text)


def _identity_doubt(times: RankTimes) -> Iterator[Diagnostic]:
    if times.identity_error_us is not None and times.identity_error_us > _EXACT:
        text = msg("profile.problem.identity", rank=rank_name(times.rank), error=f"{times.identity_error_us:,.3f}")
        yield Diagnostic("identity", Severity.ERROR, text)


_LOOKED_AT = 50  # names before or after a gap, to find a compute kernel
_NEAR = 1000  # nanoseconds between the end of an idle time and the start of the kernel that ends it
_TOUCH = 0.01  # microseconds between intervals that belong together
# Tasks of a stream that compute nothing.
_NO_KERNEL = re.compile(r"[A-Z][A-Z_]+|\w+(?: \w+)+|Notify_\w+|Memcpy|Reduce_Inline|RDMASend")
_MOST_OF = 0.9  # of a gap: a host event that covers it explains the gap
_OWN = ("ProfilerStep", "PROFILING")


class Idle(Record):
    """Idle time in microseconds, by the cause of waiting; ``unlinked`` has no known cause."""

    host: float
    dependency: float
    unlinked: float

    @property
    def linked_share(self) -> float:
        """Return the share with a known cause."""
        whole = self.host + self.dependency + self.unlinked
        return (self.host + self.dependency) / whole if whole else 1.0


def idle_times(events: ProfileEvents) -> Idle:
    """Return the free time by cause: the host's before the launch of the next kernel, a dependency's after it."""
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
    """Return the exposed communication in sends and receives, but in no collective, in microseconds; None without any."""
    kinds: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for start, length, name in events.collectives:
        kinds[is_point_to_point(name)].append((start, start + length))
    if not kinds[True]:
        return None
    alone = list(_intersect_spans(_join_intervals(events.overlap["exposed"]), list(_join_spans(kinds[True]))))
    return _total_length(alone) - _total_length(_intersect_spans(alone, list(_join_spans(kinds[False]))))


def longest_gaps(events: ProfileEvents, rank: int | None, count: int) -> list[Gap]:
    """Return the longest times between two compute kernels."""
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
