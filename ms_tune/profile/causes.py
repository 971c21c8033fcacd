"""Name the causes of a slow step, each with its evidence, its share, a remedy, and the most that it could save.

The causes of one rank are found while its profile is read (:func:`find_losses`), those between ranks at the end
(:func:`name_causes`). Thresholds, names of events and kernels, and their sources are in ``facts/data/profile_causes.json``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from ms_tune.facts.profile_causes import activities, least_share, limit, unknown_share
from ms_tune.profile.gaps import intersect_spans, join_spans, late_spans, subtract_spans, total_length
from ms_tune.profile.result import Cause, Loss, QueueState, RankTimes, rank_name
from ms_tune.readers.profile_export import RankProfile
from ms_tune.readers.profile_tables import InputQueue, Link, Packets
from ms_tune.readers.trace_events import LIBRARY, SHORTEST_US, ProfileEvents
from ms_tune.text import Message, msg, shorten, texts_of

Spans = list[tuple[float, float]]
_HOST_CAUSES = ("preempted", "dispatch")  # and the activities of the host
_SOON = 50.0  # microseconds between the end of a wait and the idle time that it causes
_OFTEN = 20  # events of one name, whose median is known
_LONG = 200.0  # microseconds: a shorter host event is not an outlier
_SMALL_GAP = 1000.0  # microseconds: between small kernels, gaps are shorter
_SMALL_KERNEL = 50.0  # microseconds, the median
_MOST = 0.5  # of the idle time
_LAUNCH = "node@launch"  # the call that launches a kernel
_CLEAR = 0.6  # of all waiting, for one rank
_LATE_PARTS = {"compute": (QueueState.COMPUTE,), "idle": (QueueState.HOST, QueueState.DEPENDENCY, QueueState.FREE)}
_UNEQUAL = 1.1  # times the shortest computing time
_LONGEST_NAME = 60  # characters of a host event, a kernel with its shapes
_LINKS = 3  # of which one can be slow
_MB = (10**6, 1024**2)  # bytes of a megabyte, as exporters write it
_SOME = 0.2  # of the transfer time, as in packet.yaml of msprof-analyze 26.2
_NEAR = 0.95  # of a link's speed


def find_losses(profile: RankProfile, times: RankTimes) -> list[Loss]:
    """Return the losses of one rank that other ranks do not cause."""
    found = [*_kernel_losses(profile, times), *link_losses(profile, times)]
    if profile.events is not None:
        found += _host_losses(profile, profile.events, times)
    else:
        found += _table_losses(profile, times)
    by_cause: dict[str, Loss] = {}
    for loss in found:
        # A kernel that waits for data and the host's events show the same cause: the larger counts.
        by_cause[loss.cause] = max(loss, by_cause.get(loss.cause, loss), key=lambda one: one.saves_us)
    return list(by_cause.values())


def _kernel_losses(profile: RankProfile, times: RankTimes) -> Iterator[Loss]:
    for cause, loss in profile.kernels.losses.items() if profile.kernels is not None else ():
        text = "input-kernel" if cause == "input" else cause
        params = {"count": loss.count, "example": shorten(loss.example, _LONGEST_NAME), "detail": loss.detail}
        evidence = msg(f"cause.evidence.{text}", rank=rank_name(times.rank), **params)
        yield Loss(cause, loss.microseconds, loss.saves_us, evidence)


def _host_losses(profile: RankProfile, events: ProfileEvents, times: RankTimes) -> Iterator[Loss]:
    """Divide the idle time before launches among the activities of the host; an idle time counts once."""
    rank = rank_name(times.rank)
    spans = [
        (start, start + (length if late is None else late))
        for start, length, late in late_spans(events)
        if late is None or late > 0
    ]
    before = list(_before_steps(events))
    spans = list(join_spans(sorted([*spans, *before])))
    causes = {name: _activity_of(name) for name in set(events.host_names)}
    for activity in activities():
        places = [place for place, name in enumerate(events.host_names) if causes[name] == activity.cause]
        busy = list(join_spans(_spans_of(events, places)))
        if activity.idle_after:  # before a step, copies of its data are waited for
            spans = list(subtract_spans(spans, before))
        hit = list(intersect_spans(spans, busy))
        if activity.idle_after:
            hit = list(join_spans(sorted([*hit, *_begun_within(spans, busy)])))
        spans = list(subtract_spans(spans, hit))
        if idle := total_length(hit):
            event = _longest_event(events, places, hit)
            name, place = _event_name(events, event), _find_place(events, event)
            evidence = msg("cause.evidence.host", rank=rank, count=len(places), event=name, place=place)
            yield Loss(activity.cause, idle, idle, evidence)
    if (queue := profile.input_queue) is not None:
        yield from _queue_losses(queue, total_length(spans), times)
        return
    outliers = list(_find_outliers(events, causes))
    hit = list(intersect_spans(spans, list(join_spans(_spans_of(events, outliers)))))
    if idle := total_length(hit):
        name = _event_name(events, _longest_event(events, outliers, hit))
        evidence = msg("cause.evidence.preempted", rank=rank, count=len(outliers), event=name)
        yield Loss("preempted", idle, idle, evidence)
    if events.launches:
        yield from _dispatch_losses(list(subtract_spans(spans, hit)), times)


def _queue_losses(queue: InputQueue, idle: float, times: RankTimes) -> Iterator[Loss]:
    if idle:
        params = {"empty": f"{queue.empty:.0%}", "event": queue.name, "count": queue.workers}
        yield Loss("input", idle, idle, msg("cause.evidence.input-queue", rank=rank_name(times.rank), **params))


def _before_steps(events: ProfileEvents) -> Iterator[tuple[float, float]]:
    """Yield the idle time from each step's beginning on the host to its first task, which no table includes."""
    busy = sorted([*events.overlap["compute"].start, *events.overlap["exposed"].start])
    for name, start in zip(events.host_names, events.host.start, strict=True):
        place = bisect_right(busy, start)
        if name.startswith("ProfilerStep") and place < len(busy):
            yield start, busy[place]


