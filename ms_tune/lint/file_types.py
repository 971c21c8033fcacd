"""The files that are checked, and what each of them is: a config of some dialect, environment settings or Python training code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.enums import Dialect
from ms_tune.errors import UsageError
from ms_tune.facts.mindspeed_mm import is_config, is_tools
from ms_tune.facts.releases import default_release
from ms_tune.job.detect import is_fragment
from ms_tune.lint.result import Skipped
from ms_tune.lint.settings import path_matches
from ms_tune.records import Record
from ms_tune.source import SCRIPTS
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ms_tune.diagnostics import Diagnostic
    from ms_tune.job.detect import Recognition
    from ms_tune.job.job import Job
    from ms_tune.job.script import ScriptJob
    from ms_tune.lint.checklist import Check
    from ms_tune.lint.environment import Environment
    from ms_tune.lint.settings import ProjectSettings
    from ms_tune.source.yaml import SourceFile
    from ms_tune.text import Message

ENVIRONMENT, PYTHON = "environment", "python"  # as their checklists are called
LANGUAGES = {ENVIRONMENT: "sh", PYTHON: "python"}  # what the examples of their checks are written in
CODE_SUFFIXES = (".env", *SCRIPTS, ".py")
FRAMEWORK = "MindSpore"
VERSION = "2.9"  # the newest that the checks were verified with

_ENV_FILE = ".env"
# The checks that ask nothing of MindSpore.
_OF_ANY_SCRIPT = (
    *("script-not-readable", "program-unknown"),
    *("environment-variable-misspelt", "environment-value-out-of-range"),
)
_WORDS = (b"mindspore", b"msadapter")  # a Python file without any of them is not parsed
_NOT_ONE = {ENVIRONMENT: "lint.not-an-environment", PYTHON: "lint.not-training-code"}


def kind_of(path: Path) -> str | None:
    """The kind of a file, by its name; None for what may be a config."""
    if path.suffix in (_ENV_FILE, *SCRIPTS) or path.name == _ENV_FILE:
        return ENVIRONMENT
    return PYTHON if path.suffix == ".py" else None


def read(path: Path, kind: str, *, named: bool, text: str | None = None) -> SourceFile | Message:
    """A file of a kind in the form that checks look at, or why a file is none of ours.

    Args:
        path: The file.
        kind: Its kind.
        named: Whether the user named it.
        text: What it holds; None to read it.

    Raises:
        ConfigError: The file cannot be read.
    """
    from ms_tune.text import msg  # noqa: PLC0415 - few files are of these kinds

    none_of_ours = msg(_NOT_ONE[kind])
    if kind == PYTHON:
        if text is None and not named and not any(word in path.read_bytes() for word in _WORDS):
            return none_of_ours
        from ms_tune.lint.python_code import parse_python, read_python, uses_mindspore  # noqa: PLC0415 - as above

        source = read_python(path) if text is None else parse_python(text, path)
        return source if uses_mindspore(source) else none_of_ours
    from ms_tune.lint import environment as room  # noqa: PLC0415 - as above

    settings = _ENV_FILE in (path.suffix, path.name)
    if text is None:
        environment = room.read_env_file(path) if settings else room.read_shell(path)
    else:
        environment = room.parse_env(text, path) if settings else room.parse_shell(text, path)
    script = environment.source()
    ours = commands_of(script, default_release(Dialect.MEGATRON)) or multimodal_commands_of(script)
    if _is_pytorch(script) and not ours:
        return msg("lint.pytorch-script")
    return script if named or ours or _is_ours(environment) or _starts_training(script) else none_of_ours


def checks_of(source: SourceFile, kind: str, checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """Of the checks of a kind those that are made for a file: of a PyTorch script MindSpore's are not."""
    if kind != ENVIRONMENT or not _is_pytorch(source):
        return checks
    return tuple(check for check in checks if check.name in _OF_ANY_SCRIPT)


def _is_pytorch(source: SourceFile) -> bool:
    """Whether a file is a script that starts PyTorch programs."""
    script = _script_in(source)
    if script is None:
        return False
    from ms_tune.dialects.megatron.detect import is_pytorch  # noqa: PLC0415 - as above

    return is_pytorch(source.text) and bool(script.launches.launches)


