"""The page of ``profile``: the verdict, where the time went as bars, and the tables; one file without scripts, off line."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Severity
from ms_tune.report.console import Console
from ms_tune.report.page import page, table_html
from ms_tune.report.profile_text import rank_name, tables_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.profile.result import ProfileReport
    from ms_tune.text import Language

_COLOURS = {
    "compute": "#2f7d4f",
    "transfer": "#3b6fb6",
    "waiting": "#c98a1b",
    "bubble": "#b5651d",
    "host": "#b03a48",
    "dependency": "#7a4fa3",
    "communication": "#5f8fbf",
    "free": "#8a8f98",
}
_HEIGHT, _WIDTH, _NAME = 22, 1000, 70  # of a bar, of the picture, of the ranks' names
_MOST_BARS = 64


def report_html(report: ProfileReport, top: int, language: Language) -> str:
    """The page in one language."""
    console = Console(language)
    parts = [
        *_verdict(report, console),
        *_bars(report, console),
        *(part for one in tables_of(report, top, console) for part in table_html(*one)),
        *_doubts(report, console),
    ]
    return page(console.text("profile.show.title"), report.sources, parts, language)


def _verdict(report: ProfileReport, console: Console) -> Iterator[str]:
    yield f'<div class="verdict"><p class="word">{_text(console, f"profile.bound.{report.verdict.bound.value}")}</p>'
    for label, lines in (("because", report.verdict.evidence), ("next", report.verdict.next_steps)):
        yield f"<p>{_text(console, f'profile.show.{label}')}</p><ul>"
        yield from (f"<li>{html.escape(console.say(line))}</li>" for line in lines)
        yield "</ul>"
    yield "</div>"


def _bars(report: ProfileReport, console: Console) -> Iterator[str]:
    """A bar for each rank, of one length for the longest step."""
    ranks = [rank for rank in report.ranks if rank.whole][:_MOST_BARS]
    if not ranks:
        return
    longest = max(rank.whole / rank.steps for rank in ranks)
    mean = sum(rank.whole / rank.steps for rank in ranks) / len(ranks) / 1000
    yield f"<h2>{_text(console, 'profile.show.shares', ranks=len(ranks), ms=f'{mean:,.2f}')}</h2>"
    yield f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT * len(ranks)}" role="img">'
    for row, rank in enumerate(ranks):
        yield f'<text x="0" y="{row * _HEIGHT + 15}" font-size="13" fill="currentColor">{rank_name(rank.rank)}</text>'
        at = float(_NAME)
        for cause in report.shares:
            width = rank.times.get(cause, 0.0) / rank.steps / longest * (_WIDTH - _NAME)
            tip = console.labelled(console.text(f"profile.cause.{cause.value}"), f"{rank.share(cause):.1%}")
            if width > 0:
                yield (
                    f'<rect x="{at:.2f}" y="{row * _HEIGHT + 2}" width="{width:.2f}" height="{_HEIGHT - 5}" '
                    f'fill="{_COLOURS[cause.value]}"><title>{html.escape(tip)}</title></rect>'
                )
            at += width
    yield '</svg><ul class="legend">'
    for cause, share in report.shares.items():
        box = f'<svg viewBox="0 0 8 8"><rect width="8" height="8" fill="{_COLOURS[cause.value]}"/></svg>'
        yield f"<li>{box}{_text(console, f'profile.cause.{cause.value}')} {share:.1%}</li>"
    yield "</ul>"


def _doubts(report: ProfileReport, console: Console) -> Iterator[str]:
    yield "<ul>"
    if report.identity_error_us is not None:
        yield f"<li>{_text(console, 'profile.show.identity', error=f'{report.identity_error_us:,.3f}')}</li>"
    for problem in report.problems:
        label = _text(console, "profile.show.serious" if problem.severity is Severity.ERROR else "profile.show.problem")
        yield f"<li>{label}: {html.escape(console.say(problem.message))}</li>"
    yield "</ul>"


def _text(console: Console, text_id: str, **params: object) -> str:
    return html.escape(console.text(text_id, **params))
