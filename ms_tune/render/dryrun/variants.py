"""Variants of a job side by side, in the terminal and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.render.dryrun import json as dryrun_json
from ms_tune.render.dryrun.stages import in_gib, show_table
from ms_tune.render.dryrun.text import near
from ms_tune.render.memory.text import signed
from ms_tune.render.verdict import word

if TYPE_CHECKING:
    from ms_tune.dryrun.request import Setting
    from ms_tune.dryrun.result import SweepResult, VariantResult
    from ms_tune.render.console import Console

_SHOWN_CONTENTS = ("weights", "optimizer_state", "activations")


def show(result: SweepResult, console: Console) -> None:
    """A row for each variant; what failed is told below."""
    done = [variant.result for variant in result.variants if variant.result is not None]
    first = done[0].worst.judged_bytes if done else 0
    columns = ["variant", "settings", "stage", "layers", *_SHOWN_CONTENTS, "peak", "change", "verdict"]
    console.write(console.text("stages.variants.title", count=len(result.variants)))
    shared = _shared(result)
    if shared:
        console.write(console.text("dryrun.show.settings", settings=", ".join(map(str, shared))))
    rows = [_row(number, variant, shared, first, console) for number, variant in enumerate(result.variants, start=1)]
    show_table(console, columns, rows)
    if any(done_one.worst.extrapolation for done_one in done):
        console.write(console.text("stages.variants.extrapolated"))
    for number, variant in enumerate(result.variants, start=1):
        if variant.error is not None:
            reason = console.say(variant.error.message)
            console.write(console.text("stages.variants.failed", number=number, reason=reason))
    console.write("")
    console.write(console.text("dryrun.show.kept", folder=near(result.folder)))


def _shared(result: SweepResult) -> tuple[Setting, ...]:
    """The settings that all variants have, which tell none of them apart; of a single variant none."""
    first, *others = result.variants
    return tuple(setting for setting in first.settings if others and all(setting in one.settings for one in others))


def _row(number: int, variant: VariantResult, shared: tuple[Setting, ...], first: int, console: Console) -> list[str]:
    settings = "\n".join(str(setting) for setting in variant.settings if setting not in shared)
    if variant.result is None:
        blank = ["–"] * (4 + len(_SHOWN_CONTENTS))
        return [str(number), settings, *blank, console.text("stages.variants.no-result")]
    worst = variant.result.worst
    contents = worst.extrapolation.contents if worst.extrapolation else worst.reading.contents
    sizes = {content.value: amount for content, amount in contents.items()}
    return [
        str(number),
        settings,
        str(worst.run.stage),
        str(worst.extrapolation.layers if worst.extrapolation else worst.run.layers),
        *(in_gib(sizes[name]) if name in sizes else "–" for name in _SHOWN_CONTENTS),
        in_gib(worst.judged_bytes),
        signed(worst.judged_bytes - first),
        word(worst.verdict, console),
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
