"""Patterns and tests of the shell on values that are known: ``case``, ``${name%pattern}``, ``[ ... ]``, ``[[ ... ]]``.

As bash's manual has them ("Pattern Matching", "Bash Conditional Expressions"). The forms of ``extglob``, classes of letters and what
depends on the machine are not read: None stands for what only bash can tell.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from ms_tune.source.shell.values import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ms_tune.source.shell.values import Piece, Pieces

_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})")
# By the operator the signs that the difference of both numbers may have.
_COMPARED = {"-eq": (0,), "-ne": (-1, 1), "-lt": (-1,), "-le": (-1, 0), "-gt": (1,), "-ge": (0, 1)}
_MAX_COMPARED = 40_000  # letters of a text times those of a pattern
_MAX_REPLACED = 1_000  # letters of a text in which every place is tried
_LETTERS = re.compile(r"\[([!^]?)(\]?[^\]\[\\/]*)\]")
_MOST = 3  # words of one test

# Each letter of a pattern: the letters that it stands for (None for any), whether it is none of them, whether any number of times.
Pattern: TypeAlias = "list[tuple[str | None, bool, bool]]"


def read_pattern(pieces: Iterable[Piece]) -> Pattern | None:
    """A pattern by its letters; None if it is not known or not read (the forms of ``extglob``, classes of letters)."""
    found: Pattern = []
    pieces = list(pieces)
    plain = "".join("x" if piece.quoted else piece.text for piece in pieces)
    if any(piece.unknown for piece in pieces) or re.search(r"[?*+@!]\(|\\", plain):
        return None
    for piece in pieces:
        at = 0
        while at < len(piece.text):
            here, brackets = piece.text[at], None if piece.quoted else _LETTERS.match(piece.text, at)
            if brackets:
                letters = re.sub(r"(.)-(.)", _letters_between, brackets[2])
                if not brackets[2].isascii() or not letters or letters.count("-") > letters.startswith("-"):
                    return None
                found.append((letters, bool(brackets[1]), False))
            elif here == "[" and not piece.quoted:
                return None
            else:
                any_ = here in "*?" and not piece.quoted
                found.append((None if any_ else here, False, here == "*" and any_))
            at = brackets.end() if brackets else at + 1
    return found


def _letters_between(match: re.Match[str]) -> str:
    return "".join(map(chr, range(ord(match[1]), ord(match[2]) + 1)))


def _ends(pattern: Pattern, text: str) -> list[int]:
    """Where the beginnings of a text that a pattern stands for end."""
    found = {0}
    for letters, negated, many in pattern:
        if many:
            found = set(range(min(found), len(text) + 1)) if found else found
        else:
            found = {at + 1 for at in found if at < len(text) and (letters is None or (text[at] in letters) != negated)}
    return sorted(found)


def matches_pattern(text: str, pattern: Pattern | None) -> bool | None:
    """Whether a text is what a pattern stands for."""
    if pattern is None or len(text) * len(pattern) > _MAX_COMPARED:
        return None
    return len(text) in _ends(pattern, text)


def change_text(operator: str, text: str, pattern: Pattern, new: str) -> str | None:
    """What ``#``, ``%`` (an end is taken away) and ``/`` (something else is put in) make of a value."""
    which = -1 if len(operator) > 1 else 0  # the longest or the shortest
    if len(text) * len(pattern) > _MAX_COMPARED or "&" in new or "\\" in new:
        return None  # since bash 5.2 "&" is what was found
    if operator[0] == "#":
        ends = _ends(pattern, text)
        return text[ends[which] :] if ends else text
    if operator[0] == "%":
        ends = _ends(pattern[::-1], text[::-1])
        return text[: len(text) - ends[which]] if ends else text
    if operator not in ("/", "//") or not pattern or len(text) > _MAX_REPLACED:
        return None
    found, at = new if not text and 0 in _ends(pattern, text) else "", 0
    while at < len(text):
        ends = [end for end in _ends(pattern, text[at:]) if end]
        if not ends:
            found, at = found + text[at], at + 1
        elif operator == "/":
            return found + new + text[at + ends[-1] :]
        else:
            found, at = found + new, at + ends[-1]
    return found


def holds_test(words: Sequence[str | None], pattern: Pieces | None = None) -> bool | None:  # noqa: PLR0911 - a form a line
    """Whether a test of one operator holds; a word that is None is unknown.

    Args:
        words: The words between the brackets.
        pattern: The last of them where it is a pattern (``[[``).
    """
    if len(words) > 1 and words[0] == "!":
        inner = holds_test(words[1:], pattern)
        return None if inner is None else not inner
    if None in words or len(words) > _MOST:
        return None
    if len(words) < 2:  # noqa: PLR2004 - nothing, or one word that is empty or not
        return any(words)
    *first, operator, last = words
    if not first:
        return (last == "") == (operator == "-z") if operator in ("-n", "-z") else None
    if operator in ("=", "==", "!="):
        same = first[0] == last if pattern is None else matches_pattern(first[0] or "", read_pattern(pattern))
        return None if same is None else same == (operator != "!=")
    numbers = [int(one) for one in (first[0], last) if one and _NUMBER.fullmatch(one)]
    if len(numbers) < 2 or operator not in _COMPARED:  # noqa: PLR2004
        return None
    difference = numbers[0] - numbers[1]
    return (difference > 0) - (difference < 0) in _COMPARED[operator or ""]


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
            found = combine_answers("||", found, self._every())
        return found

    def _every(self) -> bool | None:
        found = self._one()
        while self._next("&&"):
            found = combine_answers("&&", found, self._one())
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
        return holds_test([text_of(one) for one in values], values[-1] if len(values) == _MOST else None)

    def _next(self, mark: str) -> bool:
        here = self.at < len(self._literals) and self._literals[self.at] == mark
        self.at += here
        return here


def combine_answers(operator: str, *answers: bool | None) -> bool | None:
    """``&&`` or ``||`` of answers: one that decides is enough, whatever the others are."""
    decides = operator == "||"
    return decides if decides in answers else None if None in answers else not decides
