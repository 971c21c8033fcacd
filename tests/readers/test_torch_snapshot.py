"""Test every generation of snapshots of PyTorch's allocator, and refuse anything else."""

from __future__ import annotations

import copyreg
import gzip
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ms_tune.errors import TraceError
from ms_tune.readers.plain_pickle import _bounded_memory, _silence_interpreter, is_snapshot
from ms_tune.readers.torch_snapshot import (
    _MOST_ADDRESS,
    _MOST_DEVICES,
    _MOST_SIZE,
    _MOST_STREAM,
    Action,
    read_torch_snapshot,
)
from ms_tune.units import MIB

FRAMES = [{"name": "inner", "filename": "a.py", "line": 3}, {"name": "outer", "filename": "b.py", "line": 9}]


def segment(**changes: object) -> dict[str, Any]:
    block = {"address": 4096, "size": 1024, "requested_size": 700, "state": "active_allocated", "frames": FRAMES}
    rest = {"address": 5120, "size": 2 * MIB - 1024, "requested_size": 0, "state": "inactive", "frames": []}
    plain = {"device": 0, "address": 4096, "total_size": 2 * MIB, "stream": 7, "segment_type": "small"}
    return {**plain, "is_expandable": False, "blocks": [block, rest], **changes}


def event(action: object = "alloc", **changes: object) -> dict[str, Any]:
    return {"action": action, "addr": 4096, "size": 700, "stream": 7, "frames": FRAMES, **changes}


def written(content: object, folder: Path, protocol: int = 4) -> Path:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_snapshot_of_today(protocol: int, tmp_path: Path) -> None:
    content = {
        "segments": [segment()],
        "device_traces": [[event("segment_alloc", size=2 * MIB), event(time_us=5, category="gradient")], []],
        "allocator_settings": {"max_split_size": 64 * MIB, "roundup_power2_divisions": {"1": 0, "2": 4}},
        "external_annotations": [],
    }
    found = read_torch_snapshot(written(content, tmp_path, protocol))
    (device,) = found.devices
    assert device.events.action.tolist() == [Action.SEGMENT_ALLOC, Action.ALLOC]
    assert device.events[1].category == "gradient"
    assert [(frame.function, frame.line) for frame in found.stacks[device.events[1].stack]] == [
        ("outer", 9),
        ("inner", 3),
    ]
    assert (found.timed, found.max_split, found.roundup) == (True, 64 * MIB, (0, 4))
    (held,) = device.segments
    assert (held.small, held.stream, [block.active for block in held.blocks]) == (True, 7, [True, False])


