"""Make one screen about a config."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from shlex import join, quote

from ms_tune.diagnostics import Severity
from ms_tune.dialects import LayerPlan
from ms_tune.dryrun.prepare import LoadedConfig, limit_before, load_config
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.enums import CHECKED_ONLY, Dialect, SizeOrigin
from ms_tune.errors import ConfigError, MsTuneError, UnknownSizesError, UnsupportedError, UsageError
from ms_tune.estimate.memory import Estimate, Outlook
from ms_tune.estimate.static import count_parameters
from ms_tune.facts.query import load, served
from ms_tune.fit.job import PlannedJob, read_job
from ms_tune.job import Job, load_job
from ms_tune.lint.result import LintReport
from ms_tune.normalize.run import normalize_recompute
from ms_tune.records import Record
from ms_tune.source import SCRIPTS
from ms_tune.text import msg
from ms_tune.units import GIB
from ms_tune.verdict.outcome import Fit, no_verdict
from ms_tune.workflows.check.advice import predict_by_table, suggest_change
from ms_tune.workflows.check.estimate import estimate_job
from ms_tune.workflows.check.result import Assumptions, Matter, Overview, Sizes, StageVerdict, Subject, Suggestion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.dryrun.task import Observer

_NAMES = ("model_type", "model_name", "type", "arch")
_CHECKED_ONLY = {load("releases")[one.value]["framework"]: one for one in CHECKED_ONLY}
_VERSIONED = ("check", "lint", "normalize-recompute")  # commands with the option --framework-version
_SIMULATING = ("check", "dryrun", "fit")  # commands with the options of the device and --set


class OverviewRequest(Record):
    """Settings of one screen.

    Attributes:
        job: The config's devices and the device that it is judged by.
        framework_version: The release that it is read for; None for the installed one, or the default.
        allow_tight: Accept a job that fits only without fragmentation, or only by using the reserve.
        skip_unknown: Refuse a file that starts or describes no training, even if it is named.
    """

    job: DryrunRequest = DryrunRequest()
    framework_version: str | None = None
    allow_tight: bool = False
    skip_unknown: bool = False

    def command(self, name: str, file: Path, *options: str) -> str:
        """Return the command line of ``ms-tune NAME FILE`` with the options of this request that the command has."""
        words = ["ms-tune", *name.split(), str(file), *options]
        if self.framework_version is not None and words[1] in _VERSIONED:
            words += ["--framework-version", self.framework_version]
        if self.job.model_config is not None and (words[1] == "check" or file.suffix not in SCRIPTS):
            words += ["--model-config", str(self.job.model_config)]
        if words[1] in _SIMULATING:
            job = self.job
            counts = (("devices", job.devices), ("chip", job.chip))
            sizes = (("device-memory", job.device_bytes), ("reserve", job.reserve_bytes))
            written = (
                (name, size and (f"{size // GIB}GiB" if size % GIB == 0 else f"{size}B")) for name, size in sizes
            )
            words += [word for name, value in (*counts, *written) if value for word in (f"--{name}", str(value))]
            words += [word for setting in job.settings for word in ("--set", str(setting))]
        return join(words)


class JobMemory(Record):
    """A job with its memory estimate, or the error that prevents it."""

    job: PlannedJob | None  # None if the config does not define one
    estimate: Estimate | None  # estimated memory of its stages
    error: MsTuneError | None = None  # why nothing is estimated


class InspectedConfig(Record):
    """An inspected config."""

    request: OverviewRequest  # the user's request
    path: Path
    loaded: LoadedConfig | None  # None if it or a file that it builds on cannot be read
    job: Job | None  # read for the requested release
    plan: LayerPlan | None  # placement and recompute modes of its layers; None if they cannot be determined
    memory: JobMemory  # estimated memory of its stages
    verdicts: tuple[StageVerdict, ...] = ()  # verdicts of a dryrun; empty if none was requested
    is_outdated: bool = False  # whether it is estimated by a later release, whose other rules do not count

    def estimate_other(self, loaded: LoadedConfig) -> Estimate | None:
        """Estimate the memory of another config on the same devices."""
        return _estimate_config(self.request.job._replace(config=loaded.source.path), loaded).estimate


def inspect_config(
    request: OverviewRequest, path: Path, known: Job | None = None, observer: Observer | None = None
) -> InspectedConfig:
    """Inspect a config's job and its memory, by a dryrun if an observer is given to receive its messages."""
    job = request.job._replace(config=path)
    try:
        known = known or load_job(path)
        loaded = load_config(job, known)
        if request.framework_version is None and loaded.job.outdated_because is not None:
            return _inspect_outdated(request, path, loaded)
    except ConfigError as error:
        return InspectedConfig(request, path, None, known, None, JobMemory(None, None, error))
    named = request.framework_version
    read = loaded.job if named is None else loaded.job.for_release(named)
    plan, memory = None, None
    try:
        plan = normalize_recompute(read)
    except UnknownSizesError as error:
        memory = JobMemory(None, None, loaded.why_not_simulated or error)  # sizes would not give an estimate then
    except (ConfigError, UnsupportedError) as error:
        memory = JobMemory(None, None, error)
    memory = memory or _estimate_config(job, loaded)
    verdicts: tuple[StageVerdict, ...] = ()
    if observer is not None:
        from ms_tune.dryrun.run import dryrun_job  # noqa: PLC0415 - it needs the extra 'dryrun'

        try:
            result = dryrun_job(job, observer, loaded)
            verdicts = tuple(StageVerdict(one.run.stage, one.verdict) for one in result.stages)
        except MsTuneError as error:
            verdicts = (StageVerdict(0, no_verdict(error.message)),)
            memory = memory._replace(error=error)
    return InspectedConfig(request, path, loaded, read, plan, memory, verdicts)


