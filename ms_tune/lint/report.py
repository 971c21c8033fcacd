"""The result of linting several files: what the renderers show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.lint.finding import Finding, Severity

if TYPE_CHECKING:
    from ms_tune.config.dialects.recognise import Dialect
    from ms_tune.config.source import SourceFile


@dataclass(frozen=True, slots=True)
class FileReport:
    """The findings in one config, and what it was checked as."""

    source: SourceFile
    dialect: Dialect
    version: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The findings in all configs.

    Args:
        files: The configs that were checked.
        unreadable: How many could not be.
    """

    files: tuple[FileReport, ...]
    unreadable: int

    def count(self, severity: Severity) -> int:
        """How many findings there are of one severity."""
        return sum(finding.severity is severity for file in self.files for finding in file.findings)

    def reaches(self, severity: Severity) -> bool:
        """Whether any finding is at least as bad."""
        return any(self.count(one) for one in Severity if one.rank <= severity.rank)
