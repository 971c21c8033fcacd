"""Test the page and the Perfetto file of a snapshot of PyTorch's allocator."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from ms_tune.cli.main import main
from ms_tune.footprint.torch_report import TorchReport, analyse_snapshot, compare_snapshots, trace_lives
from ms_tune.pools.torch_space import TorchSettings
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.report.memory_export import write_torch_perfetto
from ms_tune.report.torch_html import snapshot_html
from ms_tune.text import Language
from tests.memory.test_torch_report import saved
from tests.pools.test_torch_replay import NPU, NPU_EXPANDABLE
from tests.pools.torch_recordings import Program
from tests.report.test_memory_html import data_of, unpacked


def report_of(path: Path, at: int | None = None) -> TorchReport:
    return analyse_snapshot(path, None, at, lambda _what, _share: None)


@pytest.fixture
def report(tmp_path: Path) -> TorchReport:
    return report_of(saved(Program(NPU, seed=5).run(), tmp_path / "s.pickle"))


@pytest.mark.parametrize("settings", [NPU, NPU_EXPANDABLE, TorchSettings()])
def test_the_blocks_add_up_to_the_allocators_own_curve(settings: TorchSettings, tmp_path: Path) -> None:
    report = report_of(saved(Program(settings, seed=3).run(), tmp_path / "s.pickle"))
    lives = trace_lives(report)
    assert report.replay.is_exact
    for event in range(-1, len(report.device.events), 37):
        used = report.replay.used[event] if event >= 0 else sum(report.replay.start.live.values())
        assert int(lives.size[lives.live_after(event)].sum()) == used
    assert lives.curve.peak_bytes == report.peak_bytes
    assert lives.curve.footprint_bytes == report.reserved_peak_bytes


def test_the_page_has_the_blocks_and_the_figures(report: TorchReport) -> None:
    page = snapshot_html(trace_lives(report), None, Language.EN)
    data = data_of(page)
    (device,) = data["ranks"]
    lives = trace_lives(report)
    assert device["peak_bytes"] == report.peak_bytes == sum(device["categories_at_peak"].values())
    assert device["peak_tick"] == report.peak_event
    assert set(device["categories_at_peak"]) == set(data["contents"]) <= set(data["colours"])
    columns = unpacked(device["blocks"])
    start = np.cumsum(columns["start"])
    assert start.tolist() == lives.start.tolist()
    life = np.array(columns["life"])
    assert np.where(life < 0, NEVER_FREED, start + life).tolist() == lives.end.tolist()
    assert [columns["sizes"][code] for code in columns["size"]] == lives.size.tolist()
    at = device["bands"]["tick"].index(report.peak_event)
    assert sum(values[at] for values in device["bands"]["used"].values()) == report.peak_bytes
    assert device["verdict"]["word"] == {"en": "replayed exactly", "zh": "精确重放"}
    leak = next(card for card in data["findings"] if card["title"]["en"] == "Possible leak")
    assert leak["stack"] == [{"file": "/workspace/train.py", "line": 12, "function": "keep"}]
    assert all(data["texts"][f"content.{name}"]["zh"] for name in data["contents"])
    assert data["texts"]["when"] == {"en": "after event {tick}", "zh": "事件 {tick} 之后"}
    assert data["texts"]["make-up"]["en"] == "Memory by category at the peak"


def test_a_page_names_the_moment_that_it_is_about(tmp_path: Path) -> None:
    path = saved(Program(NPU, seed=5).run(), tmp_path / "s.pickle")
    early = data_of(snapshot_html(trace_lives(report_of(path, at=1)), None, Language.EN))["texts"]
    assert early["make-up"] == {"en": "Memory by category after event 1", "zh": "在事件 1 之后的内存构成"}
    assert early["held"]["en"] == "Memory after event 1: {parts}"
    assert early["go-peak"]["en"] == "go to that moment"
    assert early["when.start"]["en"] == "before the first event"
    bare = saved(Program(NPU, seed=5).run(), tmp_path / "bare.pickle", device_traces=[[]])
    data = data_of(snapshot_html(trace_lives(report_of(bare)), None, Language.EN))
    (device,), texts = data["ranks"], data["texts"]
    assert texts["make-up"] == {"en": "Memory by category at the time of the snapshot", "zh": "生成快照时的内存构成"}
    assert texts["when.start"]["en"] == "at the time of the snapshot"
    assert (device["held_at_peak"], device["remedies"], len(device["bands"]["tick"])) == ([], [], 1)
    assert device["verdict"]["word"]["en"] == "no history"
    assert device["peak_bytes"] == sum(device["categories_at_peak"].values()) > 0


def test_two_snapshots_on_a_page(report: TorchReport, tmp_path: Path) -> None:
    after = report_of(saved(Program(NPU_EXPANDABLE, seed=6).run(), tmp_path / "after.pickle"))
    changes = compare_snapshots(report, after)
    page = data_of(snapshot_html(trace_lives(after), (trace_lives(report), changes), Language.EN))
    (pair,) = page["comparison"]
    peaks = [f"peak (after event {each.peak_event})" for each in (report, after)]
    assert (
        page["texts"]["compare-peaks"]["en"] == f"Before: {peaks[0]} {{before}}; now: {peaks[1]} {{after}}; {{change}}"
    )
    assert (pair["before_bytes"], pair["after_bytes"]) == (report.peak_bytes, after.peak_bytes)
    assert (
        sum(one["after_bytes"] - one["before_bytes"] for one in pair["changes"])
        == pair["after_bytes"] - pair["before_bytes"]
    )
    assert max(pair["curve"]["used"]) == report.peak_bytes


def test_perfetto_has_the_peak_and_every_growth(report: TorchReport) -> None:
    file = io.StringIO()
    write_torch_perfetto(file, trace_lives(report))
    events = json.loads(file.getvalue())["traceEvents"]
    used = [sum(event["args"].values()) for event in events if event["name"] == "memory in use"]
    held = [event["args"]["bytes"] for event in events if event["name"] == "reserved" and event["ph"] == "C"]
    assert (max(used), max(held)) == (report.peak_bytes, report.reserved_peak_bytes)
    grown = [event["args"]["taken"] for event in events if "taken" in event.get("args", {})]
    assert grown == [cause.taken_bytes for cause in report.causes]
    blocks = [event for event in events if "address" in event.get("args", {})]
    assert len(blocks) == len(trace_lives(report).start)
    busy: dict[int, int] = {}
    for block in blocks:
        assert block["ts"] >= busy.get(block["tid"], -1)
        busy[block["tid"]] = block["ts"] + block["dur"]


def test_the_commands_write_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(Program(NPU, seed=5).run(), tmp_path / "s.pickle")
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    assert main(["memory", str(path), "--html", str(page)]) == 0
    assert main(["memory", "diff", str(path), str(path), "--html", str(page), "--force"]) == 0
    assert main(["memory", "export", str(path), "--perfetto", str(trace)]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    assert main(["memory", str(path), "--html", str(page)]) == 2
    assert main(["memory", "export", str(path), "--snapshot", str(tmp_path / "other.pickle")]) == 2
    assert "--snapshot applies to MindSpore traces" in capsys.readouterr().err
