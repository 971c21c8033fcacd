"""Read the data files, select their values for a release, and look up the supported releases (``data/releases.json``)."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ms_tune.enums import Dialect
from ms_tune.errors import UnsupportedError
from ms_tune.records import Any, Record
from ms_tune.text import msg

_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDER = Path(__file__).parent / "data"
REMOVED = {"gone": True}
ABSENT = object()
REQUIRED = "**required**"  # used instead of a default
_VERSION = r"r?(?P<release>\d{1,4}\.\d{1,4})(\.\d{1,4})*((a|b|rc|\.dev|\.post)\d{1,4})*"


@cache
def load(name: str) -> dict[str, Any]:
    """Return the content of one data file."""
    content: dict[str, Any] = json.loads((_FOLDER / f"{name}.json").read_bytes())
    return content


@cache
def order(release: str) -> tuple[int, ...]:
    """Return a release (``1.9``), or the generation of a format (``G4``), as a tuple that can be compared."""
    return tuple(map(int, release.lstrip("G").split(".")))


def at(history: Mapping[str, Any], release: str) -> Any:  # noqa: ANN401 - facts are of all types
    """Return the value of a fact in a release; :data:`ABSENT` if the release does not have it."""
    last: object = ABSENT
    wanted = order(release)
    for since, value in history.items():
        if order(since) > wanted:
            break
        last = value
    return ABSENT if last == REMOVED else last


def all_at(histories: Mapping[str, Mapping[str, Any]], release: str) -> dict[str, Any]:
    """Return the values of those facts that a release has."""
    found, wanted = {}, order(release)
    for name, history in histories.items():
        last: object = REMOVED
        for since, value in history.items():  # the loop of `at`, inlined to save ten thousand calls
            if order(since) > wanted:
                break
            last = value
        if last != REMOVED:
            found[name] = last
    return found


def data_folder(name: str) -> Path:
    """Return the folder ``checklists`` or ``yaml_templates``."""
    for folder in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    message = f"ms-tune's data folder {name!r} is missing; reinstall ms-tune"
    raise FileNotFoundError(message)


class Release(Record):
    """The framework release that a config is read for."""

    framework: str  # the framework's name
    version: str  # the release, such as `1.9`
    # The installed version, if it was looked up; `version` differs from it if it is not supported.
    installed: str | None = None

    @property
    def is_installed(self) -> bool:
        """Return whether the config is read for the installed release."""
        return bool(self.installed) and _release(self.installed) == self.version


def served(dialect: Dialect) -> tuple[str, ...]:
    """Return the supported releases of a dialect, the oldest first."""
    return tuple(load("releases")[dialect.value]["served"])


def default_release(dialect: Dialect) -> str:
    """Return the release to assume if the user names none and no supported one is installed."""
    return str(load("releases")[dialect.value]["default"])


def release_of(version: str, *dialects: Dialect) -> str:
    """Return the release that a version such as ``1.9.0`` belongs to."""
    wanted = dialects or tuple(Dialect)
    for dialect in wanted:
        release = _release_in(version, dialect)
        if release in served(dialect):
            return release
    lists = "; ".join(f"{dialect.value} {', '.join(served(dialect))}" for dialect in wanted)
    raise UnsupportedError(msg("frameworks.version", version=version, served=lists))


def release_or_default(version: str, dialect: Dialect) -> str:
    """Return the release that a version belongs to; the default if that is empty or not supported."""
    release = _release_in(version, dialect)
    return release if release in served(dialect) else default_release(dialect)


def release_for(dialect: Dialect, asked: str | None = None) -> Release:
    """Return the release to read a dialect's configs for: the requested one, the installed one, or the default.

    If the installed one is not supported, the newest supported release before it is used.
    """
    about = load("releases")[dialect.value]
    if asked is not None:
        return Release(about["framework"], release_of(asked, dialect))
    installed = installed_version(about["package"]) if about["package"] else None
    version, wanted = about["default"], order(_release(installed) or "0")
    for release in about["served"]:
        if order(release) <= wanted:
            version = release
    return Release(about["framework"], version, installed)


def _release_in(version: str, dialect: Dialect) -> str:
    """Return the release of a dialect that a version names; for launch scripts also by the MindSpeed-Core-MS that fetches it."""
    release = version if version in served(dialect) else _release(version)
    if dialect is not Dialect.MEGATRON or not release or release in served(dialect):
        return release
    fetched = {_release(tag): parts["MindSpeed-LLM"] for tag, parts in load("stack")["releases"].items()}
    return _release(fetched.get(release, version))


def _release(version: str | None) -> str:
    """Return ``1.9`` of ``1.9.0rc1``; an empty text if it is not a version."""
    found = re.fullmatch(_VERSION, version) if version else None
    return found["release"] if found else ""


@cache
def installed_version(package: str) -> str | None:
    """Return the version of the first installation that Python would find, or None.

    ``importlib.metadata`` would return the same after 25 ms of imports, a third of the time for checking one config. The name
    of a package's metadata folder is enough (``NAME-VERSION.dist-info`` in the packaging specification "Recording installed
    projects", or ``NAME-VERSION-py3.11.egg-info`` of older installers).
    """
    metadata, start = rf"{re.escape(package)}-(?P<version>\d[^-]*)(?:-py[\d.]+)?\.(?:dist|egg)-info", package.lower()
    for folder in sys.path:
        try:
            names = os.listdir(folder or os.curdir)  # noqa: PTH208 - start-up time
        except OSError:
            continue  # not a folder, or not readable
        for name in names:
            if name.lower().startswith(start) and (found := re.fullmatch(metadata, name, re.IGNORECASE)):
                return found["version"]
    return None


VERSIONS = served(Dialect.MINDFORMERS)
DEFAULT_VERSION = default_release(Dialect.MINDFORMERS)
