"""Show the results of the other modes of ``dryrun``: a user's command, variants, and comparisons with a real run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ms_tune.dialects.job_parts import SettingChange
from ms_tune.dryrun.cann_sim.environment import Backend
from ms_tune.dryrun.command_result import CommandResult, RankResult
from ms_tune.dryrun.compare import RealComparison
from ms_tune.dryrun.launchers.job import LaunchedJob
from ms_tune.dryrun.result import DryrunResult, StageResult, SweepResult, VariantResult
from ms_tune.enums import MemoryCategory
from ms_tune.report import memory_text
from ms_tune.report.console import Console
from ms_tune.report.dryrun_check import job_params
from ms_tune.report.dryrun_text import in_gib, theory_lines
from ms_tune.report.words import (
    by_name,
    evidence_lines,
    largest_in_gib,
    number_or_dash,
    show_table,
    signed_text,
    verdict_line,
    verdict_sentence,
    verdict_word,
)
from ms_tune.source.files import near_path
from ms_tune.text import Message, msg
from ms_tune.verdict.outcome import Verdict

_SHOWN_RANKS = 3  # without --verbose
_SHOWN_HOLDERS = 5
_SHOWN_PLACES = 10
_SHOWN_CONTENTS = ("weights", "optimizer_state", "activations")


def show_command(result: CommandResult, console: Console, *, verbose: bool = False, quiet: bool = False) -> None:
    """Show the verdict and how the command ended; with ``verbose`` also the evidence and the memory by category."""
    worst = result.worst
    line = verdict_line(result.verdict, console, worst.stage if worst is not None else None)
    (console.write_raw if quiet else console.write)(line)
    if quiet:
        return
    params = {"command": shlex.join(result.command), "code": result.code, "seconds": f"{result.seconds:.1f}"}
    console.write_text("stages.command.run", **params)
    for job in result.jobs:
        if job.ranks:
            console.write(job_line(job, console))
    if worst is not None:
        _show_ranks(result, console, verbose=verbose)
        largest = largest_in_gib(worst.contents, console)
        name = "largest-rank" if worst.stage is None else "largest"
        console.write_text(f"dryrun.show.{name}", stage=worst.stage, rank=number_or_dash(worst.rank), parts=largest)
    _show_doubtful(result, console)
    if verbose:
        _show_evidence(result, console)
    console.write_text("dryrun.show.kept" if verbose else "dryrun.show.kept-more", folder=near_path(result.folder))
    if worst is not None:
        console.write_text("dryrun.show.next", command=f"ms-tune memory {near_path(result.folder)}")


def _show_evidence(result: CommandResult, console: Console) -> None:
    console.write_section("dryrun.show.evidence")
    console.write_lines(evidence_lines(result.verdict, console))
    _show_changes(result, console)
    if result.worst is not None:
        _show_figures(result, result.worst, console)
    console.write("")


def _show_figures(result: CommandResult, worst: RankResult, console: Console) -> None:
    if any(rank.extrapolation is not None for rank in result.ranks):
        console.write_text("launch.layers.few")
    if worst.extrapolation is not None:
        console.write("")
        small = {"stage": worst.stage, "rank": worst.rank, "layers": worst.layers, "full": worst.full_layers}
        console.write_text("dryrun.show.traced-small", **small)
    if worst.theory:
        console.write_section("launch.theory")
        console.write_lines(theory_lines(worst.theory, console))
    memory_text.show_breakdown(replace(worst.reading.report.peak, layers=()), console, _SHOWN_HOLDERS)
    kind = "stand-in" if result.backend is Backend.STAND_IN else "cann"
    console.write_section(f"dryrun.show.worth.{kind}")
    console.write(f"  - {console.text('dryrun.not-included.workspace')}")
    console.write(f"  - {console.text('dryrun.not-included.communication')}")


def _show_changes(result: CommandResult, console: Console) -> None:
    lines = [console.say(_change_text(change, job)) for job in result.jobs for change in job.changes]
    lines += [console.say(message) for message in result.support]
    if lines:
        console.write_text("launch.changes")
        console.write_lines(lines, "  ")


def _change_text(change: SettingChange, job: LaunchedJob) -> Message:
    flag = msg("launch.flag")
    params = {"key": change.key, "before": change.before or flag, "job": job.number}
    if change.after is None:
        return Message("launch.out", params)
    if change.before is None:
        return Message("launch.new", {**params, "key": f"{change.key} {change.after}".rstrip()})
    return Message("launch.change", {**params, "after": change.after or flag})


def job_line(job: LaunchedJob, console: Console) -> str:
    """Return a launcher's job, with the ranks that represent all others."""
    named = [
        console.text("launch.one" if one.stage is None else "launch.one.stage", rank=one.rank, stage=one.stage)
        for one in job.ranks
    ]
    return console.text("launch.job", **job_params(job), ranks=", ".join(named))


