"""A plan as a picture, time across and addresses up: an SVG, and a page around it that works off line."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.report.packing_text import amount_text
from ms_tune.text import Language, Message, msg, render

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ms_tune.memory.plan import PlanReport
    from ms_tune.packing.placement import PackingPlan

_WIDTH, _HEIGHT = 1200, 640  # of the plot
_LEFT, _TOP, _RIGHT, _BOTTOM = 96, 24, 24, 64
_MOST_BLOCKS = 6000
_LEAST_AREA = 0.02  # of a block that can be seen, in square units of the picture
_POINTS = 1200  # of the curve of live bytes
_LONG = 0.9  # of the time, for a block that lives nearly all the time
# Fills by what a block is, three shades each so that neighbours can be told apart.
_SHADES = {
    "long": ("#27476e", "#33598a", "#1f3a5a"),
    "peak": ("#e07a3f", "#cf6a2f", "#eb8d57"),
    "other": ("#8fb8a8", "#7ba897", "#a4c8ba"),
}
_STYLE = """
:root { color-scheme: light; font: 15px/1.5 system-ui, "Noto Sans CJK SC", sans-serif; color: #1c2530; background: #f5f6f8; }
body { margin: 0 auto; max-width: 1360px; padding: 24px; }
h1 { font-size: 22px; margin: 0 0 4px; overflow-wrap: anywhere; }
figure { margin: 16px 0; background: #fff; border: 1px solid #d9dee5; border-radius: 8px; padding: 8px; }
figure svg { width: 100%; height: auto; display: block; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 12px; margin: 16px 0; }
dl div { background: #fff; border: 1px solid #d9dee5; border-radius: 8px; padding: 10px 14px; }
dt { color: #5b6776; font-size: 13px; } dd { margin: 0; font-size: 20px; font-variant-numeric: tabular-nums; }
.language { float: right; } .language label { cursor: pointer; margin-left: 10px; }
p { max-width: 80ch; } .note { color: #5b6776; }
body [lang=zh], body:has(#zh:checked) [lang=en] { display: none; } body:has(#zh:checked) [lang=zh] { display: revert; }
input:focus-visible + span { outline: 2px solid #2b6cb0; }
"""
_BOTH = (Language.EN, Language.ZH)


def plan_html(report: PlanReport, language: Language) -> str:
    """A page with the picture and the figures, in both languages; it runs no scripts and loads nothing."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    plan = report.plan
    title = msg("placement.picture.title", source=report.source)
    facts = [
        ("placement.show.bound", amount_text(plan.lower_bound)),
        ("placement.show.height", amount_text(plan.height)),
        ("placement.show.utilisation", f"{plan.utilisation:.2%}"),
    ]
    if report.recorded is not None:
        facts.append(("placement.show.recorded", amount_text(report.recorded)))
    choices = "".join(
        f'<label><input type="radio" name="language" id="{choice.value}"{" checked" if choice is language else ""}> '
        f"<span>{name}</span></label>"
        for choice, name in zip(_BOTH, ("English", "中文"), strict=True)
    )
    cards = "".join(f"<div><dt>{_both_languages(msg(name))}</dt><dd>{value}</dd></div>" for name, value in facts)
    check = msg("placement.show.valid" if report.is_valid else "placement.picture.invalid")
    return (
        f'<!DOCTYPE html>\n<html lang="{language.value}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(render(title, language))}</title>'
        f'<style>{_STYLE}</style></head>\n<body><div class="language">{choices}</div><h1>{_both_languages(title)}</h1>'
        f"<dl>{cards}</dl>\n<figure>{_draw_svg(report, sorted(_BOTH, key=lambda each: each is not language))}</figure>\n<p>{_both_languages(check)}.</p>"
        f'<p class="note">{_both_languages(msg("placement.show.guide"))}</p></body></html>\n'
    )


def plan_svg(report: PlanReport, language: Language) -> str:
    """The picture as a file of its own."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_draw_svg(report, (language,))}\n'


def _both_languages(message: Message) -> str:
    return "".join(f'<span lang="{language.value}">{escape(render(message, language))}</span>' for language in _BOTH)


class _Scale:
    """From ticks and bytes to the picture. Time is counted in the different ticks at which anything happens."""

    def __init__(self, plan: PackingPlan) -> None:
        problem = plan.problem
        self.ticks = np.unique(np.concatenate((problem.lower, problem.upper)))
        self.last = max(len(self.ticks) - 1, 1)
        self.top = max(plan.height, 1) * 1.04

    def x_of(self, tick: NDArray[np.int64]) -> NDArray[np.float64]:
        return _LEFT + np.searchsorted(self.ticks, tick) / self.last * _WIDTH

    def y_of(self, address: float) -> float:
        return _TOP + _HEIGHT * (1 - address / self.top)


def _draw_svg(report: PlanReport, languages: Sequence[Language]) -> str:
    plan = report.plan
    scale = _Scale(plan)
    rectangles = list(_draw_blocks(plan, scale, languages[0]))
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + _RIGHT} {_TOP + _HEIGHT + _BOTTOM}" '
        'role="img" font-family="system-ui, sans-serif" font-size="13" fill="#3a4654">'
    )
    parts = [
        opening,
        f'<rect x="{_LEFT}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}" fill="#fbfcfd"/>',
        *_draw_grid(scale),
        '<g stroke="#ffffff" stroke-width="0.4">',
        *rectangles,
        "</g>",
        *_draw_lines(plan, scale, languages),
        *_draw_legend(plan, len(rectangles), languages),
        "</svg>",
    ]
    return "\n".join(parts)


def _axis_texts(x: float, y: float, message: Message, languages: Sequence[Language], extra: str = "") -> str:
    several = len(languages) > 1
    return "".join(
        f'<text x="{x:.1f}" y="{y:.1f}"{f" lang={chr(34)}{language.value}{chr(34)}" if several else ""}{extra}>'
        f"{escape(render(message, language))}</text>"
        for language in languages
    )


def _draw_grid(scale: _Scale) -> Iterator[str]:
    step = _round_step(scale.top / 6)
    for number in range(int(scale.top / step) + 1):
        y = scale.y_of(number * step)
        yield f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e3e7ec"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{amount_text(int(number * step))}</text>'


def _round_step(step: float) -> float:
    """1, 2 or 5 times a power of ten, of the unit in which it will be shown."""
    unit = 1024.0 ** max(0, min(3, int(np.log2(max(step, 1)) // 10)))
    power = 10.0 ** np.floor(np.log10(max(step / unit, 1e-9)))
    return float(next(factor for factor in (1, 2, 5, 10) if factor * power * unit >= step) * power * unit)


def _draw_blocks(plan: PackingPlan, scale: _Scale, language: Language) -> Iterator[str]:
    problem = plan.problem
    left, right = scale.x_of(problem.lower), scale.x_of(problem.upper)
    height = problem.size / scale.top * _HEIGHT
    area = (right - left) * height
    seen = np.argsort(-area, kind="stable")[:_MOST_BLOCKS]
    seen = seen[area[seen] > _LEAST_AREA]
    ticks, live = _live_bytes(plan)
    peak = int(ticks[live.argmax()]) if len(ticks) else 0
    for block in np.sort(seen).tolist():
        kind = "other"
        if right[block] - left[block] >= _LONG * _WIDTH:
            kind = "long"
        elif problem.lower[block] <= peak < problem.upper[block]:
            kind = "peak"
        address, size = int(plan.address[block]), int(problem.size[block])
        lower, upper = int(problem.lower[block]), int(problem.upper[block])
        about = {"block": problem.block_name(block), "size": amount_text(size), "address": amount_text(address)}
        title = escape(render(msg("placement.picture.block", lower=lower, upper=upper, **about), language))
        yield (
            f'<rect x="{left[block]:.2f}" y="{scale.y_of(address + size):.2f}" width="{right[block] - left[block]:.2f}" '
            f'height="{height[block]:.2f}" fill="{_SHADES[kind][block % 3]}"><title>{title}</title></rect>'
        )


def _live_bytes(plan: PackingPlan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ticks, and the bytes that are live from each of them on."""
    problem = plan.problem
    ticks = np.unique(np.concatenate((problem.lower, problem.upper)))
    change = np.zeros(len(ticks), np.int64)
    np.add.at(change, np.searchsorted(ticks, problem.lower), problem.size)
    np.subtract.at(change, np.searchsorted(ticks, problem.upper), problem.size)
    return ticks, np.cumsum(change)


def _draw_lines(plan: PackingPlan, scale: _Scale, languages: Sequence[Language]) -> Iterator[str]:
    ticks, live = _live_bytes(plan)
    group = max(1, -(-len(ticks) // _POINTS))  # of several ticks the most is shown
    points = []
    for first in range(0, len(ticks), group):
        x, y = scale.x_of(ticks[first : first + 1])[0], scale.y_of(int(live[first : first + group].max()))
        points.append(f"{x:.1f},{y:.1f}")
    yield f'<polyline points="{" ".join(points)}" fill="none" stroke="#111a24" stroke-width="1.2" stroke-opacity="0.75"/>'
    for text_id, value, colour in (
        ("placement.picture.height", plan.height, "#b3261e"),
        ("placement.picture.bound", plan.lower_bound, "#1b6e3c"),
    ):
        y = scale.y_of(value)
        yield f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-dasharray="6 4"/>'
        at_end = text_id == "placement.picture.height"
        x = _LEFT + _WIDTH if at_end else _LEFT + 8
        extra = f' fill="{colour}"{" text-anchor=" + chr(34) + "end" + chr(34) if at_end else ""}'
        yield _axis_texts(x, y - 5, msg(text_id), languages, extra)


def _draw_legend(plan: PackingPlan, drawn: int, languages: Sequence[Language]) -> Iterator[str]:
    y = _TOP + _HEIGHT + 24
    for number, (kind, shades) in enumerate(_SHADES.items()):
        x = _LEFT + number * 240
        yield f'<rect x="{x}" y="{y - 11}" width="14" height="14" rx="3" fill="{shades[0]}"/>'
        yield _axis_texts(x + 20, y, msg(f"placement.picture.{kind}"), languages)
    x = _LEFT + len(_SHADES) * 240
    yield f'<line x1="{x}" x2="{x + 16}" y1="{y - 4}" y2="{y - 4}" stroke="#111a24" stroke-width="2"/>'
    yield _axis_texts(x + 22, y, msg("placement.picture.live"), languages)
    yield _axis_texts(_LEFT + _WIDTH, y, msg("placement.picture.time"), languages, ' text-anchor="end"')
    blocks = len(plan.problem)
    if drawn < blocks:
        message = msg("placement.picture.drawn", drawn=f"{drawn:,}", blocks=f"{blocks:,}")
        yield _axis_texts(_LEFT, y + 26, message, languages)
