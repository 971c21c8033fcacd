"""Analyse Ascend profiles: find where the time of a step went per rank, collectives, gaps, and problems of the data.

Density refers to the compute queue alone: a waiting collective occupies its own stream, so all queues together look
dense even if the device does almost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.profile.causes import add_waiting, find_losses, list_unknown, name_causes
from ms_tune.profile.gaps import Idle, idle_times, in_point_to_point, longest_gaps
from ms_tune.profile.result import (
    Bound,
    CollectiveTime,
    Gap,
    Loss,
    ProfileReport,
    ProfileVerdict,
    QueueState,
    RankTimes,
    rank_name,
)
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
from ms_tune.readers.profile_tables import Link, ProfileCollective, StepRow, read_steps
from ms_tune.text import Message, msg

_EXACT = 1.0  # microseconds by which the parts of a step may differ from it
_SOME_RANKS = 8  # that are named
_MOST_LINKS = 1_000_000  # that are compared
_LEAD = 0.10  # of a step: shares with a smaller difference count as equal
_SPARSE = 0.30  # of a step: with less computing the compute queue is sparse
_MOST = 0.5  # of the idle time: a late host causes more
_SOME = 0.05  # of a step: a late host causes at least this much idle time
_QUARTER = 0.25  # of a rank's step: shorter waits do not count
_UNEVEN = 1.05  # longest computing time of a rank relative to the mean
_IDLE = (QueueState.HOST, QueueState.DEPENDENCY, QueueState.FREE)
_WINDOW = 0.5  # of the steps: a longer gap is an idle window
_BOUNDS = {
    QueueState.COMPUTE: Bound.OPERATOR,
    QueueState.TRANSFER: Bound.NETWORK,
    QueueState.WAITING: Bound.RANKS,
    QueueState.BUBBLE: Bound.IMBALANCE,
    QueueState.HOST: Bound.HOST,
}


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
    losses: list[tuple[RankTimes, Loss]] = []
    elapsed: dict[int | None, dict[str, float]] = {}
    frameworks: set[str] = set()
    links: list[tuple[RankTimes, Link]] = []
    peers: set[int] = set()
    for folder in folders:
        if folder.is_file():
            ranks += _cluster_ranks(folder)
            continue
        profile = read_rank(folder, counter.add)
        ranks.append(_rank_times(profile))
        collectives += profile.collectives
        peers |= profile.peers
        if ranks[-1].microseconds:
            losses += [(ranks[-1], loss) for loss in find_losses(profile, ranks[-1])]
            links += [(ranks[-1], link) for link in profile.links[: _MOST_LINKS - len(links)]]
        elapsed[profile.rank] = {one.key: one.elapsed for one in profile.collectives if not one.point_to_point}
        frameworks.add(_find_framework(profile))
        problems += _rank_doubts(profile, ranks[-1])
        if profile.events is not None:
            found += longest_gaps(profile.events, profile.rank, gaps)
    found.sort(key=lambda gap: -gap.microseconds)
    problems += [*_missing_ranks(ranks, peers), *_profile_doubts(ranks, found)]
    ranks.sort(key=lambda one: (one.rank is None, one.rank or 0))
    shares, imbalance = _mean_shares(ranks), _compute_imbalance(ranks)
    if QueueState.WAITING not in blame_host(shares, imbalance):
        losses = [(rank, add_waiting(loss, rank)) for rank, loss in losses]
    framework = next(iter(sorted(frameworks)), "torch")
    causes = name_causes(ranks, losses, elapsed, links, framework)
    rated = any(rank.kernels.rated for rank in ranks if rank.kernels is not None)
    packets = any(one.packets for one in collectives)
    return ProfileReport(
        sources=paths,
        ranks=tuple(ranks),
        shares=shares,
        verdict=judge_profile(ranks, shares, imbalance, found[:gaps], [cause.remedy for cause in causes]),
        causes=tuple(causes),
        unknown=tuple(list_unknown(shares, causes, framework, rated=rated, packets=packets)),
        gaps=tuple(found[:gaps]),
        collectives=tuple(_collectives_by_kind(collectives)),
        imbalance=imbalance,
        problems=tuple(problems),
    )


def _find_framework(profile: RankProfile) -> str:
    """Return the framework whose remedies are named: `mindformers`, `mindspeed`, `mindspore` or `torch`."""
    names = profile.events.host_names if profile.events is not None else []
    if profile.mindspore:
        return "mindformers" if any("mindformers" in name for name in names) else "mindspore"
    return "mindspeed" if any("megatron" in name or "mindspeed" in name for name in names) else "torch"


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


def judge_profile(
    ranks: Sequence[RankTimes],
    shares: dict[QueueState, float],
    imbalance: float | None,
    gaps: Sequence[Gap],
    remedies: Sequence[Message] = (),
) -> ProfileVerdict:
    """Return the verdict on a profile; its next steps are the remedies of the causes that were found."""
    lacking = any((rank.identity_error_us or 0.0) > _LEAD * rank.microseconds / rank.steps for rank in ranks)
    unsafe = "cut" if any(rank.cut_off for rank in ranks) else "parts" if lacking else ""
    if not shares or unsafe:
        return ProfileVerdict(Bound.UNKNOWN, (msg(f"profile.verdict.{unsafe or 'empty'}"),), (msg("profile.capture"),))
    window = idle_window(ranks, gaps)
    if window is not None and not window[1].host:
        return ProfileVerdict(
            Bound.UNKNOWN, (msg("profile.verdict.window"), *_share_evidence(shares)), (msg("profile.capture"),)
        )
    waits = _find_waiting_rank(ranks)
    blamed = blame_host(shares, imbalance)
    bound = _find_bound(blamed, imbalance, waits)
    largest = max(blamed, key=lambda cause: blamed[cause])
    if not all(rank.launches_known for rank in ranks):
        late = dict(shares)
        late[QueueState.HOST] = late.get(QueueState.HOST, 0.0) + late.pop(QueueState.FREE, 0.0)
        if _find_bound(blame_host(late, imbalance), imbalance, waits) is not bound:
            bound, largest = Bound.UNKNOWN, QueueState.FREE
    reasons = (*_bound_evidence(bound, shares, blamed), *_rank_evidence(ranks, imbalance, waits))
    steps = list(remedies)
    if bound is Bound.UNKNOWN:
        steps += [msg(f"profile.next.unknown.{largest.value}"), msg("profile.capture")]
    elif not steps:
        steps = [msg(f"profile.next.{bound.value}")]
    return ProfileVerdict(bound, (*reasons, *_share_evidence(shares)), tuple(steps))


def idle_window(ranks: Sequence[RankTimes], gaps: Sequence[Gap]) -> tuple[RankTimes, Gap] | None:
    """Return the longest idle time with its rank, if it takes most of that rank's steps."""
    longest = next((gap for gap in gaps if gap.cause in _IDLE), None)
    whose = next((rank for rank in ranks if longest is not None and rank.rank == longest.rank), None)
    if longest is None or whose is None or longest.microseconds <= _WINDOW * whose.microseconds:
        return None
    return whose, longest