def test_several_devices_and_what_is_new(tmp_path: Path) -> None:
    oom = {"action": "oom", "device_free": 123, "size": 99, "stream": 0}
    content = {
        "segments": [segment(device=3)],
        "device_traces": [[], [event("free"), oom, event("workspace_snapshot", addr=None, size=None)]],
    }
    found = read_torch_snapshot(written(content, tmp_path))
    assert [device.number for device in found.devices] == [1, 3]
    events = found.devices[0].events
    assert events.action.tolist() == [Action.FREE_COMPLETED, Action.OOM, Action.OTHER]
    assert events[1].address == 123


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_packed_file(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.bin"
    path.write_bytes(gzip.compress(pickle.dumps({"segments": [segment()], "device_traces": []}, protocol)))
    assert is_snapshot(path)
    assert len(read_torch_snapshot(path).devices) == 1
    (tmp_path / "memory_block.csv").write_text("start_time_stamp,\n")
    assert not is_snapshot(tmp_path / "memory_block.csv")
    assert not is_snapshot(tmp_path)
    assert not is_snapshot(tmp_path / "nothing.pickle")


class Hostile:
    def __reduce__(self) -> tuple[object, ...]:
        return (os.system, ("echo done > /dev/null",))


PICKLES = {
    "reduce": pickle.dumps({"segments": [Hostile()]}),
    "reduce-0": pickle.dumps({"segments": [Hostile()]}, protocol=0),
    "class": pickle.dumps(subprocess.Popen),
    "instance": b"(ios\nsystem\n.",
    "extension": b"\x80\x02\x82\xf0.",
    "persistent": b"\x80\x02X\x01\x00\x00\x00aQ.",
    "cut": pickle.dumps({"segments": [segment()]})[:-30],
    "empty": b"\x80\x04",
    "memo": b"\x80\x02]r\xff\xff\xff\x7f.",
    "bytes": b"\x80\x04\x8e\x00\x00\x00\x00\x00\x01\x00\x00.",
    "frame": b"\x80\x04\x95\x00\x00\x00\x00\x00\x01\x00\x00N.",
    "text": b"not a pickle at all",
    "number": pickle.dumps(5),
    "nested": b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b".",
}


@pytest.mark.parametrize("name", PICKLES)
def test_whatever_else_a_pickle_may_hold_is_refused(name: str, tmp_path: Path) -> None:
    copyreg.add_extension("os", "system", 240)
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(PICKLES[name])
    try:
        with pytest.raises(TraceError):
            read_torch_snapshot(path)
    finally:
        copyreg.remove_extension("os", "system", 240)


@pytest.mark.parametrize(
    "content",
    [
        {"segments": 5},
        {"segments": [segment(address=-1)]},
        {"segments": [segment(address=1 << 64)]},
        {"segments": [segment(total_size="2")]},
        {"segments": [segment(total_size=512)]},
        {"segments": [segment(), segment()]},
        {"segments": [segment(blocks=[{"size": 0, "state": "inactive"}])]},
        {"segments": [segment(blocks=[{"size": 512, "state": "parked"}])]},
        {"segments": [segment(device=True)]},
        {"segments": [segment(blocks=None)]},
        {"segments": [], "device_traces": [[event(size=1 << 60)]]},
        {"segments": [], "device_traces": [[event(addr=1.5)]]},
        {"segments": [], "device_traces": [[event(action=7)]]},
        {"segments": [], "device_traces": [[event(frames=["a"])]]},
        {"segments": [], "device_traces": [["alloc"]]},
        {"segments": [], "device_traces": {}},
        {"segments": [], "device_traces": [[]] * 2000},
    ],
)
def test_a_value_that_no_allocator_writes_is_named(content: object, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="not a snapshot of PyTorch's or torch_npu's allocator: unexpected"):
        read_torch_snapshot(written(content, tmp_path))


def test_shared_parts_do_not_make_a_file_endless(tmp_path: Path) -> None:
    one = event()
    events: list[Any] = [one] * 1000
    doubled = {"segments": [], "device_traces": [events] * 1000}
    with pytest.raises(TraceError, match="device_traces"):
        read_torch_snapshot(written(doubled, tmp_path))


@pytest.mark.parametrize("frames", ["a.py", 7, {"name": "inner"}])
def test_what_is_no_list_of_frames_is_no_stack(frames: object, tmp_path: Path) -> None:
    content = {"segments": [], "device_traces": [[event(frames=frames), event(frames=FRAMES)]]}
    found = read_torch_snapshot(written(content, tmp_path))
    assert [len(found.stacks[stack]) for stack in found.devices[0].events.stack] == [0, 2]


@pytest.mark.parametrize("line", [None, "7", -1, True])
def test_a_frame_without_a_line_number_has_line_0(line: object, tmp_path: Path) -> None:
    content = {"segments": [], "device_traces": [[event(frames=[{"filename": "a.py", "name": "f", "line": line}])]]}
    found = read_torch_snapshot(written(content, tmp_path))
    assert [frame.line for stack in found.stacks for frame in stack] == [0]


def test_only_a_message_of_the_interpreter_itself_is_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, _error, _trace: seen.append(kind))
    hook = sys.excepthook
    with _silence_interpreter():
        for error in (SystemError("existing exports"), ValueError("x")):
            sys.excepthook(type(error), error, None)
    assert (seen, sys.excepthook) == ([ValueError], hook)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds the memory of a process")
def test_a_bound_is_no_more_than_what_is_asked_and_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource  # noqa: PLC0415 - not on every system

    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    for present in ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), (4096, resource.RLIM_INFINITY), (8192, 4096)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, present=present: present)
        with _bounded_memory(2**30):
            pass
    bounds, back = asked[::2], asked[1::2]
    assert 2**30 < bounds[0][0] < 2**50
    assert [soft for soft, _ in bounds[1:]] == [4096, 4096]
    assert [hard for _, hard in bounds] == [hard for _, hard in back] == [resource.RLIM_INFINITY] * 2 + [4096]


