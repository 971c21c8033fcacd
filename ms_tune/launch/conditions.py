"""Whether a test of a script holds: ``[ ... ]`` and ``[[ ... ]]`` on values that are known; None where it cannot be told."""

from __future__ import annotations

import re
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})")
_COMPARED: dict[str, Callable[[int, int], bool]] = {"-eq": eq, "-ne": ne, "-lt": lt, "-le": le, "-gt": gt, "-ge": ge}
_PATTERN = frozenset("*?[\\+@!(")


def holds(words: Sequence[str | None], *, patterns: Sequence[bool] = ()) -> bool | None:
    """Whether a test holds; a word that is None is unknown.

    Args:
        words: The words between the brackets.
        patterns: For ``[[``: whether each word stands in no quotes, so that it is a pattern behind ``==``. Nothing for ``[``.
    """
    if len(words) > 1 and words[0] == "!":
        inner = holds(words[1:], patterns=patterns[1:])
        return None if inner is None else not inner
    if len(words) < 2:  # noqa: PLR2004 - nothing, or one word that is empty or not
        return None if None in words else "".join(word or "" for word in words) != ""
    if len(words) == 2:  # noqa: PLR2004 - an operator and its operand
        operator, value = words
        return None if operator not in ("-z", "-n") or value is None else (value == "") == (operator == "-z")
    if len(words) > 3 or None in words:  # noqa: PLR2004 - an operator between two
        return None
    return _compared(*(word or "" for word in words), pattern=bool(patterns and patterns[2]))


def _compared(left: str, operator: str, right: str, *, pattern: bool) -> bool | None:
    if operator in ("=", "==", "!="):
        return None if pattern and set(right) & _PATTERN else (left == right) == (operator != "!=")
    if operator in _COMPARED and _NUMBER.fullmatch(left) and _NUMBER.fullmatch(right):
        return _COMPARED[operator](int(left), int(right))
    return None


def both(operator: str, *answers: bool | None) -> bool | None:
    """``&&`` or ``||`` of answers: one that decides is enough, whatever the others are."""
    decides = operator == "||"
    return decides if decides in answers else None if None in answers else not decides
