"""Show the result of ``dryrun`` in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ms_tune.dryrun.cann_sim.environment import Backend
from ms_tune.dryrun.result import DryrunResult, StageResult, TheoryCheck
from ms_tune.report import memory_text
from ms_tune.report.console import Console, pad
from ms_tune.report.words import (
    by_name,
    evidence_lines,
    largest_in_gib,
    show_table,
    size_text,
    verdict_line,
    verdict_word,
)
from ms_tune.source.files import near_path
from ms_tune.text import shorten
from ms_tune.units import GIB, gib
from ms_tune.verdict.outcome import Fit

_SHOWN_STAGES = 2  # without --verbose
_SHOWN_CHANGES = 12
SHOWN_HOLDERS = 5


def show_dryrun(result: DryrunResult, console: Console, *, verbose: bool = False, quiet: bool = False) -> None:
    """Show the verdict, the job, its stages and the next command; with ``verbose`` also the evidence."""
    if result.stages:
        line = verdict_line(result.verdict, console, result.worst.run.stage)
        (console.write_raw if quiet else console.write)(line)
    else:
        console.write_text("dryrun.show.compiled", count=len(result.runs))
    if quiet:
        return
    _show_job(result, console)
    if result.stages:
        show_stages(result, console, verbose=verbose)
        largest = largest_in_gib(result.worst.contents, console)
        console.write_text("dryrun.show.largest", stage=result.worst.run.stage, parts=largest)
    if verbose:
        _show_evidence(result, console)
    console.write_text("dryrun.show.kept" if verbose else "dryrun.show.kept-more", folder=near_path(result.folder))
    console.write_text("dryrun.show.next", command=_next_command(result))


def _show_job(result: DryrunResult, console: Console) -> None:
    run = result.worst.run if result.stages else result.runs[0]
    job = {"config": run.config_name, "devices": run.world_size, "source": console.say(run.devices_source)}
    console.write_text("dryrun.show.assumed", **job, **run.split._asdict())
    if result.settings:
        console.write_text("dryrun.show.settings", settings=", ".join(map(str, result.settings)))
    versions = f"MindSpore {result.mindspore}" + (f", MindFormers {result.mindformers}" if result.mindformers else "")
    console.write_text("dryrun.show.with", model=console.say(run.model), versions=versions)


def _show_evidence(result: DryrunResult, console: Console) -> None:
    run = result.worst.run if result.stages else result.runs[0]
    console.write_section("dryrun.show.evidence")
    console.write_lines(evidence_lines(result.verdict, console))
    console.write_lines(run.standing, "  - ")
    backend = console.text(f"dryrun.show.backend.{result.backend.value}", level=result.level)
    console.write(f"  - {backend}")
    if result.stages:
        stage = result.worst
        if stage.layer_activations and stage.run.recomputes:
            saved = size_text(stage.layer_activations)
            console.write_section("dryrun.show.saving", stage=stage.run.stage, size=saved)
        _show_traced(stage, console)
    console.write("")
    _show_changes(result, console)
    _show_worth(result, console)
    console.write("")


def _show_traced(stage: StageResult, console: Console) -> None:
    # Show the trace of the worst stage; if it has fewer layers than the stage, say so first.
    small = stage.extrapolation is not None or stage.full_layers not in (None, stage.run.layers)
    params = {"stage": stage.run.stage, "rank": stage.run.rank, "layers": stage.run.layers}
    text_id = "dryrun.show.traced-small" if small else "dryrun.show.traced"
    console.write_text(text_id, full=stage.full_layers or "?", **params)
    for name, amount, note in (
        ("peak", stage.reading.peak_bytes, ""),
        ("footprint", stage.reading.footprint_bytes, console.text("dryrun.show.footprint-note")),
    ):
        label = pad(console.text(f"dryrun.show.{name}"), 20)
        console.write(f"  {label}{gib(amount):>12}   {note}".rstrip())
    _show_theory(stage, console)
    # Memory by layer is left to `ms-tune memory`; locations in ms-tune's own files are replaced.
    peak, own = stage.reading.report.peak, console.text("dryrun.show.own-place")
    holders = tuple(replace(one, where=own if "ms_tune/" in one.where else one.where) for one in peak.holders)
    parts = replace(peak, layers=(), holders=holders)
    memory_text.show_breakdown(parts, console, SHOWN_HOLDERS)


def _show_theory(stage: StageResult, console: Console) -> None:
    console.write("")
    if not stage.theory:
        console.write_text("dryrun.show.no-theory")
        return
    console.write_text("dryrun.show.theory", stage=stage.run.stage, layers=stage.run.layers)
    console.write_lines(theory_lines(stage.theory, console))


def theory_lines(pairs: Iterable[TheoryCheck], console: Console) -> Iterator[str]:
    """Yield a line per category: measured, expected and relative difference."""
    for pair in pairs:
        label = pad(console.text(f"memory.content.{pair.content}"), 18)
        difference = "–" if pair.difference is None else f"{pair.difference:+.3%}"
        note = console.text("dryrun.show.by-theory", size=size_text(pair.expected), difference=difference)
        yield f"  {label}{size_text(pair.measured):>12}   {note}"


def _show_changes(result: DryrunResult, console: Console) -> None:
    changes = result.runs[0].changes
    if not changes:
        return
    console.write_text("dryrun.show.changes")
    for change in changes[:_SHOWN_CHANGES]:
        text_id = "dryrun.show.removed" if change.after is None else "dryrun.show.changed"
        before, after = (shorten(" ".join(str(one).split()), 60) for one in (change.before, change.after))
        console.write("  " + console.text(text_id, key=change.key, before=before, after=after))
    if len(changes) > _SHOWN_CHANGES:
        more = len(changes) - _SHOWN_CHANGES
        console.write("  " + console.text("dryrun.show.more-changes", count=more, file="changes.json"))
    console.write("")


def _show_worth(result: DryrunResult, console: Console) -> None:
    title = "dryrun.show.worth.stand-in" if result.backend is Backend.STAND_IN else "dryrun.show.worth.cann"
    console.write_text(title, level=result.level)
    console.write_lines(result.not_included, "  - ")


def _next_command(result: DryrunResult) -> str:
    # Choose the next command. After the packaged model: simulate the user's config. If it does not fit: find the
    # cheapest plan that fits. If it fits with fewer layers: run all layers. If it fits: look at the memory.
    run = result.runs[0]
    if run.packaged:
        return "ms-tune dryrun your_config.yaml"
    if result.stages and result.verdict.outcome is not Fit.FITS and run.recomputes:
        return f"ms-tune fit {run.config_name}"
    if run.shrunk and result.stages and result.worst.extrapolation is None:
        stage = f" --stage {run.stage}" if len(result.stages) == 1 and run.stages > 1 else ""
        return f"ms-tune dryrun{stage} {run.config_name}"
    if not result.stages:
        return f"ms-tune dryrun {run.config_name}"
    return f"ms-tune memory {near_path(result.folder)}"


_SHOWN_CONTENTS = ("weights", "optimizer_state", "gradients", "activations")
_EVEN = 0.1  # smaller relative differences between stages are not reported


def show_stages(result: DryrunResult, console: Console, *, verbose: bool) -> None:
    """Show one row per stage (all layers), worst first; with ``verbose`` all stages, with their memory by category."""
    ordered = sorted(
        result.stages, key=lambda stage: (-stage.verdict.severity, -stage.judged_bytes, stage.run.stage, stage.run.rank)
    )
    shown = ordered if verbose else ordered[:_SHOWN_STAGES]
    left_out = left_out_text(len(shown), len(ordered), console)
    console.write_text("stages.title", source=_stage_source(result, console), rest=left_out)
    parts = ("rank", "layers", *_SHOWN_CONTENTS, "other") if verbose else ("layers",)
    columns = ["stage", *parts, "peak", "footprint", "verdict"]
    cells = [_stage_cells(stage, console) for stage in shown]
    show_table(console, columns, [[row[name] for name in columns] for row in cells], "stages")
    console.write_lines(_stage_remarks(result, console) if verbose else ())


def left_out_text(shown: int, count: int, console: Console) -> str:
    """Return how many rows a table shows; empty if it shows all."""
    return console.text("stages.left-out", shown=shown, count=count) if shown < count else ""


def _stage_source(result: DryrunResult, console: Console) -> str:
    derived = [stage.extrapolation for stage in result.stages if stage.extrapolation is not None]
    numbers = sorted({layers for one in derived for layers in one.from_layers})
    if numbers:
        return console.text("stages.extrapolated", runs=console.listed(map(str, numbers), last=True))
    if any(stage.full_layers not in (None, stage.run.layers) for stage in result.stages):
        return console.text("stages.part-note")
    return ""


def _stage_remarks(result: DryrunResult, console: Console) -> Iterator[str]:
    if result.skipped:
        yield console.text("stages.skipped", stages=", ".join(map(str, result.skipped)))
    if result.imbalance > _EVEN:
        least = min(result.stages, key=lambda stage: stage.judged_bytes)
        most = max(result.stages, key=lambda stage: stage.judged_bytes)
        gap = size_text(most.judged_bytes - least.judged_bytes)
        params = {"worst": most.run.stage, "least": least.run.stage, "share": f"{result.imbalance:.0%}"}
        yield console.text("stages.imbalance", size=gap, **params)


def _stage_cells(stage: StageResult, console: Console) -> dict[str, str]:
    sizes, need, layers = by_name(stage.contents), stage.verdict.need, str(stage.layers)
    parts = {name: sizes.pop(name, 0) for name in _SHOWN_CONTENTS} | {"other": sum(sizes.values())}
    if stage.full_layers not in (None, stage.layers):  # fewer than the config gives the stage
        layers = f"{stage.layers}/{stage.full_layers}"
    return {
        "stage": str(stage.run.stage),
        "rank": str(stage.run.rank),
        "layers": layers,
        **{name: in_gib(amount) if stage.contents else "–" for name, amount in parts.items()},
        "peak": in_gib(stage.judged_bytes),
        "footprint": in_gib(need.footprint_bytes if need else stage.reading.footprint_bytes),
        "verdict": verdict_word(stage.verdict, console),
    }


def in_gib(amount: int) -> str:
    """Return bytes in GiB without the unit, for a column whose title has it."""
    return f"{amount / GIB:,.2f}"
