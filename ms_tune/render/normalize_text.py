"""A recompute plan for the terminal (``ms-tune normalize-recompute``)."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from ms_tune.layers import Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.layers import LayerPlan, Placement, RecomputeInputs, RecomputePlan
    from ms_tune.render.console import Console

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_NAMES = "abcdefghijklmnopqrstuvwxyz"


def log_text(plan: RecomputePlan) -> str:
    """The lines that MindFormers logs; its log puts date and place before them."""
    return "\n".join(f"INFO - {line}" for line in plan.log)


def write_plan(inputs: RecomputeInputs, plan: RecomputePlan, dialect: str, versions: str, console: Console) -> None:
    """The whole report: placement, formative lists, layers, problems."""
    console.write(
        console.text(
            "normalize.head",
            layers=inputs.layers,
            stages=inputs.placed_stages,
            chunks=len(plan.placement.counts) if plan.placement else "?",
            dialect=dialect,
            versions=versions,
        )
    )
    if plan.placement is not None:
        _write_placement(plan.placement, console)
        if inputs.zero_bubble:
            console.write(f"  {console.text('normalize.backwards')}")
    if plan.formative is not None:
        _write_formative(plan, console)
        _write_layers(plan.layers, console)
    else:
        console.write(f"\n{console.text('normalize.no-plan')}")
    _write_problems(plan, console)


def _title(text_id: str, console: Console) -> None:
    console.write(f"\n{console.text(text_id)}")


def _write_placement(placement: Placement, console: Console) -> None:
    _title("normalize.title.placement", console)
    for row in placement.counts:
        console.write("  " + " ".join(f"{count:>3}" for count in row))


def _write_formative(plan: RecomputePlan, console: Console) -> None:
    """The lines to look for in MindFormers' log, to the letter."""
    _title("normalize.title.formative", console)
    for line in plan.log:
        if line.startswith("Formative "):
            console.write(f"  {line}")


class _Legend:
    """Short names for patterns, so that a table of them fits a terminal."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def short(self, patterns: Sequence[str]) -> str:
        """The names of some patterns; new ones get a new name."""
        for pattern in patterns:
            count = len(self.names)
            more = str(count // len(_NAMES)) if count >= len(_NAMES) else ""
            self.names.setdefault(pattern, _NAMES[count % len(_NAMES)] + more)
        return " ".join(self.names[pattern] for pattern in patterns)


def _write_layers(layers: Sequence[LayerPlan], console: Console) -> None:
    """One line for each run of layers that are alike."""
    import rich.box  # noqa: PLC0415 - imported late: start-up time
    import rich.table  # noqa: PLC0415

    _title("normalize.title.layers", console)
    legend = _Legend()
    rows = [_run(list(run), legend, console) for _, run in groupby(layers, key=_alike)]
    excludes = any(row[-1] for row in rows)
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("stage", "chunk", "layers", "count"):
        table.add_column(console.text(f"normalize.column.{name}"), justify="right", no_wrap=True)
    for name in ("effect", "select", "comm", *(["exclude"] if excludes else [])):
        table.add_column(console.text(f"normalize.column.{name}"))
    for row in rows:
        table.add_row(*(row if excludes else row[:-1]))
    console.rich.print(table)
    if legend.names:
        console.write(f"\n{console.text('normalize.legend')}")
        for pattern, name in legend.names.items():
            console.write(f"  {name:<3} {pattern}")


def _alike(layer: LayerPlan) -> tuple[object, ...]:
    return (
        layer.stage,
        layer.chunk,
        layer.recompute,
        layer.select_patterns,
        layer.comm_patterns,
        layer.select_excludes,
        layer.comm_excludes,
    )


def _run(run: Sequence[LayerPlan], legend: _Legend, console: Console) -> list[str]:
    first, last = run[0], run[-1]
    numbers = f"{first.layer}" if first is last else f"{first.layer}-{last.layer}"
    return [
        str(first.stage),
        str(first.chunk),
        numbers,
        str(len(run)),
        console.text(f"normalize.effect.{first.recompute.value}"),
        legend.short(first.select_patterns),
        legend.short(first.comm_patterns),
        legend.short((*first.select_excludes, *first.comm_excludes)),
    ]


def _write_problems(plan: RecomputePlan, console: Console) -> None:
    if not plan.problems:
        return
    _title("normalize.title.problems", console)
    for problem in plan.problems:
        label = console.paint(console.text(f"normalize.severity.{problem.severity.value}"), _COLOURS[problem.severity])
        console.write(f"  {label} [{problem.id}]: {console.say(problem.message)}")
