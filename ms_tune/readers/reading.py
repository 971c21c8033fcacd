"""Opens what readers read, tells why it cannot be read, and takes large text files in parts of whole lines, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.errors import TraceError, nearby, reason_of
from ms_tune.text import msg

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

Progress = Callable[[int], None]
PART = 32 * 1024**2  # bytes; smaller parts cost time, larger ones memory
LONGEST_LINE = 16 * 1024**2  # bytes; the longest real lines, of weights in long runs, have some hundred kilobytes
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


@dataclass(frozen=True, slots=True)
class FilePart:
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


def no_progress(_: int) -> None:
    """Nobody watches."""


def parts_of(file: BinaryIO, first: int, on_bytes: Progress) -> Iterator[FilePart]:
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
