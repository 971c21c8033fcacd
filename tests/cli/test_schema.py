from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from ms_tune.cli.main import main
from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.lint.schema import schema

CONFIG = "# 头\r\ntrainer: {type: A}\r\nseed: 1\r\n"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["schema", "--lang", "en", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.mark.parametrize("dialect", YAML_DIALECTS)
def test_schemas_are_schemas(dialect: Dialect, capsys: pytest.CaptureFixture[str]) -> None:
    made = json.loads(run(capsys, "--dialect", dialect.value)[1])
    assert made == schema(dialect)
    assert made["$schema"] == "http://json-schema.org/draft-07/schema#"
    jsonschema.Draft7Validator.check_schema(made)
    assert "additionalProperties" not in json.dumps(made)


def test_install_adds_a_modeline_and_nothing_else(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + CONFIG.encode())
    line = "# yaml-language-server: $schema=./.ms-tune/mindformers.schema.json\r\n"
    for _ in range(2):
        code, _, err = run(capsys, "--install", str(file))
        assert code == 0
        assert f" and set up in {file}" in err
        assert file.read_bytes() == b"\xef\xbb\xbf" + (line + CONFIG).encode()
    written = json.loads((tmp_path / ".ms-tune" / "mindformers.schema.json").read_text(encoding="utf-8"))
    assert written == schema(Dialect.MINDFORMERS)


def test_install_takes_the_place_of_an_older_modeline(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    file = tmp_path / "a" / "train.yaml"
    file.write_text("# one\n# yaml-language-server: $schema=old.json\ntrainer: {}\n# $schema: not here\n")
    arguments = ("--install", str(file), "--dialect", "mindspeed-ms", "--output", str(tmp_path / "s.json"))
    assert run(capsys, *arguments)[:2] == (0, "")
    assert json.loads((tmp_path / "s.json").read_text(encoding="utf-8")) == schema(Dialect.MINDSPEED_MS)
    assert file.read_text() == ("# one\n# yaml-language-server: $schema=../s.json\ntrainer: {}\n# $schema: not here\n")


@pytest.mark.parametrize("hindrance", ["config", "folder"])
def test_both_files_are_written_or_none(hindrance: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "train.yaml"
    config.write_bytes(CONFIG.encode())
    if hindrance == "config":
        config.chmod(0o444)
    else:
        (tmp_path / ".ms-tune").write_text("no folder")
    before = sorted(tmp_path.iterdir())
    assert main(["schema", "--install", str(config), "--lang", "en"]) == 2
    assert "error" in capsys.readouterr().err
    assert config.read_bytes() == CONFIG.encode()
    assert sorted(tmp_path.iterdir()) == before


def test_one_release(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made = json.loads(run(capsys, "--dialect", "mindformers", "--framework-version", "1.6.0")[1])
    model = made["properties"]["model"]["properties"]["model_config"]["properties"]
    assert "aux_loss_types" in model  # only 1.6 knows it
    assert "mlp_bias" not in model  # since 1.9
    everything = schema(Dialect.MINDFORMERS)["properties"]["model"]["properties"]["model_config"]["properties"]
    assert {"aux_loss_types", "mlp_bias"} <= everything.keys() > model.keys()
    dynamic = schema(Dialect.MINDFORMERS_PYNATIVE, "2.0")["properties"]
    assert "num_hidden_layers" in dynamic["model"]["properties"]
    assert "rampup_batch_size" not in dynamic["training"]["properties"]
    file = tmp_path / "train.yaml"
    file.write_text(CONFIG)
    assert run(capsys, "--install", str(file), "--framework-version", "1.6")[0] == 0
    assert json.loads((tmp_path / ".ms-tune" / "mindformers.schema.json").read_text(encoding="utf-8")) == made
    code, _, err = run(capsys, "--dialect", "mindformers", "--framework-version", "9.9")
    assert code == 2
    assert "1.6, 1.7" in err


def test_mistakes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(capsys)[0] == 2
    (tmp_path / "a.yaml").write_text("a: 1\n")
    code, _, err = run(capsys, "--install", str(tmp_path / "a.yaml"))
    assert code == 2
    assert "does not look like a training config" in err
