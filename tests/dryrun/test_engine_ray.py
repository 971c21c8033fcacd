"""The Ray engine on a real Ray of this machine with several worker processes."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.dryrun.cann_sim.environment import find_mindspore, prepare_cann
from ms_tune.dryrun.command import run_command
from ms_tune.dryrun.engines.local import LocalEngine
from ms_tune.dryrun.engines.ray import RayEngine
from ms_tune.dryrun.request import CommandRequest, DryrunRequest
from ms_tune.dryrun.run import dryrun
from ms_tune.dryrun.task import Observer, Task
from ms_tune.errors import MissingExtraError
from ms_tune.units import MIB
from tests.dryrun.machine import needs_mindspore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ms_tune.dryrun.launcher import Ended
    from ms_tune.dryrun.task import Engine

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else real(name))
    with pytest.raises(MissingExtraError, match="'ms-tune dryrun --engine ray' needs Ray"):
        RayEngine(None).run([], tmp_path, lambda *_: None, lambda *_: None)


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
        arguments=("-c", code),
        rank=number,
        world_size=4,
        level=1,
        timeout=120,
        host_bytes=100 * MIB,
        stage=number,
        layers=1,
    )


class Ends:
    """Keeps how tasks ended, by rank."""

    def __init__(self, kept: dict[int, Ended]) -> None:
        self._kept = kept

    def add(self, one: Task, ended: Ended) -> None:
        self._kept[one.rank] = ended


REPORT = (
    "import os, pathlib; pathlib.Path('sub').mkdir();"
    "pathlib.Path('sub/answer').write_text(os.environ['RANK_ID'] + pathlib.Path('job.json').read_text());"
    "print('hello from', os.environ['RANK_ID'])"
)


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
        ends: dict[str, dict[int, Ended]] = {"ray": {}, "local": {}}
        local = LocalEngine(prepare_cann(find_mindspore(), lambda _: None), 2)
        engines: dict[str, Engine] = {"ray": RayEngine(None), "local": local}
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

    def test_a_lost_workers_task_is_repeated(self, cluster: Any, tmp_path: Path) -> None:  # noqa: ANN401
        assert cluster.is_initialized()
        # The first time, the process ends the Ray worker that started it.
        marker = tmp_path / "was-here"
        code = f"import os, pathlib\nif not os.path.exists({str(marker)!r}): open({str(marker)!r}, 'w'); os.kill(os.getppid(), 9)\n"
        tasks = [task(0, code + REPORT), task(1, REPORT)]
        ended: dict[int, Ended] = {}
        RayEngine(None).run(tasks, tmp_path, lambda *_: None, Ends(ended).add)
        assert marker.exists()
        assert {rank: end.code for rank, end in ended.items()} == {0: 0, 1: 0}
        assert len(answers(tmp_path, range(2))) == 2

    def test_a_failure_and_a_time_limit_come_back(self, cluster: Any, tmp_path: Path) -> None:  # noqa: ANN401
        assert cluster.is_initialized()
        slow = replace(task(1, "import time; time.sleep(600)"), timeout=2)
        ended: dict[int, Ended] = {}
        RayEngine(1).run(
            [task(0, "raise SystemExit(7)"), slow],
            tmp_path,
            lambda *_: None,
            Ends(ended).add,
        )
        assert ended[0].code == 7
        assert ended[1].timed_out

    def test_a_command_runs_in_the_users_folder_on_a_worker(
        self,
        cluster: Any,  # noqa: ANN401
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        assert cluster.is_initialized()
        monkeypatch.chdir(tmp_path)
        code = "import os, sys; print(os.getcwd(), os.environ['RANK_ID']); sys.exit(int(os.environ['RANK_ID']))"
        request = CommandRequest((sys.executable, "-c", code), ranks=(0, 7), devices=8, engine="ray")
        result = run_command(request, Observer())
        assert result.code == 7
        logs = [(result.folder / f"rank_{rank}" / "log.txt").read_text("utf-8") for rank in (0, 7)]
        assert logs == [f"{tmp_path} {rank}\n" for rank in (0, 7)]

    def test_a_simulated_job_has_the_same_figures(
        self,
        cluster: Any,  # noqa: ANN401
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        assert cluster.is_initialized()
        monkeypatch.chdir(tmp_path)
        request = DryrunRequest(layers=1)
        local, remote = dryrun(request, Observer()), dryrun(replace(request, engine="ray"), Observer())
        for one, other in zip(local.stages, remote.stages, strict=True):
            assert one.reading.peak_bytes == other.reading.peak_bytes
            assert one.reading.contents == other.reading.contents
            assert one.extrapolation == other.extrapolation
