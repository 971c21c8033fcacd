"""Test several stages, sizes and variants together, with a script instead of the training process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ms_tune.dryrun import machine
from ms_tune.dryrun.request import DryrunRequest, Setting
from ms_tune.dryrun.run import dryrun_job, simulate_each
from ms_tune.dryrun.task import Observer, Task, TaskState
from ms_tune.errors import RunError, UsageError
from ms_tune.units import GIB, MIB
from tests.dryrun import fakes
from tests.dryrun.configs import MINDFORMERS, edited
from tests.dryrun.fakes import good_child, layered_child
from tests.dryrun.launching import hear_signals
from tests.dryrun.test_launcher import ROOT, runs, wait_for

if TYPE_CHECKING:
    from ms_tune.dryrun.launcher import ProcessEnd
    from ms_tune.dryrun.result import DryrunResult, SweepResult

EVEN = edited(MINDFORMERS, "model.model_config.offset", 0)


@pytest.fixture(autouse=True)
def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for name in ("MS_ALLOC_CONF", "MS_SIMULATION_LEVEL", "MS_MEMORY_STATISTIC", "MS_DEV_LAUNCH_BLOCKING"):
        monkeypatch.delenv(name, raising=False)
    path = Path("config.yaml")
    path.write_text(yaml.safe_dump(EVEN), encoding="utf-8")
    return path


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    return lambda code: fakes.install(monkeypatch, tmp_path, code, mindformers=True)


def request(**more: Any) -> DryrunRequest:  # noqa: ANN401 - the fields of DryrunRequest
    return DryrunRequest(**{"config": Path("config.yaml"), "layers": 4, "timeout": 60, **more})


def simulate(**more: Any) -> DryrunResult:  # noqa: ANN401 - as above
    return dryrun_job(request(**more), Observer())


class TestStages:
    @pytest.mark.slow
    def test_every_stage_is_derived_judged_and_kept(
        self, child: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MS_ALLOC_CONF", "enable_vmm:True")
        child(layered_child(last=2 * GIB))
        result = simulate(settings=(Setting.parse("parallel_config.micro_batch_num=16"),))
        assert [stage.run.stage for stage in result.stages] == [0, 1, 2, 3]
        assert result.worst.run.stage == 3
        assert result.worst.reading.peak_bytes == GIB + 4 * GIB // 8 + 2 * GIB
        assert result.imbalance == pytest.approx(1 - 3 / 5)
        assert [message.id for message in result.warnings] == ["dryrun.warning.overridden"]  # once
        for stage in result.stages:
            derived = stage.extrapolation
            assert derived is not None
            assert derived.peak_bytes == GIB + 16 * GIB // 8 + (2 * GIB if stage.run.stage == 3 else 0)
            assert (derived.layer_bytes, derived.from_layers) == (GIB // 8, (4, 5))
            assert sum(derived.contents.values()) == derived.peak_bytes
        # Other sizes are in folders that do not look like ranks.
        ranks = {"rank_0", "rank_8", "rank_16", "rank_24"}
        assert {path.name for path in result.folder.glob("rank_*")} == ranks
        assert {path.name for path in result.folder.glob(".layers_5/*")} == ranks
        manifest = json.loads((result.folder / "manifest.json").read_text("utf-8"))
        sizes = {entry["folder"]: entry["layers"] for entry in manifest["ranks"]}
        assert sizes == {**dict.fromkeys(ranks, 4), **{f".layers_5/{rank}": 5 for rank in ranks}}
        assert (result.folder / "config.yaml").read_text("utf-8") == Path("config.yaml").read_text("utf-8")
        diff = (result.folder / "config.diff").read_text("utf-8")
        assert "-  micro_batch_num: 8\n" in diff
        assert "+  micro_batch_num: 16\n" in diff
        assert "-    num_hidden_layers: 64\n" in diff

    @pytest.mark.slow
    @pytest.mark.parametrize(("layers", "expected"), [(1, True), (2, False)])
    def test_a_stage_that_is_derived_from_one_layer_says_so(
        self, child: Callable[[str], None], layers: int, *, expected: bool
    ) -> None:
        child(layered_child())
        result = simulate(layers=layers, stages=(3,))
        assert result.stages[0].extrapolation is not None
        assert ("stages.extrapolate.too-few" in {message.id for message in result.warnings}) is expected

    def test_compiling_only_has_no_figures(self, child: Callable[[str], None]) -> None:
        child("import os; assert os.environ['MS_SIMULATION_LEVEL'] == '0'")
        result = simulate(level=0, extrapolate=False)
        assert result.stages == ()
        assert len(result.runs) == 4


class Counter(Observer):
    """An engine that counts the processes running at the same time."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.most = 0
        self.begun: list[str] = []

    def begin(self, tasks: Sequence[Task]) -> None:
        self.begun = [task.folder for task in tasks]

    def state(self, task: Task, state: TaskState) -> None:
        assert state.elapsed >= 0
        self.running.add(task.folder)
        self.most = max(self.most, len(self.running))

    def end(self, task: Task, ended: ProcessEnd) -> None:
        assert ended.code == 0
        self.running.discard(task.folder)


