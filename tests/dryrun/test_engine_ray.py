"""Test the Ray engine with a real Ray on this machine and several worker processes."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.dryrun import ray_engine
from ms_tune.dryrun.cann_sim.environment import find_mindspore, prepare_cann
from ms_tune.dryrun.command import run_command
from ms_tune.dryrun.local_engine import LocalEngine
from ms_tune.dryrun.ray_engine import RayEngine
from ms_tune.dryrun.request import CommandRequest, DryrunRequest
from ms_tune.dryrun.run import dryrun_job
from ms_tune.dryrun.task import Observer, Task
from ms_tune.errors import MissingExtraError, RunError
from ms_tune.units import MIB
from tests.dryrun.machine import needs_mindspore

if TYPE_CHECKING:
    from ms_tune.dryrun.launcher import ProcessEnd

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else real(name))
    with pytest.raises(MissingExtraError, match="'ms-tune dryrun --engine ray' requires Ray"):
        RayEngine(None).run([], tmp_path, lambda *_: None, lambda *_: None)


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nobody", "no-port", "another"])
def test_an_address_without_a_cluster_ends_soon(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts connections and sends nothing
        port = server.getsockname()[1]
        if kind == "nobody":
            server.close()
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1" if kind == "no-port" else f"127.0.0.1:{port}")
        with pytest.raises(RunError, match="cannot reach the Ray cluster"):
            ray_engine.connect_ray()


@needs_ray
@pytest.mark.slow
def test_a_ray_of_this_machine_listens_on_loopback_alone(tmp_path: Path) -> None:
    """Ray runs in a separate process; all listening sockets of its processes are examined."""
    code = (
        "import os, pathlib\nfrom ms_tune.dryrun.ray_engine import connect_ray\nray = connect_ray()\n"
        "print('PID', os.getpid(), flush=True)\ninput()\nray.shutdown()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    environment.pop("RAY_ADDRESS", None)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=tmp_path
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline().startswith(b"PID")
            open_to_all = listening(session_of(running.pid))
        finally:
            running.communicate(b"\n", timeout=120)
    assert open_to_all == []


def session_of(pid: int) -> set[str]:
    """Return the processes that one Ray session started."""
    children: dict[str, list[str]] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):
                parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
                children.setdefault(parent, []).append(process.name)
    found, todo = {str(pid)}, [str(pid)]
    while todo:
        new = children.get(todo.pop(), [])
        found.update(new)
        todo += new
    return found


def listening(processes: set[str]) -> list[str]:
    """Return the sockets of these processes that listen on other addresses than loopback, from /proc/net."""
    sockets = set()
    for process in processes:
        with contextlib.suppress(OSError):
            sockets |= {os.readlink(link) for link in Path(f"/proc/{process}/fd").iterdir()}  # noqa: PTH115 - no path
    found = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            local, state, inode = fields[1].partition(":")[0], fields[3], fields[9]
            # 127.0.0.0/8, ::1, and the former as an address of six
            loopback = local.endswith("7F") or local == "00000000000000000000000001000000"
            if state == "0A" and f"socket:[{inode}]" in sockets and not loopback:
                found.append(line)
    return found


def test_what_killed_workers_left_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    for name in (f"ms-tune-ray-{ended.pid}-x", f"ms-tune-ray-{os.getpid()}-x", "ms-tune-ray-x", "other"):
        (tmp_path / name).mkdir()
    ray_engine._remove_leftovers()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"ms-tune-ray-{os.getpid()}-x",
        "ms-tune-ray-x",
        "other",
    ]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    ray.init(
        num_cpus=3,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=200 * MIB,
    )
    yield ray
    ray.shutdown()


def task(number: int, code: str) -> Task:
    return Task(
        folder=f"rank_{number}",
        files={"job.json": f'{{"number": {number}}}'},
        arguments=("-W", f"ignore:{number}", "-c", code),  # programs of their own: a server could not fork them
        rank=number,
        world_size=4,
        level=1,
        timeout=120,
        host_bytes=100 * MIB,
        stage=number,
        layers=1,
    )


class Ends:
    """An observer that records how tasks ended, by rank."""

    def __init__(self, kept: dict[int, ProcessEnd]) -> None:
        self._kept = kept

    def add(self, one: Task, ended: ProcessEnd) -> None:
        self._kept[one.rank] = ended


REPORT = (
    "import os, pathlib; pathlib.Path('sub').mkdir();"
    "pathlib.Path('sub/answer').write_text(os.environ['RANK_ID'] + pathlib.Path('job.json').read_text());"
    "print('hello from', os.environ['RANK_ID'])"
)


# The worker is the parent of the supervisor of the program.
_KILLS_ITS_WORKER = """
import os, pathlib
import mindspore as ms
from mindspore import mint
ms.set_device("Ascend")
kept = mint.zeros((64, 1024, 256))
if os.environ["RANK_ID"] == "0" and not os.path.exists("killed"):
    open("killed", "w").close()
    stat = pathlib.Path(f"/proc/{os.getppid()}/stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), 9)
    import time; time.sleep(600)
"""


def running_in(folder: Path) -> list[str]:
    """Return the processes with this working folder, without the current one."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                if Path(os.readlink(process / "cwd")).is_relative_to(folder):  # noqa: PTH115 - a link that may be gone
                    found.append((process / "cmdline").read_text("utf-8", "replace"))
    return found


def left_by_killed_workers() -> list[str]:
    """Return the temporary folders of Ray workers that have ended."""
    found = (ray_engine._SCRATCH.fullmatch(path.name) for path in Path(tempfile.gettempdir()).iterdir())
    return [match[0] for match in found if match and not Path(f"/proc/{match[1]}").exists()]


def answers(folder: Path, numbers: range) -> list[str]:
    return [(folder / f"rank_{number}" / "sub" / "answer").read_text("utf-8") for number in numbers]


@needs_ray
@needs_mindspore
@pytest.mark.mindspore
@pytest.mark.filterwarnings("ignore")  # Ray's own
class TestRay:
    def test_what_tasks_leave_is_what_they_leave_locally(self, cluster: Any, tmp_path: Path) -> None:  # noqa: ANN401
        assert cluster.is_initialized()
        tasks = [task(number, REPORT) for number in range(4)]
        ends: dict[str, dict[int, ProcessEnd]] = {"ray": {}, "local": {}}
        local = LocalEngine(prepare_cann(find_mindspore(), lambda _: None), 2)
        engines: dict[str, LocalEngine | RayEngine] = {"ray": RayEngine(None), "local": local}
        for name, engine in engines.items():
            (tmp_path / name).mkdir()
            engine.run(
                tasks,
                tmp_path / name,
                lambda *_: None,
                Ends(ends[name]).add,
            )
        assert answers(tmp_path / "ray", range(4)) == answers(tmp_path / "local", range(4))
        assert {rank: ended.code for rank, ended in ends["ray"].items()} == dict.fromkeys(range(4), 0)
        logs = [(tmp_path / name / "rank_3" / "log.txt").read_text("utf-8") for name in ("ray", "local")]
        assert logs == ["hello from 3\n"] * 2

    def test_a_simulated_run_whose_worker_is_killed_is_repeated(
        self,
        cluster: Any,  # noqa: ANN401
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Two real simulated runs use two workers; one worker is killed during its run."""
        assert cluster.is_initialized()
        monkeypatch.chdir(tmp_path)
        (tmp_path / "train.py").write_text(_KILLS_ITS_WORKER, encoding="utf-8")
        request = CommandRequest((sys.executable, "train.py"), ranks=(0, 1), devices=2, engine="ray")
        result = run_command(request, Observer())
        assert (tmp_path / "killed").exists()
        assert result.code == 0, result.problems
        assert [round(rank.reading.peak_bytes / MIB) for rank in result.ranks] == [64, 64]
        assert running_in(tmp_path) == []
        assert left_by_killed_workers() == []

    def test_a_failure_and_a_time_limit_come_back(self, cluster: Any, tmp_path: Path) -> None:  # noqa: ANN401
        assert cluster.is_initialized()
        slow = replace(task(1, "import time; time.sleep(600)"), timeout=2)
        ended: dict[int, ProcessEnd] = {}
        RayEngine(1).run(
            [task(0, "raise SystemExit(7)"), slow],
            tmp_path,
            lambda *_: None,
            Ends(ended).add,
        )
        assert ended[0].code == 7
        assert ended[1].timed_out

    def test_a_simulated_job_has_the_same_figures(
        self,
        cluster: Any,  # noqa: ANN401
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        assert cluster.is_initialized()
        monkeypatch.chdir(tmp_path)
        request = DryrunRequest(layers=1)
        local, remote = dryrun_job(request, Observer()), dryrun_job(request._replace(engine="ray"), Observer())
        for one, other in zip(local.stages, remote.stages, strict=True):
            assert one.reading.peak_bytes == other.reading.peak_bytes
            assert one.reading.contents == other.reading.contents
            assert one.extrapolation == other.extrapolation
