"""Opens what readers read, tells why it cannot be read, and takes large text files in parts of whole lines, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from ms_tune.errors import TraceError, nearby, reason_of
from ms_tune.records import Record
from ms_tune.text import Message, msg

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

Progress = Callable[[int], None]
PART = 32 * 1024**2  # bytes; smaller parts cost time, larger ones memory
LONGEST_LINE = 16 * 1024**2  # bytes; the longest real lines, of weights in long runs, have some hundred kilobytes
_LONGEST_SHORT = 64 * 1024  # bytes of a line of a table that people or small programs write
_LOOK_AHEAD = 64 * 1024  # bytes


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Around what reads a file or a folder. Raises TraceError: it cannot be opened, read or listed."""
    try:
        yield
    except FileNotFoundError:
        raise TraceError(msg("trace.folder.absent"), nearby(path), path=path) from None
    except OSError as error:
        hint = msg("trace.unreadable.hint") if isinstance(error, PermissionError) else None
        raise TraceError(msg("trace.unreadable", detail=reason_of(error)), hint, path=path) from error


def read_json(path: Path, most: int, too_long: Message, text: str) -> object:
    """What a JSON file of at most so many bytes holds; ``text`` is the id of what is said where it is none.

    Raises:
        TraceError: The file cannot be read, is longer, or is no JSON.
    """
    with reading(path):
        if path.stat().st_size > most:
            raise TraceError(too_long, path=path)
        content = path.read_bytes()
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        raise TraceError(msg(text, detail=error.msg), path=path, line=error.lineno, column=error.colno) from error
    except (ValueError, RecursionError) as error:  # a number of too many digits, no UTF-8, too deep
        raise TraceError(msg(text, detail=type(error).__name__), path=path) from error


def iterate_short_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank of a text file with short lines, without their ends, and their numbers from 1.

    Raises:
        TraceError: The file cannot be read, has a longer line, or is no UTF-8.
    """
    with reading(path), path.open("rb") as file:
        for number in count(1):
            raw = file.readline(_LONGEST_SHORT)
            if len(raw) == _LONGEST_SHORT:
                raise TraceError(msg("placement.long-line"), path=path, line=number)
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise TraceError(msg("placement.not-text"), path=path, line=number) from None
            if line.strip():
                yield number, line
            elif not raw:
                return


class FilePart(Record):
    """Some lines of a file."""

    first: int  # the number of the first line, from 1
    data: bytes | None  # the lines; None stands for one line that is longer than `LONGEST_LINE`
    height: int  # how many lines
    complete: bool  # whether the last line had a line feed

    def lines(self) -> Iterator[tuple[int, str | None, bool]]:
        """Number, text (None if too long) and completeness of every line that is not blank."""
        if self.data is None:
            yield self.first, None, True
            return
        lines = self.data.split(b"\n")
        last = self.first + self.height - 1
        for number, raw in enumerate(lines, start=self.first):
            if raw.strip():
                text = raw.rstrip(b"\r\n").decode("utf-8", errors="replace")
                yield number, text, self.complete or number != last


def iterate_lines(file: BinaryIO) -> Iterator[tuple[int, str | None, bool]]:
    """Number, text (None if too long) and completeness of every line that is not blank."""
    number = 0
    while raw := file.readline(LONGEST_LINE):
        number += 1
        complete = raw.endswith(b"\n")
        if not complete and len(raw) == LONGEST_LINE:
            _skip_line(file)
            yield number, None, True
        elif raw.strip():
            yield number, raw.rstrip(b"\r\n").decode("utf-8", errors="replace"), complete


def no_progress(_: int) -> None:
    """Nobody watches."""


class ByteCounter:
    """Adds up the bytes that are read of some files, and tells them beside the bytes of all."""

    def __init__(self, total: int, on_bytes: Callable[[int, int], None]) -> None:
        self._done, self._total, self._on_bytes = 0, total, on_bytes

    def add(self, count: int) -> None:
        """Some more bytes."""
        self._done += count
        self._on_bytes(min(self._done, self._total), self._total)


def iterate_parts(file: BinaryIO, first: int, on_bytes: Progress) -> Iterator[FilePart]:
    """What is left of a file, at the beginning of line ``first``, in parts; ``on_bytes`` is told the bytes of every piece."""
    number = first
    while data := file.read(_whole_lines(file)):
        rest = b""
        if not data.endswith(b"\n"):
            rest = file.readline(LONGEST_LINE)
            data += rest
        on_bytes(len(data))
        last = b""
        if not data.endswith(b"\n"):
            data, mark, last = data.rpartition(b"\n")
            data += mark
        height = data.count(b"\n")
        if height:
            yield FilePart(number, data, height, complete=True)
            number += height
        if last and len(rest) < LONGEST_LINE:
            yield FilePart(number, last, 1, complete=False)
        elif last:
            yield FilePart(number, None, 1, complete=True)
            number += 1
            on_bytes(_skip_line(file))


def _whole_lines(file: BinaryIO) -> int:
    """How many bytes to read so that they end with a line, as far as a short look ahead tells; it saves a copy of them."""
    begin = file.tell()
    file.seek(begin + PART)
    ahead = file.read(_LOOK_AHEAD)
    file.seek(begin)
    return PART + ahead.find(b"\n") + 1


def _skip_line(file: BinaryIO) -> int:
    count = 0
    while rest := file.readline(PART):
        count += len(rest)
        if rest.endswith(b"\n"):
            break
    return count