def process_environment() -> SourceFile:
    """The settings of the process that ms-tune runs in, in the form that checks look at."""
    import os  # noqa: PLC0415 - as above

    from ms_tune.lint.environment import from_process  # noqa: PLC0415 - as above

    return from_process(os.environ).source()


def _is_ours(environment: Environment) -> bool:
    """Whether a variable of MindSpore's is set."""
    from ms_tune.lint.environment.variables import KNOWN  # noqa: PLC0415 - as above

    return any(one.name in KNOWN for one in environment.assignments)


def _starts_training(source: SourceFile) -> bool:
    """Whether a file is a script that starts something with MindSpore's launcher."""
    script = _script_in(source)
    return script is not None and any(one.launcher.name == "msrun" for one in script.launches.launches)


def _script_in(source: SourceFile) -> ScriptJob | None:
    """What a shell makes of a file; None if it is no script."""
    from ms_tune.lint.environment.settings import EnvironmentSource  # noqa: PLC0415 - as above

    return source.script if isinstance(source, EnvironmentSource) else None


# What checks of code tell in words of their own about a variable that is set there.
TOLD_IN_CODE = frozenset(("setting-without-colon", "memory-tracker-on"))


def variables_of(source: SourceFile) -> SourceFile | None:
    """The environment variables that a Python file sets, in the form that checks look at; None if there are none."""
    if source.path.suffix != ".py" or ("environ" not in source.text and "putenv" not in source.text):
        return None
    from ms_tune.lint.python_code.variables import variables_in  # noqa: PLC0415 - as above

    return variables_in(source)


def commands_of(source: SourceFile, release: str) -> tuple[SourceFile, ...]:
    """The programs of MindSpeed-LLM that a script starts, in the form that checks look at; nothing for other files."""
    script = _script_in(source)
    if script is None:
        return ()
    from ms_tune.dialects.megatron.commands import commands_in  # noqa: PLC0415 - as above

    return commands_in(script.launches, source.text, release)


def findings_of(
    commands: tuple[SourceFile, ...], found_in: Callable[[SourceFile], Iterable[Diagnostic]]
) -> Iterator[Diagnostic]:
    """What is found in what a script starts (:func:`ms_tune.dialects.megatron.commands.findings_of`)."""
    from ms_tune.dialects.megatron.commands import findings_of as found_of_commands  # noqa: PLC0415 - as above

    return found_of_commands(commands, found_in)


def release_of(job: Job) -> tuple[str, bool]:
    """The release of MindSpeed-LLM that a script is for, and whether it lies in sources of that release.

    Elsewhere it is the one whose parser takes the most of what the script gives its programs.
    """
    from ms_tune.dialects.megatron.detect import release_taking  # noqa: PLC0415 - as above

    around = job.checkout.releases_of("MindSpeed-LLM") if job.checkout else ()
    script = _script_in(job.written)
    if script is None:
        return default_release(Dialect.MEGATRON), False
    return release_taking(script.launches, around or None), bool(around)


def with_known_layers() -> tuple[str, ...]:
    """The releases of MindSpeed-LLM of which it is known what they do with layers."""
    from ms_tune.dialects.megatron.read import SERVED  # noqa: PLC0415 - as above

    return SERVED


def multimodal_commands_of(source: SourceFile) -> tuple[SourceFile, ...]:
    """The programs of MindSpeed-MM that a script starts, likewise."""
    script = _script_in(source)
    if script is None:
        return ()
    from ms_tune.dialects.mindspeed_mm.read import multimodal_commands  # noqa: PLC0415 - as above

    return multimodal_commands(script.launches, source.text)


STDIN = Path("-")
SUFFIXES = (".yaml", ".yml", "tools.json", *CODE_SUFFIXES)  # of JSON files, only the one that is told by its name
MAX_FILES = 100_000

_MAGIC = frozenset("*?[")  # what makes a name a glob
_SKIPPED_FOLDERS = ("__pycache__", "node_modules", "site-packages")


class LintTarget(Record):
    """A file to check, and whether the user named it (or else a folder or a glob)."""

    path: Path
    named: bool


class LintTargets(Record):
    """The files to check, and those that were left out."""

    targets: tuple[LintTarget, ...]
    skipped: tuple[Skipped, ...]


