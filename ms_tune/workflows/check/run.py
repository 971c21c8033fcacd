"""Make one screen about a config or a launch script."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from ms_tune.diagnostics import Severity
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError, ForeignFileError
from ms_tune.facts.models import is_legacy
from ms_tune.facts.query import load
from ms_tune.job import Job, load_job, load_sections, no_model_config
from ms_tune.job.detect import framework_of
from ms_tune.lint.result import LintReport, LintRequest
from ms_tune.lint.runner import is_code, lint_files, looks_like_a_config
from ms_tune.source import SCRIPTS
from ms_tune.source.git import text_at
from ms_tune.source.yaml import parse_source
from ms_tune.text import msg
from ms_tune.workflows.check.base import compare_configs
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
from ms_tune.workflows.check.result import Matter, Overview, Subject, Suggestion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.dryrun.task import Observer


def check_job(
    file: str | Path,
    request: OverviewRequest | None = None,
    *,
    base: str | None = None,
    observer: Observer | None = None,
) -> Overview:
    """Check a config or a launch script: its kind, whether it fits, its worst issues, and a suggestion.

    Args:
        file: The file.
        request: The job's devices, the device that it is judged by, the release.
        base: A git commit, or an older version of the file, to compare memory with.
        observer: Receives messages about the simulation; without one nothing is run, and sizes are estimates.

    Raises:
        ConfigError: The file cannot be read.
        ForeignFileError: It has nothing to do with MindSpore.
        UsageError: There is no such base, or a setting of the request is invalid.

    Example::

        overview = ms_tune.check_job("train.yaml")
        print(overview.subject, overview.estimate and overview.estimate.outlook, overview.next)
    """
    path, request = Path(file), request or OverviewRequest()
    if path.is_fifo():  # a pipe can be read once, but the file is read twice
        raise ConfigError(msg("check.pipe"), msg("check.pipe.hint"), path=path)
    model = request.job.model_config
    try:
        job = None if is_code(path) else load_job(path, model_config=model)
    except ConfigError as error:
        return _check_broken(path, request, error)
    if model is not None and path.suffix not in SCRIPTS and (job is None or not job.reads_model_config):
        raise no_model_config(path)
    asked = LintRequest(framework_version=request.framework_version, skip_unknown=request.skip_unknown, job=job)
    report = lint_files(path, request=asked)
    framework = framework_of(job.recognition.foreign) if job is not None and not report.files else None
    if framework is not None:
        return _describe_related(path, framework, request)
    _refuse_unchecked(path, report)
    if path.suffix in SCRIPTS or _is_multimodal(report):
        script, _ = _load_scripts()
        of_script: Overview = (
            script.check_script(path, request, report, base, observer)
            if job is None
            else script.check_multimodal_config(job, request, report)
        )
        return of_script
    checked = describe_checked_only(path, report, request)
    if checked is not None:
        return checked
    if job is None:  # training code, or settings of the environment
        screen = start_overview(path, Subject(path.suffix.removeprefix("."), release_in(report)), report)
        hint = msg("check.no-job.hint")
        screen = screen._replace(no_estimate_because=msg("check.no-job"), no_estimate_hint=hint)
        return complete_overview(screen, request, ())
    config = inspect_config(request, path, job, observer)
    screen = _with_plain_estimate(config_overview(config, path, report), config)
    return screen if base is None else _compare_with_base(screen, config, base, observer)


def _load_scripts() -> tuple[ModuleType, ModuleType]:
    from ms_tune.workflows.check import multimodal, script  # noqa: PLC0415 - shells are much to import

    return script, multimodal


def _with_plain_estimate(screen: Overview, config: InspectedConfig) -> Overview:
    # Add the memory of a legacy network of a class that is not known.
    loaded = config.loaded
    if screen.estimate is not None or screen.stages or loaded is None or loaded.dialect is not Dialect.MINDFORMERS:
        return screen
    if loaded.job.model.known or not is_legacy(loaded.source.data):
        return screen
    _, multimodal = _load_scripts()
    found: Overview = multimodal.add_plain_estimate(screen, config.request, loaded.source)
    return found


def _refuse_unchecked(path: Path, report: LintReport) -> None:
    for unreadable in report.unreadable:
        raise unreadable
    for one in report.skipped:
        raise ForeignFileError(one.reason, path=path)


def _is_multimodal(report: LintReport) -> bool:
    framework = load("releases")[Dialect.MINDSPEED_MM.value]["framework"]
    return any(one.release.framework == framework for one in report.files)


def _describe_related(path: Path, framework: str, request: OverviewRequest) -> Overview:
    # Make the screen of a YAML that MindSpeed's programs read, of which only the launch scripts are checked.
    matter = Matter(Severity.INFO, msg("check.related", framework=framework), path)
    screen = Overview(path, Subject("fsdp2", framework), None, (matter,), dict.fromkeys(Severity, 0))
    change = Suggestion("help", msg("check.related.hint"))
    screen = screen._replace(no_estimate_because=msg("check.related.memory"), change=change)
    return complete_overview(screen, request, (request.command("check", path.parent),))


def _compare_with_base(screen: Overview, config: InspectedConfig, base: str, observer: Observer | None) -> Overview:
    path = screen.path
    text = text_at(base, path)
    if text is None:
        return screen._replace(not_compared_because=msg("check.base.new"))
    try:
        known = Job(parse_source(text, path))
    except ConfigError:
        return screen._replace(not_compared_because=msg("check.base.unreadable"))
    before = inspect_config(config.request, path, known, observer)
    against = compare_configs(before, config)
    missing = before.memory.error if against is None else None
    return screen._replace(against=against, not_compared_because=missing.message if missing else None)


def _check_broken(path: Path, request: OverviewRequest, error: ConfigError) -> Overview:
    # Make the screen of a config that is not valid YAML: what it is shows in the sections that can be read.
    job = load_sections(path, error.line) if error.line is not None else None
    dialect = job and job.recognition.dialect
    if error.line is None or not (dialect or looks_like_a_config(path)):
        raise error
    release = f"{job.release.framework} {job.release.version}" if job is not None and dialect else ""
    screen = start_overview(path, Subject(dialect.value if dialect else "", release), lint_files(path))
    because = msg("check.broken", line=error.line)
    hint = msg("check.estimate.correct", line=error.line)
    screen = screen._replace(no_estimate_because=because, no_estimate_hint=hint)
    return complete_overview(screen, request, (request.command("check", path),))
