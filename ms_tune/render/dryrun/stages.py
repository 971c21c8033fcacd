"""The stages of a simulated job side by side, the worst one first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.render.memory.text import size
from ms_tune.render.verdict import word
from ms_tune.units import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.dryrun.result import DryrunResult, StageResult
    from ms_tune.render.console import Console

_SHOWN_CONTENTS = ("weights", "optimizer_state", "activations")
_EVEN = 0.1  # a smaller difference between stages is not worth a remark


def show(result: DryrunResult, console: Console) -> None:
    """A row for each stage, and how far they are apart."""
    derived = any(stage.extrapolation for stage in result.stages)
    columns = ["stage", "rank", "layers", *_SHOWN_CONTENTS, "peak", "footprint"]
    columns += ["whole", "limit", "verdict"] if derived else ["limit", "verdict"]
    ordered = sorted(
        result.stages,
        key=lambda stage: (-stage.verdict.severity, -stage.judged_bytes, stage.run.stage, stage.run.rank),
    )
    console.write("")
    console.write(console.text("stages.title"))
    show_table(console, columns, [_row(stage, console, derived=derived) for stage in ordered])
    if derived:
        console.write(console.text("stages.whole-note"))
    if result.skipped:
        skipped = ", ".join(map(str, result.skipped))
        console.write(console.text("stages.skipped", stages=skipped))
    if result.imbalance > _EVEN:
        least = min(result.stages, key=lambda stage: stage.judged_bytes)
        gap = size(result.worst.judged_bytes - least.judged_bytes)
        params = {"worst": result.worst.run.stage, "least": least.run.stage, "share": f"{result.imbalance:.0%}"}
        console.write(console.text("stages.imbalance", size=gap, **params))


def _row(stage: StageResult, console: Console, *, derived: bool) -> list[str]:
    reading, whole = stage.reading, stage.extrapolation
    sizes = {content.value: amount for content, amount in reading.contents.items()}
    limit = stage.verdict.limit
    return [
        str(stage.run.stage),
        str(stage.run.rank),
        _layers(stage),
        *(in_gib(sizes[name]) for name in _SHOWN_CONTENTS),
        in_gib(reading.peak_bytes),
        in_gib(reading.footprint_bytes),
        *([in_gib(whole.peak_bytes) if whole else "–"] if derived else []),
        in_gib(limit.bytes) if limit else "–",
        word(stage.verdict, console),
    ]


def in_gib(amount: int) -> str:
    """Bytes in GiB, for a column whose title names the unit."""
    return f"{amount / GIB:,.2f}"


def _layers(stage: StageResult) -> str:
    """The layers that ran, of those that the config gives the stage."""
    if stage.full_layers is None or stage.full_layers == stage.run.layers:
        return str(stage.run.layers)
    return f"{stage.run.layers}/{stage.full_layers}"


def show_table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table whose columns are named in the user's language; numbers stand to the right."""
    from rich import box  # noqa: PLC0415 - imported late: start-up time
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        left, wraps = name in {"verdict", "settings", "content"}, name == "settings"
        table.add_column(
            console.text(f"stages.column.{name}"),
            justify="left" if left else "right",
            overflow="fold",
            no_wrap=not wraps,
        )
    for row in rows:
        table.add_row(*row)
    console.rich.print(table)
