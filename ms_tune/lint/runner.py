"""Check files: find and read them, recognise their kind, run the selected checks, and fix them if requested."""

from __future__ import annotations

import gc
import glob
import os
from _thread import start_new_thread  # threading is slow to import
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path

from ms_tune.diagnostics import Diagnostic, KeyPath, Severity
from ms_tune.dialects.mindspeed_mm import detect as multimodal
from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.errors import (
    ConfigError,
    DefectError,
    ForeignFileError,
    MsTuneError,
    UnsupportedError,
    UsageError,
    error_of_file,
    shell_line,
)
from ms_tune.facts.query import Release, served
from ms_tune.job import Job, ModelFile, no_model_config
from ms_tune.job.detect import count_keys, find_repository, is_fragment
from ms_tune.lint.baseline import Baseline, load_baseline
from ms_tune.lint.checklist import Check, Checklist, built_in, built_in_code, built_in_form, combined, read_checklist
from ms_tune.lint.engine import concerns, job_of, run_checks
from ms_tune.lint.fix import Gate, apply_fixes, restrict_fixes
from ms_tune.lint.result import FileReport, LintReport, LintRequest, Skipped
from ms_tune.lint.settings import (
    PROFILES,
    ProjectSettings,
    Selection,
    check_selectors,
    ids_by_name,
    load_settings,
    settings_for,
)
from ms_tune.lint.suppress import suppress
from ms_tune.records import Record
from ms_tune.source import SCRIPTS
from ms_tune.source.atomic_write import write_back
from ms_tune.source.files import read_bytes
from ms_tune.source.yaml import SourceFile, decode, load_source, parse_source
from ms_tune.text import Message, msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.lint.code_files import CodeFile

STDIN = Path("-")
MAX_FILES = 100_000
CODE = (".env", *SCRIPTS, ".py")
SUFFIXES = (".yaml", ".yml", "tools.json", *CODE)  # of JSON files, only the one with this name

_MAGIC = frozenset("*?[")  # characters that make a name a glob
SKIPPED_FOLDERS = ("__pycache__", "node_modules", "site-packages")
_POOL_FROM = 48  # fewer files are checked before a second process has started
_CHUNK = 16
_LOOKED_AFTER = 64  # the number of files after which this process collects garbage
_IGNORES = "ms-tune:"  # in every comment that ignores a finding
# An unreadable YAML file of a folder is a broken config if a line starts like this, else not a config.
_CONFIG_LINES = (
    *("parallel_config:", "runner_config:", "recompute_config:", "training_config:", "model_config:", "parallelism:"),
    "  fsdp_plan:",
)


class LintTarget(Record):
    """A file to check, and whether the user named it (not only its folder or a glob)."""

    path: Path
    named: bool


class LintRun(Record):
    """The settings of one run that apply to all files."""

    request: LintRequest = LintRequest()
    settings: ProjectSettings | None = None  # replaces the settings of the folders; None to search for them
    baseline: Baseline | None = None  # known findings


