"""Findings as annotations of GitHub Actions (workflow commands)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.diagnostics import Severity
from ms_tune.report.console import shown_path
from ms_tune.report.github import annotation, write_failure

if TYPE_CHECKING:
    from ms_tune.lint.result import LintReport
    from ms_tune.report.console import Console

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def write_github(report: LintReport, console: Console) -> None:
    """Write one workflow command a finding, the worst first: GitHub shows ten of each level in a step."""
    for error in report.errors:
        write_failure(error, "ms-tune lint", console)
    found = [(finding, file) for file in report.files for finding in file.findings]
    for finding, file in sorted(found, key=lambda pair: pair[0].severity.rank):
        span = finding.location
        places = {"file": shown_path(file.path), "line": span.line, "endLine": span.end_line}
        if span.line == span.end_line:  # columns of another line would be refused
            places |= {"col": span.column, "endColumn": span.end_column}
        title = f"{finding.id} {finding.name}"
        message = finding.sentence(console.language)
        if finding.help is not None:
            message += "\n" + console.labelled(console.text("lint.help-label"), finding.help.say(console.language))
        console.write_whole(annotation(_LEVELS[finding.severity], places, title, message))
