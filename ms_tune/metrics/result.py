"""Define the request and the result of `metrics`: runs with their figures, each with formula and inputs, and problems."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.readers.logged_steps import LoggedMemory
from ms_tune.records import Record
from ms_tune.text import Message

ENOUGH = 6  # steps after the first: with fewer, no 95 % interval of the median exists


class Convention(str, Enum):
    """Conventions for counting operations."""

    FULL = "full"
    CAUSAL = "causal"
    SIX_N = "6n"


@dataclass(frozen=True, slots=True)
class MetricsRequest:
    """Inputs about the runs that their logs lack.

    Attributes:
        cards: Devices of the run.
        batch: Samples per step, over all cards; for logs that do not report them.
        tokens: Tokens per sample.
        peak_tflops: Peak TFLOP/s of a device.
        chip: Name of the device, for its peak.
        config: The job's config or launch script; operations are computed from its model.
        version: The framework's release, for the config.
        model_config: The ``config.json`` of the config's model, or its folder.
        convention: How operations are counted.
        baseline_cards: Devices of the baseline run, if different.
        baseline_batch: Samples per step of the baseline run, if different.
        pattern: Regular expression for the lines of another trainer, with named groups: ``step``, ``time_ms`` or
            ``time_s``, ``loss``, ``norm``, ``total``.
    """

    cards: int | None = None
    batch: int | None = None
    tokens: int | None = None
    peak_tflops: float | None = None
    chip: str | None = None
    config: Path | None = None
    version: str | None = None
    model_config: Path | None = None
    convention: Convention = Convention.FULL
    baseline_cards: int | None = None
    baseline_batch: int | None = None
    pattern: str | None = None


class Figure(Record):
    """A figure of a run."""

    name: str  # its name in JSON
    value: float | None  # in the unit that its text names; None if an input is missing or the value is impossible
    formula: Message  # how it was computed
    inputs: tuple[Message, ...] = ()  # its inputs, each with its source
    missing: tuple[str, ...] = ()  # options that provide the missing inputs


class StepCurve(Record):
    """Steps for a picture: at most a few hundred, evenly chosen, and all slow ones."""

    step: tuple[int, ...]
    seconds: tuple[float | None, ...]
    loss: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks of a run, compared."""

    count: int  # ranks that write steps
    fastest_median: float | None = None  # the shortest median of a rank, in seconds; None with one rank
    slowest_median: float | None = None  # the longest median
    slowest: int | None = None  # its rank, if known


class Counted(Record):
    """MFU and HFU by another convention of counting operations than the chosen one; None above the peak."""

    convention: Convention
    mfu: float | None
    hfu: float | None


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """The measurements of a run."""

    source: Path  # its log, or the folder of its ranks' logs
    run: int  # its number in the log, from 1
    form: str  # the trainer that printed the lines
    steps: int  # lines with a step
    first_step: int  # counter of the first step
    last_step: int  # counter of the last step
    times: StepTimes  # step times
    ranks: Ranks  # ranks compared
    figures: tuple[Figure, ...]  # all other figures, in order
    counted_otherwise: tuple[Counted, ...]  # MFU and HFU by the other conventions of counting operations
    losses: tuple[float, float] | None  # the first and the last loss
    memory: tuple[LoggedMemory, ...]  # memory reported by the ranks
    # Problems: errors mark a broken run or unreliable figures, warnings are worth a look, infos worth knowing.
    health: tuple[Diagnostic, ...]
    about_steps: tuple[Diagnostic, ...]
    impossible: tuple[Diagnostic, ...]  # figures that no device reaches
    curve: StepCurve  # a sample of the steps for a picture
    mean_seconds: float | None = None  # step time of the whole run, if only that is logged
    judgement: tuple[Message, ...] = ()  # how the MFU compares, and the causes that lower it
    ordered: tuple[float, ...] = field(default=(), repr=False)

    @property
    def problems(self) -> tuple[Diagnostic, ...]:
        """Return all problems of the run."""
        return (*self.health, *self.about_steps, *self.impossible)

    @property
    def is_broken(self) -> bool:
        """Return whether the run itself went wrong, whatever its figures."""
        return any(problem.severity is Severity.ERROR for problem in self.health)

    def figure(self, name: str) -> Figure | None:
        """Return a figure by its name."""
        return next((figure for figure in self.figures if figure.name == name), None)

    def value(self, name: str) -> float | None:
        """Return the value of a figure; None if it is missing."""
        figure = self.figure(name)
        return figure.value if figure else None


class RunComparison(Record):
    """A run compared with the baseline run."""

    run: RunMetrics
    baseline: RunMetrics  # the baseline run
    ratio: float  # median step time relative to the baseline's
    low: float | None  # lower limit of the true ratio with 95 % confidence; None with too few steps
    high: float | None  # upper limit of the true ratio
    linearity: Figure | None  # samples/s per card relative to the baseline's; None if the cards are unknown
    # The same by the tuning guide's formula, which divides by the baseline's machine and multiplies by cards.
    guide: Figure | None
    separate: bool = False  # whether each step of one run is slower than each step of the other

    @property
    def is_broken(self) -> bool:
        """Return whether one of both runs is broken, so that the comparison means nothing."""
        return self.run.is_broken or self.baseline.is_broken

    @property
    def is_significant(self) -> bool:
        """Return whether the difference is significant."""
        if self.is_broken:
            return False
        if self.low is None or self.high is None:
            return self.separate
        return not self.low <= 1 <= self.high


class MetricsReport(Record):
    """All runs, and the comparison of the longest run with the longest run of the baseline."""

    runs: tuple[RunMetrics, ...]  # the runs of all logs, in order
    baseline: tuple[RunMetrics, ...] = ()
    comparison: RunComparison | None = None  # None without a baseline or without steps to compare
    problems: tuple[Diagnostic, ...] = ()  # doubts about a file as a whole

    @property
    def all_problems(self) -> tuple[Diagnostic, ...]:
        """Return the problems of the files, of the runs, and of the baseline runs."""
        runs = (*self.runs, *self.baseline)
        return (*self.problems, *(problem for run in runs for problem in run.problems))


class Trend(Record):
    """The trend of a series, by Kendall's tau of its values and their order."""

    tau: float
    p: float  # probability of such a tau, or a larger one, without a trend
    first: float  # level at the start
    last: float  # level at the end


class Outlier(Record):
    """A step that took much longer than the others."""

    step: int  # its counter
    line: int  # its line in the log
    seconds: float  # its duration
    beside: tuple[str, ...]  # events at the same time: `checkpoint`, `evaluation`


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Step times of a run, in seconds; all but ``first`` exclude the first step."""

    count: int  # number of steps after the first
    median: float | None  # median of these; None without steps
    mad: float | None  # their median absolute deviation
    low: float | None  # limits of the 95 % confidence interval of the median; None with too few steps
    high: float | None  # see above
    first: float | None  # the first step; None if its time is not logged
    compiles: bool  # whether the first step takes much longer than the others, as it compiles and warms up
    trend: Trend | None  # of the step time; None with too few steps
    dependent: bool  # whether slow and fast steps follow each other in long runs, without an interval then
    shortest: float | None
    longest: float | None
    mean: float | None  # their mean, outliers included
    outliers: tuple[Outlier, ...]  # the slowest outliers
    outlier_count: int  # number of outliers
    resolution: float  # seconds of the log's smallest unit
    averaged_over: int  # steps per line of the log
