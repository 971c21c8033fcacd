"""Test a run from request to verdict, with a script instead of the training process."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ms_tune.dryrun import reading
from ms_tune.dryrun.cann_sim.environment import Backend
from ms_tune.dryrun.launcher import LOG
from ms_tune.dryrun.prepare import load_config
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.dryrun.run import dryrun_job
from ms_tune.dryrun.task import Observer, Task, TaskState, state_of
from ms_tune.enums import MemoryCategory
from ms_tune.errors import ExitCode, MissingExtraError, RunError, TraceError
from ms_tune.units import GIB, MIB
from ms_tune.verdict.outcome import Fit
from tests.dryrun import fakes
from tests.dryrun.configs import MINDFORMERS
from tests.dryrun.fakes import good_child, statistics

if TYPE_CHECKING:
    from ms_tune.dryrun.result import DryrunResult

NAMES = ("MS_ALLOC_CONF", "MS_SIMULATION_LEVEL", "MS_MEMORY_STATISTIC", "MS_DEV_LAUNCH_BLOCKING", "LD_LIBRARY_PATH")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Set the code that replaces the training process."""
    return lambda code: fakes.install(monkeypatch, tmp_path, code)


def simulate(**wishes: Any) -> DryrunResult:  # noqa: ANN401 - the fields of DryrunRequest
    wish = {"layers": 4, "timeout": 60, "extrapolate": False, **wishes}
    return dryrun_job(DryrunRequest(**wish), Observer())


def failure(**wishes: Any) -> RunError:  # noqa: ANN401 - as above
    with pytest.raises(RunError) as caught:
        simulate(**wishes)
    assert caught.value.exit_code == ExitCode.USAGE
    return caught.value


class TestGoodEnd:
    def test_the_peak_is_judged(self, child: Callable[[str], None]) -> None:
        child(good_child(peak=3 * GIB, footprint=4 * GIB))
        result = simulate()
        assert result.worst.reading.peak_bytes == 3 * GIB
        assert result.worst.reading.footprint_bytes == 4 * GIB
        assert sum(result.worst.reading.contents.values()) == 3 * GIB
        assert result.verdict.outcome is Fit.FITS
        assert result.backend is Backend.STAND_IN
        assert (result.mindspore, result.mindformers) == ("2.9.0", None)
        assert result.warnings == ()
        assert result.seconds > 0

    @pytest.mark.parametrize(
        ("peak", "footprint", "fit"),
        [
            (
                56000 * MIB,
                (58166 - 454) * MIB,
                Fit.FITS,
            ),  # the usable memory of a 64 GB card, less the gap for workspaces
            (56000 * MIB, (58166 - 454) * MIB + 512, Fit.TIGHT),
            (58166 * MIB, 62000 * MIB, Fit.TIGHT),
            (58166 * MIB + 512, 62000 * MIB, Fit.DOES_NOT_FIT),
        ],
    )
    def test_between_what_fits_and_what_does_not_it_is_tight(
        self, child: Callable[[str], None], peak: int, footprint: int, fit: Fit
    ) -> None:
        child(good_child(peak, footprint))
        assert simulate().verdict.outcome is fit

    def test_communicators_that_no_file_shows_are_those_that_the_split_needs(
        self, child: Callable[[str], None]
    ) -> None:
        child(good_child())
        item = simulate().verdict.reserve[0]
        assert (item.name, item.why.id, item.why.params["count"]) == (
            "communication",
            "verdict.reserve.communication.expected",
            2,  # the world's and the data-parallel one
        )

    def test_listed_tensors_are_distinguished(self, child: Callable[[str], None]) -> None:
        address = 0x10000000 + 2 * 2**36
        tensors = {
            "version": 1,
            "weights": [{"name": "w", "address": address, "bytes": 1024}],
            "gradients": [],
            "optimizer_state": [],
        }
        child(good_child() + f"Path('tensors.json').write_text({json.dumps(tensors)!r})\n")
        assert simulate().worst.reading.contents[MemoryCategory.WEIGHTS] == GIB - 512