class TestAtOnce:
    @pytest.mark.slow
    @pytest.mark.parametrize("jobs", [1, 3])
    def test_no_more_run_than_may(self, child: Callable[[str], None], jobs: int) -> None:
        child("import time; time.sleep(0.5)\n" + layered_child())
        counter = Counter()
        dryrun_job(request(jobs=jobs), counter)
        assert counter.most == jobs
        assert len(counter.begun) == 8

    @pytest.mark.parametrize(
        ("free", "cores", "wanted", "jobs"),
        [
            (100 * GIB, 8, None, 4),  # as many as there are to run
            (100 * GIB, 2, None, 2),
            (5 * GIB, 8, None, 2),  # two GiB each, and some to spare
            (MIB, 8, None, 1),
            (MIB, 1, 6, 6),
        ],
    )
    def test_cores_and_memory_limit_them(
        self, monkeypatch: pytest.MonkeyPatch, free: int, cores: int, wanted: int | None, jobs: int
    ) -> None:
        monkeypatch.setattr(machine, "available_bytes", lambda: free)
        monkeypatch.setattr(machine, "usable_cores", lambda: cores)
        assert machine.processes_at_once([2 * GIB] * 4, wanted) == jobs


def failing_rank(rank: int, code: str) -> str:
    return f"import os, time\nif os.environ['RANK_ID'] == '{rank}':\n    {code}\n" + layered_child()


class TestFailures:
    @pytest.mark.slow
    def test_the_first_stage_that_fails_ends_the_others(self, child: Callable[[str], None]) -> None:
        code = "if os.environ['RANK_ID'] != '8': open('child', 'w').write(f'{os.getpid()}\\n'); time.sleep(600)\n"
        child(failing_rank(8, "time.sleep(1); raise RuntimeError('no such layer')") + code)
        with pytest.raises(RunError, match="no such layer"):
            simulate(jobs=8)
        for path in Path("ms-tune-runs").rglob("child"):
            pid = int(path.read_text())
            wait_for(lambda pid=pid: not runs(pid))  # type: ignore[misc]

    def test_a_file_that_may_not_grow_is_named_as_the_cause(self, child: Callable[[str], None]) -> None:
        limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        child(limit + "with open('memory_block.csv', 'w') as file: file.write('x' * 9999)")
        with pytest.raises(RunError) as caught:
            simulate(stages=(0,))
        assert caught.value.message.id == "dryrun.run.disk-full"

    def test_a_trace_of_another_rank_is_not_taken(self, child: Callable[[str], None]) -> None:
        moved = good_child().replace("Path('memory_block.csv')", "Path('rank_5/memory_block.csv')")
        child("import os; os.mkdir('rank_5')\n" + moved)
        with pytest.raises(RunError) as caught:
            simulate(stages=(0,), extrapolate=False)
        assert caught.value.message.id == "dryrun.run.other-rank"

    def test_a_folder_that_cannot_be_written_during_the_run_is_reported(self, child: Callable[[str], None]) -> None:
        child(layered_child())
        folder = Path("kept")

        class Spoiler(Observer):
            def begin(self, tasks: Sequence[Task]) -> None:
                (folder / tasks[0].folder).write_text("in the way", encoding="utf-8")

        with pytest.raises(RunError) as caught:
            dryrun_job(request(stages=(0,), run_folder=folder), Spoiler())
        assert caught.value.message.id == "dryrun.run.not-started"


