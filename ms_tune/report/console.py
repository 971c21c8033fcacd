"""The output conventions of every command.

Results go to standard output; progress, notes and errors go to standard error. Colour is used on a terminal only, and
never when ``NO_COLOR`` is set or the terminal is ``dumb``. With ``--json`` standard output holds exactly one JSON object.
"""

from __future__ import annotations

import os
import sys
from functools import cached_property
from typing import TYPE_CHECKING

from ms_tune.encode import json_text
from ms_tune.report.columns import fold, folds, table, terminal_width, width_of
from ms_tune.text import Language, Message, msg, render

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from typing import TextIO

    from ms_tune.errors import MsTuneError


class Console:
    """Where a command writes, and in which language."""

    def __init__(self, language: Language) -> None:
        self.language = language

    def text(self, text_id: str, /, **params: object) -> str:
        """The sentence with this id in the user's language."""
        return render(Message(text_id, params), self.language)

    def say(self, message: Message) -> str:
        """The sentence for a message in the user's language."""
        return render(message, self.language)

    def labelled(self, label: str, text: str) -> str:
        """What a label is about, behind its colon; an empty text for a heading."""
        return self.text("cli.labelled", label=label, text=text).rstrip()

    def listed(self, items: Iterable[str]) -> str:
        """Several things one after the other."""
        return self.text("cli.comma").join(items)

    def write(self, text: str) -> None:
        """A line of the result, folded to the terminal's width; a text of several lines stays as it is."""
        body = text.lstrip("\n")
        if folds() and "\n" not in body and len(body) * 2 > terminal_width():
            text = "\n".join([*[""] * (len(text) - len(body)), *fold(body, terminal_width())])
        self.write_whole(text)

    def write_prose(self, text: str) -> None:
        """A text of several lines, each folded."""
        for line in text.split("\n"):
            self.write(line)

    def write_whole(self, text: str) -> None:
        """Lines of the result that programs read or people copy, as they are."""
        print(text, file=sys.stdout)  # noqa: T201 - the one place where results are printed

    def write_table(self, heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: Container[int]) -> None:
        """A table as wide as the terminal; the columns ``right`` hold numbers."""
        for line in table(heads, rows, right=right, width=terminal_width()):
            self.write_whole(line)

    def write_json(self, value: Mapping[str, object]) -> None:
        """The result as one JSON object."""
        self.write_whole(json_text(value, indent=2))

    def note(self, text: str) -> None:
        """A line beside the result: progress, warnings, errors."""
        print(text, file=sys.stderr)  # noqa: T201 - the one place where notes are printed

    def warn(self, message: Message) -> None:
        """Something that the user should know and that does not stop the command."""
        label = self.text("cli.warning")
        self._tell(self.labelled(self.paint(label, "yellow", sys.stderr), self.say(message)))

    def fail(self, error: MsTuneError) -> None:
        """Tell the user what is wrong, where, and what to do."""
        where = error.location()
        label = self.paint(self.text("cli.error"), "red", sys.stderr)
        self._tell(f"{where + ': ' if where else ''}{self.labelled(label, self.say(error.message))}")
        if error.hint is not None:
            hint = self.paint(self.text("cli.hint"), "cyan", sys.stderr)
            self._tell(f"  {self.labelled(hint, self.say(error.hint))}")

    def _tell(self, text: str) -> None:
        """Notes for a reader, folded on a terminal; programs get a line a note."""
        width = width_of(sys.stderr)
        self.note("\n".join(part for line in text.split("\n") for part in fold(line, width)) if width else text)

    def paint(self, text: str, colour: str, stream: TextIO | None = None) -> str:
        """The text in a colour, if the stream is a terminal that wants colours."""
        wanted = self._in_colour if stream is None else wants_colour(stream)
        return f"{_ANSI[colour]}{text}\033[0m" if wanted else text

    @cached_property
    def _in_colour(self) -> bool:
        return wants_colour(sys.stdout)


_ANSI = {"red": "\033[1;31m", "green": "\033[1;32m", "yellow": "\033[1;33m", "cyan": "\033[36m", "dim": "\033[2m"}


def wants_colour(stream: TextIO) -> bool:
    """Whether to colour what is written to the stream (https://no-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def usage_hint(program: str) -> Message:
    """Where to read how a command is used."""
    return msg("cli.usage.hint", program=program)
