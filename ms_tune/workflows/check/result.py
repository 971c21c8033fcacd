"""The result of ``check``: a job at a glance."""

from __future__ import annotations

from ms_tune.diagnostics import Severity
from ms_tune.errors import ExitCode
from ms_tune.estimate.memory import Outlook
from ms_tune.records import Record
from ms_tune.verdict.outcome import Fit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dryrun.request import Split
    from ms_tune.estimate.memory import Estimate
    from ms_tune.text import Message
    from ms_tune.verdict.outcome import Verdict


class Subject(Record):
    """The kind of a file."""

    dialect: str  # its dialect, as its name
    framework: str  # the framework and release that it is read for
    model: str = ""  # what its model is called; empty if nothing tells
    layers: int | None = None  # layers of the model; None if that is not known


class Assumptions(Record):
    """The assumptions about a job that the answer is based on."""

    devices: int  # NPUs
    source: Message  # what says how many
    split: Split  # how they share the work
    chunks: int  # chunks of each pipeline stage
    micro_batches: int  # Micro-batches of a step


class Matter(Record):
    """An issue to look at."""

    severity: Severity  # how bad it is
    text: Message  # what it is
    path: Path  # the file
    line: int | None = None  # where in it; None where no line is to blame
    id: str = ""  # the check's id; empty for what layers do
    name: str = ""  # the check's name


class Suggestion(Record):
    """A suggested change of the file."""

    # What kind of change: `optimizer`, `sequence`, `recompute`, `micro-batch` or `fixes`; `table` for recompute by the
    # table that `ms-tune fit` measured, `none` where every stage keeps within its limit by it, `config` for a mistake in it.
    name: str
    text: Message  # what to write, and what it costs
    # What the fullest stage holds less, by the estimate; None for a change that is not about memory.
    freed_bytes: int | None = None
    enough: bool = False  # whether the estimate is below the limit with it


class StageVerdict(Record):
    """The simulated verdict about a stage."""

    stage: int
    verdict: Verdict  # the judge's


def worst_stage(stages: Sequence[StageVerdict]) -> StageVerdict:
    """Return the stage that decides."""
    return max(stages, key=lambda one: (one.verdict.severity, -one.verdict.spare_bytes))


class Blame(Record):
    """The changed key with the largest effect on the fullest stage's memory."""

    path: KeyPath
    line: int  # where it stands now, or what is around it
    old: object  # what it was; None if it was not there
    new: object  # what it is; None if it is gone
    share: float | None  # the part of what was added that goes with it; None where no estimate tells
    alone: bool = True  # False for the first of several changes none of which accounts for it
    together: tuple[KeyPath, ...] = ()  # changed keys without which it accounts for nothing


class MemoryDifference(Record):
    """The memory of a stage before and after a change."""

    stage: int  # the stage that decides now
    before_bytes: int  # what it held; of a job with fewer stages, the last of them
    after_bytes: int  # what it holds
    limit_bytes: int  # what it may take
    outcome: str  # what became of it: `over`, `tight`, `still` (over as before, and more), `more` or `less`
    estimated: bool  # by closed forms; otherwise by dryruns
    blame: Blame | None  # which key did it; None where nothing in the file was changed that tells

    @property
    def is_short(self) -> bool:
        """Return whether memory is short."""
        return self.outcome in ("over", "tight", "still")


class Overview(Record):
    """A job on one screen."""

    path: Path  # the file, as the user named it
    subject: Subject  # what it is
    assumptions: Assumptions | None  # what of the job the answer rests on; None where it is not known
    matters: tuple[Matter, ...]  # what its author should look at, the worst first
    counts: Mapping[Severity, int]  # how many findings of the linter there are of each severity
    fixable: int = 0  # how many of them `ms-tune lint --fix` fixes
    estimate: Estimate | None = None  # what stages hold by closed forms; None where they cannot tell
    no_estimate_because: Message | None = None  # why there is none
    # What a dryrun says of each stage that was simulated; empty where none was asked for.
    stages: tuple[StageVerdict, ...] = ()
    change: Suggestion | None = None  # the cheapest change that helps; None where none is known, or none is needed
    next: tuple[str, ...] = ()  # the commands to go on with
    # What became of its memory since the base; None where there is none, or it is not known on both sides.
    against: MemoryDifference | None = None
    is_stopped: bool = False  # its job cannot be determined; the worst matter says why

    @property
    def worst(self) -> StageVerdict | None:
        """Return the simulated stage that decides."""
        return worst_stage(self.stages) if self.stages else None

    @property
    def is_over(self) -> bool:
        """Return whether the job exceeds the limit: by a dryrun if there was one, else by the estimate."""
        if self.stages:
            return any(one.verdict.outcome is Fit.DOES_NOT_FIT for one in self.stages)
        return self.estimate is not None and self.estimate.outlook is Outlook.OVER

    def exit_code(self, *, allow_tight: bool = False) -> ExitCode:
        """Return 1 for warnings, errors and a job that does not fit, 2 for a dryrun without a verdict."""
        if self.is_stopped:
            return ExitCode.USAGE
        good = all(one.verdict.is_good(allow_tight=allow_tight) for one in self.stages)
        if not self.is_over and any(one.verdict.outcome is None for one in self.stages):
            return ExitCode.USAGE
        bad = any(one.severity is not Severity.INFO for one in self.matters)
        return ExitCode.FINDINGS if bad or self.is_over or not good else ExitCode.OK
