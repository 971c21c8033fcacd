"""Test the supervisor between ms-tune and a user's command: no process is left, whichever ends first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ms_tune.dryrun import launcher, supervisor
from tests.dryrun.test_launcher import runs, wait_for

# Writes its number, leaves its session, and stays: a daemon as `msrun --join=False` leaves them.
DAEMON = """
import os, sys, time
if os.fork():
    while not (os.path.exists("pid") and open("pid").read().endswith("\\n")):
        time.sleep(0.01)  # a failed program's processes are ended at once, this one before it has told its number
    sys.exit({code})
os.setsid()
if os.fork():
    os._exit(0)
with open("pid", "w") as file:
    file.write(str(os.getpid()) + "\\n")
{first}
time.sleep(600)
"""


def begin(folder: Path, *command: str) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-I", "-S", str(Path(supervisor.__file__)), str(os.getpid()), *command]
    return subprocess.Popen(program, cwd=folder, start_new_session=True)


def daemon(folder: Path) -> int:
    pid = folder / "pid"
    wait_for(lambda: pid.is_file() and pid.read_text().endswith("\n"))
    return int(pid.read_text())


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGXFSZ, signal.SIGPIPE])
def test_the_signal_is_the_programs(tmp_path: Path, sign: signal.Signals) -> None:
    """Python ignores SIGXFSZ and SIGPIPE; the programs that it starts must not."""
    assert begin(tmp_path, "bash", "-c", f"ulimit -c 0; kill -{int(sign)} $$").wait(60) == -sign


def test_a_parent_that_ignores_its_childrens_ends(tmp_path: Path) -> None:
    """A Ray worker ignores them; programs inherit ignored signals."""
    previous = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        running = begin(tmp_path, sys.executable, "-c", "open('here', 'w').close(); raise SystemExit(7)")
        wait_for(lambda: (tmp_path / "here").exists() and not runs(running.pid))
    finally:
        signal.signal(signal.SIGCHLD, previous)
        running.wait(60)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    assert begin(tmp_path, "no-such-program").wait(60) == 127


@pytest.mark.slow
def test_one_that_ignores_the_polite_signal_is_ended_too(tmp_path: Path) -> None:
    first = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    running = begin(tmp_path, sys.executable, "-c", DAEMON.format(code=3, first=first))
    pid = daemon(tmp_path)
    assert running.wait(60) == 3
    assert not runs(pid)


@pytest.mark.slow
def test_a_daemon_that_uses_mindspore_is_waited_for(tmp_path: Path) -> None:
    """Its memory maps name the library; here a file with that name is mapped."""
    library = tmp_path / "libmindspore_made_up.so"
    library.write_bytes(b"x" * 4096)
    first = (
        f"import mmap; kept = mmap.mmap(os.open({str(library)!r}, os.O_RDONLY), 0, prot=mmap.PROT_READ)\n"
        "time.sleep(2.5)\nopen('done', 'w').close()\nos._exit(0)"
    )
    running = begin(tmp_path, sys.executable, "-c", DAEMON.format(code=0, first=first))
    assert running.wait(60) == 0
    assert (tmp_path / "done").is_file()


# A supervisor whose searches find no process, which can happen: the parent of a process ends while /proc is read.
BLIND = """
import os, sys
from ms_tune.dryrun import supervisor
looks, look = [], supervisor._list_descendants
supervisor._list_descendants = lambda: look() if len(looks) >= {blind} else looks.append(None) or iter(())
supervisor.main(os.getppid(), sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.parametrize(("code", "ends"), [(0, True), (3, False)])
def test_a_look_that_finds_nobody_is_not_believed(tmp_path: Path, *, code: int, ends: bool) -> None:
    first = "time.sleep(2.0)\nopen('done', 'w').close()\nos._exit(0)" if ends else ""
    program = [sys.executable, "-c", DAEMON.format(code=code, first=first)]
    running = subprocess.Popen([sys.executable, "-c", BLIND.format(blind=6), *program], cwd=tmp_path)
    pid = daemon(tmp_path)
    assert running.wait(60) == code
    assert not runs(pid)
    assert (tmp_path / "done").is_file() == ends


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "left"),
    [
        ('os.mkdir("offload")', False),
        ('os.mkdir("offload"); open("offload/data", "w").close()', True),
    ],
)
def test_when_ms_tune_is_killed_nothing_is_left(tmp_path: Path, first: str, *, left: bool) -> None:
    """Here a process of the test replaces ms-tune and is killed; MindSpore creates that folder."""
    code = (
        "import os, subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-I', '-S', {str(Path(supervisor.__file__))!r}, str(os.getpid()),"
        f" sys.executable, '-c', {DAEMON.format(code=0, first=first)!r}], start_new_session=True)\n"
        "import time; time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    try:
        pid = daemon(tmp_path)
        wait_for((tmp_path / "offload").is_dir)
        wait_for(lambda: runs(pid))
    finally:
        parent.kill()
        parent.wait()
    wait_for(lambda: not runs(pid))
    wait_for(lambda: (tmp_path / "offload").exists() is left)
    time.sleep(0.3)
    assert (tmp_path / "offload").exists() is left


@pytest.mark.slow
def test_when_the_supervisor_is_killed_nothing_is_left(tmp_path: Path) -> None:
    program = [sys.executable, "-c", DAEMON.format(code=0, first="")]
    folder = tmp_path / "rank_0"
    folder.mkdir()
    command = [sys.executable, "-I", "-S", str(Path(supervisor.__file__)), str(os.getpid()), *program]
    environment = {**os.environ, launcher.TRACES: str(folder)}
    running = launcher.start_program(launcher.ChildProcess(command, environment, folder, 60.0, working_folder=tmp_path))
    pid = daemon(tmp_path)
    os.kill(running.process.pid, signal.SIGKILL)
    wait_for(lambda: running.end_if_over() is not None)
    wait_for(lambda: not runs(pid))


def test_a_parent_that_is_gone_already_is_noticed(tmp_path: Path) -> None:
    program = [sys.executable, "-I", "-S", str(Path(supervisor.__file__)), "1000000000", "touch", "made"]
    assert subprocess.run(program, cwd=tmp_path, check=False, timeout=60).returncode == 1
    time.sleep(0.1)
    assert not (tmp_path / "made").exists()
