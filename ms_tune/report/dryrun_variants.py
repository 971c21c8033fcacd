"""Variants of a job side by side, in the terminal and as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ms_tune.report import dryrun_command, dryrun_json
from ms_tune.report.dryrun_stages import in_gib, show_table
from ms_tune.report.dryrun_text import near
from ms_tune.report.memory_words import by_name, or_dash, signed
from ms_tune.report.verdict import word

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ms_tune.dryrun.command_result import CommandSweep, CommandVariant
    from ms_tune.dryrun.result import SweepResult, VariantResult
    from ms_tune.enums import MemoryCategory
    from ms_tune.report.console import Console
    from ms_tune.text import Message
    from ms_tune.verdict.outcome import Verdict

_SHOWN_CONTENTS = ("weights", "optimizer_state", "activations")


@dataclass(frozen=True, slots=True)
class _Row:
    """A variant."""

    settings: tuple[str, ...]  # what it has otherwise
    stage: str = "–"  # its worst stage
    layers: str = "–"  # that stage's layers
    contents: Mapping[MemoryCategory, int] = field(default_factory=dict)  # what the judged peak is made of
    peak: int | None = None  # that peak; None without a result
    verdict: Verdict | None = None
    derived: bool = False  # the stage was not run whole
    error: Message | None = None  # why there is no result


def show(result: SweepResult, console: Console) -> None:
    """A row for each variant; what failed is told below."""
    _show([_of_config(variant) for variant in result.variants], result.folder, console)


def show_commands(result: CommandSweep, console: Console) -> None:
    """The same for variants of a command."""
    _show([_of_command(variant) for variant in result.variants], result.folder, console)


def _of_config(variant: VariantResult) -> _Row:
    settings = tuple(map(str, variant.settings))
    if variant.result is None:
        return _Row(settings, error=variant.error.message if variant.error else None)
    worst = variant.result.worst
    derived = worst.extrapolation is not None
    contents = worst.extrapolation.contents if worst.extrapolation else worst.reading.contents
    layers, stage = str(worst.layers), str(worst.run.stage)
    return _Row(settings, stage, layers, contents, worst.judged_bytes, worst.verdict, derived)


def _of_command(variant: CommandVariant) -> _Row:
    settings = variant.words
    if variant.result is None:
        return _Row(settings, error=variant.error.message if variant.error else None)
    worst, verdict = variant.result.worst, variant.result.verdict
    if worst is None:
        return _Row(settings, verdict=verdict, error=verdict.no_verdict_because)
    count = worst.extrapolation.layers if worst.extrapolation is not None else worst.layers
    stage, layers = map(or_dash, (worst.stage, count))
    derived = worst.extrapolation is not None
    return _Row(
        settings, stage, layers, worst.contents, worst.judged_bytes, verdict, derived, verdict.no_verdict_because
    )


def _show(variants: Sequence[_Row], folder: Path, console: Console) -> None:
    first = next((variant.peak for variant in variants if variant.peak is not None), 0)
    columns = ["variant", "settings", "stage", "layers", *_SHOWN_CONTENTS, "peak", "change", "verdict"]
    console.write(console.text("stages.variants.title", count=len(variants)))
    shared = _shared(variants)
    if shared:
        console.write(console.text("dryrun.show.settings", settings=", ".join(shared)))
    rows = [_row(number, variant, shared, first, console) for number, variant in enumerate(variants, start=1)]
    show_table(console, columns, rows)
    if any(variant.derived for variant in variants):
        console.write(console.text("stages.variants.extrapolated"))
    for number, variant in enumerate(variants, start=1):
        if variant.error is not None:
            reason = console.say(variant.error)
            console.write(console.text("stages.variants.failed", number=number, reason=reason))
    console.write("")
    console.write(console.text("dryrun.show.kept", folder=near(folder)))


def _shared(variants: Sequence[_Row]) -> tuple[str, ...]:
    """The settings that all variants have, which tell none of them apart; of a single variant none."""
    first, *others = variants
    return tuple(setting for setting in first.settings if others and all(setting in one.settings for one in others))


def _row(number: int, variant: _Row, shared: tuple[str, ...], first: int, console: Console) -> list[str]:
    settings = "\n".join(setting for setting in variant.settings if setting not in shared)
    if variant.peak is None:
        blank = ["–"] * (4 + len(_SHOWN_CONTENTS))
        return [str(number), settings, *blank, console.text("stages.variants.no-result")]
    sizes = by_name(variant.contents)
    return [
        str(number),
        settings,
        variant.stage,
        variant.layers,
        *(in_gib(sizes[name]) if name in sizes else "–" for name in _SHOWN_CONTENTS),
        in_gib(variant.peak),
        signed(variant.peak - first),
        word(variant.verdict, console),
    ]


def to_json(result: SweepResult, console: Console) -> dict[str, object]:
    """The object that ``--set``/``--sweep`` with ``--json`` prints: the object of ``dryrun`` for every variant."""
    return {
        "version": dryrun_json.VERSION,
        "run": str(result.folder),
        "variants": [
            {
                "settings": {".".join(map(str, setting.path)): setting.raw for setting in variant.settings},
                "error": console.say(variant.error.message) if variant.error else None,
                "result": dryrun_json.to_json(variant.result, console) if variant.result else None,
            }
            for variant in result.variants
        ],
    }


def commands_to_json(result: CommandSweep, console: Console) -> dict[str, object]:
    """The same for variants of a command."""
    return {
        "version": dryrun_json.VERSION,
        "run": str(result.folder),
        "variants": [
            {
                "settings": dict(variant.settings),
                "error": console.say(variant.error.message) if variant.error else None,
                "result": dryrun_command.to_json(variant.result, console) if variant.result else None,
            }
            for variant in result.variants
        ],
    }
