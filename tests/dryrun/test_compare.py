"""Compare a simulated run with a real one, and with the log of a real one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.dryrun.compare import RealComparison, compare_real
from ms_tune.errors import TraceError
from ms_tune.footprint.report import MemoryRequest
from ms_tune.readers.memory_log import MemoryWords, read_logged_memory
from ms_tune.units import MIB
from tests.dryrun import fakes
from tests.dryrun.fakes import GIB, good_child, trace
from tests.dryrun.test_stages import child, config

REAL = """\
[WARNING] DEVICE(1,7f,python):2026-11-20-23:25:04.774.524 [ascend_memory_adapter.cc:271] DeInitialize] statistics:
Device HBM memory size: 62432M
MindSpore Used memory size: 59392M
MindSpore memory base address: 0
Used peak memory usage (without fragments): {peak}M
Actual peak memory usage (with fragments): {actual}M
"""
REPORT = (
    "[Rank {rank}] (after {steps} iterations) memory (MB) | allocated: 900.5 | max allocated: {peak}"
    " | reserved: 3000.0 | max reserved: {held}\n"
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def log(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def figures(pair_of: RealComparison) -> dict[str, tuple[int | None, int | None]]:
    return {one.name: (one.simulated, one.real) for one in pair_of.pairs[0].figures}


def test_statistics_of_workers_are_matched_by_rank() -> None:
    for rank, peak in ((0, 2100), (8, 3072), (9, 1024)):
        log(f"msrun_log/worker_{rank}.log", "step 1\n" + REAL.format(peak=peak, actual=peak + 512))
    found = compare_real(run("simulated", {0: 2 * GIB, 8: 3 * GIB, 3: GIB}), Path("msrun_log"), MemoryRequest())
    assert [(pair.rank, pair.real.peak_bytes, pair.real.line) for pair in found.pairs] == [
        (0, 2100 * MIB, 7),
        (8, 3072 * MIB, 7),
    ]
    assert (found.only_real, found.only_simulated) == ((9,), (3,))
    assert [pair.notes[0].id for pair in found.pairs] == ["stages.log.note.workspaces", "stages.log.note.same"]
    assert figures(found) == {
        "peak": (2 * GIB, 2100 * MIB),
        "footprint": (3 * GIB, 2612 * MIB),
        "fragments": (GIB, 512 * MIB),
        "reserve": (found.pairs[0].simulated.verdict.reserve_bytes, None),
        "limit": (found.pairs[0].simulated.verdict.limit.bytes, 59392 * MIB),  # type: ignore[union-attr]
        "device": (None, 62432 * MIB),
    }


def test_the_report_of_megatron_is_of_its_last_line() -> None:
    text = "".join(
        REPORT.format(rank=rank, steps=steps, peak=steps * 1000.25, held=4096) for rank in (0, 4) for steps in (1, 2)
    )
    found = compare_real(run("simulated", {0: 2 * GIB, 4: GIB}), log("train.log", text), MemoryRequest())
    assert [(pair.rank, pair.real.words, pair.real.steps, pair.real.line) for pair in found.pairs] == [
        (0, MemoryWords.REPORT, 2, 2),
        (4, MemoryWords.REPORT, 2, 4),
    ]
    assert found.pairs[0].real.peak_bytes == round(2000.5 * MIB)
    assert figures(found)["between-steps"] == (None, round(900.5 * MIB))
    assert {"stages.log.note.early", "stages.log.note.report"} < {note.id for note in found.pairs[0].notes}


def test_the_real_figures_are_judged_by_what_the_log_says_or_by_the_device_that_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("simulated", {0: 20 * GIB})
    log("worker_0.log", REAL.format(peak=59000, actual=60000))
    assert main(["dryrun", "--json", "simulated", "--compare-real", "worker_0.log"]) == 0
    (rank,) = json.loads(capsys.readouterr().out)["ranks"]
    assert (rank["simulated_verdict"]["verdict"], rank["real_verdict"]["verdict"]) == ("fits", "tight")
    assert rank["real_verdict"]["limit_bytes"] == 59392 * MIB
    device = ["--chip", "910B4"]
    assert main(["dryrun", "--json", "simulated", "--compare-real", "worker_0.log", *device]) == 0
    (rank,) = json.loads(capsys.readouterr().out)["ranks"]
    assert rank["real_verdict"]["verdict"] == "does-not-fit"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_person_sees_figures_and_reasons(capsys: pytest.CaptureFixture[str], language: str) -> None:
    run("simulated", {0: 2 * GIB})
    log("worker_0.log", REAL.format(peak=4096, actual=5120))
    assert main(["dryrun", "simulated", "--compare-real", "worker_0.log", "--lang", language]) == 0
    out = capsys.readouterr().out
    assert "50.0%" in out
    assert "−2.00 GiB" in out
    assert "2,048.0 MiB" in out
    assert "60.97" in out  # the device, which only the log contains


def test_statistics_that_are_printed_twice_or_once_more_as_zeros_are_one_process() -> None:
    again = "[MS_RUNTIME_PROF]" + REAL.format(peak=1024, actual=1500).partition("\n")[2]
    text = REAL.format(peak=1024, actual=1500) + again + REAL.format(peak=0, actual=0)
    (one,) = read_logged_memory(log("worker_3.log", text))
    assert (one.rank, one.peak_bytes, one.processes) == (3, GIB, 1)


def test_lines_with_torchruns_prefix_are_distinguished() -> None:
    first, second = (REAL.format(peak=peak, actual=peak).splitlines() for peak in (1024, 2048))
    mixed = [f"[rank{rank}]: {line}" for pair in zip(first, second, strict=True) for rank, line in enumerate(pair)]
    found = read_logged_memory(log("torchrun.log", "\n".join(mixed)))
    assert [(one.rank, one.peak_bytes) for one in found] == [(0, GIB), (1, 2 * GIB)]


def test_a_log_of_a_dryrun_is_not_taken_for_a_real_one_in_silence() -> None:
    text = REAL.format(peak=2048, actual=2048).replace("62432M", "65536M")
    found = compare_real(run("simulated", {0: 2 * GIB}), log("worker_0.log", text), MemoryRequest())
    assert "stages.log.note.simulated" in {note.id for note in found.pairs[0].notes}


def test_a_log_that_says_nothing_about_memory_says_how_to_make_it() -> None:
    simulated = run("simulated", {0: GIB})
    with pytest.raises(TraceError, match="no line of this log reports memory") as expected:
        compare_real(simulated, log("quiet.log", "step 1\n" * 5), MemoryRequest())
    assert expected.value.hint is not None
    assert "MS_MEMORY_STATISTIC" in str(expected.value.hint)


__all__ = ["child", "config"]  # fixtures


def run(folder: str, peaks: dict[int, int]) -> Path:
    for rank, peak in peaks.items():
        place = Path(folder) / f"rank_{rank}"
        place.mkdir(parents=True)
        (place / "memory_block.csv").write_text(trace(peak, peak + GIB), encoding="utf-8")
    return Path(folder)


def test_ranks_are_matched_by_number() -> None:
    traces = [run("simulated", {0: 2 * GIB, 3: GIB, 8: 3 * GIB}), run("real", {0: 3 * GIB, 1: GIB, 8: 3 * GIB})]
    found = compare_real(traces[0], traces[1], MemoryRequest())
    assert [(pair.rank, pair.simulated.curve.peak_bytes, pair.real.peak_bytes) for pair in found.pairs] == [
        (0, 2 * GIB, 3 * GIB),
        (8, 3 * GIB, 3 * GIB),
    ]
    assert (found.only_real, found.only_simulated) == ((1,), (3,))
    assert figures(found)["footprint"] == (3 * GIB, 4 * GIB)
    assert [pair.notes[0].id.rpartition(".")[2] for pair in found.pairs] == ["more", "same"]


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
    assert (rank["said_by"], rank["line"], rank["real_footprint_bytes"]) == ("trace", 0, 5 * GIB)


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
