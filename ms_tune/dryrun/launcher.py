"""Starts processes, watches them, and never leaves one behind.

Every process leads a process group of its own. Signals are not raised as exceptions where they happen, which could lose
a process between its start and the line that remembers it; they are noted, and the loop that watches the processes acts
on them. The real child also asks the kernel to end it with its parent (``parent.py``), which covers SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ms_tune.dryrun.parent import as_parent
from ms_tune.errors import RunError
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType

LOG = "log.txt"
TRACES = "MS_TUNE_TRACES"  # the variable that all processes of a command have, with a folder as its value
_POLL_SECONDS = 0.1
_SHORT_POLL = 0.02  # while processes are being ended
_GRACE_SECONDS = 5.0
_CALM_SECONDS = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """A program to run."""

    command: Sequence[str]  # the program and its arguments
    environment: Mapping[str, str]  # its whole environment
    folder: Path  # where its output is kept, as `LOG`
    timeout: float  # seconds after which it is stopped
    working_folder: Path | None = None  # its working folder; None for `folder`
    own: bool = False  # it is `ms_tune.dryrun.child`, which ends with its parent


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a program ended."""

    code: int  # its exit code; negative if a signal ended it
    seconds: float  # from its start to its end
    timed_out: bool = False  # it was stopped because its time was up


class WatchedProcess(Protocol):
    """What is used of :class:`subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """Its number, and that of its process group."""

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None until it was seen to have ended."""

    def poll(self) -> int | None:
        """Look whether it has ended."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended."""


