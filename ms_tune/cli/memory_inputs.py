"""What ``ms-tune memory`` and its sub-commands share: progress while files are read, and care when files are written."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from ms_tune.config.write import replacement
from ms_tune.errors import UsageError
from ms_tune.texts import msg
from ms_tune.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from ms_tune.render.console import Console

_LONG = 1.0  # seconds before there is a progress bar
_BAR = 30


class ReadingProgress(AbstractContextManager["ReadingProgress"]):
    """A bar on standard error, on a terminal only, while long files are read."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begin = time.monotonic()
        self._shown = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def show(self, done: int, total: int) -> None:
        """So many bytes of so many are read."""
        if not sys.stderr.isatty() or time.monotonic() - self._begin < _LONG:
            return
        self._shown = True
        filled = min(_BAR, done * _BAR // max(total, 1))
        text = self._console.text("memory.progress", done=done // MIB, total=total // MIB)
        sys.stderr.write(f"\r\033[K[{'█' * filled}{'░' * (_BAR - filled)}] {text}")
        sys.stderr.flush()


def new_file(path: Path | None, *, force: bool) -> None:
    """Raise :class:`UsageError` if a file exists that may not be overwritten; before the long work begins."""
    if path is not None and path.exists() and not force:
        raise UsageError(
            msg("cli.usage.value", argument=str(path), detail=msg("memory.exists")), msg("memory.exists.hint")
        )


@contextmanager
def written(path: Path, console: Console) -> Iterator[Path]:
    """A file to write: the user is told when it is done, and a file that could not be written to the end is not there."""
    with replacement(path) as part:
        yield part
    console.note(console.text("memory.written", file=path))
