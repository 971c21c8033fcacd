from __future__ import annotations

import os
from pathlib import Path

import pytest

from ms_tune.errors import TraceError
from ms_tune.readers import folder
from ms_tune.readers.folder import find_trace


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return path


def test_ranks_by_number(tmp_path: Path) -> None:
    for rank in (10, 2, 0):
        touch(tmp_path / "output" / f"rank_{rank}" / "memory_block.csv")
        touch(tmp_path / "output" / f"rank_{rank}.log")
    found = find_trace(tmp_path)
    assert [files.rank for files in found.ranks] == [0, 2, 10]
    assert found.ranks[1].log == tmp_path / "output" / "rank_2.log"
    assert not found.stale


def test_traces_are_looked_for_five_folders_deep(tmp_path: Path) -> None:
    deepest = tmp_path / "script" / "job_1" / "rank_0" / "process_0" / "rank_0"
    at = touch(deepest / "memory_block.csv")
    touch(deepest / "more" / "memory_block.csv")
    touch(tmp_path / ".hidden" / "memory_block.csv")
    assert [files.blocks for files in find_trace(tmp_path).ranks] == [at]


def test_no_more_folders_are_looked_into_than_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(5):
        touch(tmp_path / f"rank_{rank}" / "memory_block.csv")
    monkeypatch.setattr(folder, "_MOST_FOLDERS", 3)
    assert [files.rank for files in find_trace(tmp_path).ranks] == [0, 1, 2]


def test_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    for place in (tmp_path, tmp_path / "absent"):
        with pytest.raises(TraceError):
            find_trace(place)


def test_ranks_a_quarter_of_an_hour_apart_are_of_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_STALE", 10)
    for rank, time in ((0, 100), (1, 105), (2, 110)):
        os.utime(touch(tmp_path / f"rank_{rank}" / "memory_block.csv"), (time, time))
    assert not find_trace(tmp_path).stale
    os.utime(tmp_path / "rank_2" / "memory_block.csv", (111, 111))
    assert find_trace(tmp_path).stale


def test_the_files_of_a_rank(tmp_path: Path) -> None:
    outer = tmp_path / "rank_3"
    inner = outer / "rank_3"
    touch(inner / "memory_block.csv").write_text("12345")
    touch(inner / "task.csv").write_text("1234")
    touch(outer / "rank_3" / "execute_order" / "comm_execute_order.csv")
    touch(outer / "log")
    (files,) = find_trace(tmp_path).ranks
    assert (files.blocks, files.tasks, files.graph) == (inner / "memory_block.csv", inner / "task.csv", None)
    assert files.collectives == inner / "execute_order" / "comm_execute_order.csv"
    touch(inner / "tracker_graph.ir").write_text("123")
    touch(outer / "log.txt")
    touch(inner / "log")
    (files,) = find_trace(tmp_path).ranks
    assert (files.graph, files.log) == (inner / "tracker_graph.ir", inner / "log")
    touch(tmp_path / "job" / "memory_block.csv")
    assert [files.rank for files in find_trace(tmp_path).ranks] == [None, 3]
