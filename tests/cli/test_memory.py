"""Test ``ms-tune memory`` from its arguments to its output."""

from __future__ import annotations

import csv
import io
import itertools
import json
import pickle
import pickletools
import re
from pathlib import Path
from typing import Any

import pytest

from ms_tune.cli.main import main
from ms_tune.errors import ExitCode
from ms_tune.report.console import text_width
from tests.memory.reports import LLAMA, QWEN_TINY
from tests.readers.samples import SMALL, folder

REQUIRED = {
    *("peak_bytes", "peak_tick", "footprint_bytes", "rows", "rows_dropped", "joined_rows", "categories_at_peak"),
    *("late_frees", "steps", "findings"),
}


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    main(["memory", *arguments, "--json"])
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, str(SMALL / "asc2"))
    assert set(result) >= REQUIRED
    assert (result["peak_bytes"], result["peak_tick"], result["rows"], result["rows_dropped"]) == (2954752, 159, 70, 0)
    assert list(result["categories_at_peak"]) == [
        *("weights", "optimizer_state", "gradients", "activations", "temporaries", "workspace", "communication"),
        *("constants", "unattributed"),
    ]
    assert sum(result["categories_at_peak"].values()) == result["peak_bytes"]


@pytest.mark.slow
def test_json_of_several_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, str(folder(QWEN_TINY)))
    assert [(rank["rank"], rank["stage"]) for rank in result["ranks"]] == [(0, 0), (4, 1)]
    assert (result["rank"], result["joined_rows"], result["steps"]) == (0, 8320, 8)
    assert run_json(capsys, str(folder(QWEN_TINY)), "--rank", "4")["rank"] == 4


def test_at_a_tick(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, str(SMALL / "asc2"), "--at", "50")
    assert result["at"]["tick"] == 50
    assert 0 < sum(result["at"]["categories"].values()) < result["peak_bytes"]
    assert main(["memory", str(SMALL / "asc2"), "--at", "99999999999", "--rank", "7"]) == ExitCode.USAGE


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["80", "140", None])
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("run", [SMALL / "asc2", SMALL / "nn_cnn_pynative", LLAMA, QWEN_TINY], ids=str)
def test_the_screen_has_twenty_lines(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    run: Path | str,
    language: str,
    columns: str | None,
) -> None:
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    path = folder(run) if isinstance(run, str) else run
    main(["memory", str(path), "--lang", language])
    lines = capsys.readouterr().out.splitlines()
    assert 12 <= len(lines) <= 20
    assert lines[0].startswith({"en": "memory: ", "zh": "结论："}[language])
    assert lines[-1].startswith({"en": "next: ", "zh": "下一步："}[language])
    for line in lines:
        assert columns is None or text_width(line) <= int(columns) or "ms-tune" in line
        assert not re.match(r" *[KMG]iB", line), "a unit without its number"
    for heading in {"en": ("Largest allocations", "Ways to reduce"), "zh": ("最大的占用者", "可降低")}[language]:
        assert any(line.startswith(heading) for line in lines)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_terminal(capsys: pytest.CaptureFixture[str], language: str) -> None:
    assert main(["memory", str(folder(LLAMA)), "-v", "--lang", language]) == ExitCode.OK
    shown = capsys.readouterr().out
    for text in ("13.17 GiB", "14.74 GiB", "█", "┆", "MatMulExt", "/workspace/llama.py:58", "MSM201", "MSM203"):
        assert text in shown
    assert "late-free" not in shown
    assert "{" not in shown
    assert ("峰值" in shown) == (language == "zh")


def test_what_does_not_fit_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", str(SMALL / "over_limit")]) == ExitCode.FINDINGS
    assert "memory: exceeds the limit. Needs 8.0 GiB, usable 4.0 GiB (over by 4.0 GiB)" in capsys.readouterr().out
    assert main(["memory", str(SMALL / "asc2"), "--device-memory", "1MB"]) == ExitCode.FINDINGS


def test_a_run_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = (SMALL / "asc2" / "memory_block.csv").read_text().splitlines()[0]
    (tmp_path / "memory_block.csv").write_text(header + "\n")
    assert main(["memory", str(tmp_path), "--html", str(tmp_path / "r.html"), "--csv", str(tmp_path / "b.csv")]) == 2
    assert "CPU" in capsys.readouterr().out
    assert run_json(capsys, str(tmp_path))["peak_bytes"] == 0
    for name in ("t.json", "s.pickle"):
        option = "--perfetto" if name == "t.json" else "--snapshot"
        assert main(["memory", "export", str(tmp_path), option, str(tmp_path / name)]) == ExitCode.OK


