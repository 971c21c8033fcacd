"""What `metrics` found: runs with their figures, each with its formula and where its inputs came from, and doubts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.performance.steps import StepTimes
    from ms_tune.performance.work import Convention
    from ms_tune.texts import Message
    from ms_tune.trace.logged_steps import LoggedMemory
    from ms_tune.trace.step_lines import Form


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a run.

    Attributes:
        name: Its name in JSON.
        value: In the unit that its text names; None if an input is missing or it would be no truth.
        formula: How it was worked out.
        inputs: What went in, and where each came from.
        missing: What would have to be told, as options.
    """

    name: str
    value: float | None
    formula: Message
    inputs: tuple[Message, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """A doubt about a run's figures.

    Attributes:
        id: Its name in JSON.
        message: What is wrong.
        hint: What to do, or what it means.
        serious: Whether a figure must not be believed; otherwise it is good to know.
        line: A line of the log.
    """

    id: str
    message: Message
    hint: Message | None = None
    serious: bool = False
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """Steps for a picture: at most a few hundred, evenly chosen, and all that stand out."""

    number: tuple[int, ...]
    seconds: tuple[float, ...]
    loss: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks of a run beside each other.

    Attributes:
        count: Ranks that write steps.
        fastest: The shortest median of a rank, in seconds; None with one rank.
        slowest: The longest.
        slowest_rank: Whose that is, if it is known.
    """

    count: int
    fastest: float | None = None
    slowest: float | None = None
    slowest_rank: int | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """Utilisation by a convention of counting operations that was not chosen; None above the peak."""

    convention: Convention
    mfu: float | None
    hfu: float | None


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """A run.

    Attributes:
        source: Its log, or the folder of its ranks' logs.
        number: Which run of the log it is, from 1.
        form: Who printed the lines.
        steps: Lines with a step.
        first_step: Counter of the first one.
        last_step: Counter of the last one.
        times: How long they took.
        ranks: Ranks beside each other.
        figures: All other figures, in order.
        counted_otherwise: MFU and HFU by the other conventions of counting operations.
        losses: The first and the last loss.
        memory: What ranks said about their memory.
        problems: Doubts.
        curve: For a picture.
    """

    source: Path
    number: int
    form: Form
    steps: int
    first_step: int
    last_step: int
    times: StepTimes
    ranks: Ranks
    figures: tuple[Figure, ...]
    counted_otherwise: tuple[Counted, ...]
    losses: tuple[float, float] | None
    memory: tuple[LoggedMemory, ...]
    problems: tuple[Problem, ...]
    curve: Curve
    ordered: tuple[float, ...] = field(default=(), repr=False)

    def figure(self, name: str) -> Figure | None:
        """One of the figures by its name."""
        return next((figure for figure in self.figures if figure.name == name), None)

    def value(self, name: str) -> float | None:
        """The value of one of the figures, if there is one."""
        figure = self.figure(name)
        return figure.value if figure else None


@dataclass(frozen=True, slots=True)
class RunComparison:
    """A run beside another one.

    Attributes:
        run: The run.
        baseline: What it is compared with.
        ratio: Its median step time, of the baseline's.
        low: The true ratio lies above this with 95 %; None with too few steps.
        high: And below this.
        linearity: Its samples a second and card, of the baseline's; None where the cards are not known.
        guide: The same by the tuning guide's formula, which divides by the baseline's machine and multiplies by cards.
    """

    run: RunMetrics
    baseline: RunMetrics
    ratio: float
    low: float | None
    high: float | None
    linearity: Figure | None
    guide: Figure | None

    @property
    def told(self) -> bool:
        """Whether the steps are enough to tell one from the other."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


@dataclass(frozen=True, slots=True)
class MetricsReport:
    """All runs, and the first log's longest run beside the baseline's.

    Attributes:
        runs: The runs of all logs, in order.
        baseline: The runs of the baseline.
        comparison: Present where there is a baseline and both have steps to compare.
        problems: Doubts about a file as a whole.
    """

    runs: tuple[RunMetrics, ...]
    baseline: tuple[RunMetrics, ...] = ()
    comparison: RunComparison | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def all_problems(self) -> tuple[Problem, ...]:
        """Of the files, of the runs, and of the baseline's."""
        runs = (*self.runs, *self.baseline)
        return (*self.problems, *(problem for run in runs for problem in run.problems))
