"""Test the timeline of a profile: stored fields of each event, in every form of the file, and its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.errors import TraceError
from ms_tune.readers import profile_export, trace_events
from ms_tune.readers.profile_export import read_events

if TYPE_CHECKING:
    from ms_tune.readers.trace_events import Moments, ProfileEvents


def read(folder: Path, *events: object, text: str | None = None) -> ProfileEvents:
    path = folder / "trace_view.json"
    path.write_text(json.dumps(events) if text is None else text, "utf-8")
    return read_events(path)


def event(name: str, start: object, length: object = 1, **more: object) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": 1, "ts": start, "dur": length, **more}


def flow(phase: str, number: object, start: object, cat: str = "HostToDevice") -> dict[str, Any]:
    return {"ph": phase, "cat": cat, "id": number, "ts": start}


def process(pid: object, name: object) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}


def rows(found: ProfileEvents, kind: str) -> list[tuple[float, float]]:
    one = found.overlap[kind]
    assert one.total_length == sum(one.length)
    assert len(one) == len(one.length)
    return list(zip(one.start, one.length, strict=True))


def by_time(moments: Moments[Any]) -> dict[int, Any]:
    return dict(zip(moments.times, moments.values, strict=True))


def test_what_the_device_did_is_in_order_of_time(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        event("Computing", "100.5", 3),
        event("Computing", "90", 2),
        event("Communication(Not Overlapped)", 104, 4.5),
        event("Free", "105", "5"),
        event("Communication", "106", 6),
        event("Free", "107", 7, args={"some": "thing"}),
        event("Free", "108", -1),
        event("Free", "109", None),
        event("Free", "110", 1e15),
        event("Free", "x", 8),
    )
    assert (found.base, found.events, found.dropped, found.truncated) == (100, 10, 0, False)
    assert rows(found, "compute") == [(-10, 2), (0.5, 3)]
    assert rows(found, "exposed") == [(4, 4.5)]
    assert rows(found, "free") == [(5, 5)]
    assert rows(found, "comm") == [(6, 6)]


def test_collectives_and_kernels_have_names_by_their_nanoseconds(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        event("hcom_send", "1000.0045", 2, args={"Task Type": "x"}),
        event("hccl_x", "999", 3),
        event("MatMul", "1001.002", 4, args={"Task Type": "AI_CORE"}),
        event("Add", "1002.003", 400, args={"Physic Stream Id": 2}),
        event("Sub", "1003", 400, args={"other": 2}),
        event("Mul", "1004", 400, args=["Task Type"]),
    )
    assert found.collectives == [(-1, 3, "hccl_x"), (pytest.approx(0.0045), 2, "hcom_send")]
    assert by_time(found.names) == {-1000: "hccl_x", 4: "hcom_send", 1002: "MatMul", 2003: "Add"}
    assert found.host_names == ["Sub", "Mul"]


def test_a_launch_is_a_flow_with_both_ends(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        flow("f", 7, "1002.5"),
        flow("s", "7", "1000.25"),
        flow("f", 8, "1003"),
        flow("s", 9, "1001"),
        flow("s", 8, "x"),
        flow("s", 8, "1001", "async"),
        flow("t", 8, "1001"),
    )
    assert found.base == 1002
    assert by_time(found.launches) == {500: -1.75}


def test_long_events_of_the_host_alone(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        event("later", 20, 20.0, pid=2),
        event("x" * 300, 10, 20.5, pid="cpu"),
        event("short", 10, 19.9),
        event("device", 10, 50, pid=3),
        event("unknown", 11, 50, pid=[4]),
        process(2, "Python"),
        process(3, "Ascend Hardware 0"),
        process([4], "HBM"),
        {"ph": "M", "name": "thread_name", "pid": 2, "args": {"name": "HBM"}},
        {"ph": "M", "name": "process_name", "pid": 2, "args": "HBM"},
    )
    assert found.host_names == ["x" * 200, "later"]
    assert list(found.host.start) == [-10, 0]
    assert list(found.host.length) == [20.5, 20]


@pytest.mark.parametrize(
    ("stamp", "read_as"),
    [
        ("5.25", 0.25),
        (5, 0.0),
        ("9" * 19, None),
        ("9" * 20, "none"),
        ("5." + "1" * 19, 0.1111111),
        ("5." + "1" * 20, "none"),
        ("-5", "none"),
        ("5.-1", "none"),
        ("5e3", "none"),
        ("", "none"),
        (None, "none"),
    ],
)
def test_time_stamps(tmp_path: Path, stamp: object, read_as: object) -> None:
    found = rows(read(tmp_path, event("Free", stamp)), "free")
    assert len(found) == (read_as != "none")
    if isinstance(read_as, float):
        assert found[0][0] == pytest.approx(read_as)


def test_what_is_beyond_the_most_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_events, "_MOST", 1)
    kinds = [event("Free", 1), event("hcom_x", 1), event("host", 1, 99), flow("s", 1, 1), flow("f", 1, 1)]
    kinds.append(event("MatMul", 2, args={"Task Type": "x"}))
    kinds.append(process(1, "Python"))
    found = read(tmp_path, *[one for one in kinds for _ in range(3)])
    assert (len(found.overlap["free"]), len(found.collectives), len(found.host), len(found.launches)) == (1, 1, 1, 1)
    assert (found.dropped, found.events) == (5 * 2, 21)


@pytest.mark.parametrize("text", ["", "  \n", "[]", "[ ]", '{"traceEvents": []}'])
def test_no_events(tmp_path: Path, text: str) -> None:
    with pytest.raises(TraceError, match="no event"):
        read(tmp_path, text=text)


@pytest.mark.parametrize("text", ["nothing", '{"a": 1}', '{"traceEvents": 1}', '"traceEvents": [{}]'])
def test_no_trace(tmp_path: Path, text: str) -> None:
    with pytest.raises(TraceError) as expected:
        read(tmp_path, text=text)
    assert "no event" not in str(expected.value)


@pytest.mark.parametrize(
    ("text", "events", "truncated"),
    [
        ('[{"ph": "X"}]', 1, False),
        ('[{"ph": "X"} ]  ', 1, False),
        ('[{"ph": "X"}', 1, True),
        ('[{"ph": "X"}, {"ph": "X"}, {"ph"', 2, True),
        ('[{"ph": "X"},\n{"ph": "X"}]', 2, False),
        ('[{"ph": "X"},{"ph": "X"}, 7, {"ph": "X"}]', 2, True),
        ('[{"ph": "}, {"}, {"ph": "X"}]', 2, False),
        ('[{"ph": "}, {"}]', 1, False),
        (' { "traceEvents": [{"ph": "X"}] }', 1, False),
        ('[{"ph', 0, True),
    ],
)
def test_where_the_file_ends(tmp_path: Path, text: str, events: int, truncated: bool) -> None:  # noqa: FBT001 - a column
    found = read(tmp_path, text=text)
    assert (found.events, found.truncated) == (events, truncated)


def test_blocks_and_their_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected: list[int] = []
    text = json.dumps([event("Free", 1), event("Free", 2)])
    path = tmp_path / "trace_view.json"
    path.write_text(text, "utf-8")
    monkeypatch.setattr(profile_export, "_BLOCK", 32)
    assert read_events(path, expected.append).events == 2
    assert (sum(expected), max(expected)) == (len(text), 32)
    path.write_text(" " * 8 + text, "utf-8")  # this much may precede the list, a quarter of a block
    assert read_events(path).events == 2
    path.write_text("x" * 40, "utf-8")
    with pytest.raises(TraceError):
        read_events(path)
    longest = max(len(json.dumps(event("Free", 1))), 32)
    for most, refused in ((longest, False), (10, True)):
        monkeypatch.setattr(profile_export, "_MOST_REST", most)
        path.write_text(text, "utf-8")
        if refused:
            with pytest.raises(TraceError):
                read_events(path)
        else:
            assert read_events(path).events == 2
