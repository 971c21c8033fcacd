"""One file in front of the checks that are selected for it: what is found, and what is fixed."""

from __future__ import annotations

import os
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml

from ms_tune.enums import Dialect
from ms_tune.facts.releases import served
from ms_tune.lint import kinds
from ms_tune.lint.checklist import built_in, built_in_code, combined, read_checklist
from ms_tune.lint.code_source import CodeSource
from ms_tune.lint.engine import concerns, job_of, lint, run_checks
from ms_tune.lint.fix import apply_fixes
from ms_tune.lint.gate import Gate, where_certain
from ms_tune.lint.report import FileReport
from ms_tune.lint.request import FileOutcome
from ms_tune.lint.selection import PROFILES, Selection, check_selectors, known_names
from ms_tune.lint.told import present
from ms_tune.source.yaml_loader import Loader
from ms_tune.source.yaml_nodes import offsets
from ms_tune.text import Message, msg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ms_tune.diagnostics import Diagnostic, KeyPath
    from ms_tune.facts.releases import Release
    from ms_tune.job.job import Job
    from ms_tune.lint.checklist import Check
    from ms_tune.lint.request import LintRun
    from ms_tune.lint.settings import ProjectSettings
    from ms_tune.source.yaml import SourceFile

_MARK = "ms-tune:"  # in every comment that ignores something


def outcome_of(one: CheckedFile, notes: Sequence[Message] = (), *, fixable: bool = True) -> FileOutcome:
    """What is found in a file, after the fixes that are asked for."""
    if one.run.request.fix is None:
        return FileOutcome(one.report()._replace(notes=tuple(notes)))
    if not fixable:
        notes = (*notes, msg("lint.never-fixed", file=one.source.path, dialect=one.job.dialect.value))
        return FileOutcome(one.report()._replace(notes=tuple(notes)))
    gate = Gate(one.job_of, one.findings)
    unsafe = one.run.request.fix == "unsafe"
    source, fixed = apply_fixes(one.source, one.findings, unsafe=unsafe, admits=gate.admits)
    if fixed.refused:
        notes = (*notes, msg("lint.refused-fixes", file=one.source.path, count=fixed.refused))
    commands = one.commands_in(source)
    report = one._replace(job=one.job_of(source), commands=commands).report()._replace(notes=tuple(notes))
    if fixed.made:
        report = report._replace(text=source.text, original=one.source.text, fixed=fixed.made)
    return FileOutcome(report)


