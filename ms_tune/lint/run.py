"""Checks files: reads each, tells what it is, makes the checks that are selected for it, and fixes it if asked to."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import yaml

from ms_tune.config.follow import with_bases, with_model_folder
from ms_tune.config.source import decode, load_source, parse_source
from ms_tune.config.yaml_nodes import LOADER, offsets
from ms_tune.errors import ConfigError, MsTuneError, UnsupportedError
from ms_tune.frameworks.dialect import YAML_DIALECTS, Dialect
from ms_tune.frameworks.releases import Release, release_for, served
from ms_tune.lint import kinds
from ms_tune.lint.checklist import built_in, built_in_code, combined, read_checklist
from ms_tune.lint.code_source import CodeSource
from ms_tune.lint.discover import STDIN, discover
from ms_tune.lint.engine import concerns, lint
from ms_tune.lint.fix import apply_fixes
from ms_tune.lint.gate import Gate, where_certain
from ms_tune.lint.report import FileReport, LintReport, Skipped
from ms_tune.lint.selection import PROFILES, Selection, check_selectors, known_names
from ms_tune.lint.settings import Settings, load_settings, settings_for
from ms_tune.lint.told import present, told
from ms_tune.texts import Message, msg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ms_tune.config.source import KeyPath, SourceFile
    from ms_tune.lint.baseline import Baseline
    from ms_tune.lint.checklist import Check
    from ms_tune.lint.discover import Target
    from ms_tune.lint.finding import Finding

_POOL_FROM = 48  # fewer files are checked faster than a second process starts
_CHUNK = 16
_MARK = "ms-tune:"  # in every comment that ignores something
# A YAML file of a folder that cannot be read is a broken config if a line starts like one, else somebody else's.
_CONFIG_LINES = tuple(
    f"{key}:"
    for key in (
        "parallel_config",
        "runner_config",
        "recompute_config",
        "training_config",
        "model_config",
        "parallelism",
        "  fsdp_plan",
    )
)


@dataclass(frozen=True, slots=True)
class LintRequest:
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
        processes: How many processes check; None for as many as are worth it.
    """

    dialect: Dialect | None = None
    framework_version: str | None = None
    selection: Selection = field(default_factory=Selection)
    checklists: tuple[Path, ...] = ()
    settings: Path | bool = True
    baseline: Path | bool = True
    fix: Literal["safe", "unsafe"] | None = None
    write: bool = False
    skip_unknown: bool = False
    environment: bool = False
    stdin: bytes | None = field(default=None, repr=False)
    processes: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """What holds for all files of one run: the request, and what its files hold.

    Args:
        request: What is asked for.
        settings: These in place of what the folders hold; None to look for them.
        baseline: Old findings.
    """

    request: LintRequest = field(default_factory=LintRequest)
    settings: Settings | None = None
    baseline: Baseline | None = None

    def settings_in(self, folder: Path) -> Settings:
        """The settings that hold in a folder (an absolute path)."""
        return self.settings or settings_for(folder)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one file: a report, or why there is none.

    Args:
        report: What was found (after the fixes, if there were any).
        skipped: Why a file that the user did not name was left out.
        error: Why the file could not be checked.
    """

    report: FileReport | None = None
    skipped: Skipped | None = None
    error: MsTuneError | None = None


def lint_files(files: Sequence[str], request: LintRequest) -> LintReport:
    """Check files and folders; one that cannot be read does not keep the others from being checked.

    Raises:
        MsTuneError: A file cannot be found, or the settings, the baseline or a checklist are wrong.
    """
    given = None
    if request.settings is False:
        given = Settings(None, Path.cwd())
    elif isinstance(request.settings, Path):
        given = load_settings(request.settings.absolute()) or Settings(None, Path.cwd())
    settings = given or settings_for(Path.cwd())
    old = settings.baseline if request.baseline is True else request.baseline
    baseline = None
    if old:
        from ms_tune.lint.baseline import load_baseline  # noqa: PLC0415 - seldom needed

        baseline = load_baseline(old)
    job = Job(request, given, baseline)
    found = discover(files, job.settings_in, trusted=not request.skip_unknown)
    outcomes = list(check_files(found.targets, job))
    if request.environment:
        outcomes.append(_check_code(kinds.process_environment(), kinds.ENVIRONMENT, job, Path.cwd()))
    unreadable = tuple(outcome.error for outcome in outcomes if outcome.error)
    unwritten = tuple(_write(outcomes, found.targets, job)) if request.write else ()
    return LintReport(
        files=tuple(outcome.report for outcome in outcomes if outcome.report),
        unreadable=unreadable,
        unwritten=unwritten,
        skipped=(*found.skipped, *(outcome.skipped for outcome in outcomes if outcome.skipped)),
        settings=settings,
    )


def _write(outcomes: list[Outcome], targets: Sequence[Target], job: Job) -> Iterator[MsTuneError]:
    """Write the fixed files; yields what went wrong. What was not written has the findings that it had."""
    from ms_tune.config.write import write_back  # noqa: PLC0415 - seldom needed

    for position, outcome in enumerate(outcomes):
        report = outcome.report
        if report is not None and report.original is not None:
            try:
                write_back(report.path, report.original, report.text)
            except MsTuneError as error:
                yield error
                outcomes[position] = check_file(targets[position], replace(job, request=replace(job.request, fix=None)))


def check_files(targets: Sequence[Target], job: Job) -> Iterator[Outcome]:
    """Check every file, in order, with several processes if that is worth it."""
    processes = job.request.processes or default_processes(len(targets))
    if processes <= 1 or len(targets) < _POOL_FROM:
        for target in targets:
            yield check_file(target, job)
        return
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - slow to import, and seldom needed

    with ProcessPoolExecutor(min(processes, len(targets) // _CHUNK)) as pool:
        yield from pool.map(check_file, targets, [job] * len(targets), chunksize=_CHUNK)


def default_processes(files: int) -> int:
    """How many processes are worth it: none for few files, else every core that this process may use."""
    return 1 if files < _POOL_FROM else len(os.sched_getaffinity(0))


def check_file(target: Target, job: Job) -> Outcome:
    """Check one file."""
    try:
        return _check(target, job)
    except MsTuneError as error:
        if target.named or not isinstance(error, ConfigError) or error.path != target.path:
            return Outcome(error=error)
        if _looks_like_a_config(target.path):
            return Outcome(error=error)
        return Outcome(skipped=Skipped(target.path, msg("lint.skipped.unreadable", reason=error.message)))


def _check_code(source: SourceFile, kind: str, job: Job, folder: Path) -> Outcome:
    # These checks are about MindSpore itself and hold whatever is trained with it, so any dialect will do.
    checks = kinds.checks_of(source, kind, built_in_code().get(kind, ()))
    settings = job.settings_in(folder)
    release = Release(kinds.FRAMEWORK, kinds.VERSION)
    commands: tuple[SourceFile, ...] = ()
    if kind == kinds.ENVIRONMENT:
        about = _release_of_scripts(job.request.framework_version or settings.version)
        commands = kinds.commands_of(source, about.version)
        release = about if commands else release
    one = _File(source, Dialect.MINDFORMERS, release, job, settings, folder, checks, commands)
    multimodal = () if commands else kinds.multimodal_commands_of(source)
    if multimodal:
        about = _release_of_scripts(job.request.framework_version or settings.version, Dialect.MINDSPEED_MM)
        one = replace(one, release=about, commands=multimodal, of_commands=Dialect.MINDSPEED_MM)
    return _outcome(one)


def _release_of_scripts(version: str | None, dialect: Dialect = Dialect.MEGATRON) -> Release:
    """The release that launch scripts are read for; a version of another framework is about other files."""
    try:
        return release_for(dialect, version)
    except UnsupportedError:
        return release_for(dialect)


def _check(target: Target, job: Job) -> Outcome:
    folder = Path.cwd() if target.path == STDIN else Path(os.path.abspath(target.path)).parent  # noqa: PTH100 - fast
    settings = job.settings_in(folder)
    kind = kinds.kind_of(target.path)
    if kind is not None:
        code = kinds.read(target.path, kind, named=target.named)
        if isinstance(code, Message):
            return _none_of_ours(target, code)
        return _check_code(code, kind, job, folder)
    source = (
        load_source(target.path)
        if target.path != STDIN
        else parse_source(decode(job.request.stdin or b"", STDIN), STDIN)
    )
    notes: list[Message] = []
    whole = _followed(source, with_bases, "lint.base-config", notes)
    firmly = job.request.dialect is not None or target.named
    as_what = told(source, whole.data, job.request.dialect or settings.dialect, firmly=firmly)
    dialect = as_what.dialect
    if dialect is None:
        return _not_recognised(target, as_what.reason or msg("lint.not-a-config"))
    notes += as_what.notes
    try:
        release = release_for(dialect, job.request.framework_version or settings.version)
    except UnsupportedError as error:
        if target.named:
            raise
        return Outcome(skipped=Skipped(target.path, error.message))  # what was asked for is about other files
    if dialect is Dialect.MINDFORMERS:
        whole = _followed(whole, with_model_folder, "lint.model-json", notes)
    source = replace(source, beside=whole.beside, read_from=whole.read_from)
    one = _File(source, dialect, release, job, settings, folder, fragment=as_what.fragment)
    return _outcome(one, notes, fixable=as_what.fixable)


def _followed(
    source: SourceFile, follow: Callable[[SourceFile], SourceFile], text: str, notes: list[Message]
) -> SourceFile:
    """A config with what it takes from other files; without it, and with a note, if they cannot be read."""
    try:
        return follow(source)
    except ConfigError as error:
        where = f"{error.path}:{error.line}" if error.line else error.path
        notes.append(msg(text, file=source.path, where=where, reason=error.message))
        return source


def _outcome(one: _File, notes: Sequence[Message] = (), *, fixable: bool = True) -> Outcome:
    """What is found in a file, after the fixes that are asked for."""
    if one.job.request.fix is None:
        return Outcome(replace(one.report(), notes=tuple(notes)))
    if not fixable:
        notes = (*notes, msg("lint.never-fixed", file=one.source.path, dialect=one.dialect.value))
        return Outcome(replace(one.report(), notes=tuple(notes)))
    gate = Gate(one.dialect, one.release.version, one.findings)
    unsafe = one.job.request.fix == "unsafe"
    source, fixed = apply_fixes(one.source, one.findings, unsafe=unsafe, admits=gate.admits)
    if fixed.refused:
        notes = (*notes, msg("lint.refused-fixes", file=one.source.path, count=fixed.refused))
    commands = kinds.commands_of(source, one.release.version) if one.commands else ()
    report = replace(replace(one, source=source, commands=commands).report(), notes=tuple(notes))
    if fixed.count:
        report = replace(report, text=source.text, original=one.source.text, fixed=fixed.count)
    return Outcome(report)


def _none_of_ours(target: Target, message: Message) -> Outcome:
    """What becomes of a script or a program that MindSpore has nothing to do with."""
    return (
        Outcome(error=ConfigError(message, path=target.path))
        if target.named
        else Outcome(skipped=Skipped(target.path, message))
    )


def _not_recognised(target: Target, message: Message) -> Outcome:
    if not target.named:
        return Outcome(skipped=Skipped(target.path, message))
    hint = msg("lint.dialect-hint", dialects="|".join(dialect.value for dialect in YAML_DIALECTS))
    return Outcome(error=ConfigError(message, hint, path=target.path))


@dataclass(frozen=True, slots=True)
class _File:
    """One config (or what is read like one) in front of the checks that are selected for it.

    ``code`` are the built-in checks of a file that is no config, ``commands`` what a launch script starts; of a
    ``fragment`` nothing is missed.
    """

    source: SourceFile
    dialect: Dialect
    release: Release
    job: Job
    settings: Settings
    folder: Path
    code: tuple[Check, ...] | None = None
    commands: tuple[SourceFile, ...] = ()
    of_commands: Dialect = Dialect.MEGATRON
    fragment: bool = False

    def selection(self) -> Selection:
        relative = Path(os.path.relpath(self.folder / self.source.path.name, self.settings.folder))
        return self.settings.selections.for_path(relative).and_then(self.job.request.selection)

    def report(self) -> FileReport:
        findings, ignored = self._found(self.source)
        baselined = 0
        if self.job.baseline is not None:
            findings, baselined = self.job.baseline.without(self.source.path, self.source.text, findings)
        return FileReport(
            path=self.source.path,
            text=self.source.text if findings else "",
            release=self.release,
            findings=findings,
            read_from=self.source.read_from,
            ignored=ignored,
            baselined=baselined,
        )

    def _concerned(self, check: Check, version: str, profile: str) -> bool:
        """Whether a check is made: for the file itself, or for what it starts."""
        if concerns(check, self.dialect, version, profile):
            return True
        return bool(self.commands) and concerns(check, self.of_commands, self.release.version, profile)

    def findings(self, source: SourceFile) -> tuple[Finding, ...]:
        """What is wrong and not old or ignored: what may be fixed."""
        findings, _ = self._found(source)
        if self.job.baseline is not None:
            findings, _ = self.job.baseline.without(source.path, source.text, findings)
        return findings

    def _certain(self) -> bool:
        """Whether the release is one that was named, or is installed."""
        named = self.job.request.framework_version or self.settings.version
        return named is not None or self.release.is_installed

    def _where_certain(
        self, found: tuple[Finding, ...], source: SourceFile, checks: Sequence[Check], profile: str
    ) -> tuple[Finding, ...]:
        by_id = {check.id: check for check in checks}

        def found_for(check: str, release: str) -> Iterator[KeyPath]:
            return (one.path for one in lint(source, self.dialect, (by_id[check],), release, profile))

        others = [one for one in served(self.dialect) if one != self.release.version]
        return where_certain(found, found_for, others)

    def _found(self, source: SourceFile) -> tuple[tuple[Finding, ...], int]:
        selection = self.selection()
        lists = (*self.settings.checklists, *self.job.request.checklists)
        checks = _checks(lists, self.dialect) if self.code is None else _combined(self.code, lists)
        for names, origin in (
            (self.settings.selections.names(), str(self.settings.file)),
            (self.job.request.selection.names(), "--select, --ignore"),
        ):
            _check_names(tuple(names), lists, origin)
        chosen = [check for check in checks if selection.takes(check)]
        profile = selection.profile or PROFILES[0]
        version = self.release.version if self.code is None else kinds.VERSION
        found = lint(source, self.dialect, chosen, version, profile)
        if self.fragment:
            found = present(source, found)
        if self.code is None and not self._certain():
            found = self._where_certain(found, source, chosen, profile)
        if self.commands:
            made = [check for check in _checks(lists, self.of_commands) if selection.takes(check)]
            chosen += made
            commands = self.commands
            if source is not self.source and self.of_commands is Dialect.MEGATRON:
                commands = kinds.commands_of(source, self.release.version)
            elif source is not self.source:
                commands = kinds.multimodal_commands_of(source)
            further = (lint(one, self.of_commands, made, self.release.version, profile) for one in commands)
            found = _together(found, further)
        variables = kinds.variables_of(source) if self.code is not None else None
        if variables is not None:
            settings = _combined(built_in_code()[kinds.ENVIRONMENT], lists)
            made = [one for one in settings if selection.takes(one) and one.name not in kinds.TOLD_IN_CODE]
            chosen += made
            found = _together(found, (lint(variables, self.dialect, made, version, profile),))
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
        return tuple(_rated(finding, selection) for finding in found if selection.takes(finding)), ignored


def _together(found: tuple[Finding, ...], further: Iterable[tuple[Finding, ...]]) -> tuple[Finding, ...]:
    """All findings in the order of the text; what two commands of a script share is told once."""
    every = {(one.id, one.span, str(one.message)): one for one in (*found, *(one for more in further for one in more))}
    return tuple(sorted(every.values(), key=lambda finding: (finding.span.start, finding.id)))


def _rated(finding: Finding, selection: Selection) -> Finding:
    severity = selection.severity(finding)
    return finding if severity is finding.severity else replace(finding, severity=severity)


@cache
def _checks(checklists: tuple[Path, ...], dialect: Dialect | None) -> tuple[Check, ...]:
    if dialect is not None:
        return _combined(built_in(dialect), checklists)
    code = (check for checks in built_in_code().values() for check in checks)
    return _combined((*built_in(), *code), checklists)


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
        for event in yaml.parse(text, Loader=LOADER)
        if isinstance(event, yaml.ScalarEvent) and event.style
    ]


def _looks_like_a_config(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return any(line.startswith(_CONFIG_LINES) for line in file.read(1024**2).splitlines())
    except OSError:
        return True
