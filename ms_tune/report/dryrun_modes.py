"""Show the results of the other modes of ``dryrun``: a user's command, variants, and comparisons with a real run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from ms_tune.dialects.job_parts import SettingChange
from ms_tune.dryrun.cann_sim.environment import Backend
from ms_tune.dryrun.command_result import CommandResult, RankResult
from ms_tune.dryrun.compare import ComparedFigure, RealComparison
from ms_tune.dryrun.launchers.job import LaunchedJob
from ms_tune.dryrun.result import DryrunResult, StageResult, SweepResult, VariantResult
from ms_tune.report import memory_text
from ms_tune.report.console import Console
from ms_tune.report.dryrun_check import job_params
from ms_tune.report.dryrun_text import SHOWN_HOLDERS, in_gib, left_out_text, theory_lines
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

_SHOWN_RANKS = 3  # without --verbose
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
    memory_text.show_breakdown(replace(worst.reading.report.peak, layers=()), console, SHOWN_HOLDERS)
    kind = "stand-in" if result.backend is Backend.STAND_IN else "cann"
    console.write_section(f"dryrun.show.worth.{kind}", level=result.level)
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
    launched = ("job", "stage") if any(rank.job is not None for rank in result.ranks) else ()
    layered = ("layers",) if any(rank.extrapolation is not None for rank in result.ranks) else ()
    process, contents = (("process",), _SHOWN_CONTENTS) if verbose else ((), ())
    columns = (*launched, "rank", *process, *layered, *contents, "peak", "footprint", "limit", "verdict")
    ordered = sorted(result.ranks, key=lambda one: -one.judged_bytes)
    shown = ordered if verbose else ordered[:_SHOWN_RANKS]
    console.write_text("stages.command.ranks", rest=left_out_text(len(shown), len(ordered), console))
    cells = [_rank_cells(rank, console) for rank in shown]
    show_table(console, columns, [[row[name] for name in columns] for row in cells], "stages")


def _rank_cells(rank: RankResult, console: Console) -> dict[str, str]:
    sizes, limit, layers = by_name(rank.contents), rank.verdict.limit, number_or_dash(rank.layers)
    if rank.extrapolation is not None:
        layers = f"{', '.join(map(str, rank.extrapolation.from_layers))} → {rank.extrapolation.layers}"
    return {
        "job": number_or_dash(rank.job),
        "stage": number_or_dash(rank.stage),
        "rank": number_or_dash(rank.rank),
        "process": str(rank.process.pid) if rank.process else "–",
        "layers": layers,
        **{name: in_gib(sizes.get(name, 0)) for name in _SHOWN_CONTENTS},
        "peak": in_gib(rank.judged_bytes),
        "footprint": in_gib(rank.footprint_bytes),
        "limit": in_gib(limit.bytes if limit else 0),
        "verdict": verdict_word(rank.verdict, console),
    }


def show_real(comparison: RealComparison, console: Console, *, quiet: bool = False) -> None:
    """Show both verdicts, a row per rank, then the figures of the rank with the highest real peak and their differences."""
    worst = max(comparison.pairs, key=lambda pair: pair.real.peak_bytes)
    for side, verdict in (("simulated", worst.simulated.verdict), ("real", worst.real_verdict)):
        console.write(console.labelled(console.text(f"stages.column.{side}"), verdict_sentence(verdict, console)))
    if quiet:
        return
    names = {"simulated": near_path(comparison.simulated), "real": near_path(comparison.real)}
    console.write_text("stages.compare.title", **names)
    rows = []
    for pair in comparison.pairs:
        peak, footprint = pair.figures[:2]
        share = f"{peak.simulated / peak.real:.1%}" if peak.simulated is not None and peak.real else "–"
        rows.append([number_or_dash(pair.rank), *_size_cells(peak), share, *_size_cells(footprint)[:2]])
    columns = ["rank", "simulated", "real", "difference", "share", "simulated_footprint", "real_footprint"]
    show_table(console, columns, rows, "stages")
    console.write_section("stages.log.figures", rank=number_or_dash(worst.rank))
    rows = [[console.text(f"stages.log.figure.{one.name}"), *_size_cells(one)] for one in worst.figures]
    show_table(console, ["figure", "simulated", "real", "difference"], rows, "stages")
    console.write("")
    console.write_lines(worst.notes, "- ")
    for side in ("real", "simulated"):
        if missing := getattr(comparison, f"only_{side}"):
            console.write_text(f"stages.compare.only.{side}", ranks=", ".join(map(number_or_dash, missing)))


def _size_cells(figure: ComparedFigure) -> list[str]:
    both = ("–" if amount is None else in_gib(amount) for amount in (figure.simulated, figure.real))
    return [*both, "–" if figure.difference is None else signed_text(figure.difference)]


def show_variants(
    result: SweepResult[DryrunResult] | SweepResult[CommandResult], console: Console, *, quiet: bool = False
) -> None:
    """Show a row per variant, then the reasons for failed ones; with ``quiet`` only the rows."""
    variants: Sequence[VariantResult[DryrunResult] | VariantResult[CommandResult]] = result.variants
    figures = [_worst_of(variant.result) for variant in variants]
    first = next((worst.judged_bytes for worst in figures if worst is not None), 0)
    columns = ["variant", "settings", "stage", "layers", *_SHOWN_CONTENTS, "peak", "change", "verdict"]
    settings = [tuple(map(str, variant.settings)) for variant in variants]
    # Settings that all variants have do not distinguish them.
    shared = [one for one in settings[0] if len(variants) > 1 and all(one in others for others in settings[1:])]
    if not quiet:
        console.write_text("stages.variants.title", count=len(variants))
    if shared and not quiet:
        console.write_text("dryrun.show.settings", settings=", ".join(shared))
    rows = []
    for number, (variant, own, worst) in enumerate(zip(variants, settings, figures, strict=True), start=1):
        cells = [str(number), "\n".join(one for one in own if one not in shared)]
        if worst is None or variant.result is None:
            word = console.text("stages.variants.no-result")
            if isinstance(variant.result, DryrunResult):  # compiled only, at level 0
                word = verdict_word(variant.result.verdict, console)
            rows.append([*cells, *["–"] * (4 + len(_SHOWN_CONTENTS)), word])
        else:
            change, word = worst.judged_bytes - first, verdict_word(variant.result.verdict, console)
            rows.append([*cells, *_figure_cells(worst), signed_text(change), word])
    show_table(console, columns, rows, "stages")
    if quiet:
        return
    if any(worst is not None and worst.extrapolation is not None for worst in figures):
        console.write_text("stages.variants.extrapolated")
    for number, variant in enumerate(variants, start=1):
        if (reason := _why_failed(variant)) is not None:
            console.write_text("stages.variants.failed", number=number, reason=reason)
    console.write_text("dryrun.show.kept", folder=near_path(result.folder))


def _worst_of(result: DryrunResult | CommandResult | None) -> StageResult | RankResult | None:
    if isinstance(result, DryrunResult):
        return result.worst if result.stages else None  # without figures at level 0
    return None if result is None else result.worst


def _why_failed(variant: VariantResult[DryrunResult] | VariantResult[CommandResult]) -> Message | None:
    if variant.result is None:
        return None if variant.error is None else variant.error.message
    return None if isinstance(variant.result, DryrunResult) else variant.result.verdict.no_verdict_because


def _figure_cells(worst: StageResult | RankResult) -> list[str]:
    stage = worst.run.stage if isinstance(worst, StageResult) else worst.stage
    layers = worst.layers if worst.extrapolation is None else worst.extrapolation.layers
    sizes = by_name(worst.contents)
    contents = (in_gib(sizes[name]) if name in sizes else "–" for name in _SHOWN_CONTENTS)
    return [number_or_dash(stage), number_or_dash(layers), *contents, in_gib(worst.judged_bytes)]
