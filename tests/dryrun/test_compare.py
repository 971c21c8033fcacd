"""Compare a simulated run with a real one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.dryrun.compare import compare_real
from ms_tune.errors import TraceError
from ms_tune.footprint.report import MemoryRequest
from tests.dryrun import fakes
from tests.dryrun.fakes import GIB, good_child, trace
from tests.dryrun.test_stages import child, config

__all__ = ["child", "config"]  # fixtures


def run(folder: str, peaks: dict[int, int]) -> Path:
    for rank, peak in peaks.items():
        place = Path(folder) / f"rank_{rank}"
        place.mkdir(parents=True)
        (place / "memory_block.csv").write_text(trace(peak, peak + GIB), encoding="utf-8")
    return Path(folder)


def test_ranks_are_matched_by_number() -> None:
    comparison = compare_real(
        run("simulated", {0: 2 * GIB, 8: 3 * GIB}), run("real", {0: 3 * GIB, 1: GIB, 8: 3 * GIB}), MemoryRequest()
    )
    assert [(rank.rank, rank.simulated.curve.peak_bytes, rank.real.curve.peak_bytes) for rank in comparison.ranks] == [
        (0, 2 * GIB, 3 * GIB),
        (8, 3 * GIB, 3 * GIB),
    ]
    assert comparison.only_real == (1,)


def test_runs_without_a_common_rank_are_reported() -> None:
    with pytest.raises(TraceError, match="no ranks in common"):
        compare_real(run("simulated", {0: GIB, 1: GIB}), run("real", {2: GIB, 3: GIB}), MemoryRequest())


def test_json_has_both(capsys: pytest.CaptureFixture[str]) -> None:
    run("simulated", {0: 2 * GIB})
    run("real", {0: 4 * GIB})
    assert main(["dryrun", "--json", "--compare-real", "real", "simulated"]) == 0
    (rank,) = json.loads(capsys.readouterr().out)["ranks"]
    assert (rank["simulated_peak_bytes"], rank["real_peak_bytes"], rank["difference_bytes"]) == (
        2 * GIB,
        4 * GIB,
        -2 * GIB,
    )
    assert sum(rank["real_categories_at_peak"].values()) == 4 * GIB


def test_the_device_that_is_named_judges_both_as_it_does_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    run("simulated", {0: 30 * GIB})
    run("real", {0: 20 * GIB})
    device = ["--chip", "910B4"]
    assert main(["dryrun", "--json", "--compare-real", "real", "simulated", *device]) == 1
    (rank,) = json.loads(capsys.readouterr().out)["ranks"]
    assert main(["memory", "--json", "simulated", *device]) == 1
    alone = json.loads(capsys.readouterr().out)["ranks"][0]
    for key, value in rank["simulated_verdict"].items():
        assert alone[key] == value, key
    assert rank["simulated_verdict"]["verdict"] == "does-not-fit"
    assert rank["real_verdict"]["verdict"] == "fits"
    assert main(["dryrun", "--compare-real", "real", "simulated"]) == 0  # a card of 64 GB


def test_the_real_runs_own_config_is_simulated_for_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fakes.install(monkeypatch, tmp_path, good_child(3 * GIB, 4 * GIB), mindformers=True)
    real = run("real", {0: 4 * GIB, 8: 3 * GIB})
    (real / "config.yaml").write_bytes(Path("config.yaml").read_bytes())
    assert main(["dryrun", "--json", "--compare-real", "real"]) == 0
    ranks = json.loads(capsys.readouterr().out)["ranks"]
    assert [(rank["rank"], rank["difference_bytes"]) for rank in ranks] == [(0, -GIB), (8, 0)]


def test_a_run_without_a_config_needs_one(capsys: pytest.CaptureFixture[str]) -> None:
    run("real", {0: GIB})
    assert main(["dryrun", "--compare-real", "real"]) == 2
    assert "config.yaml" in capsys.readouterr().err
