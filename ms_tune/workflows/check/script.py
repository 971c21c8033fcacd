"""Make one screen about a launch script: about the config of the job that it starts, or the program's own arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.dialects import LayerPlan
from ms_tune.dialects.megatron.arguments import command_in
from ms_tune.dialects.megatron.read import SERVED, ArgumentReader, NotEvaluableError, size_in
from ms_tune.dryrun.request import CommandRequest
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError, MsTuneError, UnsupportedError
from ms_tune.estimate.memory import Estimate, Outlook
from ms_tune.job import Job, no_model_config
from ms_tune.job.script import ScriptJob, TrainingJob
from ms_tune.lint.result import LintReport, LintRequest
from ms_tune.lint.runner import lint_files
from ms_tune.normalize.script import ProgramPlan, normalize_script
from ms_tune.source.git import text_at
from ms_tune.source.shell.read import find_above
from ms_tune.source.shell.values import Argument, Piece
from ms_tune.text import msg
from ms_tune.units import short_gib
from ms_tune.verdict.outcome import no_verdict
from ms_tune.workflows.check.base import compare_scripts
from ms_tune.workflows.check.config import (
    InspectedConfig,
    OverviewRequest,
    complete_overview,
    config_overview,
    describe_checked_only,
    inspect_config,
    release_in,
    start_overview,
)
from ms_tune.workflows.check.multimodal import add_fsdp2_estimate, add_script_estimate, add_yaml_estimate
from ms_tune.workflows.check.program import ProgramEstimate, estimate_command, estimate_program
from ms_tune.workflows.check.result import Overview, Sizes, StageVerdict, Subject, Suggestion

if TYPE_CHECKING:
    from ms_tune.dryrun.task import Observer


def check_script(
    path: Path, request: OverviewRequest, report: LintReport, base: str | None, observer: Observer | None
) -> Overview:
    """Make the screen of a launch script; the comparison with the base uses estimates only, as the older script is not run."""
    script = ScriptJob(path, version=request.framework_version)
    job = script.config_job()
    if request.job.model_config is not None and job is None:
        raise no_model_config(path)
    if job is not None and job.path is not None:
        report = lint_files(path, job.path, request=LintRequest(framework_version=request.framework_version))
    checked = describe_checked_only(path, report, request)
    if checked is not None:
        return complete_overview(add_script_estimate(checked, request, script), request, ())
    screen = _script_overview(request, script, report, observer)
    if base is None:
        return screen
    text = text_at(base, path)
    if text is None:
        return screen._replace(not_compared_because=msg("check.base.new"))

    def estimate(text: str) -> Estimate | None:
        return _estimate_script(request, ScriptJob(path, text, version=request.framework_version))

    change = compare_scripts(text, script.text, estimate)
    if change is not None and change.is_short and screen.stages:  # the dryrun shows whether it fits
        change = change._replace(outcome="more")
    return screen._replace(against=change)


def check_multimodal_config(config: Job, request: OverviewRequest, report: LintReport) -> Overview:
    """Make the screen of an FSDP2 YAML of MindSpeed-MM."""
    source = config.source
    screen = start_overview(source.path, Subject(Dialect.MINDSPEED_MM.value, release_in(report)), report)
    return complete_overview(add_yaml_estimate(screen, request, source), request, ())


def _script_overview(
    request: OverviewRequest, script: ScriptJob, report: LintReport, observer: Observer | None = None
) -> Overview:
    # Make the screen by a dryrun that runs the script if an observer is given to receive its messages.
    path, job = script.path, script.config_job()
    if job is not None and job.path is not None:
        return config_overview(_inspect_config(request, script, job, observer), path, report)
    program, error = _plan_first_program(script)
    plan = program.plan if program is not None else None
    screen = start_overview(path, _subject(script, program, report), report, plan)
    similar = _read_similar(script)
    found = estimate_program(request, similar)
    if isinstance(found, ProgramEstimate):
        screen = _show_estimate(screen, request, found)
    if similar is not script and screen.estimate is not None:
        screen = screen._replace(estimated_as=f"MindSpeed-LLM {similar.release}")
    if screen.estimate is None:
        reason = found.error if isinstance(found, ProgramEstimate) else found
        why = error if error is not None and similar is script else reason
        if why is not None:
            screen = screen._replace(no_estimate_because=why.message, no_estimate_hint=why.hint)
    screen = add_fsdp2_estimate(screen, request, script) if screen.estimate is None else screen
    if error is not None:
        return complete_overview(screen, request, ())
    if observer is not None:
        try:
            stages = _simulate_script(request, path, observer)
        except MsTuneError as failure:
            stages = (StageVerdict(0, no_verdict(failure.message)),)
        screen = screen._replace(stages=stages, estimate=None, no_estimate_because=None)
    return complete_overview(screen, request, _next_commands(screen, request, script, plan))


def _show_estimate(screen: Overview, request: OverviewRequest, found: ProgramEstimate) -> Overview:
    estimate = found.estimate
    screen = screen._replace(assumptions=found.assumptions, estimate=estimate)
    if estimate is None:
        return screen
    screen = screen._replace(sizes=Sizes(*found.sizes))
    if estimate.outlook is not Outlook.BELOW:
        screen = screen._replace(change=_suggest_arguments(request, found, estimate))
    if screen.subject.layers is None:
        layers = sum(one.layers for one in estimate.stages)
        screen = screen._replace(subject=screen.subject._replace(layers=layers))
    return screen


def _plan_first_program(script: ScriptJob) -> tuple[ProgramPlan | None, MsTuneError | None]:
    # Return the layer plan of the first program, or the error that prevents it.
    try:
        return normalize_script(script)[0], None
    except (ConfigError, UnsupportedError) as error:
        return None, error


def _subject(script: ScriptJob, program: ProgramPlan | None, report: LintReport) -> Subject:
    launches = script.launches.launches
    name = program.program if program is not None else launches[0].name if launches else ""
    is_ours = any(one.release.framework == "MindSpeed-LLM" for one in report.files)
    plan = program.plan if program is not None else None
    layers = sum(map(sum, plan.placement)) if plan is not None and plan.placement else None
    return Subject(Dialect.MEGATRON.value if is_ours else "script", release_in(report), name, layers)


def _next_commands(
    screen: Overview, request: OverviewRequest, script: ScriptJob, plan: LayerPlan | None
) -> Iterator[str]:
    # A dryrun runs the script itself, so it needs the program's file, and MindSpore.
    command = next(iter(script.commands), None)
    if screen.stages and all(one.verdict.is_good(allow_tight=request.allow_tight) for one in screen.stages):
        return
    runs = command is not None and command.value("ai_framework") == "mindspore"
    if runs and command is not None and find_above(script.path, command.launch.name) is not None:
        yield request.command("dryrun", script.path)
    elif plan is not None and plan.failure is None:
        yield request.command("normalize-recompute", script.path)


def _estimate_script(request: OverviewRequest, script: ScriptJob) -> Estimate | None:
    # Estimate the memory of the job that the script would start; None if it is unknown.
    try:
        job = script.config_job()
        if job is not None:
            return _inspect_config(request, script, job, None).memory.estimate
        found = estimate_program(request, _read_similar(script))
    except MsTuneError:
        return None
    return found.estimate if isinstance(found, ProgramEstimate) else None


def _inspect_config(
    request: OverviewRequest, script: ScriptJob, job: TrainingJob, observer: Observer | None
) -> InspectedConfig:
    # Inspect the config of a job that the script starts, on the script's number of devices.
    run = request.job._replace(devices=request.job.devices or job.processes)
    config = inspect_config(request._replace(job=run), job.path or script.path, None, observer)
    if request.job.devices is None and job.processes is not None and config.loaded is not None:
        devices = config.loaded.devices._replace(source=msg("check.devices.script"))
        config = config._replace(loaded=config.loaded._replace(devices=devices))
    return config


def _read_similar(script: ScriptJob) -> ScriptJob:
    # Return the script read for a release with known layers, if that of the sources around it has none: sizes have the same
    # arguments in all of them, such as in the forks of ModelLink, MindSpeed-LLM's name before 1.0.
    try:
        script.release  # noqa: B018 - raises the error
    except ConfigError:
        return ScriptJob(script.path, script.text, version=SERVED[0])
    except UnsupportedError:  # the user named it
        pass
    return script


def _suggest_arguments(request: OverviewRequest, found: ProgramEstimate, now: Estimate) -> Suggestion | None:
    # Return the first change of arguments, or several, with which the job is estimated to fit; of repeated ones the last counts.
    # An inconclusive estimate alone does not show that any change is needed.
    command, layers = found.command, sum(one.layers - one.recomputed for one in now.stages)
    best, micro = now, size_in(ArgumentReader(command), "micro_batch_size")
    steps: Sequence[tuple[str, str, int]] = (
        ("optimizer", "--use-distributed-optimizer", 0),
        ("sequence", "--sequence-parallel", 0),
        ("recompute", "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", layers),
        ("micro-batch", f"--micro-batch-size {micro // 2}", micro // 2),
    )
    what, added, is_over = None, "", now.outlook is Outlook.OVER
    for name, words, count in steps:
        launch, place = command.launch, command.launch.place
        more = tuple(Argument((Piece(word, place),)) for word in words.split())
        try:
            trial = estimate_command(
                request, command_in(replace(launch, arguments=(*launch.arguments, *more)), command.release)
            )
        except (MsTuneError, NotEvaluableError):
            continue
        if trial.estimate is None or trial.estimate.fullest.peak_bytes >= best.fullest.peak_bytes:
            continue
        command, best, added = trial.command, trial.estimate, f"{added} {words}".strip()
        change = msg(f"check.change.{name}", count=count, value=count)
        what = change if what is None else msg("check.change.and", first=what, second=change)
        if best.outlook is Outlook.BELOW:
            sizes = zip(("low", "high"), map(short_gib, best.range_bytes), strict=True)
            params = {"what": what, "arguments": added, **dict(sizes), "limit": short_gib(best.limit.bytes)}
            freed = now.fullest.peak_bytes - best.fullest.peak_bytes
            text = msg("check.change.arguments", **params)
            text = text if is_over else msg("check.change.should", what=text)
            return Suggestion(name, text, freed, enough=True)
    return Suggestion("layout", msg("check.change.layout")) if is_over else None


def _simulate_script(request: OverviewRequest, path: Path, observer: Observer) -> tuple[StageVerdict, ...]:
    from ms_tune.dryrun.command import run_command  # noqa: PLC0415 - it needs the extra 'dryrun'

    job = request.job
    command = CommandRequest(
        ("bash", str(path)),
        devices=job.devices,
        device_bytes=job.device_bytes,
        chip=job.chip,
        reserve_bytes=job.reserve_bytes,
        run_folder=job.run_folder,
        timeout=job.timeout,
        fewest_layers=True,
    )
    result = run_command(command, observer)
    return tuple(
        StageVerdict(one.stage if one.stage is not None else one.rank or 0, one.verdict) for one in result.ranks
    )
