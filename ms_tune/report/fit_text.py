"""What ``ms-tune fit --table`` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.report import fit_why
from ms_tune.report.fit_shown import Shown
from ms_tune.units import GIB

if TYPE_CHECKING:
    from ms_tune.planning.fit import FitReport, Planned
    from ms_tune.report.console import Console


def shown_of(report: FitReport, console: Console) -> Shown:
    """The verdict, the stages, the lists, the reasons and the rest of a table's plan."""
    plan = report.planned or report.nearest
    heads, rows = _stages(report, plan, console) if plan is not None else ([], [])
    lists = report.planned.plan.to_json() if report.planned is not None else {}
    return Shown(
        report=report,
        good=report.planned is not None,
        assumptions=(),
        verdict=(fit_why.verdict(report), *fit_why.seconds(report)),
        heads=heads,
        rows=rows,
        change="\n".join(f"{name}: {cells}" for name, cells in lists.items()),
        sections=(
            ("fit.title.why", fit_why.reasons(report)),
            ("fit.title.others", fit_why.others(report)),
            ("fit.title.remedies", fit_why.remedies(report)),
            ("fit.title.notes", fit_why.notes(report)),
        ),
    )


def _stages(report: FitReport, plan: Planned, console: Console) -> tuple[list[str], list[list[str]]]:
    names = ("stage", "peak", "free", "layers", "recompute", "before")
    rows = []
    for stage, peak in enumerate(plan.peak_bytes):
        cells = plan.cells[stage :: report.table.stages]
        before = report.reference.cells[stage :: report.table.stages] if report.has_present else ()
        rows.append(
            [
                str(stage),
                f"{peak / GIB:.2f}",
                f"{(report.table.limit_bytes - peak) / GIB:.2f}",
                " + ".join(str(sum(cell.values())) for cell in cells),
                " | ".join(fit_why.recomputed(cell) for cell in cells),
                " | ".join(f"{sum(cell.values())}: {fit_why.recomputed(cell)}" for cell in before),
            ]
        )
    return [console.text(f"fit.column.{name}") for name in names], rows
