"""What commands with long work and files to write share: a line that shows progress, and care with what is there already."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING

from ms_tune.errors import UsageError
from ms_tune.source.atomic_write import replacement
from ms_tune.text import msg
from ms_tune.units import MIB

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from ms_tune.report.console import Console
    from ms_tune.text import Message

LONG = 1.0  # seconds before there is a line that shows how far the reading is
_EVERY = 0.1  # seconds between two looks of a progress line


class ProgressLine(AbstractContextManager["ProgressLine"]):
    """One line on standard error that is rewritten on a terminal; elsewhere nothing is shown.

    Args:
        console: Says the texts.
        delay: Seconds before anything is shown: short work needs no line.
    """

    def __init__(self, console: Console, delay: float = 0.0) -> None:
        self._console = console
        self._live = sys.stderr.isatty()
        self._shown = False
        self._next = time.monotonic() + delay

    def show(self, message: Message, share: float) -> None:
        """Show how much of something is done."""
        now = time.monotonic()
        if not self._live or now < self._next:
            return
        self._next = now + _EVERY
        filled = round(max(0.0, min(share, 1.0)) * 20)
        sys.stderr.write(f"\r\033[K{self._console.say(message)} [{'#' * filled}{'.' * (20 - filled)}] {share:4.0%}")
        sys.stderr.flush()
        self._shown = True

    def read(self, done: int, total: int) -> None:
        """Show that so many bytes of so many are read."""
        self.show(msg("memory.progress", done=done // MIB, total=total // MIB), done / max(total, 1))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def new_file(path: Path | None, *, force: bool, makes_folders: bool = False) -> None:
    """Raise :class:`UsageError` if a file cannot be written there, or may not be overwritten; before the long work begins."""
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
    """A text as a file; the user is told."""
    with file_to_write(path, console) as part:
        part.write_text(text, encoding="utf-8")


@contextmanager
def file_to_write(path: Path, console: Console) -> Iterator[Path]:
    """A file to write: the user is told when it is done, and a file that could not be written to the end is not there."""
    with replacement(path) as part:
        yield part
    console.note(console.text("memory.written", file=path))


_STDOUT = 1


@contextmanager
def without_native_output() -> Iterator[None]:
    """What native code prints to standard output meanwhile is dropped.

    HiGHS, which SciPy 1.17 brings, prints a line about ``transformNewIntegerFeasibleSolution`` in some searches, whatever it is asked to
    tell: ``--json`` would be no JSON. Nothing of Python's own may be printed meanwhile.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(_STDOUT)
    except OSError:  # closed: nothing can be printed
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, _STDOUT)
        yield
    finally:
        with suppress(OSError, AttributeError, TypeError):  # a system whose C library cannot be asked
            ctypes.CDLL(None).fflush(None)  # what it has printed may wait in its buffer
        os.dup2(kept, _STDOUT)
        os.close(kept)
        os.close(nowhere)


def refuse_options(arguments: Namespace, options: Mapping[str, object], text_id: str) -> None:
    """Raise :class:`UsageError` if an option was given that makes no sense here.

    Args:
        arguments: The command line.
        options: Names of options, with the values that they have when they are not given.
        text_id: What to say, with ``options``.
    """
    given = [name for name, default in options.items() if getattr(arguments, name) != default]
    if given:
        raise UsageError(msg(text_id, options=", ".join(f"--{name.replace('_', '-')}" for name in given)))
