"""How the linter is used: without a path, on standard input, with a team's own checklist, and where to read more."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING

import pytest

from ms_tune.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = "use_parallel: True\nrunner_config: {batch_size: 1}\nprofile: True\n"
TEAM = """
dialects: [mindformers]
checks:
  - id: OUR001
    name: our-output-folder
    severity: warning
    category: style
    title: 输出目录不是统一目录
    why: {zh: 每晚的任务只收集 /results。}
    message: "output_dir 为 {value}"
    help: {zh: 请写成 /results}
    bad: "output_dir: ./output"
    good: "output_dir: /results"
    test: {path: output_dir, equals: /results}
"""


def found(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    assert main(["lint", "--lang", "en", "--json", *arguments]) == 1
    findings: list[dict[str, object]] = json.loads(capsys.readouterr().out)["findings"]
    return findings


def test_without_a_path_the_folder_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(CONFIG)
    (tmp_path / "b.yaml").write_text("jobs: {a: {}}\non: [push]\n")
    assert {(one["name"], one["file"]) for one in found(capsys)} == {("profiling-on", "a.yaml")}


@pytest.mark.parametrize(
    "case",
    [
        ("a.yaml", CONFIG, "profiling-on"),
        ("run.sh", "export MS_ALLOC_CONF=enable_vmm=True\n", "setting-without-colon"),
        (".env", "MS_ALLOC_CONF=enable_vmm=True\n", "setting-without-colon"),
        ("a.py", "import mindspore as ms\nms.set_context(deterministic='ON')\n", "deterministic-in-code"),
    ],
)
def test_standard_input_of_every_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], case: tuple[str, str, str]
) -> None:
    name, text, rule = case
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    file = tmp_path / name  # there is no such file
    names = {
        (one["name"], one["file"]) for one in found(capsys, "--stdin-filename", str(file), "--fail-on", "info", "-")
    }
    assert (rule, str(file)) in names


def test_a_name_for_standard_input_needs_standard_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "--lang", "en", "--stdin-filename", "a.sh", "b.yaml"]) == 2
    assert "--stdin-filename requires the file argument -" in capsys.readouterr().err


def test_a_checklist_of_a_team_needs_no_evidence_and_one_language(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "team.yaml").write_text(TEAM, encoding="utf-8")
    (tmp_path / "a.yaml").write_text(CONFIG.replace("profile: True", "output_dir: ./output"))
    findings = found(capsys, "--checklist", str(tmp_path / "team.yaml"), "--select", "OUR", str(tmp_path / "a.yaml"))
    assert [one["message"] for one in findings] == ["output_dir 为 ./output"]
    assert main(["rule", "--lang", "en", "--checklist", str(tmp_path / "team.yaml"), "our-output-folder"]) == 0
    (tmp_path / "other.yaml").write_text(TEAM.replace("{zh: 请写成 /results}", "{fr: écrire}"), encoding="utf-8")
    assert main(["lint", "--checklist", str(tmp_path / "other.yaml"), str(tmp_path / "a.yaml")]) == 2


@pytest.mark.parametrize(
    ("setting", "page"),
    [("", None), ('rule-page = "https://example.org/{id}#{name}"\n', "https://example.org/MST501#profiling-on")],
)
def test_every_finding_says_where_to_read_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, page: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ms-tune.toml").write_text(setting)
    (tmp_path / "a.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    (finding,) = found(capsys, "a.yaml")
    page = page and page.replace("MST501", str(finding["id"]))
    assert finding["more"] == {"command": "ms-tune rule profiling-on", "page": page}
    main(["lint", "--lang", "en", "a.yaml"])
    more = f"= more: ms-tune rule profiling-on, {page}\n" if page else "= more: ms-tune rule profiling-on\n"
    assert more in capsys.readouterr().out
    main(["lint", "--format", "sarif", "a.yaml"])
    (rule,) = json.loads(capsys.readouterr().out)["runs"][0]["tool"]["driver"]["rules"]
    assert rule.get("helpUri") == page


@pytest.mark.slow
def test_of_very_many_findings_the_first_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.py"
    file.write_text("from mindspore import ops\nx = 1\n" + "x = ops.add(x, 1)\n" * 2100)
    assert main(["lint", "--no-config", "--lang", "en", "--json", str(file)]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert len(findings) == 2001
    (more,) = (one for one in findings if one["id"] == "MST004")
    assert "has more findings here; only the first 2000 are listed" in more["message"]
