"""Checks files: reads each, tells what it is, makes the checks that are selected for it, and fixes it if asked to."""

from __future__ import annotations

import gc
import os
from functools import cache, partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import yaml

from ms_tune.dialects.check_context import CodeSource
from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.errors import ConfigError, MsTuneError, UnsupportedError
from ms_tune.facts.releases import Release, release_for, served
from ms_tune.job.detect import is_mostly_unknown
from ms_tune.job.job import Job
from ms_tune.lint import file_types
from ms_tune.lint.checklist import built_in, built_in_code, combined, read_checklist
from ms_tune.lint.engine import concerns, job_of, lint, run_checks
from ms_tune.lint.file_types import STDIN, discover
from ms_tune.lint.result import FileOutcome, FileReport, LintReport, LintRequest, LintRun, Skipped
from ms_tune.lint.settings import (
    PROFILES,
    ProjectSettings,
    Selection,
    check_selectors,
    known_names,
    load_settings,
    settings_for,
)
from ms_tune.records import Record
from ms_tune.source.yaml import decode, load_source, parse_source
from ms_tune.source.yaml_nodes import Loader, offsets
from ms_tune.text import Message, msg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ms_tune.diagnostics import Diagnostic, KeyPath
    from ms_tune.lint.checklist import Check
    from ms_tune.lint.file_types import LintTarget
    from ms_tune.source.yaml import SourceFile

_POOL_FROM = 48  # fewer files are checked faster than a second process starts
_CHUNK = 16
_LOOKED_AFTER = 64  # files, after which this process looks for rubbish
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


def lint_files(files: Sequence[str], request: LintRequest) -> LintReport:
    """Check files and folders; one that cannot be read does not keep the others from being checked.

    Raises:
        MsTuneError: A file cannot be found, or the settings, the baseline or a checklist are wrong.
    """
    given = None
    if request.settings is False:
        given = ProjectSettings(None, Path.cwd())
    elif isinstance(request.settings, Path):
        given = load_settings(request.settings.absolute()) or ProjectSettings(None, Path.cwd())
    settings = given or settings_for(Path.cwd())
    old = settings.baseline if request.baseline is True else request.baseline
    baseline = None
    if old:
        from ms_tune.lint.baseline import load_baseline  # noqa: PLC0415 - seldom needed

        baseline = load_baseline(old)
    run = LintRun(request, given, baseline)
    found = discover(files, run.settings_in, trusted=not request.skip_unknown)
    outcomes = check_files(found.targets, run)
    if request.environment:
        variables = file_types.process_environment()
        outcomes.append(FileOutcome(_file_of_code(variables, file_types.ENVIRONMENT, run, Path.cwd()).report()))
    unreadable = tuple(outcome.error for outcome in outcomes if outcome.error)
    unwritten = tuple(_write_files(outcomes, found.targets, run)) if request.write else ()
    return LintReport(
        files=tuple(outcome.report for outcome in outcomes if outcome.report),
        unreadable=unreadable,
        unwritten=unwritten,
        skipped=(*found.skipped, *(outcome.skipped for outcome in outcomes if outcome.skipped)),
        settings=settings,
    )


def _write_files(outcomes: list[FileOutcome], targets: Sequence[LintTarget], run: LintRun) -> Iterator[MsTuneError]:
    """Write the fixed files; yields what went wrong. What was not written has the findings that it had."""
    from ms_tune.source.atomic_write import write_back  # noqa: PLC0415 - seldom needed

    for position, outcome in enumerate(outcomes):
        report = outcome.report
        if report is not None and report.original is not None:
            try:
                write_back(report.path, report.original, report.text)
            except MsTuneError as error:
                yield error
                outcomes[position] = check_file(targets[position], run._replace(request=run.request._replace(fix=None)))


