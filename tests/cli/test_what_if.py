"""Test ``ms-tune memory what-if`` from its arguments to its output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ms_tune.cli.main import main
from ms_tune.report.console import text_width
from tests.pools.recorded import PACKED
from tests.readers.samples import SMALL, folder

GRAPH = PACKED / "graph_set_memory"
STREAMS = "two_streams/rank_0"
RECORDED = (6, 7)  # actual_used_memory, actual_peak_memory


def run(*arguments: str | Path) -> int:
    return main(["memory", "what-if", *map(str, arguments)])


def report(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    code = run("--json", *arguments)
    assert code in (0, 1)
    out, _ = capsys.readouterr()
    result: dict[str, Any] = json.loads(out)
    return result


def test_json_is_what_scripts_were_promised(capsys: pytest.CaptureFixture[str]) -> None:
    result = report(capsys, GRAPH / "memory_block.csv")
    figures = {"used_bytes", "actual_bytes", "reserved_bytes", "fits", "verdict"}
    assert set(result["recorded"]) == figures
    assert isinstance(result["settings"], list)
    assert all(set(entry) == {"setting", *figures} for entry in result["settings"])
    assert result["mismatches"] == {"address": 0, "used": 0, "actual": 0}
    inferred = result["inferred_settings"]
    assert isinstance(inferred, dict)
    assert (inferred["init_size_bytes"], inferred["increase_size_bytes"]) == (2 * 1024**3, 5 * 1024**3)


@pytest.mark.drawn(4)
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("run_name", ["graph_set_memory", "streams_empty_cache", "limit_6gb", "small_pool", STREAMS])
def test_it_is_readable_at_80_columns(
    run_name: str, language: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    place = folder(run_name) if run_name == STREAMS else PACKED / run_name
    run("-v", "--lang", language, place)
    out, err = capsys.readouterr()
    assert err == ""
    copied = ("ms.runtime.set_memory(", "export MS_ALLOC_CONF", "context: {")
    too_wide = [line for line in out.splitlines() if text_width(line) > 80 and not line.lstrip().startswith(copied)]
    assert too_wide == []
    assert "0 mismatches" in out or "0 处不符" in out
    run("--lang", language, place)
    short = capsys.readouterr().out.splitlines()
    assert len(short) <= 8
    assert all(text_width(line) <= 80 or line.lstrip().startswith(copied) for line in short)
    run("-q", "--lang", language, place)
    assert capsys.readouterr().out.splitlines() == short[:1] == out.splitlines()[:1]


def test_waste_is_a_finding_with_the_line_that_mends_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-v", GRAPH) == 1
    out, _ = capsys.readouterr()
    assert "[MSM301]" in out
    assert "export MS_ALLOC_CONF=enable_vmm:True" in out
    assert 'ms.runtime.set_memory(init_size="2GB", increase_size=' in out
    result = report(capsys, GRAPH)
    (finding,) = result["findings"]
    assert (finding["id"], finding["name"], finding["severity"]) == ("MSM301", "pool-waste", "warning")


def test_a_limit_of_the_users_decides_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    roomy, narrow = (report(capsys, "--max-memory", size, GRAPH) for size in ("58GB", "1GB"))
    assert roomy["limit_bytes"] == 58 * 1024**3
    assert roomy["recorded"]["fits"] is True
    assert narrow["recorded"]["fits"] is False
    assert narrow["limit_by"] == "user"


def test_the_log_shows_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    result = report(capsys, SMALL / "over_limit")
    assert (result["limit_bytes"], result["limit_by"]) == (4 * 1024**3, "log")
    assert result["best"] is None


def test_a_group_can_be_taken_away_or_sharded(capsys: pytest.CaptureFixture[str]) -> None:
    plain = report(capsys, SMALL / "asc2")
    gone = report(capsys, "--remove", "weights", SMALL / "asc2")
    (scenario,) = gone["scenarios"]
    assert (scenario["scenario"], scenario["subject"]) == ("remove", "weights")
    assert scenario["used_bytes"] < plain["recorded"]["used_bytes"]
    shared = report(capsys, "--shard", "weights", "--parts", "4", SMALL / "asc2")
    (scenario,) = shared["scenarios"]
    assert scenario["parts"] == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--remove", "no-such-*"], "no-such-*"),
        (["--parts", "2"], "--shard"),
        (["--recompute-layers", "2"], "layer"),
        (["--rank", "7"], "rank 7"),
        (["--max-memory", "many"], "many"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments, GRAPH) == 2
    _, err = capsys.readouterr()
    assert said in err


def test_a_trace_of_the_cpu_is_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = (GRAPH / "memory_block.csv").read_text(encoding="utf-8").splitlines(keepends=True)[0]
    (tmp_path / "memory_block.csv").write_text(head, encoding="utf-8")
    assert run(tmp_path) == 2
    assert "CPU" in capsys.readouterr().err


@pytest.mark.slow
def test_a_trace_of_another_pool_is_said_to_be_unexplained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (GRAPH / "memory_block.csv").read_text(encoding="utf-8").splitlines()
    for number in range(50, 300):
        cells = lines[number].split(",")
        cells[2] = hex(0x100000000 + number * number * 4096)
        lines[number] = ",".join(cells)
    (tmp_path / "memory_block.csv").write_text("\n".join([*lines, ""]), encoding="utf-8")
    result = report(capsys, tmp_path)
    assert result["mismatches"]["address"] > 0
    # the run's figures as recorded, none of the closest guess
    peaks = [max(int(line.split(",")[column]) for line in lines[1:]) for column in RECORDED]
    assert [result["recorded"][f"{name}_bytes"] for name in ("used", "actual", "reserved")] == [*peaks, None]
    assert result["causes"] is result["inferred_settings"] is None
    run(tmp_path)
    assert "No known setting reproduces" in capsys.readouterr().out
    run("-v", tmp_path)
    assert "no known setting reproduces" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("command", [[], ["plan", "--time-limit", "1"], ["what-if"]])
def test_derived_releases_are_said_and_agree_with_what_was_used(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """MindSpore's log says 408 MiB used, 580 MiB with fragments; the sum of the recorded lives is 828 MiB."""
    path = str(folder(STREAMS))
    main(["memory", *command, path])
    out = capsys.readouterr().out
    assert "lacks the release of 24 blocks" in out
    assert ("0.398            0.566         2.000" if command == ["what-if"] else "408.0 MiB") in out
    main(["memory", *command, path, "--lang", "zh"])
    assert "缺少 24 个内存块的释放记录" in capsys.readouterr().out