def lint_files(
    *files: str | Path,
    request: LintRequest | None = None,
    on_progress: Callable[[int, int], object] = lambda _done, _total: None,
) -> LintReport:
    """Check configs, training scripts and launch scripts; fix them if the request says so.

    An unreadable file does not stop the check of the others: it is in ``errors`` of the report.

    Args:
        files: Files, and folders to search; ``-`` is ``stdin`` of the request.
        request: The options; None for those of the settings files.
        on_progress: Receives the number of checked files and of all files.

    Raises:
        UsageError: A path, check or profile does not exist.
        ConfigError: The settings, a checklist or the baseline are invalid.

    Example::

        report = ms_tune.lint_files("configs/", request=LintRequest(selection=Selection(select=("MST4",))))
        errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    """
    request = request or LintRequest()
    _read_checklists.cache_clear()  # they may have changed since the last run
    named = None
    if request.settings is not True:
        file = request.settings
        named = (load_settings(file.absolute()) if isinstance(file, Path) else None) or ProjectSettings(
            None, Path.cwd()
        )
    settings = named or settings_for(Path.cwd())
    old, baseline = settings.baseline if request.baseline is True else request.baseline, None
    if old:
        baseline = load_baseline(old)
    run = LintRun(request, named, baseline)
    targets, skipped = discover(list(map(str, files)), named, trusted=not request.skip_unknown)
    outcomes = check_files(targets, run, on_progress)
    if request.environment:
        around = run.settings or settings_for(Path.cwd())
        checked = _load_code(None, None, LintTarget(STDIN, named=True), request, around)
        if isinstance(checked, CheckedFile):
            outcomes.append(_select_checks(checked, Path.cwd() / checked.job.original.path.name, run, around).report())
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
    """Write the fixed files and yield the errors. Files that were not written get their findings before the fixes."""
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
    """Expand files, folders, globs and ``-`` to files, each once and in the order given; also return the excluded ones.

    ``trusted`` if naming a file means that it must be checked; a pre-commit hook names every changed file.
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
            if around.exclude and around.matches_any(Path(key), around.exclude):
                skipped.append(Skipped(path, msg("lint.skipped.excluded")))
                continue
        targets[key] = LintTarget(path, named)
        if len(targets) > MAX_FILES:
            raise UsageError(msg("lint.too-many-files", limit=MAX_FILES))
    return list(targets.values()), skipped


def _find_files(names: Sequence[str]) -> Iterator[tuple[Path, bool]]:
    """Yield each file, and whether it is named itself."""
    for name in names:
        path = Path(name)
        if path == STDIN:
            yield STDIN, True
        elif path.is_dir():
            yield from _walk(path)
        elif not os.path.lexists(path) and _MAGIC & set(name):
            matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207 - the name may be absolute
            if not matches:
                raise UsageError(msg("lint.empty-glob", pattern=name))
            yield from ((match, False) for match in map(Path, matches) if not match.is_dir())
        else:
            yield path, True


def _walk(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the files of a folder by name, without links to folders, hidden folders and installed packages."""
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in SKIPPED_FOLDERS
            and not os.path.exists(os.path.join(here, name, "pyvenv.cfg"))  # noqa: PTH110, PTH118 - many folders
        )
        for name in sorted(files):
            if (name == ".env" or not name.startswith(".")) and name.endswith(SUFFIXES):
                path = Path(here, name)
                if path.is_file():  # not a pipe, on which reading would block
                    yield path, False


def _end_with_parent() -> None:
    """End this process of a pool when ms-tune is killed, however it was started: it would wait for files for ever."""
    from multiprocessing import parent_process  # noqa: PLC0415 - slow to import

    parent = parent_process()
    start_new_thread(lambda: (parent.join(), os._exit(1)), ())  # type: ignore[union-attr] # it has one


def check_files(
    targets: Sequence[LintTarget], run: LintRun, on_progress: Callable[[int, int], object] = lambda _done, _total: None
) -> list[FileReport | Skipped | MsTuneError]:
    """Check every file, in order, with several processes if that is faster.

    Garbage collection is off during a check: nearly all objects are in use until its end, and a collection takes 1/7 of the
    time for a large file.
    """
    if len(targets) >= _POOL_FROM and (processes := run.request.processes or len(os.sched_getaffinity(0))) > 1:
        from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - slow to import, and seldom needed

        alone = run._replace(request=run.request._replace(processes=1))
        chunks = [targets[start : start + _CHUNK] for start in range(0, len(targets), _CHUNK)]
        outcomes = []
        with ProcessPoolExecutor(min(processes, len(chunks)), initializer=_end_with_parent) as pool:
            for some in pool.map(check_files, chunks, [alone] * len(chunks)):
                outcomes += some
                on_progress(len(outcomes), len(targets))
        return outcomes
    collecting = gc.isenabled()
    gc.disable()
    outcomes = []
    try:
        for number, target in enumerate(targets):
            outcomes.append(check_file(target, run))
            on_progress(len(outcomes), len(targets))
            if number % _LOOKED_AFTER == _LOOKED_AFTER - 1:
                gc.collect()
                gc.freeze()  # no need to examine the remaining objects again
    finally:
        if len(targets) >= _LOOKED_AFTER:
            gc.unfreeze()
        if collecting:
            gc.enable()
    return outcomes


def check_file(target: LintTarget, run: LintRun) -> FileReport | Skipped | MsTuneError:
    """Check one file; an unreadable one is an error, or skipped if the user did not name it."""
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
    except Exception as raised:  # noqa: BLE001 - one file must not hide the findings in others
        error = error_of_file(raised, path)
        other = isinstance(error, ConfigError) and error.path == path and not target.named
        if not other or isinstance(error, DefectError) or looks_like_a_config(path, run.request.stdin):
            return error
        return Skipped(path, msg("lint.skipped.unreadable", reason=error.message))


