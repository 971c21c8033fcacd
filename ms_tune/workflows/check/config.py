"""One screen about a config."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Severity
from ms_tune.dryrun.devices import limit_before
from ms_tune.dryrun.prepare import load_config
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError, MsTuneError, UsageError
from ms_tune.estimate.memory import Outlook
from ms_tune.fit.job import read_job
from ms_tune.normalize.run import normalize_recompute
from ms_tune.records import Record
from ms_tune.text import msg
from ms_tune.verdict.outcome import Fit
from ms_tune.workflows.check.estimate import estimate_of
from ms_tune.workflows.check.result import Assumptions, Matter, Overview, StageVerdict, Subject, Suggestion
from ms_tune.workflows.check.suggestions import cheapest_change, predict_by_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ms_tune.dialects.layer_plan import LayerPlan
    from ms_tune.dryrun.prepare import LoadedConfig
    from ms_tune.dryrun.task import Observer
    from ms_tune.estimate.memory import Estimate
    from ms_tune.fit.job import PlannedJob
    from ms_tune.job import Job
    from ms_tune.lint.result import LintReport
    from ms_tune.text import Message

_NAMES = ("model_type", "model_name", "type", "arch")
_FREE = ("optimizer", "sequence")  # changes that cost no time
# What the linter says at its line is not said again of the layers, or by the job that it stops.
_SAID_BY = {"list-short": "short-recompute-list", "offset-rejected": "impossible-layer-split"}


class OverviewRequest(Record):
    """What to look at.

    Attributes:
        job: The config's devices and the device that it is judged by.
        framework_version: The release that it is read for; None for the installed one, or the default.
        allow_tight: Whether a job is good enough that fits only without fragments, or only inside the reserve.
    """

    job: DryrunRequest = DryrunRequest()
    framework_version: str | None = None
    allow_tight: bool = False


class Estimated(Record):
    """A job with what its stages hold, or why that is not known."""

    job: PlannedJob | None  # the job; None where the config tells none
    estimate: Estimate | None  # what its stages hold
    reason: Message | None  # why there is no estimate
    refused: bool = False  # the job itself is at fault: its framework, or the device, would refuse it


class InspectedConfig(Record):
    """A config as it was looked at."""

    request: OverviewRequest  # what was asked for
    loaded: LoadedConfig
    job: Job  # as it is read for the release that was asked for
    plan: LayerPlan  # what its layers do
    seen: Estimated  # what its stages hold by closed forms
    verdicts: tuple[StageVerdict, ...]  # what a dryrun says of them; empty where none was asked for

    def again(self, loaded: LoadedConfig) -> Estimated:
        """The estimate of another config on the same devices."""
        return _estimated(self.request.job._replace(config=self.loaded.source.path), loaded)


def look_at(
    request: OverviewRequest, path: Path, known: Job | None = None, observer: Observer | None = None
) -> InspectedConfig:
    """What a config's job is and holds.

    Args:
        request: What to look at.
        path: The config.
        known: Its job, if it was read already, or is not as its file is.
        observer: Told what is simulated; None for no dryrun.

    Raises:
        ConfigError: It cannot be read, or is of no dialect that is served.
        MsTuneError: The dryrun failed.
    """
    job = request.job._replace(config=path)
    loaded = load_config(job, known)
    named = request.framework_version
    read = loaded.job if named is None else loaded.job.for_release(named)
    plan = normalize_recompute(read)
    verdicts: tuple[StageVerdict, ...] = ()
    if observer is not None:
        from ms_tune.dryrun.run import dryrun_job  # noqa: PLC0415 - it needs the extra 'dryrun'

        result = dryrun_job(job, observer, loaded)
        verdicts = tuple(StageVerdict(one.run.stage, one.verdict) for one in result.stages)
    return InspectedConfig(request, loaded, read, plan, _estimated(job, loaded), verdicts)


def overview_of(look: InspectedConfig, path: Path, report: LintReport) -> Overview:
    """What can be said of a config on one screen.

    Args:
        look: The config as it was looked at.
        path: What the user calls it.
        report: What the linter found in it, and in the script that starts it.
    """
    seen, stages = look.seen, look.verdicts
    linted = found(report)
    said = {one.name for one in linted}
    layers = [one for one in of_layers(look.plan, path) if _SAID_BY.get(one.name) not in said]
    matters = sorted((*linted, *layers), key=lambda one: one.severity.rank)
    if seen.refused and seen.reason is not None and _SAID_BY["offset-rejected"] not in said:
        matters.insert(0, Matter(Severity.ERROR, seen.reason, path))
    over = seen.estimate is not None and seen.estimate.outlook is not Outlook.BELOW
    if stages:
        over = any(one.verdict.outcome is not Fit.FITS for one in stages)
    change = _cheapest(seen.job, seen.estimate, dryrun=bool(stages)) if over and seen.job and seen.estimate else None
    fixable = report.summary.fixable
    return Overview(
        path=path,
        subject=_subject(look),
        assumptions=_assumptions(look),
        matters=tuple(matters),
        counts=report.summary.by_severity,
        fixable=fixable,
        estimate=seen.estimate,
        no_estimate_because=None if seen.refused else seen.reason,
        stages=stages,
        change=change
        or (Suggestion("fixes", msg("check.change.fixes", count=fixable, file=quote(str(path)))) if fixable else None),
        next=_next(path, report, seen, stages, change),
    )


def _cheapest(job: PlannedJob, estimate: Estimate, *, dryrun: bool) -> Suggestion | None:
    """The cheapest change: one that costs no time, by the estimate; else recompute, by the table that an earlier ``ms-tune fit`` measured.

    Where there is no such table, by the estimate.
    """
    arithmetic = cheapest_change(job, estimate)
    if arithmetic is not None and arithmetic.enough and arithmetic.name in _FREE:
        return arithmetic
    measured = predict_by_table(job, estimate.room_bytes)
    if measured is not None and measured.change is not None and measured.change.enough:
        return measured.change
    if measured is not None and measured.fits and not dryrun:
        return Suggestion("none", msg("check.change.none"), enough=True)
    return arithmetic


def _estimated(request: DryrunRequest, loaded: LoadedConfig) -> Estimated:
    """A config's job and what its stages hold; what stands against it is told and not raised."""
    job = None
    try:
        job = read_job(request, loaded)
        limit, reserve = limit_before(request, job.first)
        return Estimated(job, estimate_of(job, limit, reserve), None)
    except MsTuneError as error:
        return Estimated(job, None, error.message, refused=isinstance(error, (ConfigError, UsageError)))


