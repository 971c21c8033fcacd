"""A simulated run beside the log of a real one, as text and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.report.dryrun_json import VERSION
from ms_tune.report.dryrun_stages import in_gib, show_table
from ms_tune.report.dryrun_text import near
from ms_tune.report.memory_words import or_dash, signed
from ms_tune.report.verdict import sentence, verdict_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.dryrun.compare import LogComparison, LoggedPair
    from ms_tune.report.console import Console


def show(comparison: LogComparison, console: Console) -> None:
    """A row for each rank, then the figures of the rank that needs most, what they differ by, and both verdicts."""
    names = {"simulated": near(comparison.simulated), "real": near(comparison.real)}
    console.write(console.text("stages.log.title", **names))
    columns = ["rank", "simulated", "real", "difference", "share", "simulated_footprint", "real_footprint"]
    show_table(console, columns, [_row(pair) for pair in comparison.pairs])
    worst = max(comparison.pairs, key=lambda pair: pair.real.peak_bytes)
    console.write("")
    console.write(console.text("stages.log.figures", rank=or_dash(worst.rank)))
    rows = []
    for figure in worst.figures:
        apart = "–" if figure.difference is None else signed(figure.difference)
        name = console.text(f"stages.log.figure.{figure.name}")
        rows.append([name, _size(figure.simulated), _size(figure.real), apart])
    show_table(console, ["figure", "simulated", "real", "difference"], rows)
    console.write("")
    for note in worst.notes:
        console.write(f"- {console.say(note)}")
    for side, verdict in (("simulated", worst.simulated.verdict), ("real", worst.real_verdict)):
        console.write(console.labelled(console.text(f"stages.column.{side}"), sentence(verdict, console)))
    if comparison.only_real:
        console.write(console.text("stages.compare.only-real", ranks=_ranks(comparison.only_real)))
    if comparison.only_simulated:
        console.write(console.text("stages.log.only-simulated", ranks=_ranks(comparison.only_simulated)))


def _row(pair: LoggedPair) -> list[str]:
    peak, footprint = pair.figures[:2]
    return [
        or_dash(pair.rank),
        _size(peak.simulated),
        _size(peak.real),
        "–" if peak.difference is None else signed(peak.difference),
        f"{peak.simulated / peak.real:.1%}" if peak.simulated is not None and peak.real else "–",
        _size(footprint.simulated),
        _size(footprint.real),
    ]


def _ranks(ranks: Sequence[int | None]) -> str:
    return ", ".join(map(or_dash, ranks))


def _size(amount: int | None) -> str:
    return "–" if amount is None else in_gib(amount)


def to_json(comparison: LogComparison, console: Console) -> dict[str, object]:
    """The object that ``--compare-real LOG --json`` prints; sizes are bytes."""
    return {
        "version": VERSION,
        "simulated": str(comparison.simulated),
        "real": str(comparison.real),
        "ranks": [
            {
                "rank": pair.rank,
                "said_by": pair.real.words.value,
                "file": str(pair.real.path),
                "line": pair.real.line,
                "after_steps": pair.real.steps,
                "simulated_peak_bytes": pair.figures[0].simulated,
                "real_peak_bytes": pair.figures[0].real,
                "difference_bytes": pair.figures[0].difference,
                "simulated_footprint_bytes": pair.figures[1].simulated,
                "real_footprint_bytes": pair.figures[1].real,
                "figures": [
                    {"name": figure.name, "simulated_bytes": figure.simulated, "real_bytes": figure.real}
                    for figure in pair.figures
                ],
                "notes": [console.say(note) for note in pair.notes],
                "simulated_verdict": verdict_json(pair.simulated.verdict, console),
                "real_verdict": verdict_json(pair.real_verdict, console),
            }
            for pair in comparison.pairs
        ],
        "only_real": list(comparison.only_real),
        "only_simulated": list(comparison.only_simulated),
    }