def _inspect_outdated(request: OverviewRequest, path: Path, loaded: LoadedConfig) -> InspectedConfig:
    # Estimate a config of MindFormers before 1.6, which names sizes and the split like 1.6, by the rules of that release.
    job = loaded.job
    later = job.for_release(served(job.dialect)[0])
    memory = _estimate_config(request.job._replace(config=path), loaded._replace(job=later))
    is_refused = isinstance(memory.error, (UsageError, ConfigError)) and not isinstance(memory.error, UnknownSizesError)
    if is_refused and job.outdated_because is not None:  # what that release refuses says nothing about this one
        memory = memory._replace(error=UnsupportedError(job.outdated_because))
    return InspectedConfig(request, path, loaded._replace(job=later), job, None, memory, is_outdated=True)


def describe_checked_only(path: Path, report: LintReport, request: OverviewRequest) -> Overview | None:
    """Return the screen of a job whose files are checked but not simulated; None for another one."""
    for one in report.files:
        dialect = _CHECKED_ONLY.get(one.release.framework)
        if dialect is not None:
            screen = start_overview(path, Subject(dialect.value, release_in(report)), report)
            because = msg("config.checked-only", framework=one.release.framework, file=one.path)
            hint = msg("check.dry-run.hint") if dialect is Dialect.HYPER_PARALLEL else None
            return complete_overview(screen._replace(no_estimate_because=because, no_estimate_hint=hint), request, ())
    return None


def start_overview(path: Path, subject: Subject, report: LintReport, plan: LayerPlan | None = None) -> Overview:
    """Return a screen with the findings of the linter and the layers that differ from the file."""
    matters = [
        Matter(
            *(one.severity, one.message, file.path, one.location.line, one.id, one.name),
            page=report.settings.page(one),
            help=one.help,
            fix=one.fix,
        )
        for file in report.files
        for one in file.findings
    ]
    matters += [
        Matter(Severity.ERROR, one.message, Path(one.path or path), one.line, help=one.hint)
        for one in report.unreadable
        if isinstance(one, ConfigError)
    ]
    # The linter reports issues of layers with a line; one that is worse than all its findings is not among them.
    reported = min((one.severity.rank for one in matters), default=Severity.INFO.rank)
    matters += [
        Matter(one.severity, one.message, path, name=one.id, help=one.help)
        for one in (plan.problems if plan is not None else ())
        if one.severity.rank < reported
    ]
    summary = report.summary
    return Overview(
        path=path,
        subject=subject,
        assumptions=None,
        matters=tuple(sorted(matters, key=lambda one: one.severity.rank)),
        counts={Severity.ERROR: summary.errors, Severity.WARNING: summary.warnings, Severity.INFO: summary.infos},
        fixable=summary.fixable,
    )


