"""Show the result of ``ms-tune memory plan``: as text, JSON, a plan file, CSV or an HTML page with a picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from html import escape

import numpy as np
from numpy.typing import NDArray

from ms_tune.encode import SCHEMA_VERSION, json_text, record_json
from ms_tune.memory.plan import PlanReport, TorchPlan
from ms_tune.packing.placement import PackingPlan
from ms_tune.pools.memlog import MemLogReport, SizeShare
from ms_tune.readers.memlog import MemLog
from ms_tune.report.console import Console, text_width
from ms_tune.report.page import table_html, verdict_html, write_page
from ms_tune.text import Language
from ms_tune.units import GIB, MIB, gib, mib


def amount_text(size: int) -> str:
    """Return bytes in a suitable unit."""
    return gib(size) if size >= GIB else mib(size) if size >= MIB else f"{size:,} B"


def plan_json(report: PlanReport) -> dict[str, object]:
    """Return the object of ``--json``; values that were not requested or are unknown are left out."""
    plan = report.plan
    optional = {
        "rank": report.rank,
        "recorded_bytes": report.recorded,
        "capacity_bytes": plan.problem.capacity,
        "fits": report.fits_capacity,
    }
    return {
        "blocks": len(plan.problem),
        "lower_bound_bytes": plan.lower_bound,
        "height_bytes": plan.height,
        "seconds": round(plan.seconds, 4),
        "valid": report.is_valid,
        "optimal": plan.proven,
        "steps_planned_as_one": plan.folded,
        "ended_by_clock": plan.late,
        **record_json(plan, "gap", "utilisation", "method", "order", "engine"),
        **{name: value for name, value in optional.items() if value is not None},
        **(_torch_json(report.torch) if report.torch else {}),
    }


def _torch_json(torch: TorchPlan) -> dict[str, object]:
    return {
        "reserved_bytes": torch.reserved,
        "older_blocks": torch.older,
        "streams": [
            {
                **record_json(part, "stream", "changed"),
                "requests": len(part.rows),
                "height_bytes": part.height,
                "first_repeated": part.step.first if part.step else None,
                "steps": part.step.times if part.step else 0,
                "requests_per_step": part.step.period if part.step else None,
            }
            for part in torch.streams
        ],
    }


def show_height(report: PlanReport, console: Console) -> None:
    """Show the height of the plan alone."""
    gap = _gap_text(report.plan, console)
    console.write(f"{console.labelled(console.text('placement.show.height'), amount_text(report.plan.height))}  {gap}")


def show_plan_report(report: PlanReport, console: Console) -> None:
    """Show a summary: the source, the height of the plan, and whether it is valid."""
    head = {"blocks": f"{len(report.plan.problem):,}", "source": report.source}
    if report.rank is None:
        console.write_text("placement.show.blocks", **head)
    else:
        console.write_text("placement.show.rank", rank=report.rank, **head)
    if report.unreleased:
        console.write_text("trace.unreleased", count=f"{report.unreleased:,}")
    if report.torch is not None:
        _show_streams(report.torch, console)
    show_plan(report, console)
    if report.recorded is not None:
        console.write_section("placement.show.guide")


def _show_streams(torch: TorchPlan, console: Console) -> None:
    if torch.older:
        console.write_text("placement.show.older", count=f"{torch.older:,}")
    for number, part in enumerate(torch.streams):
        counts = {"number": number, "count": f"{len(part.rows):,}", "height": amount_text(part.height)}
        if part.step is None:
            console.write_text("placement.show.stream", **counts)
        else:
            first, last, period = part.step
            counts |= {"first": f"{first:,}", "period": f"{period:,}", "rest": f"{len(part.rows) - last:,}"}
            console.write_text("placement.show.steps", times=part.step.times, changed=f"{part.changed:,}", **counts)
    if len(torch.streams) > 1:
        console.write_text("placement.show.streams")


def show_plan(report: PlanReport, console: Console) -> None:
    """Show the figures of the plan."""
    plan = report.plan
    if plan.folded > 1:
        console.write_text("placement.show.folded", periods=plan.folded)
    rows = [("placement.show.bound", amount_text(plan.lower_bound), "")]
    rows.append(("placement.show.height", amount_text(plan.height), _gap_text(plan, console)))
    if report.recorded is not None:
        rows.append(
            ("placement.show.recorded", amount_text(report.recorded), _saving_text(report.recorded, plan, console))
        )
    for name, size in report.torch.reserved.items() if report.torch else ():
        rows.append((f"placement.show.torch.{name}", amount_text(size), _saving_text(size, plan, console)))
    rows.append(("placement.show.utilisation", f"{plan.utilisation:.2%}", ""))
    names = [console.text(text_id) for text_id, _, _ in rows]
    width = max(map(text_width, names))
    console.write("")
    for name, (_, value, remark) in zip(names, rows, strict=True):
        console.write(f"  {name}{' ' * (width - text_width(name))}  {value:>14}  {remark}".rstrip())
    console.write("")
    _show_capacity(report, console)
    if report.is_valid:
        console.write(console.paint(console.text("placement.show.valid"), "green"))
    else:
        fault = report.faults[0]
        text = console.text("placement.show.invalid", kind=fault.kind, block=plan.problem.block_name(fault.block))
        console.write(console.paint(text, "red"))
    method = console.text(f"placement.method.{plan.method}")
    how = {"seconds": f"{plan.seconds:.2f}", "method": method, "order": plan.order, "engine": plan.engine}
    console.write_text("placement.show.how", **how)


def plan_file(report: PlanReport) -> str:
    """Return the plan as JSON: the object of ``--json``, and every block with its address."""
    problem = report.plan.problem
    columns = (problem.lower, problem.upper, problem.size, problem.alignment, report.plan.address)
    keys = ("lower", "upper", "size", "alignment", "offset")
    blocks = [
        {"id": problem.block_name(number), **dict(zip(keys, row, strict=True))}
        for number, row in enumerate(zip(*(column.tolist() for column in columns), strict=True))
    ]
    head = json_text({SCHEMA_VERSION: 1, "source": report.source, **plan_json(report)}, indent=1)
    lines = ",\n".join(f"  {json_text(block)}" for block in blocks)
    scripts = "".join(f' "allocator": {json_text(_script(each, report.plan))},\n' for each in [report.torch] if each)
    return f'{head.removesuffix(chr(10) + "}")},\n{scripts} "plan": [\n{lines}\n ]\n}}\n'


def _script(torch: TorchPlan, plan: PackingPlan) -> dict[str, object]:
    """Return, per stream, sizes and addresses in the order of requests, as the allocator of ``memory run`` needs them."""
    size, address = plan.problem.size, plan.address
    return {
        "padding": torch.padding,
        "older_blocks": torch.older,
        "streams": [
            {
                "height": part.height,
                "repeats": list(part.step or (0, 0, 0)),
                "sizes": size[part.rows].tolist(),
                "offsets": (address[part.rows] - part.base).tolist(),
            }
            for part in torch.streams
        ],
    }


def csv_file(report: PlanReport) -> str:
    """Return the plan as CSV in minimalloc's format: the problem with a column ``offset``."""
    problem = report.plan.problem
    names = [problem.block_name(number) for number in range(len(problem))]
    columns = (problem.lower, problem.upper, problem.size, problem.alignment, report.plan.address)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("id", "lower", "upper", "size", "alignment", "offset"))
    writer.writerows(zip(names, *(column.tolist() for column in columns), strict=True))
    return file.getvalue()


