"""Writes files in one step: whoever reads sees the old content or the new, and a crash leaves the old."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from typing import TYPE_CHECKING

from ms_tune.errors import ConfigError
from ms_tune.texts import msg

if TYPE_CHECKING:
    from pathlib import Path

_BOM = b"\xef\xbb\xbf"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file's content, or make the file; its permissions stay.

    Raises:
        ConfigError: It cannot be written, or is not a plain file of one name (replacing a link would cut it).
    """
    try:
        mode = _mode(path)
        handle, fresh = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), mode)
            os.replace(fresh, path)  # noqa: PTH105 - `fresh` is a text
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(fresh)  # noqa: PTH108 - as above
            raise
    except OSError as error:
        raise ConfigError(msg("edits.write.failed", reason=error.strerror or error), path=path) from error


def _mode(path: Path) -> int:
    try:
        status = path.lstat()
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
    if stat.S_ISLNK(status.st_mode):
        raise ConfigError(msg("edits.write.link"), msg("edits.write.link.hint"), path=path)
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(msg("edits.write.not-a-file"), path=path)
    if status.st_nlink > 1:
        raise ConfigError(msg("edits.write.hard-link"), msg("edits.write.link.hint"), path=path)
    return stat.S_IMODE(status.st_mode)


def write_back(path: Path, old: str, new: str) -> None:
    """Put a mended text in the place of the text that was read; a byte order mark stays.

    Raises:
        ConfigError: The file has changed since, or cannot be written.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(msg("config.unreadable", reason=error.strerror or error), path=path) from error
    mark = _BOM if content.startswith(_BOM) else b""
    if content != mark + old.encode():
        raise ConfigError(msg("edits.write.changed"), path=path)
    write_atomically(path, mark + new.encode())
