"""Test processes that are forked with their imports, and that cheap simulated processes are the same as others."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.dryrun.launcher import LOG, ChildProcess, RunningProcess, watch_programs
from ms_tune.dryrun.local_engine import ForkServer, shared_imports
from tests.dryrun.test_launcher import runs, wait_for

if TYPE_CHECKING:
    from tests.dryrun.conftest import RealRun


ROOT = Path(__file__).parents[2]
_JOB = """
import os, signal, sys, time
print("imported", flush=True)
IMPORTER = os.getpid()
{at_import}

def run(job):
    here = [os.getpid(), os.getpgrp(), IMPORTER, os.getppid(), os.environ["RANK_ID"], os.environ["SHARED"], os.getcwd()]
    with open("facts", "w") as file:
        file.write("\\n".join(map(str, here)) + "\\n")
    print("job", job["number"], flush=True)
    exec(job["code"])
"""


def child(folder: Path, rank: int, code: str, *, timeout: float = 60.0, shared: str = "1") -> ChildProcess:
    run = folder / f"rank_{rank}"
    run.mkdir()
    (run / "job.json").write_text(json.dumps({"number": rank, "code": code}), encoding="utf-8")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "RANK_ID": str(rank),
        "RANK_SIZE": "2",
        "MS_ALLOC_CONF": f"memory_tracker_path:{run}",
        "SHARED": shared,
    }
    command = (sys.executable, "-m", "ms_tune.dryrun.child", "own_job", "job.json")
    return ChildProcess(command, environment, run, timeout, is_child=True)


def module(folder: Path, at_import: str = "") -> None:
    (folder / "own_job.py").write_text(_JOB.format(at_import=at_import), encoding="utf-8")


def codes(folder: Path, children: list[ChildProcess]) -> list[tuple[int, bool]]:
    """Return the exit code of each child, and whether its time limit was exceeded."""
    with contextlib.ExitStack() as last, watch_programs() as watch:
        server = ForkServer.start(children[0], folder)
        last.callback(server.close)
        watch.running.append(RunningProcess(server.process, math.inf))
        running = [server.fork(one) for one in children]
        for one in running:
            watch.running.append(one)
        ended = []
        for one in running:
            while (end := one.end_if_over()) is None:
                watch.wait_briefly()
            ended.append((end.code, end.timed_out))
            watch.running.remove(one)
    return ended


def facts(one: ChildProcess) -> list[str]:
    return (one.folder / "facts").read_text(encoding="utf-8").splitlines()


def test_each_is_a_process_as_if_started_for_itself(tmp_path: Path) -> None:
    module(tmp_path)
    children = [child(tmp_path, rank, "sys.exit(3 * job['number'])") for rank in (0, 1)]
    assert codes(tmp_path, children) == [(0, False), (3, False)]
    for one, rank in zip(children, "01", strict=True):
        pid, group, importer, parent, reported, shared, folder = facts(one)
        assert (pid, reported, shared, folder) == (group, rank, "1", str(one.folder))
        assert parent == importer != pid
        assert (one.folder / LOG).read_text(encoding="utf-8").splitlines() == ["imported", f"job {rank}"]
    assert facts(children[0])[2] == facts(children[1])[2]  # both use one import


@pytest.mark.slow
def test_a_job_whose_time_is_up_ends_and_the_other_goes_on(tmp_path: Path) -> None:
    module(tmp_path)
    children = [child(tmp_path, 0, "time.sleep(60)", timeout=2.0), child(tmp_path, 1, "time.sleep(3)")]
    (first, stopped), second = codes(tmp_path, children)
    assert (first, stopped, second) == (-signal.SIGTERM, True, (0, False))


@pytest.mark.slow
def test_an_import_that_hangs_ends_with_the_time(tmp_path: Path) -> None:
    module(tmp_path, at_import="time.sleep(60)")
    ((code, stopped),) = codes(tmp_path, [child(tmp_path, 0, "pass", timeout=1.0)])
    assert stopped
    assert code != 0


def test_nothing_is_left_when_the_parent_is_killed(tmp_path: Path) -> None:
    module(tmp_path)
    child(tmp_path, 0, "time.sleep(600)")
    program = textwrap.dedent(f"""
        import pathlib, sys, time
        from ms_tune.dryrun.local_engine import ForkServer
        from ms_tune.dryrun.launcher import ChildProcess
        folder = pathlib.Path({str(tmp_path)!r})
        environment = {{"RANK_ID": "0", "RANK_SIZE": "1", "MS_ALLOC_CONF": "", "SHARED": "", "PYTHONPATH": sys.argv[1]}}
        command = (sys.executable, "-m", "ms_tune.dryrun.child", "own_job", "job.json")
        one = ChildProcess(command, environment, folder / "rank_0", 600.0)
        server = ForkServer.start(one, folder)
        server.fork(one)
        time.sleep(600)
    """)
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    parent = subprocess.Popen([sys.executable, "-c", program, paths], env={**os.environ, "PYTHONPATH": str(ROOT)})
    written = tmp_path / "rank_0" / "facts"
    try:
        wait_for(lambda: written.is_file() and written.read_text().endswith("\n"))
        pid, _, importer, *_ = written.read_text().splitlines()
        assert runs(int(pid))
        assert runs(int(importer))
    finally:
        parent.kill()
        parent.wait()
    wait_for(lambda: not runs(int(pid)) and not runs(int(importer)))


def test_only_what_imports_the_same_in_the_same_environment_is_forked_from_one(tmp_path: Path) -> None:
    first, second = child(tmp_path, 0, "pass"), child(tmp_path, 1, "pass")
    assert shared_imports(first) == shared_imports(second)
    assert shared_imports(first) != shared_imports(child(tmp_path, 2, "pass", shared="2"))
    assert shared_imports(ChildProcess(("bash", "train.sh"), {}, tmp_path, 1.0)) is None


@pytest.mark.mindspore
def test_a_forked_run_leaves_the_blocks_of_one_that_imports_for_itself(
    packaged_run: RealRun, small_device_run: RealRun
) -> None:
    """The first run is one of two sizes and forked, the second one is alone; the tracker's addresses start anywhere."""
    kept = []
    for run in (packaged_run, small_device_run):
        lines = (run.folder / "rank_0" / "rank_0" / "memory_block.csv").read_text(encoding="utf-8").splitlines()
        names = lines[0].split(",")
        wanted = [names.index(name) for name in ("start_time_stamp", "end_time_stamp", "size", "pool_type")]
        kept.append([[row.split(",")[at] for at in wanted] for row in lines[1:]])
    assert len(kept[0]) > 1000
    assert kept[0] == kept[1]


