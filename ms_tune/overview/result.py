"""What is known of a job at a glance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.errors import ExitCode
from ms_tune.estimate.stage import Outlook
from ms_tune.lint.finding import Severity
from ms_tune.verdict.judge import Fit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ms_tune.config.source import KeyPath
    from ms_tune.dryrun.request import Split
    from ms_tune.estimate.stage import Estimate
    from ms_tune.lint.finding import Wording
    from ms_tune.texts import Message
    from ms_tune.verdict.judge import Verdict


@dataclass(frozen=True, slots=True)
class Subject:
    """What a file is.

    Attributes:
        dialect: Its dialect, as its name.
        framework: The framework and release that it is read for.
        model: What its model is called; empty if nothing tells.
        layers: Layers of the model; None if that is not known.
    """

    dialect: str
    framework: str
    model: str = ""
    layers: int | None = None


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What of a job the answer rests on.

    Attributes:
        devices: NPUs.
        source: What says how many.
        split: How they share the work.
        chunks: Chunks of each pipeline stage.
        micro_batches: Micro-batches of a step.
    """

    devices: int
    source: Message
    split: Split
    chunks: int
    micro_batches: int


@dataclass(frozen=True, slots=True)
class Matter:
    """Something that its author should look at.

    Attributes:
        severity: How bad it is.
        text: What it is.
        path: The file.
        line: Where in it; None where no line is to blame.
        id: The check's id; empty for what layers do.
        name: The check's name.
    """

    severity: Severity
    text: Message | Wording
    path: Path
    line: int | None = None
    id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the file.

    Attributes:
        name: What kind of change: ``optimizer``, ``sequence``, ``recompute``, ``micro-batch`` or ``fixes``; ``table`` for
            recompute by the table that ``ms-tune fit`` measured, ``none`` where every stage keeps within its limit by it.
        text: What to write, and what it costs.
        freed_bytes: What the fullest stage holds less, by the estimate; None for a change that is not about memory.
        enough: Whether the estimate is below the limit with it.
    """

    name: str
    text: Message
    freed_bytes: int | None = None
    enough: bool = False


@dataclass(frozen=True, slots=True)
class StageVerdict:
    """What a dryrun says of a stage.

    Attributes:
        stage: The stage.
        verdict: The judge's.
    """

    stage: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Blame:
    """The changed key that the fullest stage's memory depends on most.

    Attributes:
        path: The key.
        line: Where it stands now, or what is around it.
        old: What it was; None if it was not there.
        new: What it is; None if it is gone.
        share: The part of what was added that goes with it; None where no estimate tells.
    """

    path: KeyPath
    line: int
    old: object
    new: object
    share: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """The memory of a stage before and after a change.

    Attributes:
        stage: The stage that decides now.
        before_bytes: What it held; of a job with fewer stages, the last of them.
        after_bytes: What it holds.
        limit_bytes: What it may take.
        outcome: What became of it: ``over``, ``tight``, ``more`` or ``less``.
        estimated: By closed forms; otherwise by dryruns.
        blame: Which key did it; None where nothing in the file was changed that tells.
    """

    stage: int
    before_bytes: int
    after_bytes: int
    limit_bytes: int
    outcome: str
    estimated: bool
    blame: Blame | None

    @property
    def is_worse(self) -> bool:
        """Whether the job fits worse than before."""
        return self.outcome in ("over", "tight")


@dataclass(frozen=True, slots=True)
class Overview:
    """One screen about a job.

    Attributes:
        path: The file, as the user named it.
        subject: What it is.
        assumptions: What of the job the answer rests on; None where it is not known.
        matters: What its author should look at, the worst first.
        counts: How many findings of the linter there are of each severity.
        fixable: How many of them ``ms-tune lint --fix`` fixes.
        estimate: What stages hold by closed forms; None where they cannot tell.
        no_estimate_because: Why there is none.
        stages: What a dryrun says of each stage that was simulated; empty where none was asked for.
        change: The cheapest change that helps; None where none is known, or none is needed.
        next: The commands to go on with.
        against: What became of its memory since the base; None where there is none, or it is not known on both sides.
    """

    path: Path
    subject: Subject
    assumptions: Assumptions | None
    matters: tuple[Matter, ...]
    counts: Mapping[Severity, int]
    fixable: int = 0
    estimate: Estimate | None = None
    no_estimate_because: Message | None = None
    stages: tuple[StageVerdict, ...] = ()
    change: Change | None = None
    next: tuple[str, ...] = ()
    against: Difference | None = None

    @property
    def worst(self) -> StageVerdict | None:
        """The simulated stage that decides."""
        return max(self.stages, key=_badness, default=None)

    @property
    def is_over(self) -> bool:
        """Whether it does not fit: by a dryrun where there was one, else by the estimate."""
        if self.stages:
            return any(one.verdict.outcome is Fit.DOES_NOT_FIT for one in self.stages)
        return self.estimate is not None and self.estimate.outlook is Outlook.OVER

    def exit_code(self, *, allow_tight: bool = False) -> ExitCode:
        """1 for findings that are at least warnings, and for a job that does not fit; 2 for a dryrun without a verdict."""
        good = all(one.verdict.is_good(allow_tight=allow_tight) for one in self.stages)
        if not self.is_over and any(one.verdict.outcome is None for one in self.stages):
            return ExitCode.USAGE
        bad = any(one.severity is not Severity.INFO for one in self.matters)
        return ExitCode.FINDINGS if bad or self.is_over or not good else ExitCode.OK


def _badness(one: StageVerdict) -> tuple[int, int]:
    return one.verdict.severity, -one.verdict.spare_bytes
