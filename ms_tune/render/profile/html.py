"""The page of ``profile``: the verdict, where the time went as bars, and the tables; one file without scripts, off line."""

from __future__ import annotations

import base64
import hashlib
import html
from typing import TYPE_CHECKING

from ms_tune.render.console import Console
from ms_tune.render.profile.text import tables_of
from ms_tune.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.performance.profile_result import ProfileReport
    from ms_tune.texts import Language

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
_STYLE = """
body{font:15px/1.5 system-ui,"Noto Sans CJK SC",sans-serif;margin:0 auto;max-width:72rem;padding:1.5rem;color:#1d2127;background:#fff}
h1{font-size:1.35rem;margin:0 0 .25rem}h2{font-size:1.05rem;margin:1.75rem 0 .5rem}.source{color:#5b626c;margin:0 0 1rem;overflow-wrap:anywhere}
.verdict{border-left:4px solid #b03a48;padding:.5rem 1rem;background:#f6f2f1}.verdict p{margin:.25rem 0}.word{font-weight:600;font-size:1.1rem}
svg{display:block;width:100%;height:auto}.legend{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;list-style:none;padding:0;margin:.5rem 0}
.legend svg{display:inline-block;width:.8rem;height:.8rem;margin-right:.4rem;vertical-align:-.05rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;width:100%}th,td{padding:.25rem .6rem;text-align:left;border-bottom:1px solid #dfe2e6;vertical-align:top}
th{white-space:nowrap;color:#444b55}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}td{overflow-wrap:anywhere}
@media (prefers-color-scheme:dark){body{background:#15181c;color:#e3e6ea}.verdict{background:#231d1e}th,.source{color:#a9b0ba}th,td{border-color:#333941}}
"""
_HEIGHT, _WIDTH, _NAME = 22, 1000, 70  # of a bar, of the picture, of the ranks' names
_MOST_BARS = 64


def report_html(report: ProfileReport, top: int, language: Language) -> str:
    """The page in one language."""
    console = Console(language)
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = console.text("profile.show.title")
    sources = ", ".join(str(source) for source in report.sources)
    parts = [
        f'<!doctype html><html lang="{language.value}"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
        f'<h1>{html.escape(title)}</h1><p class="source">{html.escape(sources)} · ms-tune {__version__}</p>',
        *_verdict(report, console),
        *_bars(report, console),
        *(
            part
            for title, heads, rows, right in tables_of(report, top, console)
            for part in _table(title, heads, rows, right)
        ),
        *_doubts(report, console),
        "</body></html>",
    ]
    return "\n".join(parts)


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
        name = "?" if rank.rank is None else rank.rank
        yield f'<text x="0" y="{row * _HEIGHT + 15}" font-size="13" fill="currentColor">{name}</text>'
        at = float(_NAME)
        for cause in report.shares:
            width = rank.times.get(cause, 0.0) / rank.steps / longest * (_WIDTH - _NAME)
            tip = f"{console.text(f'profile.cause.{cause.value}')}: {rank.share(cause):.1%}"
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


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], right: int) -> Iterator[str]:
    if not rows:
        return

    def cells(tag: str, row: Sequence[str]) -> str:
        kinds = (' class="n"' if column < right else "" for column in range(len(row)))
        return "".join(f"<{tag}{kind}>{html.escape(cell)}</{tag}>" for kind, cell in zip(kinds, row, strict=True))

    yield f'<h2>{html.escape(title)}</h2><div class="wide"><table><thead><tr>{cells("th", heads)}</tr></thead><tbody>'
    yield from (f"<tr>{cells('td', row)}</tr>" for row in rows)
    yield "</tbody></table></div>"


def _doubts(report: ProfileReport, console: Console) -> Iterator[str]:
    yield "<ul>"
    if report.identity_error_us is not None:
        yield f"<li>{_text(console, 'profile.show.identity', error=f'{report.identity_error_us:,.3f}')}</li>"
    for problem in report.problems:
        label = _text(console, "profile.show.serious" if problem.serious else "profile.show.problem")
        yield f"<li>{label}: {html.escape(console.say(problem.message))}</li>"
    yield "</ul>"


def _text(console: Console, text_id: str, **params: object) -> str:
    return html.escape(console.text(text_id, **params))
