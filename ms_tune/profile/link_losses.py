"""Find why transfers of a rank are slow: packets, sizes, links, or computing at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from ms_tune.facts.profile_causes import limit
from ms_tune.profile.result import Loss, QueueState, RankTimes, rank_name
from ms_tune.readers.profile_export import RankProfile
from ms_tune.readers.profile_tables import Link, Packets
from ms_tune.text import msg

_LINKS = 3  # of which one can be slow
_MB = (10**6, 1024**2)  # bytes of a megabyte, as exporters write it
_MOST = 0.5  # of the communication, or of the largest traffic of a group
_SOME = 0.2  # of the transfer time, as in packet.yaml of msprof-analyze 26.2
_NEAR = 0.95  # of a link's speed


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
    """Return a cause, the packets that it slows down, and the usual speed in GB/s: the link's, or that of the others."""
    transport, time = packets[0].transport, sum(one.microseconds for one in packets)
    small = [one for one in packets if one.megabytes < limit("small_mb", transport)]
    unaligned = [one for one in packets if one not in small and not _is_aligned(one.megabytes)]
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


def _is_aligned(megabytes: float) -> bool:
    return any(round(megabytes * unit) % limit("align_bytes") == 0 for unit in _MB)


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
