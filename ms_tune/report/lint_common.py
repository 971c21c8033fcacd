"""What several renderers of findings share."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic
    from ms_tune.lint.result import LintReport

_STDIN = Path("-")


def shown_path(path: Path) -> str:
    """A file's name for people and programs."""
    return "<stdin>" if path == _STDIN else str(path)


def statistics_of(report: LintReport) -> list[tuple[Diagnostic, int, int]]:
    """For each check that found something: one of its findings, how many there are, in how many files; most first."""
    counts: Counter[str] = Counter()
    files: Counter[str] = Counter()
    example: dict[str, Diagnostic] = {}
    for file in report.files:
        counts.update(finding.id for finding in file.findings)
        files.update({finding.id for finding in file.findings})
        for finding in file.findings:
            example.setdefault(finding.id, finding)
    order = sorted(counts, key=lambda id_: (-counts[id_], id_))
    return [(example[id_], counts[id_], files[id_]) for id_ in order]