def check_files(targets: Sequence[LintTarget], run: LintRun) -> list[FileOutcome]:
    """Check every file, in order, with several processes if that is worth it.

    No rubbish is looked for while a file is checked: nearly all that is made is in use until then, and a look through it takes a
    seventh of the time of a large file.
    """
    processes = run.request.processes or default_processes(len(targets))
    if processes > 1 and len(targets) >= _POOL_FROM:
        from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - slow to import, and seldom needed

        alone = run._replace(request=run.request._replace(processes=1))
        chunks = [targets[start : start + _CHUNK] for start in range(0, len(targets), _CHUNK)]
        with ProcessPoolExecutor(min(processes, len(chunks))) as pool:
            return [one for outcomes in pool.map(check_files, chunks, [alone] * len(chunks)) for one in outcomes]
    collecting = gc.isenabled()
    gc.disable()
    outcomes = []
    try:
        for number, target in enumerate(targets):
            outcomes.append(check_file(target, run))
            if number % _LOOKED_AFTER == _LOOKED_AFTER - 1:
                gc.collect()
                gc.freeze()  # what stays need not be looked through once more
    finally:
        if len(targets) >= _LOOKED_AFTER:
            gc.unfreeze()
        if collecting:
            gc.enable()
    return outcomes


def default_processes(files: int) -> int:
    """How many processes are worth it: none for few files, else every core that this process may use."""
    return 1 if files < _POOL_FROM else len(os.sched_getaffinity(0))


def check_file(target: LintTarget, run: LintRun) -> FileOutcome:
    """Check one file; what cannot be read is told, or left out where the user did not name it."""
    path = (run.request.stdin_filename or STDIN) if target.path == STDIN else target.path
    try:
        text = decode(run.request.stdin or b"", path) if target.path == STDIN else None
        kind = file_types.kind_of(path)
        file = _load_config(path, text, target, run) if kind is None else _load_code(path, text, kind, target, run)
        if isinstance(file, FileOutcome):
            return file
        return FileOutcome(file.report() if run.request.fix is None else file.fix())
    except MsTuneError as error:
        other = isinstance(error, ConfigError) and error.path == target.path and not target.named
        if not other or _looks_like_a_config(target.path):
            return FileOutcome(error=error)
        return FileOutcome(skipped=Skipped(target.path, msg("lint.skipped.unreadable", reason=error.message)))


def _folder_of(path: Path) -> Path:
    return Path.cwd() if path == STDIN else Path(os.path.abspath(path)).parent  # noqa: PTH100 - fast


def _load_config(path: Path, text: str | None, target: LintTarget, run: LintRun) -> CheckedFile | FileOutcome:
    """A config's job with the checks that are made for it; the outcome where none are."""
    folder = _folder_of(path)
    settings = run.settings_in(folder)
    job = run.request.job or Job(load_source(path) if text is None else parse_source(text, path))
    job.version = run.request.framework_version or settings.version
    source = job.written
    notes = [_not_followed(source.path, *one) for one in job.follow_bases()]
    firmly = run.request.dialect is not None or target.named
    asked = run.request.dialect or settings.dialect
    chosen = file_types.choose_dialect(job.recognition, job.whole.data, source.path, asked, firmly=firmly)
    if chosen.dialect is None:
        return _not_ours(target, chosen.reason or msg("lint.not-a-config"), as_config=True)
    job.dialect = chosen.dialect
    notes += chosen.notes
    try:
        release = job.release
    except UnsupportedError as error:
        if target.named:
            raise
        return FileOutcome(skipped=Skipped(target.path, error.message))  # what was asked for is about other files
    notes += [_not_followed(source.path, *one) for one in job.follow_model()]
    if job.release_around is not None and job.checkout is not None and release.version not in job.release_around[1]:
        params = {"folder": job.checkout.root, "framework": release.framework, "own": job.release_around[1]}
        notes.append(msg("lint.checkout-release", **params, release=release.version))
    return CheckedFile(job, release, run, settings, folder, tuple(notes), fragment=chosen.fragment)


def _load_code(path: Path, text: str | None, kind: str, target: LintTarget, run: LintRun) -> CheckedFile | FileOutcome:
    """Environment settings or Python code with the checks that are made for it; the outcome where it is none of ours."""
    source = file_types.read(path, kind, named=target.named, text=text)
    if isinstance(source, Message):
        return _not_ours(target, source)
    return _file_of_code(source, kind, run, _folder_of(path))


