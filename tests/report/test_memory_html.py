from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from html import unescape
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from ms_tune.memory.diff import compare_reports
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.report import memory_html
from ms_tune.report.memory_curve import bands_of, block_graph, thin_curve
from ms_tune.report.memory_html import pack_rank_blocks, report_html
from ms_tune.text import Language
from tests.memory.reports import LLAMA, QWEN_8B, QWEN_TINY, rank_of, report_of


def unpacked(packed: str) -> dict[str, Any]:
    columns: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed)))
    return columns


def data_of(page: str) -> dict[str, Any]:
    (island,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    data: dict[str, Any] = json.loads(island)
    return data


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("uPlot.iife.min.js", "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"),
        ("uPlot.min.css", "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04"),
        ("LICENSE", "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd"),
    ],
)
def test_the_chart_library_is_uplot_1_6_32_unchanged(name: str, digest: str) -> None:
    assert hashlib.sha256((files("ms_tune") / "_vendor" / "uplot" / name).read_bytes()).hexdigest() == digest


def test_the_page_may_run_its_own_scripts_and_nothing_else() -> None:
    page = report_html(report_of(LLAMA), None, Language.EN)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    policy = unescape(policy)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        contents = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert len(contents) == 2
        for content in contents:
            digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in policy.split(directive)[1].split(";")[0]
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page)
    assert not re.search(r"<[^>]+ style=", page)


@pytest.mark.slow
def test_the_page_of_the_large_trace_is_small() -> None:
    page = report_html(report_of(QWEN_8B), None, Language.EN)
    assert len(page.encode()) < 5 * 1024**2
    assert data_of(page)["ranks"][0]["block_count"] == 97143


def test_the_page_does_not_show_where_its_trace_lay() -> None:
    report = report_of(LLAMA)
    ranks = data_of(report_html(report, None, Language.EN))["ranks"]
    is_told = str(report.worst.files.blocks.parent) in json.dumps(ranks)
    assert not is_told  # of texts of megabytes pytest would show a difference


@pytest.mark.slow
def test_texts_are_there_in_both_languages() -> None:
    data = data_of(
        report_html(report_of(QWEN_TINY), compare_reports(report_of(QWEN_TINY), report_of(QWEN_TINY)), Language.ZH)
    )
    assert data["language"] == "zh"
    assert all(text["en"] and text["zh"] for text in data["texts"].values())
    script = "".join(
        (files("ms_tune") / "report" / "templates" / name).read_text(encoding="utf-8")
        for name in (
            "memory_timeline.js",
            "memory_details.js",
            "memory_flame.js",
            "memory_addresses.js",
            "memory_tables.js",
        )
    )
    page = (files("ms_tune") / "report" / "templates" / "memory.html").read_text(encoding="utf-8")
    used = set(re.findall(r'say\("([\w.-]+)"', script)) | set(re.findall(r'data-[tp]="([\w-]+)"', page))
    assert used <= set(data["texts"])


@pytest.mark.slow
@pytest.mark.parametrize("run", ["asc2", "gpt", LLAMA, QWEN_TINY, QWEN_8B])
def test_packed_blocks_are_the_blocks(run: str) -> None:
    rank = rank_of(run)
    packed, count = pack_rank_blocks(rank)
    columns = unpacked(packed)
    assert count == len(rank.curve.rows)
    start = np.cumsum(columns["start"])
    rows = rank.curve.rows[np.argsort(rank.table.start[rank.curve.rows], kind="stable")]
    assert start.tolist() == rank.table.start[rows].tolist()
    life = np.array(columns["life"])
    assert np.where(life < 0, NEVER_FREED, start + life).tolist() == rank.table.end[rows].tolist()
    assert [columns["sizes"][code] for code in columns["size"]] == rank.table.size[rows].tolist()
    address = [int(columns["base"]) + units * columns["unit"] for units in columns["offset"]]
    assert address == rank.table.address[rows].tolist()
    for place in range(0, count, 501):
        parts: list[str] = []
        at = columns["leaf"][columns["node"][place]]
        while at >= 0:
            at, part = columns["tree"][at]
            parts.insert(0, part)
        assert "/".join(parts) == rank.table.node.value_at(int(rows[place]))
        assert columns["tensors"][columns["tensor"][place]] == rank.tensor_of(int(rows[place]))


def test_of_very_many_blocks_those_at_the_peak_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_html, "MOST_BLOCKS", 500)
    rank = rank_of(LLAMA)
    packed, count = pack_rank_blocks(rank)
    assert count == 500
    columns = unpacked(packed)
    start, life = np.cumsum(columns["start"]), np.array(columns["life"])
    size = np.array([columns["sizes"][code] for code in columns["size"]])
    alive = (start <= rank.curve.peak_tick) & ((life < 0) | (rank.curve.peak_tick < start + life))
    assert size[alive].sum() == rank.curve.peak_bytes


@pytest.mark.slow
@pytest.mark.parametrize("run", [LLAMA, QWEN_8B])
def test_thinned_curves_keep_their_extremes(run: str) -> None:
    rank = rank_of(run)
    ticks, used, _ = thin_curve(rank.curve, 1000)
    assert len(ticks) <= 1100
    assert max(used) == rank.curve.peak_bytes
    bands = bands_of(rank, 1000)
    totals = np.array(list(bands.used.values())).sum(axis=0)
    assert totals.tolist() == [rank.curve.bytes_at(tick) for tick in bands.tick]
    assert totals.max() == rank.curve.peak_bytes


def test_the_block_graph_reaches_its_top_at_the_peak() -> None:
    curve = rank_of(LLAMA).curve
    lines = block_graph(curve, 60, 5, [])
    assert len(lines) == 5
    assert all(len(line) == 60 for line in lines)
    first, last = int(curve.tick[0]), int(curve.tick[-1])
    column = (curve.peak_tick - first) * 60 // (last - first + 1)
    assert lines[0][column] == "█"


def test_a_shared_page_names_code_without_its_installation() -> None:
    page = report_html(report_of(LLAMA), None, Language.EN)
    (blocks,) = [unpacked(rank["blocks"]) for rank in data_of(page)["ranks"]]
    assert any(file.startswith("mindspore/") for file, _, _ in blocks["frames"])
    for text in (page, *(file for file, _, _ in blocks["frames"])):
        assert not re.search(r"(?:site|dist)-packages/|/lib/python3", text)