class TestSweep:
    @staticmethod
    def swept(*values: str, **more: Any) -> SweepResult[DryrunResult]:  # noqa: ANN401 - the fields of DryrunRequest
        settings = [(Setting.parse(value),) for value in values]
        jobs = [(request(settings=one, extrapolate=False, stages=(0,), **more), None) for one in settings]
        return simulate_each(jobs, Observer())

    def test_variants_are_run_and_kept_side_by_side(self, child: Callable[[str], None]) -> None:
        child(layered_child())
        result = self.swept("parallel_config.micro_batch_num=8", "parallel_config.micro_batch_num=16")
        assert [variant.error for variant in result.variants] == [None, None]
        for number, batches in ((1, 8), (2, 16)):
            kept = yaml.safe_load((result.folder / f"variant_{number}" / "rank_0" / "config.yaml").read_text("utf-8"))
            assert kept["parallel_config"]["micro_batch_num"] == batches
            assert (result.folder / f"variant_{number}" / "config.diff").is_file()

    def test_a_variant_that_fails_does_not_stop_the_others(self, child: Callable[[str], None]) -> None:
        text = "import pathlib\nif 'micro_batch_num: 16' in pathlib.Path('config.yaml').read_text(): raise ValueError(16)\n"
        child(text + layered_child())
        result = self.swept("parallel_config.micro_batch_num=16", "parallel_config.micro_batch_num=8")
        first, second = result.variants
        assert (first.result, second.error) == (None, None)
        assert "ValueError: 16" in str(first.error)
        assert second.result is not None

    def test_a_path_that_is_not_there_is_reported_at_once(self, child: Callable[[str], None]) -> None:
        child(layered_child())
        with pytest.raises(UsageError, match="micro_batch_nun"):
            self.swept("parallel_config.micro_batch_nun=16", "parallel_config.micro_batch_nun=8")
        assert not Path("ms-tune-runs").exists()


# `ms-tune dryrun` as a process of its own, with a training process that never ends.
COMMAND = """
import sys
from pathlib import Path
import pytest
from tests.dryrun import fakes
with pytest.MonkeyPatch.context() as patch:
    code = "import os, time; open('child', 'w').write(f'{os.getpid()}\\\\n'); time.sleep(600)"
    fakes.install(patch, Path(sys.argv[1]), code, mindformers=True)
    from ms_tune.cli.main import main
    sys.exit(main(["dryrun", "--layers", "4", "--jobs", "8", "config.yaml"]))
"""


@pytest.mark.slow
def test_no_process_outlives_a_signal(tmp_path: Path) -> None:
    """``test_launcher.py`` tests every signal that ends ms-tune."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(tmp_path)],
        cwd=tmp_path / "work",
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_signals,  # noqa: PLW1509 - no threads here
    )
    found: Callable[[], list[Path]] = lambda: [  # noqa: E731 - asked again and again
        path for path in (tmp_path / "work").rglob("child") if path.read_text().endswith("\n")
    ]
    wait_for(lambda: len(found()) == 8)
    parent.send_signal(signal.SIGHUP)
    begin = time.monotonic()
    _, err = parent.communicate(timeout=60)
    assert parent.returncode == 128 + signal.SIGHUP
    assert "interrupted" in err
    assert "Traceback" not in err
    assert time.monotonic() - begin < 30
    for path in found():
        pid = int(path.read_text())
        wait_for(lambda pid=pid: not runs(pid))  # type: ignore[misc]
