"""What `profile` found: where a step's time went, on each rank and on the whole, one verdict, and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ms_tune.readers.scopes import shorten_scope
from ms_tune.records import Record

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.diagnostics import Diagnostic
    from ms_tune.readers.profile_tables import Kernels
    from ms_tune.text import Message


class Bound(str, Enum):
    """What a step waits for."""

    HOST = "host-bound"
    OPERATOR = "operator-bound"
    RANKS = "waits-for-ranks"
    NETWORK = "network-bound"
    IMBALANCE = "imbalance"
    MIXED = "mixed"
    UNKNOWN = "unknown"


class QueueState(str, Enum):
    """What the compute queue does, or what keeps it from computing."""

    COMPUTE = "compute"
    TRANSFER = "transfer"  # alone, while data moves
    WAITING = "waiting"  # in a collective, for other ranks
    BUBBLE = "bubble"  # in a send or receive, for other stages
    HOST = "host"  # idle, before the host has launched what comes next
    DEPENDENCY = "dependency"  # idle, though it is launched
    COMMUNICATION = "communication"  # alone in a collective; nothing tells what of it is transfer
    FREE = "free"  # idle; nothing tells when the next one was launched


class Gap(Record):
    """A time in which the compute queue is empty."""

    rank: int | None  # whose
    timestamp_us: str  # the time stamp, as the trace writes it, in microseconds
    microseconds: float  # how long
    cause: QueueState  # what most of it is
    before: str  # what ran before; empty where nothing tells
    after: str  # what runs next
    host: str  # what the host did meanwhile

    @property
    def kernels_around(self) -> tuple[str, str]:
        """The kernels before and after, with their scopes in short."""
        return shorten_scope(self.before), shorten_scope(self.after)


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """All collectives of one kind, in microseconds."""

    name: str
    count: int
    elapsed_us: float
    transit_us: float
    point_to_point: bool

    @property
    def waiting_us(self) -> float:
        """What moves no data."""
        return self.elapsed_us - self.transit_us


def rank_name(rank: int | None) -> str:
    """A rank's number for readers."""
    return "?" if rank is None else str(rank)


class RankTimes(Record):
    """One rank."""

    folder: Path  # its export
    rank: int | None  # its number, if it is told
    level: str  # how closely the profiler looked
    microseconds: float  # microseconds of all its steps
    steps: int  # how many steps
    times_us: dict[QueueState, float]  # microseconds by cause; they add up to `whole`
    identity_error_us: (
        float | None
    )  # how far the table's own parts are from its step, in microseconds; None without a table
    # Of each stream with kernels, its kernels and the share of the time in which it computes.
    queues: dict[str, tuple[int, float]]
    kernels: Kernels | None
    idle_linked: float  # of the idle times, the share whose next kernel has a launch
    cut_off: bool = False  # whether its time line or its table of kernels ends early
    launches_known: bool = True  # whether something tells when the host launched what runs
    whole_capture: Diagnostic | None = None  # that nothing tells the steps: all of it is taken for one

    def share_of(self, cause: QueueState) -> float:
        """A cause's part of all steps."""
        return self.times_us.get(cause, 0.0) / self.microseconds if self.microseconds else 0.0


class ProfileVerdict(Record):
    """What a step waits for."""

    bound: Bound  # in one word
    evidence: tuple[Message, ...]  # what that rests on, the strongest first
    next_steps: tuple[Message, ...]  # what to do about it


class ProfileReport(Record):
    """A profile."""

    sources: tuple[Path, ...]  # what was asked for
    ranks: tuple[RankTimes, ...]  # each rank, in order
    shares: dict[QueueState, float]  # by cause, the mean of the ranks; they add up to 1
    verdict: ProfileVerdict  # what a step waits for
    gaps: tuple[Gap, ...]  # the longest times in which a compute queue is empty
    collectives: tuple[CollectiveTime, ...]  # by kind, the longest first; of all ranks
    imbalance: float | None  # the longest computing rank, of the mean; None with one rank
    problems: tuple[Diagnostic, ...]  # what makes it doubtful

    @property
    def identity_error_us(self) -> float | None:
        """The largest difference between a table's parts and its steps; None without a table."""
        errors = [rank.identity_error_us for rank in self.ranks if rank.identity_error_us is not None]
        return max(errors) if errors else None