def _gap_text(plan: PackingPlan, console: Console) -> str:
    if plan.height <= plan.lower_bound:
        return console.text("placement.show.at-bound")
    gap = f"{plan.gap:.4%}" if plan.gap < 0.001 else f"{plan.gap:.2%}"  # noqa: PLR2004 - small gaps need more digits
    return console.text("placement.show.proven" if plan.proven else "placement.show.gap", gap=gap)


def _saving_text(recorded: int, plan: PackingPlan, console: Console) -> str:
    saved = recorded - plan.height
    if saved < 0:
        return console.text("placement.show.no-saving", more=amount_text(-saved))
    return console.text("placement.show.saves", saved=amount_text(saved), share=f"{saved / max(recorded, 1):.2%}")


def _show_capacity(report: PlanReport, console: Console) -> None:
    capacity = report.plan.problem.capacity
    if capacity is None:
        return
    if report.plan.height <= capacity:
        console.write_text("placement.show.fits", capacity=amount_text(capacity))
    elif report.plan.lower_bound > capacity:
        console.write_text("placement.show.impossible", capacity=amount_text(capacity))
    else:
        console.write_text("placement.show.does-not-fit", capacity=amount_text(capacity))


def memlog_json(log: MemLog, analysis: MemLogReport, plan: PlanReport) -> dict[str, object]:
    """Return the object of ``ms-tune memory import-memlog --json``."""
    return {
        "allocations": len(log.blocks),
        **record_json(log, "iterations", "micro_batches"),
        "layers": len(log.layers),
        "missing": missing_marks(log),
        "theoretical_peak_bytes": analysis.peak,
        "theoretical_peak_event": analysis.peak_time,
        "parts": {
            name: {"blocks": share.blocks, "at_peak_bytes": share.at_peak, "own_peak_bytes": share.own_peak}
            for name, share in _list_shares(analysis)
        },
        "torch": {
            "allocated_bytes": analysis.torch_allocated,
            "reserved_bytes": analysis.torch_reserved,
            "utilisation": analysis.torch_utilisation,
        },
        "plan": plan_json(plan),
    }


