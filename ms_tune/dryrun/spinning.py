"""Threads that wait by running: they get only what processor time nobody else wants.

MindSpore's Ascend back end starts a thread for every stream that asks the device for news, ``aclrtProcessReport`` with a
time limit, over and over. In simulation its stand-in for that function returns at once
(``plugin/ascend/res_manager``, MindSpore 2.7 to 2.10), so the thread never sleeps: two of them in dynamic graph, seven
and more in static graph, each as hungry as the one that works. On a machine with few cores most of the time goes to them.

Such a thread is known by what it does: it has no name of its own, has used the processor for a while, and has hardly ever
waited for anything. Linux then schedules it as ``SCHED_IDLE``. A thread that is taken for one by mistake still runs whenever
a processor is free.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROC = Path("/proc")
_BUSY_SECONDS = 0.3
_MOST_WAITS = 20  # those that have run for minutes have waited twice
_PROCESS_GROUP, _USER_TICKS, _SYSTEM_TICKS = 2, 11, 12  # fields of /proc/PID/stat behind the name, see proc(5)


def calm(group: int) -> int:
    """Give the spinning threads of a process group the lowest priority.

    Args:
        group: The number of the process group.

    Returns:
        How many threads were found to spin; those of earlier calls are counted again.
    """
    return sum(_calm_process(process) for process in _processes(group))


def _processes(group: int) -> Iterator[Path]:
    for process in _PROC.iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):
                if int(_fields(process)[_PROCESS_GROUP]) == group:
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
        fields = _fields(thread)
        seconds = (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / os.sysconf("SC_CLK_TCK")
        if seconds < _BUSY_SECONDS or (thread / "comm").read_text() != name:
            return False
        return _waits((thread / "status").read_text()) < _MOST_WAITS
    except OSError:
        return False


def _fields(process: Path) -> list[str]:
    """The fields of ``stat`` behind the name, which may hold blanks and parentheses."""
    return (process / "stat").read_text().rpartition(")")[2].split()


def _waits(status: str) -> int:
    """How often the thread gave the processor up by itself."""
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary_ctxt_switches:"))
