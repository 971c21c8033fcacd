"""Test the memory of ranks from logs: every figure, in every form, the last report of each rank."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from ms_tune.errors import TraceError
from ms_tune.readers import memory_log
from ms_tune.readers.logged_steps import LoggedMemory
from ms_tune.readers.memory_log import MemoryWords, RankMemory, parse_reports, read_logged_memory
from ms_tune.units import MIB

STATISTICS = """Device HBM memory size: 62432M
MindSpore Used memory size: 59392M
Used peak memory usage (without fragments): {peak}M
Actual peak memory usage (with fragments): {actual}M
"""
REPORT = "[Rank {}] (after {} iterations) memory (MB) | allocated: 1.5 | max allocated: {} | reserved: 3.25"


def statistics(path: Path, line: int, mib: tuple[int, int], rank: int | None = None, processes: int = 1) -> RankMemory:
    peak, actual = (size * MIB for size in mib)
    return RankMemory(
        rank, MemoryWords.STATISTICS, path, line, peak, actual, None, 59392 * MIB, 62432, None, MIB, processes
    )


def report(path: Path, line: int, rank: int, most: float, steps: int | None) -> RankMemory:
    return RankMemory(rank, MemoryWords.REPORT, path, line, int(most * MIB), None, int(1.5 * MIB), steps=steps)


def test_lines_of_several_ranks_that_ran_into_each_other() -> None:
    text = REPORT.format(3, 5, 2.5) + REPORT.format(12, 6, 4) + " | max reserved: 8.5"
    assert list(parse_reports(text)) == [
        LoggedMemory(3, int(1.5 * MIB), int(2.5 * MIB), int(3.25 * MIB), 0, 5),
        LoggedMemory(12, int(1.5 * MIB), 4 * MIB, int(3.25 * MIB), int(8.5 * MIB), 6),
    ]
    assert [one.max_allocated for one in parse_reports(REPORT.format(1, 2, "1.2.3"))] == [0]
    assert list(parse_reports("memory (MB) | allocated: 1")) == []


def test_reports_before_each_step_whose_peaks_are_reset(tmp_path: Path) -> None:
    log, line = tmp_path / "train.log", "2026-11-30 10:00:00,000 [INFO] t: Memory usage step={} global_rank={} "
    line += "tp_rank=0 dp_rank=0 max_memory_reserved={} max_memory_allocated={}\n"
    log.write_text("".join(line.format(*one) for one in [(1, 4, 90, 70), (2, 4, 99, 60), (2, 5, 3, 2)]), "utf-8")
    found = [(one.rank, one.peak_bytes, one.footprint_bytes, one.steps) for one in read_logged_memory(log)]
    assert found == [(4, 70, 99, 2), (5, 2, 3, 2)]


def test_the_last_report_of_each_rank_counts(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    lines = [REPORT.format(1, 1, 2), REPORT.format(0, 1, 3), REPORT.format(1, 2, 2.5) + " | max reserved: 4"]
    log.write_text("\n".join([*lines, REPORT.format(2, 0, 1)]) + "\n", "utf-8")
    assert read_logged_memory(log) == (
        report(log, 2, 0, 3, 1),
        replace(report(log, 3, 1, 2.5, 2), footprint_bytes=4 * MIB),
        report(log, 4, 2, 1, None),
    )


def test_processes_without_ranks_are_counted_and_the_one_that_needs_most_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    blocks = [(10, 20), (30, 40), (30, 41), (30, 41), (5, 50)]
    log.write_text("".join(STATISTICS.format(peak=peak, actual=actual) for peak, actual in blocks), "utf-8")
    assert read_logged_memory(log) == (statistics(log, 12, (30, 41), processes=4),)


def test_of_a_rank_that_is_known_the_last_statistics_count(tmp_path: Path) -> None:
    log = tmp_path / "worker_7.log"
    log.write_text(STATISTICS.format(peak=30, actual=40) + STATISTICS.format(peak=10, actual=20), "utf-8")
    assert read_logged_memory(log) == (statistics(log, 8, (10, 20), rank=7),)


def test_a_rank_before_the_line_counts_more_than_that_of_the_file(tmp_path: Path) -> None:
    log = tmp_path / "worker_7.log"
    mixed = [f"[rank4]: {line}" for line in STATISTICS.format(peak=3, actual=4).splitlines()]
    plain = STATISTICS.format(peak=1, actual=2).splitlines()
    log.write_text("\n".join(line for pair in zip(plain, mixed, strict=True) for line in pair), "utf-8")
    assert read_logged_memory(log) == (statistics(log, 8, (3, 4), rank=4), statistics(log, 7, (1, 2), rank=7))


@pytest.mark.parametrize("first", [0, 1])
def test_statistics_count_more_than_reports_of_another_file(tmp_path: Path, first: int) -> None:
    """In either order; of two reports, or two statistics, the later file counts."""
    texts = [STATISTICS.format(peak=30, actual=40), REPORT.format(5, 1, 99) + "\n"]
    for place, name in enumerate(("rank_5/info.log", "rank_6/info.log")):
        (tmp_path / name).parent.mkdir()
        text = texts[place ^ first]
        (tmp_path / name).write_text(text.replace("Device", "[rank5]: Device").replace("\nM", "\n[rank5]: M"), "utf-8")
    for name in ("rank_5/info.log", "rank_6/info.log"):
        text = (tmp_path / name).read_text("utf-8")
        for word in ("Used peak", "Actual peak"):
            text = text.replace(word, f"[rank5]: {word}")
        (tmp_path / name).write_text(text, "utf-8")
    (found,) = read_logged_memory(tmp_path)
    assert (found.rank, found.words, found.peak_bytes) == (5, MemoryWords.STATISTICS, 30 * MIB)


def test_in_one_file_statistics_count_more_than_reports(tmp_path: Path) -> None:
    log = tmp_path / "worker_5.log"
    log.write_text(STATISTICS.format(peak=30, actual=40) + REPORT.format(5, 1, 99) + "\n", "utf-8")
    assert read_logged_memory(log) == (statistics(log, 4, (30, 40), rank=5),)


def test_the_later_of_two_reports_counts(tmp_path: Path) -> None:
    for name, most in (("a.log", 10), ("b.log", 5)):
        (tmp_path / name).write_text(REPORT.format(0, 1, most) + "\n", "utf-8")
    assert read_logged_memory(tmp_path) == (report(tmp_path / "b.log", 1, 0, 5, 1),)
    packed = tmp_path / "c.log.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.log").read_bytes()))
    assert read_logged_memory(packed) == (report(packed, 1, 0, 10, 1),)


def test_who_has_no_rank_comes_last(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    text = STATISTICS.format(peak=1, actual=2) + REPORT.format(3, 1, 2) + "\n" + REPORT.format(0, 1, 2)
    log.write_text(text, "utf-8")
    assert [one.rank for one in read_logged_memory(log)] == [0, 3, None]


def test_a_baseline_is_json_in_a_file_of_that_name(tmp_path: Path) -> None:
    memory = [{"rank": 2, "allocated memory": 1.5, "max allocated memory": 4}]
    text = json.dumps({"time info": [1.0], "memo info": memory})
    path = tmp_path / "baseline.json"
    path.write_text(f"  {text}", "utf-8")
    assert read_logged_memory(path) == (report(path, 0, 2, 4, None),)
    other = tmp_path / "baseline.log"
    other.write_text(text, "utf-8")
    with pytest.raises(TraceError):
        read_logged_memory(other)
    path.write_text(f"\n{REPORT.format(1, 1, 1)}", "utf-8")
    assert [one.rank for one in read_logged_memory(path)] == [1]


@pytest.mark.parametrize("most", [1, 2])
def test_so_many_ranks_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(memory_log, "_MOST_RANKS", most)
    log = tmp_path / "train.log"
    log.write_text("\n".join(REPORT.format(rank, 1, rank) for rank in (1, 2, 3, 1)), "utf-8")
    assert [(one.rank, one.line) for one in read_logged_memory(log)] == [(1, 4), (2, 2)][:most]
    lines = "".join(
        f"[rank{rank}]: {line}\n" for rank in (1, 2, 3) for line in STATISTICS.format(peak=rank, actual=9).splitlines()
    )
    log.write_text(lines, "utf-8")
    assert [one.rank for one in read_logged_memory(log)] == [1, 2][:most]
    log.write_text("".join(STATISTICS.format(peak=peak, actual=9) for peak in (1, 2, 3)), "utf-8")
    assert [one.processes for one in read_logged_memory(log)] == [most]
