"""What is asked of a run of the linter, and what it finds: what the renderers show."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from functools import lru_cache
from operator import itemgetter

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.lint.settings import Selection
from ms_tune.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Literal

    from ms_tune.enums import Dialect
    from ms_tune.errors import MsTuneError
    from ms_tune.facts.query import Release
    from ms_tune.job import Job
    from ms_tune.lint.settings import ProjectSettings
    from ms_tune.text import Message


@lru_cache(maxsize=1)
def _starts(text: str) -> list[int]:
    """Where each line of a text starts; the findings of one file are shown one after the other."""
    return [0, *(match.end() for match in re.finditer("\r\n|\r|\n", text))]


class FileReport(Record):
    """The findings in one file, and what it was checked as."""

    path: Path  # the file, as the user named it
    # What is in it (without a byte order mark); nothing if it is not needed to show the findings.
    text: str
    release: Release  # the framework version that it was checked for
    findings: tuple[Diagnostic, ...]  # what was found and is reported
    ignored: int = 0  # how many findings comments in the file ignore
    baselined: int = 0  # how many findings the baseline holds
    notes: tuple[Message, ...] = ()  # what the user should know about how the file was read
    read_from: tuple[Path, ...] = ()  # the files beside it whose settings count, too
    # The text before the fixes, if they changed it; `text` is the one after them then.
    original: str | None = None
    fixed: int = 0  # how many findings were fixed
    fixes: tuple[Message, ...] = ()  # the title of each fix that was made

    def line(self, number: int) -> str:
        """The text of a line, without its line break."""
        starts = _starts(self.text)
        end = starts[number] if number < len(starts) else None
        return self.text[starts[number - 1] : end].rstrip("\r\n")

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, from 1."""
        starts = _starts(self.text)
        line = bisect_right(starts, offset)
        return line, offset - starts[line - 1] + 1

    def fingerprints(self) -> list[tuple[str, int]]:
        """What identifies each finding, in their order, wherever in the file it moves to."""
        from ms_tune.lint.baseline import fingerprints  # noqa: PLC0415 - needed by few formats, and hashlib is slow to import

        return fingerprints(self.text, self.findings)


class Skipped(Record):
    """A file of a folder that was not checked, and why."""

    path: Path
    reason: Message


class LintSummary(Record):
    """How much was found; its fields are those of the summary in JSON."""

    files: int  # that were checked
    unreadable: int
    errors: int
    warnings: int
    infos: int
    skipped: int
    ignored: int  # findings that comments ignore
    baselined: int  # findings that the baseline holds
    fixable: int  # findings with a safe fix
    fixable_unsafe: int
    fixed: int  # findings that were fixed
    checked_for: tuple[Release, ...]  # the framework versions that files were checked for


class LintReport(Record):
    """The findings in all files.

    Args:
        files: The files that were checked.
        unreadable: Why others could not be.
        unwritten: Why files could not be written after their fixes; they have the findings that they had.
        skipped: What the folders hold besides.
        settings: The settings of the run as a whole.
    """

    files: tuple[FileReport, ...]
    unreadable: tuple[MsTuneError, ...]
    unwritten: tuple[MsTuneError, ...]
    skipped: tuple[Skipped, ...]
    settings: ProjectSettings

    @property
    def traces(self) -> tuple[str, ...]:
        """The tracebacks of checks that crashed, each once."""
        return tuple(dict.fromkeys(one.trace for file in self.files for one in file.findings if one.trace))

    @property
    def errors(self) -> tuple[MsTuneError, ...]:
        """Everything that went wrong."""
        return self.unreadable + self.unwritten

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """The findings of all files."""
        return tuple(finding for file in self.files for finding in file.findings)

    @property
    def summary(self) -> LintSummary:
        """How much was found, in all files together."""
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
        """Whether any finding is at least as bad."""
        return any(finding.severity.rank <= severity.rank for finding in self.findings)

    def statistics(self) -> list[tuple[Diagnostic, int, int]]:
        """For each check that found something: one of its findings, how many there are, in how many files; most first."""
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
    """How files are to be checked.

    Args:
        dialect: What they are written for; None to recognise it.
        framework_version: The release that they are for; None for what settings or the dialect say.
        selection: Which checks are made.
        checklists: Checklists of the user's own, beside those of the settings.
        settings: A settings file in place of those that the folders hold; False for none.
        baseline: A file of old findings in place of the one that the settings name; False for none.
        fix: Which fixes are applied: ``safe``, ``unsafe`` (those too), or None.
        write: Whether the fixed texts are written to the files.
        skip_unknown: Leave out files that are no config, even if they are named.
        environment: Check the environment variables of this process as well.
        stdin: What the file ``-`` holds.
        stdin_filename: What that file is called, which tells its kind and whose settings hold; None for a config.
        processes: How many processes check; None for as many as are worth it.
        job: The job of the one file, where it was read already.
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
