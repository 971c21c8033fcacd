"""Write users' files atomically: readers see the old or the new content, and a crash leaves the old file intact.

Use it for every file of a user that is replaced. The new file keeps owner, group, permissions, extended attributes and
access control lists. Where they cannot be kept, or the file is write-protected, the old file stays and the error
gives the reason. Writing in place would also keep the owner, but an interrupted write would lose the file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ms_tune.errors import ConfigError, reason_of
from ms_tune.text import msg

try:
    import fcntl
except ModuleNotFoundError:  # in a browser, which has no locks
    fcntl = None  # type: ignore[assignment]


_BOM = b"\xef\xbb\xbf"
# Suffix of temporary files. One left by a killed process is removed by the next write to the same folder.
PART = ".ms-tune-part"
_ACCESS_LIST = "system.posix_acl_access"
_LONGEST = 40  # characters of the file's name used in its temporary file's name (a name has at most 255 bytes)


@contextmanager
def replacement(path: Path, before: Callable[[], None] = lambda: None, *, parents: bool = False) -> Iterator[Path]:
    """Yield a temporary file to fill; when the block ends without an error, it replaces (or creates) ``path``.

    ``before`` is called once the new content is on disk; if it raises, the old file stays.
    """
    try:
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        old = _replaceable(path)
        _remove_leftovers(path.parent)
        part, handle = _create_part(path)
        try:
            yield part
            _make_like(handle, path, old)
            os.fsync(handle)
            before()
            part.replace(path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
        finally:
            os.close(handle)
        _sync_folder(path.parent)
    except OSError as error:
        raise ConfigError(msg("edits.write.failed", reason=reason_of(error)), path=path) from error


def _create_part(path: Path) -> tuple[Path, int]:
    """Create the temporary file for a file, locked: nobody removes it as a leftover."""
    while True:
        part = path.parent / f".{path.name[:_LONGEST]}.{os.urandom(6).hex()}{PART}"
        handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)  # tempfile is slow to import
        with suppress(OSError, AttributeError):  # without locks, leftovers are not removed
            fcntl.flock(handle, fcntl.LOCK_EX)
        if part.exists():
            return part, handle
        os.close(handle)  # another process removed it before it was locked


def write_atomically(path: Path, content: bytes, *, parents: bool = False) -> None:
    """Replace a file's content, or create the file."""
    with replacement(path, parents=parents) as part:
        part.write_bytes(content)


def write_back(path: Path, old: str, new: str, also: Callable[[], None] = lambda: None) -> None:
    """Replace the text that was read with a changed text, keeping a byte order mark.

    ``also`` writes other files that the new text needs, once the text is on disk; if it raises, the old text stays.
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
    """Return the status of the existing file, or None if it does not exist; raise ConfigError if it must not be replaced."""
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
    # Root can open any file for writing, so check the permission bits first: no write bit means write-protected.
    permitted = bool(status.st_mode & 0o222)
    if permitted:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NOFOLLOW))
        except PermissionError as error:
            if error.errno != errno.EACCES:
                raise
            permitted = False
    if not permitted:
        own = os.geteuid() in (0, status.st_uid)  # only these users can change the permissions
        hint = msg("edits.write.read-only.hint", file=path) if own else msg("edits.write.owner.hint")
        raise ConfigError(msg("edits.write.read-only"), hint, path=path)
    return status


def _make_like(descriptor: int, path: Path, old: os.stat_result | None) -> None:
    """Give the new file the old one's owner, attributes and permissions; a new file gets default permissions."""
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
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))  # last, because changing the owner clears permission bits


def _copy_attributes(descriptor: int, path: Path) -> None:
    """Copy extended attributes; those of the kernel (``security``, ``trusted``) only where it permits."""
    names, fresh = _attributes(path), _attributes(descriptor)
    if _ACCESS_LIST in fresh and _ACCESS_LIST not in names:  # inherited from the folder's default list
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
    except OSError:  # file system without extended attributes
        return []


def _remove_leftovers(folder: Path) -> None:
    """Remove temporary files of killed processes from a folder; those still being written are locked and skipped."""
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
    """Flush the folder entry to disk; ignore file systems where a folder cannot be synchronised."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