def is_code(path: Path) -> bool:
    """Return whether a file is not a config, by its name."""
    return path.suffix in CODE or path.name == ".env"


def _load_config(
    path: Path, text: str | None, target: LintTarget, request: LintRequest, settings: ProjectSettings
) -> CheckedFile | Skipped:
    """Return a config with its job, or the reason to skip a file that the user did not name."""
    job = request.job or Job(load_source(path) if text is None else parse_source(text, path))
    job.version = request.framework_version or settings.version
    notes = [_note_unread_file(path, *one) for one in job.follow_bases()]
    is_firm = request.dialect is not None or target.named
    dialect = _choose_dialect(job, request.dialect or settings.dialect, notes, is_firm=is_firm)
    if isinstance(dialect, Message):
        dialects = "|".join(one.value for one in YAML_DIALECTS)
        return _leave_out(target, dialect, "lint.dialect-hint", dialects=dialects)
    job.dialect = dialect
    if request.model_config is not None and _takes_sizes(job, target):
        job.sizes_from = ModelFile(request.model_config)
    is_part = dialect in YAML_DIALECTS and is_fragment(job.merged.data, dialect)
    if is_part:
        notes.append(msg("lint.fragment", file=path, dialect=dialect.value))
    try:
        release = job.release
    except UnsupportedError as error:
        if target.named:
            raise
        return Skipped(target.path, error.message)  # the requested version is of another framework
    notes += [_note_unread_file(path, *one) for one in job.follow_model()]
    outdated = job.outdated_because
    if outdated is not None:
        # The note about a checkout is shown once, because it names no file.
        where = job.checkout.root if job.checkout is not None and job.release_around is not None else path
        notes.append(msg("lint.outdated", where=where, reason=outdated, served=served(dialect)[0]))
    elif job.release_around is not None and job.checkout is not None and release.version not in job.release_around[1]:
        params = {"folder": job.checkout.root, "framework": release.framework, "own": job.release_around[1]}
        notes.append(msg("lint.checkout-release", **params, release=release.version))
    is_certain = job.version is not None or release.is_installed
    root, package = (None if target.named else find_repository(path)) or (path, None)
    is_test = package is not None and path.absolute().is_relative_to(root / "tests")
    return CheckedFile(
        job, release, tuple(notes), is_part=is_part, is_certain=is_certain, is_outdated=bool(outdated), is_test=is_test
    )


def _takes_sizes(job: Job, target: LintTarget) -> bool:
    """Return whether a config reads the ``config.json`` of its model; UsageError if the user named one that does not."""
    if target.named and not job.reads_model_config:
        raise no_model_config(job.original.path)
    return job.reads_model_config


def _choose_dialect(job: Job, named: Dialect | None, notes: list[Message], *, is_firm: bool) -> Dialect | Message:
    """Return the dialect to check a config as, or a message why it is not checked; append remarks to ``notes``.

    A named dialect also applies to files of other programs if ``is_firm``.
    """
    found, values, path = job.recognition, job.merged.data, job.original.path
    if named in (None, Dialect.MINDSPEED_MM) and found.dialect is None:
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
    if is_believed and found.why_not is not None and found.dialect is not dialect:
        notes.append(msg("lint.overruled", file=path, reason=found.why_not, dialect=dialect.value))
    return dialect


def _load_code(
    path: Path | None, text: str | None, target: LintTarget, request: LintRequest, settings: ProjectSettings
) -> CheckedFile | Skipped:
    """Return environment settings (without a path: of this process), a script or Python code, or the reason to skip it."""
    from ms_tune.lint.code_files import load_code  # noqa: PLC0415 - slow imports

    if path is not None and target.named and request.model_config is not None:
        raise no_model_config(path)
    version = request.framework_version or settings.version
    code = load_code(path, text, named=target.named, version=version)
    if isinstance(code, Message):
        return _leave_out(target, code, "lint.named-hint")
    return CheckedFile(code.job, code.release, code.notes, code)


def _leave_out(target: LintTarget, message: Message, hint: str, **params: str) -> Skipped:
    """Return the reason to skip a file that has nothing to do with MindSpore; an error if the user named it."""
    if not target.named:
        return Skipped(target.path, message)
    command = shell_line("ms-tune", "lint", str(target.path))
    raise ForeignFileError(message, msg(hint, command=command, **params), path=target.path)


