"""Show the result of `metrics` in the terminal, as JSON, and as a page with curves; each figure has its formula and inputs."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ms_tune.diagnostics import START, Diagnostic, Severity
from ms_tune.encode import record_json
from ms_tune.metrics.result import ENOUGH, Figure, MetricsReport, Outlier, RunComparison, RunMetrics
from ms_tune.report.console import Console, pad, text_width
from ms_tune.report.page import list_html, table_html, verdict_html, write_page
from ms_tune.report.words import doubt_json, doubt_line, shorten_location
from ms_tune.text import Language
from ms_tune.units import gib

_SHARES = ("mfu", "mfu_logged", "hfu", "linearity", "linearity_guide", "bubble")
_SHOWN = 5  # slow steps shown
VERSION = 1
# Keys of every run; null if a figure is missing.
_FIGURES = (
    *("samples_per_second", "samples_per_second_per_card", "tokens_per_second", "tokens_per_second_per_card"),
    *("tflops_logged", "tflops_per_card", "mfu", "mfu_logged", "hfu", "bubble"),
)
_TIMES = (
    *("count", "median", "mad", "trend", "first", "shortest", "longest", "mean", "resolution", "averaged_over"),
    *("outliers", "outlier_count"),
)
_WIDTH, _HEIGHT, _LEFT, _BELOW = 1000, 220, 70, 24
_TIME, _LOSS = "#3b6fb6", "#b5651d"


def show_verdicts(report: MetricsReport, console: Console) -> None:
    """Show one line per run: whether it is healthy, and its figures reliable."""
    for run in report.runs:
        _show_verdict(run, report, _short_title(run, report, console), console)


def _show_verdict(run: RunMetrics, report: MetricsReport, title: str, console: Console) -> None:
    others = (*run.about_steps, *run.impossible, *report.problems)
    errors = sum(problem.severity is Severity.ERROR for problem in others)
    worst = _worst(run.health, report)
    why = console.say(worst.message) if worst else ""
    if worst is not None and worst.severity is Severity.ERROR:
        said, colour = "broken", "red"
    elif errors:
        said, colour = "unreliable", "red"
    else:
        said, colour = ("suspicious", "yellow") if worst else ("healthy", "")
    verdict = console.text(f"metrics.show.verdict.{said}", run=title, count=errors, why=why)
    console.write(console.paint(verdict, colour) if colour else verdict)


def _worst(health: Sequence[Diagnostic], report: MetricsReport) -> Diagnostic | None:
    restarts = (problem for problem in report.problems if problem.severity is Severity.WARNING)
    found = [one for one in (*health, *restarts) if one.severity is not Severity.INFO]
    return min(found, key=lambda one: one.severity.rank, default=None)


def _short_title(run: RunMetrics, report: MetricsReport, console: Console) -> str:
    count = sum(one.source == run.source for one in report.runs)
    counts = {"number": run.run, "count": count, "steps": run.steps, "ranks": run.ranks.count}
    text_id = "metrics.show.short.run.number" if count > 1 else "metrics.show.short.run"
    return console.text(text_id, source=shorten_location(run.source.name or str(run.source)), **counts)


def show_summary(report: MetricsReport, config: Path | None, console: Console) -> None:
    """Show the main figures and the worst problem of the longest run, or of a broken one, then the next command."""
    run = report.comparison.run if report.comparison else max(report.runs, key=lambda run: (run.is_broken, run.steps))
    _show_verdict(run, report, _short_title(run, report, console), console)
    _show_main_figures(run, report, console)
    if (count := len({run.source for run in report.runs})) > 1:
        console.write_text("metrics.show.more-runs", count=count)
    mfu = run.figure("mfu")
    missing = mfu.missing if mfu is not None else ()
    if any(problem.severity is Severity.ERROR for problem in report.all_problems):
        console.write_text("metrics.show.next.problems")
    elif missing:
        console.write_text("metrics.show.next.options", options=console.listed(missing, last=True))
    elif config is not None and len(run.judgement) > 1:
        console.write_raw(console.text("metrics.show.next.config", config=config))
    else:
        console.write_text("metrics.show.next.profile")


def _show_main_figures(run: RunMetrics, report: MetricsReport, console: Console) -> None:
    problems = sorted((*run.problems, *report.problems), key=lambda problem: problem.severity.rank)
    is_wrong = bool(problems) and problems[0].severity is Severity.ERROR
    rows = list(_short_rows(run, report.comparison, console))
    _write_rows(rows[:1] if is_wrong else rows, console)
    causes = run.judgement[1:2] if report.comparison is None and not is_wrong else ()
    console.write_lines(causes, "    ")
    said = _worst(run.health, report)  # by the verdict
    others = [problem for problem in problems if problem is not said]
    if others and not causes:
        text = console.say(others[0].message)
        if len(others) > 1:
            text = console.text("metrics.show.doubts.more", text=text, count=len(others) - 1)
        console.write(f"  {console.labelled(_problem_label(others[0], console), text)}")


def _short_rows(run: RunMetrics, comparison: RunComparison | None, console: Console) -> Iterator[tuple[str, str, str]]:
    times = run.times
    if comparison is not None:
        yield console.text("metrics.show.step"), _short_ratio(comparison, console), ""
    elif times.median is not None:
        said = "step" if times.low is None else "interval"
        seconds = {name: _short_number(getattr(times, name)) for name in ("median", "low", "high")}
        yield console.text("metrics.show.step"), console.text(f"metrics.show.short.{said}", **seconds), ""
    elif run.mean_seconds is not None:
        mean = console.text("metrics.show.short.mean", mean=_short_number(run.mean_seconds))
        yield console.text("metrics.show.step"), mean, ""
    samples, tokens, tflops = map(run.value, ("samples_per_second", "tokens_per_second_per_card", "tflops_per_card"))
    all_tokens = run.value("tokens_per_second") if not tokens else None
    rates = (("samples", samples), ("tokens", all_tokens))
    whole = console.listed(
        console.text(f"metrics.show.short.{name}", value=_short_number(one)) for name, one in rates if one
    )
    parts = [console.text("metrics.show.short.tokens", value=_short_number(tokens))] if tokens else []
    parts += [f"{_short_number(tflops)} TFLOP/s"] if tflops else []
    each = console.listed(parts)
    if each:
        text_id = "metrics.show.short.rates" if whole else "metrics.show.short.devices"
        whole = console.text(text_id, whole=whole, each=each)
    if whole:
        yield console.text("metrics.show.throughput"), whole, ""
    if comparison is not None and comparison.linearity is not None and not comparison.is_broken:
        yield (*_figure_row(comparison.linearity, console)[:2], "")
    mfu = run.figure("mfu")
    if mfu is not None and not mfu.missing and run.judgement:
        name, value, _ = _figure_row(mfu, console)
        yield name, console.labelled(value, console.say(run.judgement[0])), ""
    elif (logged := run.figure("mfu_logged")) is not None:
        yield (*_figure_row(logged, console)[:2], "")


def _short_ratio(comparison: RunComparison, console: Console) -> str:
    ratio, word = f"{comparison.ratio:.3f}", _say_ratio(comparison, console)
    if comparison.low is not None and comparison.high is not None and not comparison.is_broken:
        limits = {"low": f"{comparison.low:.3f}", "high": f"{comparison.high:.3f}"}
        word = console.text("metrics.show.short.ratio.interval", word=word, ratio=ratio, **limits)
    elif comparison.is_significant:
        word = console.text("metrics.show.short.ratio.separate", word=word, ratio=ratio)
    seconds, before = (_short_number(one.times.median) for one in (comparison.run, comparison.baseline))
    return console.text("metrics.show.short.ratio", seconds=seconds, before=before, word=word)


def _say_ratio(comparison: RunComparison, console: Console) -> str:
    which = comparison.run if comparison.run.is_broken else comparison.baseline
    name = shorten_location(which.source.name or str(which.source))
    return console.text(f"metrics.show.ratio.{_ratio_word(comparison)}", which=name)


def _ratio_word(comparison: RunComparison) -> str:
    if comparison.is_broken:
        return "broken"
    if comparison.is_significant:
        return "slower" if comparison.ratio > 1 else "faster"
    if comparison.low is None or comparison.high is None:
        both = (comparison.run.times, comparison.baseline.times)
        return "drift" if any(times.low is None and times.count >= ENOUGH for times in both) else "few"
    return "same"


def _short_number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"  # noqa: PLR2004 - four digits


def show_report(report: MetricsReport, console: Console) -> None:
    """Show all runs with every figure, the comparison, and the problems."""
    for run in report.runs:
        _show_verdict(run, report, title_of(run, console), console)
        _show_run(run, console)
    if report.comparison:
        _show_comparison(report.comparison, console)
        _show_problems(report.comparison.baseline.problems, console)
    _show_problems(report.problems, console)


def title_of(run: RunMetrics, console: Console) -> str:
    """Return a one-line description of a run."""
    return console.text(
        "metrics.show.run",
        source=shorten_location(str(run.source)),
        number=run.run,
        form=run.form,
        steps=run.steps,
        first=run.first_step,
        last=run.last_step,
        ranks=run.ranks.count,
    )


def rows_of(run: RunMetrics, console: Console) -> Iterator[tuple[str, str, str]]:
    """Yield the figures of a run: name, value, and formula with inputs."""
    yield from _time_rows(run, console)
    yield from _other_rows(run, console)


def _show_run(run: RunMetrics, console: Console) -> None:
    _write_rows(rows_of(run, console), console)
    _show_problems(run.problems, console)
    console.write("")


def _write_rows(rows: Iterable[tuple[str, str, str]], console: Console) -> None:
    kept = list(rows)
    width = max((text_width(name) for name, _, _ in kept), default=0)
    for name, value, made_of in kept:
        console.write(f"  {pad(name, width)}  {value}" + (f"   ({made_of})" if made_of else ""))


def _time_rows(run: RunMetrics, console: Console) -> Iterator[tuple[str, str, str]]:
    times = run.times
    if times.median is not None:
        interval = ""
        if times.low is not None:
            interval = console.text(
                "metrics.show.interval", low=_seconds_text(times.low), high=_seconds_text(times.high)
            )
        yield (
            console.text("metrics.show.step"),
            console.text("metrics.show.step.value", median=_seconds_text(times.median), mad=_seconds_text(times.mad)),
            console.text(
                "metrics.show.step.of",
                count=times.count,
                interval=interval,
                shortest=_seconds_text(times.shortest),
                longest=_seconds_text(times.longest),
                mean=_seconds_text(times.mean),
            ),
        )
    if times.first is not None:
        first = console.text(
            f"metrics.show.first.{'value' if times.compiles or not times.median else 'plain'}",
            first=_seconds_text(times.first),
        )
        if times.median and times.compiles:
            first += console.text("metrics.show.first.times", times=f"{times.first / times.median:.1f}")
        yield console.text("metrics.show.first"), first, ""
    for place, one in enumerate(times.outliers[:_SHOWN]):
        yield console.text("metrics.show.outliers") if not place else "", _outlier_text(one, console), ""
    if times.outlier_count > _SHOWN:
        yield "", console.text("metrics.show.outliers.more", count=times.outlier_count - _SHOWN), ""
    if run.ranks.fastest_median is not None:
        value = console.text(
            "metrics.show.ranks.value",
            fastest=_seconds_text(run.ranks.fastest_median),
            slowest=_seconds_text(run.ranks.slowest_median),
            rank="?" if run.ranks.slowest is None else run.ranks.slowest,
        )
        yield console.text("metrics.show.ranks"), value, ""


def _outlier_text(one: Outlier, console: Console) -> str:
    kinds = [console.text(f"metrics.show.kind.{kind}") for kind in one.beside]
    names = kinds[0] if kinds else ""
    for other in kinds[1:]:
        names = console.text("metrics.show.kind.and", one=names, other=other)
    extra = console.text("metrics.show.outlier.beside", kinds=names) if names else ""
    return console.text("metrics.show.outlier", number=one.step, seconds=_seconds_text(one.seconds), extra=extra)


def _other_rows(run: RunMetrics, console: Console) -> Iterator[tuple[str, str, str]]:
    for figure in run.figures:
        yield _figure_row(figure, console)
        if figure.name == "mfu" and run.judgement:
            yield "", console.listed(map(console.say, run.judgement)), ""
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
            allocated=gib(most.max_allocated) if most.max_allocated else "-",
            rank=most.rank,
            reserved=gib(reserved) if reserved else "-",
        )
        yield console.text("metrics.show.memory"), value, ""


def _figure_row(figure: Figure, console: Console) -> tuple[str, str, str]:
    name = console.text(f"metrics.show.figure.{figure.name}")
    if figure.value is None:
        options = ", ".join(figure.missing)
        return name, console.text("metrics.show.missing" if options else "metrics.show.not", options=options), ""
    value = f"{figure.value:.2%}" if figure.name in _SHARES else f"{figure.value:,.5g}"
    inputs = console.listed(console.say(one) for one in figure.inputs)
    formula = console.say(figure.formula)
    return name, value, console.text("metrics.show.with", formula=formula, inputs=inputs) if inputs else formula


def _show_problems(problems: Iterable[Diagnostic], console: Console) -> None:
    for problem in problems:
        console.write(f"  {problem_line(problem, console, 'red' if problem.severity is Severity.ERROR else 'dim')}")


def problem_line(problem: Diagnostic, console: Console, colour: str | None = None) -> str:
    """Return a problem as one line."""
    label = _problem_label(problem, console)
    return doubt_line(problem, label if colour is None else console.paint(label, colour), console)


def _problem_label(problem: Diagnostic, console: Console) -> str:
    names = {Severity.ERROR: "serious", Severity.WARNING: "warning", Severity.INFO: "problem"}
    return console.text(f"metrics.show.{names[problem.severity]}")


def _show_comparison(comparison: RunComparison, console: Console) -> None:
    title, *lines = comparison_lines(comparison, console)
    console.write(title)
    console.write_lines(lines, "  ")
    rows = [_figure_row(one, console) for one in (comparison.linearity, comparison.guide) if one]
    _write_rows(rows, console)


def comparison_lines(comparison: RunComparison, console: Console) -> Iterator[str]:
    """Yield the compared runs, the ratio of their medians, and its significance."""
    run, baseline = comparison.run, comparison.baseline
    yield console.text("metrics.show.comparison", run=run.source, baseline=baseline.source)
    yield console.text(
        "metrics.show.ratio",
        ratio=f"{comparison.ratio:.3f}",
        seconds=_seconds_text(run.times.median),
        before=_seconds_text(baseline.times.median),
    )
    if comparison.is_broken or comparison.low is None or comparison.high is None:
        yield _say_ratio(comparison, console)
        return
    yield console.text(
        "metrics.show.ratio.interval",
        low=f"{comparison.low:.3f}",
        high=f"{comparison.high:.3f}",
        word=_say_ratio(comparison, console),
    )


def _seconds_text(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4f}" if value < 100 else f"{value:,.1f}"  # noqa: PLR2004 - significant digits


def report_json(report: MetricsReport) -> dict[str, object]:
    """Return the JSON object of ``ms-tune metrics --json``."""
    return {
        "version": VERSION,
        "runs": [_run_json(run) for run in report.runs],
        "baseline": [_run_json(run) for run in report.baseline],
        "comparison": _comparison_json(report.comparison) if report.comparison else None,
        "problems": [_problem_json(problem) for problem in report.problems],
    }


def _run_json(run: RunMetrics) -> dict[str, object]:
    return {
        **record_json(run, "source", "run", "form", "steps", "first_step", "last_step", "ranks", "figures", "curve"),
        "step_seconds": {
            **record_json(run.times, *_TIMES),
            "interval": None if run.times.low is None else (run.times.low, run.times.high),
        },
        **dict.fromkeys(_FIGURES),
        **{figure.name: figure.value for figure in run.figures},
        "mfu_counted_otherwise": {one.convention: one.mfu for one in run.counted_otherwise},
        "hfu_counted_otherwise": {one.convention: one.hfu for one in run.counted_otherwise},
        "health": _health_json(run),
        "judgement": run.judgement,
        "loss": {"first": run.losses[0], "last": run.losses[1]} if run.losses else None,
        "memory": [
            {
                "rank": one.rank,
                "allocated_bytes": one.allocated or None,
                "max_allocated_bytes": one.max_allocated or None,
                "reserved_bytes": one.reserved or None,
                "max_reserved_bytes": one.max_reserved or None,
            }
            for one in run.memory
        ],
        "problems": [_problem_json(problem) for problem in run.problems],
    }


def _health_json(run: RunMetrics) -> dict[str, object]:
    found = [problem for problem in run.health if problem.severity is not Severity.INFO]
    state = "broken" if run.is_broken else "suspicious" if found else "healthy"
    return {"state": state, "findings": [problem.id for problem in found]}


def _problem_json(problem: Diagnostic) -> dict[str, object]:
    return doubt_json(problem) | {
        "severity": problem.severity,
        "line": problem.location.line if problem.location != START else None,
    }


def _comparison_json(comparison: RunComparison) -> dict[str, object]:
    linearity, guide = comparison.linearity, comparison.guide
    return {
        "run": record_json(comparison.run, "source", "run"),
        "baseline": record_json(comparison.baseline, "source", "run"),
        "ratio": comparison.ratio,
        "interval": None if comparison.low is None else (comparison.low, comparison.high),
        "confidence": 0.95,
        "told_apart": comparison.is_significant,
        "broken": comparison.is_broken,
        "linearity": linearity and linearity.value,
        "linearity_guide": guide and guide.value,
        "figures": [one for one in (linearity, guide) if one],
    }


def report_html(report: MetricsReport, language: Language) -> str:
    """Return the HTML page in both languages, starting in one."""
    runs = (*report.runs, *report.baseline)
    sources = dict.fromkeys(run.source for run in runs)

    def parts(console: Console) -> Iterator[str]:
        if report.comparison:
            yield verdict_html(comparison_lines(report.comparison, console))
        for run in runs:
            yield f"<h2>{html.escape(title_of(run, console))}</h2>"
            yield from _html_curves(run, console)
            yield from table_html("", [console.text("metrics.show.figure"), "", ""], list(rows_of(run, console)), 0)
            yield from list_html(problem_line(problem, console) for problem in run.problems)
        yield from list_html(problem_line(problem, console) for problem in report.problems)

    return write_page("metrics.show.title", sources, parts, language)


def _html_curves(run: RunMetrics, console: Console) -> Iterator[str]:
    curve = run.curve
    for name, column, colour in (("step", curve.seconds[1:], _TIME), ("loss", curve.loss, _LOSS)):
        places = curve.step[len(curve.step) - len(column) :]
        points = [(step, value) for step, value in zip(places, column, strict=True) if value is not None]
        if len(points) > 1:
            label = console.text(f"metrics.show.{name}")
            yield _svg_curve(points, label, colour)


def _svg_curve(points: Sequence[tuple[int, float]], label: str, colour: str) -> str:
    low, high = min(value for _, value in points), max(value for _, value in points)
    first, last = points[0][0], max(points[-1][0], points[0][0] + 1)
    span = high - low or abs(high) or 1.0

    def place(step: int, value: float) -> str:
        across = _LEFT + (step - first) / (last - first) * (_WIDTH - _LEFT - 10)
        down = 10 + (high - value) / span * (_HEIGHT - _BELOW - 20)
        return f"{across:.1f},{down:.1f}"

    line = " ".join(place(step, value) for step, value in points if math.isfinite(value))
    texts = [(0, 16, f"{high:.5g}"), (0, _HEIGHT - _BELOW - 4, f"{low:.5g}"), (_LEFT, _HEIGHT - 6, f"{first:,}")]
    texts += [(_WIDTH - 90, _HEIGHT - 6, f"{points[-1][0]:,}"), (_WIDTH // 2, _HEIGHT - 6, label)]
    marks = "".join(
        f'<text x="{x}" y="{y}" font-size="13" fill="currentColor">{html.escape(t)}</text>' for x, y, t in texts
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"><title>{html.escape(label)}</title>'
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>{marks}</svg>'
    )