BELOW = {"address": _MOST_ADDRESS, "total_size": _MOST_SIZE, "stream": _MOST_STREAM, "device": _MOST_DEVICES}


@pytest.mark.parametrize("key", BELOW)
def test_a_number_is_below_its_bound(key: str, tmp_path: Path) -> None:
    content = {"segments": [segment(**{key: BELOW[key]})]}
    with pytest.raises(TraceError, match=key):
        read_torch_snapshot(written(content, tmp_path))
    content = {"segments": [segment(**{"blocks": [], key: BELOW[key] - 1})]}
    assert len(read_torch_snapshot(written(content, tmp_path)).devices) == 1


@pytest.mark.parametrize(
    ("expected", "roundup"),
    [
        ({"1": 4, "2": 0}, (4, 0)),
        ({"1": 1, "2": 0}, ()),
        ({"1": 2}, (2,)),
        ({"1": 1 << 20}, (1 << 20,)),
        ({"1": (1 << 20) + 1}, ()),
        ({"1": -1, "2": 4}, ()),
        ({"1": 4, "2": True}, ()),
        ({"1": 4, "2": "4"}, ()),
        ({str(place): 2 for place in range(20)}, (2,) * 16),
        ([4], ()),
    ],
    ids=str,
)
def test_divisions_of_powers_of_two(expected: object, roundup: tuple[int, ...], tmp_path: Path) -> None:
    content = {"segments": [segment()], "allocator_settings": {"roundup_power2_divisions": expected}}
    assert read_torch_snapshot(written(content, tmp_path)).roundup == roundup


@pytest.mark.parametrize(
    ("expected", "kept"), [(0, None), (1, 1), (_MOST_SIZE - 1, _MOST_SIZE - 1), (_MOST_SIZE, None), (True, None)]
)
def test_the_largest_block_that_is_split(expected: object, kept: int | None, tmp_path: Path) -> None:
    content = {"segments": [segment()], "allocator_settings": {"max_split_size": expected}}
    assert read_torch_snapshot(written(content, tmp_path)).max_split == kept


@pytest.mark.parametrize(
    ("blocks", "fit"),
    [
        ([(4096, 1024), (5119, 1024)], False),
        ([(4096, 1024), (5120, 1024)], True),
        ([(4096, 1024), (5121, 1024)], True),
        ([(4095, 512)], False),
        ([(4096, 2 * MIB)], True),
        ([(4097, 2 * MIB)], False),
    ],
)
def test_blocks_lie_in_their_segment_one_after_the_other(
    blocks: list[tuple[int, int]],
    fit: bool,  # noqa: FBT001 - a column
    tmp_path: Path,
) -> None:
    content = [{"address": address, "size": size, "state": "inactive"} for address, size in blocks]
    path = written({"segments": [segment(blocks=content)]}, tmp_path)
    if fit:
        (held,) = read_torch_snapshot(path).devices[0].segments
        assert [(block.address, block.size) for block in held.blocks] == blocks
    else:
        with pytest.raises(TraceError, match="blocks: address"):
            read_torch_snapshot(path)


def test_blocks_of_older_releases_have_a_history_the_last_first(tmp_path: Path) -> None:
    history = [{"real_size": 700, "frames": FRAMES}, {"real_size": 100, "frames": []}]
    blocks = [
        {"size": 1024, "state": "active_pending_free", "history": history},
        {"size": 1024, "state": "inactive", "history": []},
        {"size": 512, "state": "active_allocated", "requested_size": 9000},
    ]
    found = read_torch_snapshot(written({"segments": [segment(blocks=blocks)]}, tmp_path))
    (held,) = found.devices[0].segments
    assert [(block.address, block.requested) for block in held.blocks] == [(4096, 700), (5120, 1024), (6144, 512)]
    assert [(block.active, block.allocated) for block in held.blocks] == [(True, False), (False, False), (True, True)]
    assert [len(found.stacks[block.stack]) for block in held.blocks] == [2, 0, 0]
