"""The page of ``metrics``: each run's step times as a curve, and its figures with formulas and inputs."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

from ms_tune.report.console import Console
from ms_tune.report.metrics_text import comparison_lines, problem_line, rows_of, title_of
from ms_tune.report.page import page, table_html

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.metrics.result import MetricsReport, RunMetrics
    from ms_tune.text import Language

_WIDTH, _HEIGHT, _LEFT, _BELOW = 1000, 220, 70, 24
_TIME, _LOSS = "#3b6fb6", "#b5651d"


def report_html(report: MetricsReport, language: Language) -> str:
    """The page in one language."""
    console = Console(language)
    sources = dict.fromkeys(run.source for run in (*report.runs, *report.baseline))
    return page(console.text("metrics.show.title"), sources, _parts(report, console), language)


def _parts(report: MetricsReport, console: Console) -> Iterator[str]:
    if report.comparison:
        yield '<div class="verdict">'
        yield from (f"<p>{html.escape(line)}</p>" for line in comparison_lines(report.comparison, console))
        yield "</div>"
    for run in (*report.runs, *report.baseline):
        yield f"<h2>{html.escape(title_of(run, console))}</h2>"
        yield from _curves(run, console)
        yield from table_html("", [console.text("metrics.show.figure"), "", ""], list(rows_of(run, console)), 0)
        yield from _list(problem_line(problem, console) for problem in run.problems)
    yield from _list(problem_line(problem, console) for problem in report.problems)


def _list(lines: Iterator[str]) -> Iterator[str]:
    items = [f"<li>{html.escape(line)}</li>" for line in lines]
    if items:
        yield "<ul>" + "".join(items) + "</ul>"


def _curves(run: RunMetrics, console: Console) -> Iterator[str]:
    """Step times without the first step, and losses, each with its own scale."""
    curve = run.curve
    steps = list(zip(curve.number, curve.seconds, strict=True))[1:]
    losses = [(step, loss) for step, loss in zip(curve.number, curve.loss, strict=True) if loss is not None]
    for name, points, colour in (("step", steps, _TIME), ("loss", losses, _LOSS)):
        if len(points) > 1:
            label = console.text(f"metrics.show.{name}")
            yield _curve(points, label, colour)


def _curve(points: Sequence[tuple[int, float]], label: str, colour: str) -> str:
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
