"""A plan as a page that works off line: the schedule of its passes, stage by stage, the stages, the reasons."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from typing import TYPE_CHECKING

from ms_tune.render.fit import why
from ms_tune.texts import Message, msg, render
from ms_tune.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.planning.fit import FitReport, Planned
    from ms_tune.texts import Language

_WIDTH, _ROW, _LEFT, _TOP = 1160.0, 26.0, 60.0, 8.0
_NARROW = 0.05  # of a unit; passes below it are not seen
# Forward and backward passes by chunk; further chunks begin again.
_FORWARD = ("#3d7ea6", "#5b9bc0", "#86b8d4", "#2c5f7f")
_BACKWARD = ("#d98544", "#e4a36f", "#efc09b", "#b5682d")
_STYLE = """
:root { color-scheme: light; font: 15px/1.5 system-ui, "Noto Sans CJK SC", sans-serif; color: #1c2530; background: #f5f6f8; }
body { margin: 0 auto; max-width: 1320px; padding: 24px; }
h1 { font-size: 20px; } h2 { font-size: 16px; margin: 20px 0 4px; }
figure { margin: 16px 0; background: #fff; border: 1px solid #d9dee5; border-radius: 8px; padding: 8px; }
figure svg { width: 100%; height: auto; display: block; }
table { border-collapse: collapse; background: #fff; } th, td { border: 1px solid #d9dee5; padding: 4px 10px; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
pre { background: #fff; border: 1px solid #d9dee5; border-radius: 8px; padding: 10px; overflow-x: auto; }
"""


def page(report: FitReport, language: Language, notes: list[Message] | None = None) -> str:
    """The page; it runs no scripts and loads nothing.

    Args:
        report: The plan, or why there is none.
        language: The user's.
        notes: What the figures are, in place of what is told of a table.
    """

    def said(message: Message) -> str:
        return escape(render(message, language))

    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    plan = report.planned or report.nearest
    parts = [
        f'<!DOCTYPE html>\n<html lang="{language.value}"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{said(msg('fit.page.title'))}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{said(why.verdict(report))}</h1>",
        *(f"<p>{said(sentence)}</p>" for sentence in why.seconds(report)),
    ]
    if report.planned is not None and report.planned.passes:
        parts.append(
            f"<figure>{_picture(report, report.planned, language)}<figcaption>{said(msg('fit.page.picture'))}</figcaption></figure>"
        )
    if plan is not None:
        parts.append(_stages(report, plan, language))
    if report.planned is not None:
        lists = "\n".join(f"{name}: {rows}" for name, rows in report.planned.plan.to_json().items())
        parts.append(f"<pre>{escape(lists)}</pre>")
    for title, lines in (
        ("fit.title.why", why.reasons(report)),
        ("fit.title.others", why.others(report)),
        ("fit.title.remedies", why.remedies(report)),
        ("fit.title.notes", why.notes(report) if notes is None else notes),
    ):
        if lines:
            items = "".join(f"<li>{said(line)}</li>" for line in lines)
            parts.append(f"<h2>{said(msg(title))}</h2><ul>{items}</ul>")
    return "\n".join([*parts, "</body></html>\n"])


def _picture(report: FitReport, plan: Planned, language: Language) -> str:
    """The passes: time across, a row for each stage; what stays empty is the bubble."""
    height = _TOP + _ROW * report.table.stages + _TOP
    title = escape(render(msg("fit.page.picture"), language))
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + _TOP:g} {height:g}" role="img" ',
            f'font-family="system-ui, sans-serif" font-size="12"><title>{title}</title>',
            *_rows(report.table.stages),
            *_passes(plan),
            "</svg>",
        ]
    )


def _rows(stages: int) -> Iterator[str]:
    for stage in range(stages):
        top = _TOP + _ROW * stage
        yield f'<rect x="{_LEFT:g}" y="{top:g}" width="{_WIDTH:g}" height="{_ROW - 4:g}" fill="#eef0f3"/>'
        yield f'<text x="8" y="{top + 16:g}">{stage}</text>'


def _passes(plan: Planned) -> Iterator[str]:
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


def _stages(report: FitReport, plan: Planned, language: Language) -> str:
    names = ("stage", "peak", "free", "layers", "recompute")
    heads = "".join(f"<th>{escape(render(msg(f'fit.column.{name}'), language))}</th>" for name in names)
    rows = []
    for stage, peak in enumerate(plan.peak_bytes):
        cells = plan.cells[stage :: report.table.stages]
        figures = (str(stage), f"{peak / GIB:.2f}", f"{(report.table.limit_bytes - peak) / GIB:.2f}")
        words = (
            " + ".join(str(sum(cell.values())) for cell in cells),
            " | ".join(why.recomputed(cell) for cell in cells),
        )
        numbers = "".join(f'<td class="number">{figure}</td>' for figure in figures)
        rows.append(f"<tr>{numbers}{''.join(f'<td>{escape(word)}</td>' for word in words)}</tr>")
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
