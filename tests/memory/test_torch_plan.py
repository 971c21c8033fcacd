"""Test plans of snapshots: per stream, with the repeating steps, beside what PyTorch's allocator reserves."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from ms_tune.cli.main import main
from ms_tune.memory.plan import PlanRequest, plan_blocks
from ms_tune.pools.torch_space import TorchSettings
from ms_tune.units import KIB, MIB
from tests.memory.test_torch_report import CAPTURE, run_json
from tests.pools import torch_recordings
from tests.pools.test_torch_replay import NPU, REAL
from tests.pools.torch_recordings import Program

EXAMPLE = Path(__file__).parents[2] / "examples" / "hyper_parallel"


def training(path: Path, *, steps: int = 4, streams: int = 1, first: int = 0, settings: TorchSettings = NPU) -> Path:
    """Write a snapshot of 3 weights and equal steps of 70 requests, each followed by one of its own on another stream."""
    program = Program(settings, seed=3)
    for _ in range(3):
        program.allocate(40 * KIB)
    for _ in range(steps):
        held = []
        for number in range(70):
            held.append(program.allocate((number % 9 + 1) * 300 * KIB))
            if streams > 1:
                torch_recordings.STREAM = 7
                program.free(program.allocate(2 * MIB))
                torch_recordings.STREAM = 1276474240
            if number % 3:
                program.free(held.pop(0))
        for address in held:
            program.free(address)
    path.write_bytes(pickle.dumps(program.snapshot(first=first), protocol=4))
    return path


def test_steps_bound_and_what_the_allocator_reserves(tmp_path: Path, capsys: CAPTURE) -> None:
    path = training(tmp_path / "s.pickle")
    found = run_json(capsys, "plan", path, "--plan", tmp_path / "plan.json")
    what_if = run_json(capsys, "what-if", path)
    by_setting = {one["expandable_segments"]: one["reserved_peak_bytes"] for one in what_if["outcomes"][:2]}
    assert found["reserved_bytes"]["classic"] == found["reserved_bytes"]["recorded"] == by_setting[False]
    assert found["reserved_bytes"]["expandable"] == by_setting[True]
    (stream,) = found["streams"]
    assert (stream["requests"], stream["requests_per_step"], stream["changed"]) == (283, 70, 0)
    assert stream["first_repeated"] + stream["steps"] * 70 <= 283
    assert stream["steps"] >= 3
    assert found["gap"] < 0.001
    written = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))["allocator"]
    (script,) = written["streams"]
    assert (written["padding"], written["older_blocks"], script["height"]) == (32, 0, found["height_bytes"])
    assert script["sizes"][:4] == [40 * KIB + 512] * 3 + [300 * KIB + 512]
    first, last, period = script["repeats"]
    assert script["offsets"][first : last - period] == script["offsets"][first + period : last]


def test_streams_share_no_address(tmp_path: Path) -> None:
    report = plan_blocks(training(tmp_path / "s.pickle", streams=2), PlanRequest(), lambda _progress: None)
    assert report.torch is not None
    assert report.is_valid
    address, size = report.plan.address, report.plan.problem.size
    low, high = ((address[part.rows], (address + size)[part.rows]) for part in report.torch.streams)
    assert low[1].max() <= high[0].min()
    assert report.plan.height == sum(part.height for part in report.torch.streams)


@pytest.mark.parametrize(
    ("language", "word"), [("en", "requests before the repeating steps"), ("zh", "重复的训练步之前")]
)
def test_what_is_shown(tmp_path: Path, capsys: CAPTURE, language: str, word: str) -> None:
    path = training(tmp_path / "s.pickle", first=9)
    assert main(["memory", "plan", str(path), "--lang", language]) == 0
    shown = capsys.readouterr().out
    assert word in shown
    assert ("older" if language == "en" else "早于") in shown


def test_a_dry_run_is_placed_and_planned(capsys: CAPTURE) -> None:
    found = run_json(capsys, "plan", EXAMPLE)
    assert found["reserved_bytes"]["classic"] > found["height_bytes"] >= found["lower_bound_bytes"] > 0
    assert "recorded" not in found["reserved_bytes"]


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="data of another project, not on this machine")
@pytest.mark.parametrize("path", sorted(REAL.iterdir()) if REAL.is_dir() else [], ids=lambda path: path.stem)
def test_recorded_runs(path: Path) -> None:
    report = plan_blocks(path, PlanRequest(), lambda _progress: None)
    assert report.is_valid
    assert report.torch is not None
    reserved: dict[str, Any] = dict(report.torch.reserved)
    assert report.plan.gap < 0.001
    assert all(report.plan.height <= size for size in reserved.values())
