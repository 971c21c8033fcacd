"""Findings as JSON. Lines and columns count from 1; the end is exclusive; columns count characters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.report.console import shown_path
from ms_tune.text import msg, render

if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic, Fix, Location
    from ms_tune.errors import MsTuneError
    from ms_tune.lint.result import FileReport, LintReport
    from ms_tune.lint.settings import ProjectSettings
    from ms_tune.text import Language

VERSION = 1


def lint_json(report: LintReport, language: Language, *, statistics: bool = False) -> dict[str, object]:
    """The report as plain values."""
    summary = report.summary
    result: dict[str, object] = {
        "version": VERSION,
        "findings": [
            _finding(finding, file, report.settings, language) for file in report.files for finding in file.findings
        ],
        "read_from": {shown_path(file.path): list(map(str, file.read_from)) for file in report.files if file.read_from},
        "failed": [_failed(error, language) for error in report.errors],
        "summary": {**summary._asdict(), "checked_for": [release._asdict() for release in summary.checked_for]},
    }
    if statistics:
        result["statistics"] = [
            {"id": rule.id, "name": rule.name, "severity": rule.severity.value, "count": count, "files": files}
            for rule, count, files in report.statistics()
        ]
    return result


def _failed(error: MsTuneError, language: Language) -> dict[str, object]:
    """A file that could not be read, or not be written."""
    path = getattr(error, "path", None)
    return {
        "file": None if path is None else shown_path(path),
        "message": render(error.message, language),
        "hint": None if error.hint is None else render(error.hint, language),
    }


def _finding(finding: Diagnostic, file: FileReport, settings: ProjectSettings, language: Language) -> dict[str, object]:
    path = shown_path(file.path)
    return {
        "id": finding.id,
        "name": finding.name,
        "severity": finding.severity.value,
        "file": path,
        **_place(finding.location),
        "key_path": list(finding.path),
        "message": finding.message.say(language),
        "consequence": _consequence(finding, language),
        "related": [
            {"file": path, **_place(related.location), "message": related.message.say(language)}
            for related in finding.related
        ],
        "more": {"command": f"ms-tune rule {finding.name}", "page": settings.page(finding)},
        "fix": None if finding.fix is None else _fix(finding.fix, file, language),
    }


def _consequence(finding: Diagnostic, language: Language) -> dict[str, str] | None:
    if finding.consequence is None:
        return None
    return {"id": finding.consequence, "text": msg(f"consequence.{finding.consequence}").say(language)}


def _fix(fix: Fix, file: FileReport, language: Language) -> dict[str, object]:
    edits = []
    for edit in fix.edits:
        (line, column), (end_line, end_column) = file.place(edit.start), file.place(edit.end)
        place = {"line": line, "column": column, "end_line": end_line, "end_column": end_column}
        edits.append({**place, "text": edit.text})
    return {"title": render(fix.title, language), "safe": fix.safe, "edits": edits}


def _place(span: Location) -> dict[str, int]:
    return {
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
    }
