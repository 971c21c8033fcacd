"""A mark for each process that uses the device, which goes when it has told what it did: one that stays tells of a process that was killed.

A forked process has no record of its own before its end, and SIGKILL lets nobody write one. The mark is made when it first uses
the device (``cann_sim/watching.h``, which also tells of processes that a C library forks). Where its parent had used it before,
nothing tells when, and it is made at once, but for what forks only to become another program (``os.execv``, ``subprocess`` with
``preexec_fn``) and MindSpore's own workers, which read data and are often ended from outside.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .support import put_around

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

MARKS = "forks"  # a folder of files, each named by the number of a process
USES = "MS_TUNE_USES"  # the variable that names it to what marks processes
_DATA = os.path.join("mindspore", "dataset") + os.sep  # noqa: PTH118 - a part of file names
_STARTING = "_execute_child"  # of subprocess
_TRIES = 9  # the last one of the folder may be taking it away


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
    """Take the mark away: this process has written all that it has to."""
    with contextlib.suppress(OSError):
        (folder / MARKS / str(os.getpid())).unlink()
        (folder / MARKS).rmdir()  # of the last one


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
    """Have each process that a C library forks call this when it is in Python, which knows nothing of it.

    What it gives has to be kept as long as processes are forked.
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
    """Have the process tell what it did before it becomes another program by ``os.exec*``, all of which end in these two."""

    def telling(become: Any, path: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the functions take them
        # What cannot be run is refused, and the process goes on: os.execvp tries each folder of PATH.
        with contextlib.suppress(Exception):
            if isinstance(path, int) or (os.access(path, os.X_OK) and not Path(os.fsdecode(path)).is_dir()):
                tell()
        return become(path, *arguments, **named)

    for name in ("execv", "execve"):
        put_around(os, name, telling)
