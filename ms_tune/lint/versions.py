"""Framework versions: which one a config is checked for, and which checks that concerns."""

from __future__ import annotations

import re
from itertools import zip_longest
from operator import eq, ge, gt, le, lt, ne
from typing import NamedTuple

from ms_tune.frameworks.dialect import Dialect
from ms_tune.frameworks.installed import installed_version

# The newest version that the checks of a dialect were verified against.
DEFAULT_VERSIONS = {
    Dialect.MINDFORMERS: "1.9",
    Dialect.MINDFORMERS_PYNATIVE: "2.1",
    Dialect.MINDSPEED_MS: "0.1",
}

FRAMEWORKS = {
    Dialect.MINDFORMERS: "MindFormers",
    Dialect.MINDFORMERS_PYNATIVE: "MindFormers",
    Dialect.MINDSPEED_MS: "MindSpeed-Core-MS",
}

# The releases that the checks of a dialect can be made for.
KNOWN_VERSIONS = {
    Dialect.MINDFORMERS: ("1.6", "1.7", "1.8", "1.9", "2.0", "2.1"),
    Dialect.MINDFORMERS_PYNATIVE: ("2.0", "2.1"),
    Dialect.MINDSPEED_MS: ("0.1",),
}

# What is installed with pip; MindSpeed-Core-MS r0.1.0 is used from its source folder.
_PACKAGES = {Dialect.MINDFORMERS: "mindformers", Dialect.MINDFORMERS_PYNATIVE: "mindformers"}

VERSION = re.compile(r"\d+(\.\d+)*")
_RELEASE = re.compile(r"\d+\.\d+")
_OPERATORS = {">=": ge, "<=": le, "==": eq, "!=": ne, ">": gt, "<": lt}
_TERM = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)\s*")


class Release(NamedTuple):
    """A framework version that configs are checked for.

    Args:
        framework: Its name.
        version: Its version.
        installed: What is installed, if that was looked up; the version may be another, if the checks do not know it.
    """

    framework: str
    version: str
    installed: str | None = None

    @property
    def is_installed(self) -> bool:
        """Whether it is the installed version that configs are checked for."""
        return bool(self.installed) and _release(self.installed) == self.version


def release_for(dialect: Dialect, asked: str | None = None) -> Release:
    """What to check configs of a dialect for: the version asked for, or the installed one, or the newest one known."""
    package = _PACKAGES.get(dialect)
    installed = installed_version(package) if asked is None and package is not None else None
    release = _release(installed)
    if release in KNOWN_VERSIONS[dialect]:
        return Release(FRAMEWORKS[dialect], release, installed)
    return Release(FRAMEWORKS[dialect], asked or DEFAULT_VERSIONS[dialect], installed)


def _release(version: str | None) -> str:
    """``1.9`` of ``1.9.0rc1``; nothing of what is no version."""
    found = _RELEASE.match(version or "")
    return found[0] if found else ""


def matches(version: str, versions: str | None) -> bool:
    """Whether a version such as ``1.9`` lies in a range such as ``>=1.7,<2``.

    Raises:
        ValueError: The range is not one.
    """
    if versions is None:
        return True
    terms = [_TERM.fullmatch(term) for term in versions.split(",")]
    if not all(terms):
        raise ValueError(versions)
    return all(_OPERATORS[term[1]](_compare(version, term[2]), 0) for term in terms if term)


def _compare(one: str, other: str) -> int:
    pairs = zip_longest(map(int, one.split(".")), map(int, other.split(".")), fillvalue=0)
    return next((-1 if left < right else 1 for left, right in pairs if left != right), 0)
