"""Plain tables for the terminal: aligned by what letters take up there, wrapped to its width, made without delay.

The table of a plan can have a thousand lines and must not take longer to draw than to work out.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from functools import cached_property
from pathlib import Path

from ms_tune.diagnostics import Severity
from ms_tune.encode import as_json, json_text
from ms_tune.text import Language, Message, Text, msg, render

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from typing import TextIO

    from ms_tune.errors import MsTuneError

_GAP = "  "
_CLOSING, _OPENING = "，。；：、）！？”》", "（“《"
_FALLBACK = 100  # columns, where there is no terminal to ask
# Patterns, which most commands never need.
_NAME, _PARTS = r"\w+(?:@\w+)*", r"[^_@]+[_@]*|[_@]+"
_BLANK = r"(?<!\d) | (?![GMK]iB\b)"  # no blank between a number and its unit
_WIDE = (
    r"\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6"  # East Asian letters
)
# Where such a phrase ends: behind a mark, and next to another script; where one of its letters does. A mark stays with its letter.
_PHRASE_END = (
    rf"(?<=[{_CLOSING}])(?![{_CLOSING}])|(?<![{_OPENING}])(?=[{_OPENING}])"
    rf"|(?<=[^{_WIDE}])(?<![{_OPENING}])(?=[{_WIDE}])(?![{_CLOSING}])|(?<=[{_WIDE}])(?<![{_OPENING}])(?=[^{_WIDE}])(?![{_CLOSING}])"
)
_LETTER_END = rf"(?<=[{_WIDE}])(?<![{_OPENING}])(?=[{_WIDE}])(?![{_CLOSING}])"
_ESCAPE = r"\033\[[0-9;]*m"
_LABEL = r" *(?:[-=] +(?:\w+(?:: |：))?|\d+ +|\S(?:[^ ]| (?! ))*? {2,})(?=\S)"
_WHOLE = r" *(?:\$ |ms-tune |(?:Formative|Set) )|[^:]+: ms-tune [a-z]| *--> |\s*\d*\s*\|"
_SET_IN = 2  # columns that what is folded goes on behind its line's own indentation
_NARROWEST = 8  # columns of a wrapped column


def folds() -> bool:
    """Whether somebody reads the lines at a width that is known: a terminal, or COLUMNS."""
    return sys.stdout.isatty() or "COLUMNS" in os.environ


def terminal_width() -> int:
    """Columns of the terminal; where there is none, a good width for a file."""
    if folds():
        import shutil  # noqa: PLC0415 - slow to import, and needed on a terminal only

        return shutil.get_terminal_size((_FALLBACK, 24)).columns
    return _FALLBACK


def width_of(stream: TextIO) -> int | None:
    """Columns of the terminal that a stream is; None where it is none, or does not tell."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream.isatty() else None
    except (OSError, ValueError):
        return None


