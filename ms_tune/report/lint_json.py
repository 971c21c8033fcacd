"""Findings as JSON. Lines and columns count from 1; the end is exclusive; columns count characters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.encode import record_json
from ms_tune.report.console import shown_path
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic, Fix
    from ms_tune.errors import MsTuneError
    from ms_tune.lint.result import FileReport, LintReport
    from ms_tune.lint.settings import ProjectSettings

VERSION = 1
_PLACE = ("line", "column", "end_line", "end_column")


def lint_json(report: LintReport, *, statistics: bool = False) -> dict[str, object]:
    """The report as plain values."""
    result: dict[str, object] = {
        "version": VERSION,
        "findings": [
            _finding_json(finding, file, report.settings) for file in report.files for finding in file.findings
        ],
        "read_from": {shown_path(file.path): file.read_from for file in report.files if file.read_from},
        "failed": [_failure_json(error) for error in report.errors],
        "summary": report.summary,
    }
    if statistics:
        result["statistics"] = [
            {**record_json(rule, "id", "name", "severity"), "count": count, "files": files}
            for rule, count, files in report.statistics()
        ]
    return result


def _failure_json(error: MsTuneError) -> dict[str, object]:
    """A file that could not be read, or not be written."""
    path = getattr(error, "path", None)
    return {"file": None if path is None else shown_path(path), **record_json(error, "message", "hint")}


def _finding_json(finding: Diagnostic, file: FileReport, settings: ProjectSettings) -> dict[str, object]:
    path, what = shown_path(file.path), finding.consequence
    return {
        **record_json(finding, "id", "name", "severity", "message"),
        "file": path,
        **record_json(finding.location, *_PLACE),
        "key_path": finding.path,
        "consequence": None if what is None else {"id": what, "text": msg(f"consequence.{what}")},
        "related": [
            {"file": path, **record_json(related.location, *_PLACE), "message": related.message}
            for related in finding.related
        ],
        "more": {"command": f"ms-tune rule {finding.name}", "page": settings.page(finding)},
        "fix": None if finding.fix is None else _fix_json(finding.fix, file),
    }


def _fix_json(fix: Fix, file: FileReport) -> dict[str, object]:
    edits = []
    for edit in fix.edits:
        place = (*file.place(edit.start), *file.place(edit.end))
        edits.append({**dict(zip(_PLACE, place, strict=True)), "text": edit.text})
    return {**record_json(fix, "title", "safe"), "edits": edits}
