"""Write a config for a model and a number of NPUs, for ``ms-tune init --model``."""

from __future__ import annotations

import difflib
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path

from ms_tune.cli.dryrun_progress import watch_dryrun
from ms_tune.cli.output import new_file
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.enums import CHECKED_ONLY, Dialect
from ms_tune.errors import ExitCode, UsageError
from ms_tune.report import new_job as report
from ms_tune.report.check import overviews_json, write_overviews
from ms_tune.report.console import Console, usage_hint
from ms_tune.source.atomic_write import write_atomically
from ms_tune.source.yaml import read_text
from ms_tune.text import msg
from ms_tune.workflows.check.config import OverviewRequest
from ms_tune.workflows.check.result import Overview
from ms_tune.workflows.check.run import check_job
from ms_tune.workflows.new_job.layouts import JobSize
from ms_tune.workflows.new_job.run import (
    SAMPLES,
    TOKENS,
    NewJob,
    choose_dialect,
    plan_new_job,
    read_model,
    simulate_new_job,
)

_MOST_ROUNDS = 3  # dryruns, each with the margin that the one before has shown to be needed
_SIMULATED = (Dialect.MINDFORMERS, Dialect.MINDFORMERS_PYNATIVE)


def write_new_job(arguments: Namespace, console: Console) -> int:
    """Choose a layout that fits, write the config and its launch script, and dry-run it where MindSpore is installed."""
    size, job = _read_request(arguments)
    assumed = report.list_assumed(arguments, size)
    console.note(console.text("init.searching"))
    margin = None
    for number in range(1, _MOST_ROUNDS + 1):
        found = plan_new_job(size, job, console.language, assumed, margin)
        if not found.draft.fits:
            report.write_refusal(found, console, json=arguments.json, is_written=number > 1)
            return ExitCode.FINDINGS
        if arguments.diff:
            _show_diff(found, console)
            return ExitCode.OK
        for file, text in found.files.items():
            write_atomically(file, text.encode(), parents=True)
        screen = _check(found, job, arguments, console)
        margin = _missing_margin(found, screen, arguments)
        if margin is None or number == _MOST_ROUNDS:
            break
        console.note(console.text("init.again", margin=f"{margin:.2f}"))
    if arguments.json:
        console.write_json({**report.new_job_json(found), "check": overviews_json([screen], [], console)})
        return screen.exit_code(allow_tight=arguments.allow_tight)
    report.write_new_job(found, console)
    if size.dialect in CHECKED_ONLY:
        report.write_formula(found, console)
    else:
        write_overviews([screen], console)
    return screen.exit_code(allow_tight=arguments.allow_tight)


def _read_request(arguments: Namespace) -> tuple[JobSize, DryrunRequest]:
    # Return the job that the options describe; UsageError if one is missing, or a file would be overwritten.
    if arguments.devices is None or arguments.name is not None:
        raise UsageError(msg("init.needs.devices"), usage_hint("ms-tune init"))
    model = read_model(arguments.model, arguments.model_config)
    dialect = choose_dialect(model, Dialect(arguments.dialect) if arguments.dialect else None)
    suffix = ".sh" if dialect is Dialect.MEGATRON else ".yaml"
    path = arguments.output or Path(f"{model.name.lower()}-{arguments.devices}{suffix}")
    if path.suffix not in ((suffix,) if suffix == ".sh" else (suffix, ".yml")):
        raise UsageError(msg("init.suffix", file=path, suffix=suffix))
    for file in () if arguments.diff else (path, path.with_suffix(".sh")):
        new_file(file, force=arguments.force, makes_folders=True)
    job = DryrunRequest(
        config=path,
        devices=arguments.devices,
        chip=arguments.chip,
        device_bytes=arguments.device_memory,
        reserve_bytes=arguments.reserve or 0,
        fewest_layers=True,
    )
    # The assumed global batch is a multiple of the devices, so that any number of data-parallel ranks divides it.
    samples = arguments.global_batch or -(-SAMPLES // arguments.devices) * arguments.devices
    return JobSize(model, dialect, arguments.devices, arguments.seq or TOKENS, samples, arguments.chip), job


def _missing_margin(found: NewJob, screen: Overview, arguments: Namespace) -> float | None:
    # Return the ratio of the memory of a dryrun, with fragmentation, to the estimate if the job does not fit; else None.
    ratios = [
        one.verdict.need.footprint_bytes / found.draft.estimate.stages[one.stage].peak_bytes
        for one in screen.stages
        if one.verdict.need is not None and not one.verdict.is_good(allow_tight=arguments.allow_tight)
    ]
    return max(ratios, default=None)


def _show_diff(found: NewJob, console: Console) -> None:
    for file, text in found.files.items():
        old = read_text(file) if file.is_file() else ""
        for line in difflib.unified_diff(old.splitlines(), text.splitlines(), str(file), str(file), lineterm=""):
            console.write_raw(line)


def _check(found: NewJob, job: DryrunRequest, arguments: Namespace, console: Console) -> Overview:
    # Lint and estimate the written file, and dry-run it if that is possible here.
    screen = check_job(next(iter(found.files)), OverviewRequest(job, allow_tight=arguments.allow_tight))
    if arguments.no_verify or found.size.dialect not in _SIMULATED or find_spec("mindspore") is None:
        return screen
    with watch_dryrun("ms-tune init", console) as progress:
        return screen._replace(stages=simulate_new_job(job, progress))
