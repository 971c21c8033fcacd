"""A plan as a picture, time across and addresses up: an SVG, and a page around it that works off line."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.report.console import Console
from ms_tune.report.packing_text import amount_text
from ms_tune.report.page import table_html, verdict_html, write_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ms_tune.memory.plan import PlanReport
    from ms_tune.packing.placement import PackingPlan
    from ms_tune.text import Language

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


def plan_html(report: PlanReport, language: Language) -> str:
    """A page with the picture and the figures; it runs no scripts and loads nothing."""
    plan = report.plan
    figures = [
        ("placement.show.bound", amount_text(plan.lower_bound)),
        ("placement.show.height", amount_text(plan.height)),
        ("placement.show.utilisation", f"{plan.utilisation:.2%}"),
    ]
    if report.recorded is not None:
        figures.append(("placement.show.recorded", amount_text(report.recorded)))

    def parts(console: Console) -> Iterator[str]:
        check = console.text("placement.show.valid" if report.is_valid else "placement.picture.invalid")
        yield verdict_html([check, console.text("placement.show.guide")], good=report.is_valid)
        yield f"<figure>{_draw_svg(report, console)}</figure>"
        yield from table_html("", ["", ""], [(console.text(name), value) for name, value in figures], 0)

    return write_page("placement.picture.title", [report.source], parts, language)


def plan_svg(report: PlanReport, language: Language) -> str:
    """The picture as a file of its own."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_draw_svg(report, Console(language))}\n'


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


def _draw_svg(report: PlanReport, console: Console) -> str:
    plan = report.plan
    scale = _Scale(plan)
    rectangles = list(_draw_blocks(plan, scale, console))
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + _RIGHT} {_TOP + _HEIGHT + _BOTTOM}" '
        'role="img" font-family="system-ui, sans-serif" font-size="13" fill="currentColor">'
    )
    parts = [
        opening,
        f'<rect x="{_LEFT}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}" fill="#fbfcfd"/>',
        *_draw_grid(scale),
        '<g stroke="#ffffff" stroke-width="0.4">',
        *rectangles,
        "</g>",
        *_draw_lines(plan, scale, console),
        *_draw_legend(plan, len(rectangles), console),
        "</svg>",
    ]
    return "\n".join(parts)


def _axis_text(x: float, y: float, text: str, extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{extra}>{escape(text)}</text>'


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


def _draw_blocks(plan: PackingPlan, scale: _Scale, console: Console) -> Iterator[str]:
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
        title = escape(console.text("placement.picture.block", lower=lower, upper=upper, **about))
        yield (
            f'<rect x="{left[block]:.2f}" y="{scale.y_of(address + size):.2f}" width="{right[block] - left[block]:.2f}" '
            f'height="{height[block]:.2f}" fill="{_SHADES[kind][block % 3]}"><title>{title}</title></rect>'
        )


def _live_bytes(plan: PackingPlan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    problem = plan.problem
    ticks = np.unique(np.concatenate((problem.lower, problem.upper)))
    change = np.zeros(len(ticks), np.int64)
    np.add.at(change, np.searchsorted(ticks, problem.lower), problem.size)
    np.subtract.at(change, np.searchsorted(ticks, problem.upper), problem.size)
    return ticks, np.cumsum(change)


def _draw_lines(plan: PackingPlan, scale: _Scale, console: Console) -> Iterator[str]:
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
        yield _axis_text(x, y - 5, console.text(text_id), extra)


def _draw_legend(plan: PackingPlan, drawn: int, console: Console) -> Iterator[str]:
    y = _TOP + _HEIGHT + 24
    for number, (kind, shades) in enumerate(_SHADES.items()):
        x = _LEFT + number * 240
        yield f'<rect x="{x}" y="{y - 11}" width="14" height="14" rx="3" fill="{shades[0]}"/>'
        yield _axis_text(x + 20, y, console.text(f"placement.picture.{kind}"))
    x = _LEFT + len(_SHADES) * 240
    yield f'<line x1="{x}" x2="{x + 16}" y1="{y - 4}" y2="{y - 4}" stroke="#111a24" stroke-width="2"/>'
    yield _axis_text(x + 22, y, console.text("placement.picture.live"))
    yield _axis_text(_LEFT + _WIDTH, y, console.text("placement.picture.time"), ' text-anchor="end"')
    blocks = len(plan.problem)
    if drawn < blocks:
        text = console.text("placement.picture.drawn", drawn=f"{drawn:,}", blocks=f"{blocks:,}")
        yield _axis_text(_LEFT, y + 26, text)
