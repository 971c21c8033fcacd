"""Findings as JSON. Lines and columns count from 1; the end is exclusive; columns count characters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.lint.finding import Severity

if TYPE_CHECKING:
    from ms_tune.config.source import Span
    from ms_tune.lint.finding import Finding
    from ms_tune.lint.report import FileReport, Report
    from ms_tune.texts import Language

VERSION = 1


def lint_json(report: Report, language: Language) -> dict[str, object]:
    """The report as plain values."""
    return {
        "version": VERSION,
        "findings": [_finding(finding, file, language) for file in report.files for finding in file.findings],
        "summary": {
            "files": len(report.files),
            "unreadable": report.unreadable,
            **{f"{severity.value}s": report.count(severity) for severity in Severity},
        },
    }


def _finding(finding: Finding, file: FileReport, language: Language) -> dict[str, object]:
    path = str(file.source.path)
    return {
        "id": finding.id,
        "name": finding.name,
        "severity": finding.severity.value,
        "file": path,
        **_place(finding.span),
        "key_path": list(finding.path),
        "message": finding.message.say(language),
        "related": [
            {"file": path, **_place(related.span), "message": related.message.say(language)}
            for related in finding.related
        ],
        "fix": None,
    }


def _place(span: Span) -> dict[str, int]:
    return {
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
    }