def text_width(text: str) -> int:
    """Columns that a text takes up; East Asian letters take two."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """The text filled up with blanks, to the right end or to the left."""
    blanks = " " * (width - text_width(text))
    return blanks + text if right else text + blanks


def table_lines(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: Container[int], width: int
) -> Iterator[str]:
    """The lines of a table that fits the width. Numbers, in columns ``right``, are never wrapped; columns without texts are left out."""
    kept = [column for column in range(len(heads)) if column in right or any(row[column] for row in rows)]
    numbers = [column in right for column in kept]
    cells = [[row[column].split("\n") for column in kept] for row in rows]
    texts = [[line for row in cells for line in row[place]] for place in range(len(kept))]
    widths = [max(map(text_width, (heads[column], *lines))) for column, lines in zip(kept, texts, strict=True)]
    top = [[heads[column]] for column in kept]
    if sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        # Words stay whole as long as that leaves room for the others; then Chinese sentences and paths are broken, but
        # never a file's name, and then identifiers.
        for broken in (lambda line: line.split(" "), _at_letters, _at_marks):
            least = [
                max(
                    text_width(part)
                    for part in (*heads[column].split(" "), *_least_parts(lines, broken, number=number))
                )
                for column, lines, number in zip(kept, texts, numbers, strict=True)
            ]
            _narrow_columns(widths, least, width)
        top = [wrap(heads[column], limit) for column, limit in zip(kept, widths, strict=True)]
        cells = [[_wrap_cell(cell, limit) for cell, limit in zip(row, widths, strict=True)] for row in cells]
    yield from _row_lines(top, widths, numbers)
    yield "─" * min(width, sum(widths) + len(_GAP) * (len(widths) - 1))
    for row in cells:
        yield from _row_lines(row, widths, numbers)


def _at_folders(line: str) -> list[str]:
    # Of a path its folders and its file: `/opt/site/`, `train.py:18`.
    return [part for word in line.split(" ") for part in re.findall(r"(?:[^/]*/)+(?=[^/]*$)|[^/]+$", word)]


def _at_letters(line: str) -> list[str]:
    # The same, and of East Asian sentences, which have no blanks, what must not be broken.
    return [word for part in _at_folders(line) for _, word in _split_words(part)]


def _at_marks(line: str) -> list[str]:
    # Of identifiers their parts, such as `aclnnMuls_`, `MulAiCore_`, `Mul`; all else as letters.
    return [
        piece
        for part in _at_letters(line)
        for piece in (re.findall(_PARTS, part) if re.fullmatch(_NAME, part) else [part])
    ]


def _least_parts(lines: Sequence[str], broken: Callable[[str], list[str]], *, number: bool) -> Sequence[str]:
    return lines if number else [" " * _NARROWEST, *(part for line in lines for part in broken(line))]


def _wrap_cell(lines: Sequence[str], width: int) -> list[str]:
    found: list[str] = []
    for part in (part for line in lines for part in wrap(line, width)):
        for piece in [part] if text_width(part) <= width else _at_folders(part):
            for bit in wrap(piece, width, prose=True):
                found += [bit] if text_width(bit) <= width else _join_pieces(_at_marks(bit), width)
    return found


def _join_pieces(pieces: Sequence[str], width: int) -> list[str]:
    lines = [""]
    for piece in pieces:
        if lines[-1] and text_width(lines[-1] + piece) > width:
            lines.append("")
        lines[-1] += piece
    return lines


def _narrow_columns(widths: list[int], least: Sequence[int], width: int) -> None:
    # Take from the widest of the columns that may be narrower until the table fits.
    while sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        wide = [column for column, low in enumerate(least) if widths[column] > low]
        if not wide:
            return
        widths[max(wide, key=widths.__getitem__)] -= 1


def wrap(text: str, width: int, *, prose: bool = False) -> list[str]:
    """Return the text in lines of at most ``width`` columns, broken at blanks; longer words stay whole.

    Prose is also broken where an East Asian phrase ends, and inside a phrase only if that is longer than a line.
    """
    if text_width(text) <= width:
        return [text]
    lines = [""]
    for blank, word in _split_words(text, width) if prose else _at_blanks(text, " "):
        joined = f"{lines[-1]}{blank}{word}" if lines[-1] else word
        if text_width(joined) > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = joined
    return lines


def fold(line: str, width: int) -> list[str]:
    """A line of prose in lines of at most so many columns; what follows a label or a mark goes on below itself.

    Commands, which people copy, and words without a blank in them (paths) are left whole.
    """
    if text_width(re.sub(_ESCAPE, "", line)) <= width or re.match(_WHOLE, line):
        return [line]
    indent = line[: len(line) - len(line.lstrip(" "))]
    label = re.match(_LABEL, line)
    lead = label[0] if label and text_width(label[0]) <= width // 2 else indent
    below = " " * (text_width(lead) + (_SET_IN if lead == indent else 0))
    parts = wrap(line[len(lead) :], width - len(below), prose=True)
    return [f"{below if number else lead}{part}".rstrip() for number, part in enumerate(parts)]


def _at_blanks(text: str, blank: str) -> Iterator[tuple[str, str]]:
    for number, part in enumerate(re.split(blank, text)):
        yield " " if number else "", part


def _split_words(text: str, width: int = 0) -> Iterator[tuple[str, str]]:
    """Yield what must not be broken, each with the blank before it: of East Asian text phrases, or letters of a phrase above the width."""
    for blank, part in _at_blanks(text, _BLANK):
        for phrase in re.split(_PHRASE_END, part):
            letters = re.split(_LETTER_END, phrase) if text_width(phrase) > width else [phrase]
            for word in letters:
                yield blank, word
                blank = ""  # noqa: PLW2901 - stands before the first alone


def _row_lines(cells: Sequence[Sequence[str]], widths: Sequence[int], numbers: Sequence[bool]) -> list[str]:
    return [
        _GAP.join(
            pad(cell[line] if line < len(cell) else "", limit, right=right)
            for cell, limit, right in zip(cells, widths, numbers, strict=True)
        ).rstrip()
        for line in range(max(map(len, cells)))
    ]


class Console:
    """Where a command writes, and in which language."""

    def __init__(self, language: Language) -> None:
        self.language = language

    def text(self, text_id: str, /, **params: object) -> str:
        """The sentence with this id in the user's language."""
        return render(Message(text_id, params), self.language)

    def say(self, message: Message | Text) -> str:
        """A message, or a text, in the user's language."""
        return message.say(self.language)

    def labelled(self, label: str, text: str) -> str:
        """What a label is about, behind its colon; an empty text for a heading."""
        return self.text("cli.labelled", label=label, text=text).rstrip()

    def listed(self, items: Iterable[str], *, last: bool = False) -> str:
        """Return several things one after the other; ``last`` puts "and" before the last one."""
        *some, end = list(items) or [""]
        comma = self.text("cli.comma")
        if last and some:
            return self.text("cli.and", some=comma.join(some), end=end)
        return comma.join([*some, end])

    def write(self, text: str) -> None:
        """A line of the result, folded to the terminal's width; a text of several lines stays as it is."""
        body = text.lstrip("\n")
        if folds() and "\n" not in body and len(body) * 2 > terminal_width():
            text = "\n".join([*[""] * (len(text) - len(body)), *fold(body, terminal_width())])
        self.write_whole(text)

    def write_text(self, text_id: str, /, **params: object) -> None:
        """The sentence with this id as a line of the result."""
        self.write(self.text(text_id, **params))

    def write_section(self, text_id: str, /, **params: object) -> None:
        """A sentence that begins something new, behind an empty line."""
        self.write("")
        self.write_text(text_id, **params)

    def write_prose(self, text: str) -> None:
        """A text of several lines, each folded."""
        for line in text.split("\n"):
            self.write(line)

    def write_whole(self, text: str) -> None:
        """Lines of the result that programs read or people copy, as they are."""
        print(text, file=sys.stdout)  # noqa: T201 - the one place where results are printed

    def write_table(self, heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: Container[int]) -> None:
        """A table as wide as the terminal; the columns ``right`` hold numbers."""
        for line in table_lines(heads, rows, right=right, width=terminal_width()):
            self.write_whole(line)

    def json_text(self, value: Mapping[str, object]) -> str:
        """A result as one JSON object, its sentences in the user's language."""
        return json_text(as_json(value, self.language), indent=2)

    def write_json(self, value: Mapping[str, object]) -> None:
        """The result as one JSON object."""
        self.write_whole(self.json_text(value))

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
        # Notes for a reader, folded on a terminal; programs get a line a note.
        width = width_of(sys.stderr)
        self.note("\n".join(part for line in text.split("\n") for part in fold(line, width)) if width else text)

    def paint(self, text: str, colour: str, stream: TextIO | None = None) -> str:
        """The text in a colour, if the stream is a terminal that wants colours."""
        wanted = self._in_colour if stream is None else wants_colour(stream)
        return f"{_ANSI[colour]}{text}\033[0m" if wanted else text

    @cached_property
    def _in_colour(self) -> bool:
        return wants_colour(sys.stdout)


SEVERITY_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_ANSI = {"red": "\033[1;31m", "green": "\033[1;32m", "yellow": "\033[1;33m", "cyan": "\033[36m", "dim": "\033[2m"}


def wants_colour(stream: TextIO) -> bool:
    """Whether to colour what is written to the stream (https://no-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def usage_hint(program: str) -> Message:
    """Where to read how a command is used."""
    return msg("cli.usage.hint", program=program)


_STDIN = Path("-")


def shown_path(path: Path) -> str:
    """A file's name for people and programs."""
    return "<stdin>" if path == _STDIN else str(path)
