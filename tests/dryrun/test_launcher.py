"""Test starting and watching a process, which must never be left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ms_tune.dryrun import launcher
from ms_tune.dryrun.launcher import LOG
from ms_tune.errors import RunError
from tests.dryrun.launching import hear_signals, ignore_signals, run_child

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # timeout of a test in seconds; all tests are much faster


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def run(folder: Path, code: str, timeout: float = PATIENCE) -> int:
    return run_child(python(code), dict(os.environ), folder, timeout, lambda _: None)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def runs(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def pids(folder: Path, *names: str) -> list[int]:
    """Return the process IDs that the processes wrote; wait until all have written."""
    wait_for(lambda: all((folder / name).is_file() and (folder / name).read_text().endswith("\n") for name in names))
    return [int((folder / name).read_text()) for name in names]


@pytest.mark.parametrize("code", [0, 1, 7])
def test_the_exit_code_is_that_of_the_program(tmp_path: Path, code: int) -> None:
    assert run(tmp_path, f"raise SystemExit({code})") == code


def test_the_log_holds_both_streams_and_bytes_of_any_encoding(tmp_path: Path) -> None:
    code = (
        "import os, sys; print('to standard output', flush=True); print('to standard error', file=sys.stderr, flush=True);"
        "os.write(1, b'\\xff\\xfe\\n')"
    )
    assert run(tmp_path, code) == 0
    assert (tmp_path / LOG).read_bytes() == b"to standard output\nto standard error\n\xff\xfe\n"


def test_the_program_gets_the_folder_the_environment_and_no_input(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd(), sorted(os.environ), repr(sys.stdin.read()))"
    assert run_child(python(code), {"ONLY": "this", "LC_ALL": "C.UTF-8"}, tmp_path, PATIENCE, lambda _: None) == 0
    assert (tmp_path / LOG).read_text().split(" ", 1) == [str(tmp_path.resolve()), "['LC_ALL', 'ONLY'] ''\n"]


def test_the_callback_hears_the_time(tmp_path: Path) -> None:
    heard: list[float] = []
    code = "import pathlib, time\nwhile not pathlib.Path('enough').exists(): time.sleep(0.01)"

    def tick(elapsed: float) -> None:
        heard.append(elapsed)
        if len(heard) == 3:
            (tmp_path / "enough").touch()

    assert run_child(python(code), dict(os.environ), tmp_path, PATIENCE, tick) == 0
    assert len(heard) >= 3
    assert heard == sorted(heard)
    assert heard[0] >= 0


def test_a_program_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no-such-program"):
        run_child([str(tmp_path / "no-such-program")], {}, tmp_path, PATIENCE, lambda _: None)


# A program with a child of its own, in the same process group; both write their ids and sleep.
FAMILY = """
import os, signal, subprocess, sys, time
stubborn = len(sys.argv) > 1
if stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = "import os, pathlib, time; pathlib.Path('grandchild').write_text(f'{os.getpid()}\\\\n'); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child])
open("child", "w").write(f"{os.getpid()}\\n")
time.sleep(600)
"""


@pytest.mark.parametrize("stubborn", [False, True], ids=["polite", "deaf to SIGTERM"])
@pytest.mark.slow
def test_the_time_limit_ends_the_whole_process_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stubborn: bool
) -> None:
    monkeypatch.setattr(launcher, "_GRACE_SECONDS", 0.2)

    def tick(_: float) -> None:
        if (tmp_path / "grandchild").exists():
            monkeypatch.setattr(time, "monotonic", lambda: real() + 1000)

    real = time.monotonic
    command = python(FAMILY, *(["stubborn"] if stubborn else []))
    with pytest.raises(RunError) as caught:
        run_child(command, dict(os.environ), tmp_path, 500, tick)
    monkeypatch.undo()
    assert "500" in str(caught.value)
    assert caught.value.hint is not None
    for pid in pids(tmp_path, "child", "grandchild"):
        wait_for(lambda pid=pid: not runs(pid))  # type: ignore[misc]


def test_signal_handlers_are_as_before_afterwards(tmp_path: Path) -> None:
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    run(tmp_path, "pass")
    with pytest.raises(RunError):
        run(tmp_path, "import time; time.sleep(600)", timeout=0)
    assert [signal.getsignal(number) for number in numbers] == before


# A small replacement of ms-tune: it runs FAMILY as its child, and reports how it ended.
PARENT = """
import os, sys
from pathlib import Path
from tests.dryrun.launching import run_child
folder = Path(sys.argv[1])
try:
    run_child([sys.executable, "-c", sys.argv[2]], dict(os.environ), folder, 600, lambda _: None)
except KeyboardInterrupt:
    (folder / "end").write_text("interrupted")
    sys.exit(130)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.slow
def test_a_signal_to_ms_tune_ends_the_program_too(tmp_path: Path, number: signal.Signals) -> None:
    parent = subprocess.Popen(python(PARENT, str(tmp_path), FAMILY), cwd=ROOT, preexec_fn=hear_signals)  # noqa: PLW1509 - no threads here
    family = pids(tmp_path, "child", "grandchild")
    parent.send_signal(number)
    assert parent.wait(PATIENCE) == 130
    assert (tmp_path / "end").read_text() == "interrupted"
    for pid in family:
        wait_for(lambda pid=pid: not runs(pid))  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_what_ms_tune_was_started_to_ignore_it_ignores(tmp_path: Path, number: signal.Signals) -> None:
    """``nohup ms-tune ... &`` continues when the terminal is closed."""
    code = "import os, time; open('child', 'w').write(f'{os.getpid()}\\n')\nwhile not os.path.exists('go'): time.sleep(0.01)"
    parent = subprocess.Popen(python(PARENT, str(tmp_path), code), cwd=ROOT, preexec_fn=ignore_signals)  # noqa: PLW1509 - no threads here
    pids(tmp_path, "child")
    parent.send_signal(number)
    time.sleep(0.3)
    (tmp_path / "go").touch()
    assert parent.wait(PATIENCE) == 0


# Like PARENT, with the real child module. Its MindSpore is a file that sleeps when it is imported.
PARENT_OF_REAL_CHILD = """
import os, sys
from pathlib import Path
from tests.dryrun.launching import run_child
folder = Path(sys.argv[1])
environment = {**os.environ, "PYTHONPATH": f"{folder / 'fake'}:{os.getcwd()}"}
command = [sys.executable, "-m", "ms_tune.dryrun.child", "ms_tune.reference.transformer.training", "job.json"]
run_child(command, environment, folder, 600, lambda _: None)
"""


def test_the_real_child_dies_with_an_ms_tune_that_is_killed_outright(tmp_path: Path) -> None:
    (tmp_path / "fake" / "mindspore").mkdir(parents=True)
    (tmp_path / "fake" / "mindspore" / "__init__.py").write_text(
        "import os, time\nopen('child', 'w').write(f'{os.getpid()}\\n')\ntime.sleep(600)\n", encoding="utf-8"
    )
    (tmp_path / "job.json").write_text('{"kind": "reference"}', encoding="utf-8")
    parent = subprocess.Popen(python(PARENT_OF_REAL_CHILD, str(tmp_path)), cwd=ROOT)
    (child,) = pids(tmp_path, "child")
    assert runs(child)
    parent.kill()
    assert parent.wait(PATIENCE) == -signal.SIGKILL
    wait_for(lambda: not runs(child))
    assert not runs(child)
