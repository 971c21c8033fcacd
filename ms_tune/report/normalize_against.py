"""A plan beside the logs of a job, for the terminal and as JSON (``ms-tune normalize-recompute --against``)."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from ms_tune.normalize.compare_log import LogVerdict
from ms_tune.text import render

if TYPE_CHECKING:
    from ms_tune.normalize.compare_log import Compared, LayerState, LogDifference
    from ms_tune.report.console import Console
    from ms_tune.text import Language

_VERSION = 1
_MOST_SHOWN = 1000  # characters of a value
_COLOURS = {
    LogVerdict.SAME: "green",
    LogVerdict.DIFFERS: "red",
    LogVerdict.UNREADABLE: "yellow",
    LogVerdict.UNKNOWN: "yellow",
}


def write_comparison(result: Compared, console: Console) -> None:
    """What agrees and what does not, the first difference in full, and the layers side by side."""
    plan = result.plan
    head = console.text(f"against.verdict.{result.verdict.value}", logs=len(result.logs), count=len(result.differences))
    console.write(console.paint(head, _COLOURS[result.verdict]))
    framework = console.text(f"normalize.framework.{plan.dialect}")
    console.write(console.text("against.rules", framework=framework, version=plan.framework_version))
    for log in result.logs:
        if len(log.runs) > 1:
            line = min(log.runs[-1].numbers)
            console.write(console.text("against.runs", file=log.path, count=len(log.runs), line=line))
    for path, number in result.unreadable:
        console.write(console.text("against.damaged", file=path, line=number))
    if result.differences:
        _write_first(result, console)
    rows = [_row(list(run), console) for _, run in groupby(result.layers, key=_alike)]
    heads = [console.text(f"normalize.column.{name}") for name in ("stage", "chunk", "layers")]
    heads += [console.text(f"against.{name}") for name in ("state", "planned", "logged")]
    if rows:
        console.write("")
        console.write_table(heads, rows, right=range(3))


def _write_first(result: Compared, console: Console) -> None:
    first = result.differences[0]
    where = str(first.log) if first.line is None else f"{first.log}:{first.line}"
    console.write(f"\n{console.text('against.first', what=_name(first, console))} ({where})")
    for name, value in (("planned", first.planned), ("logged", first.logged)):
        text = (
            value[:_MOST_SHOWN] if value else console.text("against.nothing-said" if value is None else "against.said")
        )
        console.write(f"  {console.labelled(console.text(f'against.{name}'), text)}")
    for reason in result.why:
        console.write(f"  {console.labelled(console.text('against.why'), console.say(reason))}")
    if not result.why:
        console.write(f"  {console.labelled(console.text('against.why'), console.text('against.why.unknown'))}")


def _name(one: LogDifference, console: Console) -> str:
    return one.what if one.layer is None else console.text("against.at-layer", what=one.what, layer=one.layer)


def _alike(state: LayerState) -> tuple[object, ...]:
    return state.plan.stage, state.plan.chunk, state.agrees, state.known, state.planned, state.logged


def _row(run: list[LayerState], console: Console) -> list[str]:
    first, last = run[0], run[-1]
    numbers = f"{first.plan.layer}" if first is last else f"{first.plan.layer}-{last.plan.layer}"
    state = {True: "same", False: "differs", None: "not-logged" if first.known else "not-known"}[first.agrees]
    return [
        str(first.plan.stage),
        str(first.plan.chunk),
        numbers,
        console.text(f"against.state.{state}"),
        "; ".join(first.planned) or "-",
        "; ".join(first.logged) or "-",
    ]


def comparison_json(result: Compared, language: Language) -> dict[str, object]:
    """The comparison's JSON form; its keys are documented in ``docs/normalize-recompute.md``."""
    return {
        "version": _VERSION,
        "verdict": result.verdict.value,
        "dialect": result.plan.dialect,
        "framework_version": result.plan.framework_version,
        "read_from": list(result.plan.read_from),
        "logs": [
            {
                "file": str(log.path),
                "rank": log.rank,
                "runs": len(log.runs),
                "line": min(log.runs[-1].numbers) if log.runs else None,
            }
            for log in result.logs
        ],
        "differences": [
            {
                "file": str(one.log),
                "line": one.line,
                "what": one.what,
                "layer": one.layer,
                "planned": one.planned,
                "logged": one.logged,
            }
            for one in result.differences
        ],
        "why": [render(reason, language) for reason in result.why],
        "unreadable": [{"file": str(path), "line": line} for path, line in result.unreadable],
        "unknown": [{"what": what, "layer": layer} for what, layer in result.unknown],
        "layers": [
            {
                "layer": state.plan.layer,
                "stage": state.plan.stage,
                "chunk": state.plan.chunk,
                "agrees": state.agrees,
                "planned": list(state.planned),
                "logged": list(state.logged),
            }
            for state in result.layers
        ],
    }
