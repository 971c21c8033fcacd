"""Threads that spin are told from threads that work, and lose their priority."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from ms_tune.dryrun.launcher import idle_spinning_threads

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="Linux schedules so")

# ctypes lets go of Python's lock while a C function runs: one thread never comes back from it, one sleeps in between.
PROGRAM = """
    import ctypes, threading, time
    libc = ctypes.CDLL(None)
    def spin():
        large = (ctypes.c_char * 100_000_000)()
        while True:
            libc.memset(large, 1, 100_000_000)
    def work():
        small = (ctypes.c_char * 4_000_000)()
        while True:
            libc.usleep(2000)
            libc.memset(small, 1, 4_000_000)
    for function in (spin, work):
        threading.Thread(target=function, daemon=True).start()
    time.sleep(60)
"""


@pytest.mark.slow
def test_only_the_thread_that_never_waits_is_calmed() -> None:
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(PROGRAM)], start_new_session=True)
    try:
        found, end = 0, time.monotonic() + 45
        while not found and time.monotonic() < end:
            time.sleep(0.1)
            found = idle_spinning_threads(process.pid)
        policies = [os.sched_getscheduler(int(thread)) for thread in _threads(process.pid)]
    finally:
        process.kill()
        process.wait()
    assert found == 1
    assert policies.count(os.SCHED_IDLE) == 1
    assert len(policies) == 3


def _threads(process: int) -> list[str]:
    return [thread.name for thread in Path(f"/proc/{process}/task").iterdir()]


def test_a_group_that_is_not_there_is_none() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    process.wait()
    assert idle_spinning_threads(process.pid) == 0