def _note_unread_file(file: Path, what: str, error: ConfigError) -> Message:
    """Return the note about another file that the config needs, but that cannot be read."""
    where = f"{error.path}:{error.line}" if error.line else error.path
    return msg(f"lint.{what}", file=file, where=where, reason=error.message)


def looks_like_a_config(path: Path, content: bytes | None = None) -> bool:
    """Return whether a file (or its ``content``) that is not valid YAML has a section of a training config."""
    try:
        start = read_bytes(path, 1024**2) if content is None else content[: 1024**2]
    except OSError:
        return True
    return any(line.startswith(_CONFIG_LINES) for line in start.decode("utf-8", "replace").splitlines())


class CheckedFile(Record):
    """A file with the checks that are selected for it."""

    job: Job
    release: Release  # the release to check for
    notes: tuple[Message, ...]  # remarks for the user about how it was read
    code: CodeFile | None = None  # the prepared file, if it is not a config
    is_part: bool = False  # whether it is only a part of a config, in which nothing counts as missing
    is_certain: bool = False  # whether the release was named or is installed
    is_outdated: bool = False  # whether all supported releases are later, so that nothing is known about its settings
    is_test: bool = False  # whether a framework's own tests read it, which build only parts of it or expect an error
    selection: Selection = Selection()
    checklists: tuple[Checklist, ...] = ()  # the users' own
    baseline: Baseline | None = None  # known findings

    def report(self) -> FileReport:
        """Run the checks and return the findings."""
        job, source, selection = self.job, self.job.without_base.source, self.selection
        choose = partial(choose_checks, selection=selection, checklists=self.checklists)
        if self.code is not None:
            found, chosen = self.code.find(choose)
        else:
            checks = built_in_form() if self.is_outdated else built_in(job.dialect)
            chosen = choose(checks, job.dialect, job.release.version)
            found = run_checks(chosen, job)
            if self.is_part:
                found = tuple(one for one in found if source.position(one.path) is not None)
            if not (self.is_certain or self.is_outdated) and any(one.fix and one.fix.safe for one in found):
                found = self._restrict_fixes(found, chosen)
        # Always report that a check crashed, even if it is not selected, ignored or in the baseline.
        broken = tuple([one for one in found if one.trace])
        findings, ignored, baselined = tuple([one for one in found if not one.trace]), 0, 0
        if self.is_test:
            mild = {Severity.ERROR: Severity.WARNING}
            findings = tuple(one._replace(severity=mild.get(one.severity, one.severity)) for one in findings)
        if _IGNORES in source.text:
            names = ids_by_name(_all_checks(self.checklists))
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
        """Fix the file as requested and return the findings after it."""
        source = self.job.without_base.source
        has_keys = self.code is None and self.job.dialect in YAML_DIALECTS
        known, unknown = count_keys(self.job.merged.data, self.job.dialect) if has_keys else (0, 0)
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
        gone = max(fixed.made, len(self.report().findings) - len(report.findings))  # one change may remove several
        return report._replace(text=fixed_source.text, original=source.text, fixed=gone, fixes=fixed.titles)

    def with_source(self, source: SourceFile) -> CheckedFile:
        """Return the file with another text."""
        if source is self.job.without_base.source:
            return self
        if self.code is None:
            return self._replace(job=job_of(source, self.job.dialect, self.job.release.version))
        code = self.code.with_source(source)
        return self._replace(job=code.job, code=code)

    def fixable(self, source: SourceFile) -> tuple[Diagnostic, ...]:
        """Return the findings in another text of the file that may be fixed: not ignored, and not in the baseline."""
        return self.with_source(source).report().findings

    def _restrict_fixes(self, found: tuple[Diagnostic, ...], checks: Iterable[Check]) -> tuple[Diagnostic, ...]:
        by_id, job = {check.id: check for check in checks}, self.job
        profile = self.selection.profile or PROFILES[0]

        def find_paths(check: str, release: str) -> Iterator[KeyPath]:
            made = (one for one in (by_id[check],) if concerns(one, job.dialect, release, profile))
            return (one.path for one in run_checks(made, job.for_release(release)))

        return restrict_fixes(found, find_paths, [one for one in served(job.dialect) if one != job.release.version])


def _select_checks(file: CheckedFile, path: Path, run: LintRun, settings: ProjectSettings) -> CheckedFile:
    """Add the selection of checks by the settings of the file's folder and the command line."""
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
    """Select checks from built-in ones and users' own checklists; cached, because the files of one folder share them."""
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
