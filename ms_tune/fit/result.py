"""Define the request and the result of ``ms-tune fit`` with a config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ms_tune.dryrun.request import DryrunRequest
from ms_tune.enums import RecomputeMode
from ms_tune.errors import UsageError
from ms_tune.fit.costs import RelativeCosts
from ms_tune.fit.predict import Cluster, Prediction
from ms_tune.planning.fit import FitReport
from ms_tune.planning.search import Effort
from ms_tune.planning.table import CostTable
from ms_tune.planning.time_scale import Clock
from ms_tune.source.yaml import SourceFile
from ms_tune.text import Message, msg
from ms_tune.verdict.limit import Limit
from ms_tune.verdict.outcome import Fit, Verdict


@dataclass(frozen=True, slots=True)
class ConfigFitRequest:
    """Request for a plan of a config.

    Attributes:
        dryrun: The config, its job and its device.
        kinds: Recompute modes that a plan may use.
        effort: How long to search.
        seed: Seed of the search's random numbers.
        verify: Simulate the plan before returning it.
        allow_tight: Accept a plan that fits only without fragmentation, or only by using the reserve.
        clock: The user's measurements.
        swap_bandwidth: Bytes per second to the host and back, for the mode ``swap`` only.
        cluster: Devices and links for seconds; None for those of the named chip.
    """

    dryrun: DryrunRequest = field(default_factory=DryrunRequest)
    kinds: tuple[RecomputeMode, ...] = tuple(kind for kind in RecomputeMode if kind is not RecomputeMode.SWAP)
    effort: Effort = Effort.NORMAL
    seed: int = 1
    verify: bool = True
    allow_tight: bool = False
    clock: Clock = field(default_factory=Clock)
    swap_bandwidth: int | None = None
    cluster: Cluster | None = None

    def __post_init__(self) -> None:
        """Check that the mode swap and a bandwidth are given together.

        Raises:
            UsageError: Only one of them is given.
        """
        if RecomputeMode.SWAP in self.kinds and self.swap_bandwidth is None:
            raise UsageError(msg("fitting.swap.bandwidth"), msg("fitting.swap.bandwidth.hint"))
        if RecomputeMode.SWAP not in self.kinds and self.swap_bandwidth is not None:
            raise UsageError(msg("fitting.swap.kind"), msg("fitting.swap.kind.hint"))


NEAR = 0.005  # largest accepted prediction error of the table, as a fraction of the dryrun's peak


@dataclass(frozen=True, slots=True)
class VerifiedStage:
    """A simulated stage of a plan."""

    stage: int
    predicted_bytes: int  # peak according to the table
    peak_bytes: int
    footprint_bytes: int  # peak with fragmentation
    verdict: Verdict  # the memory verdict of the stage

    @property
    def error(self) -> float:
        """Return the prediction error as a fraction of the peak; positive if the table predicted too much."""
        return (self.predicted_bytes - self.peak_bytes) / self.peak_bytes

    @property
    def exact(self) -> bool:
        """Return whether the error is within the tolerance."""
        return abs(self.error) <= NEAR

    @property
    def needed_bytes(self) -> int:
        """Return the total that the verdict compares with the limit: peak, fragmentation and reserve."""
        return self.footprint_bytes + self.verdict.reserve_bytes


@dataclass(frozen=True, slots=True)
class RelievedStage:
    """A stage that recomputes more than in the previous plan, because its dryrun did not fit."""

    stage: int
    verdict: Verdict  # of that dryrun
    before: tuple[Mapping[RecomputeMode, int], ...]  # previous layers by recompute mode, for each of its chunks
    after: tuple[Mapping[RecomputeMode, int], ...]  # the new ones


@dataclass(frozen=True, slots=True)
class VerifyRound:
    """A plan and its dryrun."""

    report: FitReport  # the plan and its predictions
    # Predicted peak of each stage without the bytes reserved for fragmentation; empty without a plan.
    peak_bytes: tuple[int, ...]
    verified: tuple[VerifiedStage, ...] = ()  # the simulated stages; empty if none
    stands_for: tuple[int, ...] = ()  # the simulated stage that represents each stage; empty if none was simulated
    # Stages that recompute more than in the previous plan; empty for an entirely new plan.
    relieved: tuple[RelievedStage, ...] = ()
    kept: tuple[int, ...] = ()  # stages of ``verified`` whose result is reused from an earlier plan's dryrun

    @property
    def fits(self) -> bool:
        """Return whether every simulated stage fits."""
        return bool(self.verified) and all(one.verdict.outcome is Fit.FITS for one in self.verified)

    @property
    def exact(self) -> bool:
        """Return whether the table predicted every simulated stage within the tolerance."""
        return all(one.exact for one in self.verified)


@dataclass(frozen=True, slots=True, eq=False)
class ConfigFit:
    """A plan for a config.

    Attributes:
        source: The config before any change.
        table: The memory table fitted from the first dryruns; its limit is the memory available for peaks.
        limit: The usable device memory of a stage.
        reserve_bytes: The reserved part of it.
        fragment_bytes: Bytes reserved for fragmentation of each stage, as in small runs.
        costs: Relative times of the model's parts.
        idle: Recompute modes that free nothing in this job.
        rounds: Plans and their dryruns, in order.
        chosen: The round whose plan is returned; None if no plan fits.
        lacking: If no plan was verified, the table's report with the figures of all dryruns; else None.
        least_fragment_bytes: Bytes reserved in it for fragmentation of each stage: the least of all dryruns.
        text: The config with the plan; unchanged without one.
        changed: How many values differ.
        notes: Messages for the user.
        seconds: Duration of the dryruns for the table, and of those of plans.
        predicted: Predicted step of the chosen plan; None without one, or if too little is known.
    """

    source: SourceFile
    table: CostTable
    limit: Limit
    reserve_bytes: int
    fragment_bytes: tuple[int, ...]
    costs: RelativeCosts
    idle: tuple[RecomputeMode, ...]
    rounds: tuple[VerifyRound, ...]
    chosen: VerifyRound | None
    lacking: FitReport | None
    least_fragment_bytes: tuple[int, ...]
    text: str
    changed: int
    notes: tuple[Message, ...]
    seconds: tuple[float, float]
    predicted: Prediction | None = None

    @property
    def last(self) -> VerifyRound:
        """Return the round to report: the chosen one, or else the last."""
        return self.chosen or self.rounds[-1]
