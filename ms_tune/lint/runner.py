"""Checks files: finds them, reads each, tells what it is, makes the checks that are selected for it, and fixes it if asked to."""

from __future__ import annotations

import gc
import os
from functools import cache, partial
from pathlib import Path

from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.errors import ConfigError, MsTuneError, UnsupportedError, UsageError
from ms_tune.facts.query import Release, served
from ms_tune.job import Job
from ms_tune.job.detect import count_keys, is_fragment
from ms_tune.lint.checklist import built_in, built_in_code, combined, read_checklist
from ms_tune.lint.engine import concerns, job_of, run_checks
from ms_tune.lint.result import FileReport, LintReport, LintRequest, Skipped
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
from ms_tune.source import SCRIPTS
from ms_tune.source.yaml import decode, load_source, parse_source
from ms_tune.text import Message, msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ms_tune.diagnostics import Diagnostic, KeyPath
    from ms_tune.lint.baseline import Baseline
    from ms_tune.lint.checklist import Check, Checklist
    from ms_tune.lint.code_files import CodeFile
    from ms_tune.source.yaml import SourceFile

STDIN = Path("-")
MAX_FILES = 100_000
CODE = (".env", *SCRIPTS, ".py")
SUFFIXES = (".yaml", ".yml", "tools.json", *CODE)  # of JSON files, only the one that is told by its name

_MAGIC = frozenset("*?[")  # what makes a name a glob
_SKIPPED_FOLDERS = ("__pycache__", "node_modules", "site-packages")
_POOL_FROM = 48  # fewer files are checked faster than a second process starts
_CHUNK = 16
_LOOKED_AFTER = 64  # files, after which this process looks for rubbish
_IGNORES = "ms-tune:"  # in every comment that ignores something
# A YAML file of a folder that cannot be read is a broken config if a line starts like one, else somebody else's.
_CONFIG_LINES = (
    *("parallel_config:", "runner_config:", "recompute_config:", "training_config:", "model_config:", "parallelism:"),
    "  fsdp_plan:",
)


class LintTarget(Record):
    """A file to check, and whether the user named it (or else a folder or a glob)."""

    path: Path
    named: bool


class LintRun(Record):
    """What holds for all files of one run."""

    request: LintRequest = LintRequest()
    settings: ProjectSettings | None = None  # these in place of what the folders hold; None to look for them
    baseline: Baseline | None = None  # old findings


def lint_files(*files: str | Path, request: LintRequest | None = None) -> LintReport:
    """Check configs, training scripts and launch scripts; fix them if the request says so.

    A file that cannot be read does not keep the others from being checked: it is among ``errors`` of the report.

    Args:
        files: Files, and folders in which to look for them; ``-`` is ``stdin`` of the request.
        request: How to check; None for what the settings files say.

    Raises:
        UsageError: A path, a check or a profile that there is not.
        ConfigError: The settings, a checklist or the baseline are wrong.

    Example::

        report = ms_tune.lint_files("configs/", request=LintRequest(selection=Selection(select=("MST4",))))
        errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    """
    request = request or LintRequest()
    _read_checklists.cache_clear()  # which may have changed since the last run
    named = None
    if request.settings is not True:
        file = request.settings
        named = (load_settings(file.absolute()) if isinstance(file, Path) else None) or ProjectSettings(
            None, Path.cwd()
        )
    settings = named or settings_for(Path.cwd())
    old, baseline = settings.baseline if request.baseline is True else request.baseline, None
    if old:
        from ms_tune.lint.baseline import load_baseline  # noqa: PLC0415 - seldom needed

        baseline = load_baseline(old)
    run = LintRun(request, named, baseline)
    targets, skipped = discover(list(map(str, files)), named, trusted=not request.skip_unknown)
    outcomes = check_files(targets, run)
    if request.environment:
        from ms_tune.lint.code_files import load_process_environment  # noqa: PLC0415 - as above

        code, folder = load_process_environment(), Path.cwd()
        checked = CheckedFile(code.job, code.release, code.notes, code)
        around = run.settings or settings_for(folder)
        outcomes.append(_select_checks(checked, folder / code.job.written.path.name, run, around).report())
    unreadable = tuple([one for one in outcomes if isinstance(one, MsTuneError)])
    unwritten = tuple(_write_files(outcomes, targets, run)) if request.write else ()
    return LintReport(
        files=tuple([one for one in outcomes if isinstance(one, FileReport)]),
        unreadable=unreadable,
        unwritten=unwritten,
        skipped=(*skipped, *[one for one in outcomes if isinstance(one, Skipped)]),
        settings=settings,
    )