def _file_of_code(source: SourceFile, kind: str, run: LintRun, folder: Path) -> CheckedFile:
    # These checks are about MindSpore itself and hold whatever is trained with it, so any dialect will do.
    checks = file_types.checks_of(source, kind, built_in_code().get(kind, ()))
    settings = run.settings_in(folder)
    release = Release(file_types.FRAMEWORK, file_types.VERSION)
    named = run.request.framework_version or settings.version
    job = job_of(source, Dialect.MINDFORMERS, file_types.VERSION)
    commands, about, notes = _programs(job, named) if kind == file_types.ENVIRONMENT else ((), release, ())
    file = CheckedFile(job, about if commands else release, run, settings, folder, notes, checks, commands)
    multimodal = () if commands else file_types.multimodal_commands_of(source)
    if not multimodal:
        return file
    about = _release_of_scripts(named, Dialect.MINDSPEED_MM) or release_for(Dialect.MINDSPEED_MM)
    return file._replace(about=about, commands=multimodal, of_commands=Dialect.MINDSPEED_MM)


def _programs(job: Job, named: str | None) -> tuple[tuple[SourceFile, ...], Release, tuple[Message, ...]]:
    """The programs of MindSpeed-LLM that a script starts, for which release, and what there is to say about that."""
    source, about = job.written, _release_of_scripts(named)
    notes: tuple[Message, ...] = ()
    if about is None:
        fitting, lies_in_it = file_types.release_of(job)
        about = release_for(Dialect.MEGATRON)
        if fitting != about.version:
            if not lies_in_it:
                notes = (msg("lint.script-release", file=source.path, release=fitting, default=about.version),)
            about = about._replace(version=fitting)
    commands = file_types.commands_of(source, about.version)
    if not commands:
        return (), about, ()
    own = job.checkout.own_parser if job.checkout else None
    if own is not None:
        return (), about, (msg("lint.own-parser", file=source.path, parser=own),)
    known = file_types.with_known_layers()
    if about.version not in known:
        params = {"file": source.path, "release": about.version, "served": ", ".join(known)}
        notes += (msg("lint.layers-not-known", **params),)
    return commands, about, notes


def _release_of_scripts(named: str | None, dialect: Dialect = Dialect.MEGATRON) -> Release | None:
    """The release that launch scripts are to be read for; a version of another framework is about other files."""
    try:
        return release_for(dialect, named) if named is not None else None
    except UnsupportedError:
        return None


def _not_followed(file: Path, what: str, error: ConfigError) -> Message:
    """What a config takes from another file that cannot be read."""
    where = f"{error.path}:{error.line}" if error.line else error.path
    return msg(f"lint.{what}", file=file, where=where, reason=error.message)


def _not_ours(target: LintTarget, message: Message, *, as_config: bool = False) -> FileOutcome:
    """What becomes of a file that MindSpore has nothing to do with."""
    if not target.named:
        return FileOutcome(skipped=Skipped(target.path, message))
    hint = msg("lint.named-hint")
    if as_config:
        dialects = "|".join(dialect.value for dialect in YAML_DIALECTS)
        hint = msg("lint.dialect-hint", command=f"ms-tune lint {quote(str(target.path))}", dialects=dialects)
    return FileOutcome(error=ConfigError(message, hint, path=target.path))