def _table_losses(profile: RankProfile, times: RankTimes) -> Iterator[Loss]:
    """Yield the losses that tables show without a time line: the host's calls to CANN, and the queue of its data."""
    idle = sum(times.times_us.get(state, 0.0) for state in (QueueState.HOST, QueueState.FREE))
    if (queue := profile.input_queue) is not None:
        yield from _queue_losses(queue, idle, times)
    for activity in activities():
        calls = [call for call in profile.calls if _activity_of(call.name) == activity.cause]
        if calls and activity.cause != "synchronize":  # which waits for the device whether or not it is idle
            spent, longest = sum(call.microseconds for call in calls), max(calls, key=lambda call: call.longest_us)
            count, event = sum(call.count for call in calls), f"{longest.name} ({longest.longest_us / 1000:,.3g} ms)"
            evidence = msg("cause.evidence.host", rank=rank_name(times.rank), count=count, event=event, place="")
            yield Loss(activity.cause, min(spent, idle), min(spent, idle), evidence)
    if sum(call.microseconds for call in profile.calls if call.name.lower() == _LAUNCH) > _MOST * times.microseconds:
        yield from _dispatch_losses([(0.0, idle)], times, small=True)


def _is_of_host(cause: str) -> bool:
    return cause in _HOST_CAUSES or any(one.cause == cause for one in activities())


def _activity_of(name: str) -> str:
    return next((one.cause for one in activities() if one.names.search(name)), "")


def _spans_of(events: ProfileEvents, places: Sequence[int]) -> Iterator[tuple[float, float]]:
    for place in places:
        yield events.host.start[place], events.host.start[place] + events.host.length[place]


def _begun_within(spans: Spans, waits: Spans) -> Iterator[tuple[float, float]]:
    for span in spans:
        place = bisect_right(waits, (span[0], math.inf)) - 1
        if place >= 0 and span[0] <= waits[place][1] + _SOON:
            yield span


def _find_outliers(events: ProfileEvents, causes: Mapping[str, str]) -> Iterator[int]:
    """Yield the host events that take far longer than others of their name, in one thread's own time."""
    lengths: dict[str, list[float]] = defaultdict(list)
    for name, length in zip(events.host_names, events.host.length, strict=True):
        lengths[name].append(length)
    usual = {}
    for name, some in lengths.items():
        short = events.short.get(name, 0)
        if len(some) + short >= _OFTEN and not causes[name] and ".py(" not in name and not name.startswith("<"):
            usual[name] = median([*some, *[0.0] * short]) or SHORTEST_US
    for place, (name, length) in enumerate(zip(events.host_names, events.host.length, strict=True)):
        if name in usual and length > max(limit("launch_outlier") * usual[name], _LONG):
            yield place