def test_refused_rows_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (SMALL / "asc2" / "memory_block.csv").read_text().splitlines()
    lines[5] = "damaged"
    (tmp_path / "memory_block.csv").write_text("\n".join(lines[:40]) + "\n" + lines[40][:30])
    result = run_json(capsys, str(tmp_path))
    assert (result["rows_dropped"], result["truncated"]) == (2, True)
    assert [row["line"] for row in result["dropped"]] == [6, 41]
    assert "rows-dropped" in [finding["name"] for finding in result["findings"]]


def test_csv_and_overwriting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "blocks.csv"
    command = ["memory", str(folder("gpt")), "--csv", str(path)]
    assert main(command) == ExitCode.OK
    assert main(command) == ExitCode.USAGE
    assert main([*command, "--force"]) == ExitCode.OK
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    peak = run_json(capsys, str(folder("gpt")))["peak_bytes"] if capsys.readouterr() else 0
    assert sum(int(row["bytes"]) for row in rows) == peak
    assert any(row["tensor"].startswith("Float32[") for row in rows)
    assert main(["memory", str(SMALL / "asc2"), "--csv", str(tmp_path / "no" / "b.csv")]) == ExitCode.USAGE


def test_diff(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    one, other = str(SMALL / "asc2"), str(SMALL / "v_simple")
    assert main(["memory", "diff", one, one]) == ExitCode.OK
    assert main(["memory", "diff", one, other, "--html", str(tmp_path / "d.html")]) == ExitCode.FINDINGS
    capsys.readouterr()
    main(["memory", "diff", one, other, "--json"])
    (pair,) = json.loads(capsys.readouterr().out)["ranks"]
    assert sum(change["change_bytes"] for change in pair["changes"]) == pair["change_bytes"] == -512


@pytest.mark.slow
def test_perfetto(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    assert main(["memory", "export", str(folder(QWEN_TINY)), "--perfetto", str(path)]) == ExitCode.OK
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    used = [sum(event["args"].values()) for event in events if event["name"] == "memory in use" and event["pid"] == 1]
    assert max(used) == 24386048
    assert {event["pid"] for event in events} == {1, 5}
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {1: "rank 0", 5: "rank 4"}
    for event in events:  # the trace event format: required fields of metadata, counter and complete events
        assert event["ph"] in "MCX"
        assert isinstance(event["name"], str)
        assert all(isinstance(event[key], int) for key in ("pid", "tid"))
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int) and value >= 0 for value in event["args"].values())
        if event["ph"] == "X":
            assert event["dur"] >= 0
    slices: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in events:
        if event["ph"] == "X":
            slices.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for track in slices.values():  # slices of one track must not overlap, or Perfetto drops them
        track.sort()
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(track))


# Opcodes of the viewer's own unpickler (PyTorch, torch/utils/viz/MemoryViz.js).
VIEWERS_OPCODES = {
    *("APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT", "BINUNICODE", "DICT"),
    *("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LIST", "LONG1", "LONG_BINGET", "LONG_BINPUT", "MARK"),
    *("MEMOIZE", "NEWFALSE", "NEWTRUE", "NONE", "PROTO", "SETITEM", "SETITEMS", "SHORT_BINUNICODE", "STOP", "TUPLE"),
    *("TUPLE1", "TUPLE2", "TUPLE3"),
}


def test_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    assert main(["memory", "export", str(folder(LLAMA)), "--snapshot", str(path)]) == ExitCode.OK
    raw = path.read_bytes()
    assert raw[:2] == b"\x80\x04"  # the viewer knows protocols 2 to 4
    assert {opcode.name for opcode, _, _ in pickletools.genops(raw)} <= VIEWERS_OPCODES

    class Plain(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as pickle has it
            raise AssertionError(module, name)

    snapshot = Plain(io.BytesIO(raw)).load()
    (events,) = snapshot["device_traces"]
    used = peak = 0
    addresses = set()
    for event in events:
        if event["action"] == "alloc":
            used += event["size"]
            addresses.add(event["addr"])
        elif event["action"] == "free_completed":
            used -= event["size"]
            addresses.discard(event["addr"])
        peak = max(peak, used)
    assert peak == 14141668352
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    active = [block for block in blocks if block["state"] == "active_allocated"]
    assert {block["address"] for block in active} == addresses
    assert sum(block["size"] for block in active) == used
    for segment in snapshot["segments"]:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]


@pytest.mark.slow
def test_export_wants_a_file_and_one_rank(tmp_path: Path) -> None:
    assert main(["memory", "export", str(SMALL / "asc2")]) == ExitCode.USAGE
    several = ["memory", "export", str(folder(QWEN_TINY)), "--snapshot", str(tmp_path / "s")]
    assert main(several) == ExitCode.USAGE
    assert main([*several, "--rank", "4"]) == ExitCode.OK
