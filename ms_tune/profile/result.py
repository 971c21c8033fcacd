"""Define the results of `profile`: the time of a step by cause, per rank and on average, and a verdict with evidence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ms_tune.diagnostics import Diagnostic
from ms_tune.readers.profile_tables import Kernels
from ms_tune.readers.scopes import shorten_scope
from ms_tune.records import Record
from ms_tune.text import Message


class Bound(str, Enum):
    """The resource that limits a step."""

    HOST = "host-bound"
    OPERATOR = "operator-bound"
    RANKS = "waits-for-ranks"
    NETWORK = "network-bound"
    IMBALANCE = "imbalance"
    MIXED = "mixed"
    UNKNOWN = "unknown"


class QueueState(str, Enum):
    """State of the compute queue: computing, or the reason why it is not."""

    COMPUTE = "compute"
    TRANSFER = "transfer"  # only communication, while data moves
    WAITING = "waiting"  # in a collective, for other ranks
    BUBBLE = "bubble"  # in a send or receive, for other stages
    HOST = "host"  # idle before the host has launched the next kernel
    DEPENDENCY = "dependency"  # idle after the launch of the next kernel
    COMMUNICATION = "communication"  # only a collective; its transfer share is unknown
    FREE = "free"  # idle; the launch time of the next kernel is unknown


class Gap(Record):
    """A period in which the compute queue is empty."""

    rank: int | None  # its rank
    timestamp_us: str  # start time in microseconds, as the trace writes it
    microseconds: float  # length
    cause: QueueState  # the cause of most of it
    before: str  # the kernel before it; empty if unknown
    after: str  # the next kernel
    host: str  # the host event during the gap

    @property
    def kernels_around(self) -> tuple[str, str]:
        """Return the kernels before and after, with short scopes."""
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
        """Return the time in which no data moves."""
        return self.elapsed_us - self.transit_us


def rank_name(rank: int | None) -> str:
    """Return a rank's number as text; ``?`` if unknown."""
    return "?" if rank is None else str(rank)


class RankTimes(Record):
    """The time of one rank by cause."""

    folder: Path  # its export
    rank: int | None  # its number, if known
    level: str  # profiling level
    microseconds: float  # total time of its steps
    steps: int  # number of steps
    times_us: dict[QueueState, float]  # time by cause; adds up to `microseconds`
    identity_error_us: float | None  # largest difference between a step and the sum of its parts; None if unknown
    # For each stream with kernels: number of kernels, and the share of the time in which they run.
    queues: dict[str, tuple[int, float]]
    kernels: Kernels | None
    idle_linked: float  # share of the idle time whose next kernel has a known launch
    cut_off: bool = False  # whether its time line or its table of kernels is incomplete
    launches_known: bool = True  # whether launches on the host are known
    whole_capture: Diagnostic | None = None  # set if the profile does not show steps, so that all of it counts as one

    def share_of(self, cause: QueueState) -> float:
        """Return the share of a cause in all steps."""
        return self.times_us.get(cause, 0.0) / self.microseconds if self.microseconds else 0.0


class Loss(Record):
    """Time that a rank loses, in microseconds."""

    cause: str
    microseconds: float  # the time concerned
    saves_us: float  # the most of it that could be saved
    evidence: Message
    late: int | None = None  # the rank that the others wait for


class Cause(Record):
    """A cause of a slow step."""

    cause: str
    rank: int | None  # the rank where it is largest
    share: float  # its share of that rank's step
    saves: float  # the most of the step that could be saved
    text: Message  # name, share and evidence
    remedy: Message


class ProfileVerdict(Record):
    """The verdict on the bottleneck of a step."""

    bound: Bound  # the bottleneck
    evidence: tuple[Message, ...]  # the evidence, the strongest first
    next_steps: tuple[Message, ...]  # recommended actions


class ProfileReport(Record):
    """The analysis of a profile."""

    sources: tuple[Path, ...]  # the requested paths
    ranks: tuple[RankTimes, ...]  # each rank, in order
    shares: dict[QueueState, float]  # mean share of each cause over the ranks; adds up to 1
    verdict: ProfileVerdict  # the bottleneck of a step
    causes: tuple[Cause, ...]  # the causes that were found, the largest saving first
    unknown: tuple[Message, ...]  # the data to capture to find the others
    gaps: tuple[Gap, ...]  # the longest periods with an empty compute queue
    collectives: tuple[CollectiveTime, ...]  # by kind over all ranks, the longest first
    imbalance: float | None  # longest computing time of a rank relative to the mean; None with one rank
    problems: tuple[Diagnostic, ...]  # problems that make the result doubtful

    @property
    def identity_error_us(self) -> float | None:
        """Return the largest difference between a step's time and the sum of its parts; None if unknown."""
        errors = [rank.identity_error_us for rank in self.ranks if rank.identity_error_us is not None]
        return max(errors) if errors else None
