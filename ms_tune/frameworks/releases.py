"""The releases that there are facts about (``data/releases.json``); no other one is served."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.errors import UnsupportedError
from ms_tune.frameworks.data import load, order
from ms_tune.frameworks.dialect import Dialect
from ms_tune.frameworks.installed import installed_version
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Iterable

_VERSION = re.compile(r"r?(?P<release>\d{1,4}\.\d{1,4})(\.\d{1,4})*((a|b|rc|\.dev|\.post)\d{1,4})*")


class Release(NamedTuple):
    """A release that a config is read for.

    Args:
        framework: Its name.
        version: The release, such as ``1.9``.
        installed: What is installed, if that was looked up; the release may be another, if that one is not served.
    """

    framework: str
    version: str
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
    release = _release(version)
    wanted = dialects or tuple(Dialect)
    if not any(release in served(dialect) for dialect in wanted):
        lists = "; ".join(f"{dialect.value} {', '.join(served(dialect))}" for dialect in wanted)
        raise UnsupportedError(msg("frameworks.version", version=version, served=lists))
    return release


def release_or_default(version: str, dialect: Dialect) -> str:
    """The release that a version belongs to; the default if it is empty, or of no release that is served."""
    release = _release(version)
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
    before = _not_after(_release(installed), served(dialect)) if installed else None
    return Release(about["framework"], before or default_release(dialect), installed)


def _not_after(release: str, releases: Iterable[str]) -> str | None:
    found = [one for one in releases if release and order(one) <= order(release)]
    return max(found, key=order, default=None)


def _release(version: str | None) -> str:
    """``1.9`` of ``1.9.0rc1``; nothing of what is no version."""
    found = _VERSION.fullmatch(version or "")
    return found["release"] if found else ""


VERSIONS = served(Dialect.MINDFORMERS)
DEFAULT_VERSION = default_release(Dialect.MINDFORMERS)