def _write_files(
    outcomes: list[FileReport | Skipped | MsTuneError], targets: Sequence[LintTarget], run: LintRun
) -> Iterator[MsTuneError]:
    """Write the fixed files; yields what went wrong. What was not written has the findings that it had."""
    from ms_tune.source.atomic_write import write_back  # noqa: PLC0415 - seldom needed

    for position, report in enumerate(outcomes):
        if isinstance(report, FileReport) and report.original is not None:
            try:
                write_back(report.path, report.original, report.text)
            except MsTuneError as error:
                yield error
                outcomes[position] = check_file(targets[position], run._replace(request=run.request._replace(fix=None)))


def discover(
    names: Sequence[str], settings: ProjectSettings | None, *, trusted: bool = True
) -> tuple[list[LintTarget], list[Skipped]]:
    """The files behind files, folders, globs and ``-``, each once, in the order of their naming; and those that are left out.

    Args:
        names: What the user named.
        settings: The settings that hold in all folders; None to look for them.
        trusted: Whether a file is meant because it is named; a hook names every file that was touched.

    Raises:
        UsageError: A glob fits nothing, or there are too many files.
    """
    targets: dict[str, LintTarget] = {}
    skipped: list[Skipped] = []
    for path, is_named in _find_files(names):
        named = is_named and trusted
        key = os.path.abspath(path)  # noqa: PTH100 - half the time of pathlib's
        if key in targets and not named:
            continue
        if not named and path != STDIN:
            around = settings or settings_for(Path(key).parent)
            if around.exclude and around.fits_one(Path(key), around.exclude):
                skipped.append(Skipped(path, msg("lint.skipped.excluded")))
                continue
        targets[key] = LintTarget(path, named)
        if len(targets) > MAX_FILES:
            raise UsageError(msg("lint.too-many-files", limit=MAX_FILES))
    return list(targets.values()), skipped


def _find_files(names: Sequence[str]) -> Iterator[tuple[Path, bool]]:
    """Each file, and whether it is named itself."""
    for name in names:
        path = Path(name)
        if path == STDIN:
            yield STDIN, True
        elif path.is_dir():
            yield from _walk(path)
        elif not os.path.lexists(path) and _MAGIC & set(name):
            import glob  # noqa: PLC0415 - start-up time

            matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207 - the name may be absolute
            if not matches:
                raise UsageError(msg("lint.empty-glob", pattern=name))
            yield from ((match, False) for match in map(Path, matches) if not match.is_dir())
        else:
            yield path, True


def _walk(folder: Path) -> Iterator[tuple[Path, bool]]:
    """The files of a folder by name; links to folders are not followed, hidden and installed things are left out."""
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED_FOLDERS
            and not os.path.exists(os.path.join(here, name, "pyvenv.cfg"))  # noqa: PTH110, PTH118 - many folders
        )
        for name in sorted(files):
            if (name == ".env" or not name.startswith(".")) and name.endswith(SUFFIXES):
                path = Path(here, name)
                if path.is_file():  # no pipe, which would be waited for
                    yield path, False


def check_files(targets: Sequence[LintTarget], run: LintRun) -> list[FileReport | Skipped | MsTuneError]:
    """Check every file, in order, with several processes if that is worth it.

    No rubbish is looked for while a file is checked: nearly all that is made is in use until then, and a look through it takes a
    seventh of the time of a large file.
    """
    if len(targets) >= _POOL_FROM and (processes := run.request.processes or len(os.sched_getaffinity(0))) > 1:
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


