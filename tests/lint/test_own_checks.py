"""Test a team's own checklist as documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.lint.settings import settings_for

PAGE = (Path(__file__).parents[2] / "docs" / "lint.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
CONFIG = "runner_config: {batch_size: 1}\nparallel_config: {pipeline_stage: 1}\noutput_dir: ./output\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "team.yaml").write_text(EXAMPLE, encoding="utf-8")
    (tmp_path / "train.yaml").write_text(CONFIG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_the_page_says_works(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rule", "--checklist", "team.yaml", "--try"]) == 0
    assert capsys.readouterr().out.strip() in PAGE
    assert main(["lint", "--checklist", "team.yaml", "--select", "OUR", "--fail-on", "info", "train.yaml"]) == 1
    assert "OUR001: output_dir is ./output" in capsys.readouterr().out
    (folder / "ms-tune.toml").write_text('checklists = ["team.yaml"]\n')
    settings_for.cache_clear()  # each command is a process of its own
    assert main(["lint", "--select", "OUR", "--fail-on", "info", "."]) == 1
    assert "ms-tune rule our-output-folder" in capsys.readouterr().out
    assert main(["rule", "our-output-folder"]) == 0
    assert capsys.readouterr().out.startswith("OUR001 our-output-folder")
    assert main(["rule", "--try"]) == 0
    (folder / "other.yaml").write_text(EXAMPLE.replace("write /results", "{fr: écrire}"), encoding="utf-8")
    assert main(["lint", "--checklist", "other.yaml", "train.yaml"]) == 2


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("bad: .*", 'bad: "output_dir: /results"'), "the bad example is not reported (mindformers)"),
        (("good: .*", 'good: "output_dir: elsewhere"'), "the good example is reported as well (mindformers)"),
        (("{value}", "{valeu}"), "the check fails on its bad example: KeyError: 'valeu'"),
        (("good: .*", "good: '[1'"), "the good example is not valid YAML"),
        (("severity:", 'versions: ">=99"\n    severity:'), "no supported release matches >=99"),
    ],
)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_is_wrong_with_a_check_is_reported(
    folder: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], expected: str, language: str
) -> None:
    (folder / "team.yaml").write_text(re.sub(*change, EXAMPLE, count=1), encoding="utf-8")
    assert main(["rule", "--checklist", "team.yaml", "--try", "--lang", language]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("OUR001 our-output-folder")
    assert expected in line or language == "zh"


def test_without_a_checklist_there_is_nothing_to_try(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rule", "--try"]) == 2
    assert "--checklist" in capsys.readouterr().err
    assert not (folder / "ms-tune.toml").exists()
