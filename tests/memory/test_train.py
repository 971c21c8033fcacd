"""Test ``ms-tune memory run`` on programs of a stand-in for PyTorch: no GPU or NPU is needed, and none was."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.pools.torch_space import TorchSettings
from tests.memory.test_allocator import libraries
from tests.memory.test_torch_plan import training

STAND_IN = Path(__file__).parent / "stand_in"
STEPS = """
import sys, torch
torch.cuda.init()
optimizer, other = torch.optim.SGD(), torch.optim.SGD()
for step in range(4):
    optimizer.step()
    other.step()
"""
# The program whose snapshot is planned, with more steps.
PLANNED = """
import torch
torch.cuda.init()
optimizer = torch.optim.SGD()
weights = [torch.cuda.take(40 << 10) for _ in range(3)]
for step in range(6):
    held = []
    for number in range(70):
        size = (number % 9 + 1) * (300 << 10)
        held.append((torch.cuda.take(size), size))
        if number % 3:
            torch.cuda.give(*held.pop(0))
    for block in held:
        torch.cuda.give(*block)
    optimizer.step()
print(torch.cuda.max_memory_reserved())
torch.cuda.reset_peak_memory_stats()
"""


def run(
    script: str, folder: Path, *options: object, command: tuple[str, ...] = (), **more: str
) -> subprocess.CompletedProcess[str]:
    path = folder / "train.py"
    path.write_text(script, encoding="utf-8")
    paths = os.pathsep.join([str(STAND_IN), str(Path(__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": paths, "STAND_IN_CUDART": str(libraries()[1]), **more}
    words = [*map(str, options), "--", *(command or (sys.executable, str(path)))]
    return subprocess.run(
        [sys.executable, "-m", "ms_tune", "memory", "run", *words],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip


def plan(folder: Path, **how: object) -> Path:
    snapshot = training(folder / "s.pickle", settings=TorchSettings(), **how)  # type: ignore[arg-type]
    assert main(["memory", "plan", str(snapshot), "--plan", str(folder / "plan.json"), "-q", "--force"]) == 0
    return folder / "plan.json"


@pytest.mark.slow
def test_a_line_after_each_iteration(tmp_path: Path) -> None:
    done = run(STEPS, tmp_path, "--every", "2", RANK="3")
    peaks = "allocated peak 3.000 GiB, reserved peak 4.000 GiB, utilisation 75.0%"
    assert done.stderr.splitlines() == [f"ms-tune: rank 3 device 0 iteration {step}: {peaks}" for step in (2, 4)]
    assert done.returncode == 0


@pytest.mark.slow
def test_the_command_keeps_its_code_words_and_environment(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import os; os.environ['MINE'] = '1'", encoding="utf-8")
    script = "import os, sys; print(sys.argv[1:], os.environ['MINE'], os.environ['RANK']); sys.exit(5)"
    own = os.pathsep.join([str(tmp_path / "own"), str(Path(__file__).parents[2])])
    command = (sys.executable, str(tmp_path / "train.py"), "--record", "x", "-q")
    done = run(script, tmp_path, command=command, PYTHONPATH=own, RANK="1")
    assert (done.stdout, done.stderr, done.returncode) == ("['--record', 'x', '-q'] 1 1\n", "", 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("", "2 iterations"),
        ("torch.observers[0](0, 1, 2, 3)", "memory was short"),
        ("sys.exit(1)", "the training ended"),
    ],
)
def test_a_snapshot_is_written_once(end: str, why: str, tmp_path: Path) -> None:
    script = f"import sys, torch\ntorch.cuda.init()\n{end}\n" + STEPS.replace("torch.cuda.init()", "")
    done = run(script, tmp_path, "--record", tmp_path / "out", "--steps", "2", RANK="1")
    path = tmp_path / "out" / "rank_1.pickle"
    assert done.stderr.splitlines() == [f"ms-tune: rank 1 wrote {path} ({why})"]
    assert json.loads(path.read_text(encoding="utf-8")) == [{"max_entries": 5_000_000}]  # from before the first request
    again = run(STEPS, tmp_path, "--record", tmp_path / "out")
    assert again.returncode == 2
    assert "rank_1.pickle" in again.stderr


@pytest.mark.slow
def test_two_ranks_follow_a_plan(tmp_path: Path) -> None:
    path = plan(tmp_path)
    height = json.loads(path.read_text(encoding="utf-8"))["height_bytes"]
    line = f"{sys.executable} {tmp_path / 'train.py'}"
    done = run(PLANNED, tmp_path, "--plan", path, command=("sh", "-c", f"RANK=0 {line} & RANK=1 {line}; wait"))
    assert done.stdout.count(str(height)) == 2
    for rank in (0, 1):
        assert f"ms-tune: rank {rank} device 0: 423 of 423 requests placed as planned" in done.stderr
        assert len(re.findall(f"rank {rank} device 0 iteration .* utilisation 100.0%", done.stderr)) == 6


@pytest.mark.slow
def test_a_plan_of_another_shape_or_device_leaves_the_training_running(tmp_path: Path) -> None:
    other = run(PLANNED.replace("300 <<", "500 <<"), tmp_path, "--plan", plan(tmp_path))
    assert other.returncode == 0
    placed, fallback = map(
        int, re.findall(r"device 0: (\d+) of 423 requests placed as planned, (\d+)", other.stderr)[0]
    )
    assert (placed < 100, placed + fallback) == (True, 423)
    content = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    for change, word in (
        ({"padding": 32}, "another kind"),
        ({"streams": [{**content["allocator"]["streams"][0], "height": 512}]}, "damaged"),
    ):
        (tmp_path / "bad.json").write_text(
            json.dumps({"allocator": {**content["allocator"], **change}}), encoding="utf-8"
        )
        done = run(STEPS, tmp_path, "--plan", tmp_path / "bad.json")
        assert word in done.stderr
        assert done.returncode == 0


def test_plans_that_cannot_be_applied_and_commands_that_do_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = plan(tmp_path, first=9)
    table = tmp_path / "other.json"
    table.write_text("{}", encoding="utf-8")
    for path in (older, table, tmp_path / "none.json"):
        assert main(["memory", "run", "--plan", str(path), "--", "true"]) == 2
    assert main(["memory", "run", "--", str(tmp_path / "none")]) == 2
    assert main(["memory", "run"]) == 2
    shown = capsys.readouterr().err
    assert "begins in the middle" in shown
    assert "cannot start" in shown