def _looks_like_a_config(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return any(line.startswith(_CONFIG_LINES) for line in file.read(1024**2).splitlines())
    except OSError:
        return True


_MARK = "ms-tune:"  # in every comment that ignores something


class CheckedFile(Record):
    """One config (or what is read like one) in front of the checks that are selected for it.

    ``code`` are the built-in checks of a file that is no config, ``commands`` what a launch script starts; of a
    ``fragment`` nothing is missed.
    """

    job: Job
    about: Release
    run: LintRun
    settings: ProjectSettings
    folder: Path
    notes: tuple[Message, ...] = ()
    code: tuple[Check, ...] | None = None
    commands: tuple[SourceFile, ...] = ()
    of_commands: Dialect = Dialect.MEGATRON
    fragment: bool = False

    @property
    def source(self) -> SourceFile:
        """The file itself."""
        return self.job.alone.source

    def fix(self) -> FileReport:
        """What is found in the file after the fixes that are asked for."""
        from ms_tune.lint.fix import Gate, apply_fixes  # noqa: PLC0415 - seldom asked for

        if self.code is None and is_mostly_unknown(self.job.whole.data, self.job.dialect):
            never = msg("lint.never-fixed", file=self.source.path, dialect=self.job.dialect.value)
            return self._replace(notes=(*self.notes, never)).report()
        gate = Gate(lambda source: self.with_source(source).job, self.fixable)
        unsafe = self.run.request.fix == "unsafe"
        source, fixed = apply_fixes(self.source, self.fixable, unsafe=unsafe, admits=gate.admits)
        after = self.with_source(source)
        if fixed.refused:
            refused = msg("lint.refused-fixes", file=self.source.path, count=fixed.refused)
            after = after._replace(notes=(*self.notes, refused))
        report = after.report()
        if not fixed.made:
            return report
        return report._replace(text=source.text, original=self.source.text, fixed=fixed.made)

    def with_source(self, source: SourceFile) -> CheckedFile:
        """The file with another text."""
        if source is self.source:
            return self
        job = job_of(source, self.job.dialect, self.job.release.version)
        if not self.commands:
            return self._replace(job=job)
        if self.of_commands is Dialect.MEGATRON:
            return self._replace(job=job, commands=file_types.commands_of(source, self.about.version))
        return self._replace(job=job, commands=file_types.multimodal_commands_of(source))

    def fixable(self, source: SourceFile) -> tuple[Diagnostic, ...]:
        """What is wrong with the file with another text and not old or ignored: what may be fixed."""
        return self.with_source(source).report().findings

    def report(self) -> FileReport:
        """What is found, and how it was checked."""
        selection, lists = self._selection(), (*self.settings.checklists, *self.run.request.checklists)
        profile, version = selection.profile or PROFILES[0], self.job.release.version
        if self.code is None:
            chosen = _choose_checks(lists, self.job.dialect, selection, version, profile)
        else:
            checks = _combined(self.code, lists)
            chosen = tuple(one for one in checks if _is_made(one, selection, self.job.dialect, version, profile))
        found = run_checks(chosen, self.job)
        if self.fragment:
            found = tuple(one for one in found if self.source.position(one.path) is not None)
        if self.code is None and any(one.fix and one.fix.safe for one in found) and not self._is_certain():
            found = self._where_certain(found, chosen, profile)
        if self.code is not None:
            found, chosen = self._with_parts(found, chosen, selection, profile)
        # That a check crashed is told, whatever is selected, ignored or old.
        broken = tuple(one for one in found if one.trace)
        findings, ignored = tuple(one for one in found if not one.trace), 0
        if _MARK in self.source.text:
            findings, ignored = self._without_ignored(findings, chosen, lists)
        if selection.severities:
            findings = tuple(one._replace(severity=selection.severity(one)) for one in findings)
        findings, baselined = tuple(one for one in findings if selection.takes(one)), 0
        if self.run.baseline is not None:
            findings, baselined = self.run.baseline.without(self.source.path, self.source.text, findings)
        return FileReport(
            path=self.source.path,
            text=self.source.text if findings or broken else "",
            release=self.about,
            findings=findings + broken,
            read_from=self.source.read_from,
            ignored=ignored,
            baselined=baselined,
            notes=self.notes,
        )

    def _selection(self) -> Selection:
        """Which checks are made, by the settings of the folder and the command line."""
        lists = (*self.settings.checklists, *self.run.request.checklists)
        _check_names(tuple(self.settings.selections.names()), lists, str(self.settings.file))
        _check_names(tuple(self.run.request.selection.names()), lists, "--select, --ignore")
        relative = Path(os.path.relpath(self.folder / self.source.path.name, self.settings.folder))
        return self.settings.selections.for_path(relative).and_then(self.run.request.selection)

    def _with_parts(
        self, found: tuple[Diagnostic, ...], chosen: tuple[Check, ...], selection: Selection, profile: str
    ) -> tuple[tuple[Diagnostic, ...], tuple[Check, ...]]:
        """What is found in code, with what is found in the programs that it starts and the variables that it sets; and the checks."""
        lists = (*self.settings.checklists, *self.run.request.checklists)
        dialect, version = self.job.dialect, self.job.release.version
        further: list[Iterable[Diagnostic]] = []
        if self.commands:
            made = _choose_checks(lists, self.of_commands, selection, self.about.version, profile)
            chosen += made
            of_command = partial(
                lint, dialect=self.of_commands, checks=made, version=self.about.version, profile=profile
            )
            further.append(file_types.findings_of(self.commands, of_command))
        variables = file_types.variables_of(self.source)
        if variables is not None:
            settings = _combined(built_in_code()[file_types.ENVIRONMENT], lists)
            made = tuple(one for one in settings if _is_made(one, selection, dialect, version, profile))
            made = tuple(one for one in made if one.name not in file_types.TOLD_IN_CODE)
            chosen += made
            further.append(lint(variables, dialect, made, version, profile))
        return (_together(found, further) if further else found), chosen

    def _without_ignored(
        self, findings: tuple[Diagnostic, ...], chosen: Iterable[Check], lists: tuple[Path, ...]
    ) -> tuple[tuple[Diagnostic, ...], int]:
        """What comments in the file do not ignore, and how much they do."""
        from ms_tune.lint.suppress import Surroundings, suppress  # noqa: PLC0415 - most files have no such comment

        source = self.source
        surroundings = Surroundings(
            names=known_names(_checks(lists, None)),
            made={check.id for check in chosen},
            region=lambda path: _region(source, path),
            quoted=source.quoted() if isinstance(source, CodeSource) else _quoted(source.text),
        )
        left = suppress(source.text, findings, surroundings)
        return left.findings, left.ignored

    def _is_certain(self) -> bool:
        """Whether the release is one that was named, or is installed."""
        named = self.run.request.framework_version or self.settings.version
        return named is not None or self.about.is_installed

    def _where_certain(
        self, found: tuple[Diagnostic, ...], checks: Iterable[Check], profile: str
    ) -> tuple[Diagnostic, ...]:
        from ms_tune.lint.fix import where_certain  # noqa: PLC0415 - seldom needed

        by_id = {check.id: check for check in checks}
        job = self.job

        def found_for(check: str, release: str) -> Iterator[KeyPath]:
            made = (one for one in (by_id[check],) if concerns(one, job.dialect, release, profile))
            return (one.path for one in run_checks(made, job.for_release(release)))

        return where_certain(found, found_for, [one for one in served(job.dialect) if one != job.release.version])


def _together(found: tuple[Diagnostic, ...], further: Iterable[Iterable[Diagnostic]]) -> tuple[Diagnostic, ...]:
    """All findings in the order of the text; what two commands of a script share is told once."""
    every = {
        (one.id, one.location, str(one.message)): one for one in (*found, *(one for more in further for one in more))
    }
    return tuple(sorted(every.values(), key=lambda finding: (finding.location.start, finding.id)))


@cache
def _checks(checklists: tuple[Path, ...], dialect: Dialect | None) -> tuple[Check, ...]:
    if dialect is not None:
        return _combined(built_in(dialect), checklists)
    code = (check for checks in built_in_code().values() for check in checks)
    return _combined((*built_in(), *code), checklists)


@cache
def _choose_checks(
    checklists: tuple[Path, ...], dialect: Dialect, selection: Selection, version: str, profile: str
) -> tuple[Check, ...]:
    """The checks that are made for a config: files of one folder have the same."""
    checks = _checks(checklists, dialect)
    return tuple(check for check in checks if _is_made(check, selection, dialect, version, profile))


def _is_made(check: Check, selection: Selection, dialect: Dialect, version: str, profile: str) -> bool:
    return concerns(check, dialect, version, profile) and selection.takes(check)


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
