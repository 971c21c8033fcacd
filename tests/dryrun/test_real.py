"""Test ``--real``: environment and commands of a run on devices, with a script instead of the training process.

No device was available: these tests cannot show that MindSpore follows its documentation.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ms_tune.cli.main import main
from ms_tune.dryrun import machine as backend
from ms_tune.dryrun import machine as real
from ms_tune.dryrun import run
from ms_tune.dryrun.cann_sim.environment import Backend, Cann
from ms_tune.dryrun.environment import real_environment
from tests.dryrun import fakes
from tests.dryrun.configs import MINDFORMERS, edited
from tests.dryrun.fakes import GIB, good_child

SMALL = edited(edited(MINDFORMERS, "parallel_config.pipeline_stage", 2), "parallel_config.model_parallel", 1)
SMALL = edited(edited(SMALL, "parallel_config.data_parallel", 1), "model.model_config.offset", 0)
NAMES = (
    *("MS_ROLE", "MS_NODE_ID", "MS_WORKER_NUM", "MS_SCHED_HOST", "MS_SCHED_PORT", "MS_SIMULATION_LEVEL"),
    *("ASCEND_RT_VISIBLE_DEVICES", "DEVICE_ID", "MS_ALLOC_CONF", "MS_MEMORY_STATISTIC"),
)
CHILD = (
    "import json, os\nfrom pathlib import Path\n"
    f"own = {{name: os.environ.get(name) for name in {NAMES!r}}}\n"
    "Path('environment.json').write_text(json.dumps(own))\n"
    "if os.environ.get('MS_ROLE') == 'MS_SCHED': raise SystemExit(0)\n"
)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], None]:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("MS_ALLOC_CONF", raising=False)
    monkeypatch.setenv("MS_SIMULATION_LEVEL", "1")
    Path("config.yaml").write_text(yaml.safe_dump(SMALL), encoding="utf-8")
    fakes.install(monkeypatch, tmp_path, CHILD + good_child(3 * GIB, 4 * GIB), mindformers=True)
    cann = Cann(Backend.CANN, tmp_path / "Ascend")
    monkeypatch.setattr(run, "real_cann", lambda: cann)
    monkeypatch.setattr(backend, "find_real_cann", lambda: cann)

    def with_devices(count: int) -> None:
        monkeypatch.setattr(real, "count_devices", lambda: count)

    return with_devices


def environments(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.parent.name: json.loads(path.read_text("utf-8")) for path in folder.glob("*/environment.json")}


def test_every_rank_and_a_scheduler_run_at_once(
    machine: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    machine(8)
    assert main(["dryrun", "--real", "--json", "--layers", "2", "config.yaml"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["simulation_level"], result["backend"]) == (None, "cann")
    assert [(stage["rank"], stage["peak_bytes"]) for stage in result["stages"]] == [(0, 3 * GIB), (1, 3 * GIB)]
    found = environments(Path(result["run"]))
    assert set(found) == {"rank_0", "rank_1", "scheduler"}
    assert found["scheduler"]["MS_ROLE"] == "MS_SCHED"
    for number in (0, 1):
        worker = found[f"rank_{number}"]
        assert (worker["MS_ROLE"], worker["MS_NODE_ID"], worker["MS_WORKER_NUM"]) == ("MS_WORKER", str(number), "2")
        assert (worker["ASCEND_RT_VISIBLE_DEVICES"], worker["DEVICE_ID"]) == (str(number), "0")
        assert worker["MS_SCHED_HOST"] == "127.0.0.1"
        assert worker["MS_SCHED_PORT"] == found["scheduler"]["MS_SCHED_PORT"]
        assert worker["MS_ALLOC_CONF"].startswith("memory_tracker:True,memory_tracker_path:")
    assert {own["MS_SIMULATION_LEVEL"] for own in found.values()} == {None}


def test_a_machine_with_too_few_devices_is_reported(
    machine: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    machine(1)
    assert main(["dryrun", "--real", "config.yaml"]) == 2
    err = capsys.readouterr().err
    assert "requires 2 NPUs; this machine has 1" in err
    assert "--real -- msrun" in err


def test_a_machine_without_cann_is_reported(
    machine: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(8)
    monkeypatch.setattr(backend, "find_real_cann", lambda: None)
    assert main(["dryrun", "--real", "--", sys.executable, "-c", "pass"]) == 2
    assert "ASCEND_HOME_PATH" in capsys.readouterr().err


@pytest.mark.parametrize("options", [("--stages", "0"), ("--level", "2"), ("--sweep", "a=1,2"), ("--engine", "ray")])
def test_what_is_about_simulation_makes_no_sense(
    machine: Callable[[int], None], capsys: pytest.CaptureFixture[str], options: tuple[str, str]
) -> None:
    machine(8)
    assert main(["dryrun", "--real", *options, "config.yaml"]) == 2
    assert options[0] in capsys.readouterr().err


def test_a_command_of_the_users_own_gets_the_tracker_and_no_simulation(
    machine: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    machine(8)
    Path("train.py").write_text(CHILD, encoding="utf-8")
    assert main(["dryrun", "--real", "--json", "--", fakes.PYTHON, "train.py"]) == 2  # no trace, no verdict
    result = json.loads(capsys.readouterr().out)
    own = json.loads(Path("environment.json").read_text("utf-8"))
    assert own["MS_SIMULATION_LEVEL"] is None
    assert own["MS_ALLOC_CONF"] == f"memory_tracker:True,memory_tracker_path:{result['run']}/rank_0"


def test_the_users_launcher_keeps_its_variables() -> None:
    base = {"MS_ROLE": "MS_WORKER", "RANK_TABLE_FILE": "table.json", "RANK_ID": "3", "MS_SIMULATION_LEVEL": "1"}
    made = real_environment(base, None)
    assert {name: made.get(name) for name in base} == {**base, "MS_SIMULATION_LEVEL": None}


def test_devices_are_counted_by_the_drivers_files(tmp_path: Path) -> None:
    for name in ("davinci0", "davinci1", "davinci12", "davinci_manager", "null"):
        (tmp_path / name).touch()
    assert real.count_devices(tmp_path) == 3
