"""Test the files that ``ms-tune fit`` reads besides its table, and the tables that it writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.enums import RecomputeMode
from ms_tune.errors import ExitCode
from ms_tune.planning import fit as planning_fit
from ms_tune.planning import search
from ms_tune.planning.search import Effort
from ms_tune.planning.table import plan_of
from ms_tune.planning.table_file import read_table, table_json
from tests.metrics.profiles import Step
from tests.planning.tables import CASE_E
from tests.readers.training_logs import megatron_log

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
def table(tmp_path: Path) -> Path:
    """Write the small table to a file."""
    path = tmp_path / "table.json"
    path.write_text(json.dumps(table_json(SMALL)), encoding="utf-8")
    return path


@pytest.mark.slow
class TestSeconds:
    def test_by_a_log(self, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        log = tmp_path / "train.log"
        log.write_text(megatron_log([30_000, *[8000] * 9], total=10), encoding="utf-8")
        arguments = ["fit", "--table", str(table), "--effort", "quick", "--calibrate", str(log), "--json"]
        assert main(arguments) == ExitCode.OK
        assert json.loads(capsys.readouterr().out)["seconds_of_step"]["measured"] == pytest.approx(8)

    def test_by_a_profile_with_layers(self, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        # Three micro-batches of four layers that recompute everything, 1 and 2 ms; a stage of two layers runs (3 + 1) passes of both.
        step = Step()
        for layer in range(4):
            scope = f"recompute_Default/network-Net/layers-CellList/{layer}-Block/MatMul-op1"
            step.kernel(6000.0, scope).kernel(6000.0, f"Gradients/{scope}")
        step.idle(20_000.0, late=0.0).write(tmp_path / "prof")
        arguments = ["fit", "--table", str(table), "--effort", "quick", "--calibrate", str(tmp_path / "prof")]
        assert main([*arguments, "--json"]) == ExitCode.OK
        result = json.loads(capsys.readouterr().out)["seconds_of_step"]
        assert result["measured"] == pytest.approx(step.now / 1e6)
        # 4 x 2 x (1 + 2 + 1) ms now, 4 x 2 x 3 without recomputation; the rest of the step is unchanged.
        assert result["reference"] - result["plan"] == pytest.approx(0.008)
        assert main([*arguments, "-v"]) == ExitCode.OK
        assert "1 / none 2 | full 3 ms (4/4)" in " ".join(capsys.readouterr().out.split())

    def test_by_a_measured_step(self, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["fit", "--table", str(table), "--effort", "quick", "--calibrate", "step=8s"]
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

    def test_by_measured_layers(self, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "times.json"
        file.write_text('{"body": {"forward": 100, "backward": {"none": 200, "full": 300}}}', encoding="utf-8")
        for times in ("body=100/200", "body=0.1s", str(file)):
            assert main(["fit", "--table", str(table), "--effort", "quick", "--times", times, "--json"]) == ExitCode.OK
            found = json.loads(capsys.readouterr().out)
            # Two layers a stage, three micro-batches: four turns of 600 ms.
            assert found["seconds_of_step"]["plan"] == pytest.approx(2.4)
            assert found["seconds_of_step"]["measured"] is None
            assert found["table"]["layers"][0]["forward"] == 100

    def test_without_a_measurement_there_are_none(self, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["fit", "--table", str(table), "--effort", "quick"]
        assert main([*arguments, "--json"]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out)["seconds_of_step"] is None
        assert main([*arguments, "-v"]) == ExitCode.OK
        assert not re.search(r"\d s\b", capsys.readouterr().out)


@pytest.mark.slow
def test_a_table_that_was_written_is_read_again(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.json"
    arguments = ["fit", "--table", str(table), "--effort", "quick"]
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
        (["--times", "absent.json"], "absent.json"),
        (["--times", "body=x"], "body=x"),
        (["--times", "tail=3"], "body"),
        (["--times", "bodi=3,body=1"], "bodi"),
        (["--times", "body=9000000", "--calibrate", "step=1s"], "1 "),
    ],
)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_mistakes_are_explained(
    table: Path, arguments: list[str], words: str, language: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "--table", str(table), *arguments, "--lang", language]) == ExitCode.USAGE
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
