"""Run one program like dryrun runs many; programs that the tests stop start this module by name."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ms_tune.dryrun.launcher import ChildProcess, start_program, too_long, watch_programs


def run_child(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    timeout: float,
    on_tick: Callable[[float], None],
) -> int:
    """Run one program until it ends, with all that it prints in the folder's :data:`LOG`.

    Whatever ends this function early (an exception, Ctrl-C, SIGTERM, the time limit), the program's whole group is
    stopped before it returns.

    Args:
        command: The program and its arguments.
        environment: Its whole environment.
        folder: Its working folder.
        timeout: Seconds after which it is stopped.
        on_tick: Called ten times a second with the seconds since the start.

    Returns:
        The exit code; negative if a signal ended the program.

    Raises:
        RunError: The time limit was reached.
        KeyboardInterrupt: A signal asked ms-tune to end.
    """
    with watch_programs() as watch:
        running = start_program(ChildProcess(command, environment, folder, timeout))
        watch.running.append(running)
        while (end := running.end_if_over()) is None:
            on_tick(running.elapsed)
            watch.wait_briefly()
    if end.timed_out:
        raise too_long(timeout)
    return end.code


def hear_signals() -> None:
    """Restore default signals before a program starts: the tests may run in the background of a script, where signals are ignored."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def ignore_signals() -> None:
    """Ignore signals before a program starts, like ``nohup`` and background jobs of scripts."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
