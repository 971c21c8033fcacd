"""A program's arguments, as options with the words that follow each: read, set and taken out without knowing their types."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_OPTION = re.compile(r"--?[A-Za-z]")  # and no negative number


@dataclass(frozen=True, slots=True)
class OptionChange:
    """An argument that the program is not given as the script says it."""

    key: str  # the option
    before: str | None  # its words in the script; None where the script has no such option
    after: str | None  # its words now; None where it was taken out


class OptionWords:
    """The arguments of a program, and what was changed in them.

    An option's words are all that stand behind it up to the next option: ``--load my checkpoint`` is one option with two
    words, as a shell makes it of an unquoted path with a blank.

    Attributes:
        parts: Options with their words, in their order; the first part has no option.
        changes: What was changed so far.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self.parts: list[tuple[str, list[str]]] = [("", [])]
        self.changes: list[OptionChange] = []
        for word in arguments:
            if _OPTION.match(word):
                name, equals, value = word.partition("=")
                self.parts.append((name, [value] if equals else []))
            else:
                self.parts[-1][1].append(word)

    def __contains__(self, option: object) -> bool:
        return any(name == option for name, _ in self.parts)

    def get(self, option: str) -> list[str] | None:
        """The words of an option, where it stands last; None if it is absent."""
        found = None
        for name, words in self.parts:
            if name == option:
                found = words
        return found

    def number(self, option: str) -> int | None:
        """The option's only word as a positive number; None if it is none."""
        words = self.get(option)
        if words is None or len(words) != 1 or not words[0].isdecimal():
            return None
        return int(words[0]) or None

    def put(self, option: str, *words: str) -> None:
        """Give an option these words, once."""
        before = self.get(option)
        if before == list(words):
            return
        self.parts = [part for part in self.parts if part[0] != option]
        self.parts.append((option, list(words)))
        self.changes.append(OptionChange(option, _text(before), " ".join(words)))

    def drop(self, options: Iterable[str]) -> None:
        """Take options out."""
        for option in options:
            before = self.get(option)
            if before is not None:
                self.parts = [part for part in self.parts if part[0] != option]
                self.changes.append(OptionChange(option, _text(before), None))

    def arguments(self) -> tuple[str, ...]:
        """All of them, as a program takes them."""
        return tuple(word for name, words in self.parts for word in ([name] if name else []) + words)


def _text(words: Sequence[str] | None) -> str | None:
    return None if words is None else " ".join(words)
