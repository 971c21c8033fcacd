"""A simulated run beside a real one, as text and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.report.dryrun_json import VERSION
from ms_tune.report.dryrun_stages import in_gib, show_table
from ms_tune.report.dryrun_text import near
from ms_tune.report.memory_words import by_name, or_dash, signed
from ms_tune.report.verdict import sentence, verdict_json

if TYPE_CHECKING:
    from ms_tune.dryrun.result import ComparedRank, RealComparison
    from ms_tune.report.console import Console


def show(comparison: RealComparison, console: Console) -> None:
    """A row for each rank, then where the rank that needs most differs."""
    names = {"simulated": near(comparison.simulated), "real": near(comparison.real)}
    console.write(console.text("stages.compare.title", **names))
    columns = ["rank", "simulated", "real", "difference", "share", "simulated_footprint", "real_footprint"]
    show_table(console, columns, [_row(rank) for rank in comparison.ranks])
    worst = max(comparison.ranks, key=lambda rank: rank.real.curve.peak_bytes)
    rows = []
    for content, amount in worst.real.peak.contents.items():
        other = worst.simulated.peak.contents[content]
        if amount or other:
            label = console.text(f"memory.content.{content.value}")
            rows.append([label, in_gib(other), in_gib(amount), signed(other - amount)])
    console.write("")
    show_table(console, ["content", "simulated", "real", "difference"], rows)
    console.write("")
    for name, report in (("simulated", worst.simulated), ("real", worst.real)):
        console.write(console.labelled(console.text(f"stages.column.{name}"), sentence(report.verdict, console)))
    if comparison.only_real:
        missing = ", ".join(map(or_dash, comparison.only_real))
        console.write(console.text("stages.compare.only-real", ranks=missing))


def _row(rank: ComparedRank) -> list[str]:
    simulated, real = rank.simulated.curve, rank.real.curve
    return [
        or_dash(rank.rank),
        in_gib(simulated.peak_bytes),
        in_gib(real.peak_bytes),
        signed(simulated.peak_bytes - real.peak_bytes),
        f"{simulated.peak_bytes / real.peak_bytes:.1%}" if real.peak_bytes else "–",
        in_gib(simulated.footprint_bytes),
        in_gib(real.footprint_bytes),
    ]


def to_json(comparison: RealComparison, console: Console) -> dict[str, object]:
    """The object that ``--compare-real --json`` prints; sizes are bytes."""
    return {
        "version": VERSION,
        "simulated": str(comparison.simulated),
        "real": str(comparison.real),
        "ranks": [
            {
                "rank": rank.rank,
                **{
                    f"{name}_{what}": value
                    for name, report in (("simulated", rank.simulated), ("real", rank.real))
                    for what, value in (
                        ("peak_bytes", report.curve.peak_bytes),
                        ("footprint_bytes", report.curve.footprint_bytes),
                        ("categories_at_peak", by_name(report.peak.contents)),
                    )
                },
                "simulated_verdict": verdict_json(rank.simulated.verdict, console),
                "real_verdict": verdict_json(rank.real.verdict, console),
                "difference_bytes": rank.simulated.curve.peak_bytes - rank.real.curve.peak_bytes,
            }
            for rank in comparison.ranks
        ],
        "only_real": list(comparison.only_real),
    }
