"""Define the request and the result of `metrics`: runs with their figures, each with formula and inputs, and problems."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from ms_tune.records import Record

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.diagnostics import Diagnostic
    from ms_tune.readers.logged_steps import Form, LoggedMemory
    from ms_tune.text import Message


class Convention(str, Enum):
    """How operations are counted."""

    FULL = "full"
    CAUSAL = "causal"
    SIX_N = "6n"


@dataclass(frozen=True, slots=True)
class MetricsRequest:
    """Inputs about the runs that their logs lack.

    Attributes:
        cards: Devices of a run.
        batch: Samples of a step, of all cards; for logs that do not report them.
        tokens: Tokens of a sample.
        peak_tflops: 10^12 floating-point operations a second that a device is able to do.
        chip: The device by name, for its peak.
        config: The job's config, or its launch script: operations follow from its model.
        version: The framework's release, for the config.
        convention: How operations are counted.
        baseline_cards: Devices of the run that is compared with, if not the same.
        baseline_batch: Its samples of a step, if not the same.
    """

    cards: int | None = None
    batch: int | None = None
    tokens: int | None = None
    peak_tflops: float | None = None
    chip: str | None = None
    config: Path | None = None
    version: str | None = None
    convention: Convention = Convention.FULL
    baseline_cards: int | None = None
    baseline_batch: int | None = None


class Figure(Record):
    """A figure of a run."""

    name: str  # its name in JSON
    value: float | None  # in the unit that its text names; None if an input is missing or it would be no truth
    formula: Message  # how it was worked out
    inputs: tuple[Message, ...] = ()  # its inputs, each with its source
    missing: tuple[str, ...] = ()  # options that provide the missing inputs


class StepCurve(Record):
    """Steps for a picture: at most a few hundred, evenly chosen, and all slow ones."""

    step: tuple[int, ...]
    seconds: tuple[float, ...]
    loss: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks of a run, compared."""

    count: int  # ranks that write steps
    fastest_median: float | None = None  # the shortest median of a rank, in seconds; None with one rank
    slowest_median: float | None = None  # the longest
    slowest: int | None = None  # whose that is, if it is known


class Counted(Record):
    """Utilisation by a convention of counting operations that was not chosen; None above the peak."""

    convention: Convention
    mfu: float | None
    hfu: float | None


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """A run."""

    source: Path  # its log, or the folder of its ranks' logs
    run: int  # which run of the log it is, from 1
    form: Form  # who printed the lines
    steps: int  # lines with a step
    first_step: int  # counter of the first one
    last_step: int  # counter of the last one
    times: StepTimes  # how long they took
    ranks: Ranks  # ranks compared
    figures: tuple[Figure, ...]  # all other figures, in order
    counted_otherwise: tuple[Counted, ...]  # MFU and HFU by the other conventions of counting operations
    losses: tuple[float, float] | None  # the first and the last loss
    memory: tuple[LoggedMemory, ...]  # memory reported by the ranks
    # Problems: errors make figures unreliable, infos are worth knowing.
    about_steps: tuple[Diagnostic, ...]
    impossible: tuple[Diagnostic, ...]  # figures that no device reaches
    curve: StepCurve  # for a picture
    judgement: tuple[Message, ...] = ()  # how the MFU compares, and the causes that lower it
    ordered: tuple[float, ...] = field(default=(), repr=False)

    @property
    def problems(self) -> tuple[Diagnostic, ...]:
        """Return all problems of the run."""
        return (*self.about_steps, *self.impossible)

    def figure(self, name: str) -> Figure | None:
        """Return a figure by its name."""
        return next((figure for figure in self.figures if figure.name == name), None)

    def value(self, name: str) -> float | None:
        """Return the value of a figure, if there is one."""
        figure = self.figure(name)
        return figure.value if figure else None


class RunComparison(Record):
    """A run compared with another one."""

    run: RunMetrics
    baseline: RunMetrics  # the run to compare with
    ratio: float  # its median step time, of the baseline's
    low: float | None  # the true ratio lies above this with 95 %; None with too few steps
    high: float | None  # and below this
    linearity: Figure | None  # its samples a second and card, of the baseline's; None where the cards are not known
    # The same by the tuning guide's formula, which divides by the baseline's machine and multiplies by cards.
    guide: Figure | None

    @property
    def is_told_apart(self) -> bool:
        """Return whether the difference is significant."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


class MetricsReport(Record):
    """All runs, and the comparison of the longest run with the baseline's."""

    runs: tuple[RunMetrics, ...]  # the runs of all logs, in order
    baseline: tuple[RunMetrics, ...] = ()
    comparison: RunComparison | None = None  # present where there is a baseline and both have steps to compare
    problems: tuple[Diagnostic, ...] = ()  # doubts about a file as a whole

    @property
    def all_problems(self) -> tuple[Diagnostic, ...]:
        """Of the files, of the runs, and of the baseline's."""
        runs = (*self.runs, *self.baseline)
        return (*self.problems, *(problem for run in runs for problem in run.problems))


class Outlier(Record):
    """A step that took much longer than the others."""

    step: int  # its counter
    line: int  # its line in the log
    seconds: float  # how long it took
    beside: tuple[str, ...]  # events at the same time: `checkpoint`, `evaluation`


@dataclass(frozen=True, slots=True)
class StepTimes:
    """How long the steps of a run took, in seconds; all but ``first`` without the first step."""

    count: int  # steps that count
    median: float | None  # of these; None without steps
    mad: float | None  # their median absolute deviation
    low: float | None  # of the 95 % interval of the median; None with too few steps
    high: float | None  # see above
    first: float  # the first step
    shortest: float | None
    longest: float | None
    mean: float | None  # their mean, outliers included
    outliers: tuple[Outlier, ...]  # the slowest outliers
    outlier_count: int  # how many do
    resolution: float  # seconds of the log's smallest unit
    averaged_over: int  # steps per line of the log