class CheckedFile(NamedTuple):
    """One config (or what is read like one) in front of the checks that are selected for it.

    ``code`` are the built-in checks of a file that is no config, ``commands`` what a launch script starts; of a
    ``fragment`` nothing is missed.
    """

    job: Job
    about: Release
    run: LintRun
    settings: ProjectSettings
    folder: Path
    code: tuple[Check, ...] | None = None
    commands: tuple[SourceFile, ...] = ()
    of_commands: Dialect = Dialect.MEGATRON
    fragment: bool = False

    @property
    def source(self) -> SourceFile:
        """The file itself."""
        return self.job.alone.source

    def job_of(self, source: SourceFile) -> Job:
        """The job of the file with another text."""
        return self.job if source is self.source else job_of(source, self.job.dialect, self.job.release.version)

    def selection(self) -> Selection:
        """Which checks are made for it, by the settings of its folder and the command line."""
        relative = Path(os.path.relpath(self.folder / self.source.path.name, self.settings.folder))
        return self.settings.selections.for_path(relative).and_then(self.run.request.selection)

    def report(self) -> FileReport:
        """What is found, and how it was checked."""
        findings, ignored = self._found(self.job)
        baselined = 0
        if self.run.baseline is not None:
            broken = tuple(one for one in findings if one.trace)
            findings, baselined = self.run.baseline.without(self.source.path, self.source.text, findings)
            findings += tuple(one for one in broken if one not in findings)
        return FileReport(
            path=self.source.path,
            text=self.source.text if findings else "",
            release=self.about,
            findings=findings,
            read_from=self.source.read_from,
            ignored=ignored,
            baselined=baselined,
        )

    def commands_in(self, source: SourceFile) -> tuple[SourceFile, ...]:
        """What the script starts, with another text."""
        if source is self.source or not self.commands:
            return self.commands
        if self.of_commands is Dialect.MEGATRON:
            return kinds.commands_of(source, self.about.version)
        return kinds.multimodal_commands_of(source)

    def _concerned(self, check: Check, version: str, profile: str) -> bool:
        """Whether a check is made: for the file itself, or for what it starts."""
        if concerns(check, self.job.dialect, version, profile):
            return True
        return bool(self.commands) and concerns(check, self.of_commands, self.about.version, profile)

    def findings(self, source: SourceFile) -> tuple[Diagnostic, ...]:
        """What is wrong and not old or ignored: what may be fixed."""
        findings, _ = self._found(self.job_of(source))
        if self.run.baseline is not None:
            findings, _ = self.run.baseline.without(source.path, source.text, findings)
        return findings

    def _certain(self) -> bool:
        """Whether the release is one that was named, or is installed."""
        named = self.run.request.framework_version or self.settings.version
        return named is not None or self.about.is_installed

    def _where_certain(
        self, found: tuple[Diagnostic, ...], job: Job, checks: Sequence[Check], profile: str
    ) -> tuple[Diagnostic, ...]:
        by_id = {check.id: check for check in checks}

        def found_for(check: str, release: str) -> Iterator[KeyPath]:
            made = (one for one in (by_id[check],) if concerns(one, job.dialect, release, profile))
            return (one.path for one in run_checks(made, job.for_release(release)))

        others = [one for one in served(job.dialect) if one != job.release.version]
        return where_certain(found, found_for, others)

    def _found(self, job: Job) -> tuple[tuple[Diagnostic, ...], int]:
        source = job.alone.source
        selection = self.selection()
        lists = (*self.settings.checklists, *self.run.request.checklists)
        for names, origin in (
            (self.settings.selections.names(), str(self.settings.file)),
            (self.run.request.selection.names(), "--select, --ignore"),
        ):
            _check_names(tuple(names), lists, origin)
        profile = selection.profile or PROFILES[0]
        version = job.release.version
        if self.code is None:
            chosen = [*_made(lists, job.dialect, selection, version, profile)]
        else:
            chosen = [check for check in _combined(self.code, lists) if selection.takes(check)]
        found = run_checks((one for one in chosen if concerns(one, job.dialect, version, profile)), job)
        if self.fragment:
            found = present(source, found)
        if self.code is None and not self._certain():
            found = self._where_certain(found, job, chosen, profile)
        if self.commands:
            made = [check for check in _checks(lists, self.of_commands) if selection.takes(check)]
            chosen += made
            commands = self.commands_in(source)
            made_for = partial(lint, dialect=self.of_commands, checks=made, version=self.about.version, profile=profile)
            found = _together(found, (kinds.findings_of(commands, made_for),))
        variables = kinds.variables_of(source) if self.code is not None else None
        if variables is not None:
            settings = _combined(built_in_code()[kinds.ENVIRONMENT], lists)
            made = [one for one in settings if selection.takes(one) and one.name not in kinds.TOLD_IN_CODE]
            chosen += made
            found = _together(found, (lint(variables, job.dialect, made, version, profile),))
        # That a check crashed is told, whatever is selected or ignored.
        broken = tuple(one for one in found if one.trace)
        found = tuple(one for one in found if not one.trace)
        ignored = 0
        if _MARK in source.text:
            from ms_tune.lint.suppress import Surroundings, suppress  # noqa: PLC0415 - most files have no such comment

            surroundings = Surroundings(
                names=known_names(_checks(lists, None)),
                made={check.id for check in chosen if self._concerned(check, version, profile)},
                region=lambda path: _region(source, path),
                quoted=source.quoted() if isinstance(source, CodeSource) else _quoted(source.text),
            )
            done = suppress(source.text, found, surroundings)
            found, ignored = done.findings, done.ignored
        return tuple(_rated(finding, selection) for finding in found if selection.takes(finding)) + broken, ignored


def _together(found: tuple[Diagnostic, ...], further: Iterable[Iterable[Diagnostic]]) -> tuple[Diagnostic, ...]:
    """All findings in the order of the text; what two commands of a script share is told once."""
    every = {
        (one.id, one.location, str(one.message)): one for one in (*found, *(one for more in further for one in more))
    }
    return tuple(sorted(every.values(), key=lambda finding: (finding.location.start, finding.id)))


def _rated(finding: Diagnostic, selection: Selection) -> Diagnostic:
    severity = selection.severity(finding)
    return finding if severity is finding.severity else finding._replace(severity=severity)


@cache
def _checks(checklists: tuple[Path, ...], dialect: Dialect | None) -> tuple[Check, ...]:
    if dialect is not None:
        return _combined(built_in(dialect), checklists)
    code = (check for checks in built_in_code().values() for check in checks)
    return _combined((*built_in(), *code), checklists)


@cache
def _made(
    checklists: tuple[Path, ...], dialect: Dialect, selection: Selection, version: str, profile: str
) -> tuple[Check, ...]:
    """The checks that are made for a config: files of one folder have the same."""
    taken = (check for check in _checks(checklists, dialect) if selection.takes(check))
    return tuple(check for check in taken if concerns(check, dialect, version, profile))


def _combined(checks: tuple[Check, ...], checklists: tuple[Path, ...]) -> tuple[Check, ...]:
    return combined(checks, tuple(map(read_checklist, checklists))) if checklists else checks


@cache
def _check_names(names: tuple[str, ...], checklists: tuple[Path, ...], origin: str) -> None:
    if names:
        check_selectors(names, _checks(checklists, None), origin)


def _region(source: SourceFile, path: KeyPath) -> tuple[int, int] | None:
    position = source.position(path)
    if position is None:
        return None
    return (position.key or position.value).line, max(position.value.end_line, (position.key or position.value).line)


def _quoted(text: str) -> list[tuple[int, int]]:
    """Where strings in quotes and blocks stand: a `#` in them starts no comment."""
    return [
        offsets(event)
        for event in yaml.parse(text, Loader=Loader)
        if isinstance(event, yaml.ScalarEvent) and event.style
    ]