def _list_shares(analysis: MemLogReport) -> Iterator[tuple[str, SizeShare]]:
    yield from ((share.kind.value, share) for share in analysis.shares)
    yield "activations", analysis.activations


def missing_marks(log: MemLog) -> list[str]:
    """Return the kinds of marks that the trace lacks, without which blocks cannot be distinguished."""
    counts = {"iteration": log.iterations, "micro-batch": log.micro_batches, "layer": len(log.layers)}
    return [name for name, count in counts.items() if not count]


def show_memlog(log: MemLog, analysis: MemLogReport, plan: PlanReport, console: Console) -> None:
    """Show the traced blocks, the peak and its parts, the result of PyTorch's allocator, and the plan."""
    counts = {"blocks": len(log.blocks), "layers": len(log.layers)}
    counts |= {"iterations": log.iterations, "micro_batches": log.micro_batches}
    console.write_text("memlog.show.trace", **{name: f"{count:,}" for name, count in counts.items()})
    for name in missing_marks(log):
        console.write_text(f"memlog.missing.{name}")
    console.write(console.labelled(console.text("memlog.show.peak"), amount_text(analysis.peak)))
    heads = [console.text(f"memlog.column.{column}") for column in ("kind", "blocks", "at-peak", "own-peak")]
    rows = [
        (
            console.text(f"memlog.kind.{name}"),
            f"{share.blocks:,}",
            amount_text(share.at_peak),
            amount_text(share.own_peak),
        )
        for name, share in _list_shares(analysis)
    ]
    console.write("")
    console.write_table(heads, rows, right=range(1, len(heads)))
    console.write("")
    torch = {"allocated": amount_text(analysis.torch_allocated), "reserved": amount_text(analysis.torch_reserved)}
    console.write_text("memlog.show.torch", utilisation=f"{analysis.torch_utilisation:.2%}", **torch)
    console.write_text("memlog.show.note")
    console.write_section("memlog.show.plan")
    show_plan(plan, console)


_WIDTH, _HEIGHT = 1200, 640  # of the plot
_LEFT, _TOP, _RIGHT, _BOTTOM = 96, 24, 24, 64
_MOST_BLOCKS = 6000
_LEAST_AREA = 0.02  # smallest visible area of a block, in square units of the picture
_POINTS = 1200  # points of the curve of live bytes
_LONG = 0.9  # share of the time from which a block is long-lived
# Fill colours by kind of block, three shades each to distinguish neighbours.
_SHADES = {
    "long": ("#27476e", "#33598a", "#1f3a5a"),
    "peak": ("#e07a3f", "#cf6a2f", "#eb8d57"),
    "other": ("#8fb8a8", "#7ba897", "#a4c8ba"),
}


def plan_html(report: PlanReport, language: Language) -> str:
    """Return an HTML page with the picture and the figures, without scripts and external resources."""
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


class _Scale:
    """Mapping of ticks and bytes to picture coordinates; only ticks with events count as time."""

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
    # 1, 2 or 5 times a power of ten, in the unit in which it is shown.
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
    group = max(1, -(-len(ticks) // _POINTS))  # draw the maximum of each group of ticks
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
