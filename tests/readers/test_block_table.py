from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from ms_tune.errors import TraceError
from ms_tune.footprint.curve import compute_curve
from ms_tune.readers import lines, tensors, tracker_tables
from ms_tune.readers.memory_block import NEVER_FREED, RowReader
from ms_tune.readers.table import NUMBERS, TEXTS, Table
from ms_tune.readers.tensors import read_tracker_graph
from ms_tune.readers.tracker_tables import end_reused_blocks, read_block_table, read_tasks
from ms_tune.units import MIB
from tests.pools.recorded import PACKED
from tests.readers.rows import read_memory_block, table_of
from tests.readers.samples import LARGE_RUNS, SMALL_RUNS, folder, trace_of
from tests.readers.test_memory_block import HEADER_16, HEADER_17, HEADER_20, ROW_16, ROW_17, ROW_20, mutated
from tests.readers.test_task import HEADER, ROW
from tests.readers.test_tracker_graph import OPERATOR


def assert_same(one: Table, other: Table) -> None:
    other = end_reused_blocks(other)
    for name in (*NUMBERS, "address", "persistent", "small"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist(), name
    for name in (*TEXTS, "stack"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert [mine.value_at(row) for row in range(len(one))] == [theirs.value_at(row) for row in range(len(one))], (
            name
        )
    assert one.users == other.users
    assert (one.dropped, one.dropped_count, one.columns, one.truncated) == (
        other.dropped,
        other.dropped_count,
        other.columns,
        other.truncated,
    )


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "memory_block.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("run", [*SMALL_RUNS, *LARGE_RUNS])
def test_columns_hold_what_the_row_reader_reads(run: str) -> None:
    assert_same(read_block_table(folder(run) / "memory_block.csv"), table_of(trace_of(run)))


@pytest.mark.parametrize("run", SMALL_RUNS)
def test_without_polars(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_tables, "load_polars", lambda: None)
    assert_same(read_block_table(folder(run) / "memory_block.csv"), table_of(trace_of(run)))


@pytest.mark.slow
@pytest.mark.parametrize("size", [300, 1000, 5000])
def test_parts_end_at_any_place(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "PART", size)
    path = folder("nn_cnn_pynative") / "memory_block.csv"
    assert_same(read_block_table(path), table_of(read_memory_block(path)))


@pytest.mark.parametrize(("columns", "unreleased", "mib"), [(20, 24, 408), (17, 23, 408)])
def test_releases_that_the_tracker_leaves_out_are_derived(
    columns: int, unreleased: int, mib: int, tmp_path: Path
) -> None:
    """MindSpore's log says 408 MiB; without ``actual_used_memory`` a block ends where its address is given out again."""
    rows = [
        line.split(",") for line in (folder("two_streams/rank_0") / "memory_block.csv").read_text("utf-8").splitlines()
    ]
    left_out = {"actual_used_memory", "is_persistent", "is_small"} if columns < 20 else set()
    kept = [place for place, name in enumerate(rows[0]) if name not in left_out]
    text = "".join(",".join(row[place] for place in kept) + "\n" for row in rows)
    table = read_block_table(write(tmp_path, text))
    assert (table.unreleased, compute_curve(table).peak_bytes // MIB) == (unreleased, mib)


def test_progress_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "PART", 1000)
    path = folder("asc2") / "memory_block.csv"
    outcome: list[int] = []
    read_block_table(path, outcome.append)
    header = len(path.read_bytes().split(b"\n")[0]) + 1
    assert sum(outcome) == path.stat().st_size - header
    assert len(outcome) > 10


@pytest.mark.parametrize(("header", "row"), [(HEADER_20, ROW_20), (HEADER_17, ROW_17), (HEADER_16, ROW_16)])
def test_every_layout_with_damaged_rows_in_between(tmp_path: Path, header: str, row: str) -> None:
    commas = row.replace("/workspace/model.py", "/work,space/model.py")
    rows = [row, "damaged", commas, row.replace("5,17,", f"5,{NEVER_FREED},", 1), row.replace(",131584,", ",x,"), row]
    path = write(tmp_path, f"{header}\n" + "\n".join(rows) + "\n")
    table = read_block_table(path)
    assert table.line.tolist() == [2, 4, 5, 7]
    assert [dropped.line for dropped in table.dropped] == [3, 6]
    assert_same(table, table_of(read_memory_block(path)))


@pytest.mark.parametrize("bad", ["+512", "-512", "1e3", " 512", "512 ", "0x10", "", "9" * 30, "１２", "1_000"])
def test_numbers_are_as_strict_as_in_the_row_reader(tmp_path: Path, bad: str) -> None:
    # A damaged cell among good rows: the row as a whole still has the right number of commas.
    path = write(tmp_path, f"{HEADER_20}\n{ROW_20}\n{ROW_20.replace(',131584,', f',{bad},', 1)}\n{ROW_20}\n")
    table = read_block_table(path)
    assert (len(table), table.dropped_count) == (2, 1)
    assert_same(table, table_of(read_memory_block(path)))


def test_a_surplus_and_a_missing_comma_do_not_make_up_for_each_other(tmp_path: Path) -> None:
    short = ROW_20.replace(",PyNativeOutput,", ",", 1)
    long = ROW_20.replace("/workspace/model.py", "/work,space/model.py")
    path = write(tmp_path, f"{HEADER_20}\n{short}\n{long}\n{ROW_20}\n")
    table = read_block_table(path)
    assert_same(table, table_of(read_memory_block(path)))
    assert table.line.tolist() == [3, 4]


def test_sizes_beyond_any_device_are_refused(tmp_path: Path) -> None:
    huge = ROW_20.replace(",131584,", f",{2**62 - 1},", 1)
    with pytest.raises(TraceError) as caught:
        read_block_table(write(tmp_path, f"{HEADER_20}\n{huge}\n{huge}\n"))
    assert caught.value.message.id == "trace.sizes"


def test_a_line_that_is_too_long_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "PART", 2048)
    monkeypatch.setattr(lines, "LONGEST_LINE", 4096)
    monkeypatch.setattr(lines, "_LOOK_AHEAD", 1)  # its end is out of sight
    outcome: list[int] = []
    path = write(tmp_path, f"{HEADER_20}\n{ROW_20}\n{'x' * 20_000}\n{ROW_20}\n{ROW_20}")
    table = read_block_table(path, outcome.append)
    assert sum(outcome) == path.stat().st_size - len(HEADER_20) - 1  # skipped text counts as read
    assert (table.line.tolist(), table.dropped_count, table.truncated) == ([2, 4, 5], 1, True)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(mutated())
def test_mutated_files_are_read_as_the_row_reader_reads_them(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "memory_block.csv")
        path.write_bytes(content)
        expected = _read_or_reason(lambda: table_of(read_memory_block(path)))
        found = _read_or_reason(lambda: read_block_table(path))
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected
    else:
        assert_same(found, expected)


def _read_or_reason(read: Callable[[], Table]) -> Table | str:
    try:
        return read()
    except TraceError as error:
        return error.message.id


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