def _longest_event(events: ProfileEvents, places: Sequence[int], spans: Spans) -> int:
    def meets(place: int) -> bool:
        start, end = next(_spans_of(events, [place]))
        after = bisect_right(spans, (end + _SOON, math.inf)) - 1
        return after >= 0 and spans[after][1] > start

    return next(
        (place for place in sorted(places, key=lambda one: -events.host.length[one]) if meets(place)), places[0]
    )


def _event_name(events: ProfileEvents, place: int) -> str:
    return f"{_shorten_place(events.host_names[place])} ({events.host.length[place] / 1000:,.3g} ms)"


def _find_place(events: ProfileEvents, place: int) -> Message | str:
    """Return the line of the user's code in which a host event happens, if stacks were captured."""
    line = events.host_places[place]
    end = events.host.start[place] + events.host.length[place]
    for outer in range(place - 1, -1, -1) if not line else ():
        name = events.host_names[outer]
        if ".py(" in name and events.host.start[outer] + events.host.length[outer] >= end and not LIBRARY.search(name):
            line = name
            break
    return msg("cause.at", place=_shorten_place(line)) if line else ""


def _shorten_place(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"…{name[1 - _LONGEST_NAME :]}"


def _dispatch_losses(spans: Spans, times: RankTimes, *, small: bool = False) -> Iterator[Loss]:
    idle, kernels = total_length(spans), times.kernels
    short = sum(end - start for start, end in spans if small or end - start < _SMALL_GAP)
    if kernels is None or not kernels.count or short <= _MOST * idle:
        return
    if kernels.median_us <= _SMALL_KERNEL:
        each = (kernels.microseconds + idle) / kernels.count
        params = {"count": kernels.count, "median": f"{kernels.median_us:.3g}", "each": f"{each:.3g}"}
        yield Loss("dispatch", idle, idle, msg("cause.evidence.dispatch", rank=rank_name(times.rank), **params))


def add_waiting(loss: Loss, times: RankTimes) -> Loss:
    """Return a host's loss, adding the waiting for other ranks: their hosts are late for the same reason."""
    waiting = times.times_us.get(QueueState.WAITING, 0.0) if _is_of_host(loss.cause) else 0.0
    return loss._replace(saves_us=loss.saves_us + waiting)


def name_causes(
    ranks: Sequence[RankTimes],
    losses: Sequence[tuple[RankTimes, Loss]],
    collectives: Mapping[int | None, Mapping[str, float]],
    links: Sequence[tuple[RankTimes, Link]],
    framework: str,
) -> list[Cause]:
    """Return the causes that take enough of a step, the largest saving first.

    ``collectives`` are microseconds of each collective, by its name with its group, by rank; ``framework`` (`torch`,
    `mindspeed`, `mindspore` or `mindformers`) decides whose remedies are named.
    """
    worst: dict[str, tuple[RankTimes, Loss]] = {}
    late = [*_late_losses(ranks, collectives)]
    single = slow_link_losses(links)
    usual = [(rank, loss) for rank, loss in losses if not (single and loss.cause == "slow-network")]
    for rank, loss in [*usual, *single, *(late or _stage_losses(ranks))]:
        known = worst.get(loss.cause)
        if known is None or loss.saves_us / rank.microseconds > known[1].saves_us / known[0].microseconds:
            worst[loss.cause] = rank, loss
    found = []
    for rank, loss in worst.values():
        # Kernels of several queues can take longer than the step.
        share, saves = (min(time / rank.microseconds, 1.0) for time in (loss.microseconds, loss.saves_us))
        if min(share, saves) >= least_share(loss.cause):
            name = msg(f"cause.name.{loss.cause}", rank=rank_name(loss.late))
            parts = {"name": name, "share": f"{share:.1%}", "saves": f"{saves:.1%}", "evidence": loss.evidence}
            remedy = choose_remedy(loss.cause, framework)
            found.append(Cause(loss.cause, rank.rank, share, saves, msg("cause.line", **parts), remedy))
    return sorted(found, key=lambda one: -one.saves)


def list_unknown(
    shares: Mapping[QueueState, float], causes: Sequence[Cause], framework: str, *, rated: bool, packets: bool
) -> Iterator[Message]:
    """Yield the data to capture if a large share of the step has no named cause.

    ``rated``: kernels have the ratios of pipelines; ``packets``: collectives have their packets.
    """
    named = {cause.cause for cause in causes}
    idle = shares.get(QueueState.HOST, 0.0) + shares.get(QueueState.FREE, 0.0)
    idle -= sum(cause.share for cause in causes if _is_of_host(cause.cause))
    if idle >= unknown_share("host"):
        yield choose_remedy("unknown-host", framework)
    if shares.get(QueueState.COMPUTE, 0.0) >= unknown_share("operators") and not rated:
        yield msg("cause.unknown.operators")
    waits = shares.get(QueueState.WAITING, 0.0) >= unknown_share("ranks")
    if waits and not any(name.startswith("late-") for name in named):
        yield msg("cause.unknown.ranks")
    if shares.get(QueueState.COMMUNICATION, 0.0) >= unknown_share("network") and not packets:
        yield msg("cause.unknown.network")


def choose_remedy(cause: str, framework: str) -> Message:
    """Return the remedy for a framework, else for its base, else for any."""
    base = {"mindspeed": "torch", "mindformers": "mindspore"}.get(framework, framework)
    texts = texts_of("cause")
    ids = [f"cause.remedy.{cause}.{name}" for name in (framework, base, "any")]
    return msg(next(text_id for text_id in ids if text_id in texts))


def _late_losses(
    ranks: Sequence[RankTimes], collectives: Mapping[int | None, Mapping[str, float]]
) -> Iterator[tuple[RankTimes, Loss]]:
    """Yield the loss of waiting for a late rank, which starts last in most collectives and waits little itself."""
    by_rank = {rank.rank: rank for rank in ranks if rank.rank is not None and rank.microseconds}
    shared: dict[str, dict[int, float]] = defaultdict(dict)
    for number, elapsed in collectives.items():
        for name, length in elapsed.items() if number in by_rank else ():
            shared[name][number or 0] = length
    waits: dict[int, float] = defaultdict(float)
    counts: Counter[int] = Counter()
    peers: dict[int, set[int]] = defaultdict(set)
    for lengths in shared.values():
        if len(lengths) > 1:
            last = min(lengths, key=lambda one: lengths[one])
            longer = sum(lengths.values()) - len(lengths) * lengths[last]
            waits[last] += longer / (len(lengths) - 1)
            counts[last] += 1
            peers[last].update(lengths)
    if not waits or max(waits.values()) < _CLEAR * sum(waits.values()):
        return
    last = max(waits, key=lambda one: waits[one])
    if waits[last] < least_share("late-rank") * by_rank[last].microseconds:
        return
    late, others = by_rank[last], [by_rank[number] for number in peers[last] if number != last]
    wait = waits[last] / late.steps
    excess = {
        kind: _time_per_step([late], states) - _time_per_step(others, states) for kind, states in _LATE_PARTS.items()
    }
    kind = max(excess, key=lambda one: excess[one])
    cause = "late-rank" if excess[kind] < _MOST * wait else "late-host"
    if cause == "late-host" and kind == "compute":
        cause = "late-device" if _same_kernels(late, others[0]) else "late-work"
    params = {name: f"{value / 1000:,.3g}" for name, value in {"wait": wait, **excess}.items()}
    evidence = msg("cause.evidence.late", rank=last, count=counts[last], **params)
    yield others[0], Loss(cause, wait * others[0].steps, wait * others[0].steps, evidence, last)


def _time_per_step(ranks: Sequence[RankTimes], states: Sequence[QueueState]) -> float:
    return sum(sum(rank.times_us.get(state, 0.0) for state in states) / rank.steps for rank in ranks) / len(ranks)


def _same_kernels(one: RankTimes, other: RankTimes) -> bool:
    both = [rank.kernels for rank in (one, other) if rank.kernels is not None]
    counts = [sorted((kind.name, kind.core, kind.count) for kind in kernels.types) for kernels in both]
    return len(counts) > 1 and counts[0] == counts[1]


def _stage_losses(ranks: Sequence[RankTimes]) -> Iterator[tuple[RankTimes, Loss]]:
    counted = [rank for rank in ranks if rank.microseconds]
    if not any(rank.share_of(QueueState.BUBBLE) >= least_share("stages") for rank in counted):
        return
    ordered = sorted(counted, key=lambda rank: _time_per_step([rank], [QueueState.COMPUTE]))
    fast, slow = ordered[0], ordered[-1]
    least, average, most = (_time_per_step(some, [QueueState.COMPUTE]) for some in ([fast], counted, [slow]))
    if most <= _UNEQUAL * least:
        return
    saves = most - average
    params = {"rank": rank_name(slow.rank), "other": rank_name(fast.rank)}
    params |= {"compute": f"{most / 1000:,.3g}", "least": f"{least / 1000:,.3g}"}
    yield slow, Loss("stages", saves * slow.steps, saves * slow.steps, msg("cause.evidence.stages", **params))


def link_losses(profile: RankProfile, times: RankTimes) -> Iterator[Loss]:
    """Yield the losses of the exposed transfers of a rank; each transfer has one cause."""
    exposed, rank = _exposed_us(times), rank_name(times.rank)
    packets = [size for one in profile.collectives for size in one.packets]
    whole = sum(size.microseconds for size in packets)
    for transport in sorted({size.transport for size in packets}):
        some = [size for size in packets if size.transport == transport]
        if found := _judge_packets(some, hidden=_is_hidden(profile)):
            cause, bad, usual = found
            megabytes, time = sum(one.megabytes * one.count for one in bad), sum(one.microseconds for one in bad)
            count, speed = sum(one.count for one in bad), megabytes / time * 1000
            params = {"transport": transport, "count": f"{count:,}", "size": f"{megabytes / count:.2g}"}
            params |= {"speed": f"{speed:.3g}", "usual": f"{usual:.3g}"}
            part = exposed * time / whole
            text = f"{cause}-link" if cause == "contention" else cause
            yield Loss(cause, part, part * (1 - speed / usual), msg(f"cause.evidence.{text}", rank=rank, **params))


def _judge_packets(packets: Sequence[Packets], *, hidden: bool) -> tuple[str, Sequence[Packets], float] | None:
    """Return the cause of slow packets, these packets, and the usual speed in GB/s: the link's, or that of the others."""
    transport, time = packets[0].transport, sum(one.microseconds for one in packets)
    small = [one for one in packets if one.megabytes < limit("small_mb", transport)]
    align = limit("align_bytes")
    unaligned = [one for one in packets if one not in small and all(round(one.megabytes * mb) % align for mb in _MB)]
    alone = "contention" if hidden else "slow-network"
    for cause, bad, share in (
        ("small-packets", small, limit("slow_link")),
        ("unaligned", unaligned, _NEAR),
        (alone, packets, limit("slow_link")),
    ):
        others = [one for one in packets if one not in bad]
        usual = max(limit("link_gb_s", transport), _packet_speed(others))
        if sum(one.microseconds for one in bad) > _SOME * time and _packet_speed(bad) < share * usual:
            return cause, bad, usual
    return None


def _packet_speed(packets: Sequence[Packets]) -> float:
    time = sum(one.microseconds for one in packets)
    return sum(one.megabytes * one.count for one in packets) / time * 1000 if time else 0.0


def _is_hidden(profile: RankProfile) -> bool:
    """Return whether the device computes during most of the communication."""
    whole = sum(row.communication for row in profile.steps)
    return sum(row.communication - row.exposed for row in profile.steps) > _MOST * whole


def slow_link_losses(links: Sequence[tuple[RankTimes, Link]]) -> list[tuple[RankTimes, Loss]]:
    """Return the rank with a link that is slower than the others of its group, or of its kind if the group has few."""
    groups: dict[tuple[str, str], list[tuple[RankTimes, Link]]] = {}
    for one in links:
        groups.setdefault((one[1].group, one[1].transport), []).append(one)
    few: dict[tuple[str, str], list[tuple[RankTimes, Link]]] = {}
    for (group, transport), some in groups.items():
        few.setdefault((group if len(some) >= _LINKS else "", transport), []).extend(some)
    found = []
    for some in few.values():
        large = max(link.megabytes for _, link in some) * _MOST
        full = [one for one in some if one[1].megabytes >= max(large, limit("small_mb", one[1].transport))]
        usual = median(_speed(link) for _, link in full) if len(full) >= _LINKS else 0.0
        found += [(rank, link, usual) for rank, link in full if _speed(link) < limit("slow_link") * usual]
    if not found:
        return []
    # A collective is as fast as its slowest link.
    rank, link, usual = min(found, key=lambda one: _speed(one[1]) / one[2])
    exposed = _exposed_us(rank)
    params = {"transport": link.transport, "pair": link.pair, "speed": f"{_speed(link):.3g}", "usual": f"{usual:.3g}"}
    evidence = msg("cause.evidence.slow-link", rank=rank_name(rank.rank), **params)
    return [(rank, Loss("slow-link", exposed, exposed * (1 - _speed(link) / usual), evidence))]


def _exposed_us(times: RankTimes) -> float:
    return sum(times.times_us.get(state, 0.0) for state in (QueueState.TRANSFER, QueueState.COMMUNICATION))


def _speed(link: Link) -> float:
    return link.megabytes / link.microseconds * 1000  # GB/s
