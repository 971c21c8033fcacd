"""Finds a C compiler and runs it."""

from __future__ import annotations

import errno
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.errors import StandInBuildError
from ms_tune.text import msg

if TYPE_CHECKING:
    from pathlib import Path

_FLAGS = (
    *("-std=c11", "-O1", "-shared", "-fPIC", "-fvisibility=hidden"),
    *("-nostdlib", "-fno-builtin"),  # nothing but what the file itself defines
    "-w",  # functions named like built-ins, thousands of them, are the purpose
)
_TIMEOUT_SECONDS = 300
_SHOWN_ERROR_LINES = 3
_TOO_LARGE = b"File size limit exceeded"  # strsignal(SIGXFSZ), as a compiler tells the end of its linker


@dataclass(frozen=True, slots=True)
class Compiler:
    """A way to call a C compiler."""

    name: str  # how it is shown to the user
    command: tuple[str, ...]  # the program and its leading arguments


def find_compilers() -> tuple[Compiler, ...]:
    """Every C compiler at hand, the system's first; the ``ziglang`` wheel serves machines that have none."""
    found = [Compiler(name, (path,)) for name in ("cc", "gcc", "clang") if (path := shutil.which(name))]
    if importlib.util.find_spec("ziglang") is not None:
        zig = (sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu")
        found.append(Compiler("zig cc", zig))
    return tuple(found)


def compile_library(
    source: Path, output: Path, environment: dict[str, str], flags: tuple[str, ...] = _FLAGS
) -> Compiler:
    """Compile one C file into a shared library with the first compiler that can.

    Returns:
        The compiler that did it.

    Raises:
        StandInBuildError: There is no compiler, or none of them could.
        OSError: The disk is full, or no file may be as large (``ulimit -f``).
    """
    compilers = find_compilers()
    if not compilers:
        raise StandInBuildError(msg("dryrun.build.no-compiler"), msg("dryrun.build.no-compiler.hint"))
    # The zig wheel keeps caches of its own; a home that cannot be written must not stop it.
    scratch = str(source.parent)
    environment = {**environment, "ZIG_GLOBAL_CACHE_DIR": scratch, "ZIG_LOCAL_CACHE_DIR": scratch, "TMPDIR": scratch}
    environment["LC_ALL"] = "C"  # complaints are looked at, below
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
        full = _full(done)
        if full:
            raise OSError(full, os.strerror(full), str(output.parent))
        lines = " / ".join(done.stderr.decode(errors="replace").strip().splitlines()[:_SHOWN_ERROR_LINES])
        complaints.append(f"{compiler.name}: {lines or f'exit code {done.returncode}'}")
    raise StandInBuildError(
        msg("dryrun.build.failed", detail="; ".join(complaints)), msg("dryrun.build.no-compiler.hint")
    )


def _full(done: subprocess.CompletedProcess[bytes]) -> int:
    """What a compiler lacked room by, as an error's number: no other one would find any; 0 for other complaints."""
    if done.returncode == -signal.SIGXFSZ or _TOO_LARGE in done.stderr:
        return errno.EFBIG
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        if os.strerror(number).encode() in done.stderr:
            return number
    return 0
