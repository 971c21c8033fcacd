"""Patterns of the shell on values that are known: ``case``, ``[[ == ]]``, ``${name%pattern}`` ("Pattern Matching" of bash's manual).

The forms of ``extglob`` and what depends on the language of the machine are not read: None stands for what only bash can tell.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ms_tune.source.shell.values import Piece

_EXTENDED = re.compile(r"[?*+@!]\(")
_BRACKETS = re.compile(r"\[([!^]?)(\]?[^\]\[\\/]*)\]")
_LONGEST = 2_000  # letters that are tried


def expression_of(pieces: Iterable[Piece]) -> str | None:
    """A pattern as a regular expression; None if it is not known or not read."""
    pieces = list(pieces)
    if any(piece.unknown for piece in pieces):
        return None
    if _EXTENDED.search("".join("x" if piece.quoted else piece.text for piece in pieces)):
        return None
    parts = [re.escape(piece.text) if piece.quoted else _translated(piece.text) for piece in pieces]
    found = "".join(part or "" for part in parts)
    try:
        re.compile(found)
    except re.error:  # a range that runs backwards
        return None
    return None if None in parts else found


def _translated(text: str) -> str | None:
    found, at = "", 0
    while at < len(text):
        brackets = _BRACKETS.match(text, at)
        letters = brackets[2] if brackets else ""
        if text[at] == "\\" or not letters.isascii() or "--" in letters or (text[at] == "[" and not brackets):
            return None
        if brackets:
            inside = re.sub(r"([]&|^~])", r"\\\1", letters)
            found += f"[{'^' * bool(brackets[1])}{inside}]"
            at = brackets.end()
        else:
            found += {"*": ".*", "?": "."}.get(text[at], re.escape(text[at]))
            at += 1
    return found


def fits(text: str, expression: str | None) -> bool | None:
    """Whether a text is what a pattern stands for."""
    return None if expression is None or len(text) > _LONGEST else _whole(expression, text)


def changed(operator: str, text: str, expression: str | None, new: str = "") -> str | None:
    """What an operator makes of a value: ``#`` and ``%`` take an end away, ``/`` puts something else in, ``^`` and ``,`` change letters.

    Args:
        operator: The operator, as it is written.
        text: The value.
        expression: The pattern behind it.
        new: What ``/`` puts in.
    """
    if expression is None or len(text) > _LONGEST:
        return None
    if operator[0] in "^,":
        return _letters(operator, text, expression)
    if operator[0] == "/":
        return _put_in(operator, text, expression, new)
    ends: Iterable[int] = range(len(text) + 1)
    if operator[0] == "#":
        ends = ends if operator == "#" else reversed(range(len(text) + 1))
        return next((text[at:] for at in ends if _whole(expression, text[:at])), text)
    ends = ends if operator == "%%" else reversed(range(len(text) + 1))
    return next((text[:at] for at in ends if _whole(expression, text[at:])), text)


def _whole(expression: str, text: str) -> bool:
    return re.fullmatch(expression, text, re.DOTALL) is not None


def _letters(operator: str, text: str, expression: str) -> str | None:
    if not text.isascii():
        return None
    change = str.upper if operator[0] == "^" else str.lower
    last = len(text) if len(operator) > 1 else 1
    return "".join(change(one) if at < last and _whole(expression or ".", one) else one for at, one in enumerate(text))


def _put_in(operator: str, text: str, expression: str, new: str) -> str | None:  # noqa: PLR0911 - an operator a line
    if "&" in new or "\\" in new:
        return None  # since bash 5.2 "&" is what was found
    if not expression:
        return {"/#": new + text, "/%": text + new}.get(operator, text)
    if not text:
        return None
    if operator == "/#":
        ends = (at for at in range(len(text), -1, -1) if _whole(expression, text[:at]))
        return next((new + text[at:] for at in ends), text)
    if operator == "/%":
        return next((text[:at] + new for at in range(len(text) + 1) if _whole(expression, text[at:])), text)
    found, at = "", 0
    while at < len(text):
        end = next((end for end in range(len(text), at, -1) if _whole(expression, text[at:end])), None)
        if end is None:
            found, at = found + text[at], at + 1
        elif operator == "/":
            return found + new + text[end:]
        else:
            found, at = found + new, end
    return found