def check_file(target: LintTarget, run: LintRun) -> FileReport | Skipped | MsTuneError:
    """Check one file; what cannot be read is told, or left out where the user did not name it."""
    path = (run.request.stdin_filename or STDIN) if target.path == STDIN else target.path
    try:
        text = decode(run.request.stdin or b"", path) if target.path == STDIN else None
        folder = Path.cwd() if path == STDIN else Path(os.path.abspath(path)).parent  # noqa: PTH100 - fast
        settings = run.settings or settings_for(folder)
        file = (_load_code if is_code(path) else _load_config)(path, text, target, run.request, settings)
        if isinstance(file, Skipped):
            return file
        file = _select_checks(file, folder / path.name, run, settings)
        return file.report() if run.request.fix is None else file.fix(unsafe=run.request.fix == "unsafe")
    except MsTuneError as error:
        other = isinstance(error, ConfigError) and error.path == target.path and not target.named
        if not other or _looks_like_a_config(target.path):
            return error
        return Skipped(target.path, msg("lint.skipped.unreadable", reason=error.message))


def is_code(path: Path) -> bool:
    """Whether a file is no config, by its name."""
    return path.suffix in CODE or path.name == ".env"


def _load_config(
    path: Path, text: str | None, target: LintTarget, request: LintRequest, settings: ProjectSettings
) -> CheckedFile | Skipped:
    """The job of a config; why it is left out, of a file that the user did not name."""
    job = request.job or Job(load_source(path) if text is None else parse_source(text, path))
    job.version = request.framework_version or settings.version
    notes = [_not_followed(path, *one) for one in job.follow_bases()]
    is_firm = request.dialect is not None or target.named
    dialect = _choose_dialect(job, request.dialect or settings.dialect, notes, is_firm=is_firm)
    if isinstance(dialect, Message):
        dialects = "|".join(one.value for one in YAML_DIALECTS)
        return _leave_out(target, dialect, "lint.dialect-hint", dialects=dialects)
    job.dialect = dialect
    is_part = dialect in YAML_DIALECTS and is_fragment(job.whole.data, dialect)
    if is_part:
        notes.append(msg("lint.fragment", file=path, dialect=dialect.value))
    try:
        release = job.release
    except UnsupportedError as error:
        if target.named:
            raise
        return Skipped(target.path, error.message)  # what was asked for is about other files
    notes += [_not_followed(path, *one) for one in job.follow_model()]
    if job.release_around is not None and job.checkout is not None and release.version not in job.release_around[1]:
        params = {"folder": job.checkout.root, "framework": release.framework, "own": job.release_around[1]}
        notes.append(msg("lint.checkout-release", **params, release=release.version))
    is_certain = job.version is not None or release.is_installed
    return CheckedFile(job, release, tuple(notes), is_part=is_part, is_certain=is_certain)


def _choose_dialect(job: Job, named: Dialect | None, notes: list[Message], *, is_firm: bool) -> Dialect | Message:
    """What a config is checked as, or why it is not; what there is to say about that goes to the notes.

    A dialect that is named holds for files of other programs, too, if it is meant firmly.
    """
    found, values, path = job.recognition, job.whole.data, job.written.path
    if named in (None, Dialect.MINDSPEED_MM) and found.dialect is None:
        from ms_tune.dialects.mindspeed_mm import detect as multimodal  # noqa: PLC0415 - start-up time

        is_fsdp2 = multimodal.is_config(values) and found.foreign in (None, Dialect.MINDSPEED_MM.value)
        if is_fsdp2 or multimodal.is_tools(values):
            return Dialect.MINDSPEED_MM
    if named is Dialect.MINDSPEED_MM:
        return msg("lint.not-multimodal")
    is_believed = named is not None and (found.foreign is None or is_firm)
    dialect = named if is_believed else found.dialect
    if dialect is None:
        unknown, why_not = msg("lint.ambiguous" if found.evidence else "lint.not-a-config"), found.why_not
        return msg("lint.not-checked", reason=why_not) if why_not else unknown
    if not is_believed and not found.confident:
        notes.append(msg("lint.unsure", file=path, dialect=dialect.value))
    if is_believed and found.why_not is not None:
        notes.append(msg("lint.overruled", file=path, reason=found.why_not, dialect=dialect.value))
    return dialect


