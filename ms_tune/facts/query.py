"""The data files: where they lie, what they say for a release, and which releases are served (``data/releases.json``)."""

from __future__ import annotations

import json
import os
import re
import sys
from functools import cache
from pathlib import Path

from ms_tune.enums import Dialect
from ms_tune.errors import UnsupportedError
from ms_tune.records import Record
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDER = Path(__file__).parent / "data"
GONE = {"gone": True}
ABSENT = object()
REQUIRED = "**required**"  # in place of a default
_VERSION = r"r?(?P<release>\d{1,4}\.\d{1,4})(\.\d{1,4})*((a|b|rc|\.dev|\.post)\d{1,4})*"


@cache
def load(name: str) -> dict[str, Any]:
    """The content of one data file."""
    content: dict[str, Any] = json.loads((_FOLDER / f"{name}.json").read_bytes())
    return content


@cache
def order(release: str) -> tuple[int, ...]:
    """A release as something that can be compared."""
    return tuple(map(int, release.split(".")))


def at(history: Mapping[str, Any], release: str) -> Any:  # noqa: ANN401 - facts are of all types
    """What a fact is in a release; :data:`ABSENT` where the release does not have it."""
    last: object = ABSENT
    wanted = order(release)
    for since, value in history.items():
        if order(since) > wanted:
            break
        last = value
    return ABSENT if last == GONE else last


def all_at(histories: Mapping[str, Mapping[str, Any]], release: str) -> dict[str, Any]:
    """Of many facts those that a release has."""
    found, wanted = {}, order(release)
    for name, history in histories.items():
        last: object = GONE
        for since, value in history.items():  # as `at` does, of which there would be ten thousand calls
            if order(since) > wanted:
                break
            last = value
        if last != GONE:
            found[name] = last
    return found


def data_folder(name: str) -> Path:
    """The folder ``checklists`` or ``yaml_templates``.

    Raises:
        FileNotFoundError: The installation is incomplete.
    """
    for folder in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    message = f"ms-tune's data folder {name!r} is missing; reinstall ms-tune"
    raise FileNotFoundError(message)


class Release(Record):
    """A release that a config is read for."""

    framework: str  # its name
    version: str  # the release, such as `1.9`
    # What is installed, if that was looked up; the release may be another, if that one is not served.
    installed: str | None = None

    @property
    def is_installed(self) -> bool:
        """Whether it is the installed one that the config is read for."""
        return bool(self.installed) and _release(self.installed) == self.version


def served(dialect: Dialect) -> tuple[str, ...]:
    """The releases that read a dialect and that there are facts about, the oldest first."""
    return tuple(load("releases")[dialect.value]["served"])


def default_release(dialect: Dialect) -> str:
    """The release that a dialect's configs are read for if nobody says another, and none that is served is installed."""
    return str(load("releases")[dialect.value]["default"])


def release_of(version: str, *dialects: Dialect) -> str:
    """The release that a version such as ``1.9.0`` belongs to.

    Args:
        version: What the user asks for.
        dialects: What it has to be served for, any of them; all if none is given.

    Raises:
        UnsupportedError: It is not served.
    """
    wanted = dialects or tuple(Dialect)
    for dialect in wanted:
        release = _release_in(version, dialect)
        if release in served(dialect):
            return release
    lists = "; ".join(f"{dialect.value} {', '.join(served(dialect))}" for dialect in wanted)
    raise UnsupportedError(msg("frameworks.version", version=version, served=lists))


def release_or_default(version: str, dialect: Dialect) -> str:
    """The release that a version belongs to; the default if it is empty, or of no release that is served."""
    release = _release_in(version, dialect)
    return release if release in served(dialect) else default_release(dialect)


def release_for(dialect: Dialect, asked: str | None = None) -> Release:
    """What to read configs of a dialect for: the version asked for, or the installed one, or else the default.

    Of an installed version that is not served, the newest release before it takes the place.

    Raises:
        UnsupportedError: The version asked for is not served.
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
    """The release of a dialect that a version names: a launch script's may be MindSpeed-Core-MS's, which fetches a MindSpeed-LLM."""
    release = _release(version)
    if dialect is not Dialect.MEGATRON or not release or release in served(dialect):
        return release
    fetched = {_release(tag): parts["MindSpeed-LLM"] for tag, parts in load("stack")["releases"].items()}
    return _release(fetched.get(release, version))


def _release(version: str | None) -> str:
    """``1.9`` of ``1.9.0rc1``; nothing of what is no version."""
    found = re.fullmatch(_VERSION, version) if version else None
    return found["release"] if found else ""


@cache
def installed_version(package: str) -> str | None:
    """The version of the first installation that Python would find; None if there is none.

    ``importlib.metadata`` would tell the same after a fortieth of a second of imports, a third of what checking one config
    takes; the name of the folder that holds a package's metadata is enough (``NAME-VERSION.dist-info``, as the packaging
    specification "Recording installed projects" has it, or ``NAME-VERSION-py3.11.egg-info`` of older installers).
    """
    metadata, start = rf"{re.escape(package)}-(?P<version>\d[^-]*)(?:-py[\d.]+)?\.(?:dist|egg)-info", package.lower()
    for folder in sys.path:
        try:
            names = os.listdir(folder or os.curdir)  # noqa: PTH208 - start-up time
        except OSError:
            continue  # not a folder, or none that may be read
        for name in names:
            if name.lower().startswith(start) and (found := re.fullmatch(metadata, name, re.IGNORECASE)):
                return found["version"]
    return None


VERSIONS = served(Dialect.MINDFORMERS)
DEFAULT_VERSION = default_release(Dialect.MINDFORMERS)
