"""From a file to one screen about it."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from ms_tune.errors import ConfigError
from ms_tune.job.job import Job, load_job
from ms_tune.lint.result import LintRequest
from ms_tune.lint.runner import is_code, lint_files
from ms_tune.source import SCRIPTS
from ms_tune.source.yaml import parse_source
from ms_tune.text import msg
from ms_tune.workflows.check.config import found, look_at, overview_of, release_in
from ms_tune.workflows.check.result import Overview, Subject

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.dryrun.task import Observer
    from ms_tune.estimate.memory import Estimate
    from ms_tune.lint.result import LintReport
    from ms_tune.workflows.check.config import OverviewRequest

_ONLY_CHECKED = "MindSpeed-MM"


def check(path: Path, request: OverviewRequest, base: str | None, observer: Observer | None) -> Overview:
    """One screen about a file.

    Args:
        path: A config, or a launch script.
        request: What to look at.
        base: A commit, or an older version of the file, to compare with.
        observer: Told what is simulated; None for no dryrun.

    Raises:
        ConfigError: It cannot be read, or is of no dialect that is served.
        UsageError: There is no such base.
        MsTuneError: A dryrun failed.
    """
    if path.is_fifo():  # it is read once, and this looks twice
        raise ConfigError(msg("check.pipe"), msg("check.pipe.hint"), path=path)
    job = None if is_code(path) else load_job(path)
    report = lint_files([str(path)], LintRequest(framework_version=request.framework_version, job=job))
    for error in report.unreadable:
        raise error
    if any(one.release.framework == _ONLY_CHECKED for one in report.files):
        return _checked(path, report)
    if path.suffix in SCRIPTS:
        return _script(path, request, report, base, observer)
    look = look_at(request, path, job, observer)
    screen = overview_of(look, path, report)
    if base is None:
        return screen
    from ms_tune.workflows.check.base import difference, text_at  # noqa: PLC0415 - seldom asked for

    text = text_at(base, path)
    if text is None:
        return screen
    before = look_at(request, path, Job(parse_source(text, path)), observer)
    return screen._replace(against=difference(before, look))


def _script(
    path: Path, request: OverviewRequest, report: LintReport, base: str | None, observer: Observer | None
) -> Overview:
    """Of a launch script, compared with the base by estimates alone: the older one is not run."""
    from ms_tune.job.script import ScriptJob  # noqa: PLC0415 - shells and their programs are much to import
    from ms_tune.workflows.check.base import difference_of_scripts, text_at  # noqa: PLC0415 - as above
    from ms_tune.workflows.check.script import estimate_of, overview_of_script  # noqa: PLC0415 - as above

    script = ScriptJob(path, version=request.framework_version)
    screen = overview_of_script(request, script, report, observer)
    text = text_at(base, path) if base is not None else None
    if text is None:
        return screen

    def estimated(text: str) -> Estimate | None:
        return estimate_of(request, ScriptJob(path, text, version=request.framework_version))

    found = difference_of_scripts(text, script.text, estimated)
    if found is not None and found.is_short and screen.stages:  # whether it fits is told by the dryrun
        found = found._replace(outcome="more")
    return screen._replace(against=found)


def _checked(path: Path, report: LintReport) -> Overview:
    """Of a file that can only be checked."""
    return Overview(
        path=path,
        subject=Subject("mindspeed-mm", release_in(report)),
        assumptions=None,
        matters=tuple(sorted(found(report), key=lambda one: one.severity.rank)),
        counts=report.summary.by_severity,
        fixable=report.summary.fixable,
        no_estimate_because=msg("check.checked-only"),
        next=(f"ms-tune lint {quote(str(path))}",) if report.findings else (),
    )
