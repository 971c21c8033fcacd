"""Test configs with a ``base_config``: checks of the complete config include its settings, and report it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ms_tune.cli.main import main

SPLIT = "model: {model_config: {num_layers: 9, offset: 0, pp_interleave_num: 2}}\n"
STAGES = "trainer: {}\nparallel_config:\n  pipeline_stage: 4\n"


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["lint", "--lang", "en", "--framework-version", "1.9", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_a_base_counts_and_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Findings and fixes concern the config; the other file, on which more configs may be based, is unchanged."""
    (tmp_path / "base.yaml").write_text(STAGES)
    (tmp_path / "some.yaml").write_text(f"base_config: base.yaml\n{SPLIT}")
    (tmp_path / "alone.yaml").write_text(STAGES + SPLIT)
    found = {}
    for name in ("some.yaml", "alone.yaml"):
        code, out, _ = run(capsys, "--json", name)
        assert code == 1
        found[name] = json.loads(out)
    assert found["some.yaml"]["read_from"] == {"some.yaml": ["base.yaml"]}
    both = [{(one["id"], one["message"]) for one in one["findings"] if one["id"] < "MST7"} for one in found.values()]
    assert both[0] == both[1]
    assert {"MST301", "MST302"} <= {identity for identity, _ in both[0]}
    assert {one["line"] for one in found["some.yaml"]["findings"] if one["id"] == "MST301"} == {2}
    code, _, err = run(capsys, "--fix=unsafe", "some.yaml")
    assert "some.yaml: settings in base.yaml also apply" in err
    assert (tmp_path / "base.yaml").read_text() == STAGES
    fixed = run(capsys, "--json", "some.yaml")[1]
    assert {"MST301", "MST302"}.isdisjoint(one["id"] for one in json.loads(fixed)["findings"])


def test_a_value_in_the_base_is_reported_with_its_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(SPLIT)
    (tmp_path / "some.yaml").write_text(f"base_config: base.yaml\n{STAGES}")
    code, out, _ = run(capsys, "some.yaml")
    assert code == 1
    assert "some.yaml:1:14" in out
    assert "model.model_config.offset is set in base.yaml, line 1" in out
    assert "it is set in base.yaml:1, which other configs may include: change it there" in out
    before = (tmp_path / "some.yaml").read_text(), (tmp_path / "base.yaml").read_text()
    run(capsys, "--fix=unsafe", "some.yaml")
    assert ((tmp_path / "some.yaml").read_text(), (tmp_path / "base.yaml").read_text()) == before
    (tmp_path / "only.yaml").write_text("base_config: [base.yaml, some.yaml]\n")
    assert run(capsys, "only.yaml")[0] == 1
    (tmp_path / "some.yaml").write_text(f"base_config: base.yaml  # ms-tune: ignore[MST302, MST301]\n{STAGES}")
    assert run(capsys, "some.yaml")[0] == 0
    (tmp_path / "base.yaml").write_text("a: [\n")
    assert "was not read (base.yaml:2: " in run(capsys, "some.yaml")[2]


def test_a_config_that_is_known_by_its_base(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The config itself does not show its dialect; a layer count in the model's ``config.json`` counts, too."""
    core = "use_legacy: False\nrun_mode: train\ntrainer: {}\npretrained_model_dir: model\nparallel_config: {pipeline_stage: 4}\n"
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text('{"model_type": "qwen3", "num_hidden_layers": 9}')
    (tmp_path / "base.yaml").write_text(core)
    (tmp_path / "some.yaml").write_text("base_config: base.yaml\n")
    _, out, err = run(capsys, "--json", "some.yaml")
    assert "settings in base.yaml also apply" in err
    assert json.loads(out)["read_from"] == {"some.yaml": ["base.yaml", "model/config.json"]}
