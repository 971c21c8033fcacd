"""From what a user names on the command line to the files that are checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.errors import UsageError
from ms_tune.lint import kinds
from ms_tune.lint.report import Skipped
from ms_tune.lint.selection import path_matches
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ms_tune.lint.settings import ProjectSettings

STDIN = Path("-")
SUFFIXES = (".yaml", ".yml", "tools.json", *kinds.SUFFIXES)  # of JSON files, only the one that is told by its name
MAX_FILES = 100_000

_MAGIC = frozenset("*?[")  # what makes a name a glob
_SKIPPED_FOLDERS = ("__pycache__", "node_modules", "site-packages")


class LintTarget(NamedTuple):
    """A file to check, and whether the user named it (or else a folder or a glob)."""

    path: Path
    named: bool


class LintTargets(NamedTuple):
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