def _load_code(
    path: Path, text: str | None, target: LintTarget, request: LintRequest, settings: ProjectSettings
) -> CheckedFile | Skipped:
    """Environment settings, a launch script or Python code likewise."""
    from ms_tune.lint.code_files import load_code  # noqa: PLC0415 - shells, programs and Python are much to import

    version = request.framework_version or settings.version
    code = load_code(path, text, named=target.named, version=version)
    if isinstance(code, Message):
        return _leave_out(target, code, "lint.named-hint")
    return CheckedFile(code.job, code.release, code.notes, code)


def _leave_out(target: LintTarget, message: Message, hint: str, **params: str) -> Skipped:
    """A file that MindSpore has nothing to do with.

    Raises:
        ConfigError: The user named it.
    """
    if not target.named:
        return Skipped(target.path, message)
    import shlex  # noqa: PLC0415 - start-up time

    command = f"ms-tune lint {shlex.quote(str(target.path))}"
    raise ConfigError(message, msg(hint, command=command, **params), path=target.path)


def _not_followed(file: Path, what: str, error: ConfigError) -> Message:
    """What a config takes from another file that cannot be read."""
    where = f"{error.path}:{error.line}" if error.line else error.path
    return msg(f"lint.{what}", file=file, where=where, reason=error.message)


