"""Define the result of ``check``: a job on one screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ms_tune.diagnostics import Fix, KeyPath, Severity
from ms_tune.dryrun.request import Setting, Split
from ms_tune.enums import SizeOrigin
from ms_tune.errors import ExitCode
from ms_tune.estimate.memory import Estimate, Outlook
from ms_tune.records import Record
from ms_tune.text import Message
from ms_tune.verdict.outcome import Fit, Verdict


class Subject(Record):
    """The kind of job that a file describes."""

    dialect: str  # name of the dialect
    framework: str  # the framework and release that it is read for
    model: str = ""  # name of the model; empty if unknown
    layers: int | None = None  # layers of the model; None if unknown


class Assumptions(Record):
    """The assumptions about a job that the answer is based on."""

    devices: int  # NPUs
    source: Message  # the source of that number
    split: Split  # the parallel dimensions
    chunks: int  # chunks per pipeline stage
    micro_batches: int  # micro-batches per step


class Sizes(Record):
    """The sizes of the model."""

    origin: SizeOrigin  # where they come from
    file: Path | None = None  # the `config.json`
    model: str | None = None  # the public model that is assumed
    key: str | None = None  # the key of the config that names it
    parameters: int | None = None  # without multi-token prediction; None if unknown


class Matter(Record):
    """An issue to look at."""

    severity: Severity  # how bad it is
    text: Message  # the message
    path: Path  # path of the file
    line: int | None = None  # line number; None if no single line is the cause
    id: str = ""  # id of the check; empty for issues of layers
    name: str = ""  # name of the check
    page: str | None = None  # address of the page about the check, if one is configured
    help: Message | None = None  # what to do about it
    fix: Fix | None = None  # its fix, if any


class Suggestion(Record):
    """A suggested change of the file."""

    # Kind of change: `optimizer`, `sequence`, `recompute`, `micro-batch`, `tensor` or `pipeline`, the last one of several; `table` for
    # recomputation by the table of `ms-tune fit`, `none` if by that table no stage exceeds its limit; `layout` if no such change
    # is enough with a margin; `fixes` or `help` for the worst issue, `nothing` if there is nothing to change.
    name: str
    text: Message  # the change and its cost
    # Estimated savings on the fullest stage; None for a change that does not affect memory.
    freed_bytes: int | None = None
    enough: bool = False  # the job fits with the change, with a margin for the estimate's error
    settings: tuple[Setting, ...] = ()  # the keys to change, with their values


def settings_text(settings: Sequence[Setting]) -> str:
    """Return settings as lines of YAML would be written, in one line."""
    return ", ".join(f"{one.name}: {one.raw}" for one in settings)


class StageVerdict(Record):
    """The simulated verdict about a stage."""

    stage: int
    verdict: Verdict  # the memory verdict


def worst_stage(stages: Sequence[StageVerdict]) -> StageVerdict:
    """Return the stage with the worst verdict."""
    return max(stages, key=lambda one: (one.verdict.severity, -one.verdict.spare_bytes))


class Blame(Record):
    """The changed key with the largest effect on the fullest stage's memory."""

    path: KeyPath
    line: int  # line of the key, or of the section around it
    old: object  # old value; None if the key was missing
    new: object  # new value; None if the key was removed
    share: float | None  # fraction of the added memory that it accounts for; None without an estimate
    alone: bool = True  # False for the first of several changes, none of which adds memory alone
    together: tuple[KeyPath, ...] = ()  # changed keys without which it adds no memory


class MemoryDifference(Record):
    """The memory of a stage before and after a change."""

    stage: int  # the stage with the worst verdict now
    before_bytes: int  # old memory; of the last stage if there were fewer stages
    after_bytes: int  # new memory
    limit_bytes: int  # usable memory
    outcome: str  # `over`, `tight`, `still` (over as before, and more), `more` or `less`
    estimated: bool  # from estimates; otherwise from dryruns
    blame: Blame | None  # the key that caused it; None if no change in the file explains it

    @property
    def is_short(self) -> bool:
        """Return whether memory is short."""
        return self.outcome in ("over", "tight", "still")


class Overview(Record):
    """A job on one screen."""

    path: Path  # path as given by the user
    subject: Subject  # the kind of job
    assumptions: Assumptions | None  # assumptions about the job; None if unknown
    matters: tuple[Matter, ...]  # issues to look at, the worst first
    counts: Mapping[Severity, int]  # number of linter findings by severity
    fixable: int = 0  # number of findings that `ms-tune lint --fix` fixes
    estimate: Estimate | None = None  # estimated memory of the stages; None if unknown
    no_estimate_because: Message | None = None  # why nothing is estimated
    no_estimate_hint: Message | None = None  # a change that would give one
    # Dryrun verdict of each simulated stage; empty if none was requested.
    stages: tuple[StageVerdict, ...] = ()
    change: Suggestion | None = None  # the cheapest helpful change; None if none is known or needed
    next: tuple[str, ...] = ()  # the next commands
    command: str = ""  # the command that shows this screen
    # Memory compared with the base; None without a base, or if one side is unknown.
    against: MemoryDifference | None = None
    not_compared_because: Message | None = None  # why nothing is compared
    sizes: Sizes | None = None  # the sizes of the model; None if unknown
    estimated_as: str = ""  # the framework and release whose rules the estimate applies, if not its own

    @property
    def worst(self) -> StageVerdict | None:
        """Return the simulated stage with the worst verdict, or None."""
        return worst_stage(self.stages) if self.stages else None

    @property
    def has_errors(self) -> bool:
        """Return whether an issue is an error."""
        return any(one.severity is Severity.ERROR for one in self.matters)

    @property
    def is_over(self) -> bool:
        """Return whether the job exceeds the limit: by a dryrun if there was one, else by the estimate."""
        if self.stages:
            return any(one.verdict.outcome is Fit.DOES_NOT_FIT for one in self.stages)
        return self.estimate is not None and self.estimate.outlook is Outlook.OVER

    def exit_code(self, *, allow_tight: bool = False) -> ExitCode:
        """Return 1 for warnings, errors and a job that does not fit, 2 for a dryrun without a verdict."""
        good = all(one.verdict.is_good(allow_tight=allow_tight) for one in self.stages)
        if not self.is_over and any(one.verdict.outcome is None for one in self.stages):
            return ExitCode.USAGE
        bad = any(one.severity is not Severity.INFO for one in self.matters)
        return ExitCode.FINDINGS if bad or self.is_over or not good else ExitCode.OK
