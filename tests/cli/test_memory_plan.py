"""Test ``ms-tune memory plan`` and ``import-memlog`` from their arguments to their output."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ms_tune.cli.main import main
from ms_tune.errors import ExitCode
from ms_tune.memory.plan import read_placement_csv
from ms_tune.packing import engine
from ms_tune.packing.engine import NumpyEngine
from ms_tune.text import msg
from tests.readers.memlogs import training
from tests.readers.samples import SMALL

STEPS = Path(__file__).parents[1] / "data" / "placement" / "steps.csv"
REQUIRED = {"blocks", "lower_bound_bytes", "height_bytes", "gap", "seconds", "valid"}


def run_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main(["memory", *map(str, arguments), "--json"]) == ExitCode.OK
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, "plan", STEPS)
    assert result.keys() >= REQUIRED
    # At tick 50: weights, optimizer, input2, hidden2, gradient2.
    assert (result["blocks"], result["lower_bound_bytes"], result["height_bytes"]) == (10, 19456, 19456)
    assert (result["gap"], result["valid"], result["optimal"]) == (0.0, True, True)


@pytest.mark.parametrize("name", ["asc2", "asc2/memory_block.csv"])
def test_a_trace_by_folder_and_by_file(capsys: pytest.CaptureFixture[str], name: str) -> None:
    result = run_json(capsys, "plan", SMALL / name)
    assert (result["blocks"], result["lower_bound_bytes"], result["valid"]) == (70, 2954752, True)
    assert result["height_bytes"] >= result["lower_bound_bytes"]
    assert result["recorded_bytes"] >= result["height_bytes"]


def test_the_plan_is_written_and_read_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table, file = tmp_path / "plan.csv", tmp_path / "plan.json"
    result = run_json(capsys, "plan", STEPS, "--csv", table, "--plan", file)
    assert read_placement_csv(table) == read_placement_csv(STEPS)
    with table.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert max(int(row["offset"]) + int(row["size"]) for row in rows) == result["height_bytes"]
    assert all(int(row["offset"]) % int(row["alignment"]) == 0 for row in rows)
    written = json.loads(file.read_text(encoding="utf-8"))
    assert {key: written[key] for key in REQUIRED - {"seconds"}} == {key: result[key] for key in REQUIRED - {"seconds"}}
    assert [(row["id"], int(row["offset"])) for row in rows] == [(row["id"], row["offset"]) for row in written["plan"]]


def test_pictures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    run_json(capsys, "plan", STEPS, "--html", page)
    text = page.read_text(encoding="utf-8")
    assert "default-src &#x27;none&#x27;" in text
    assert "<script" not in text
    assert not re.search(r"(?:src|href)=", text)
    assert text.count("<title>block") == text.count("<title>块") == 10
    for word in ("lower bound", "下界", "optimizer"):
        assert word in text


def test_names_cannot_break_out_of_the_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    problem = tmp_path / "evil.csv"
    problem.write_text("id,lower,upper,size\n<script>alert(1)</script>,0,9,4096\n", encoding="utf-8")
    run_json(capsys, "plan", problem, "--html", tmp_path / "x.html")
    assert "<script" not in (tmp_path / "x.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("language", "word"), [("en", "no two live blocks overlap"), ("zh", "没有两个同时存活的块重叠")]
)
def test_what_is_shown(capsys: pytest.CaptureFixture[str], language: str, word: str) -> None:
    assert main(["memory", "plan", "--lang", language, str(SMALL / "asc2")]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert word in shown
    assert "MindSpore 2.10" in shown


@pytest.mark.parametrize(("capacity", "code"), [("19456B", ExitCode.OK), ("19455B", ExitCode.FINDINGS)])
def test_a_capacity(capsys: pytest.CaptureFixture[str], capacity: str, code: ExitCode) -> None:
    assert main(["memory", "plan", str(STEPS), "--capacity", capacity, "--json"]) == code
    assert json.loads(capsys.readouterr().out)["fits"] is (code is ExitCode.OK)


def test_without_a_compiler_it_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    reason = msg("placement.not-loaded", detail="no")
    monkeypatch.setattr(engine, "best_engine", lambda: (NumpyEngine(), reason))
    assert main(["memory", "plan", str(STEPS), "--json"]) == ExitCode.OK
    captured = capsys.readouterr()
    assert json.loads(captured.out)["engine"] == "numpy"
    assert json.loads(captured.out)["valid"]
    assert "without the compiled core" in captured.err


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "1e3", "x"])
def test_time_limits_that_are_none(capsys: pytest.CaptureFixture[str], limit: str) -> None:
    assert main(["memory", "plan", str(STEPS), f"--time-limit={limit}"]) == ExitCode.USAGE
    assert "--time-limit" in capsys.readouterr().err


def test_broken_rows_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "problem.csv"
    path.write_text("id,lower,upper,size\n0,5,5,1\n", encoding="utf-8")
    assert main(["memory", "plan", str(path)]) == ExitCode.USAGE
    assert f"{path}:2" in capsys.readouterr().err


def test_files_are_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    path.write_text("mine", encoding="utf-8")
    assert main(["memory", "plan", str(STEPS), "--csv", str(path)]) == ExitCode.USAGE
    assert path.read_text(encoding="utf-8") == "mine"
    assert main(["memory", "plan", str(STEPS), "--csv", str(path), "--force"]) == ExitCode.OK


def test_a_log_of_stalloc(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mem_log_dev0.txt"
    path.write_text(training(0).text(), encoding="utf-8")
    result = run_json(capsys, "import-memlog", path, "--csv", tmp_path / "blocks.csv")
    assert (result["iterations"], result["micro_batches"], result["layers"]) == (3, 2, 3)
    assert result["parts"].keys() >= {"weights", "optimizer", "saved", "temporary", "activations"}
    assert result["torch"]["reserved_bytes"] >= result["torch"]["allocated_bytes"]
    assert result["plan"].keys() >= REQUIRED
    assert len(read_placement_csv(tmp_path / "blocks.csv")) == result["allocations"]
    for language, word in (("en", "theoretical peak"), ("zh", "理论峰值")):
        assert main(["memory", "import-memlog", str(path), "--lang", language]) == ExitCode.OK
        assert word in capsys.readouterr().out


def test_a_folder_of_logs_and_what_they_lack(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    folder.mkdir()
    assert main(["memory", "import-memlog", str(tmp_path)]) == ExitCode.USAGE
    assert "mem_log_dev" in capsys.readouterr().err
    (folder / "mem_log_dev10.txt").write_text("1 0x10 600 0\n0 0x10 600 0\n", encoding="utf-8")
    (folder / "mem_log_dev2.txt").write_text(training(0).text(), encoding="utf-8")
    first, second = run_json(capsys, "import-memlog", tmp_path)["devices"]
    assert (first["file"], first["missing"]) == (str(folder / "mem_log_dev2.txt"), [])
    assert second["missing"] == ["iteration", "micro-batch", "layer"]
    assert main(["memory", "import-memlog", str(tmp_path)]) == ExitCode.OK
    assert "no iteration markers" in capsys.readouterr().out
    assert main(["memory", "import-memlog", str(tmp_path), "--csv", str(tmp_path / "b.csv")]) == ExitCode.USAGE


def test_a_broken_log_is_named_by_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mem_log_dev0.txt"
    path.write_text("1 0x10 600 0\nrubbish\n", encoding="utf-8")
    assert main(["memory", "import-memlog", str(path)]) == ExitCode.USAGE
    assert f"{path}:2" in capsys.readouterr().err
