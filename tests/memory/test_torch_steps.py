"""Test training steps in snapshots, and memory growth by step."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.units import MIB
from tests.memory.test_torch_report import CAPTURE, run_json, saved
from tests.pools.test_torch_replay import NPU
from tests.pools.torch_recordings import LEAK, TRAIN, Program

ADAM = [
    {"name": "step", "filename": "/venv/lib/python3.11/site-packages/torch/optim/adam.py", "line": 244},
    {"name": "train", "filename": "/workspace/train.py", "line": 20},
]


def training(steps: int, *, leak: int = 0) -> tuple[Program, list[int]]:
    """Return a run, and the last event of each step."""
    program = Program(NPU)
    program.allocate(3 * MIB)
    ends = []
    for step in range(steps):
        activations = [program.allocate(5 * MIB, TRAIN) for _ in range(3)]
        gradients = [program.allocate(5 * MIB) for _ in range(2)]
        if not step:
            program.allocate(6 * MIB, ADAM)
        program.free(program.allocate(4 * MIB, ADAM))
        for address in activations + gradients:
            program.free(address)
        ends.append(len(program.events) - 1)
        if leak and step + 1 < steps:
            program.allocate(leak, LEAK)
    return program, ends


def test_a_step_ends_before_what_neither_backward_nor_optimizer_makes(tmp_path: Path, capsys: CAPTURE) -> None:
    program, ends = training(4)
    found = run_json(capsys, saved(program, tmp_path / "s.pickle"))
    # Memory taken from the device for the next step's first block comes before that block.
    assert found["replay"]["differences"] == 0
    assert len(found["step_ends"]) == 4
    assert all(0 <= told_end - end <= 1 for told_end, end in zip(found["step_ends"], ends, strict=True))
    assert found["step_growth"] == []


def test_what_grows_with_every_step_is_reported_with_its_bytes(tmp_path: Path, capsys: CAPTURE) -> None:
    program, _ = training(5, leak=8 * MIB)
    path = saved(program, tmp_path / "s.pickle")
    (growth,) = run_json(capsys, path)["step_growth"]
    assert growth["where"] == "/workspace/train.py:12"
    held = growth["bytes"]
    assert held[0] == 0
    assert all(8 * MIB < after - before < 9 * MIB for before, after in pairwise(held))
    assert growth["bytes_per_step"] == (held[4] - held[1]) // 3
    for language, words in (("en", "grows with every step"), ("zh", "逐步增长")):
        assert main(["--lang", language, "memory", str(path)]) == 0
        assert words in capsys.readouterr().out


def test_without_an_optimizer_there_are_no_steps(tmp_path: Path, capsys: CAPTURE) -> None:
    path = saved(Program(NPU, seed=5).run(), tmp_path / "s.pickle")
    assert run_json(capsys, path)["step_ends"] == []
    assert main(["memory", "what-if", str(path), "--empty-cache-each-step"]) == 2
    assert "the end of training steps cannot be determined" in capsys.readouterr().err


def test_empty_cache_each_step_is_what_a_script_that_calls_it_gets(tmp_path: Path, capsys: CAPTURE) -> None:
    plain, ends = training(4)
    found = run_json(capsys, "what-if", saved(plain, tmp_path / "s.pickle"), "--empty-cache-each-step")
    outcome = found["outcomes"][1]
    assert outcome["cache"] == "each-step"
    assert outcome["reserved_peak_bytes"] <= found["reserved_peak_bytes"]
    held = dict(outcome["reserved_curve"])
    emptied = [held[place] for place in sorted(held) if any(0 <= place - end <= 1 for end in ends)]
    assert emptied
    assert max(emptied) < outcome["reserved_peak_bytes"]


def test_a_threshold_needs_a_limit(tmp_path: Path, capsys: CAPTURE) -> None:
    path = saved(training(3)[0], tmp_path / "s.pickle")
    assert main(["memory", "what-if", str(path), "--garbage-collection-threshold", "0.8"]) == 2
    assert "--limit" in capsys.readouterr().err
    assert main(["memory", "what-if", str(path), "--garbage-collection-threshold", "1.8"]) == 2
    found = run_json(capsys, "what-if", path, "--garbage-collection-threshold", "0.5", "--limit", "64MiB")
    assert found["outcomes"][1]["garbage_collection_threshold"] == pytest.approx(0.5)
    assert found["outcomes"][0]["recorded"] is True


def test_addresses_that_no_allocator_gives_away_are_named(tmp_path: Path, capsys: CAPTURE) -> None:
    program = training(2)[0]
    for event in program.events:
        event["addr"] += 33
    path = saved(program, tmp_path / "s.pickle", segments=[])
    found = run_json(capsys, path)
    assert "not a multiple of 512" in found["replay"]["refused_because"]
    assert found["peak_bytes"] is None


def test_remedies_are_the_same_run_without_the_leak_and_with_other_segments(tmp_path: Path, capsys: CAPTURE) -> None:
    leaky, clean = (saved(training(5, leak=leak)[0], tmp_path / f"{leak}.pickle") for leak in (8 * MIB, 0))
    found = run_json(capsys, leaky)
    (leak,) = [remedy for remedy in found["remedies"] if remedy["name"] == "release-leak"]
    assert (leak["of"], leak["bytes_freed"]) == ("used", found["peak_bytes"] - leak["peak_after_bytes"])
    # One block of the leaking line stays; remainders too small to split make a difference below 1 MiB per block.
    newest = found["survivors"][0]["bytes"] // 4
    assert leak["peak_after_bytes"] <= run_json(capsys, clean)["peak_bytes"] + newest + 4 * MIB
    for remedy in found["remedies"]:
        if remedy["of"] == "reserved":
            replayed = run_json(capsys, "what-if", leaky, "--expandable")["outcomes"][1]
            assert remedy["peak_after_bytes"] == replayed["reserved_peak_bytes"]
    assert main(["--lang", "zh", "memory", str(leaky)]) == 0
    assert "峰值可降低" in capsys.readouterr().out
