"""Supervise a simulated program for ms-tune, and leave no process running, whichever of the two ends first.

Run by path with the standard library only: ``python -I -S supervisor.py PARENT PROGRAM ARGUMENT ...``. The kernel makes it the
parent of the program's orphans (``PR_SET_CHILD_SUBREAPER``, prctl(2)), even of those in other sessions, and signals it when
ms-tune is gone (``PR_SET_PDEATHSIG``). When the program has ended successfully, its processes that use MindSpore are waited
for, such as the workers of ``msrun --join=False``; all others are ended. Its exit status is the program's. Processes that use
MindSpore without the environment of the run (``env -i``), and so are not simulated, are recorded in the folder of the traces.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

_PDEATHSIG, _SUBREAPER = 1, 36  # of prctl(2)
_END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LOOK = 0.25  # seconds
_POLITE = 3.0  # seconds between SIGTERM and SIGKILL; ms-tune itself waits a little longer for this process
_TO_EXEC = 1.0  # seconds in which a forked shell becomes its target program
_TO_BEGIN = 30.0  # seconds in which an orphan may still import MindSpore
_NOT_FOUND = 127  # as in shells
_STAND_IN = os.fsencode(Path(__file__).resolve().parent / "launchers" / "stand_in.py")
_TRACES = (
    "MS_TUNE_TRACES"  # the variable that all processes of the program have, except those with a separate environment
)
_OUTSIDE = "outside.txt"
_LONGEST = 200  # characters of a command that are recorded
_MINDSPORES = "offload"  # a folder that MindSpore creates in its working folder at the start, and removes at the end
_PARENT = 1  # the field of /proc/PID/stat after name and state


def main(parent: int, command: Sequence[str]) -> NoReturn:
    """Run the command until it and all processes that it started have ended."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    prctl(_SUBREAPER, 1, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)  # ms-tune was killed before the first of these lines, so the kernel will not signal us
    kept = os.path.lexists(_MINDSPORES)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, as in a Ray worker, the exit status would be lost
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_END_SIGNALS, signal.SIGCHLD})
    program = _start_program(command, prctl)
    status: int | None = None
    since = 0.0
    outside: set[int] = set()
    while True:
        asked = signal.sigtimedwait({*_END_SIGNALS, signal.SIGCHLD}, _LOOK)
        for ended, how in _reap_ended():
            if ended == program:
                status, since = how, time.monotonic()
        left = list(_list_descendants())
        _note_outside(left, outside)
        unseen = not left and not _is_childless()  # the next iteration finds it
        over = status is not None and (status != 0 or not (unseen or _is_worth_waiting(left, since)))
        if over or (asked is not None and asked.si_signo in _END_SIGNALS):
            status = _end_all(program, status)
            if not kept and os.getppid() != parent:  # ms-tune, which would remove it, was killed
                with contextlib.suppress(OSError):  # it does not exist, or is not empty
                    os.rmdir(_MINDSPORES)  # noqa: PTH106 - as above
            _end_likewise(status)


def _start_program(command: Sequence[str], prctl: ctypes._NamedFuncPointer) -> int:
    own = os.getpid()
    program = os.fork()
    if program:
        return program
    prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != own:
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*_END_SIGNALS, signal.SIGCHLD})
    # A core dump of a process that simulates a device is as large as the device's memory, and takes minutes to write.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # every Python ignores them, and its child programs inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], list(command))  # noqa: S606 - the user's own command, without a shell
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        os._exit(_NOT_FOUND)


def _reap_ended() -> Iterator[tuple[int, int]]:
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found


def _is_childless() -> bool:
    # Ask the kernel whether no process is left: as their subreaper, this process has a child as long as one exists.
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _list_descendants() -> Iterator[int]:
    # Yield all running descendants of the program, except one whose parent ends during this scan: it seems to have no parent.
    children: dict[int, list[int]] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError, ValueError):
                fields = (process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                if fields[0] not in {"Z", "X"}:
                    children.setdefault(int(fields[_PARENT]), []).append(int(process.name))
    todo = [os.getpid()]
    while todo:
        found = children.get(todo.pop(), [])
        todo += found
        yield from found


def _is_worth_waiting(left: Sequence[int], since: float) -> bool:
    passed = time.monotonic() - since
    if left and passed < _TO_EXEC:
        return True
    return any(
        _uses_mindspore(process) or _is_launcher(process) or (passed < _TO_BEGIN and _is_python(process))
        for process in left
    )


def _read_process(process: int, name: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/{name}").read_bytes()
    return b""


def _uses_mindspore(process: int) -> bool:
    return b"mindspore" in _read_process(process, "maps")


def _note_outside(left: Sequence[int], known: set[int]) -> None:
    # Record processes that use MindSpore without the run's environment; one may have lost it when it became another program.
    folder = os.environ.get(_TRACES)
    if not folder:
        return
    mark = os.fsencode(f"{_TRACES}=")
    for process in left:
        with contextlib.suppress(OSError):
            environment = Path(f"/proc/{process}/environ").read_bytes()
            overwritten = environment.endswith(b"\0\0")  # by a title that the process gave itself (setproctitle)
            if process in known or mark in environment or overwritten or not _uses_mindspore(process):
                continue
            known.add(process)
            words = _read_process(process, "cmdline").rstrip(b"\0").replace(b"\0", b" ")
            with (Path(folder) / _OUTSIDE).open("a", encoding="utf-8") as file:
                file.write(f"{process} {' '.join(words.decode('utf-8', 'replace').split())[:_LONGEST]}\n")


def _is_launcher(process: int) -> bool:
    # Return whether it runs ``stand_in.py``, which may be between two of its ranks.
    return _STAND_IN in _read_process(process, "cmdline").split(b"\0")


def _is_python(process: int) -> bool:
    # Return whether it is a Python that runs a program, not a helper of multiprocessing, which briefly outlives its parent.
    words = _read_process(process, "cmdline")
    return b"python" in words.partition(b"\0")[0] and b"resource_tracker" not in words


def _end_all(program: int, status: int | None) -> int | None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        end = time.monotonic() + _POLITE
        while not _is_childless():
            for process in _list_descendants():
                with contextlib.suppress(OSError):
                    os.kill(process, sign)
            time.sleep(_LOOK / 10)
            for ended, how in _reap_ended():
                status = how if ended == program else status
            if time.monotonic() > end:
                break
    for ended, how in _reap_ended():
        status = how if ended == program else status
    return status


def _end_likewise(status: int | None) -> NoReturn:
    if status is None:
        status = signal.SIGKILL
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
