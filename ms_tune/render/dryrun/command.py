"""A command of the user's own that was simulated, as text and JSON."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from ms_tune.dryrun.cann_sim.environment import Backend
from ms_tune.dryrun.result import Verdict
from ms_tune.render.dryrun.json import VERSION, categories, largest
from ms_tune.render.dryrun.stages import in_gib, show_table
from ms_tune.render.dryrun.text import near
from ms_tune.render.memory import text as memory_text

if TYPE_CHECKING:
    from ms_tune.dryrun.result import CommandResult, RankResult
    from ms_tune.render.console import Console

_SHOWN_HOLDERS = 5
_SHOWN_CONTENTS = ("weights", "optimizer_state", "activations")


def show(result: CommandResult, console: Console) -> None:
    """How it ended, then the verdict and what holds the memory, if it left a trace."""
    params = {"command": shlex.join(result.command), "code": result.code, "seconds": f"{result.seconds:.1f}"}
    console.write(console.text("stages.command.run", **params))
    worst = result.worst
    if worst is not None:
        _show_verdict(worst, console)
        if len(result.ranks) > 1:
            _show_ranks(result, console)
        memory_text.show_breakdown(replace(worst.reading.report.peak, layers=()), console, _SHOWN_HOLDERS)
        if result.level is not None:
            kind = "stand-in" if result.backend is Backend.STAND_IN else "cann"
            console.write("")
            console.write(console.text(f"dryrun.show.worth.{kind}", level=result.level))
            console.write(f"  - {console.text('dryrun.not-included.workspace')}")
            console.write(f"  - {console.text('dryrun.not-included.communication')}")
    console.write("")
    console.write(console.text("dryrun.show.kept", folder=near(result.folder)))
    if worst is not None:
        console.write(console.text("dryrun.show.next", command=f"ms-tune memory {near(result.folder)}"))


def _show_verdict(worst: RankResult, console: Console) -> None:
    fits = worst.verdict is Verdict.FITS
    verdict = console.paint(console.text(f"dryrun.show.{worst.verdict.value}"), "green" if fits else "red")
    gap = abs(worst.limit.bytes - worst.reading.peak_bytes)
    comparison = console.text(
        "dryrun.show.spare" if fits else "dryrun.show.missing", verdict=verdict, size=memory_text.size(gap)
    )
    rows = (
        ("peak", memory_text.size(worst.reading.peak_bytes), ""),
        ("footprint", memory_text.size(worst.reading.footprint_bytes), console.text("dryrun.show.footprint-note")),
        ("usable", memory_text.size(worst.limit.bytes), console.say(worst.limit.source)),
    )
    console.write("")
    for name, size, note in rows:
        console.write(f"{memory_text.pad(console.text(f'dryrun.show.{name}'), 18)}{size:>12}   {note}".rstrip())
    console.write(f"{memory_text.pad(console.text('dryrun.show.verdict'), 18)}{comparison}")


def _show_ranks(result: CommandResult, console: Console) -> None:
    columns = ["rank", *_SHOWN_CONTENTS, "peak", "footprint", "limit", "verdict"]
    rows = []
    for rank in sorted(result.ranks, key=lambda one: -one.reading.peak_bytes):
        sizes = {content.value: amount for content, amount in rank.reading.contents.items()}
        amounts = [sizes[name] for name in _SHOWN_CONTENTS]
        amounts += [rank.reading.peak_bytes, rank.reading.footprint_bytes, rank.limit.bytes]
        verdict = console.text(f"dryrun.show.{rank.verdict.value}")
        rows.append(["–" if rank.rank is None else str(rank.rank), *map(in_gib, amounts), verdict])
    console.write("")
    console.write(console.text("stages.command.ranks"))
    show_table(console, columns, rows)


def to_json(result: CommandResult, console: Console) -> dict[str, object]:
    """The object that ``--json`` prints for a command; sizes are bytes. docs/dryrun.md describes every key."""
    worst = result.worst
    return {
        "version": VERSION,
        "run": str(result.folder),
        "command": list(result.command),
        "exit_code": result.code,
        "backend": result.backend.value,
        "simulation_level": result.level,
        **(_figures(worst) if worst else dict.fromkeys(_FIGURES)),
        "ranks": [{"rank": rank.rank, **_figures(rank)} for rank in result.ranks],
        "largest": largest(worst.reading) if worst else [],
        "problems": [console.say(problem) for problem, _ in result.problems],
        "seconds": round(result.seconds, 3),
    }


_FIGURES = ("trace", "peak_bytes", "footprint_bytes", "limit_bytes", "verdict", "categories_at_peak")


def _figures(rank: RankResult) -> dict[str, object]:
    reading = rank.reading
    values = (
        *(str(reading.trace), reading.peak_bytes, reading.footprint_bytes, rank.limit.bytes, rank.verdict.value),
        categories(reading.contents),
    )
    return dict(zip(_FIGURES, values, strict=True))
