"""Make one screen about a config."""

from __future__ import annotations

from shlex import quote

from ms_tune.diagnostics import Severity
from ms_tune.dryrun.prepare import limit_before, load_config
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError, MsTuneError, UsageError
from ms_tune.estimate.memory import Outlook
from ms_tune.fit.job import read_job
from ms_tune.normalize.run import normalize_recompute
from ms_tune.records import Record
from ms_tune.text import msg
from ms_tune.verdict.outcome import Fit
from ms_tune.workflows.check.estimate import cheapest_change, estimate_job, predict_by_table
from ms_tune.workflows.check.result import Assumptions, Matter, Overview, StageVerdict, Subject, Suggestion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ms_tune.dialects import LayerPlan
    from ms_tune.dryrun.prepare import LoadedConfig
    from ms_tune.dryrun.task import Observer
    from ms_tune.estimate.memory import Estimate
    from ms_tune.fit.job import PlannedJob
    from ms_tune.job import Job
    from ms_tune.lint.result import LintReport
    from ms_tune.text import Message

_NAMES = ("model_type", "model_name", "type", "arch")
_FREE = ("optimizer", "sequence")  # changes that do not cost time
# Issues of layers that the linter already reports with a line, by the linter's name; they are not repeated.
_SAID_BY = {"list-short": "short-recompute-list", "offset-rejected": "impossible-layer-split"}


class OverviewRequest(Record):
    """Settings of one screen.

    Attributes:
        job: The config's devices and the device that it is judged by.
        framework_version: The release that it is read for; None for the installed one, or the default.
        allow_tight: Accept a job that fits only without fragmentation, or only by using the reserve.
    """

    job: DryrunRequest = DryrunRequest()
    framework_version: str | None = None
    allow_tight: bool = False


class JobMemory(Record):
    """A job with its memory estimate, or the reason why it is missing."""

    job: PlannedJob | None  # None if the config does not define one
    estimate: Estimate | None  # estimated memory of its stages
    reason: Message | None  # why there is no estimate
    refused: bool = False  # the job itself is invalid: the framework, or the device, would refuse it


class InspectedConfig(Record):
    """An inspected config."""

    request: OverviewRequest  # the user's request
    loaded: LoadedConfig
    job: Job  # read for the requested release
    plan: LayerPlan  # placement and recompute modes of its layers
    memory: JobMemory  # estimated memory of its stages
    verdicts: tuple[StageVerdict, ...]  # verdicts of a dryrun; empty if none was requested

    def estimate_other(self, loaded: LoadedConfig) -> Estimate | None:
        """Estimate the memory of another config on the same devices."""
        return _estimate_config(self.request.job._replace(config=self.loaded.source.path), loaded).estimate


def inspect_config(
    request: OverviewRequest, path: Path, known: Job | None = None, observer: Observer | None = None
) -> InspectedConfig:
    """Inspect a config's job and its memory, by a dryrun if an observer is given to receive its messages."""
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
    return InspectedConfig(request, loaded, read, plan, _estimate_config(job, loaded), verdicts)


def start_overview(path: Path, subject: Subject, report: LintReport, plan: LayerPlan | None = None) -> Overview:
    """Return a screen with the findings of the linter and the layers that differ from the file."""
    matters = [
        Matter(one.severity, one.message, file.path, one.location.line, one.id, one.name, report.settings.page(one))
        for file in report.files
        for one in file.findings
    ]
    rules = {one.name for one in matters}
    matters += [
        Matter(one.severity, one.message, path, name=one.id)
        for one in (plan.problems if plan is not None else ())
        if one.severity is not Severity.INFO and _SAID_BY.get(one.id) not in rules
    ]
    summary = report.summary
    return Overview(
        path=path,
        subject=subject,
        assumptions=None,
        matters=tuple(sorted(matters, key=lambda one: one.severity.rank)),
        counts={Severity.ERROR: summary.errors, Severity.WARNING: summary.warnings, Severity.INFO: summary.infos},
        fixable=summary.fixable,
        next=(f"ms-tune lint {quote(str(path))}",) if report.findings else (),
    )


