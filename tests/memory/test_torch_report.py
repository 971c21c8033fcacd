"""Test reports about snapshots of PyTorch's allocator, by the command line."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from ms_tune.cli.main import main
from ms_tune.units import MIB
from tests.pools.test_torch_replay import NPU, NPU_EXPANDABLE
from tests.pools.torch_recordings import LEAK, TRAIN, Program

CAPTURE = pytest.CaptureFixture[str]


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    return saved(Program(NPU, seed=5).run(), tmp_path / "snapshot.pickle")


def saved(program: Program, path: Path, **changes: object) -> Path:
    path.write_bytes(pickle.dumps({**program.snapshot(), **changes}, protocol=4))
    return path


@pytest.mark.parametrize("form", ["snapshot_2026-11-30-10-1{}_{}.pickle", "rank{1}_memory_snapshot_{0}.pickle"])
def test_folder_of_ranks(tmp_path: Path, capsys: CAPTURE, form: str) -> None:
    for time, rank, seed in ((0, 0, 9), (5, 0, 5), (5, 1, 6), (5, 3, 5)):  # the older one of rank 0 does not count
        saved(Program(NPU, seed=seed).run(), tmp_path / form.format(time, rank))
    alone = [run_json(capsys, tmp_path / form.format(5, rank))["reserved_peak_bytes"] for rank in (0, 1, 3)]
    found = run_json(capsys, tmp_path)
    assert [(one["rank"], one["reserved_peak_bytes"]) for one in found["ranks"]] == list(
        zip((0, 1, 3), alone, strict=True)
    )
    assert found["reserved_peak_bytes"] == max(alone)
    (tmp_path / form.format(5, 2)).write_text("damaged")
    assert main(["memory", "--lang", "en", str(tmp_path)]) == 2  # the others are shown
    out = capsys.readouterr().out
    assert "0, 3" in out
    assert "not read: " in out
    assert run_json(capsys, tmp_path, "--rank", 1)["reserved_peak_bytes"] == alone[1]
    assert main(["memory", str(tmp_path), "--rank", "9"]) == 2


def run_json(capsys: CAPTURE, *arguments: object, code: int = 0) -> dict[str, Any]:
    assert main(["memory", *map(str, arguments), "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_peak_is_the_allocators_and_its_parts_add_up(snapshot: Path, capsys: CAPTURE) -> None:
    found = run_json(capsys, snapshot)
    assert found["replay"]["differences"] == 0
    assert found["replay"]["refused_because"] is None
    assert found["replay"]["settings"]["npu"] is True
    assert found["peak_bytes"] >= found["requested_peak_bytes"]
    assert sum(place["bytes"] for place in found["contents"]) == found["peak_bytes"]
    assert found["cached_bytes"] == found["reserved_peak_bytes"] - found["peak_bytes"] or found["cached_bytes"] >= 0
    places = {place["where"] for place in found["contents"]}
    assert places <= {"/workspace/train.py:18", "/workspace/train.py:12", None}
    leak = found["survivors"][0]
    assert (leak["where"], leak["count"], leak["leak"]) == ("/workspace/train.py:12", 3, True)
    assert leak["bytes"] >= 3 * (4 * MIB + 512)  # with the remainders that were not split off
    assert 0 <= found["growths_by_fragments"] <= found["growths"]


def test_blocks_of_the_backward_pass_are_no_leak(tmp_path: Path, capsys: CAPTURE) -> None:
    program = Program(NPU, seed=5).run()
    text = pickle.dumps(program.snapshot(), protocol=0).replace(str(LEAK[0]["filename"]).encode(), b"??")
    (tmp_path / "s.pickle").write_bytes(text)
    assert not [one for one in run_json(capsys, tmp_path / "s.pickle")["survivors"] if one["leak"]]


def test_memory_after_an_event(snapshot: Path, capsys: CAPTURE) -> None:
    found = run_json(capsys, snapshot, "--at", "1")
    assert (found["event"], len(found["contents"])) == (1, 1)
    assert main(["memory", str(snapshot), "--at", "999999"]) == 2
    assert "event 999999 does not exist" in capsys.readouterr().err
    assert main(["memory", str(snapshot), "--device", "5"]) == 2
    assert main(["memory", str(snapshot), "--rank", "0"]) == 2


def test_a_snapshot_without_a_recording_has_no_peak(tmp_path: Path, capsys: CAPTURE) -> None:
    program = Program(NPU, seed=5).run()
    path = saved(program, tmp_path / "s.pickle", device_traces=[[]])
    found = run_json(capsys, path)
    assert (found["peak_bytes"], found["reserved_peak_bytes"], found["events"]) == (None, None, 0)
    assert "_record_memory_history()" in found["replay"]["refused_because"]
    assert found["contents"]
    assert main(["memory", str(path), "--lang", "en"]) == 0
    out = capsys.readouterr().out
    assert "requested, in use" in out
    assert "at the time of the snapshot" in out
    assert "peak" not in out
    assert "event -1" not in out
    assert "replayed: 0" not in out
    assert main(["memory", "what-if", str(path)]) == 2
    assert "no events were recorded" in capsys.readouterr().err


def test_what_was_held_before_the_first_event_is_called_that(tmp_path: Path, capsys: CAPTURE) -> None:
    program = Program(NPU, seed=5).run()
    frees = [event for event in program.events if event["action"] == "free_completed"][-1:]
    path = saved(program, tmp_path / "s.pickle", device_traces=[frees])
    assert run_json(capsys, path)["requested_peak_event"] == -1
    assert main(["memory", str(path), "--lang", "en"]) == 0
    out = capsys.readouterr().out
    assert "before the first event" in out
    assert "event -1" not in out


def test_what_cannot_be_replayed_is_said(tmp_path: Path, capsys: CAPTURE) -> None:
    program = Program(NPU, seed=5).run()
    program.events[-5]["addr"] += 512
    path = saved(program, tmp_path / "s.pickle")
    found = run_json(capsys, path)
    assert found["peak_bytes"] is None
    assert found["cached_bytes"] is None
    assert found["requested_peak_bytes"] == sum(place["bytes"] for place in found["contents"])
    assert found["replay"]["differences"] > 0
    assert found["replay"]["refused_because"]
    assert main(["memory", "what-if", str(path)]) == 2
    assert "cannot be replayed exactly" in capsys.readouterr().err
    assert main(["memory", str(path)]) == 0
    assert "own figures are omitted" in capsys.readouterr().out


def test_a_recording_from_the_middle(tmp_path: Path, capsys: CAPTURE) -> None:
    # One block of 4 MiB that is freed: nothing is allocated after it, so that it may have ended 1 MiB later.
    base, freed = 1 << 40, {"addr": 1 << 40, "size": 4 * MIB, "stream": 0}
    hole = {"address": base, "size": 20 * MIB, "requested_size": 0, "state": "inactive"}
    segment = {"address": base, "total_size": 20 * MIB, "stream": 0, "segment_type": "large", "blocks": [hole]}
    events = [{"action": action, **freed} for action in ("free_requested", "free_completed")]
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [events]}, protocol=4))
    found = run_json(capsys, path)
    assert (found["peak_bytes"], found["replay"]["uncertain_bytes"]) == (4 * MIB, MIB)
    assert main(["memory", str(path)]) == 0
    assert "the peak may be up to 1.0 MiB higher" in " ".join(capsys.readouterr().out.split())
    # An allocation at another address than this allocator's: not replayed, but the segments are recorded.
    events.append({"action": "alloc", **freed, "addr": base + 2 * MIB})
    live = [
        {**hole, "size": 2 * MIB},
        {**hole, "address": base + 2 * MIB, "size": 18 * MIB, "state": "active_allocated"},
    ]
    whole = {"segments": [{**segment, "blocks": live}], "device_traces": [events]}
    path.write_bytes(pickle.dumps(whole, protocol=4))
    found = run_json(capsys, path)
    assert (found["peak_bytes"], found["reserved_peak_bytes"]) == (None, 20 * MIB)


def test_other_settings(snapshot: Path, capsys: CAPTURE) -> None:
    found = run_json(capsys, "what-if", snapshot)
    assert [one["recorded"] for one in found["outcomes"]] == [True, False, False, False, False]
    assert found["error_of_start_bytes"] == 0
    assert found["outcomes"][0]["reserved_peak_bytes"] == found["reserved_peak_bytes"]
    asked = run_json(capsys, "what-if", snapshot, "--expandable", "--limit", "64GiB")
    assert [one["expandable_segments"] for one in asked["outcomes"]] == [False, True]
    assert asked["outcomes"][1] == {**found["outcomes"][1]}
    tight = run_json(capsys, "what-if", snapshot, "--max-split-size-mb", "20", "--limit", "30MiB", code=1)
    assert tight["outcomes"][1]["over_limit"] is True
    assert main(["memory", "what-if", str(snapshot), "--no-expandable", "--keep-cache", "-v"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("best: ")
    assert "without empty_cache" in text
    assert "replayed: " in text


def test_two_snapshots(snapshot: Path, tmp_path: Path, capsys: CAPTURE) -> None:
    assert not run_json(capsys, "diff", snapshot, snapshot)["changes"]
    other = saved(Program(NPU_EXPANDABLE, seed=6).run(), tmp_path / "other.pickle")
    found = run_json(capsys, "diff", snapshot, other, code=1)
    change = found["after"]["peak_bytes"] - found["before"]["peak_bytes"]
    assert sum(each["change_bytes"] for each in found["changes"]) == change
    assert main(["memory", "diff", str(snapshot), str(tmp_path)]) == 2
    assert main(["memory", "diff", str(snapshot), str(other)]) == 1
    assert "train.py:18" in capsys.readouterr().out


def test_a_comparison_says_which_figures_it_compares(snapshot: Path, tmp_path: Path, capsys: CAPTURE) -> None:
    program = Program(NPU, seed=6).run()
    bare = saved(program, tmp_path / "bare.pickle", device_traces=[[]])
    program.events[-5]["addr"] += 512
    unlike = saved(program, tmp_path / "unlike.pickle")
    measures = []
    for path in (snapshot, bare, unlike):
        found = run_json(capsys, "diff", path, snapshot, code=int(path != snapshot))
        one, other = found["before"], found["after"]
        measures.append((one["compared"], one["compared_event"] is None))
        assert sum(each["change_bytes"] for each in found["changes"]) == other["compared_bytes"] - one["compared_bytes"]
        assert other["compared_bytes"] == other["peak_bytes"]
    assert measures == [("used-peak", False), ("used-then", True), ("requested-peak", False)]
    assert main(["memory", "diff", str(bare), str(bare), "--lang", "en"]) == 0
    assert "peak" not in capsys.readouterr().out
    assert main(["memory", "diff", str(bare), str(unlike), "--lang", "en"]) == 1
    out = capsys.readouterr().out
    assert "before: in use (at the time of the snapshot); after: requested peak (after event " in out
    assert "one side has the allocator's block sizes" in out


def test_events_of_an_unknown_action_are_named(tmp_path: Path, capsys: CAPTURE) -> None:
    program = Program(NPU, seed=2).run()
    known = [{"action": action, "frames": TRAIN} for action in ("user_defined", "workspace_snapshot", "snapshot")]
    program.events += [*known, *[{"action": "segment_\x1b[2Jmoved", "addr": 512, "size": 4}] * 3, {"action": "x" * 99}]
    path = saved(program, tmp_path / "s.pickle")
    found = run_json(capsys, path)
    assert found["unknown_actions"] == {"segment_\x1b[2Jmoved": 3, "x" * 40: 1}
    assert found["replay"]["differences"] == 0
    assert main(["memory", str(path), "--lang", "en"]) == 0
    out = capsys.readouterr().out
    assert f"skipped 4 events with unknown actions ('segment_\\x1b[2Jmoved' (3), '{'x' * 40}' (1))" in out
    for number in range(9):
        program.events.append({"action": f"a{number}"})
    assert main(["memory", "what-if", str(saved(program, tmp_path / "s.pickle"))]) == 0
    assert "'a2' (1), …); memory" in capsys.readouterr().out


def test_both_languages_and_an_oom(tmp_path: Path, capsys: CAPTURE) -> None:
    program = Program(NPU, seed=2).run(1)
    program.events.append({"action": "oom", "device_free": 3 * MIB, "size": 40 * MIB, "stream": 0, "frames": TRAIN})
    path = saved(program, tmp_path / "oom_snapshot_1_20260101000000.pickle")
    assert run_json(capsys, path)["out_of_memory"][0]["device_free_bytes"] == 3 * MIB
    for language, words in (("en", "out of memory; 40.0 MiB requested"), ("zh", "设备内存不足；申请 40.0 MiB")):
        assert main(["--lang", language, "memory", str(path)]) == 0
        assert words in capsys.readouterr().out
    assert LEAK


def test_settings_of_pytorch_are_refused_for_traces(tmp_path: Path, capsys: CAPTURE) -> None:
    assert main(["memory", "what-if", str(tmp_path), "--expandable"]) == 2
    assert "--expandable" in capsys.readouterr().err
    assert main(["memory", str(tmp_path), "--device", "1"]) == 2