def found(report: LintReport) -> list[Matter]:
    """What the linter found."""
    return [
        Matter(one.severity, one.message, file.path, one.location.line, one.id, one.name)
        for file in report.files
        for one in file.findings
    ]


def of_layers(plan: LayerPlan, path: Path) -> list[Matter]:
    """Where layers do not do what the file says."""
    return [
        Matter(one.severity, one.message, path, name=one.id)
        for one in plan.problems
        if one.severity is not Severity.INFO
    ]


def _subject(look: InspectedConfig) -> Subject:
    job, placement = look.job, look.plan.placement
    named = () if job.dialect is Dialect.MINDSPEED_MS else _NAMES  # its classes are called after no model
    name = next((one for one in map(job.model.value, named) if isinstance(one, str)), "")
    layers = sum(map(sum, placement)) if placement else None
    return Subject(job.dialect.value, f"{job.release.framework} {job.release.version}", name, layers)


def release_in(report: LintReport) -> str:
    """The framework and release that a file was checked for."""
    return next((f"{one.release.framework} {one.release.version}" for one in report.files), "")


def _assumptions(look: InspectedConfig) -> Assumptions | None:
    if look.seen.job is None:
        return None
    run, source = look.seen.job.first, look.loaded.devices.source
    return Assumptions(run.world_size, source, run.split, run.pipeline.chunks, run.pipeline.micro_batches)


def _next(
    path: Path, report: LintReport, seen: Estimated, stages: Sequence[StageVerdict], change: Suggestion | None
) -> tuple[str, ...]:
    """The commands to go on with: first what is wrong, then whether it fits, then what makes it fit."""
    commands = [f"ms-tune lint {quote(str(path))}"] if report.findings else []
    over = seen.estimate is not None and seen.estimate.outlook is Outlook.OVER
    if stages:
        over = any(one.verdict.outcome is not Fit.FITS for one in stages)
    else:
        commands.append(f"ms-tune check --dryrun {quote(str(path))}")
    if not over or seen.job is None or not seen.job.first.recomputes:  # there is nothing to plan
        return tuple(commands)
    if change is None:  # nothing that is known frees anything: the job has to be split otherwise
        commands.append(f"ms-tune fit {quote(str(path))} --search dp,tp,pp,vpp --devices {seen.job.first.world_size}")
    elif change.name != "none":
        commands.append(f"ms-tune fit {quote(str(path))}")
    return tuple(commands)
