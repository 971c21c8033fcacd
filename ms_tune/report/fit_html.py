"""A plan as a page that works off line: the schedule of its passes, stage by stage, the stages, the reasons."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ms_tune.report.fit_text import NUMBERS
from ms_tune.report.page import list_html, table_html, verdict_html, write_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ms_tune.planning.fit import EvaluatedPlan, FitReport
    from ms_tune.report.console import Console
    from ms_tune.report.fit_text import FitPage
    from ms_tune.text import Language

_WIDTH, _ROW, _LEFT, _TOP = 1160.0, 26.0, 60.0, 8.0
_NARROW = 0.05  # of a unit; passes below it are not seen
# Forward and backward passes by chunk; further chunks begin again.
_FORWARD = ("#3d7ea6", "#5b9bc0", "#86b8d4", "#2c5f7f")
_BACKWARD = ("#d98544", "#e4a36f", "#efc09b", "#b5682d")


def plan_page(show: Callable[[Console], FitPage], sources: Iterable[object], language: Language) -> str:
    """The page; it runs no scripts and loads nothing.

    Args:
        show: What is on it, in the language of a console.
        sources: The files that it is about.
        language: The language that it begins in.
    """
    return write_page("fit.page.title", sources, lambda console: _page_parts(show(console), console), language)


def _page_parts(shown: FitPage, console: Console) -> Iterator[str]:
    yield verdict_html(map(console.say, shown.verdict), good=shown.good)
    yield from (f"<p>{escape(console.say(line))}</p>" for line in shown.assumptions)
    planned = shown.report.planned
    if planned is not None and planned.passes:
        caption = escape(console.text("fit.page.picture"))
        yield f"<figure>{_schedule_picture(shown.report, planned, caption)}<figcaption>{caption}</figcaption></figure>"
    yield from table_html(console.text("fit.page.stages"), shown.heads, shown.rows, NUMBERS)
    if shown.change:
        yield f"<pre>{escape(shown.change)}</pre>"
    for title, lines in shown.sections:
        yield from list_html(map(console.say, lines), console.text(title))


def _schedule_picture(report: FitReport, plan: EvaluatedPlan, title: str) -> str:
    height = _TOP + _ROW * report.table.stages + _TOP
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + _TOP:g} {height:g}" role="img" ',
            f'font-family="system-ui, sans-serif" font-size="12" fill="currentColor"><title>{title}</title>',
            *_stage_rows(report.table.stages),
            *_pass_rectangles(plan),
            "</svg>",
        ]
    )


def _stage_rows(stages: int) -> Iterator[str]:
    for stage in range(stages):
        top = _TOP + _ROW * stage
        yield f'<rect x="{_LEFT:g}" y="{top:g}" width="{_WIDTH:g}" height="{_ROW - 4:g}" fill="#88909c" fill-opacity="0.2"/>'
        yield f'<text x="8" y="{top + 16:g}">{stage}</text>'


def _pass_rectangles(plan: EvaluatedPlan) -> Iterator[str]:
    for one in plan.passes:
        width = one.length * _WIDTH
        if width < _NARROW:
            continue
        colours: Sequence[str] = _FORWARD if one.forward else _BACKWARD
        colour = colours[one.chunk % len(colours)]
        left, top = _LEFT + one.start * _WIDTH, _TOP + _ROW * one.stage
        yield (
            f'<rect x="{left:.2f}" y="{top:g}" width="{width:.2f}" height="{_ROW - 4:g}" fill="{colour}" '
            'stroke="#fff" stroke-width="0.4"/>'
        )
