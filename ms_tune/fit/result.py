"""What is asked of ``fit`` with a config, and what it found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ms_tune.dryrun.request import DryrunRequest
from ms_tune.enums import RecomputeMode
from ms_tune.errors import UsageError
from ms_tune.planning.search import Effort
from ms_tune.planning.time_scale import Clock
from ms_tune.text import msg
from ms_tune.verdict.outcome import Fit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.fit.costs import RelativeCosts
    from ms_tune.planning.fit import FitReport
    from ms_tune.planning.table import CostTable
    from ms_tune.source.yaml import SourceFile
    from ms_tune.text import Message
    from ms_tune.verdict.limit import Limit
    from ms_tune.verdict.outcome import Verdict


@dataclass(frozen=True, slots=True)
class ConfigFitRequest:
    """What a plan is asked for.

    Attributes:
        dryrun: The config, its job and its device.
        kinds: Kinds of recompute that a plan may use.
        effort: How long to search.
        seed: Where the search's random numbers begin.
        verify: Whether the plan is simulated before it is handed over.
        allow_tight: Whether a plan is good enough that fits only without fragments, or only inside the reserve.
        clock: What was measured.
        swap_bandwidth: Bytes a second that go to the host, and as many that come back; with the kind ``swap`` only.
    """

    dryrun: DryrunRequest = field(default_factory=DryrunRequest)
    kinds: tuple[RecomputeMode, ...] = tuple(kind for kind in RecomputeMode if kind is not RecomputeMode.SWAP)
    effort: Effort = Effort.NORMAL
    seed: int = 1
    verify: bool = True
    allow_tight: bool = False
    clock: Clock = field(default_factory=Clock)
    swap_bandwidth: int | None = None

    def __post_init__(self) -> None:
        """Refuse swap of which nothing tells what it takes.

        Raises:
            UsageError: Swap is one of the kinds and no bandwidth is given, or the other way round.
        """
        if RecomputeMode.SWAP in self.kinds and self.swap_bandwidth is None:
            raise UsageError(msg("fitting.swap.bandwidth"), msg("fitting.swap.bandwidth.hint"))
        if RecomputeMode.SWAP not in self.kinds and self.swap_bandwidth is not None:
            raise UsageError(msg("fitting.swap.kind"), msg("fitting.swap.kind.hint"))


NEAR = 0.005  # of the dryrun's peak, that the table's may be off


@dataclass(frozen=True, slots=True)
class PredictedStage:
    """What the table predicted of a stage that was simulated, and what that held."""

    stage: int
    predicted_bytes: int  # its peak by the table
    peak_bytes: int

    @property
    def error(self) -> float:
        """How much the table is off, as a part of the peak; above zero where it predicted more."""
        return (self.predicted_bytes - self.peak_bytes) / self.peak_bytes

    @property
    def exact(self) -> bool:
        """Whether it is as near as the plans' dryruns are asked to be."""
        return abs(self.error) <= NEAR


@dataclass(frozen=True, slots=True)
class CheckRun(PredictedStage):
    """The table's check run."""

    layers: int

    @property
    def margin_bytes(self) -> int:
        """What is set aside for it: what the table predicted too little, if it is off."""
        return 0 if self.exact else max(0, self.peak_bytes - self.predicted_bytes)


@dataclass(frozen=True, slots=True)
class VerifiedStage(PredictedStage):
    """A stage of a plan that was simulated."""

    footprint_bytes: int  # with fragments
    verdict: Verdict  # whether it fits

    @property
    def needed_bytes(self) -> int:
        """All that the verdict compares with the limit: the peak, its fragments, what is set aside."""
        return self.footprint_bytes + self.verdict.reserve_bytes


@dataclass(frozen=True, slots=True)
class RelievedStage:
    """A stage that recomputes more than in the plan before, because its dryrun did not fit."""

    stage: int
    verdict: Verdict  # of that dryrun
    before: tuple[Mapping[RecomputeMode, int], ...]  # how many layers of each kind of recompute its chunks had
    after: tuple[Mapping[RecomputeMode, int], ...]  # how many they have


@dataclass(frozen=True, slots=True)
class VerifyRound:
    """A plan and its dryrun."""

    report: FitReport  # the plan, and what the table says of it
    # Every stage's peak by the table, without what was set aside for fragments; empty without a plan.
    peak_bytes: tuple[int, ...]
    verified: tuple[VerifiedStage, ...] = ()  # the stages that were simulated; empty where none was
    stands_for: tuple[int, ...] = ()  # the simulated stage that stands for each stage; empty where none was simulated
    # The stages that recompute more than in the plan before; empty where it is another plan altogether.
    relieved: tuple[RelievedStage, ...] = ()
    kept: tuple[int, ...] = ()  # those of `verified` whose dryrun was there already, of a plan before

    @property
    def fits(self) -> bool:
        """Whether every simulated stage fits."""
        return bool(self.verified) and all(one.verdict.outcome is Fit.FITS for one in self.verified)

    @property
    def exact(self) -> bool:
        """Whether the table foretold every simulated stage."""
        return all(one.exact for one in self.verified)


@dataclass(frozen=True, slots=True, eq=False)
class ConfigFit:
    """A plan for a config.

    Attributes:
        source: The config as it is.
        table: The memory table that its first dryruns came to; its limit is what is left for the peaks.
        limit: What a stage may take of its device.
        reserve_bytes: What is set aside of it.
        fragment_bytes: What is set aside for each stage's fragments, as small runs had them.
        costs: What the parts of the model cost beside each other.
        idle: Kinds of recompute that free nothing here.
        checked: The table's check run; None where there was none.
        rounds: Plans and their dryruns, in order.
        chosen: The round whose plan is handed over; None where no plan fits.
        lacking: Where no dryrun proved a plan, what the table says with all that they showed; None where none was made.
        least_fragment_bytes: What is set aside in it for each stage's fragments: the least that any of the dryruns showed.
        text: The config with that plan; the config itself without one.
        changed: How many values are other.
        notes: What the user should know.
        seconds: Of the dryruns for the table, and of those of plans.
    """

    source: SourceFile
    table: CostTable
    limit: Limit
    reserve_bytes: int
    fragment_bytes: tuple[int, ...]
    costs: RelativeCosts
    idle: tuple[RecomputeMode, ...]
    checked: CheckRun | None
    rounds: tuple[VerifyRound, ...]
    chosen: VerifyRound | None
    lacking: FitReport | None
    least_fragment_bytes: tuple[int, ...]
    text: str
    changed: int
    notes: tuple[Message, ...]
    seconds: tuple[float, float]

    @property
    def last(self) -> VerifyRound:
        """The round that the report is about: the chosen one, or else the last."""
        return self.chosen or self.rounds[-1]
