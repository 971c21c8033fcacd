"""The stages of a simulated job side by side, the worst one first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.report.memory_words import by_name, size
from ms_tune.report.verdict import word
from ms_tune.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.dryrun.result import DryrunResult, StageResult
    from ms_tune.report.console import Console

_SHOWN_CONTENTS = ("weights", "optimizer_state", "gradients", "activations")
_TEXTS = ("verdict", "settings", "content", "figure")  # columns that hold no numbers
_EVEN = 0.1  # a smaller difference between stages is not worth a remark


def show(result: DryrunResult, console: Console) -> None:
    """A row for each stage with all its layers, and how far they are apart."""
    columns = ["stage", "rank", "layers", *_SHOWN_CONTENTS, "other", "peak", "footprint", "verdict"]
    ordered = sorted(
        result.stages,
        key=lambda stage: (-stage.verdict.severity, -stage.judged_bytes, stage.run.stage, stage.run.rank),
    )
    console.write("")
    console.write(console.text("stages.title"))
    show_table(console, columns, [_row(stage, console) for stage in ordered])
    for text in _remarks(result, console):
        console.write(text)


def _remarks(result: DryrunResult, console: Console) -> Iterator[str]:
    derived = [stage for stage in result.stages if stage.extrapolation]
    for runs in dict.fromkeys(stage.extrapolation.from_layers for stage in derived if stage.extrapolation):
        yield console.text("stages.whole-note", runs=", ".join(map(str, runs)))
    if any(
        stage.extrapolation is None and stage.full_layers not in (None, stage.run.layers) for stage in result.stages
    ):
        yield console.text("stages.part-note")
    if result.skipped:
        yield console.text("stages.skipped", stages=", ".join(map(str, result.skipped)))
    if result.imbalance > _EVEN:
        least = min(result.stages, key=lambda stage: stage.judged_bytes)
        most = max(result.stages, key=lambda stage: stage.judged_bytes)
        gap = size(most.judged_bytes - least.judged_bytes)
        params = {"worst": most.run.stage, "least": least.run.stage, "share": f"{result.imbalance:.0%}"}
        yield console.text("stages.imbalance", size=gap, **params)


def _row(stage: StageResult, console: Console) -> list[str]:
    sizes = by_name(stage.contents)
    shown = [sizes.pop(name, 0) for name in _SHOWN_CONTENTS]
    need = stage.verdict.need
    return [
        str(stage.run.stage),
        str(stage.run.rank),
        _layers(stage),
        *(in_gib(amount) if stage.contents else "–" for amount in (*shown, sum(sizes.values()))),
        in_gib(stage.judged_bytes),
        in_gib(need.footprint_bytes if need else stage.reading.footprint_bytes),
        word(stage.verdict, console),
    ]


def in_gib(amount: int) -> str:
    """Bytes in GiB, for a column whose title names the unit."""
    return f"{amount / GIB:,.2f}"


def _layers(stage: StageResult) -> str:
    """The layers that the row is about; of those that the config gives the stage, where they are fewer."""
    if stage.full_layers is None or stage.full_layers == stage.layers:
        return str(stage.layers)
    return f"{stage.layers}/{stage.full_layers}"


def show_table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table whose columns are named in the user's language; numbers stand to the right and are never cut."""
    right = {place for place, name in enumerate(columns) if name not in _TEXTS}
    console.write_table([console.text(f"stages.column.{name}") for name in columns], rows, right=right)
