"""From a file to one screen about it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ms_tune.config import SCRIPTS
from ms_tune.config.source import parse_source
from ms_tune.lint.finding import Severity
from ms_tune.lint.run import LintRequest, lint_files
from ms_tune.overview.base import difference, text_at
from ms_tune.overview.config import found, look_at, overview_of, release_in
from ms_tune.overview.result import Overview, Subject
from ms_tune.overview.script import overview_of_script
from ms_tune.texts import msg

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.dryrun.task import Observer
    from ms_tune.lint.report import LintReport
    from ms_tune.overview.config import OverviewRequest

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
    report = lint_files([str(path)], LintRequest(framework_version=request.framework_version))
    for error in report.unreadable:
        raise error
    if any(one.release.framework == _ONLY_CHECKED for one in report.files):
        return _checked(path, report)
    if path.suffix in SCRIPTS:
        return overview_of_script(request, path, report, observer)
    look = look_at(request, path, None, observer)
    screen = overview_of(look, path, report)
    if base is None:
        return screen
    text = text_at(base, path)
    if text is None:
        return screen
    before = look_at(request, path, parse_source(text, path), observer)
    return replace(screen, against=difference(before, look))


def _checked(path: Path, report: LintReport) -> Overview:
    """Of a file that can only be checked."""
    return Overview(
        path=path,
        subject=Subject("mindspeed-mm", release_in(report)),
        assumptions=None,
        matters=tuple(sorted(found(report), key=lambda one: one.severity.rank)),
        counts={severity: report.count(severity) for severity in Severity},
        fixable=report.fixable(safe=True),
        no_estimate_because=msg("check.checked-only"),
        next=(f"ms-tune lint {path}",) if report.findings else (),
    )
