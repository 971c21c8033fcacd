"""Write results to the terminal: plain tables and text, aligned by display width and wrapped to the terminal's width.

A plan's table can have a thousand lines, and drawing it must not take longer than computing it.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from urllib.parse import quote

from ms_tune.diagnostics import Severity
from ms_tune.encode import as_json, json_text
from ms_tune.errors import MsTuneError
from ms_tune.text import Language, Message, Text, msg, render

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

_GAP = "  "
_CLOSING, _OPENING = "，。；：、）！？”》", "（“《"
_FALLBACK = 100  # columns, without a terminal
# Patterns as strings, compiled on demand, because most commands do not need them.
_NAME, _PARTS = r"\w+(?:@\w+)*", r"[^_@]+[_@]*|[_@]+"
_WIDE = r"\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6"  # East Asian characters
# Line breaks after an East Asian phrase (after a mark, or next to another script) or character; a mark stays with its character.
_PHRASE_END = (
    rf"(?<=[{_CLOSING}])(?![{_CLOSING}])|(?<![{_OPENING}])(?=[{_OPENING}])"
    rf"|(?<=[^ {_WIDE}])(?<![{_OPENING}])(?=[{_WIDE}])(?![{_CLOSING}])|(?<=[{_WIDE}])(?<![{_OPENING}])(?=[^ {_WIDE}])(?![{_CLOSING}])"
)
_BLANK = rf"(?<!\d) | (?![A-Za-zµ%{_WIDE}])"  # no line break between a number and its unit, or the noun that it counts
_LETTER_END = rf"(?<=[{_WIDE}])(?<![{_OPENING}])(?=[{_WIDE}])(?![{_CLOSING}])"
_ESCAPE = r"\033\[[0-9;]*m|\033\]8;;[^\033]*\033\\"  # a colour, the start or the end of a link
_LABEL = r"(?: *[-=] +(?:\w+(?:: |：))?| +\d+ +| *\S(?:[^ ]| (?! ))*? {2,})(?=\S)"
_WHOLE = r" *(?:\$ |ms-tune |(?:Formative|Set) )|[^:：]+(?:: |：)ms-tune [a-z](?!.* \[-)| *--> |\s*\d*\s*\|"
_SENTENCE_WITH_COMMAND = r"((?:[^:：]+[:：] ?){2}) *(ms-tune [a-z].*)"
_SET_IN = 2  # additional indentation of continued lines
_NARROWEST = 8  # minimum width of a wrapped column
_STDIN = Path("-")


def folds() -> bool:
    """Return whether the output has a known width: a terminal, or COLUMNS is set."""
    return sys.stdout.isatty() or "COLUMNS" in os.environ


def terminal_width() -> int:
    """Return the columns of the terminal, or a good width for a file."""
    wanted = os.environ.get("COLUMNS", "")
    return int(wanted) if wanted.isdecimal() and int(wanted) else width_of(sys.stdout) or _FALLBACK


def width_of(stream: TextIO) -> int | None:
    """Return the columns of a stream's terminal; None if it is not a terminal or does not report its width."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream.isatty() else None
    except (OSError, ValueError):
        return None


