"""Open the files that users name: a pipe without a writer is empty instead of waited for, and texts are read up to a limit."""

from __future__ import annotations

import errno
import os
from io import StringIO
from pathlib import Path
from stat import S_ISCHR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader, TextIOWrapper

_LARGEST_SOURCE = 1 << 20  # bytes


def open_bytes(path: Path) -> BufferedReader:
    """Open a file of bytes. Raises OSError."""
    return open(path, "rb", opener=_open_at_once)


def open_text(path: Path, encoding: str = "utf-8", newline: str | None = None) -> TextIOWrapper:
    """Open a text file; bytes that are not in the encoding are replaced. Raises OSError."""
    return open(path, encoding=encoding, errors="replace", newline=newline, opener=_open_at_once)


def read_bytes(path: Path, most: int) -> bytes:
    """Return a file's first ``most`` bytes, of a longer one another byte. Raises OSError."""
    with open_bytes(path) as file:
        return file.read(most + 1)


def read_source(file: Path) -> bytes:
    """Return the content of a file next to a job; empty if it is too large or cannot be read."""
    try:
        content = read_bytes(file, _LARGEST_SOURCE) if file.is_file() else b""
    except OSError:
        return b""
    return content if len(content) <= _LARGEST_SOURCE else b""


def read_source_text(file: Path) -> str:
    """Return the same as text."""
    return read_source(file).decode("utf-8", "replace")


def _open_at_once(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    status = os.fstat(descriptor)
    if S_ISCHR(status.st_mode) and not (os.isatty(descriptor) or os.path.samestat(status, Path(os.devnull).stat())):
        os.close(descriptor)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)  # /dev/zero has no end
    os.set_blocking(descriptor, True)  # once it is open, writers can be slow
    return descriptor


def near_path(path: Path) -> str:
    """Return a path relative to the working folder, if it is inside it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def diff_lines(old: str, new: str, old_name: str, new_name: str) -> Iterator[str]:
    """Yield the lines of a unified diff as ``patch`` reads them: a carriage return is part of its line."""
    from difflib import unified_diff  # noqa: PLC0415 - start-up time

    for line in unified_diff(list(StringIO(old)), list(StringIO(new)), old_name, new_name):
        yield line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"
