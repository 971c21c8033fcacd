"""Where a config's time goes, in the terminal and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.report import fit_why

if TYPE_CHECKING:
    from ms_tune.fit.costs import TimeExplanation
    from ms_tune.report.console import Console

_PARTS = ("work", "recompute", "fill", "imbalance")


def show(found: TimeExplanation, console: Console) -> None:
    """The parts, then the stages."""
    sizes = found.table
    params = {"layers": sizes.layer_count, "stages": sizes.stages, "chunks": sizes.chunks}
    order = sizes.order.value
    console.write(console.text("fitting.pipeline", **params, micro_batches=sizes.micro_batches, order=order))
    console.write("")
    console.write(console.text("fitting.explain.title"))
    for name in _PARTS:
        share = getattr(found.parts, name)
        seconds = "" if found.seconds is None else f"  {share * found.seconds:10,.3f} s"
        console.write(f"  {share:6.1%}{seconds}  {console.text(f'fitting.explain.{name}')}")
    console.write("")
    rows = []
    for stage, busy in enumerate(found.parts.busy):
        cells = found.cells[stage :: sizes.stages]
        layers = " + ".join(str(sum(cell.values())) for cell in cells)
        rows.append([str(stage), f"{busy:.1%}", layers, " | ".join(map(fit_why.recomputed, cells))])
    heads = [console.text(f"fitting.explain.column.{name}") for name in ("stage", "busy", "layers", "recompute")]
    console.write_table(heads, rows, right=range(2))
    console.write("")
    if any(kind.value == "swap" and count for cell in found.cells for kind, count in cell.items()):
        console.write(console.text("fitting.note.swap-hidden"))
    if found.clock.runs:
        for note in fit_why.clock_notes(found.clock):
            console.write(console.say(note))
    if not found.clock.times:
        console.write(console.text("fitting.note.costs" if found.costs.known else "fitting.note.no-costs"))


def to_json(found: TimeExplanation) -> dict[str, object]:
    """The report of ``--explain --json``; parts add up to 1."""
    sizes = found.table
    return {
        "stages": sizes.stages,
        "chunks": sizes.chunks,
        "micro_batches": sizes.micro_batches,
        "order": sizes.order.value,
        **{name: getattr(found.parts, name) for name in _PARTS},
        "busy": list(found.parts.busy),
        "seconds_of_step": found.seconds,
        "costs_known": found.costs.known,
        "cells": [{kind.value: count for kind, count in cell.items() if count} for cell in found.cells],
    }
