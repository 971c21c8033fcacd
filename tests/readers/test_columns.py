"""When lines are read as columns, all at once: whenever there is nothing out of the ordinary about any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ms_tune.readers import tensors, tracker_tables
from ms_tune.readers.memory_block import RowReader
from ms_tune.readers.tensors import read_tracker_graph
from ms_tune.readers.tracker_tables import read_block_table, read_tasks
from tests.pools.recorded import PACKED
from tests.readers.test_task import HEADER, ROW
from tests.readers.test_tracker_graph import OPERATOR

if TYPE_CHECKING:
    from pathlib import Path


def alone(*_: object, **__: object) -> None:
    pytest.fail("a line was read alone")


@pytest.mark.parametrize("run", ["continuous", "graph_set_memory", "small_pool"])
def test_no_block_of_a_recorded_run_is_read_alone(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = PACKED / run / "memory_block.csv"
    with path.open("rb") as file:
        rows = sum(1 for _ in file) - 1
    monkeypatch.setattr(RowReader, "read", alone)
    assert len(read_block_table(path)) == rows


def test_no_ordinary_task_is_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "task.csv"
    path.write_text(f"{HEADER}\n{ROW}\n{ROW.replace('7,', '8,', 1)}\n{ROW.replace('129', '')}\n")
    monkeypatch.setattr(tracker_tables, "_take_row", alone)
    assert len(read_tasks(path)) == 3


def test_no_ordinary_operator_is_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tracker_graph.ir"
    monkeypatch.setattr(tensors._GraphReader, "_take_lines", alone)
    for count in (1, 2, 5):
        path.write_text(OPERATOR * count)
        assert read_tracker_graph(path).operators == count
