"""Test ``ms-tune migrate`` from its arguments to its output."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from ms_tune.cli.main import main
from ms_tune.dryrun.request import DryrunRequest, StageChoice
from ms_tune.enums import BlockKind
from ms_tune.memory.diff import Surplus
from ms_tune.text import msg
from ms_tune.units import MIB
from ms_tune.workflows.migrate import memory
from ms_tune.workflows.migrate.memory import BothSides, DifferenceReason, StageMemory
from tests.workflows.migrate.test_migrate import SOURCE

if TYPE_CHECKING:
    from ms_tune.workflows.migrate.result import Migration


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "train.yaml"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def command(config: Path, *options: str) -> list[str]:
    return ["migrate", str(config), "--framework-version", "1.9", "--no-check", *options]


@pytest.mark.parametrize(("language", "words"), [("en", "no counterpart"), ("zh", "无对应项")])
def test_fates_and_file(config: Path, capsys: pytest.CaptureFixture[str], language: str, words: str) -> None:
    assert main(command(config, "--lang", language, "-v")) == 0
    out = capsys.readouterr().out
    assert words in out
    assert "context.max_device_memory" in out
    assert "\ntraining:\n" in out


def test_the_new_file_is_written_once(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = config.with_name("new.yaml")
    assert main(command(config, "--write", str(new))) == 0
    assert yaml.safe_load(new.read_text(encoding="utf-8"))["training"]["seed"] == 7
    assert "\ntraining:\n" not in capsys.readouterr().out
    assert main(command(config, "--write", str(new))) == 2
    assert main(command(config, "--write", str(new), "--force")) == 0


def test_json(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(config, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"]["ask"] == 0
    assert len(found["keys"]) == sum(found["counts"].values())
    row = next(one for one in found["keys"] if one["key"] == "parallel_config.model_parallel")
    assert (row["fate"], row["to"], row["new_value"]) == ("translated", "parallelism.tensor_parallel", 2)


def test_diff(config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert main(command(config, "--diff")) == 0
    out = capsys.readouterr().out
    assert {line[:1] for line in out.splitlines()} <= set(
        "-+@ "
    )  # long lines are not wrapped: `patch` accepts the output
    assert out.startswith("--- ")
    assert "+training:" in out


def test_a_refusal_writes_nothing(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(SOURCE.replace("deepseek_v3", "telechat3"), encoding="utf-8")
    new = config.with_name("new.yaml")
    assert main(command(config, "--lang", "en", "--write", str(new))) == 2
    assert not new.exists()
    assert "keys that prevent the migration" in capsys.readouterr().out


@pytest.mark.parametrize(("language", "mark"), [("en", "unproved"), ("zh", "未证明")])
def test_memory_side_by_side_and_what_is_not_proved_of_it(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, language: str, mark: str
) -> None:
    asked, unproved = [], [msg("reference.standing.pipeline", stages=8)]

    def simulated(found: Migration, request: DryrunRequest, observer: object) -> BothSides:
        asked.append((found.refused, request.stages, observer is not None))
        one = StageMemory(0, 3 * MIB, 5 * MIB, {"weights": 2 * MIB}, {"weights": MIB}, (MIB, MIB))
        return BothSides((one,), (msg("pynative.not-started", missing="x"),), tuple(unproved))

    monkeypatch.setattr(memory, "simulate_both", simulated)
    monkeypatch.setenv("COLUMNS", "80")
    for marks in ([mark], []):
        assert main(command(config, "--dryrun", "--stages", "0,1", "--lang", language)) == 0
        out = capsys.readouterr().out
        rows = [line.split() for line in out.splitlines() if "+2.0" in line or "-1.0" in line]
        assert [row[1 - 4 - len(marks) :] for row in rows] == [
            ["3.0", "5.0", "+2.0", *marks],
            ["2.0", "1.0", "-1.0", *marks],
        ]
        assert ("HyperParallel 1.0" in " ".join(out.split())) is (mark in out) is bool(marks)
        assert main(command(config, "--dryrun", "--json")) == 0
        result = json.loads(capsys.readouterr().out)["memory"]
        (stage,) = result["stages"]
        assert (stage["old_peak_bytes"], stage["weights_and_optimizer_by_theory"]) == (3 * MIB, [MIB, MIB])
        assert len(result["unproved"]) == len(marks)
        unproved.clear()
    assert [one[1:] for one in asked] == [((0, 1), True), (StageChoice.ALL, True)] * 2
    assert main(command(config, "--dryrun", "--stages", "x")) == 2


def explained(*more: Surplus) -> DifferenceReason:
    return DifferenceReason(2, (100 * MIB, 130 * MIB), ("forward", None), more, (10 * MIB, 12 * MIB))


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", ("+30.0 MiB (static: forward, dynamic: unknown)", "from 2 places", "adds 10.0 MiB")),
        ("zh", ("+30.0 MiB（静态图：前向，动态图：未知）", "来自 2 处", "增加 10.0 MiB")),
    ],
)
def test_the_difference_is_explained(
    config: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    language: str,
    words: tuple[str, ...],
) -> None:
    more = (
        Surplus(BlockKind.KEPT, in_new=True, operator="fc.w", location="fc.w", bytes=20 * MIB, count=4),
        Surplus(BlockKind.PASSING, in_new=True, operator="Dense", location="x/linear.py:67", bytes=30 * MIB, count=3),
        Surplus(BlockKind.PASSING, in_new=False, operator="Cast", location="a/b-B/c-C", bytes=19 * MIB, count=2),
        Surplus(BlockKind.PASSING, in_new=False, operator="Mul", location="a", bytes=MIB // 2, count=1),
        Surplus(BlockKind.PASSING, in_new=False, operator="Add", location="a", bytes=MIB // 2, count=1),
        Surplus(BlockKind.OTHER, in_new=True, operator="Add", location="a", bytes=7, count=1),
    )

    def simulated(*_found: object, **_asked: object) -> BothSides:
        rows = ({"weights": 0, "gradients": 1}, {"weights": 7, "gradients": 0})
        return BothSides((StageMemory(0, 300 * MIB, 330 * MIB, *rows, None, explained(*more)),), ())

    monkeypatch.setattr(memory, "simulate_both", simulated)
    assert main(command(config, "--dryrun", "--lang", language, "-v")) == 0
    out = capsys.readouterr().out
    assert all(one in " ".join(out.split()) for one in (*words, "fc.w", "3 x +30.0 Dense linear.py:67", "Cast b-B/c-C"))
    assert "-0.0" not in out  # and no line for a size of zero
    untold = "expected memory not compared" if language == "en" else "理论值未作比较"
    assert untold in out
    sums = [line.split()[-1] for line in out.splitlines() if re.match(r" {4}[^ ].*[+-]\d+\.\d$", line)]
    assert sums == ["+20.0", "+10.0"]
    assert main(command(config, "--dryrun", "--json")) == 0
    (stage,) = json.loads(capsys.readouterr().out)["memory"]["stages"]
    reported = stage["explained"]
    assert (reported["layers"], reported["old_phase"], reported["new_phase"]) == (2, "forward", None)
    assert reported["bytes_of_each_further_layer"] == [10 * MIB, 12 * MIB]
    assert [(one["kind"], one["side"], one["bytes"]) for one in reported["differences"]][:3] == [
        ("kept", "new", 20 * MIB),
        ("passing", "new", 30 * MIB),
        ("passing", "old", 19 * MIB),
    ]


def test_the_models_config(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = config.with_name("model")
    folder.mkdir()
    (folder / "config.json").write_text('{"rope_theta": 12345}', encoding="utf-8")
    assert main(command(config, "--model-config", str(folder), "--json")) == 0
    assert yaml.safe_load(json.loads(capsys.readouterr().out)["text"])["model"]["rope_theta"] == 12345
    script = config.with_name("train.sh")
    script.write_text("python pretrain_gpt.py\n", encoding="utf-8")
    assert main(["migrate", str(script), "--model-config", str(folder)]) == 2
    assert "--model-config" in capsys.readouterr().err


def test_the_default_screen_is_short_and_quiet_is_one_line(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(config, "--lang", "en")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "migration: not proved (--no-check)."
    assert len(lines) < 12
    assert lines[-1].startswith("next: ms-tune migrate ")
    assert main(command(config, "-q", "--lang", "en")) == 0
    assert capsys.readouterr().out == "migration: not proved (--no-check).\n"
