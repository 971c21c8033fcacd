from __future__ import annotations

import json
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.errors import ExitCode
from ms_tune.source.yaml import SourceFile, load_source
from tests.lint.few import make_only_few

CONFIG = """\
run_mode: train
parallel_config:
  pipeline_stage: 2  # 两个阶段
recompute_config:
  {"名": 1, recompute: [1, 1, 1]}
context:
  save_graphs: True
"""


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_only_few(monkeypatch)
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "clean.yaml").write_text("trainer: {type: A}\nrun_mode: train\n", encoding="utf-8")
    (tmp_path / "info.yaml").write_text("trainer: {type: A}\nzebra_stripes: False\nrun_mode: train\n", encoding="utf-8")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["lint", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


INFO = """\
info[unused-key] MST202: MindFormers does not read 'zebra_stripes'
 --> info.yaml:2:1
  |
2 | zebra_stripes: False
  | ^^^^^^^^^^^^^
  |
  = consequence: the setting is ignored
  = help: remove the key, unless a script of your own reads it
  = fix: remove 'zebra_stripes' (available with --fix=unsafe)
  = more: ms-tune rule unused-key

"""

ENGLISH = """\
error[unexpected-training-key] MST204: recompute_config does not accept the key '名'
 --> config.yaml:5:4
  |
5 |   {"名": 1, recompute: [1, 1, 1]}
  |    ^^^^
  |
  = consequence: every process stops while reading its settings, before anything is built
  = help: correct the key, or remove it
  = more: ms-tune rule unexpected-training-key

error[recompute-list-too-long] MST401: 3 numbers for 2 pipeline stages
 --> config.yaml:5:23
  |
3 |   pipeline_stage: 2  # 两个阶段
  |   -------------- the number of stages
...
5 |   {"名": 1, recompute: [1, 1, 1]}
  |                        ^^^^^^^^^
  |
  = consequence: every process stops during startup, before the first step
  = help: write one number per stage; with interleaving, one list per interleave
  = more: ms-tune rule recompute-list-too-long

warning[save-graphs-on] MST505: 'save_graphs' is on: every compilation writes its graphs to disk
 --> config.yaml:7:16
  |
7 |   save_graphs: True
  |                ^^^^
  |
  = consequence: the run is slower and writes large files
  = help: set it to False after debugging
  = fix: set 'save_graphs' to False (available with --fix=unsafe)
  = more: ms-tune rule save-graphs-on

Checked 1 file for MindFormers 1.9.
Found 3 issues (2 errors, 1 warning). 1 fixable with `--fix=unsafe`.
"""


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "config.yaml") == (1, ENGLISH, "")


def test_text_in_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--lang", "zh", "config.yaml")
    assert code == 1
    assert out.startswith("错误[unexpected-training-key] MST204: recompute_config 不接受键“名”\n")
    assert "3 |   pipeline_stage: 2  # 两个阶段\n  |   -------------- 流水线阶段数\n" in out
    assert out.endswith(
        "已按 MindFormers 1.9 版检查 1 个文件。\n发现 3 个问题（2 个错误、1 个警告）。`--fix=unsafe` 可修复 1 个。\n"
    )


def test_colours(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    _, out, _ = run(capsys, "config.yaml")
    assert "\033[1;31merror[recompute-list-too-long]\033[0m" in out
    monkeypatch.setenv("NO_COLOR", "1")
    assert run(capsys, "config.yaml")[1] == ENGLISH


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--json", "config.yaml")
    report = json.loads(out)
    assert code == 1
    assert list(report) == ["version", "findings", "read_from", "failed", "summary"]
    assert report["version"] == 1
    assert report["summary"] == {
        "files": 1,
        "unreadable": 0,
        "errors": 2,
        "warnings": 1,
        "infos": 0,
        "skipped": 0,
        "ignored": 0,
        "baselined": 0,
        "fixable": 0,
        "fixable_unsafe": 1,
        "fixed": 0,
        "checked_for": [{"framework": "MindFormers", "version": "1.9", "installed": None}],
    }
    assert report["findings"][1] == {
        "id": "MST401",
        "name": "recompute-list-too-long",
        "severity": "error",
        "file": "config.yaml",
        "line": 5,
        "column": 23,
        "end_line": 5,
        "end_column": 32,
        "key_path": ["recompute_config", "recompute"],
        "message": "3 numbers for 2 pipeline stages",
        "consequence": {
            "id": "stops-starting",
            "text": "every process stops during startup, before the first step",
        },
        "related": [
            {
                "file": "config.yaml",
                "line": 3,
                "column": 3,
                "end_line": 3,
                "end_column": 17,
                "message": "the number of stages",
            }
        ],
        "more": {"command": "ms-tune rule recompute-list-too-long", "page": None},
        "fix": None,
    }


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["clean.yaml"], 0),
        (["info.yaml"], 0),
        (["--fail-on", "info", "info.yaml"], 1),
        (["--fail-on", "error", "config.yaml"], 1),
        (["--fail-on", "error", "info.yaml"], 0),
        (["clean.yaml", "config.yaml"], 1),
        (["clean.yaml", "missing.yaml"], 2),
        (["--exit-zero", "config.yaml"], 0),
        (["--exit-zero", "missing.yaml"], 2),
        (["--fail-on", "bad", "clean.yaml"], 2),
        (["--framework-version", "new", "clean.yaml"], 2),
        ([], 1),  # the folder
    ],
)
def test_exit_codes(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int) -> None:
    assert run(capsys, *arguments)[0] == code


