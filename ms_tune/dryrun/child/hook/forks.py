"""Mark forked processes that use the device until they have written their record: a remaining mark shows a killed process.

A forked process has no record of its own before its end, and after SIGKILL it cannot write one. The mark is made on the first use
of the device (``cann_sim/watching.h``, which also reports processes that a C library forks). If the parent used the device
before, that moment is unknown, and the mark is made at once, except in forks that only become another program (``os.execv``,
``subprocess`` with ``preexec_fn``) and in MindSpore's own data workers, which are often ended from outside.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from .support import put_around

MARKS = "forks"  # a folder of files, each named by a process ID
USES = "MS_TUNE_USES"  # the variable with its path, for the code that marks processes
_DATA = os.path.join("mindspore", "dataset") + os.sep  # noqa: PTH118 - a part of file names
_STARTING = "_execute_child"  # the function of subprocess that starts a program
_TRIES = 9  # the last process of the folder may be removing it


def mark_process(folder: Path) -> None:
    """Mark this process, which was just forked."""
    if _is_another_programs():
        return
    for _ in range(_TRIES):
        with contextlib.suppress(OSError):
            (folder / MARKS).mkdir(exist_ok=True)
            (folder / MARKS / str(os.getpid())).touch()
            return


def unmark_process(folder: Path) -> None:
    """Remove the mark: this process has written its whole record."""
    with contextlib.suppress(OSError):
        (folder / MARKS / str(os.getpid())).unlink()
        (folder / MARKS).rmdir()  # only succeeds for the last one


def _is_another_programs() -> bool:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - its public name
    while frame is not None:
        code = frame.f_code
        if code.co_name == _STARTING and Path(code.co_filename).name == "subprocess.py":
            return True
        if _DATA in code.co_filename:
            return True
        frame = frame.f_back
    return False


def notice_forks(library: ctypes.PyDLL, tell: Callable[[], None]) -> Any:  # noqa: ANN401 - a function of C
    """Call ``tell`` in each process that a C library forks, once that process is back in Python.

    Python does not notice such forks. The caller must keep the returned object as long as processes are forked.
    """

    def back(_nothing: object) -> int:
        with contextlib.suppress(Exception):
            tell()
        return 0

    function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(back)
    library.ms_tune_tell_forked(function)
    tell_of_pythons = functools.partial(setattr, ctypes.c_int.in_dll(library, "ms_tune_python_forks"), "value")
    done = functools.partial(tell_of_pythons, 0)
    os.register_at_fork(before=functools.partial(tell_of_pythons, 1), after_in_parent=done, after_in_child=done)
    return function


def before_another_program(tell: Callable[[], None]) -> None:
    """Call ``tell`` before the process executes another program with ``os.exec*``; all of these functions end in these two."""

    def record_exec(become: Any, path: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the functions take them
        # A program that cannot be run is rejected, and the process continues: os.execvp tries each folder of PATH.
        with contextlib.suppress(Exception):
            if isinstance(path, int) or (os.access(path, os.X_OK) and not Path(os.fsdecode(path)).is_dir()):
                tell()
        return become(path, *arguments, **named)

    for name in ("execv", "execve"):
        put_around(os, name, record_exec)
