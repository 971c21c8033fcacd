"""Runs side by side, in the terminal: a simulated and a real one, variants of a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ms_tune.report.dryrun_text import in_gib, near_path, show_table
from ms_tune.report.words import by_name, number_or_dash, sentence, signed_text, word

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ms_tune.dryrun.command_result import CommandSweep, CommandVariant
    from ms_tune.dryrun.compare import LogComparison, LoggedPair
    from ms_tune.dryrun.result import ComparedRank, RealComparison, SweepResult, VariantResult
    from ms_tune.enums import MemoryCategory
    from ms_tune.report.console import Console
    from ms_tune.text import Message
    from ms_tune.verdict.outcome import Verdict


def show_real(comparison: RealComparison, console: Console) -> None:
    """A row for each rank, then where the rank that needs most differs."""
    names = {"simulated": near_path(comparison.simulated), "real": near_path(comparison.real)}
    console.write(console.text("stages.compare.title", **names))
    columns = ["rank", "simulated", "real", "difference", "share", "simulated_footprint", "real_footprint"]
    show_table(console, columns, [_real_row(rank) for rank in comparison.ranks])
    worst = max(comparison.ranks, key=lambda rank: rank.real.curve.peak_bytes)
    rows = []
    for content, amount in worst.real.peak.contents.items():
        other = worst.simulated.peak.contents[content]
        if amount or other:
            label = console.text(f"memory.content.{content.value}")
            rows.append([label, in_gib(other), in_gib(amount), signed_text(other - amount)])
    console.write("")
    show_table(console, ["content", "simulated", "real", "difference"], rows)
    console.write("")
    for name, report in (("simulated", worst.simulated), ("real", worst.real)):
        console.write(console.labelled(console.text(f"stages.column.{name}"), sentence(report.verdict, console)))
    if comparison.only_real:
        missing = ", ".join(map(number_or_dash, comparison.only_real))
        console.write(console.text("stages.compare.only-real", ranks=missing))


def _real_row(rank: ComparedRank) -> list[str]:
    simulated, real = rank.simulated.curve, rank.real.curve
    return [
        number_or_dash(rank.rank),
        in_gib(simulated.peak_bytes),
        in_gib(real.peak_bytes),
        signed_text(simulated.peak_bytes - real.peak_bytes),
        f"{simulated.peak_bytes / real.peak_bytes:.1%}" if real.peak_bytes else "–",
        in_gib(simulated.footprint_bytes),
        in_gib(real.footprint_bytes),
    ]


def show_log(comparison: LogComparison, console: Console) -> None:
    """A row for each rank, then the figures of the rank that needs most, what they differ by, and both verdicts."""
    names = {"simulated": near_path(comparison.simulated), "real": near_path(comparison.real)}
    console.write(console.text("stages.log.title", **names))
    columns = ["rank", "simulated", "real", "difference", "share", "simulated_footprint", "real_footprint"]
    show_table(console, columns, [_log_row(pair) for pair in comparison.pairs])
    worst = max(comparison.pairs, key=lambda pair: pair.real.peak_bytes)
    console.write("")
    console.write(console.text("stages.log.figures", rank=number_or_dash(worst.rank)))
    rows = []
    for figure in worst.figures:
        apart = "–" if figure.difference is None else signed_text(figure.difference)
        name = console.text(f"stages.log.figure.{figure.name}")
        rows.append([name, _size_or_dash(figure.simulated), _size_or_dash(figure.real), apart])
    show_table(console, ["figure", "simulated", "real", "difference"], rows)
    console.write("")
    for note in worst.notes:
        console.write(f"- {console.say(note)}")
    for side, verdict in (("simulated", worst.simulated.verdict), ("real", worst.real_verdict)):
        console.write(console.labelled(console.text(f"stages.column.{side}"), sentence(verdict, console)))
    if comparison.only_real:
        console.write(console.text("stages.compare.only-real", ranks=_rank_list(comparison.only_real)))
    if comparison.only_simulated:
        console.write(console.text("stages.log.only-simulated", ranks=_rank_list(comparison.only_simulated)))


def _log_row(pair: LoggedPair) -> list[str]:
    peak, footprint = pair.figures[:2]
    return [
        number_or_dash(pair.rank),
        _size_or_dash(peak.simulated),
        _size_or_dash(peak.real),
        "–" if peak.difference is None else signed_text(peak.difference),
        f"{peak.simulated / peak.real:.1%}" if peak.simulated is not None and peak.real else "–",
        _size_or_dash(footprint.simulated),
        _size_or_dash(footprint.real),
    ]


def _rank_list(ranks: Sequence[int | None]) -> str:
    return ", ".join(map(number_or_dash, ranks))


def _size_or_dash(amount: int | None) -> str:
    return "–" if amount is None else in_gib(amount)


_SHOWN_CONTENTS = ("weights", "optimizer_state", "activations")


@dataclass(frozen=True, slots=True)
class _VariantRow:
    """A variant."""

    settings: tuple[str, ...]  # what it has otherwise
    stage: str = "–"  # its worst stage
    layers: str = "–"  # that stage's layers
    contents: Mapping[MemoryCategory, int] = field(default_factory=dict)  # what the judged peak is made of
    peak: int | None = None  # that peak; None without a result
    verdict: Verdict | None = None
    derived: bool = False  # the stage was not run whole
    error: Message | None = None  # why there is no result


def show_variants(result: SweepResult, console: Console) -> None:
    """A row for each variant; what failed is told below."""
    _show_rows([_of_config(variant) for variant in result.variants], result.folder, console)


def show_command_variants(result: CommandSweep, console: Console) -> None:
    """The same for variants of a command."""
    _show_rows([_of_command(variant) for variant in result.variants], result.folder, console)


def _of_config(variant: VariantResult) -> _VariantRow:
    settings = tuple(map(str, variant.settings))
    if variant.result is None:
        return _VariantRow(settings, error=variant.error.message if variant.error else None)
    worst = variant.result.worst
    derived = worst.extrapolation is not None
    contents = worst.extrapolation.contents if worst.extrapolation else worst.reading.contents
    layers, stage = str(worst.layers), str(worst.run.stage)
    return _VariantRow(settings, stage, layers, contents, worst.judged_bytes, worst.verdict, derived)


def _of_command(variant: CommandVariant) -> _VariantRow:
    settings = variant.words
    if variant.result is None:
        return _VariantRow(settings, error=variant.error.message if variant.error else None)
    worst, verdict = variant.result.worst, variant.result.verdict
    if worst is None:
        return _VariantRow(settings, verdict=verdict, error=verdict.no_verdict_because)
    count = worst.extrapolation.layers if worst.extrapolation is not None else worst.layers
    stage, layers = map(number_or_dash, (worst.stage, count))
    derived = worst.extrapolation is not None
    return _VariantRow(
        settings, stage, layers, worst.contents, worst.judged_bytes, verdict, derived, verdict.no_verdict_because
    )


def _show_rows(variants: Sequence[_VariantRow], folder: Path, console: Console) -> None:
    first = next((variant.peak for variant in variants if variant.peak is not None), 0)
    columns = ["variant", "settings", "stage", "layers", *_SHOWN_CONTENTS, "peak", "change", "verdict"]
    console.write(console.text("stages.variants.title", count=len(variants)))
    shared = _shared_settings(variants)
    if shared:
        console.write(console.text("dryrun.show.settings", settings=", ".join(shared)))
    rows = [_variant_cells(number, variant, shared, first, console) for number, variant in enumerate(variants, start=1)]
    show_table(console, columns, rows)
    if any(variant.derived for variant in variants):
        console.write(console.text("stages.variants.extrapolated"))
    for number, variant in enumerate(variants, start=1):
        if variant.error is not None:
            reason = console.say(variant.error)
            console.write(console.text("stages.variants.failed", number=number, reason=reason))
    console.write("")
    console.write(console.text("dryrun.show.kept", folder=near_path(folder)))


def _shared_settings(variants: Sequence[_VariantRow]) -> tuple[str, ...]:
    """The settings that all variants have, which tell none of them apart; of a single variant none."""
    first, *others = variants
    return tuple(setting for setting in first.settings if others and all(setting in one.settings for one in others))


def _variant_cells(
    number: int, variant: _VariantRow, shared: tuple[str, ...], first: int, console: Console
) -> list[str]:
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
        signed_text(variant.peak - first),
        word(variant.verdict, console),
    ]
