"""When lines are read as columns, all at once: whenever there is nothing out of the ordinary about any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ms_tune.readers import tensors, tracker_tables
from ms_tune.readers.lines import FilePart
from ms_tune.readers.memory_block import RowReader
from ms_tune.readers.tensors import read_tracker_graph
from ms_tune.readers.tracker_tables import read_block_table, read_tasks, split_lines
from tests.pools.recorded import PACKED
from tests.readers.test_task import HEADER, ROW
from tests.readers.test_tracker_graph import OPERATOR

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("a", "b", "c")
PLAIN = b"1,2,3,\n4,,x y,\n\xc3\xa4,-,0x1f,\n"


def part_of(data: bytes, *, complete: bool = True) -> FilePart:
    return FilePart(1, data, data.count(b"\n"), complete)


def test_plain_lines_are_columns() -> None:
    columns = split_lines(part_of(PLAIN), NAMES, ["c", "a"])
    assert columns is not None
    assert columns.height == 3
    assert split_lines(part_of(b"1,2,3,\n"), NAMES, ["a"]) is not None


@pytest.mark.parametrize(
    "data",
    [
        b"1,2,3\n",  # no comma at the end
        b"1,2,3,4\n",
        b"1,2,3,4,\n",
        b"1,2,\n",
        b"1,2,3,\r\n",
        b"1,2,3,",
        b"\n",
    ],
)
def test_one_line_that_is_not_plain_is_enough(data: bytes) -> None:
    for text in (PLAIN + data, data + PLAIN if data.endswith(b"\n") else PLAIN + data):
        assert split_lines(part_of(text), NAMES, ["a"]) is None


def test_lines_that_are_cut_off_are_no_columns() -> None:
    assert split_lines(part_of(PLAIN, complete=False), NAMES, ["a"]) is None
    assert split_lines(FilePart(1, None, 3, complete=True), NAMES, ["a"]) is None


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
