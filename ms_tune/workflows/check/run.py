"""Make one screen about a config or a launch script."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from ms_tune.diagnostics import Severity
from ms_tune.errors import ConfigError
from ms_tune.job import Job, load_job
from ms_tune.lint.result import LintRequest
from ms_tune.lint.runner import is_code, lint_files
from ms_tune.source import SCRIPTS
from ms_tune.source.yaml import parse_source
from ms_tune.text import msg
from ms_tune.workflows.check.base import compare_configs, compare_scripts, text_at
from ms_tune.workflows.check.config import OverviewRequest, config_overview, inspect_config, release_in, start_overview
from ms_tune.workflows.check.result import Matter, Overview, Subject, Suggestion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.dryrun.task import Observer
    from ms_tune.estimate.memory import Estimate
    from ms_tune.lint.result import LintReport

_ONLY_CHECKED = "MindSpeed-MM"


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
        ConfigError: The file cannot be read, or its dialect is not supported.
        UsageError: There is no such base.
        MsTuneError: As for ``dryrun_job``, if the job is simulated.

    Example::

        overview = ms_tune.check_job("train.yaml")
        print(overview.subject, overview.estimate and overview.estimate.outlook, overview.next)
    """
    path, request = Path(file), request or OverviewRequest()
    if path.is_fifo():  # a pipe can be read once, but the file is read twice
        raise ConfigError(msg("check.pipe"), msg("check.pipe.hint"), path=path)
    job = None if is_code(path) else load_job(path)
    report = lint_files(path, request=LintRequest(framework_version=request.framework_version, job=job))
    for error in report.unreadable:
        raise error
    if any(one.release.framework == _ONLY_CHECKED for one in report.files):
        screen = start_overview(path, Subject("mindspeed-mm", release_in(report)), report)
        return screen._replace(no_estimate_because=msg("check.checked-only"))
    if path.suffix in SCRIPTS:
        return _check_script(path, request, report, base, observer)
    try:
        config = inspect_config(request, path, job, observer)
    except ConfigError as error:
        if job is None or observer is not None:
            raise
        return _stopped_overview(path, Subject(job.dialect.value, release_in(report)), report, error)
    screen = config_overview(config, path, report)
    text = text_at(base, path) if base is not None else None
    if text is None:
        return screen
    before = inspect_config(request, path, Job(parse_source(text, path)), observer)
    return screen._replace(against=compare_configs(before, config))


def _stopped_overview(path: Path, subject: Subject, report: LintReport, error: ConfigError) -> Overview:
    # Make the screen of a config whose job cannot be determined: the linter's findings, and the error.
    screen = start_overview(path, subject, report)
    wrong = Matter(Severity.ERROR, error.message, path, error.line)
    hint = Suggestion("config", error.hint) if error.hint is not None else None
    commands = (*screen.next, f"ms-tune check {quote(str(path))}")
    return screen._replace(matters=(wrong, *screen.matters), change=hint, next=commands, is_stopped=True)


def _check_script(
    path: Path, request: OverviewRequest, report: LintReport, base: str | None, observer: Observer | None
) -> Overview:
    # Make the screen of a launch script; the comparison with the base uses estimates only, as the older script is not run.
    from ms_tune.job.script import ScriptJob  # noqa: PLC0415 - shells and their programs are much to import
    from ms_tune.workflows.check.script import estimate_script, script_overview  # noqa: PLC0415 - as above

    script = ScriptJob(path, version=request.framework_version)
    screen = script_overview(request, script, report, observer)
    text = text_at(base, path) if base is not None else None
    if text is None:
        return screen

    def estimate(text: str) -> Estimate | None:
        return estimate_script(request, ScriptJob(path, text, version=request.framework_version))

    change = compare_scripts(text, script.text, estimate)
    if change is not None and change.is_short and screen.stages:  # the dryrun shows whether it fits
        change = change._replace(outcome="more")
    return screen._replace(against=change)
