"""Test ``ms-tune fit`` from its arguments to its output, with the files that it reads and writes."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from ms_tune.cli import fit_run
from ms_tune.cli.main import main
from ms_tune.enums import RecomputeMode
from ms_tune.errors import ExitCode
from ms_tune.planning import fit as planning_fit
from ms_tune.planning import search
from ms_tune.planning.fit import time_of
from ms_tune.planning.search import Effort
from ms_tune.planning.table import plan_of
from ms_tune.planning.table_file import read_table, table_json
from tests.metrics.profiles import Step
from tests.planning.tables import CASE_E, mb
from tests.planning.test_table_file import SAPP
from tests.readers.training_logs import megatron_log

KEYS = {
    *("fits", "plan", "time", "lower_bound", "optimal", "gap", "peak_bytes", "limit_bytes", "bubble", "relative_time"),
    *("reference", "effort", "seed", "stopped", "verified", "why", "alternatives", "notes", "table"),
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Write a public case to a file."""
    path = tmp_path / "table.json"
    path.write_text(json.dumps(table_json(CASE_E)), encoding="utf-8")
    return path


@pytest.fixture
def sapp(tmp_path: Path) -> Path:
    """Write SAPP's layers to a file; the first one has an unknown type."""
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({"layers_description": [{"name": "m", "type": "NONE"}]}), encoding="utf-8")
    return path


def run_json(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = ExitCode.OK) -> dict[str, Any]:
    assert main(["fit", *map(str, arguments), "--json"]) == code
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.mark.slow
def test_a_table_gives_a_plan_that_is_proved(capsys: pytest.CaptureFixture[str], table: Path, tmp_path: Path) -> None:
    result = run_json(capsys, "--table", table, "--effort", "quick")
    assert result.keys() >= KEYS
    assert (result["time"], result["lower_bound"], result["optimal"]) == (705.0, 705.0, True)
    assert max(result["peak_bytes"]) <= result["limit_bytes"] == mb(56_000)
    assert {len(row) for rows in result["plan"].values() for row in rows} == {4}
    assert len(result["why"]) == 3
    # The result is a table with a plan: in a second search, that plan is time 100.
    again = tmp_path / "again.json"
    again.write_text(json.dumps(result), encoding="utf-8")
    second = run_json(capsys, "--table", again, "--effort", "quick")
    assert second["reference"]["plan"] == result["plan"]
    assert second["relative_time"] == 100


