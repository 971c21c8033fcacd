"""The figures of runs on the terminal: a line each, with its formula and its inputs behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.report.console import pad, text_width
from ms_tune.units import gib

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ms_tune.metrics.result import DataProblem, Figure, MetricsReport, RunComparison, RunMetrics
    from ms_tune.metrics.steps import Outlier
    from ms_tune.report.console import Console

_SHARES = ("mfu", "hfu", "linearity", "linearity_guide", "bubble")
_SHOWN = 5  # slow steps


def show_report(report: MetricsReport, console: Console) -> None:
    """Write all runs, the comparison, and the doubts."""
    for run in report.runs:
        _show_run(run, console)
    if report.comparison:
        _show_comparison(report.comparison, console)
        _show_problems(report.comparison.baseline.problems, console)
    _show_problems(report.problems, console)


def title_of(run: RunMetrics, console: Console) -> str:
    """A run in one line."""
    return console.text(
        "metrics.show.run",
        source=run.source,
        number=run.number,
        form=run.form.value,
        steps=run.steps,
        first=run.first_step,
        last=run.last_step,
        ranks=run.ranks.count,
    )


def rows_of(run: RunMetrics, console: Console) -> Iterator[tuple[str, str, str]]:
    """Its figures: name, value, and what it is made of."""
    yield from _times(run, console)
    yield from _rest(run, console)


def _show_run(run: RunMetrics, console: Console) -> None:
    console.write(title_of(run, console))
    _write(rows_of(run, console), console)
    _show_problems(run.problems, console)
    console.write("")


def _write(rows: Iterable[tuple[str, str, str]], console: Console) -> None:
    """Names in one column, values and what they are made of behind."""
    kept = list(rows)
    width = max((text_width(name) for name, _, _ in kept), default=0)
    for name, value, made_of in kept:
        console.write(f"  {pad(name, width)}  {value}" + (f"   ({made_of})" if made_of else ""))


def _times(run: RunMetrics, console: Console) -> Iterator[tuple[str, str, str]]:
    times = run.times
    if times.median is not None:
        interval = ""
        if times.low is not None:
            interval = console.text("metrics.show.interval", low=_seconds(times.low), high=_seconds(times.high))
        yield (
            console.text("metrics.show.step"),
            console.text("metrics.show.step.value", median=_seconds(times.median), mad=_seconds(times.mad)),
            console.text(
                "metrics.show.step.of",
                count=times.count,
                interval=interval,
                shortest=_seconds(times.shortest),
                longest=_seconds(times.longest),
                mean=_seconds(times.mean),
            ),
        )
    first = console.text("metrics.show.first.value", first=_seconds(times.first))
    if times.median:
        first += console.text("metrics.show.first.times", times=f"{times.first / times.median:.1f}")
    yield console.text("metrics.show.first"), first, ""
    for place, one in enumerate(times.outliers[:_SHOWN]):
        yield console.text("metrics.show.outliers") if not place else "", _outlier(one, console), ""
    if times.outlier_count > _SHOWN:
        yield "", console.text("metrics.show.outliers.more", count=times.outlier_count - _SHOWN), ""
    if run.ranks.fastest is not None:
        value = console.text(
            "metrics.show.ranks.value",
            fastest=_seconds(run.ranks.fastest),
            slowest=_seconds(run.ranks.slowest),
            rank="?" if run.ranks.slowest_rank is None else run.ranks.slowest_rank,
        )
        yield console.text("metrics.show.ranks"), value, ""


def _outlier(one: Outlier, console: Console) -> str:
    kinds = [console.text(f"metrics.show.kind.{kind}") for kind in one.kinds]
    names = kinds[0] if kinds else ""
    for other in kinds[1:]:
        names = console.text("metrics.show.kind.and", one=names, other=other)
    beside = console.text("metrics.show.outlier.beside", kinds=names) if names else ""
    return console.text("metrics.show.outlier", number=one.number, seconds=_seconds(one.seconds), beside=beside)


def _rest(run: RunMetrics, console: Console) -> Iterator[tuple[str, str, str]]:
    for figure in run.figures:
        yield _row(figure, console)
        if figure.name in ("mfu", "hfu"):
            for one in run.counted_otherwise:
                share = one.mfu if figure.name == "mfu" else one.hfu
                if share is not None:
                    yield "", f"{share:.2%}", console.text(f"metrics.convention.{one.convention.value}")
    if run.losses:
        yield console.text("metrics.show.loss"), f"{run.losses[0]:.6g} -> {run.losses[1]:.6g}", ""
    if run.memory:
        most = max(run.memory, key=lambda one: one.max_allocated)
        reserved = max(one.max_reserved for one in run.memory)
        value = console.text(
            "metrics.show.memory.value",
            allocated=gib(most.max_allocated),
            rank=most.rank,
            reserved=gib(reserved) if reserved else "-",
        )
        yield console.text("metrics.show.memory"), value, ""


def _row(figure: Figure, console: Console) -> tuple[str, str, str]:
    name = console.text(f"metrics.show.figure.{figure.name}")
    if figure.value is None:
        options = ", ".join(figure.missing)
        return name, console.text("metrics.show.missing" if options else "metrics.show.not", options=options), ""
    value = f"{figure.value:.2%}" if figure.name in _SHARES else f"{figure.value:,.5g}"
    inputs = console.listed(console.say(one) for one in figure.inputs)
    formula = console.say(figure.formula)
    return name, value, console.text("metrics.show.with", formula=formula, inputs=inputs) if inputs else formula


def _show_problems(problems: Iterable[DataProblem], console: Console) -> None:
    for problem in problems:
        console.write(f"  {problem_line(problem, console, 'red' if problem.serious else 'dim')}")


def problem_line(problem: DataProblem, console: Console, colour: str | None = None) -> str:
    """A doubt in one line."""
    label = console.text("metrics.show.serious" if problem.serious else "metrics.show.problem")
    label = label if colour is None else console.paint(label, colour)
    hint = f" ({console.say(problem.hint)})" if problem.hint else ""
    return f"{console.labelled(label, console.say(problem.message))}{hint} [{problem.id}]"


def _show_comparison(comparison: RunComparison, console: Console) -> None:
    title, *lines = comparison_lines(comparison, console)
    console.write(title)
    for line in lines:
        console.write(f"  {line}")
    _write([_row(one, console) for one in (comparison.linearity, comparison.guide) if one], console)


def comparison_lines(comparison: RunComparison, console: Console) -> Iterator[str]:
    """Which runs, the ratio of their medians, and whether that tells them apart."""
    run, baseline = comparison.run, comparison.baseline
    yield console.text("metrics.show.comparison", run=run.source, baseline=baseline.source)
    yield console.text(
        "metrics.show.ratio",
        ratio=f"{comparison.ratio:.3f}",
        seconds=_seconds(run.times.median),
        before=_seconds(baseline.times.median),
    )
    if comparison.low is None or comparison.high is None:
        yield console.text("metrics.show.ratio.few")
        return
    word = "same" if not comparison.told else "slower" if comparison.ratio > 1 else "faster"
    yield console.text(
        "metrics.show.ratio.interval",
        low=f"{comparison.low:.3f}",
        high=f"{comparison.high:.3f}",
        word=console.text(f"metrics.show.ratio.{word}"),
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4f}" if value < 100 else f"{value:,.1f}"  # noqa: PLR2004 - digits that tell
