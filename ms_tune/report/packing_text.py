"""The result of ``ms-tune memory plan``: in the terminal, as JSON, as a plan file and as CSV."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from ms_tune.encode import json_text
from ms_tune.report.console import text_width
from ms_tune.units import GIB, MIB, gib, mib

if TYPE_CHECKING:
    from ms_tune.memory.plan import PlanReport
    from ms_tune.packing.placement import PackingPlan
    from ms_tune.report.console import Console

_FORMAT = 1  # of the plan file


def amount(size: int) -> str:
    """Bytes in the unit that suits them."""
    return gib(size) if size >= GIB else mib(size) if size >= MIB else f"{size:,} B"


def to_json(report: PlanReport) -> dict[str, object]:
    """The report of ``--json``."""
    plan = report.plan
    values: dict[str, object] = {
        "blocks": len(plan.problem),
        "lower_bound_bytes": plan.lower_bound,
        "height_bytes": plan.height,
        "gap": plan.gap,
        "seconds": round(plan.seconds, 4),
        "valid": report.valid,
        "utilisation": plan.utilisation,
        "optimal": plan.proven,
        "method": plan.method,
        "order": plan.order,
        "engine": plan.engine,
        "steps_planned_as_one": plan.folded,
        "ended_by_clock": plan.late,
    }
    optional = {
        "rank": report.rank,
        "recorded_bytes": report.recorded,
        "capacity_bytes": plan.problem.capacity,
        "fits": report.fits,
    }
    return values | {name: value for name, value in optional.items() if value is not None}


def show(report: PlanReport, console: Console) -> None:
    """A few lines: what was planned, how low, whether it is valid."""
    head = {"blocks": f"{len(report.plan.problem):,}", "source": report.source}
    if report.rank is None:
        console.write(console.text("placement.show.blocks", **head))
    else:
        console.write(console.text("placement.show.rank", rank=report.rank, **head))
    show_plan(report, console)
    if report.recorded is not None:
        console.write("")
        console.write(console.text("placement.show.guide"))


def show_plan(report: PlanReport, console: Console) -> None:
    """The plan itself."""
    plan = report.plan
    if plan.folded > 1:
        console.write(console.text("placement.show.folded", periods=plan.folded))
    rows = [("placement.show.bound", amount(plan.lower_bound), "")]
    rows.append(("placement.show.height", amount(plan.height), _gap(plan, console)))
    if report.recorded is not None:
        rows.append(("placement.show.recorded", amount(report.recorded), _saving(report.recorded, plan, console)))
    rows.append(("placement.show.utilisation", f"{plan.utilisation:.2%}", ""))
    names = [console.text(text_id) for text_id, _, _ in rows]
    width = max(map(text_width, names))
    console.write("")
    for name, (_, value, remark) in zip(names, rows, strict=True):
        console.write(f"  {name}{' ' * (width - text_width(name))}  {value:>14}  {remark}".rstrip())
    console.write("")
    _show_capacity(report, console)
    if report.valid:
        console.write(console.paint(console.text("placement.show.valid"), "green"))
    else:
        fault = report.faults[0]
        text = console.text("placement.show.invalid", kind=fault.kind, block=plan.problem.name(fault.block))
        console.write(console.paint(text, "red"))
    method = console.text(f"placement.method.{plan.method}")
    how = {"seconds": f"{plan.seconds:.2f}", "method": method, "order": plan.order, "engine": plan.engine}
    console.write(console.text("placement.show.how", **how))


def plan_file(report: PlanReport) -> str:
    """The plan as JSON: what ``--json`` tells, and every block with its address."""
    problem = report.plan.problem
    columns = (problem.lower, problem.upper, problem.size, problem.alignment, report.plan.address)
    keys = ("lower", "upper", "size", "alignment", "offset")
    blocks = [
        {"id": problem.name(number), **dict(zip(keys, row, strict=True))}
        for number, row in enumerate(zip(*(column.tolist() for column in columns), strict=True))
    ]
    head = json_text({"format": _FORMAT, "source": report.source, **to_json(report)}, indent=1)
    lines = ",\n".join(f"  {json_text(block)}" for block in blocks)
    return f'{head.removesuffix(chr(10) + "}")},\n "plan": [\n{lines}\n ]\n}}\n'


def csv_file(report: PlanReport) -> str:
    """The plan as CSV, as minimalloc writes its solutions: the problem with a column ``offset``."""
    problem = report.plan.problem
    names = [problem.name(number) for number in range(len(problem))]
    columns = (problem.lower, problem.upper, problem.size, problem.alignment, report.plan.address)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("id", "lower", "upper", "size", "alignment", "offset"))
    writer.writerows(zip(names, *(column.tolist() for column in columns), strict=True))
    return file.getvalue()


def _gap(plan: PackingPlan, console: Console) -> str:
    if plan.height <= plan.lower_bound:
        return console.text("placement.show.at-bound")
    gap = f"{plan.gap:.4%}" if plan.gap < 0.001 else f"{plan.gap:.2%}"  # noqa: PLR2004 - small gaps need digits
    return console.text("placement.show.proven" if plan.proven else "placement.show.gap", gap=gap)


def _saving(recorded: int, plan: PackingPlan, console: Console) -> str:
    saved = recorded - plan.height
    if saved < 0:
        return console.text("placement.show.no-saving", more=amount(-saved))
    return console.text("placement.show.saves", saved=amount(saved), share=f"{saved / max(recorded, 1):.2%}")


def _show_capacity(report: PlanReport, console: Console) -> None:
    capacity = report.plan.problem.capacity
    if capacity is None:
        return
    if report.plan.height <= capacity:
        console.write(console.text("placement.show.fits", capacity=amount(capacity)))
    elif report.plan.lower_bound > capacity:
        console.write(console.text("placement.show.impossible", capacity=amount(capacity)))
    else:
        console.write(console.text("placement.show.does-not-fit", capacity=amount(capacity)))