@pytest.mark.slow
def test_a_table_is_planned_with_swap(capsys: pytest.CaptureFixture[str], table: Path, tmp_path: Path) -> None:
    data: dict[str, Any] = table_json(CASE_E)
    data["layers"][0]["recompute"]["swap"] = {"activation_bytes": 0, "swapped_bytes": mb(743.5)}
    page = tmp_path / "plan.html"
    data["plan"] = {"offset": [[0] * 4]}  # nothing is recomputed: a forward pass of a layer takes 40 ms
    table.write_text(json.dumps(data), encoding="utf-8")
    step = 0.04 * time_of(CASE_E, [{RecomputeMode.NONE: 20}] * 4)
    options = ("--effort", "quick", "--calibrate", f"step={step:.6f}s", "--swap-bandwidth", "20GB/s")
    found = run_json(capsys, "--table", table, *options, "--html", page)
    # 36.3 ms of copies are hidden behind 40 ms of computation: swap is free, and no recomputation is needed.
    assert found["time"] < 705.0
    assert found["optimal"]
    assert sum(map(sum, found["plan"]["swap"])) > 0
    assert not any(map(any, found["plan"]["recompute"]))
    assert "swap " in page.read_text(encoding="utf-8")
    assert main(["fit", "-v", "--table", str(table), *options]) == ExitCode.OK
    assert re.search(r"swap \d", capsys.readouterr().out)
    slow = run_json(capsys, "--table", table, *options[:-1], "800MB/s")
    assert "swap" not in slow["plan"]


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["80", "140"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_screen_has_twelve_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, table: Path, language: str, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["fit", "--table", str(table), "--effort", "quick", "--lang", language]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 12, lines


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_answer_comes_first_and_the_page_says_the_same(
    capsys: pytest.CaptureFixture[str], table: Path, tmp_path: Path, language: str
) -> None:
    page = tmp_path / "plan.html"
    arguments = ["fit", "--table", str(table), "--effort", "quick", "--html", str(page), "--lang", language]
    assert main(arguments) == ExitCode.OK
    shown = capsys.readouterr().out
    short = shown.splitlines()
    assert len(short) <= 12
    assert short[-1].startswith({"en": "next: ", "zh": "下一步："}[language])
    again = [one for one in arguments if one not in ("--html", str(page))]
    assert main([*again, "--quiet"]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines() == short[:1]
    assert main([*again, "--verbose"]) == ExitCode.OK
    long = capsys.readouterr().out
    assert long.splitlines()[0] == short[0]
    assert {"en": "About these figures:", "zh": "关于这些数字："}[language] in long
    assert short[-1] in long
    written = page.read_text(encoding="utf-8")
    lists = re.findall(r"^\w+: \[\[.*\]\]$", shown, re.MULTILINE)
    assert len(lists) == 4
    assert all(line in written for line in lists)
    assert "<script" not in written
    picture = ET.fromstring(re.search(r"<svg.*?</svg>", written, re.DOTALL)[0])  # type: ignore[index] # noqa: S314 - our own
    drawn = [one for one in picture.iter() if one.get("stroke") == "#fff"]
    assert len(drawn) == 2 * 4 * 8  # forward and backward of each micro-batch on each stage
    assert main(arguments) == ExitCode.USAGE  # the page exists already
    capsys.readouterr()


@pytest.mark.slow
def test_nothing_fits_is_exit_code_1_and_says_what_would_help(capsys: pytest.CaptureFixture[str], table: Path) -> None:
    result = run_json(capsys, "--table", table, "--limit", "16000MB", "--effort", "quick", code=ExitCode.FINDINGS)
    assert (result["fits"], result["plan"], result["time"]) == (False, None, None)
    assert 0 < result["shortage"]["at_least_bytes"] <= result["shortage"]["over_bytes"]
    assert [remedy["name"] for remedy in result["remedies"]] == ["micro-batch", "stages", "tensor"]
    assert main(["fit", "--table", str(table), "--limit", "16000MB"]) == ExitCode.FINDINGS
    shown = capsys.readouterr().out
    assert "No plan fits (proved for this memory table)" in shown
    assert "double TP: saves up to" in shown


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_prints_the_best_plan_so_far(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, table: Path, number: int, code: int
) -> None:
    calls = iter(range(1_000_000))
    stop = lambda *_: os.kill(os.getpid(), number) if next(calls) == 0 else None  # noqa: E731 - shorter
    monkeypatch.setattr(fit_run, "_show_search", stop)
    before = signal.getsignal(signal.SIGTERM)
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        result = run_json(capsys, "--table", table, code=code)
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert (result["stopped"], result["fits"], result["optimal"]) == (True, True, False)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
def test_the_layers_of_sapp_are_planned(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "layers.json"
    path.write_text(json.dumps(SAPP), encoding="utf-8")
    sizes = ("--stages", 16, "--micro-batches", 16, "--limit", "53000MB", "--order", "interleaved-less-memory")
    result = run_json(capsys, "--table", path, *sizes, "--effort", "quick")
    assert result["fits"]
    assert sum(result["plan"]["offset"][0]) == 0
    assert read_table(json.dumps(result), "x").layers[0].forward == 540


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "missing: CONFIG, --table"),
        (["--table", "absent.json"], "cannot read the file"),
        (["--sapp-layers", "{sapp}"], "--table FILE"),
        (["--table", "{table}", "--export-sapp", "x.json"], "--export-table"),
        (["--table", "{table}", "--stages", "4"], "--stages cannot be used with this table"),
        (["--table", "{table}", "--limit", "56"], "56"),
        (["--table", "{table}", "--swap-bandwidth", "20GB/s"], "no layer of the table has the kind 'swap'"),
        (["--table", "{table}", "--swap-bandwidth", "20GB"], "invalid bandwidth '20GB'"),
        (["--table", "{table}", "--swap-bandwidth", "9" * 400 + "GB/s"], "invalid bandwidth"),
        (["--table", "{table}", "--effort", "more"], "more"),
        (["--table", "{table}", "--seed", "99999999999999999999"], "99999999999999999999"),
        (["--table", "{sapp}"], "requires --stages, --micro-batches, --order, --limit"),
        (["--table", "{sapp}", *["--stages", "5000", "--micro-batches", "1", "--order", "1f1b", "--limit", "1GB"]], "at most"),
        (["--table", "{sapp}", *["--stages", "5", "--micro-batches", "1", "--order", "1b1f", "--limit", "1GB"]], "1b1f"),
        (["--table", "{sapp}", *["--stages", "5", "--micro-batches", "1", "--order", "1f1b", "--limit", "1GB"]], "layers_description[0]"),
    ],
)  # fmt: skip
def test_mistakes_are_explained(
    capsys: pytest.CaptureFixture[str], table: Path, sapp: Path, arguments: list[str], words: str
) -> None:
    assert main(["fit", *(argument.format(table=table, sapp=sapp) for argument in arguments)]) == ExitCode.USAGE
    output = capsys.readouterr().err
    assert words in output
    assert "Traceback" not in output


# Two equal stages, four layers that recompute everything now and need not.
ALL_FULL = plan_of(
    CASE_E._replace(stages=2, layers=(CASE_E.layers[0]._replace(layer_count=4),)), [{RecomputeMode.FULL: 2}] * 2
)
SMALL = CASE_E._replace(
    stages=2,
    micro_batches=3,
    layers=(CASE_E.layers[0]._replace(layer_count=4),),
    head=CASE_E.head._replace(forward=0),
    tail=CASE_E.tail._replace(forward=0),
    present=ALL_FULL,
)


