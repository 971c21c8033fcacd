"""Test placement problems in minimalloc's format, valid and invalid ones."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ms_tune.errors import TraceError
from ms_tune.memory import plan
from ms_tune.memory.plan import PlacementRow, capacity_in_name, is_placement_csv, read_placement_csv


def write(folder: Path, text: str, name: str = "problem.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_other_names_of_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeffbuffer_id,start,end,size,alignment,hint,offset\na,0,3,10,512,-1,4\nb,1,1,5,,-1,0\n")
    # `end` is the last tick at which the block lives.
    assert read_placement_csv(path) == [PlacementRow("a", 0, 4, 10, 512), PlacementRow("b", 1, 2, 5, 1)]


def test_blocks_without_id_are_called_by_position(tmp_path: Path) -> None:
    assert [row.id for row in read_placement_csv(write(tmp_path, "lower,upper,size\n0,1,2\n1,2,2\n"))] == ["0", "1"]


@pytest.mark.parametrize(
    ("text", "line", "text_id"),
    [
        ("id,lower,size\n1,2,3\n", 1, "placement.columns"),
        ("", 1, "placement.columns"),
        ("id,lower,upper,size\n0,1,2,3\n1,5,5,3\n", 3, "placement.life"),
        ("id,lower,upper,size\n0,9,2,3\n", 2, "placement.life"),
        ("id,lower,upper,size\n0,1,2\n", 2, "placement.fields"),
        ("id,lower,upper,size\n0,1,2,3,4\n", 2, "placement.fields"),
        ("id,lower,upper,size\n0,-1,2,3\n", 2, "placement.number"),
        ("id,lower,upper,size\n0,1,2,1e3\n", 2, "placement.number"),
        ("id,lower,upper,size\n0,1,2,\n", 2, "placement.number"),
        ("id,lower,upper,size\n0,1,2,²\n", 2, "placement.number"),
        ("id,lower,upper,size\n0,1,2,99999999999999999999999\n", 2, "placement.number"),
        ("id,lower,upper,size\n0,1,99999999999999999999,3\n", 2, "placement.number"),
        ("id,lower,upper,size\n0,1,2,3\n0,1,2,3\n", 3, "placement.twice"),
        ('id,lower,upper,size\n"0,1,2,3\n', 2, "placement.row"),
        ("id,lower,upper,size,alignment\n0,1,2,3,0\n", 2, "placement.alignment"),
        ("id,lower,upper,size,gaps\n0,1,9,3,4-5\n", 2, "placement.gaps"),
        ("id,lower,upper,size\n" + "0" * 70_000, 2, "placement.long-line"),
        ("id,lower,upper,size\n", None, "placement.no-rows"),
    ],
)
def test_broken_rows_are_named_by_their_line(tmp_path: Path, text: str, line: int | None, text_id: str) -> None:
    with pytest.raises(TraceError) as caught:
        read_placement_csv(write(tmp_path, text))
    assert (caught.value.message.id, caught.value.line) == (text_id, line)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_whatever_is_in_it_no_other_error_comes_out(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "random.csv"
    path.write_bytes(b"id,lower,upper,size\n0,1,2,3\n" + data)
    with suppress(TraceError):
        assert read_placement_csv(path)[0] == PlacementRow("0", 1, 2, 3, 1)


@pytest.mark.parametrize(
    ("name", "capacity"),
    [("A.1048576.csv", 1048576), ("A.csv", None), ("a.b.csv", None), ("a.0.csv", None), ("a.1.2.csv", None)],
)
def test_a_name_may_state_the_capacity(tmp_path: Path, name: str, capacity: int | None) -> None:
    assert capacity_in_name(tmp_path / name) == capacity


def test_other_files_are_no_problems(tmp_path: Path) -> None:
    assert not is_placement_csv(write(tmp_path, "start_time_stamp,end_time_stamp,device_addr,size\n"))
    assert not is_placement_csv(tmp_path / "missing.csv")
    assert not is_placement_csv(tmp_path)


@pytest.mark.parametrize(("bound", "value"), [("_MOST_ROWS", 2), ("_MOST_TOTAL", 6)])
def test_either_bound_ends_a_file(bound: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "lower,upper,size\n0,1,3\n1,2,3\n2,3,3\n")
    assert len(read_placement_csv(path)) == 3
    monkeypatch.setattr(plan, bound, value)
    with pytest.raises(TraceError) as caught:
        read_placement_csv(path)
    assert (caught.value.message.id, caught.value.line) == ("placement.too-large", 4)


@pytest.mark.parametrize("name", ["lower", "upper", "size", "alignment"])
def test_the_largest_number_of_each_column(tmp_path: Path, name: str) -> None:
    most = plan._MOST[name]
    values = {"lower": 0, "upper": most if name == "lower" else 1, "size": 0, "alignment": 1, name: most}
    values["upper"] = max(values["upper"], values["lower"])
    text = "lower,upper,size,alignment\n{lower},{upper},{size},{alignment}\n"
    if name != "lower":
        assert len(read_placement_csv(write(tmp_path, text.format(**values)))) == 1
    with pytest.raises(TraceError) as caught:
        read_placement_csv(write(tmp_path, text.format(**{**values, name: most + 1})))
    assert caught.value.message.params == {"column": name, "text": str(most + 1), "most": most}


def test_as_many_digits_as_are_read(tmp_path: Path) -> None:
    text = "lower,upper,size\n{},9,5\n"
    assert read_placement_csv(write(tmp_path, text.format("7".zfill(20))))[0].lower == 7
    with pytest.raises(TraceError):
        read_placement_csv(write(tmp_path, text.format("7".zfill(21))))
