"""Define requests to the linter and its results, which the renderers show."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from functools import lru_cache
from operator import itemgetter
from pathlib import Path

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.enums import Dialect
from ms_tune.errors import DefectError, MsTuneError
from ms_tune.facts.query import Release
from ms_tune.lint.baseline import fingerprints
from ms_tune.lint.settings import ProjectSettings, Selection
from ms_tune.records import Record
from ms_tune.text import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from ms_tune.job import Job


@lru_cache(maxsize=1)
def _starts(text: str) -> list[int]:
    """Return the start of each line of a text; cached, because the findings of one file are shown in a row."""
    return [0, *(match.end() for match in re.finditer("\r\n|\r|\n", text))]


class FileReport(Record):
    """The findings in one file, and how it was checked."""

    path: Path  # the file, as the user named it
    # Its content (without a byte order mark); empty if it is not needed to show the findings.
    text: str
    release: Release  # the framework version that it was checked for
    findings: tuple[Diagnostic, ...]  # the reported findings
    ignored: int = 0  # the number of findings ignored by comments in the file
    baselined: int = 0  # the number of findings in the baseline
    notes: tuple[Message, ...] = ()  # remarks for the user about how the file was read
    read_from: tuple[Path, ...] = ()  # other files whose settings count, too
    # The text before the fixes, if they changed it; then `text` is the one after them.
    original: str | None = None
    fixed: int = 0  # the number of findings fixed
    fixes: tuple[Message, ...] = ()  # the title of each fix that was made

    def line(self, number: int) -> str:
        """Return the text of a line, without its line break."""
        starts = _starts(self.text)
        end = starts[number] if number < len(starts) else None
        return self.text[starts[number - 1] : end].rstrip("\r\n")

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, from 1."""
        starts = _starts(self.text)
        line = bisect_right(starts, offset)
        return line, offset - starts[line - 1] + 1

    def fingerprints(self) -> list[tuple[str, int]]:
        """Return an identifier for each finding, which stays the same if the finding moves in the file."""
        return fingerprints(self.text, self.findings)


class Skipped(Record):
    """A file in a folder that was not checked, and the reason."""

    path: Path
    reason: Message


class LintSummary(Record):
    """Counts of findings and files; its fields are those of the summary in JSON."""

    files: int  # the number of files checked
    unreadable: int
    errors: int
    warnings: int
    infos: int
    skipped: int
    ignored: int  # findings ignored by comments
    baselined: int  # findings in the baseline
    fixable: int  # findings with a safe fix
    fixable_unsafe: int
    fixed: int  # findings that were fixed
    checked_for: tuple[Release, ...]  # the framework versions that files were checked for


class LintReport(Record):
    """The findings in all files.

    Args:
        files: The files that were checked.
        unreadable: The errors of files that could not be read.
        unwritten: The errors of fixed files that could not be written; their findings are those before the fixes.
        skipped: Other files in the folders.
        settings: The settings of the run as a whole.
    """

    files: tuple[FileReport, ...]
    unreadable: tuple[MsTuneError, ...]
    unwritten: tuple[MsTuneError, ...]
    skipped: tuple[Skipped, ...]
    settings: ProjectSettings

    @property
    def traces(self) -> tuple[str, ...]:
        """Return the stack traces of crashed checks and of files on which ms-tune failed, each once."""
        failed = [one.trace for one in self.unreadable if isinstance(one, DefectError)]
        return tuple(dict.fromkeys([*failed, *(one.trace for one in self.findings if one.trace)]))

    @property
    def errors(self) -> tuple[MsTuneError, ...]:
        """Return all errors of reading and writing files."""
        return self.unreadable + self.unwritten

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """Return the findings of all files."""
        return tuple(finding for file in self.files for finding in file.findings)

    @property
    def summary(self) -> LintSummary:
        """Return the counts of findings, for all files together."""
        findings = self.findings
        counts = Counter(finding.severity for finding in findings)
        are_safe = tuple(finding.fix.safe for finding in findings if finding.fix is not None)
        releases = frozenset(file.release for file in self.files)
        return LintSummary(
            files=len(self.files),
            unreadable=len(self.unreadable),
            errors=counts[Severity.ERROR],
            warnings=counts[Severity.WARNING],
            infos=counts[Severity.INFO],
            skipped=len(self.skipped),
            ignored=sum(file.ignored for file in self.files),
            baselined=sum(file.baselined for file in self.files),
            fixable=sum(are_safe),
            fixable_unsafe=len(are_safe) - sum(are_safe),
            fixed=sum(file.fixed for file in self.files),
            checked_for=tuple(sorted(releases, key=itemgetter(0, 1))),
        )

    def reaches(self, severity: Severity) -> bool:
        """Return whether any finding is at least this severe."""
        return any(finding.severity.rank <= severity.rank for finding in self.findings)

    def statistics(self) -> list[tuple[Diagnostic, int, int]]:
        """Return for each check one of its findings, their number, and the number of files with one; most frequent first."""
        counts: Counter[str] = Counter()
        files: Counter[str] = Counter()
        example: dict[str, Diagnostic] = {}
        for file in self.files:
            counts.update(finding.id for finding in file.findings)
            files.update({finding.id for finding in file.findings})
            for finding in file.findings:
                example.setdefault(finding.id, finding)
        order = sorted(counts, key=lambda id_: (-counts[id_], id_))
        return [(example[id_], counts[id_], files[id_]) for id_ in order]


class LintRequest(Record):
    """The options for checking files.

    Args:
        dialect: The dialect of the files; None to recognise it.
        framework_version: The release to check for; None for that of the settings or the dialect.
        selection: The selection of checks.
        checklists: The user's own checklists, in addition to those of the settings.
        settings: A settings file that replaces those of the folders; False for none.
        baseline: A baseline that replaces the one of the settings; False for none.
        fix: The fixes to apply: ``safe``, ``unsafe`` (both kinds), or None.
        write: Whether the fixed texts are written to the files.
        skip_unknown: Skip files that are not configs, even if they are named.
        environment: Check the environment variables of this process as well.
        stdin: The content of the file ``-``.
        stdin_filename: The name of that file, which determines its kind and settings; None for a config.
        processes: The number of processes; None for as many as are useful.
        job: The job of the only file, if it was read already.
        model_config: The ``config.json`` of the model, or its folder, of configs that read one.
    """

    dialect: Dialect | None = None
    framework_version: str | None = None
    selection: Selection = Selection()
    checklists: tuple[Path, ...] = ()
    settings: Path | bool = True
    baseline: Path | bool = True
    fix: Literal["safe", "unsafe"] | None = None
    write: bool = False
    skip_unknown: bool = False
    environment: bool = False
    stdin: bytes | None = None
    stdin_filename: Path | None = None
    processes: int | None = None
    job: Job | None = None
    model_config: Path | None = None
