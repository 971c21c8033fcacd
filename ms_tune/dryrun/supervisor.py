"""Stands between ms-tune and a simulated program, and leaves nothing behind, whichever of the two ends first.

Started by its path, with the standard library alone: ``python -I -S supervisor.py PARENT PROGRAM ARGUMENT ...``. It is what the
kernel hands the program's orphans to (``PR_SET_CHILD_SUBREAPER``, prctl(2)), also those in sessions of their own, and what
the kernel tells when ms-tune is gone (``PR_SET_PDEATHSIG``). When the program has come to a good end, processes of
it that use MindSpore are waited for, such as the workers of ``msrun --join=False``; all others are ended. Its exit status is the program's.
What uses MindSpore without the environment of the run (``env -i``), and so is not simulated, is noted in the folder of the traces.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PDEATHSIG, _SUBREAPER = 1, 36  # of prctl(2)
_ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LOOK = 0.25  # seconds
_POLITE = 3.0  # seconds between SIGTERM and SIGKILL; ms-tune itself waits a little longer for this process
_TO_EXEC = 1.0  # seconds in which a shell that was forked becomes what it was forked for
_TO_BEGIN = 30.0  # seconds in which an orphan may still import MindSpore
_NOT_FOUND = 127  # as shells tell it
_STAND_IN = os.fsencode(Path(__file__).resolve().parent / "launchers" / "stand_in.py")
_TRACES = "MS_TUNE_TRACES"  # the variable that all processes of the program have, but for those with an environment of their own
_OUTSIDE = "outside.txt"
_LONGEST = 200  # characters of a command that are kept
_MINDSPORES = "offload"  # a folder that MindSpore makes where it runs as it begins, and takes away as it ends
_PARENT = 1  # the field of /proc/PID/stat behind name and state


def main(parent: int, command: Sequence[str]) -> NoReturn:
    """Run the command until neither it nor anything that it started is left."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    prctl(_SUBREAPER, 1, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)  # ms-tune was killed before the first of these lines: there is nobody to tell us any more
    kept = os.path.lexists(_MINDSPORES)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, as in a worker of Ray, no status could be had
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_ASKED, signal.SIGCHLD})
    program = _start_program(command, prctl)
    status: int | None = None
    since = 0.0
    outside: set[int] = set()
    while True:
        asked = signal.sigtimedwait({*_ASKED, signal.SIGCHLD}, _LOOK)
        for ended, how in _reap_ended():
            if ended == program:
                status, since = how, time.monotonic()
        left = list(_list_descendants())
        _note_outside(left, outside)
        unseen = not left and not _is_childless()  # the next look shows it
        over = status is not None and (status != 0 or not (unseen or _is_worth_waiting(left, since)))
        if over or (asked is not None and asked.si_signo in _ASKED):
            status = _end_all(program, status)
            if not kept and os.getppid() != parent:  # ms-tune, which tidies up, was killed
                with contextlib.suppress(OSError):  # there is none, or somebody has put something into it
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
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*_ASKED, signal.SIGCHLD})
    # A core of a process that simulates a device is as large as that, and takes minutes to write.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by every Python, and programs inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], list(command))  # noqa: S606 - the user's own command, and no shell
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        os._exit(_NOT_FOUND)


def _reap_ended() -> Iterator[tuple[int, int]]:
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found


def _is_childless() -> bool:
    # Whether nothing is left, as the kernel knows it: who adopts all orphans has a child as long as there is one of them.
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _list_descendants() -> Iterator[int]:
    # All that came of the program and still runs, but for one whose parent ends during this look: it seems to be nobody's.
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
    # Write down who uses MindSpore without the run's environment; it may have lost that when it became another program.
    folder = os.environ.get(_TRACES)
    if not folder:
        return
    mark = os.fsencode(f"{_TRACES}=")
    for process in left:
        with contextlib.suppress(OSError):
            environment = Path(f"/proc/{process}/environ").read_bytes()
            overwritten = environment.endswith(b"\0\0")  # by a name that the process gave itself (setproctitle)
            if process in known or mark in environment or overwritten or not _uses_mindspore(process):
                continue
            known.add(process)
            words = _read_process(process, "cmdline").rstrip(b"\0").replace(b"\0", b" ")
            with (Path(folder) / _OUTSIDE).open("a", encoding="utf-8") as file:
                file.write(f"{process} {' '.join(words.decode('utf-8', 'replace').split())[:_LONGEST]}\n")


def _is_launcher(process: int) -> bool:
    # Whether it is what stands in a launcher's place, which may be between two of its ranks.
    return _STAND_IN in _read_process(process, "cmdline").split(b"\0")


def _is_python(process: int) -> bool:
    # Whether it is a Python that runs a program; helpers of multiprocessing, which outlive it for a moment, are not.
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