def _show_doubtful(result: CommandResult, console: Console) -> None:
    for text, places in (("stages.command.reads", result.reads), ("stages.command.bounds", result.bounds)):
        if places:
            console.write_text(text, count=max(len(places), sum(one.places for one in result.processes)))
            console.write_lines(map(str, places[:_SHOWN_PLACES]), "  ")
            if len(places) > _SHOWN_PLACES:
                console.write(f"  {console.text('stages.command.more', count=len(places) - _SHOWN_PLACES)}")


def _show_ranks(result: CommandResult, console: Console, *, verbose: bool) -> None:
    launched = ["job", "stage"] if any(rank.job is not None for rank in result.ranks) else []
    derived = any(rank.extrapolation is not None for rank in result.ranks)
    layered = ["layers"] if derived else []
    process, contents = (["process"], _SHOWN_CONTENTS) if verbose else ([], ())
    columns = [*launched, "rank", *process, *layered, *contents, "peak", "footprint", "limit", "verdict"]
    rows = []
    ordered = sorted(result.ranks, key=lambda one: -one.judged_bytes)
    shown = ordered if verbose else ordered[:_SHOWN_RANKS]
    for rank in shown:
        sizes = by_name(rank.contents)
        amounts = [sizes.get(name, 0) for name in contents]
        limit = rank.verdict.limit
        amounts += [rank.judged_bytes, rank.footprint_bytes, limit.bytes if limit else 0]
        names = [number_or_dash(rank.rank), str(rank.process.pid) if rank.process else "–"][: 1 + len(process)]
        where = [number_or_dash(rank.job), number_or_dash(rank.stage)]
        layers = [_layers_text(rank)] if derived else []
        rows.append(
            [*where[: len(launched)], *names, *layers, *map(in_gib, amounts), verdict_word(rank.verdict, console)]
        )
    left_out = (
        console.text("stages.left-out", shown=len(shown), count=len(ordered)) if len(shown) < len(ordered) else ""
    )
    console.write_text("stages.command.ranks", rest=left_out)
    show_table(console, columns, rows, "stages")


def _layers_text(rank: RankResult) -> str:
    if rank.extrapolation is not None:
        return f"{', '.join(map(str, rank.extrapolation.from_layers))} → {rank.extrapolation.layers}"
    return number_or_dash(rank.layers)


_RANK_COLUMNS = ("rank", "simulated", "real", "difference", "share", "simulated_footprint", "real_footprint")


def show_real(comparison: RealComparison, console: Console, *, quiet: bool = False) -> None:
    """Show both verdicts, a row per rank, then the figures of the rank with the highest real peak and their differences."""
    worst = max(comparison.pairs, key=lambda pair: pair.real.peak_bytes)
    _show_verdicts((worst.simulated.verdict, worst.real_verdict), console)
    if quiet:
        return
    names = {"simulated": near_path(comparison.simulated), "real": near_path(comparison.real)}
    console.write_text("stages.compare.title", **names)
    rows = []
    for pair in comparison.pairs:
        peaks, footprints = ((figure.simulated, figure.real) for figure in pair.figures[:2])
        rows.append(_rank_row(pair.rank, peaks, footprints))
    show_table(console, _RANK_COLUMNS, rows, "stages")
    console.write_section("stages.log.figures", rank=number_or_dash(worst.rank))
    rows = [
        [console.text(f"stages.log.figure.{figure.name}"), *_size_cells(figure.simulated, figure.real)]
        for figure in worst.figures
    ]
    show_table(console, ["figure", "simulated", "real", "difference"], rows, "stages")
    console.write("")
    console.write_lines(worst.notes, "- ")
    for side in ("real", "simulated"):
        if missing := getattr(comparison, f"only_{side}"):
            console.write_text(f"stages.compare.only.{side}", ranks=", ".join(map(number_or_dash, missing)))


