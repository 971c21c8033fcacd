"""New values for variables of the environment: what a fix of ``checklists/code/environment.yaml`` makes of the old one.

Each function is given the old value and the finding's violation, and answers the whole new value of the variable. What
MindSpore reads in a value stands in :mod:`ms_tune.lint.environment.variables`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ms_tune.lint.environment.variables import ALLOC_BOOLEANS, items
from ms_tune.source.edit import EditRefusedError
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from ms_tune.dialects.check_context import Violation
    from ms_tune.lint.environment.variables import Item

    Rewrite: TypeAlias = Callable[["Body", Violation], str]

_YES = frozenset(("1", "true", "yes", "on", "y", "t", "enable", "enabled"))
_NO = frozenset(("0", "false", "no", "off", "n", "f", "disable", "disabled"))
_SIZE = re.compile(r"(\d{1,6})\s*(?:m|mb|mib)?", re.IGNORECASE)
# The names of MindSpore's levels (mindspore/log.py, 2.9), and those that Python's logging has for them.
_LEVELS = {"debug": "0", "info": "1", "warning": "2", "warn": "2", "error": "3", "critical": "4", "fatal": "4"}
_DETERMINISTIC = ("true", "false", "strict")


class Body(NamedTuple):
    """A variable's value, without quotes around it, and where it stands in the file."""

    value: str
    start: int


def _colon(old: Body, violation: Violation) -> str:
    """``key=value`` as ``key:value``."""
    value, item = _item(old, violation)
    if item.text.count("=") != 1:
        _unclear()
    key, _, setting = item.text.partition("=")
    return _with(value, item, f"{key.strip()}:{setting.strip()}")


def _switched_on(old: Body, violation: Violation) -> str:
    """The bare name of a switch as ``name:True``."""
    value, item = _item(old, violation)
    if item.text not in ALLOC_BOOLEANS:
        _unclear()
    return _with(value, item, f"{item.text}:True")


def _similar_key(old: Body, violation: Violation) -> str:
    """The key that an unknown one is much like, unless that is there already."""
    value, item = _item(old, violation)
    similar = str(violation.params["similar"])
    if item.key is None or any(other.key == similar for other in items(value)):
        _unclear()
    return _with(value, item, f"{similar}{item.text.removeprefix(item.key)}")


def _boolean(old: Body, violation: Violation) -> str:
    """``1``, ``on`` or ``TRUE`` as ``True``, and so on."""
    value, item = _item(old, violation)
    return _with(value, item, f"{item.key}:{_either(item.value, 'True', 'False')}")


def _aligned(old: Body, violation: Violation) -> str:
    """A size as an even number of MB, the next higher one."""
    value, item = _item(old, violation)
    size = _SIZE.fullmatch(item.value)
    if size is None:
        _unclear()
    return _with(value, item, f"{item.key}:{max(2, (int(size[1]) + 1) // 2 * 2)}MB")


def _last_only(old: Body, violation: Violation) -> str:
    """The value without the item that a later one with the same key overrides."""
    value, item = _item(old, violation)
    found = items(value)
    index = found.index(item)
    lost = next((number for number in range(index - 1, -1, -1) if found[number].key == item.key), None)
    if lost is None:
        _unclear()
    return value[: found[lost].start] + value[found[lost + 1].start :]


def _turn_off(old: Body, violation: Violation) -> str:
    """A switch turned off."""
    value, item = _item(old, violation)
    return _with(value, item, f"{item.key}:False")


def _turn_on(old: Body, violation: Violation) -> str:
    """A switch turned on."""
    value, item = _item(old, violation)
    return _with(value, item, f"{item.key}:True")


def _tracker_on(old: Body, _: Violation) -> str:
    """The memory tracker turned on, behind the other settings if it does not stand among them."""
    value = old.value
    found = items(value)
    given = [item for item in found if item.key == "memory_tracker"]
    if len(given) > 1:
        _unclear()
    if given:
        return _with(value, given[0], "memory_tracker:True")
    if not found:
        return "memory_tracker:True"
    end = found[-1].start + len(found[-1].text)
    return f"{value[:end]},memory_tracker:True{value[end:]}"


def _small_letters(old: Body, _: Violation) -> str:
    """``True`` as ``true``, for a variable that is compared with words in small letters."""
    value = old.value.strip().lower()
    return value if value in _DETERMINISTIC else _unclear()


def _level(old: Body, _: Violation) -> str:
    """The number of a log level that is given by its name."""
    level = _LEVELS.get(old.value.strip().lower())
    return _unclear() if level is None else level


def _one(old: Body, _: Violation) -> str:
    """1 for a word that says yes."""
    return "1" if _either(old.value, "1", "0") == "1" else _unclear()


def _zero(old: Body, _: Violation) -> str:
    """0 for a word that says no."""
    return "0" if _either(old.value, "1", "0") == "0" else _unclear()


REWRITES: Mapping[str | None, Rewrite] = {
    "colon": _colon,
    "switched-on": _switched_on,
    "similar-key": _similar_key,
    "boolean": _boolean,
    "aligned": _aligned,
    "last-only": _last_only,
    "turn-off": _turn_off,
    "turn-on": _turn_on,
    "tracker-on": _tracker_on,
    "small-letters": _small_letters,
    "level": _level,
    "one": _one,
    "zero": _zero,
}


def _item(old: Body, violation: Violation) -> tuple[str, Item]:
    """The variable's value, and the item of it that the violation points at."""
    place = violation.span.start - old.start if violation.span is not None else None
    item = next((one for one in items(old.value) if one.start == place), None)
    return old.value, item or _unclear()


def _with(value: str, item: Item, words: str) -> str:
    return value[: item.start] + words + value[item.start + len(item.text) :]


def _either(words: str, yes: str, no: str) -> str:
    word = words.strip().lower()
    return yes if word in _YES else no if word in _NO else _unclear()


def _unclear() -> NoReturn:
    raise EditRefusedError(msg("edits.unclear"))
