from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.errors import TraceError
from ms_tune.readers import tracker_tables
from ms_tune.readers.memory_block import MAX_DESCRIBED
from ms_tune.readers.tracker_tables import Tasks, read_tasks
from tests.readers.samples import LARGE_RUNS, SMALL_RUNS, folder

HEADER = "time_stamp,task_name,node_name,graph_name,file_name,line_num,python_stack,"
ROW = "7,PyNative,Dense,,op_runner.h,129,File:/workspace/train.py;Line:42;Function:<module>|,"


def read(tmp_path: Path, text: str) -> Tasks:
    path = tmp_path / "task.csv"
    path.write_text(text, encoding="utf-8")
    return read_tasks(path)


@pytest.mark.drawn(5)
@pytest.mark.parametrize("run", [*SMALL_RUNS, *LARGE_RUNS])
def test_real_files(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(run) / "task.csv"
    tasks = read_tasks(path)
    lines = path.read_bytes().count(b"\n")
    assert (len(tasks), tasks.dropped_count) == (lines - 1, 0)
    assert (tasks.stamp[1:] >= tasks.stamp[:-1]).all()
    monkeypatch.setattr(tracker_tables, "load_polars", lambda: None)
    again = read_tasks(path)
    assert again.stamp.tolist() == tasks.stamp.tolist()
    assert [again.name.value_at(row) for row in range(0, len(again), 97)] == [
        tasks.name.value_at(row) for row in range(0, len(tasks), 97)
    ]


def test_commas(tmp_path: Path) -> None:
    in_stack = ROW.replace("/workspace", "/work,space")
    in_names = "8,3_Default/a,b/MatMul-op0,Default/a,b/MatMul-op0,kernel_graph0,a.cc,12,File:/x;Line:1;Function:f|,"
    nowhere = "9,a,b,c,d,e,f,g,h,"
    tasks = read(tmp_path, f"{HEADER}\n{in_stack}\n{in_names}\n{nowhere}\n")
    assert [tasks.node.value_at(row) for row in range(2)] == ["Dense", "Default/a,b/MatMul-op0"]
    assert tasks.name.value_at(1) == "3_Default/a,b/MatMul-op0"
    assert [row.line for row in tasks.dropped] == [4]


def refusals(tasks: Tasks) -> list[tuple[int, str]]:
    return [(row.line, row.reason.id.removeprefix("trace.row.")) for row in tasks.dropped]


def test_each_refusal_says_why(tmp_path: Path) -> None:
    bad = {
        ROW.rstrip(","): "fields",
        ROW + "x": "fields",
        "7,PyNative,": "fields",
        ROW.replace("Dense,", "", 1): "fields",
        "7" * 19 + ROW[1:]: "number",
        "\u0667" + ROW[1:]: "number",
        ROW[1:]: "number",
        "9,a,b,c,d,e,f,g,h,": "commas",
        "9,D/a,b,a,b,graph,a.cc,,": "commas",  # the last column is not a line number, but the rest of the stack
        # One comma cannot be shared by the task's name and the node's, and two that differ are no operator's.
        "8,3_Default/a,b/MatMul-op0,Default/MatMul-op0,graph,a.cc,12,File:/x;Line:1;Function:f|,": "commas",
        "8,3_Default/a,b/MatMul-op0,Default/a,c/MatMul-op0,graph,a.cc,12,File:/x;Line:1;Function:f|,": "commas",
    }
    tasks = read(tmp_path, "\n".join([HEADER, *bad, ROW, ROW[:-4]]))
    assert refusals(tasks) == [*enumerate(bad.values(), 2), (len(bad) + 3, "cut")]
    assert tasks.line.tolist() == [len(bad) + 2]


def test_of_a_long_stamp_the_start_is_shown(tmp_path: Path) -> None:
    (row,) = read(tmp_path, f"{HEADER}\n{'123456789' * 5}{ROW[1:]}\n").dropped
    assert row.reason.params == {"value": "1234567891234567891234567891234567891234", "column": "time_stamp"}


@pytest.mark.parametrize("ending", ["", '"\n'])
def test_stamps_of_18_digits_and_rows_without_a_line(tmp_path: Path, ending: str) -> None:
    """The same by columns and, where a quotation mark prevents that, line by line."""
    rows = ["9" * 18 + ROW[1:], ROW.replace(",129,", ",,"), ROW.replace(",129,File:/work", ",,File:/wo,rk")]
    tasks = read(tmp_path, "\n".join([HEADER, *rows, ending]))
    assert tasks.stamp.tolist() == [7, 7, 10**18 - 1]
    assert tasks.line.tolist() == [3, 4, 2]
    assert [tasks.node.value_at(row) for row in range(3)] == ["Dense"] * 3
    assert tasks.dropped_count == bool(ending)


def test_of_very_many_refusals_some_are_kept_and_all_are_counted(tmp_path: Path) -> None:
    tasks = read(tmp_path, "\n".join([HEADER, *["x,"] * (MAX_DESCRIBED + 2), ""]))
    assert (len(tasks.dropped), tasks.dropped_count) == (MAX_DESCRIBED, MAX_DESCRIBED + 2)


@pytest.mark.parametrize(
    "header", ["time_stamp,task_name,node_name,file_name,graph_name,line_num,", HEADER + "time_stamp,", HEADER[1:]]
)
def test_another_order_and_a_column_twice_are_refused_at_the_first_line(tmp_path: Path, header: str) -> None:
    with pytest.raises(TraceError) as refused:
        read(tmp_path, f"{header}\n{ROW}\n")
    assert refused.value.line == 1
