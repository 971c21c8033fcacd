"""Test processes that end after their threads have started."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from ms_tune.dryrun.child.hook import runtime


def test_threads_that_wait_are_no_reason_to_wait() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    runtime.let_threads_begin()
    assert not any(map(runtime._has_never_waited, Path("/proc/self/task").iterdir()))
    done.set()
    thread.join()


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_has_never_waited", lambda _: True)
    monkeypatch.setattr(runtime, "_TO_BEGIN", 0.05)
    begin = time.monotonic()
    runtime.let_threads_begin()
    assert time.monotonic() - begin >= 0.05


@pytest.mark.parametrize(("switches", "never"), [(0, True), (1, False), (10, False)])
def test_a_thread_that_never_waited_is_known_by_its_status(switches: int, never: bool, tmp_path: Path) -> None:  # noqa: FBT001
    text = f"Name:\tpython\nvoluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t0\n"
    (tmp_path / "status").write_text(text, encoding="utf-8")
    assert runtime._has_never_waited(tmp_path) is never
    assert not runtime._has_never_waited(tmp_path / "gone")