def _rank_row(
    rank: int | None, peaks: tuple[int | None, int | None], footprints: tuple[int | None, int | None]
) -> list[str]:
    simulated, real = peaks
    share = f"{simulated / real:.1%}" if simulated is not None and real else "–"
    return [number_or_dash(rank), *_size_cells(simulated, real), share, *map(_size_or_dash, footprints)]


def _size_cells(simulated: int | None, real: int | None) -> list[str]:
    apart = "–" if simulated is None or real is None else signed_text(simulated - real)
    return [_size_or_dash(simulated), _size_or_dash(real), apart]


def _size_or_dash(amount: int | None) -> str:
    return "–" if amount is None else in_gib(amount)


def _show_verdicts(verdicts: tuple[Verdict, Verdict], console: Console) -> None:
    for side, verdict in zip(("simulated", "real"), verdicts, strict=True):
        console.write(console.labelled(console.text(f"stages.column.{side}"), verdict_sentence(verdict, console)))


@dataclass(frozen=True, slots=True)
class _VariantRow:
    settings: tuple[str, ...]  # settings that differ from the config's
    stage: str = "–"  # the worst stage
    layers: str = "–"  # that stage's layers
    contents: Mapping[MemoryCategory, int] = field(default_factory=dict)  # the judged peak by category
    peak: int | None = None  # the judged peak; None without a result
    verdict: Verdict | None = None
    derived: bool = False  # the stage was extrapolated
    error: Message | None = None  # reason for a missing result


def _variant_row(variant: VariantResult[DryrunResult] | VariantResult[CommandResult]) -> _VariantRow:
    settings, result = tuple(map(str, variant.settings)), variant.result
    if result is None:
        return _VariantRow(settings, error=variant.error.message if variant.error else None)
    if isinstance(result, DryrunResult):
        stage = result.worst
        return _row_of(settings, stage, stage.run.stage, stage.layers, stage.verdict)
    worst, verdict = result.worst, result.verdict
    if worst is None:
        return _VariantRow(settings, verdict=verdict, error=verdict.no_verdict_because)
    count = worst.extrapolation.layers if worst.extrapolation is not None else worst.layers
    return replace(_row_of(settings, worst, worst.stage, count, verdict), error=verdict.no_verdict_because)


def _row_of(
    settings: tuple[str, ...], worst: StageResult | RankResult, stage: int | None, layers: int | None, verdict: Verdict
) -> _VariantRow:
    names = number_or_dash(stage), number_or_dash(layers)
    return _VariantRow(
        settings, *names, worst.contents, worst.judged_bytes, verdict, derived=worst.extrapolation is not None
    )


def show_variants(
    result: SweepResult[DryrunResult] | SweepResult[CommandResult], console: Console, *, quiet: bool = False
) -> None:
    """Show a row per variant, then the reasons for failed ones; with ``quiet`` only the rows."""
    variants = list(map(_variant_row, result.variants))
    first = next((variant.peak for variant in variants if variant.peak is not None), 0)
    columns = ["variant", "settings", "stage", "layers", *_SHOWN_CONTENTS, "peak", "change", "verdict"]
    shared = _shared_settings(variants)
    if not quiet:
        console.write_text("stages.variants.title", count=len(variants))
    if shared and not quiet:
        console.write_text("dryrun.show.settings", settings=", ".join(shared))
    rows = [_variant_cells(number, variant, shared, first, console) for number, variant in enumerate(variants, start=1)]
    show_table(console, columns, rows, "stages")
    if quiet:
        return
    if any(variant.derived for variant in variants):
        console.write_text("stages.variants.extrapolated")
    for number, variant in enumerate(variants, start=1):
        if variant.error is not None:
            reason = console.say(variant.error)
            console.write_text("stages.variants.failed", number=number, reason=reason)
    console.write_text("dryrun.show.kept", folder=near_path(result.folder))


def _shared_settings(variants: Sequence[_VariantRow]) -> tuple[str, ...]:
    # Settings that all variants have and that therefore do not distinguish them; none for a single variant.
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
        verdict_word(variant.verdict, console),
    ]