def complete_overview(screen: Overview, request: OverviewRequest, commands: Iterable[str]) -> Overview:
    """Add the suggestion for the worst issue (unless memory has one) and the next commands, the linter's first."""
    matters, commands = screen.matters, tuple(commands)
    suggestion, where = _suggest_by_issues(matters)
    files = dict.fromkeys((*where, *(one.path for one in matters if one.id)))
    further = [request.command("lint", file) for file in files]
    unsure = not screen.stages and screen.estimate is not None and screen.estimate.outlook is Outlook.UNSURE
    if suggestion.name == "nothing" and unsure:
        can_simulate = any("dryrun" in one for one in commands)
        suggestion = Suggestion("nothing", msg("check.change.unsure" if can_simulate else "check.change.open"))
    hint = screen.no_estimate_hint or msg("check.estimate.measure")
    return screen._replace(
        change=screen.change or suggestion,
        next=(*further, *commands) or (request.command("lint", screen.path),),
        command=request.command("check", screen.path),
        no_estimate_hint=hint if screen.estimate is None and not screen.stages else None,
    )


def _suggest_by_issues(matters: Sequence[Matter]) -> tuple[Suggestion, Sequence[Path]]:
    # Suggest the safe fixes, with the file where they will be made; else a fix of the worst level, else the worst help. An info
    # alone needs no change: the optimizer of one data-parallel rank, for example, has nothing to shard.
    worst = [one for one in matters if one.severity is matters[0].severity and one.severity is not Severity.INFO]
    for among, safe, name in ((matters, True, "fixes"), (worst, False, "unsafe-fix")):
        fixes = [(one.path, one.fix.title) for one in among if one.fix is not None and one.fix.safe is safe]
        if fixes:
            path, title = fixes[0]
            params = {"count": sum(one == path for one, _ in fixes), "title": title, "file": quote(str(path))}
            return Suggestion("fixes", msg(f"check.change.{name}", **params)), (path,)
    text = next((one.help for one in worst if one.help is not None), None)
    return Suggestion("nothing", msg("check.change.nothing")) if text is None else Suggestion("help", text), ()


def config_overview(config: InspectedConfig, path: Path, report: LintReport) -> Overview:
    """Complete the screen of an inspected config, with the path and report of ``start_overview``."""
    memory, stages, plan, error = config.memory, config.verdicts, config.plan, config.memory.error
    screen = start_overview(path, _subject(config, report), report, plan)
    # What the framework or the device would refuse is an error, unless the linter reports one already.
    refuses = isinstance(error, UsageError) or (plan is not None and plan.failure is not None)
    if refuses and error is not None and not screen.has_errors:
        matter = Matter(Severity.ERROR, error.message, path, help=error.hint)
        screen = screen._replace(matters=(matter, *screen.matters), no_estimate_because=msg("check.estimate.refused"))
    outlook, change = memory.estimate.outlook if memory.estimate is not None else Outlook.BELOW, None
    if stages:
        outlook = Outlook.OVER if any(one.verdict.outcome is not Fit.FITS for one in stages) else Outlook.BELOW
    estimated_as = ""
    if config.is_outdated and memory.estimate is not None and config.loaded is not None:
        later = config.loaded.job.release
        estimated_as = f"{later.framework} {later.version}"
        if outlook is not Outlook.BELOW:
            change = Suggestion("help", msg("config.outdated.hint", version=later.version, file=quote(str(path))))
    elif outlook is not Outlook.BELOW and memory.job and memory.estimate:
        change = _choose_change(memory.job, memory.estimate, over=outlook is Outlook.OVER, dryrun=bool(stages))
    hint = error.hint if error is not None else None
    if hint is None and isinstance(error, ConfigError) and error.line is not None:
        hint = msg("check.estimate.correct", line=error.line)
    screen = screen._replace(
        assumptions=_assumptions(config),
        estimate=memory.estimate,
        sizes=_sizes_of(config),
        estimated_as=estimated_as,
        no_estimate_because=screen.no_estimate_because or (error.message if error is not None else None),
        no_estimate_hint=hint,
        stages=stages,
        change=change,
    )
    return complete_overview(screen, config.request, _next_commands(config, path, change))


