"""Test starting and watching processes: none is left running, and each leaves a record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ms_tune.dryrun import launcher, supervisor
from ms_tune.dryrun.launcher import LOG
from ms_tune.dryrun.processes import SourceOperation, killed_forks, processes_of, unhooked_in
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


RECORD = {"pid": 11, "arguments": ["train.py"], "ended": True, "reads": [], "bounds": []}


def write_record(folder: Path, **facts: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "process.json").write_text(json.dumps({**RECORD, **facts}), encoding="utf-8")
    return folder


def test_of_several_each_has_a_folder_and_its_lines_of_the_log(tmp_path: Path) -> None:
    write_record(tmp_path)
    own = tmp_path / "worker.log"
    own.write_bytes(b"[ERROR] CORE(33,abc): one of its own\n")
    write_record(tmp_path / "process_10", pid=33, log=str(own))
    write_record(tmp_path / "process_2", pid=22, ended=False)
    (tmp_path / "memory_block.csv").write_text("trace of the first\n")
    (tmp_path / LOG).write_bytes(
        b"of nobody\n[WARNING] ME(11:140,MainProcess): one\nmore of one\n[ERROR] DEVICE(22,7f): two\n[INFO] (44,x): gone\n"
    )
    processes = processes_of(tmp_path)
    assert [(process.folder.name, process.pid) for process in processes] == [
        ("process_1", 11),
        ("process_2", 22),
        ("process_10", 33),
    ]
    assert (tmp_path / "process_1/memory_block.csv").read_text() == "trace of the first\n"
    assert not (tmp_path / "memory_block.csv").exists()
    logs = [(process.folder / LOG).read_bytes() for process in processes]
    assert logs[0] == b"[WARNING] ME(11:140,MainProcess): one\nmore of one\n"
    assert logs[1] == b"[ERROR] DEVICE(22,7f): two\n"
    assert logs[2] == own.read_bytes()


def test_a_loop_that_was_stopped(tmp_path: Path) -> None:
    loop = {"file": "train.py", "line": 9, "how": "while"}
    assert processes_of(write_record(tmp_path / "a", endless=loop))[0].endless == SourceOperation(
        "train.py", 9, "while"
    )
    graph = write_record(tmp_path / "b", graph_loops=[loop])
    assert processes_of(graph)[0].endless is None
    (graph / "stuck.txt").write_text("stuck")
    assert processes_of(graph)[0].endless == SourceOperation("train.py", 9, "while")


def test_what_a_process_shows_of_its_end(tmp_path: Path) -> None:
    (process,) = processes_of(write_record(tmp_path, failed="ValueError: " + "x" * 1000, forked_bytes=-5))
    assert (process.failed, process.forked_bytes) == ("ValueError: " + "x" * 288, 0)


def test_processes_that_reported_nothing_are_known_by_the_log(tmp_path: Path) -> None:
    write_record(tmp_path)
    line = (
        "[WARNING] PRE_ACT({},7f,python):2026 [mem_tracker.cc:551] DumpMemoryBlock] memory block csv path : {}/m.csv.\n"
    )
    (tmp_path / LOG).write_text("".join(line.format(pid, tmp_path) for pid in (11, 12, 13, 12)), encoding="utf-8")
    (tmp_path / "forked.txt").write_text("13\n", encoding="ascii")
    assert unhooked_in(tmp_path, processes_of(tmp_path)) == (12,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "{}",
        '{"pid": "x", "arguments": [], "ended": true}',
        '{"pid": 1, "arguments": 3, "ended": true}',
        '{"pid": 1, "arguments": [], "ended": true, "reads": [{"file": "a"}]}',
        '{"pid": 1, "arguments": [], "ended": true, "endless": {"file": "a", "line": "b"}}',
        " " * (1 << 20) + json.dumps(RECORD),
    ],
)
def test_a_record_that_a_program_spoilt_shows_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "process.json").write_text(text, encoding="utf-8")
    assert processes_of(tmp_path) == ()


def test_marks_of_forked_processes_that_stay_are_found(tmp_path: Path) -> None:
    write_record(tmp_path, pid=1)
    (tmp_path / "forks").mkdir()
    (tmp_path / "forked.txt").touch()
    for name in ("31", "4", "not-a-number"):
        (tmp_path / "forks" / name).touch()
    write_record(tmp_path / "process_2", pid=2)
    found = processes_of(tmp_path)
    assert [(process.pid, pid) for process, pid in killed_forks(found)] == [(1, 31), (1, 4)]


def test_programs_one_after_the_other_in_one_process_have_their_own_lines(tmp_path: Path) -> None:
    first = "[WARNING] ME(7,0): of the first\nmore of it\n"
    (tmp_path / "log.txt").write_text(f"{first}[WARNING] ME(7,0): of the second\n", "utf-8")
    write_record(tmp_path, pid=7)
    write_record(tmp_path / "process_2", pid=7, log_from=len(first))
    logs = [(process.folder / "log.txt").read_text("utf-8") for process in processes_of(tmp_path)]
    assert logs == [first, "[WARNING] ME(7,0): of the second\n"]


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