def config_overview(config: InspectedConfig, path: Path, report: LintReport) -> Overview:
    """Complete the screen of an inspected config, with the path and report of ``start_overview``."""
    memory, stages = config.memory, config.verdicts
    screen = start_overview(path, _subject(config), report, config.plan)
    matters = screen.matters
    if (
        memory.refused
        and memory.reason is not None
        and _SAID_BY["offset-rejected"] not in {one.name for one in matters}
    ):
        matters = (Matter(Severity.ERROR, memory.reason, path), *matters)
    over = memory.estimate is not None and memory.estimate.outlook is not Outlook.BELOW
    if stages:
        over = any(one.verdict.outcome is not Fit.FITS for one in stages)
    change = None
    if over and memory.job and memory.estimate:
        change = _cheapest_change(memory.job, memory.estimate, dryrun=bool(stages))
    commands = (*screen.next, *_next_commands(path, memory, stages, change))
    if change is None and screen.fixable:
        text = msg("check.change.fixes", count=screen.fixable, file=quote(str(path)))
        change = Suggestion("fixes", text)
    return screen._replace(
        assumptions=_assumptions(config),
        matters=matters,
        estimate=memory.estimate,
        no_estimate_because=None if memory.refused else memory.reason,
        stages=stages,
        change=change,
        next=commands,
    )


def _cheapest_change(job: PlannedJob, estimate: Estimate, *, dryrun: bool) -> Suggestion | None:
    # Return the cheapest change: by the estimate, one without a time cost; else recomputation by the table that an earlier
    # ``ms-tune fit`` measured, or by the estimate without such a table.
    arithmetic = cheapest_change(job, estimate)
    if arithmetic is not None and arithmetic.enough and arithmetic.name in _FREE:
        return arithmetic
    measured = predict_by_table(job, estimate.room_bytes)
    if measured is not None and measured.change is not None and measured.change.enough:
        return measured.change
    if measured is not None and measured.fits and not dryrun:
        return Suggestion("none", msg("check.change.none"), enough=True)
    return arithmetic


def _estimate_config(request: DryrunRequest, loaded: LoadedConfig) -> JobMemory:
    # Return a config's job and its estimated memory; errors become the reason of the result.
    job = None
    try:
        job = read_job(request, loaded)
        limit, reserve = limit_before(request, job.first)
        return JobMemory(job, estimate_job(job, limit, reserve), None)
    except MsTuneError as error:
        return JobMemory(job, None, error.message, refused=isinstance(error, (ConfigError, UsageError)))


def _subject(config: InspectedConfig) -> Subject:
    job, placement = config.job, config.plan.placement
    named = () if job.dialect is Dialect.MINDSPEED_MS else _NAMES  # its classes are not named after a model
    name = next((one for one in map(job.model.value, named) if isinstance(one, str)), "")
    layers = sum(map(sum, placement)) if placement else None
    return Subject(job.dialect.value, f"{job.release.framework} {job.release.version}", name, layers)


def release_in(report: LintReport) -> str:
    """Return the framework and release that a file was checked for."""
    return next((f"{one.release.framework} {one.release.version}" for one in report.files), "")


def _assumptions(config: InspectedConfig) -> Assumptions | None:
    if config.memory.job is None:
        return None
    run, source = config.memory.job.first, config.loaded.devices.source
    return Assumptions(run.world_size, source, run.split, run.pipeline.chunks, run.pipeline.micro_batches)


def _next_commands(
    path: Path, memory: JobMemory, stages: Sequence[StageVerdict], change: Suggestion | None
) -> Iterator[str]:
    # First the command that shows whether the job fits, then the one that makes it fit.
    over = memory.estimate is not None and memory.estimate.outlook is Outlook.OVER
    if stages:
        over = any(one.verdict.outcome is not Fit.FITS for one in stages)
    else:
        yield f"ms-tune check --dryrun {quote(str(path))}"
    if not over or memory.job is None or not memory.job.first.recomputes:  # there is nothing to plan
        return
    if change is None:  # no known change frees memory: another layout is needed
        yield f"ms-tune fit {quote(str(path))} --search dp,tp,pp,vpp --devices {memory.job.first.world_size}"
    elif change.name != "none":
        yield f"ms-tune fit {quote(str(path))}"