def test_children_run_at_once(tmp_path: Path) -> None:
    """Each child waits for the other one: if they ran one after the other, the test would not end."""
    module(tmp_path)
    code = """
open(f"../began_{job['number']}", "w").close()
while not os.path.exists(f"../began_{1 - job['number']}"):
    time.sleep(0.01)
"""
    children = [child(tmp_path, rank, code) for rank in (0, 1)]
    assert codes(tmp_path, children) == [(0, False), (0, False)]


_STACKS = """
import json, sys, traceback
from ms_tune.training_process import make_stacks_cheap

def deep(number, ask):
    if number:
        return deep(number - 1, ask)
    return ask()

def ask():
    return [[one.filename, one.lineno, one.name, one.line, *one] for one in traceback.extract_stack()]

def both():
    return [deep(3, ask) for _ in range(2)]

before, parts = both(), [traceback.extract_stack(limit=2)[-1].name, traceback.extract_stack(sys._getframe(), 1)[0].name]
make_stacks_cheap()
after, again = both(), [traceback.extract_stack(limit=2)[-1].name, traceback.extract_stack(sys._getframe(), 1)[0].name]
lines = [[frame for frame in stack if frame[2] != "<module>"] for stack in (*before, *after)]
print(json.dumps([lines, parts, again]))
"""
_CLONES = """
import json
import mindspore as ms
from mindspore import Parameter, ParameterTuple
from ms_tune.training_process import make_clones_cheap

def facts():
    weights = ParameterTuple([
        Parameter(ms.ops.ones((4, 3), dtype), name=f"w.{dtype}.{grad}", requires_grad=grad)
        for dtype in (ms.float32, ms.bfloat16) for grad in (True, False)
    ])
    same = [one.asnumpy().astype("float32").sum().item() for one in weights.clone("same")]
    return [same] + [
        [one.name, one.shape, str(one.dtype), one.requires_grad, one.has_init, *one.asnumpy().astype("float32").ravel().tolist()]
        for one in weights.clone("m", init="zeros")
    ]

before = facts()
make_clones_cheap()
print(json.dumps([before, facts()]))
"""


def printed(folder: Path, code: str) -> Any:  # noqa: ANN401 - any JSON
    (folder / "program.py").write_text(code, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.mindspore
@pytest.mark.slow
def test_a_stack_is_what_traceback_makes_of_it(tmp_path: Path) -> None:
    (before, once_more, *after), parts, again = printed(tmp_path, _STACKS)
    assert len(before) == 7
    assert [before, once_more, *after] == [before] * 4
    assert parts == again


@pytest.mark.mindspore
@pytest.mark.slow
def test_a_clone_is_what_mindspore_makes_of_it(tmp_path: Path) -> None:
    before, after = printed(tmp_path, _CLONES)
    assert before[0] == [12.0] * 4
    assert [one[-12:] for one in before[1:]] == [[0.0] * 12] * 4
    assert before == after
