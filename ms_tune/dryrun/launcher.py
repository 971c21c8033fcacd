"""Starts the simulated process, watches it, and never leaves it behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, NoReturn

from ms_tune.errors import RunError
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import FrameType

LOG = "log.txt"
_POLL_SECONDS = 0.1
_GRACE_SECONDS = 5.0


def run_child(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    timeout: float,
    on_tick: Callable[[float], None],
) -> int:
    """Run a program until it ends, with all that it prints in the folder's :data:`LOG`.

    The program leads a process group of its own. Whatever ends this function early (an exception, Ctrl-C, SIGTERM, the
    time limit), the whole group is stopped before it returns.

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
    """
    start = time.monotonic()
    with (folder / LOG).open("wb") as output, _terminated_as_interrupted():
        process = subprocess.Popen(
            list(command),
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                elapsed = time.monotonic() - start
                if elapsed > timeout:
                    raise RunError(msg("dryrun.run.timeout", seconds=round(timeout)), msg("dryrun.run.timeout.hint"))
                on_tick(elapsed)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
        finally:
            _stop_group(process)
    return process.returncode


def _stop_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the process's group: politely, then not."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
    process.wait()


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that clean-up runs."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