def _choose_change(job: PlannedJob, estimate: Estimate, *, over: bool, dryrun: bool) -> Suggestion | None:
    # Return the cheapest change: by the table that an earlier ``ms-tune fit`` measured, if there is one, else by the estimate. An
    # inconclusive estimate alone does not show that any change is needed.
    measured = predict_by_table(job, estimate.room_bytes)
    if measured is not None and measured.change is not None:
        return measured.change
    if measured is not None and measured.fits and not dryrun:
        return Suggestion("none", msg("check.change.none"), enough=True)
    if not over and measured is None:
        return None
    found = suggest_change(job, estimate, recomputes=measured is None or not measured.fits)
    return found or Suggestion("layout", msg("check.change.layout"))


def _estimate_config(request: DryrunRequest, loaded: LoadedConfig) -> JobMemory:
    # Return a config's job and its estimated memory; errors become the reason of the result.
    job = None
    try:
        job = read_job(request._replace(data=False), loaded)
        limit, reserve = limit_before(request, job.first)
        return JobMemory(job, estimate_job(job, limit, reserve))
    except MsTuneError as error:
        return JobMemory(job, None, error)


def _subject(config: InspectedConfig, report: LintReport) -> Subject:
    job, placement = config.job, config.plan and config.plan.placement
    if job is None:  # its YAML is broken, but some of it can be read
        return Subject("", release_in(report))
    named = () if job.dialect is Dialect.MINDSPEED_MS else _NAMES  # its classes are not named after a model
    name = next((one for one in map(job.model.value, named) if isinstance(one, str)), "")
    layers = sum(map(sum, placement)) if placement else None
    version = job.release_around[1] if config.is_outdated and job.release_around is not None else job.release.version
    return Subject(job.dialect.value, f"{job.release.framework} {version}", name, layers)


def _sizes_of(config: InspectedConfig) -> Sizes | None:
    if config.loaded is None or config.job is None:
        return None
    job = config.loaded.job if config.is_outdated else config.job
    try:
        return Sizes(*config.loaded.job.sizes, parameters=count_parameters(job.model))
    except ConfigError:  # its `config.json` cannot be read
        return None


def release_in(report: LintReport) -> str:
    """Return the framework and release that a file was checked for."""
    return next((f"{one.release.framework} {one.release.version}" for one in report.files), "")


def _assumptions(config: InspectedConfig) -> Assumptions | None:
    if config.memory.job is None or config.loaded is None:
        return None
    run, source = config.memory.job.first, config.loaded.devices.source
    return Assumptions(run.world_size, source, run.split, run.pipeline.chunks, run.pipeline.micro_batches)


def _next_commands(config: InspectedConfig, path: Path, change: Suggestion | None) -> Iterator[str]:
    # First the command that shows whether the job fits, then the one that makes it fit; only commands that accept the job.
    memory, stages, request = config.memory, config.verdicts, config.request
    job, estimate, plan = memory.job, memory.estimate, config.plan
    if config.is_outdated:  # no other command knows its release
        return
    if job is None or isinstance(memory.error, UsageError):  # a dryrun would fail, too
        is_assumed = config.job is not None and config.job.sizes.origin is SizeOrigin.ASSUMED  # by `check` alone
        if plan is not None and plan.failure is None and plan.layers and not is_assumed:
            yield request.command("normalize-recompute", config.path)
        return
    over = estimate is not None and estimate.outlook is Outlook.OVER
    if stages:
        over = any(one.verdict.outcome is not Fit.FITS for one in stages)
    else:
        yield request.command("check --dryrun", path)
    if not over or not job.first.recomputes:  # there is nothing to plan
        return
    if change is not None and change.name == "layout":
        layouts = request._replace(job=request.job._replace(devices=job.first.world_size))
        yield layouts.command("fit", config.path, "--search", "dp,tp,pp,vpp")
    elif change is None or change.name != "none":
        yield request.command("fit", config.path)
