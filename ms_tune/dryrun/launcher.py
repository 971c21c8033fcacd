"""Start processes, watch them, and never leave one running.

Every process leads its own process group. Signals do not raise exceptions where they occur, which could lose a process
between its start and the line that records it; they are noted, and the loop that watches the processes acts on them.
The real child also asks the kernel to end it with its parent (``child/__main__.py``), which covers SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol

from ms_tune.dryrun.job import PARENT
from ms_tune.errors import RunError
from ms_tune.text import msg

LOG = "log.txt"
TRACES = "MS_TUNE_TRACES"  # the variable with a folder, set in all processes of a command
_POLL_SECONDS = 0.1
_SHORT_POLL = 0.02  # while processes are being ended
_GRACE_SECONDS = 5.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """A program to run, with its environment and limits."""

    command: Sequence[str]  # the program and its arguments
    environment: Mapping[str, str]  # its whole environment
    folder: Path  # contains its output, in the file `LOG`
    timeout: float  # seconds after which it is stopped
    working_folder: Path | None = None  # its working folder; None for `folder`
    is_child: bool = False  # whether it is `ms_tune.dryrun.child`, which ends with its parent


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """The end of a program: its exit code and time."""

    code: int  # its exit code; negative if a signal ended it
    seconds: float  # from its start to its end
    timed_out: bool = False  # whether it was stopped at its timeout


class _WatchedProcess(Protocol):
    # The used part of :class:`subprocess.Popen`; its process ID is also that of its process group.
    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


@dataclass(slots=True)
class RunningProcess:
    """A running program."""

    process: _WatchedProcess
    timeout: float
    start: float = field(default_factory=time.monotonic)
    timed_out: bool = False
    traces: str | None = None  # the folder that identifies all processes of a command

    @property
    def elapsed(self) -> float:
        """Return the seconds since its start."""
        return time.monotonic() - self.start

    def end_if_over(self) -> ProcessEnd | None:
        """Return how it ended; None while it runs. All remaining processes of its group are ended with it."""
        if self.process.poll() is None:
            if self.elapsed <= self.timeout:
                return None
            self.timed_out = True
        seconds = self.elapsed
        _stop_programs([self])
        return ProcessEnd(self.process.wait(), seconds, self.timed_out)


def start_program(child: ChildProcess) -> RunningProcess:
    """Start a program; OSError if it cannot be started, or its log cannot be written."""
    with (child.folder / LOG).open("wb") as output:
        process = subprocess.Popen(
            list(child.command),
            env={**child.environment, **({PARENT: str(os.getpid())} if child.is_child else {})},
            cwd=child.working_folder or child.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return RunningProcess(process, child.timeout, traces=child.environment.get(TRACES))


def _stop_programs(running: Sequence[RunningProcess]) -> None:
    # End programs and the rest of their process groups: first with SIGTERM, after some seconds with SIGKILL.
    for sign in (signal.SIGTERM, signal.SIGKILL):
        left = [one for one in running if _signal_group(one, sign)]
        if not left:
            break
        end = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < end and any(_signal_group(one, 0) for one in left):
            time.sleep(_SHORT_POLL)
    for one in running:
        if one.process.wait() == -signal.SIGKILL and one.traces:
            _end_marked(one.traces)


def _end_marked(traces: str) -> None:
    # End a command's processes after its supervisor was killed: they have their own sessions, but a known environment.
    mark = os.fsencode(f"{TRACES}={traces}")
    left = True
    end = time.monotonic() + _GRACE_SECONDS
    while left and time.monotonic() < end:
        left = False
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (process / "environ").read_bytes().split(b"\0") if process.name.isdecimal() else []
                if any(word == mark or word.startswith(mark + b"/") for word in words):
                    os.kill(int(process.name), signal.SIGKILL)
                    left = True


def _signal_group(running: RunningProcess, sign: int) -> bool:
    running.process.poll()  # a leader that ended but was not waited for would keep the group's number alive
    try:
        os.killpg(running.process.pid, sign)
    except ProcessLookupError:
        return False
    return True


def too_long(timeout: float) -> RunError:
    """Return the error of a program that exceeded its timeout."""
    return RunError(msg("dryrun.run.timeout", seconds=round(timeout)), msg("dryrun.run.timeout.hint"))


class ProcessWatch:
    """The programs that must not be left running."""

    def __init__(self) -> None:
        self.running: list[RunningProcess] = []
        self._signal: int | None = None

    def note_signal(self, number: int, _frame: FrameType | None) -> None:
        """Record a signal for :meth:`check`."""
        self._signal = number

    def check(self) -> None:
        """Raise :class:`KeyboardInterrupt` with the number of a signal to end that ms-tune received."""
        if self._signal is not None:
            raise KeyboardInterrupt(self._signal)

    def wait_briefly(self) -> None:
        """Wait until something may have happened, at most a tenth of a second."""
        self.check()
        if not self.running:
            time.sleep(_POLL_SECONDS)
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.running[-1].process.wait(_POLL_SECONDS)
        self.check()


@contextlib.contextmanager
def watch_programs() -> Iterator[ProcessWatch]:
    """Record signals instead of raising them, and end every program that was not waited for.

    Signals that ms-tune was started to ignore stay ignored: SIGHUP after ``nohup``, SIGINT in a script's background job.
    """
    watch = ProcessWatch()
    # Only the main thread can set handlers, and only its handlers are called.
    numbers = _SIGNALS if threading.current_thread() is threading.main_thread() else ()
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, watch.note_signal) for number in heard}
    try:
        yield watch
    finally:
        try:
            _stop_programs(watch.running)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
