"""Checks files: reads each, tells what it is, makes the checks that are selected for it, and fixes it if asked to."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.errors import ConfigError, MsTuneError, UnsupportedError
from ms_tune.facts.releases import Release, release_for
from ms_tune.job.detect import is_mostly_unknown
from ms_tune.job.job import Job
from ms_tune.lint import kinds
from ms_tune.lint.checklist import built_in_code
from ms_tune.lint.discover import STDIN, discover
from ms_tune.lint.engine import job_of
from ms_tune.lint.one_file import CheckedFile, outcome_of
from ms_tune.lint.report import LintReport, Skipped
from ms_tune.lint.request import FileOutcome, LintRequest, LintRun
from ms_tune.lint.settings import ProjectSettings, load_settings, settings_for
from ms_tune.lint.told import told
from ms_tune.source.yaml import decode, load_source, parse_source
from ms_tune.text import Message, msg

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.lint.discover import LintTarget
    from ms_tune.source.yaml import SourceFile

__all__ = ["FileOutcome", "LintRequest", "LintRun", "check_file", "check_files", "default_processes", "lint_files"]

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
    job = LintRun(request, given, baseline)
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


def _write(outcomes: list[FileOutcome], targets: Sequence[LintTarget], job: LintRun) -> Iterator[MsTuneError]:
    """Write the fixed files; yields what went wrong. What was not written has the findings that it had."""
    from ms_tune.source.atomic_write import write_back  # noqa: PLC0415 - seldom needed

    for position, outcome in enumerate(outcomes):
        report = outcome.report
        if report is not None and report.original is not None:
            try:
                write_back(report.path, report.original, report.text)
            except MsTuneError as error:
                yield error
                outcomes[position] = check_file(targets[position], job._replace(request=job.request._replace(fix=None)))


def check_files(targets: Sequence[LintTarget], job: LintRun) -> Iterator[FileOutcome]:
    """Check every file, in order, with several processes if that is worth it."""
    processes = job.request.processes or default_processes(len(targets))
    if processes <= 1 or len(targets) < _POOL_FROM:
        yield from _one_by_one(targets, job)
        return
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - slow to import, and seldom needed

    with ProcessPoolExecutor(min(processes, len(targets) // _CHUNK)) as pool:
        yield from pool.map(check_file, targets, [job] * len(targets), chunksize=_CHUNK)


def _one_by_one(targets: Sequence[LintTarget], job: LintRun) -> Iterator[FileOutcome]:
    """Check the files in this process, and look for rubbish after some of them only: hardly a file leaves any."""
    looking = gc.isenabled()
    gc.disable()
    try:
        for number, target in enumerate(targets):
            yield check_file(target, job)
            if number % _LOOKED_AFTER == _LOOKED_AFTER - 1:
                gc.collect()
                gc.freeze()  # what stays need not be looked through once more
    finally:
        if len(targets) >= _LOOKED_AFTER:
            gc.unfreeze()
        if looking:
            gc.enable()


def default_processes(files: int) -> int:
    """How many processes are worth it: none for few files, else every core that this process may use."""
    return 1 if files < _POOL_FROM else len(os.sched_getaffinity(0))


def check_file(target: LintTarget, job: LintRun) -> FileOutcome:
    """Check one file.

    No rubbish is looked for until it is checked: nearly all that is made is in use until then, and a look through it takes
    a seventh of the time of a large file. What a file leaves is found with a later one.
    """
    looking = gc.isenabled()
    gc.disable()
    try:
        return _checked(target, job)
    finally:
        if looking:
            gc.enable()


def _checked(target: LintTarget, job: LintRun) -> FileOutcome:
    """Check one file; what cannot be read is told or left out."""
    try:
        return _check(target, job)
    except MsTuneError as error:
        if target.named or not isinstance(error, ConfigError) or error.path != target.path:
            return FileOutcome(error=error)
        if _looks_like_a_config(target.path):
            return FileOutcome(error=error)
        return FileOutcome(skipped=Skipped(target.path, msg("lint.skipped.unreadable", reason=error.message)))


def _check_code(source: SourceFile, kind: str, job: LintRun, folder: Path) -> FileOutcome:
    # These checks are about MindSpore itself and hold whatever is trained with it, so any dialect will do.
    checks = kinds.checks_of(source, kind, built_in_code().get(kind, ()))
    settings = job.settings_in(folder)
    release = Release(kinds.FRAMEWORK, kinds.VERSION)
    named = job.request.framework_version or settings.version
    commands, about, notes = _programs(source, named) if kind == kinds.ENVIRONMENT else ((), release, ())
    release = about if commands else release
    read = job_of(source, Dialect.MINDFORMERS, kinds.VERSION)
    one = CheckedFile(read, release, job, settings, folder, checks, commands)
    multimodal = () if commands else kinds.multimodal_commands_of(source)
    if multimodal:
        about = _release_of_scripts(named, Dialect.MINDSPEED_MM) or release_for(Dialect.MINDSPEED_MM)
        one = one._replace(about=about, commands=multimodal, of_commands=Dialect.MINDSPEED_MM)
    return outcome_of(one, notes)


def _programs(source: SourceFile, named: str | None) -> tuple[tuple[SourceFile, ...], Release, tuple[Message, ...]]:
    """The programs of MindSpeed-LLM that a script starts, for which release, and what there is to say about that."""
    about = _release_of_scripts(named)
    notes: tuple[Message, ...] = ()
    if about is None:
        fitting, lies_in_it = kinds.release_of(source)
        about = release_for(Dialect.MEGATRON)
        if fitting != about.version:
            if not lies_in_it:
                notes = (msg("lint.script-release", file=source.path, release=fitting, default=about.version),)
            about = about._replace(version=fitting)
    commands = kinds.commands_of(source, about.version)
    if not commands:
        return (), about, ()
    own = kinds.parser_of_its_own(source)
    if own is not None:
        return (), about, (msg("lint.own-parser", file=source.path, parser=own),)
    known = kinds.with_known_layers()
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


def _check(target: LintTarget, run: LintRun) -> FileOutcome:
    given = target.path == STDIN
    path = (run.request.stdin_filename or STDIN) if given else target.path
    folder = Path.cwd() if path == STDIN else Path(os.path.abspath(path)).parent  # noqa: PTH100 - fast
    settings = run.settings_in(folder)
    kind = kinds.kind_of(path)
    if kind is not None:
        text = decode(run.request.stdin or b"", path) if given else None
        code = kinds.read(path, kind, named=target.named, text=text)
        if isinstance(code, Message):
            return _none_of_ours(target, code)
        return _check_code(code, kind, run, folder)
    source = parse_source(decode(run.request.stdin or b"", path), path) if given else load_source(path)
    read = Job(source, version=run.request.framework_version or settings.version)
    notes = [_not_followed(source.path, *one) for one in read.follow_bases()]
    firmly = run.request.dialect is not None or target.named
    as_what = told(read, run.request.dialect or settings.dialect, firmly=firmly)
    if as_what.dialect is None:
        return _not_recognised(target, as_what.reason or msg("lint.not-a-config"))
    read.dialect = as_what.dialect
    notes += as_what.notes
    try:
        release = read.release
    except UnsupportedError as error:
        if target.named:
            raise
        return FileOutcome(skipped=Skipped(target.path, error.message))  # what was asked for is about other files
    notes += [_not_followed(source.path, *one) for one in read.follow_model()]
    one = CheckedFile(read, release, run, settings, folder, fragment=as_what.fragment)
    fixable = run.request.fix is None or not is_mostly_unknown(read.whole.data, read.dialect)
    return outcome_of(one, notes, fixable=fixable)


def _not_followed(file: Path, what: str, error: ConfigError) -> Message:
    """What a config takes from another file that cannot be read."""
    where = f"{error.path}:{error.line}" if error.line else error.path
    return msg(f"lint.{what}", file=file, where=where, reason=error.message)


def _none_of_ours(target: LintTarget, message: Message) -> FileOutcome:
    """What becomes of a script or a program that MindSpore has nothing to do with."""
    return (
        FileOutcome(error=ConfigError(message, msg("lint.named-hint"), path=target.path))
        if target.named
        else FileOutcome(skipped=Skipped(target.path, message))
    )


def _not_recognised(target: LintTarget, message: Message) -> FileOutcome:
    if not target.named:
        return FileOutcome(skipped=Skipped(target.path, message))
    dialects = "|".join(dialect.value for dialect in YAML_DIALECTS)
    hint = msg("lint.dialect-hint", command=f"ms-tune lint {quote(str(target.path))}", dialects=dialects)
    return FileOutcome(error=ConfigError(message, hint, path=target.path))


def _looks_like_a_config(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return any(line.startswith(_CONFIG_LINES) for line in file.read(1024**2).splitlines())
    except OSError:
        return True