def text_width(text: str) -> int:
    """Return the columns that a text occupies; East Asian characters occupy two, combining marks, colours and links none."""
    if "\033" in text:
        text = re.sub(_ESCAPE, "", text)
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return the text padded with blanks on the right (or on the left, if ``right``)."""
    blanks = " " * (width - text_width(text))
    return blanks + text if right else text + blanks


def table_lines(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: Container[int], width: int
) -> Iterator[str]:
    """Yield the lines of a table of limited width; number columns (``right``) are never wrapped, empty text columns omitted."""
    kept = [column for column in range(len(heads)) if column in right or any(row[column] for row in rows)]
    numbers = [column in right for column in kept]
    cells = [[row[column].split("\n") for column in kept] for row in rows]
    texts = [[line for row in cells for line in row[place]] for place in range(len(kept))]
    widths = [max(map(text_width, (heads[column], *lines))) for column, lines in zip(kept, texts, strict=True)]
    top = [[heads[column]] for column in kept]
    if sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        # Break at blanks only, if that leaves enough room; else also within Chinese sentences and paths (never within a
        # file name), at last within identifiers.
        for broken in (partial(re.split, _BLANK), _at_letters, _at_marks):
            least = [
                max(
                    text_width(part)
                    for part in (*heads[column].split(" "), *_least_parts(lines, broken, number=number))
                )
                for column, lines, number in zip(kept, texts, numbers, strict=True)
            ]
            _narrow_columns(widths, least, width)
        # A heading is also broken before its unit.
        parts = ([(" ", word) for word in heads[column].split(" ")] for column in kept)
        top = [_fill_lines(words, limit) for words, limit in zip(parts, widths, strict=True)]
        cells = [[_wrap_cell(cell, limit) for cell, limit in zip(row, widths, strict=True)] for row in cells]
    yield from _row_lines(top, widths, numbers)
    yield "─" * min(width, sum(widths) + len(_GAP) * (len(widths) - 1))
    for row in cells:
        yield from _row_lines(row, widths, numbers)


def _at_folders(line: str) -> list[str]:
    # The folders of a path, and its file: `/opt/site/`, `train.py:18`.
    return [part for word in re.split(_BLANK, line) for part in re.findall(r"(?:[^/]*/)+(?=[^/]*$)|[^/]+$", word)]


def _at_letters(line: str) -> list[str]:
    # The same, and the unbreakable parts of East Asian sentences, which have no blanks.
    return [word for part in _at_folders(line) for _, word in _split_words(part)]


def _at_marks(line: str) -> list[str]:
    # The parts of identifiers, such as `aclnnMuls_`, `MulAiCore_`, `Mul`; other text is split as above.
    return [
        piece
        for part in _at_letters(line)
        for piece in (re.findall(_PARTS, part) if re.fullmatch(_NAME, part) else [part])
    ]


def _least_parts(lines: Sequence[str], broken: Callable[[str], list[str]], *, number: bool) -> Sequence[str]:
    narrowest = min(_NARROWEST, max(map(text_width, lines), default=0))
    return lines if number else [" " * narrowest, *(part for line in lines for part in broken(line))]


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
    # Repeatedly narrow the widest column that is above its minimum until the table fits.
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
    return _fill_lines(_split_words(text, width) if prose else _at_blanks(text), width)


def _fill_lines(words: Iterable[tuple[str, str]], width: int) -> list[str]:
    lines = [""]
    for blank, word in words:
        joined = f"{lines[-1]}{blank}{word}" if lines[-1] else word
        if text_width(joined) > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = joined
    return lines


def fold(line: str, width: int) -> list[str]:
    """Return a line of prose as lines of limited width; text after a label continues below the text.

    Commands, which users copy, and words without blanks (paths) stay whole.
    """
    plain = re.sub(_ESCAPE, "", line)
    if text_width(plain) <= width or re.match(_WHOLE, plain):
        return [line]
    command = re.fullmatch(_SENTENCE_WITH_COMMAND, plain)
    if command:
        return [*fold(command[1].rstrip(), width), f"{' ' * _SET_IN}{command[2]}"]
    indent = plain[: len(plain) - len(plain.lstrip(" "))]
    label = re.match(_LABEL, plain)
    lead = label[0] if label and text_width(label[0]) <= width // 2 else indent
    below = " " * (text_width(lead) + (_SET_IN if lead == indent else 0))
    # The lead with its colours: as many characters, each after any number of colours.
    coloured = re.match(rf"(?:(?:{_ESCAPE})*[^\033]){{{len(lead)}}}", line)
    start = coloured.end() if coloured else 0
    first, *rest = wrap(line[start:], width - text_width(lead), prose=True)
    parts = wrap(line[start + len(first) :].lstrip(" "), width - len(below), prose=True) if rest else []
    return [f"{line[:start]}{first}".rstrip(), *[f"{below}{part}".rstrip() for part in parts]]


def _at_blanks(text: str) -> Iterator[tuple[str, str]]:
    for number, part in enumerate(re.split(_BLANK, text)):
        yield " " if number else "", part


def _split_words(text: str, width: int = 0) -> Iterator[tuple[str, str]]:
    """Yield unbreakable words with the blank before each; in East Asian text phrases, or characters if a phrase is too wide."""
    for blank, part in _at_blanks(text):
        for phrase in re.split(_PHRASE_END, part):
            letters = re.split(_LETTER_END, phrase) if text_width(phrase) > width else [phrase]
            for word in letters:
                yield blank, word
                blank = ""  # noqa: PLW2901 - only before the first


def _row_lines(cells: Sequence[Sequence[str]], widths: Sequence[int], numbers: Sequence[bool]) -> list[str]:
    return [
        _GAP.join(
            pad(cell[line] if line < len(cell) else "", limit, right=right)
            for cell, limit, right in zip(cells, widths, numbers, strict=True)
        ).rstrip()
        for line in range(max(map(len, cells)))
    ]


class Console:
    """Output of a command, in the user's language."""

    def __init__(self, language: Language) -> None:
        self.language = language

    def text(self, text_id: str, /, **params: object) -> str:
        """Return the text with this ID in the user's language."""
        return render(Message(text_id, params), self.language)

    def say(self, message: Message | Text) -> str:
        """Return a message or a text in the user's language."""
        return message.say(self.language)

    def labelled(self, label: str, text: str) -> str:
        """Return a label and its text, separated by a colon; an empty text makes a heading."""
        return self.text("cli.labelled", label=label, text=text).rstrip()

    def listed(self, items: Iterable[str], *, last: bool = False) -> str:
        """Return items joined by commas; ``last`` puts "and" before the last one."""
        *some, end = list(items) or [""]
        comma = self.text("cli.comma")
        if last and some:
            return self.text("cli.and", some=comma.join(some), end=end)
        return comma.join([*some, end])

    def write(self, text: str) -> None:
        """Write a line of the result, wrapped to the terminal's width; a text with several lines stays as it is."""
        body = text.lstrip("\n")
        if folds() and "\n" not in body and len(body) * 2 > terminal_width():
            text = "\n".join([*[""] * (len(text) - len(body)), *fold(body, terminal_width())])
        self.write_raw(text)

    def write_lines(self, lines: Iterable[str | Message | Text], lead: str = "") -> None:
        """Write lines of the result, each after ``lead``."""
        for line in lines:
            self.write(f"{lead}{line if isinstance(line, str) else self.say(line)}")

    def write_text(self, text_id: str, /, **params: object) -> None:
        """Write the text with this ID as a line of the result."""
        self.write(self.text(text_id, **params))

    def count_lines(self, *texts: str) -> int:
        """Return the number of lines in which lines of the result are written."""
        return sum(len(fold(text, terminal_width())) if folds() else 1 for text in texts)

    def write_section(self, text_id: str, /, **params: object) -> None:
        """Write an empty line and the text with this ID."""
        self.write("")
        self.write_text(text_id, **params)

    def write_prose(self, text: str) -> None:
        """Write a text with several lines, wrapping each."""
        for line in text.split("\n"):
            self.write(line)

    def write_raw(self, text: str) -> None:
        """Write lines without wrapping, because programs read them or users copy them."""
        print(text, file=sys.stdout)  # noqa: T201 - the only place where results are printed

    def write_table(self, heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: Container[int]) -> None:
        """Write a table of the terminal's width; the columns ``right`` are numbers."""
        for line in table_lines(heads, rows, right=right, width=terminal_width()):
            self.write_raw(line)

    def json_text(self, value: Mapping[str, object]) -> str:
        """Return a result as a JSON object with texts in the user's language."""
        return json_text(as_json(value, self.language), indent=2)

    def write_json(self, value: Mapping[str, object]) -> None:
        """Write the result as a JSON object."""
        self.write_raw(self.json_text(value))

    def note(self, text: str) -> None:
        """Write a line to standard error: progress, warnings, errors."""
        print(text, file=sys.stderr)  # noqa: T201 - the only place where notes are printed

    def warn(self, message: Message) -> None:
        """Write a warning; the command continues."""
        label = self.text("cli.warning")
        self._tell(self.labelled(self.paint(label, "yellow", sys.stderr), self.say(message)))

    def fail(self, error: MsTuneError) -> None:
        """Write an error with its place and a hint."""
        where = error.location()
        label = self.paint(self.text("cli.error"), "red", sys.stderr)
        self._tell(f"{where + ': ' if where else ''}{self.labelled(label, self.say(error.message))}")
        if error.hint is not None:
            hint = self.paint(self.text("cli.hint"), "cyan", sys.stderr)
            self._tell(f"  {self.labelled(hint, self.say(error.hint))}")

    def _tell(self, text: str) -> None:
        # Notes are wrapped on a terminal only, so that programs get one line per note.
        width = width_of(sys.stderr)
        self.note("\n".join(part for line in text.split("\n") for part in fold(line, width)) if width else text)

    def paint(self, text: str, colour: str, stream: TextIO | None = None) -> str:
        """Return the text in a colour, if the stream accepts colours."""
        wanted = self._in_colour if stream is None else wants_colour(stream)
        return f"{_ANSI[colour]}{text}\033[0m" if wanted else text

    def link(self, text: str, target: str | Path | None) -> str:
        """Return the text as a link to an address or a file, if the terminal shows links."""
        if not target or target == _STDIN or not self._with_links:
            return text
        if isinstance(target, Path):
            # With the machine's name, so that a terminal does not look for the file on another one.
            target = f"file://{os.uname().nodename}{quote(str(target.absolute()))}"
        return f"\033]8;;{target}\033\\{text}\033]8;;\033\\"

    @cached_property
    def _in_colour(self) -> bool:
        return wants_colour(sys.stdout)

    @cached_property
    def _with_links(self) -> bool:
        return wants_links(sys.stdout)


SEVERITY_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_ANSI = {"red": "\033[1;31m", "green": "\033[1;32m", "yellow": "\033[1;33m", "cyan": "\033[36m", "dim": "\033[2m"}


def wants_colour(stream: TextIO) -> bool:
    """Return whether to use colours on a stream (https://no-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def wants_links(stream: TextIO) -> bool:
    """Return whether to write links (OSC 8): on a terminal with colours that is not known to print them as garbage."""
    term, desktop = os.environ.get("TERM", ""), os.environ.get("COLORTERM", "")
    # The exceptions of GCC 14 (gcc/diagnostic-color.cc, auto_enable_urls).
    spoilt = term in ("", "linux", "vt220") or (term == "xterm" and not desktop)
    return (
        stream.isatty() and wants_colour(stream) and not spoilt and desktop not in ("xfce4-terminal", "gnome-terminal")
    )


def usage_hint(program: str) -> Message:
    """Return a hint that names the command's help."""
    return msg("cli.usage.hint", program=program)


def shown_path(path: Path) -> str:
    """Return a file's name as shown in output."""
    return "<stdin>" if path == _STDIN else str(path)
