"""Show progress and write output files safely; shared by commands with long work or files to write."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import TracebackType

from ms_tune.errors import UsageError
from ms_tune.report.console import Console, text_width, width_of
from ms_tune.source.atomic_write import replacement
from ms_tune.text import Message, msg
from ms_tune.units import MIB

LONG = 1.0  # seconds before a progress line appears
_EVERY = 0.1  # seconds between two updates of the line
_SILENCE = 10.0  # seconds between two lines without a terminal
_WIDTH = 100  # columns, if the terminal does not report its width
_SHORT, _STEP = 90.0, 5  # the time left is given in seconds up to this value, rounded to this many


class ProgressLine(AbstractContextManager["ProgressLine"]):
    """A progress line on standard error, rewritten on a terminal; elsewhere at most one line in ten seconds.

    It appears after ``delay`` seconds; shorter work shows none.
    """

    def __init__(self, console: Console, delay: float = 0.0) -> None:
        self._console = console
        self.is_live = sys.stderr.isatty()
        self._next = time.monotonic() + (delay if self.is_live else _SILENCE)
        self._begun: tuple[float, float] | None = None  # time and share at which the work began
        self._share = 0.0
        self._announced: str | None = None
        self._unsaid = ""  # the last announcement, if it was not shown or will be erased

    def show(self, message: Message, share: float) -> None:
        """Show the share of the work that is done, and the time left; a smaller share than before begins other work."""
        now, share = time.monotonic(), max(0.0, min(share, 1.0))
        if self._begun is None or share < self._share:
            self._begun = now, share
        self._share = share
        if now < self._next:
            return
        start, first = self._begun
        filled = round(share * 20)
        done = f"[{'#' * filled}{'.' * (20 - filled)}] {share:.0%}" if self.is_live else f"{share:.0%}"
        parts = [self._console.say(message), done]
        if share > first and now - start >= LONG:
            parts.append(describe_time_left((now - start) * (1 - share) / (share - first), self._console))
        self.write("; ".join(parts))

    def announce(self, text: str) -> None:
        """Show what begins now."""
        if self._announced is None:
            self._next = 0.0
        if text != self._announced:
            self._announced = self._unsaid = text
            if self.write(text) and not self.is_live:
                self._unsaid = ""

    def write(self, text: str) -> bool:
        """Show a line, except within ten seconds after another one that stays; return whether it was shown."""
        now = time.monotonic()
        if not self.is_live and now < self._next:
            return False
        self._next = now + (_EVERY if self.is_live else _SILENCE)
        if not self.is_live:
            self._console.note(text)
            return True
        width = (width_of(sys.stderr) or _WIDTH) - 1
        while text_width(text) > width:
            text = text[:-1]
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()
        return True

    def read(self, done: int, total: int) -> None:
        """Show how many bytes of the total have been read."""
        self.show(msg("memory.progress", done=done // MIB, total=total // MIB), done / max(total, 1))

    def clear(self) -> None:
        """Erase the line of a terminal."""
        if self.is_live:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()
        if kind is not None and self._unsaid:
            self._console.note(self._unsaid)


def describe_time_left(seconds: float, console: Console) -> str:
    """Return the time left, rounded."""
    if seconds > _SHORT:
        return console.text("cli.progress.minutes", minutes=round(seconds / 60))
    return console.text("cli.progress.seconds", seconds=max(_STEP, _STEP * round(seconds / _STEP)))


def new_file(path: Path | None, *, force: bool, makes_folders: bool = False) -> None:
    """Raise :class:`UsageError` if a file exists already or cannot be written; call it before long work."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError(msg("cli.usage.value", argument=path, detail=msg("config.folder")), msg("cli.output.folder"))
    if path.exists() and not force:
        raise UsageError(msg("cli.usage.value", argument=path, detail=msg("memory.exists")), msg("memory.exists.hint"))
    if not makes_folders and not path.parent.exists():
        raise UsageError(
            msg("cli.usage.value", argument=path.parent, detail=msg("cli.os.enoent")),
            msg("cli.output.parent", folder=path.parent),
        )


def write_text_file(path: Path, text: str, console: Console) -> None:
    """Write a text file and report its path."""
    with file_to_write(path, console) as part:
        part.write_text(text, encoding="utf-8")


@contextmanager
def file_to_write(path: Path, console: Console) -> Iterator[Path]:
    """Yield a temporary file to fill; on success it replaces ``path`` and is reported, on failure it is removed."""
    with replacement(path) as part:
        yield part
    console.note(console.text("memory.written", file=path))


_STDOUT = 1


@contextmanager
def without_native_output() -> Iterator[None]:
    """Discard standard output of native code within a ``with`` block.

    HiGHS in SciPy 1.17 prints a line about ``transformNewIntegerFeasibleSolution`` in some searches, regardless of its
    options, which would break ``--json``. Python code must not print within the block.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(_STDOUT)
    except OSError:  # standard output is closed
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, _STDOUT)
        yield
    finally:
        with suppress(OSError, AttributeError, TypeError):  # the C library cannot be called
            ctypes.CDLL(None).fflush(None)  # flush the C library's buffer
        os.dup2(kept, _STDOUT)
        os.close(kept)
        os.close(nowhere)