@pytest.fixture(autouse=True)
def short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the searches: other tests examine their results."""
    monkeypatch.setitem(search._BUDGETS, Effort.QUICK, search._Budget(60_000, 150, 10, 100, 3))
    monkeypatch.setattr(planning_fit, "_WORK", 10_000)
    monkeypatch.setattr(planning_fit, "_STEPS", 50)


@pytest.fixture
def costs(tmp_path: Path) -> Path:
    """Write the small table to a file."""
    path = tmp_path / "table.json"
    path.write_text(json.dumps(table_json(SMALL)), encoding="utf-8")
    return path


@pytest.mark.slow
class TestSeconds:
    def test_by_a_log(self, costs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        log = tmp_path / "train.log"
        log.write_text(megatron_log([30_000, *[8000] * 9], total=10), encoding="utf-8")
        arguments = ["fit", "--table", str(costs), "--effort", "quick", "--calibrate", str(log), "--json"]
        assert main(arguments) == ExitCode.OK
        assert json.loads(capsys.readouterr().out)["seconds_of_step"]["measured"] == pytest.approx(8)

    def test_by_a_profile_with_layers(self, costs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        # Three micro-batches of four layers that recompute everything, 1 and 2 ms; a stage of two layers runs (3 + 1) passes of both.
        step = Step()
        for layer in range(4):
            scope = f"recompute_Default/network-Net/layers-CellList/{layer}-Block/MatMul-op1"
            step.kernel(6000.0, scope).kernel(6000.0, f"Gradients/{scope}")
        step.idle(20_000.0, late=0.0).write(tmp_path / "prof")
        arguments = ["fit", "--table", str(costs), "--effort", "quick", "--calibrate", str(tmp_path / "prof")]
        assert main([*arguments, "--json"]) == ExitCode.OK
        result = json.loads(capsys.readouterr().out)["seconds_of_step"]
        assert result["measured"] == pytest.approx(step.now / 1e6)
        # 4 x 2 x (1 + 2 + 1) ms now, 4 x 2 x 3 without recomputation; the rest of the step is unchanged.
        assert result["reference"] - result["plan"] == pytest.approx(0.008)
        assert main([*arguments, "-v"]) == ExitCode.OK
        assert "1 / none 2 | full 3 ms (4/4)" in " ".join(capsys.readouterr().out.split())

    def test_by_a_measured_step(self, costs: Path, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["fit", "--table", str(costs), "--effort", "quick", "--calibrate", "step=8s"]
        assert main([*arguments, "--json"]) == ExitCode.OK
        found = json.loads(capsys.readouterr().out)
        # Without recomputation: 3 instead of 4 times a forward pass.
        assert found["relative_time"] == pytest.approx(75)
        expected = {"plan": 6.0, "reference": 8.0, "lower_bound": 6.0, "measured": 8.0}
        assert found["seconds_of_step"] == pytest.approx(expected)
        assert main([*arguments, "-v"]) == ExitCode.OK
        shown = capsys.readouterr().out
        assert "Step time about 6 s, scaled from the measured 8 s" in shown
        assert "is assumed to scale" in shown

    def test_without_a_measurement_there_are_none(self, costs: Path, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["fit", "--table", str(costs), "--effort", "quick"]
        assert main([*arguments, "--json"]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out)["seconds_of_step"] is None
        assert main([*arguments, "-v"]) == ExitCode.OK
        assert not re.search(r"\d s\b", capsys.readouterr().out)


@pytest.mark.slow
def test_a_table_that_was_written_is_read_again(
    costs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.json"
    arguments = ["fit", "--table", str(costs), "--effort", "quick"]
    assert main([*arguments, "--export-table", str(own), "--json"]) == ExitCode.OK
    first = json.loads(capsys.readouterr().out)
    assert read_table(own.read_text(encoding="utf-8"), "own.json") == SMALL
    assert main(["fit", "--table", str(own), "--effort", "quick", "--json"]) == ExitCode.OK
    second = json.loads(capsys.readouterr().out)
    assert (second["plan"], second["time"], second["peak_bytes"]) == (first["plan"], first["time"], first["peak_bytes"])
    assert main([*arguments, "--export-table", str(own)]) == ExitCode.USAGE  # it exists already


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--calibrate", "11.5s"], "step=11.5s"),
        (["--calibrate", "step=0s"], "step=0s"),
        (["--times", "body=3"], "--export-table"),
    ],
)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_mistakes_in_files_are_explained(
    costs: Path, arguments: list[str], words: str, language: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "--table", str(costs), *arguments, "--lang", language]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert words in captured.err
    assert (captured.out, "Traceback" in captured.err) == ("", False)


def test_a_measured_step_needs_the_plan_that_it_was_measured_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bare.json"
    path.write_text(json.dumps(table_json(SMALL._replace(present=None))), encoding="utf-8")
    assert main(["fit", "--table", str(path), "--calibrate", "step=8s"]) == ExitCode.USAGE
    assert "needs the plan" in capsys.readouterr().err