class TestKeptFiles:
    @pytest.fixture
    def result(self, child: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> DryrunResult:
        monkeypatch.setenv("HF_TOKEN", "hunter2")
        monkeypatch.setenv("MS_API_KEY", "hunter2")
        monkeypatch.setenv("MS_ROLE", "MS_WORKER")
        monkeypatch.setenv("PYTHONPATH", "/opt/mine")
        dump = "import json, os, sys\nprint('CHILD', json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]))\n"
        child(
            dump.replace("dict(os.environ)", "{k: v for k, v in os.environ.items() if v != 'hunter2'}") + good_child()
        )
        return simulate()

    def test_the_run_is_repeatable_from_its_manifest(self, result: DryrunResult) -> None:
        manifest = json.loads((result.folder / "manifest.json").read_text("utf-8"))
        assert manifest["command"] == [
            sys.executable,
            "-m",
            "ms_tune.dryrun.child",
            "ms_tune.reference.transformer.training",
            "job.json",
        ]
        assert manifest["environment"]["RANK_SIZE"] == "8"
        assert manifest["environment"]["MS_SIMULATION_LEVEL"] == "1"
        assert (manifest["mindspore"], manifest["mindformers"]) == ("2.9.0", None)
        assert manifest["backend"] == "cann-stand-in"

    def test_the_child_got_what_the_manifest_says(self, result: DryrunResult) -> None:
        log = (result.folder / "rank_0" / LOG).read_text("utf-8")
        line = next(line for line in log.splitlines() if line.startswith("CHILD "))
        arguments, folder, environment = json.loads(line.removeprefix("CHILD "))
        manifest = json.loads((result.folder / "manifest.json").read_text("utf-8"))
        assert arguments == ["-m", "ms_tune.dryrun.child", "ms_tune.reference.transformer.training", "job.json"]
        assert folder == str(result.folder / "rank_0")
        assert {name: environment[name] for name in manifest["environment"]} == manifest["environment"]
        assert "MS_ROLE" not in environment

    def test_config_job_and_changes_are_there(self, result: DryrunResult) -> None:
        assert (result.folder / "config.yaml").read_text("utf-8") == load_config(DryrunRequest()).original.text
        job = json.loads((result.folder / "rank_0" / "job.json").read_text("utf-8"))
        assert job["kind"] == "reference"
        assert sum(len(chunk["layers"]) for chunk in job["stage"]["chunks"]) == 4
        changes = json.loads((result.folder / "changes.json").read_text("utf-8"))
        assert {"key": "model_config.num_layers", "before": 32, "after": 4} in changes["changes"]

    def test_no_secret_is_in_any_of_them(self, result: DryrunResult) -> None:
        for path in result.folder.rglob("*"):
            if path.is_file():
                assert b"hunter2" not in path.read_bytes(), path


class TestFailures:
    def test_the_last_error_of_a_process_that_failed_is_shown(self, child: Callable[[str], None]) -> None:
        child("print('starting', flush=True)\nraise RuntimeError('operator MatMul got shapes (1, 2) and (3, 4)')")
        error = failure()
        assert error.message.params["code"] == 1
        assert "RuntimeError: operator MatMul got shapes (1, 2) and (3, 4)" in str(error)
        assert error.hint is not None
        assert Path(str(error.hint.params["log"])).read_text("utf-8").startswith("starting")

    def test_the_last_lines_stand_in_for_an_error(self, child: Callable[[str], None]) -> None:
        child("print('cannot find the licence server')\nprint('[WARNING] ME(1:2): at the end')\nraise SystemExit(3)")
        assert "no exception was printed" in str(failure())
        assert str(failure()).endswith("\ncannot find the licence server")

    def test_a_process_ended_by_a_signal_is_reported(self, child: Callable[[str], None]) -> None:
        child("import os; os.kill(os.getpid(), 9)")
        error = failure()
        assert error.message.params["code"] == -9
        assert "SIGKILL" in str(error)

    def test_exit_code_0_without_statistics_is_no_good_end(self, child: Callable[[str], None]) -> None:
        child(good_child().replace("print(", "str("))
        error = failure()
        assert error.message.id == "dryrun.run.no-statistics"
        assert error.hint is not None

    def test_a_run_without_a_trace_is_reported(self, child: Callable[[str], None]) -> None:
        child(f"print({statistics()!r})")
        error = failure()
        assert error.message.id == "dryrun.run.no-trace"
        assert error.message.params["count"] == 0

    def test_a_trace_without_a_block_is_reported(self, child: Callable[[str], None]) -> None:
        child(f"open('memory_block.csv', 'w').write({fakes.HEADER!r}); print({statistics()!r})")
        assert failure().message.id == "dryrun.run.empty-trace"

    @pytest.mark.parametrize("content", ["", "this is no trace\n"])
    def test_a_file_that_is_no_trace_is_reported(self, child: Callable[[str], None], content: str) -> None:
        child(f"open('memory_block.csv', 'w').write({content!r}); print({statistics()!r})")
        with pytest.raises((TraceError, RunError)) as caught:
            simulate()
        assert caught.value.exit_code == ExitCode.USAGE

    def test_the_time_limit_is_reported_with_a_way_out(self, child: Callable[[str], None]) -> None:
        child("import time; time.sleep(600)")
        with pytest.raises(RunError) as caught:
            dryrun_job(DryrunRequest(timeout=0), Observer())
        assert caught.value.message.id == "dryrun.run.timeout"
        assert caught.value.hint is not None

    def test_a_mindformers_config_needs_mindformers(
        self, child: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        child(good_child())
        Path("config.yaml").write_text(yaml.safe_dump(MINDFORMERS), encoding="utf-8")
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
        with pytest.raises(MissingExtraError, match="'ms-tune dryrun' requires MindFormers"):
            simulate(config=Path("config.yaml"))


class TestWarnings:
    def ids(self, **wishes: Any) -> list[str]:  # noqa: ANN401 - the fields of DryrunRequest
        return [message.id for message in simulate(**wishes).warnings]

    def test_a_log_that_says_otherwise_is_reported(self, child: Callable[[str], None]) -> None:
        child(good_child().replace("usage (without fragments): 1024M", "usage (without fragments): 1025M"))
        result = simulate()
        assert [(message.id, dict(message.params)) for message in result.warnings] == [
            ("dryrun.warning.log-differs", {"log": 1025, "trace": 1024})
        ]

    def test_rows_whose_own_count_is_another_are_reported(self, child: Callable[[str], None]) -> None:
        child(good_child().replace(f",512,{GIB},", f",512,{GIB + 512},"))
        assert self.ids() == ["dryrun.warning.column-differs"]

    @pytest.mark.parametrize(("size", "expected"), [(0, False), (MIB - 1, False), (MIB, True), (3 * GIB, True)])
    def test_a_few_numbers_on_the_host_are_not_offloaded_memory(self, size: int, *, expected: bool) -> None:
        report = SimpleNamespace(
            curve=SimpleNamespace(peak_bytes=GIB, mismatches=()),
            table=SimpleNamespace(dropped_count=0, truncated=False),
            log=None,
            contents=SimpleNamespace(stacks_useful=True, tensors_missing=False),
            host_rows=240,
            host_bytes=size,
        )
        found = [message.id for message in reading._find_disagreements(report)]  # type: ignore[arg-type]
        assert found == (["memory.offloaded"] if expected else [])


class TestMindFormers:
    @pytest.fixture
    def result(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DryrunResult:
        fakes.install(monkeypatch, tmp_path, good_child(59 * GIB, 60 * GIB), mindformers=True)
        Path("config.yaml").write_text(yaml.safe_dump(MINDFORMERS), encoding="utf-8")
        return simulate(config=Path("config.yaml"), stages=(2,))

    def test_the_configs_own_memory_limit_counts(self, result: DryrunResult) -> None:
        assert result.verdict.limit is not None
        assert (result.verdict.limit.bytes, result.verdict.limit.source.id) == (58 * GIB, "verdict.limit.config")
        assert result.verdict.outcome is Fit.DOES_NOT_FIT
        assert result.mindformers == "1.9.0"


class TestProgress:
    @pytest.mark.slow
    def test_what_the_process_says_is_passed_on(self, child: Callable[[str], None]) -> None:
        # The process enters its next phase when ms-tune has reported this one.
        child(
            "import json, time\nfrom pathlib import Path\n"
            "for phase in ('build', 'step', 'nonsense'):\n"
            "    Path('progress').write_text(json.dumps({'phase': phase, 'step': 1, 'steps': 2}))\n"
            "    while not Path(f'saw-{phase}').exists(): time.sleep(0.01)\n" + good_child()
        )
        heard: list[TaskState] = []

        class Ear(Observer):
            def state(self, task: Task, state: TaskState) -> None:
                heard.append(state)
                (rank,) = Path.cwd().glob(f"ms-tune-runs/*/{task.folder}")
                said = json.loads((rank / "progress").read_text("utf-8")) if (rank / "progress").exists() else None
                if said and (state.phase == said["phase"] or said["phase"] == "nonsense"):
                    (rank / f"saw-{said['phase']}").touch()

        dryrun_job(DryrunRequest(timeout=60), Ear())
        assert {"build", "step", "start"} == {state.phase for state in heard}
        step = next(state for state in heard if state.phase == "step")
        assert (step.step, step.steps) == (1, 2)

    @pytest.mark.parametrize("said", ["", "{", "[]", "null", '{"phase": 1}', '{"phase": "step", "step": "x"}'])
    def test_a_half_written_report_is_taken_for_the_start(self, tmp_path: Path, said: str) -> None:
        (tmp_path / "progress").write_text(said, encoding="utf-8")
        assert state_of(tmp_path, 3.4) == TaskState("start", 0, 0, None, 3.4)

    def test_the_blocks_are_those_of_the_trackers_own_line(self, tmp_path: Path) -> None:
        (tmp_path / "progress").write_text('{"phase": "write", "step": 0, "steps": 0}', encoding="utf-8")
        line = "MemoryTracker Dump start, task num: 210, mem block num: 104, user task num: 240\n"
        (tmp_path / LOG).write_text("x" * 50_000 + "\n" + line, encoding="utf-8")
        assert state_of(tmp_path, 1.0).blocks == 104