def _looks_like_a_config(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return any(line.startswith(_CONFIG_LINES) for line in file.read(1024**2).splitlines())
    except OSError:
        return True


class CheckedFile(Record):
    """A file with the checks that are selected for it."""

    job: Job
    release: Release  # that it is checked for
    notes: tuple[Message, ...]  # what the user should know about how it was read
    code: CodeFile | None = None  # what it is, if it is no config
    is_part: bool = False  # whether it is a part of a config, of which nothing is missed
    is_certain: bool = False  # whether the release is one that was named, or is installed
    selection: Selection = Selection()
    checklists: tuple[Checklist, ...] = ()  # of users' own
    baseline: Baseline | None = None  # old findings

    def report(self) -> FileReport:
        """What is found, and how it was checked."""
        job, source, selection = self.job, self.job.alone.source, self.selection
        choose = partial(choose_checks, selection=selection, checklists=self.checklists)
        if self.code is not None:
            found, chosen = self.code.find(choose)
        else:
            chosen = choose(built_in(job.dialect), job.dialect, job.release.version)
            found = run_checks(chosen, job)
            if self.is_part:
                found = tuple(one for one in found if source.position(one.path) is not None)
            if not self.is_certain and any(one.fix and one.fix.safe for one in found):
                found = self._fix_where_certain(found, chosen)
        # That a check crashed is told, whatever is selected, ignored or old.
        broken = tuple([one for one in found if one.trace])
        findings, ignored, baselined = tuple([one for one in found if not one.trace]), 0, 0
        if _IGNORES in source.text:
            from ms_tune.lint.suppress import suppress  # noqa: PLC0415 - most files have no such comment

            names = known_names(_all_checks(self.checklists))
            findings, ignored = suppress(source, findings, names, {check.id for check in chosen})
        if selection.severities:
            findings = tuple(one._replace(severity=selection.severity(one)) for one in findings)
        findings = selection.choose(findings)
        if self.baseline is not None:
            findings, baselined = self.baseline.without(source.path, source.text, findings)
        return FileReport(
            path=source.path,
            text=source.text if findings or broken else "",
            release=self.release,
            findings=findings + broken,
            read_from=source.read_from,
            ignored=ignored,
            baselined=baselined,
            notes=self.notes,
        )

    def fix(self, *, unsafe: bool) -> FileReport:
        """What is found in the file after the fixes that are asked for."""
        from ms_tune.lint.fix import Gate, apply_fixes  # noqa: PLC0415 - seldom asked for

        source = self.job.alone.source
        known, unknown = (0, 0) if self.code else count_keys(self.job.whole.data, self.job.dialect)
        if known < unknown:
            never = msg("lint.never-fixed", file=source.path, dialect=self.job.dialect.value)
            return self._replace(notes=(*self.notes, never)).report()
        gate = Gate(lambda text: self.with_source(text).job, self.fixable)
        fixed_source, fixed = apply_fixes(source, self.fixable, unsafe=unsafe, admits=gate.admits)
        after = self.with_source(fixed_source)
        if fixed.refused:
            refused = msg("lint.refused-fixes", file=source.path, count=fixed.refused)
            after = after._replace(notes=(*self.notes, refused))
        report = after.report()
        if not fixed.made:
            return report
        return report._replace(text=fixed_source.text, original=source.text, fixed=fixed.made, fixes=fixed.titles)

    def with_source(self, source: SourceFile) -> CheckedFile:
        """The file with another text."""
        if source is self.job.alone.source:
            return self
        if self.code is None:
            return self._replace(job=job_of(source, self.job.dialect, self.job.release.version))
        code = self.code.with_source(source)
        return self._replace(job=code.job, code=code)

    def fixable(self, source: SourceFile) -> tuple[Diagnostic, ...]:
        """What is wrong with the file with another text and not old or ignored: what may be fixed."""
        return self.with_source(source).report().findings

    def _fix_where_certain(self, found: tuple[Diagnostic, ...], checks: Iterable[Check]) -> tuple[Diagnostic, ...]:
        from ms_tune.lint.fix import where_certain  # noqa: PLC0415 - seldom needed

        by_id, job = {check.id: check for check in checks}, self.job
        profile = self.selection.profile or PROFILES[0]

        def found_for(check: str, release: str) -> Iterator[KeyPath]:
            made = (one for one in (by_id[check],) if concerns(one, job.dialect, release, profile))
            return (one.path for one in run_checks(made, job.for_release(release)))

        return where_certain(found, found_for, [one for one in served(job.dialect) if one != job.release.version])


def _select_checks(file: CheckedFile, path: Path, run: LintRun, settings: ProjectSettings) -> CheckedFile:
    """A file with what is selected for it by the settings of its folder and by the command line."""
    files = (*settings.checklists, *run.request.checklists)
    checklists = _read_checklists(files) if files else ()
    for names, origin in ((settings.names, str(settings.file)), (run.request.selection.names, "--select, --ignore")):
        if names:
            _refuse_unknown(names, checklists, origin)
    selection = run.request.selection
    if settings.file is not None:
        selection = settings.selection_for(path).and_then(selection)
    return file._replace(selection=selection, checklists=checklists, baseline=run.baseline)


@cache
def _refuse_unknown(names: tuple[str, ...], checklists: tuple[Checklist, ...], origin: str) -> None:
    check_selectors(names, _all_checks(checklists), origin)


@cache
def choose_checks(
    checks: tuple[Check, ...], dialect: Dialect, version: str, selection: Selection, checklists: tuple[Checklist, ...]
) -> tuple[Check, ...]:
    """Of some checks, and those of users' own checklists, the ones that are made: files of one folder have the same."""
    checks = combined(checks, checklists) if checklists else checks
    profile = selection.profile or PROFILES[0]
    return selection.choose([one for one in checks if concerns(one, dialect, version, profile)])


@cache
def _all_checks(checklists: tuple[Checklist, ...]) -> tuple[Check, ...]:
    code = (check for checks in built_in_code().values() for check in checks)
    return combined((*built_in(), *code), checklists)


@cache
def _read_checklists(files: tuple[Path, ...]) -> tuple[Checklist, ...]:
    return tuple(map(read_checklist, files))
