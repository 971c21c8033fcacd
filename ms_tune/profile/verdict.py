"""Determine the bottleneck of a step: the cause with the largest share if it leads by ten points, with evidence.

Waiting in collectives is not a sign of a slow network. On a rank with a late host it is not a sign of slow ranks
either: if the device computes less than 30 % of a step and is idle mostly before the host's launch, the other ranks are
probably as late, and their waiting for each other counts as the host's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ms_tune.profile.result import Bound, Gap, ProfileVerdict, QueueState, RankTimes, rank_name
from ms_tune.text import Message, msg

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


def judge_profile(
    ranks: Sequence[RankTimes],
    shares: dict[QueueState, float],
    imbalance: float | None,
    gaps: Sequence[Gap],
    remedies: Sequence[Message] = (),
) -> ProfileVerdict:
    """Return the verdict on a profile; its next steps are the remedies of the causes that were found."""
    unsafe = "cut" if any(rank.cut_off for rank in ranks) else "parts" if any(map(_lacks_parts, ranks)) else ""
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
    evidence = [
        *_share_evidence(shares),
        *_bound_evidence(bound, shares, blamed),
        *_rank_evidence(ranks, imbalance, waits),
    ]
    steps = list(remedies)
    if bound is Bound.UNKNOWN:
        steps += [msg(f"profile.next.unknown.{largest.value}"), msg("profile.capture")]
    elif not steps:
        steps = [msg(f"profile.next.{bound.value}")]
    return ProfileVerdict(bound, tuple(evidence), tuple(steps))


def _lacks_parts(rank: RankTimes) -> bool:
    return (rank.identity_error_us or 0.0) > _LEAD * rank.microseconds / rank.steps


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
