"""Writes users' files so that none is lost: whoever reads sees the old content or the new, and a crash leaves the old.

A file that is replaced stays what it was in all but its content: owner, group, permissions, extended attributes and
access control lists. Where that cannot be kept, and where its author took away the permission to write it, the file is
left alone and the error says why. An editor that writes in place would keep the owner, too, but would lose the file if
it were stopped half-way, so this does not.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.errors import ConfigError, reason_of
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BOM = b"\xef\xbb\xbf"
# What a run that was killed leaves behind ends with this; the next one that writes into the folder removes it.
PART = ".ms-tune-part"
_ACCESS_LIST = "system.posix_acl_access"
_LONGEST = 40  # characters of a file's name in that of its part: a name has 255 bytes at most


@contextmanager
def replacement(path: Path, before: Callable[[], None] = lambda: None, *, parents: bool = False) -> Iterator[Path]:
    """A new file to fill, which takes the place of ``path`` (or becomes it) when it is complete.

    Args:
        path: The file.
        before: Called when the new content is safe on the disk; if it raises, the old stays.
        parents: Whether to make the folder if there is none.

    Raises:
        ConfigError: It cannot be written, may not be, would change its owner, or is not a plain file of one name
            (replacing a link would cut it).
    """
    try:
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        old = _replaceable(path)
        _remove_leftovers(path.parent)
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:_LONGEST]}.", suffix=PART, dir=path.parent)
        part = Path(name)
        try:
            with os.fdopen(handle, "rb") as file:
                with suppress(OSError):  # a file system without locks: leftovers stay there
                    fcntl.flock(file, fcntl.LOCK_EX)
                yield part
                _make_like(file.fileno(), path, old)
                os.fsync(file.fileno())
                before()
                part.replace(path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise ConfigError(msg("edits.write.failed", reason=reason_of(error)), path=path) from error


def write_atomically(path: Path, content: bytes, *, parents: bool = False) -> None:
    """Replace a file's content, or make the file.

    Raises:
        ConfigError: As :func:`replacement` says.
    """
    with replacement(path, parents=parents) as part:
        part.write_bytes(content)


def write_back(path: Path, old: str, new: str, also: Callable[[], None] = lambda: None) -> None:
    """Put a changed text in the place of the text that was read; a byte order mark stays.

    Args:
        path: The file.
        old: The text that was read.
        new: The changed text.
        also: Writes what the new text needs, once that is safe on the disk; if it raises, the old text stays.

    Raises:
        ConfigError: The file has changed since, or as :func:`replacement` says.
    """
    mark = _BOM if _content(path).startswith(_BOM) else b""

    def unchanged() -> None:
        if _content(path) != mark + old.encode():
            raise ConfigError(msg("edits.write.changed"), path=path)

    unchanged()

    def last() -> None:
        also()
        unchanged()

    with replacement(path, last) as part:
        part.write_bytes(mark + new.encode())


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(msg("config.unreadable", reason=reason_of(error)), path=path) from error


def _replaceable(path: Path) -> os.stat_result | None:
    """What the file is now; None if there is none."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise ConfigError(msg("edits.write.link"), msg("edits.write.link.hint"), path=path)
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(msg("edits.write.not-a-file"), path=path)
    if status.st_nlink > 1:
        raise ConfigError(msg("edits.write.hard-link"), msg("edits.write.link.hint"), path=path)
    # The administrator may write everything, so the bits are asked first: who took all of them away meant it.
    permitted = bool(status.st_mode & 0o222)
    if permitted:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NOFOLLOW))
        except PermissionError as error:
            if error.errno != errno.EACCES:
                raise
            permitted = False
    if not permitted:
        own = os.geteuid() in (0, status.st_uid)  # only they can allow it
        hint = msg("edits.write.read-only.hint", file=path) if own else msg("edits.write.owner.hint")
        raise ConfigError(msg("edits.write.read-only"), hint, path=path)
    return status


def _make_like(descriptor: int, path: Path, old: os.stat_result | None) -> None:
    """Give a new file what the old one has besides its content; a file that is quite new gets what others get."""
    if old is None:
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(descriptor, 0o666 & ~mask)
        return
    fresh = os.fstat(descriptor)
    if (fresh.st_uid, fresh.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except OSError as error:
            owner = f"{old.st_uid}:{old.st_gid}"
            raise ConfigError(
                msg("edits.write.owner", owner=owner), msg("edits.write.owner.hint"), path=path
            ) from error
    _copy_attributes(descriptor, path)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))  # last: changing the owner clears bits


def _copy_attributes(descriptor: int, path: Path) -> None:
    """Extended attributes; those of the kernel's own (``security``, ``trusted``) as far as it allows."""
    names, fresh = _attributes(path), _attributes(descriptor)
    if _ACCESS_LIST in fresh and _ACCESS_LIST not in names:  # from the folder's default list
        os.removexattr(descriptor, _ACCESS_LIST)
    for name in names:
        value = os.getxattr(path, name)
        if name in fresh and os.getxattr(descriptor, name) == value:
            continue
        try:
            os.setxattr(descriptor, name, value)
        except OSError as error:
            if name.startswith(("user.", "system.")):
                hint = msg("edits.write.owner.hint")
                raise ConfigError(msg("edits.write.attribute", name=name), hint, path=path) from error


def _attributes(file: int | Path) -> list[str]:
    try:
        return os.listxattr(file)
    except OSError:  # a file system without them
        return []


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed runs left in a folder; a part that is being written is locked."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") and entry.name.endswith(PART):
                with suppress(OSError):
                    handle = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                    try:
                        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        os.unlink(entry.path)  # noqa: PTH108 - `entry.path` is a text
                    finally:
                        os.close(handle)


def _sync_folder(folder: Path) -> None:
    """The new name onto the disk; where a folder cannot be synchronised, the file is written all the same."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
