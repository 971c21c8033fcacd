"""Test ``ms-tune migrate`` from its arguments to its output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from ms_tune.cli.main import main
from tests.workflows.migrate.test_migrate import SOURCE


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


def test_mistakes(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(config, "--to", "megatron")) == 2
    assert main(command(config, "--to", "mindformers-pynative@9.9")) == 2
    assert main(["migrate", str(config.with_name("none.yaml"))]) == 2
    assert main(command(config, "--dryrun")) == 2
    assert "Traceback" not in capsys.readouterr().err


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
