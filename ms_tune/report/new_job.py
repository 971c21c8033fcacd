"""Show a job that was written from nothing: its layout and assumptions, or the devices that it needs."""

from __future__ import annotations

from argparse import Namespace

from ms_tune.planning.layouts import DIMENSIONS, Layout
from ms_tune.report.console import Console
from ms_tune.text import Message, msg
from ms_tune.units import short_gib
from ms_tune.workflows.new_job.layouts import JobSize
from ms_tune.workflows.new_job.run import NewJob

VERSION = 1


def list_assumed(arguments: Namespace, size: JobSize) -> tuple[Message, ...]:
    """Return the values that the user did not state."""
    given = (
        (arguments.seq, "seq", size.tokens),
        (arguments.global_batch, "global-batch", size.samples),
        (arguments.chip or arguments.device_memory, "chip", "910B"),
        (arguments.dialect, "dialect", size.dialect.value),
    )
    missing = [msg("init.assumed", option=f"--{name}", value=value) for stated, name, value in given if not stated]
    if not size.model.has("rope_theta"):
        missing.append(msg("init.assumed.rotary"))
    return tuple(missing)


def write_new_job(found: NewJob, console: Console) -> None:
    """Write the layout of a job, its files and assumptions."""
    for file in found.files:
        console.write_text("init.wrote", file=file)
    draft = found.draft
    again = ", ".join(f"{some}/{count}" for some, count in zip(draft.recomputed, draft.layers, strict=True))
    console.write_text("init.layout", layout=draft.layout, again=again, samples=found.size.samples)
    console.write_text("init.assumptions")
    console.write_lines(found.assumed, "- ")


def write_formula(found: NewJob, console: Console) -> None:
    """Write the memory of a job that cannot be simulated."""
    estimate = found.draft.estimate
    low, high = map(short_gib, estimate.range_bytes)
    console.write_text("init.not-simulated", low=low, high=high, usable=short_gib(estimate.limit.bytes))


def write_refusal(found: NewJob, console: Console, *, json: bool, is_written: bool) -> None:
    """Write that a job does not fit on its devices, and on how many it does; ``is_written``: a plan that a dryrun refuted is."""
    if json:
        console.write_json({**new_job_json(found), "written": list(found.files) if is_written else []})
        return
    draft, more = found.draft, found.enough
    sizes = {"need": short_gib(draft.estimate.fullest.peak_bytes), "usable": short_gib(draft.estimate.limit.bytes)}
    name = "init.refuted" if is_written else "init.too-large"
    console.write_text(name, devices=found.size.devices, layout=draft.layout, file=next(iter(found.files)), **sizes)
    if more is None:
        console.write_text("init.never", devices=found.size.devices * 64)
        return
    need = short_gib(more.estimate.fullest.peak_bytes)
    console.write_text("init.enough", devices=more.layout.devices, layout=more.layout, need=need)


def new_job_json(found: NewJob) -> dict[str, object]:
    """Return a job as JSON."""
    draft, more = found.draft, found.enough
    return {
        "version": VERSION,
        "model": found.size.model.name,
        "dialect": found.size.dialect,
        "fits": draft.fits,
        "layout": _layout_json(draft.layout),
        "recomputed": list(draft.recomputed),
        "peak_bytes": draft.estimate.fullest.peak_bytes,
        "limit_bytes": draft.estimate.limit.bytes,
        "written": list(found.files) if draft.fits else [],
        "enough": None if more is None else {"devices": more.layout.devices, "layout": _layout_json(more.layout)},
    }


def _layout_json(layout: Layout) -> dict[str, int]:
    return {name: getattr(layout, field) for name, field in DIMENSIONS.items()}
