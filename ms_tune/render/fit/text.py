"""The result of ``ms-tune fit`` in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.render.columns import table, terminal_width
from ms_tune.render.fit import why
from ms_tune.units import GIB

if TYPE_CHECKING:
    from ms_tune.planning.fit import FitReport, Planned
    from ms_tune.render.console import Console


def show(report: FitReport, console: Console) -> None:
    """The verdict, the stages, the lists, the reasons and the rest."""
    colour = "red" if report.planned is None else "green"
    console.write(console.paint(console.say(why.verdict(report)), colour))
    for sentence in why.seconds(report):
        console.write(console.say(sentence))
    plan = report.planned or report.nearest
    if plan is not None:
        console.write("")
        for line in table(*_stages(report, plan, console), right=2, width=terminal_width()):
            console.write(line)
    if report.planned is not None:
        console.write("")
        for name, rows in report.planned.plan.to_json().items():
            console.write(f"{name}: {rows}")
    for title, lines in (
        ("fit.title.why", why.reasons(report)),
        ("fit.title.others", why.others(report)),
        ("fit.title.remedies", why.remedies(report)),
        ("fit.title.notes", why.notes(report)),
    ):
        if lines:
            console.write("")
            console.write(console.text(title))
            for sentence in lines:
                console.write(f"  - {console.say(sentence)}")


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
                " | ".join(why.recomputed(cell) for cell in cells),
                " | ".join(f"{sum(cell.values())}: {why.recomputed(cell)}" for cell in before),
            ]
        )
    return [console.text(f"fit.column.{name}") for name in names], rows