def discover(
    names: Sequence[str],
    settings_for: Callable[[Path], ProjectSettings],
    suffixes: Sequence[str] = SUFFIXES,
    *,
    trusted: bool = True,
) -> LintTargets:
    """The files behind files, folders, globs and ``-``, each once, in the order of their naming.

    Args:
        names: What the user named.
        settings_for: The settings that hold in a folder (an absolute path).
        suffixes: The endings of the files that a folder stands for.
        trusted: Whether a file is meant because it is named; a hook names every file that was touched.

    Raises:
        UsageError: A glob fits nothing, or there are too many files.
    """
    targets: dict[str, LintTarget] = {}
    skipped: list[Skipped] = []
    for found in _named(names, suffixes):
        target = found if trusted else LintTarget(found.path, named=False)
        key = os.path.abspath(target.path)  # noqa: PTH100 - half the time of pathlib's
        if key in targets and not target.named:
            continue
        if not target.named and target.path != STDIN and _is_excluded(Path(key), settings_for):
            skipped.append(Skipped(target.path, msg("lint.skipped.excluded")))
            continue
        targets[key] = target
        if len(targets) > MAX_FILES:
            raise UsageError(msg("lint.too-many-files", limit=MAX_FILES))
    return LintTargets(tuple(targets.values()), tuple(skipped))


def _named(names: Sequence[str], suffixes: Sequence[str]) -> Iterator[LintTarget]:
    for name in names:
        path = Path(name)
        if path == STDIN:
            yield LintTarget(STDIN, named=True)
        elif path.is_dir():
            for found in _walk(path, suffixes):
                yield LintTarget(found, named=False)
        elif not os.path.lexists(path) and _MAGIC & set(name):
            import glob  # noqa: PLC0415 - start-up time

            matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207 - the name may be absolute
            if not matches:
                raise UsageError(msg("lint.empty-glob", pattern=name))
            for match in map(Path, matches):
                if match.is_dir():
                    continue
                yield LintTarget(match, named=False)
        else:
            yield LintTarget(path, named=True)


def _walk(folder: Path, suffixes: Sequence[str]) -> Iterator[Path]:
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
            if (name == ".env" or not name.startswith(".")) and name.endswith(tuple(suffixes)):
                path = Path(here, name)
                if path.is_file():  # no pipe, which would be waited for
                    yield path


def _is_excluded(path: Path, settings_for: Callable[[Path], ProjectSettings]) -> bool:
    settings = settings_for(path.parent)
    if not settings.exclude:
        return False
    relative = Path(os.path.relpath(path, settings.folder))
    return any(path_matches(relative, pattern) for pattern in settings.exclude)


class DialectChoice(Record):
    """What a config is checked as."""

    dialect: Dialect | None  # the dialect; None if it is not checked
    reason: Message | None = None  # why it is not checked
    notes: tuple[Message, ...] = ()  # what the user should know
    fragment: bool = False  # whether it is a part of a config only


def choose_dialect(
    found: Recognition, values: object, path: Path, asked: Dialect | None, *, firmly: bool
) -> DialectChoice:
    """What a config is checked as.

    Args:
        found: What it looks like.
        values: What is in it.
        path: The file.
        asked: The dialect that the user names.
        firmly: Whether that holds for files of other programs, too.
    """
    if asked in (None, Dialect.MINDSPEED_MM) and found.dialect is None:
        is_fsdp2 = is_config(values) and found.foreign in (None, Dialect.MINDSPEED_MM.value)
        if is_fsdp2 or is_tools(values):
            return DialectChoice(Dialect.MINDSPEED_MM)
    if asked is Dialect.MINDSPEED_MM:
        return DialectChoice(None, msg("lint.not-multimodal"))
    is_believed = asked is not None and (found.foreign is None or firmly)
    dialect = asked if is_believed else found.dialect
    if dialect is None:
        unknown, why_not = msg("lint.ambiguous" if found.evidence else "lint.not-a-config"), found.why_not
        return DialectChoice(None, msg("lint.not-checked", reason=why_not) if why_not else unknown)
    notes = []
    if not is_believed and not found.confident:
        notes.append(msg("lint.unsure", file=path, dialect=dialect.value))
    if is_believed and found.why_not is not None:
        notes.append(msg("lint.overruled", file=path, reason=found.why_not, dialect=dialect.value))
    fragment = is_fragment(values, dialect)
    if fragment:
        notes.append(msg("lint.fragment", file=path, dialect=dialect.value))
    return DialectChoice(dialect, None, tuple(notes), fragment)
