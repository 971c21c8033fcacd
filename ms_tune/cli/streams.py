"""Standard output as users have it: a pipe whose reader goes away, a full disk, closed before anything began."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from ms_tune.errors import USUAL, UsageError, reason_of
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

# Whatever else the operating system refuses is a defect of ms-tune.
_TROUBLE = {*USUAL, errno.EMFILE, errno.ENFILE, errno.ESTALE}


class OutputStream:
    """Standard output that a command can write to until it has ended, whoever reads it.

    A reader that goes away (``ms-tune lint ... | head``) is no failure, and no reason to end with another exit code: what is
    written from then on is dropped.

    Args:
        stream: The real one; None if the process was started without.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text.

        Raises:
            UsageError: It cannot be written.
        """
        if self._stream is None:
            raise UsageError(msg("cli.stdout.closed"))
        try:
            return self._stream.write(text)
        except OSError as error:
            self._drop(error)
            return len(text)

    def flush(self) -> None:
        """Write what is left in the buffer.

        Raises:
            UsageError: It cannot be written.
        """
        try:
            if self._stream is not None:
                self._stream.flush()
        except OSError as error:
            self._drop(error)

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self._stream, name)

    def _drop(self, error: OSError) -> None:
        """Send all further output to nowhere, or Python would complain once more when it flushes the rest at exit."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())  # type: ignore[union-attr] # it has just failed
        if not isinstance(error, BrokenPipeError):
            raise UsageError(msg("cli.stdout.failed", reason=reason_of(error))) from None


def prepare() -> None:
    """Make the process's own streams such; Chinese text on a terminal whose locale is "C" must not end in an error either."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    sys.stdout = OutputStream(sys.stdout)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - to the end of the process


def trouble(error: OSError) -> UsageError | None:
    """What to tell of a file, folder or disk that does not do what it is asked; None where that is ms-tune's fault."""
    if error.errno not in _TROUBLE:
        return None
    names = ", ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
    return UsageError(msg("cli.trouble", file=names or "-", reason=reason_of(error)))
