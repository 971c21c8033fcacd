"""Compile C sources when they are first needed, with any available compiler, and keep them in ms-tune's cache.

Each folder is built once, even if several processes need it at the same time or one of them is killed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from ms_tune.errors import StandInBuildError
from ms_tune.text import msg

_MARKER = "complete.json"  # written last: relative file name -> CRC-32 of its content
_BUILDING = ".building-"


def cache_root() -> Path:
    """Return the folder for ms-tune's builds; create it if necessary.

    It is ``MS_TUNE_CACHE``, else ``$XDG_CACHE_HOME/ms-tune``, else ``~/.cache/ms-tune``; if that is not writable, a
    folder of this user in the system's temporary folder.
    """
    chosen = os.environ.get("MS_TUNE_CACHE")
    if chosen:
        candidates = [Path(chosen)]
    else:
        home_cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - "~" may stay
        candidates = [Path(home_cache) / "ms-tune", Path(tempfile.gettempdir()) / f"ms-tune-{os.getuid()}"]
    for folder in candidates:
        if folder.is_absolute() and _may_write(folder):
            return folder
    tried = ", ".join(map(str, candidates))
    raise StandInBuildError(msg("dryrun.cache.unwritable", folders=tried), msg("dryrun.cache.unwritable.hint"))


def _may_write(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        # In a shared temporary folder another user may have created this name first, as a folder or as a link to one of
        # ours, and could then choose the libraries that are loaded from it.
        if {status.st_uid, folder.lstat().st_uid} != {os.getuid()}:
            return False
        if not stat.S_ISDIR(status.st_mode) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return False
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def cached_folder(folder: Path, build: Callable[[Path], None], on_wait: Callable[[], None]) -> Path:
    """Return the folder after building it with ``build`` if it does not exist yet.

    The build uses a sibling folder that is renamed when complete, under a lock that the kernel releases if its owner
    dies. So a reader sees the whole folder or nothing; the next build removes leftovers of a killed one.
    """
    if is_complete(folder):
        return folder
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(folder.with_name(f".{folder.name}.lock"), on_wait):
        if is_complete(folder):
            return folder
        prefix = f"{_BUILDING}{folder.name}-"
        for stray in folder.parent.glob(f"{prefix}*"):
            shutil.rmtree(stray, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
        try:
            build(fresh)
            sums = {str(path.relative_to(fresh)): _sum_of(path) for path in fresh.rglob("*") if path.is_file()}
            (fresh / _MARKER).write_text(json.dumps(sums), encoding="utf-8")
            if folder.exists():  # damaged, since is_complete returned False
                shutil.rmtree(folder)
            try:
                fresh.rename(folder)
            except OSError as error:
                # On a file system without locks a second builder may have been faster; its result is as good as ours.
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not is_complete(folder):
                    raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return folder


def is_complete(folder: Path) -> bool:
    """Return whether the folder contains all files of its build, unchanged: a crash can leave zeros in a file."""
    try:
        sums = json.loads((folder / _MARKER).read_text(encoding="utf-8"))
        return isinstance(sums, dict) and all(_sum_of(folder / name) == known for name, known in sums.items())
    except (OSError, ValueError):
        return False


def _sum_of(path: Path) -> int:
    """Return the checksum of a file's content; for a link, of its target's path, since the target is counted itself."""
    return zlib.crc32(os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes())


@contextlib.contextmanager
def _locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    with path.open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # no locks on this file system; see _rename_unless_done
            pass
        yield


_FLAGS = (
    *("-std=c11", "-O1", "-shared", "-fPIC", "-fvisibility=hidden"),
    *("-nostdlib", "-fno-builtin"),  # no other libraries
    "-w",  # functions named like built-ins, thousands of them, are the purpose
)
_TIMEOUT_SECONDS = 300
_ZIG = "zig cc"
_SHOWN_ERROR_LINES = 3
_TOO_LARGE = b"File size limit exceeded"  # strsignal(SIGXFSZ), with which a compiler reports the end of its linker


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler and how to call it."""

    name: str  # the name shown to the user
    command: tuple[str, ...]  # the program and its leading arguments


def find_compilers() -> tuple[Compiler, ...]:
    """Return all available C compilers, the system's first; the ``ziglang`` wheel is the fallback."""
    found = [Compiler(name, (path,)) for name in ("cc", "gcc", "clang") if (path := shutil.which(name))]
    if importlib.util.find_spec("ziglang") is not None:
        zig = (sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu")
        found.append(Compiler(_ZIG, zig))
    return tuple(found)


def compiled_library(package: str, name: str, flags: tuple[str, ...], *, own_runtime: bool = True) -> Path:
    """Return the library made from a source of the package; compile it if necessary.

    Without ``own_runtime``, compilers that bring their own C++ runtime are not used: exceptions must reach the program.
    """
    source = files(f"ms_tune.{package}").joinpath(name).read_bytes()
    key = hashlib.sha256(b"\0".join((source, " ".join(flags).encode(), platform.machine().encode()))).hexdigest()[:16]
    stem = name.partition(".")[0]

    def build(folder: Path) -> None:
        file = folder / name
        file.write_bytes(source)
        compile_library(file, folder / f"lib{stem}.so", dict(os.environ), flags, own_runtime=own_runtime)

    # If another process is compiling it, wait without a message: it takes seconds.
    return cached_folder(cache_root() / "native" / f"{stem}-{key}", build, lambda: None) / f"lib{stem}.so"


def compile_library(
    source: Path,
    output: Path,
    environment: dict[str, str],
    flags: tuple[str, ...] = _FLAGS,
    *,
    own_runtime: bool = True,
) -> Compiler:
    """Compile one file into a shared library with the first compiler that can, and return that compiler."""
    compilers = [one for one in find_compilers() if own_runtime or one.name != _ZIG]
    if not compilers:
        raise StandInBuildError(msg("dryrun.build.no-compiler"), msg("dryrun.build.no-compiler.hint"))
    # The zig wheel has its own caches; a home folder that is not writable must not stop it.
    scratch = str(source.parent)
    environment = {**environment, "ZIG_GLOBAL_CACHE_DIR": scratch, "ZIG_LOCAL_CACHE_DIR": scratch, "TMPDIR": scratch}
    environment["LC_ALL"] = "C"  # the error output is parsed below
    complaints = []
    for compiler in compilers:
        command = [*compiler.command, *flags, "-o", str(output), str(source)]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=_TIMEOUT_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            complaints.append(f"{compiler.name}: {error}")
            continue
        if done.returncode == 0 and output.is_file():
            return compiler
        full = _no_room_error(done)
        if full:
            raise OSError(full, os.strerror(full), str(output.parent))
        lines = " / ".join(done.stderr.decode(errors="replace").strip().splitlines()[:_SHOWN_ERROR_LINES])
        complaints.append(f"{compiler.name}: {lines or f'exit code {done.returncode}'}")
    raise StandInBuildError(
        msg("dryrun.build.failed", detail="; ".join(complaints)), msg("dryrun.build.no-compiler.hint")
    )


def _no_room_error(done: subprocess.CompletedProcess[bytes]) -> int:
    """Return the error number of a lack of disk space, with which other compilers would fail, too; 0 for other errors."""
    if done.returncode == -signal.SIGXFSZ or _TOO_LARGE in done.stderr:
        return errno.EFBIG
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        if os.strerror(number).encode() in done.stderr:
            return number
    return 0
