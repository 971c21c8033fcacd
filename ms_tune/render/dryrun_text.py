"""The result of ``dryrun`` in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.config.dialects.recognise import Dialect
from ms_tune.dryrun.cann_sim.environment import Backend
from ms_tune.dryrun.result import Verdict
from ms_tune.units import gib

if TYPE_CHECKING:
    from ms_tune.dryrun.result import DryrunResult
    from ms_tune.render.console import Console

_BAR_WIDTH = 24
_SHOWN_CHANGES = 12


def show(result: DryrunResult, console: Console) -> None:
    """Verdict first, then what holds the memory, then what the figures are worth."""
    _show_run(result, console)
    _show_verdict(result, console)
    _show_categories(result, console)
    _show_largest(result, console)
    _show_changes(result, console)
    _show_worth(result, console)
    console.write("")
    console.write(console.text("dryrun.show.kept", folder=_near(result.folder)))
    console.write(console.text("dryrun.show.next", command=_next_command(result)))


def _show_run(result: DryrunResult, console: Console) -> None:
    run = result.run
    console.write(
        console.text(
            "dryrun.show.run",
            config=run.config_name,
            model=console.say(run.model),
            layers=run.layers,
            stage=run.stage,
            stages=run.stages,
            rank=run.rank,
            world=run.world_size,
        )
    )
    versions = f"MindSpore {result.mindspore}" + (f", MindFormers {result.mindformers}" if result.mindformers else "")
    backend = console.text(f"dryrun.show.backend.{result.backend.value}")
    console.write(console.text("dryrun.show.with", versions=versions, backend=backend, seconds=f"{result.seconds:.1f}"))


def _show_verdict(result: DryrunResult, console: Console) -> None:
    fits = result.verdict is Verdict.FITS
    verdict = console.paint(console.text(f"dryrun.show.{result.verdict.value}"), "green" if fits else "red")
    gap = abs(result.limit.bytes - result.peak.bytes)
    comparison = console.text("dryrun.show.spare" if fits else "dryrun.show.missing", verdict=verdict, size=gib(gap))
    source = console.say(result.limit.source)
    rows = (
        ("peak", gib(result.peak.bytes), ""),
        ("footprint", gib(result.peak.footprint_bytes), console.text("dryrun.show.footprint-note")),
        ("usable", gib(result.limit.bytes), f"{source} ({gib(result.limit.device_bytes)})"),
    )
    console.write("")
    for name, size, note in rows:
        console.write(f"{_pad(console.text(f'dryrun.show.{name}'), 18)}{size:>12}   {note}".rstrip())
    console.write(f"{_pad(console.text('dryrun.show.verdict'), 18)}{comparison}")


def _show_categories(result: DryrunResult, console: Console) -> None:
    console.write("")
    console.write(console.text("dryrun.show.categories"))
    peak = result.peak.bytes
    for category, size in result.attribution.categories.items():
        label = console.text(f"memory.category.{category.value}")
        bar = "█" * round(size / peak * _BAR_WIDTH)
        console.write(f"  {_pad(label, 18)}{gib(size):>12} {size / peak:>6.1%}  {bar}".rstrip())


def _show_largest(result: DryrunResult, console: Console) -> None:
    from rich import box  # noqa: PLC0415 - imported late: start-up time
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, justify, fold in (("size", "right", False), ("category", "left", False), ("operator", "left", True)):
        table.add_column(
            console.text(f"dryrun.show.column.{name}"),
            justify="right" if justify == "right" else "left",
            no_wrap=not fold,
            overflow="fold",
        )
    table.add_column(console.text("dryrun.show.column.where"), overflow="fold")
    for holder in result.attribution.largest:
        count = f" ×{holder.count}" if holder.count > 1 else ""
        table.add_row(
            gib(holder.bytes),
            console.text(f"memory.category.{holder.category.value}"),
            f"{holder.operator}{count}",
            _near_line(holder.where) or console.text("dryrun.show.unknown"),
        )
    console.write("")
    console.write(console.text("dryrun.show.largest"))
    console.rich.print(table)
    console.write("")


def _show_changes(result: DryrunResult, console: Console) -> None:
    changes = result.run.changes
    if not changes:
        return
    console.write(console.text("dryrun.show.changes"))
    for change in changes[:_SHOWN_CHANGES]:
        text_id = "dryrun.show.removed" if change.after is None else "dryrun.show.changed"
        before, after = _short(change.before), _short(change.after)
        console.write("  " + console.text(text_id, key=change.key, before=before, after=after))
    if len(changes) > _SHOWN_CHANGES:
        more = len(changes) - _SHOWN_CHANGES
        console.write("  " + console.text("dryrun.show.more-changes", count=more, file="changes.json"))
    console.write("")


def _show_worth(result: DryrunResult, console: Console) -> None:
    title = "dryrun.show.worth.stand-in" if result.backend is Backend.STAND_IN else "dryrun.show.worth.cann"
    console.write(console.text(title))
    for message in result.not_included:
        console.write(f"  - {console.say(message)}")


def _next_command(result: DryrunResult) -> str:
    """What to type next.

    The packaged model ran: the user's own config. It does not fit: see what each layer recomputes. It fits with fewer
    layers: run it whole. It fits: check the rest of it.
    """
    run = result.run
    if run.packaged:
        return "ms-tune dryrun --layers 4 config.yaml"
    stage = f" --stage {run.stage}" if run.stage else ""
    if result.verdict is Verdict.DOES_NOT_FIT:
        served = run.dialect is Dialect.MINDFORMERS
        return f"ms-tune {'normalize-recompute' if served else 'lint'} {run.config_name}"
    if run.shrunk:
        return f"ms-tune dryrun{stage} {run.config_name}"
    return f"ms-tune lint {run.config_name}"


def _near(path: Path) -> str:
    """The path as seen from the working folder, if it lies below it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _near_line(where: str) -> str:
    """``file:line`` with a file below the working folder shortened; other files by their last three parts."""
    file, _, line = where.rpartition(":")
    if not file.startswith("/"):
        return where
    near = _near(Path(file))
    if near.startswith("/"):
        near = "…/" + "/".join(Path(near).parts[-3:])
    return f"{near}:{line}"


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    limit = 60
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _pad(text: str, width: int) -> str:
    """Pad to a width in terminal cells; a Chinese character takes two."""
    from rich.cells import cell_len  # noqa: PLC0415 - imported late: start-up time

    return text + " " * max(width - cell_len(text), 1)