def test_one_bad_file_does_not_hide_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "missing.yaml", "config.yaml")
    assert code == 2
    assert err.startswith("missing.yaml: error: no such file\n  hint: ")
    assert out == ENGLISH.replace("1.9.\n", "1.9. Could not check 1 file.\n")
    code, out, _ = run(capsys, "--json", "missing.yaml")
    assert json.loads(out)["summary"]["unreadable"] == 1


def test_a_defect_of_ms_tune_in_one_file_does_not_hide_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(path: Path) -> SourceFile:
        return load_source(path) if path.name == "config.yaml" else 1 / 0  # type: ignore[return-value] # it raises

    monkeypatch.setattr("ms_tune.lint.runner.load_source", load)
    code, out, err = run(capsys, "clean.yaml", "config.yaml")
    assert code == ExitCode.INTERNAL
    assert err.startswith("clean.yaml: error: ms-tune itself failed on this file (ZeroDivisionError")
    assert "Traceback" in err
    assert out == ENGLISH.replace("1.9.\n", "1.9. Could not check 1 file.\n")
    code, out, _ = run(capsys, "--format", "sarif", "clean.yaml", "config.yaml")
    (invocation,) = json.loads(out)["runs"][0]["invocations"]
    (failure,) = invocation["toolExecutionNotifications"]
    assert code == ExitCode.INTERNAL
    assert failure["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "clean.yaml"


def test_dialects(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text("a: 1e-5\n")
    code, out, err = run(capsys, "some.yaml")
    assert (code, out) == (2, "")
    assert "does not look like a training config" in err
    assert "--dialect mindformers|mindformers-pynative|mindspeed-ms" in err
    code, out, _ = run(capsys, "--dialect", "mindspeed-ms", "some.yaml")
    assert code == 1
    assert "signed exponent: 1.e-5" in out
    assert "for MindSpeed-Core-MS 0.1." in out
    file.write_text("training_config: {}\nmodel_config: {}\ntrainer: {}\n")
    assert "treated as 'mindspeed-ms'" in run(capsys, "some.yaml")[2]
    file.write_text("training_config: {}\ntrainer: {}\n")
    assert "keys of several frameworks" in run(capsys, "some.yaml")[2]


def test_what_is_no_checklist(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "some.yaml").write_text("trainer: {}\noutput_dir: ./output\n")
    code, _, err = run(capsys, "--checklist", "some.yaml", "some.yaml")
    assert code == 2
    assert err.startswith("some.yaml:1:1: error: is not a valid checklist: ")


@pytest.mark.parametrize(
    ("base", "reason"),
    [
        ("b.yaml", "which is not a file"),
        ("../b.yaml", "outside this config's folder"),
        ("some.yaml", "builds on this file"),
    ],
)
def test_a_base_that_is_not_followed_is_reported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, base: str, reason: str
) -> None:
    (tmp_path.parent / "b.yaml").write_text("trainer: {}\n")
    (tmp_path / "some.yaml").write_text(f"base_config: {base}\ntrainer: {{}}\n")
    code, _, err = run(capsys, "some.yaml")
    assert code == 0
    assert err.startswith("warning: some.yaml: base_config was not read (")
    assert reason in err


def test_long_lines_tabs_and_many_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "some.yaml").write_text(
        "trainer: {type: A, text: '" + "x" * 500 + "', value: 1e-5}\ncontext:\n  save_graphs:\n    - a\n    - b\n"
        "recompute_config:\t# \x85\n  recompute: True\n"
    )
    code, out, _ = run(capsys, "some.yaml")
    assert code == 1
    lines = out.splitlines()
    assert all(len(line) < 200 for line in lines)
    position = next(index for index, line in enumerate(lines) if "1e-5" in line and "|" in line)
    assert lines[position].index("1e-5") == lines[position + 1].index("^^^^")
    assert "4 |     - a\n  |     ^^^\n" in out
