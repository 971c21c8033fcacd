"""Whether a test of a script holds: ``[ ... ]`` and ``[[ ... ]]`` on values that are known; None where it cannot be told."""

from __future__ import annotations

import re
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING

from ms_tune.source.shell.patterns import expression_of, fits
from ms_tune.source.shell.values import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ms_tune.source.shell.values import Pieces

_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})")
_COMPARED: dict[str, Callable[[int, int], bool]] = {"-eq": eq, "-ne": ne, "-lt": lt, "-le": le, "-gt": gt, "-ge": ge}


def holds(words: Sequence[str | None], pattern: str | None = "") -> bool | None:  # noqa: PLR0911 - a form a line
    """Whether a test holds; a word that is None is unknown.

    Args:
        words: The words between the brackets.
        pattern: For ``[[``: the regular expression of the last word, None if it is not read; nothing for ``[``.
    """
    if len(words) > 4 or (len(words) == 4 and words[0] != "!"):  # noqa: PLR2004 - more than one test
        return _joined(words)
    if len(words) > 1 and words[0] == "!":
        inner = holds(words[1:], pattern)
        return None if inner is None else not inner
    if len(words) < 2:  # noqa: PLR2004 - nothing, or one word that is empty or not
        return None if None in words else "".join(word or "" for word in words) != ""
    if len(words) == 2:  # noqa: PLR2004 - an operator and its operand
        operator, value = words
        return None if operator not in ("-z", "-n") or value is None else (value == "") == (operator == "-z")
    left, operator, right = words
    if left is None or right is None:
        return None
    if operator in ("=", "==", "!="):
        same = left == right if pattern == "" else fits(left, pattern)
        return None if same is None else same == (operator != "!=")
    if operator in _COMPARED and _NUMBER.fullmatch(left) and _NUMBER.fullmatch(right):
        return _COMPARED[operator](int(left), int(right))
    return None


def _joined(words: Sequence[str | None]) -> bool | None:
    """``[ a -a b -o c ]``: ``-a`` binds tighter."""
    if "(" in words or ")" in words:
        return None
    found: bool | None = False
    for several in _parted(words, "-o"):
        every: bool | None = True
        for one in _parted(several, "-a"):
            if not 0 < len(one) <= 3 + (one[0] == "!"):
                return None
            every = both("&&", every, holds(one))
        found = both("||", found, every)
    return found


def _parted(words: Sequence[str | None], mark: str) -> list[list[str | None]]:
    found: list[list[str | None]] = [[]]
    for word in words:
        if word == mark:
            found.append([])
        else:
            found[-1].append(word)
    return found


class Tests:
    """The words of ``[[ ... ]]``, read from the first to the last; ``&&`` binds tighter than ``||``.

    Args:
        literals: The words as they are written, None for one that has quotes or values in it.
        values: What they come to.
    """

    def __init__(self, literals: Sequence[str | None], values: Sequence[Pieces]) -> None:
        self._literals = literals
        self._values = values
        self.at = 0

    def either(self) -> bool | None:
        """What is on both sides of ``||``."""
        found = self._every()
        while self._next("||"):
            found = both("||", found, self._every())
        return found

    def _every(self) -> bool | None:
        found = self._one()
        while self._next("&&"):
            found = both("&&", found, self._one())
        return found

    def _one(self) -> bool | None:
        if self._next("!"):
            found = self._one()
            return None if found is None else not found
        if self._next("("):
            found = self.either()
            return found if self._next(")") else None
        start = self.at
        while self.at < len(self._values) and self._literals[self.at] not in ("&&", "||", ")"):
            self.at += 1
        values = self._values[start : self.at]
        if not values or self._literals[start + 1 : start + 2] in (["<"], [">"], ["=~"]):
            return None
        pattern = expression_of(values[-1]) if len(values) == 3 else ""  # noqa: PLR2004 - an operator between two
        return holds([text_of(pieces) for pieces in values], pattern) if len(values) < 4 else None  # noqa: PLR2004

    def _next(self, mark: str) -> bool:
        here = self.at < len(self._literals) and self._literals[self.at] == mark
        self.at += here
        return here


def both(operator: str, *answers: bool | None) -> bool | None:
    """``&&`` or ``||`` of answers: one that decides is enough, whatever the others are."""
    decides = operator == "||"
    return decides if decides in answers else None if None in answers else not decides