def _find_bound(causes: dict[QueueState, float], imbalance: float | None, waits: RankTimes | None) -> Bound:
    first, *others = sorted(causes, key=lambda cause: -causes[cause])
    bound = _BOUNDS.get(first, Bound.UNKNOWN)
    close = bool(others) and causes[first] - causes[others[0]] < _LEAD
    if close and bound is not _BOUNDS.get(others[0], Bound.UNKNOWN):
        bound = Bound.MIXED
    uneven = imbalance is not None and imbalance > _UNEVEN
    # A mean hides that ranks with less computing wait for the one with the most.
    long = bound in (Bound.MIXED, Bound.OPERATOR) and causes.get(QueueState.WAITING, 0.0) >= _QUARTER
    if uneven and (long or bound is Bound.RANKS):
        bound = Bound.IMBALANCE
    if waits is not None and (bound in (Bound.MIXED, Bound.UNKNOWN) or (bound is Bound.OPERATOR and uneven)):
        bound = Bound.IMBALANCE
    return bound


def blame_host(shares: dict[QueueState, float], imbalance: float | None) -> dict[QueueState, float]:
    """Return the shares, with the waiting for other ranks counted as the host's if hosts are late on all of them."""
    causes = dict(shares)
    host, waiting = causes.get(QueueState.HOST, 0.0), causes.get(QueueState.WAITING, 0.0)
    idle = host + causes.get(QueueState.DEPENDENCY, 0.0) + causes.get(QueueState.FREE, 0.0)
    sparse = causes.get(QueueState.COMPUTE, 0.0) < _SPARSE
    even = imbalance is None or imbalance <= _UNEVEN
    if sparse and even and host > _MOST * idle and host >= _SOME and waiting:
        causes[QueueState.HOST] = host + causes.pop(QueueState.WAITING)
    return causes


def _find_waiting_rank(ranks: Sequence[RankTimes]) -> RankTimes | None:
    # Stages differ, which a mean hides.
    rank = max(ranks, key=lambda one: one.share_of(QueueState.BUBBLE))
    bubble = rank.share_of(QueueState.BUBBLE)
    others = max((rank.share_of(cause) for cause in rank.times_us if cause is not QueueState.BUBBLE), default=0.0)
    return rank if bubble >= _QUARTER and bubble - others >= _LEAD else None


def _share_evidence(shares: dict[QueueState, float]) -> Iterator[Message]:
    order = sorted(shares, key=lambda cause: -shares[cause])
    for cause in order[:3]:
        yield msg("profile.evidence.share", what=msg(f"profile.cause.{cause.value}"), share=f"{shares[cause]:.1%}")


def _bound_evidence(
    bound: Bound, shares: dict[QueueState, float], causes: dict[QueueState, float]
) -> Iterator[Message]:
    if bound is Bound.HOST:
        idle = sum(shares.get(cause, 0.0) for cause in (QueueState.HOST, QueueState.DEPENDENCY, QueueState.FREE))
        if idle:
            share = f"{shares.get(QueueState.HOST, 0.0) / idle:.0%}"
            yield msg("profile.evidence.late", share=share, compute=f"{shares.get(QueueState.COMPUTE, 0.0):.1%}")
        if QueueState.WAITING not in causes and QueueState.WAITING in shares:
            yield msg("profile.evidence.waits", share=f"{shares[QueueState.WAITING]:.1%}")
    if bound in (Bound.RANKS, Bound.HOST, Bound.IMBALANCE) and QueueState.TRANSFER in shares:
        yield msg("profile.evidence.not-network", share=f"{shares[QueueState.TRANSFER]:.1%}")


def _rank_evidence(ranks: Sequence[RankTimes], imbalance: float | None, waits: RankTimes | None) -> Iterator[Message]:
    if waits is not None:
        yield msg(
            "profile.evidence.bubble", rank=rank_name(waits.rank), share=f"{waits.share_of(QueueState.BUBBLE):.1%}"
        )
    if imbalance is not None:
        slowest = max(ranks, key=lambda rank: rank.times_us.get(QueueState.COMPUTE, 0.0) / rank.steps)
        yield msg(
            "profile.evidence.imbalance", ratio=f"{imbalance:.3f}", rank=rank_name(slowest.rank), ranks=len(ranks)
        )
