"""The data files: where they lie, and what they say for a release."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FOLDER = Path(__file__).parent / "data"
_GONE = {"gone": True}
ABSENT = object()
REQUIRED = "**required**"  # in place of a default


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
    return ABSENT if last == _GONE else last


def all_at(histories: Mapping[str, Mapping[str, Any]], release: str) -> dict[str, Any]:
    """Of many facts those that a release has."""
    found, wanted = {}, order(release)
    for name, history in histories.items():
        last: object = _GONE
        for since, value in history.items():  # as `at` does, of which there would be ten thousand calls
            if order(since) > wanted:
                break
            last = value
        if last != _GONE:
            found[name] = last
    return found


def releases_having(history: Mapping[str, Any], releases: Iterable[str]) -> set[str]:
    """Of all releases, the oldest first, those that have a fact; it comes and goes with some of them."""
    having, is_there = set(), False
    for release in releases:
        if release in history:
            is_there = history[release] != _GONE
        if is_there:
            having.add(release)
    return having


_PACKAGE = Path(__file__).resolve().parent.parent


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