@dataclass(slots=True)
class RunningProcess:
    """A program that runs."""

    process: WatchedProcess
    timeout: float
    simulated: bool = False
    start: float = field(default_factory=time.monotonic)
    timed_out: bool = False
    calmed: float = 0.0  # seconds after the start
    traces: str | None = None  # the folder by which all processes of a command are known

    @property
    def elapsed(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self.start

    def end_if_over(self) -> ProcessEnd | None:
        """How it ended; None while it runs. Whatever it leaves running in its group is ended with it."""
        if self.process.poll() is None:
            if self.elapsed <= self.timeout:
                self._calm()
                return None
            self.timed_out = True
        seconds = self.elapsed
        stop_programs([self])
        return ProcessEnd(self.process.wait(), seconds, self.timed_out)

    def _calm(self) -> None:
        """Now and then take the processor from threads that only spin; on a real device they have something to do."""
        if self.simulated and self.elapsed - self.calmed > _CALM_SECONDS:
            idle_spinning_threads(self.process.pid)
            self.calmed = self.elapsed


def start_program(child: ChildProcess) -> RunningProcess:
    """Start a program.

    Raises:
        OSError: It cannot be started, or its log cannot be written.
    """
    with (child.folder / LOG).open("wb") as output:
        process = subprocess.Popen(
            list(child.command),
            env={**child.environment, **(as_parent() if child.own else {})},
            cwd=child.working_folder or child.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    simulated = "MS_SIMULATION_LEVEL" in child.environment
    return RunningProcess(process, child.timeout, simulated, traces=child.environment.get(TRACES))


def stop_programs(running: Sequence[RunningProcess]) -> None:
    """End programs and all that is left of their process groups: politely, and after some seconds not."""
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
    """End what is left of a command whose supervisor was killed: processes in sessions of their own, known by their environment."""
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
    """Send a signal to the group, 0 for none; false if there is no group any more."""
    running.process.poll()  # a leader that has ended but was not waited for would keep the group's number alive
    try:
        os.killpg(running.process.pid, sign)
    except ProcessLookupError:
        return False
    return True


def too_long(timeout: float) -> RunError:
    """The error of a program whose time was up."""
    return RunError(msg("dryrun.run.timeout", seconds=round(timeout)), msg("dryrun.run.timeout.hint"))


class ProcessWatch:
    """The programs that must not be left behind."""

    def __init__(self) -> None:
        self._running: list[RunningProcess] = []
        self._asked = False

    def add(self, running: RunningProcess) -> None:
        """One more."""
        self._running.append(running)

    def remove(self, running: RunningProcess) -> None:
        """One that has ended."""
        self._running.remove(running)

    def note_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Handle a signal: note it."""
        self._asked = True

    def check(self) -> None:
        """Raise :class:`KeyboardInterrupt` if a signal asked ms-tune to end."""
        if self._asked:
            raise KeyboardInterrupt

    def wait_briefly(self) -> None:
        """Wait until something may have happened, a tenth of a second at most."""
        self.check()
        latest = self._running[-1].process if self._running else None
        if latest is None:
            time.sleep(_POLL_SECONDS)
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            latest.wait(_POLL_SECONDS)
        self.check()

    def stop_all(self) -> None:
        """End whatever still runs."""
        stop_programs(self._running)


@contextlib.contextmanager
def watch_programs() -> Iterator[ProcessWatch]:
    """Note signals instead of raising them, and end every program that was not waited for.

    What ms-tune was started to ignore it goes on ignoring: SIGHUP behind ``nohup``, SIGINT as a job in a script's background.
    """
    watch = ProcessWatch()
    # Only the main thread may set handlers, and only its handlers are called.
    numbers = _SIGNALS if threading.current_thread() is threading.main_thread() else ()
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, watch.note_signal) for number in heard}
    try:
        yield watch
    finally:
        try:
            watch.stop_all()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


_PROC = Path("/proc")
_BUSY_SECONDS = 0.3
_MOST_WAITS = 20  # those that have run for minutes have waited twice
_PROCESS_GROUP, _USER_TICKS, _SYSTEM_TICKS = 2, 11, 12  # fields of /proc/PID/stat behind the name, see proc(5)


def idle_spinning_threads(group: int) -> int:
    """Give the threads of a process group that wait by running only what processor time nobody else wants.

    MindSpore's Ascend back end starts a thread for every stream that asks the device for news, ``aclrtProcessReport`` with a
    time limit, over and over. In simulation its stand-in for that function returns at once
    (``plugin/ascend/res_manager``, MindSpore 2.7 to 2.10), so the thread never sleeps: two of them in dynamic graph, seven
    and more in static graph, each as hungry as the one that works. On a machine with few cores most of the time goes to them.

    Such a thread is known by what it does: it has no name of its own, has used the processor for a while, and has hardly ever
    waited for anything. Linux then schedules it as ``SCHED_IDLE``. One that is taken for such a thread by mistake still runs
    whenever a processor is free.

    Args:
        group: The number of the process group.

    Returns:
        How many threads were found to spin; those of earlier calls are counted again.
    """
    return sum(_calm_process(process) for process in _processes_of_group(group))


def _processes_of_group(group: int) -> Iterator[Path]:
    for process in _PROC.iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):
                if int(_stat_fields(process)[_PROCESS_GROUP]) == group:
                    yield process


def _calm_process(process: Path) -> int:
    found = 0
    with contextlib.suppress(OSError):
        name = (process / "comm").read_text()
        for thread in (process / "task").iterdir():
            if thread.name != process.name and _spins(thread, name):
                os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))
                found += 1
    return found


def _spins(thread: Path, name: str) -> bool:
    """Whether a thread runs without ever waiting; false if it has just ended."""
    try:
        fields = _stat_fields(thread)
        seconds = (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / os.sysconf("SC_CLK_TCK")
        if seconds < _BUSY_SECONDS or (thread / "comm").read_text() != name:
            return False
        return _count_waits((thread / "status").read_text()) < _MOST_WAITS
    except OSError:
        return False


def _stat_fields(process: Path) -> list[str]:
    """The fields of ``stat`` behind the name, which may hold blanks and parentheses."""
    return (process / "stat").read_text().rpartition(")")[2].split()


def _count_waits(status: str) -> int:
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary_ctxt_switches:"))
