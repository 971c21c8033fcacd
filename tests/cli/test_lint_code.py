"""Test that ``ms-tune lint`` fixes environment settings and Python code like configs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ms_tune.cli.main import main
from tests.files import read_data

SCHEMA = read_data("sarif/sarif-2.1.0-rtm.4.json")
SHELL = (
    '# 环境\r\nexport MS_ALLOC_CONF="enable_vmm=True,acl_allocator:True"  # 说明\r\nexport MS_DEV_LAUNCH_BLOCKING=1\r\n'
)
PYTHON = "from mindspore import ops, set_context\r\n名 = ops.mul(a, b)  # 乘\r\nset_context(deterministic='off')\r\n"
SAFE_SHELL = SHELL  # the dropped setting takes effect with its colon
SAFE_PYTHON = PYTHON.replace("'off'", "'OFF'")
ALL_SHELL = SHELL.replace("vmm=True", "vmm:True").replace("BLOCKING=1", "BLOCKING=0")
ALL_PYTHON = SAFE_PYTHON.replace("set_context\r", "set_context, mint\r").replace("= ops.", "= mint.")
FILES = ("run.sh", "train.py")


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.chdir(tmp_path)
    for file, text in zip(FILES, (SHELL, PYTHON), strict=True):
        (tmp_path / file).write_bytes(b"\xef\xbb\xbf" + text.encode())
        (tmp_path / file).chmod(0o750)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["lint", "--no-config", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


def texts(project: Path) -> tuple[str, ...]:
    contents = [(project / file).read_bytes() for file in FILES]
    assert all(content.startswith(b"\xef\xbb\xbf") for content in contents)
    assert all((project / file).stat().st_mode & 0o777 == 0o750 for file in FILES)
    return tuple(content.decode("utf-8-sig") for content in contents)


def test_safe_and_unsafe_fixes_are_written(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    code, out, _ = run(capsys, "--fix", *FILES)
    assert code == 1
    assert "Fixed 1 issue." in out
    assert texts(project) == (SAFE_SHELL, SAFE_PYTHON)
    code, out, _ = run(capsys, "--fix=unsafe", ".")
    assert code == 0
    assert "Fixed 3 issues." in out
    assert texts(project) == (ALL_SHELL, ALL_PYTHON)
    assert "fixed" not in run(capsys, "--fix=unsafe", *FILES)[1]
    assert sorted(path.name for path in project.iterdir()) == sorted(FILES)


def test_a_diff_is_shown_and_nothing_written(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    code, out, err = run(capsys, "--diff=unsafe", *FILES)
    assert code == 1
    assert "Would fix 4 issues in 2 files." in err
    assert texts(project) == (SHELL, PYTHON)
    for file in FILES:  # GNU patch compares bytes, and the mark is no part of the text
        (project / file).write_bytes((project / file).read_bytes().removeprefix(b"\xef\xbb\xbf"))
    done = subprocess.run(
        ["git", "apply", "--unsafe-paths", "-p1"], input=out.encode(), cwd=project, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [(project / file).read_bytes().decode() for file in FILES] == [ALL_SHELL, ALL_PYTHON]


def test_links_are_not_replaced(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    (project / "link.sh").symlink_to("run.sh")
    code, _, err = run(capsys, "--fix=unsafe", "link.sh")
    assert code == 2
    assert "symbolic link" in err
    assert texts(project) == (SHELL, PYTHON)


def test_a_comment_that_ignores_keeps_the_fix_away(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    text = "export GLOG_v=0  # ms-tune: ignore[verbose-log] a bug\nexport MS_DEV_LAUNCH_BLOCKING=0  # ms-tune: ignore[MST812]\n"
    (project / "a.sh").write_text(text)
    run(capsys, "--fix=unsafe", "a.sh")
    assert (project / "a.sh").read_text() == text.replace("  # ms-tune: ignore[MST812]", "")


def test_json_shows_the_edits(capsys: pytest.CaptureFixture[str]) -> None:
    findings = json.loads(run(capsys, "--json", *FILES)[1])["findings"]
    for file, text, wanted in zip(FILES, (SHELL, PYTHON), (ALL_SHELL, ALL_PYTHON), strict=True):
        edits = [edit for one in findings if one["file"] == file for edit in one["fix"]["edits"]]
        places = (tuple(edit[key] for key in ("line", "column", "end_line", "end_column")) for edit in edits)
        assert _edited(text, zip(places, (edit["text"] for edit in edits), strict=True)) == wanted
    assert {one["id"]: one["fix"]["safe"] for one in findings} == {
        "MST801": False,
        "MST812": False,
        "MST909": False,
        "MST903": True,
    }


def test_sarif_shows_the_edits(capsys: pytest.CaptureFixture[str]) -> None:
    log = json.loads(run(capsys, "--format", "sarif", *FILES)[1])
    jsonschema.Draft4Validator(SCHEMA).validate(log)
    changes: list[Any] = [
        change for one in log["runs"][0]["results"] for fix in one["fixes"] for change in fix["artifactChanges"]
    ]
    for file, text, wanted in zip(FILES, (SHELL, PYTHON), (ALL_SHELL, ALL_PYTHON), strict=True):
        edits = []
        for change in changes:
            for one in change["replacements"] if change["artifactLocation"]["uri"] == file else ():
                region = one["deletedRegion"]
                place = tuple(region[key] for key in ("startLine", "startColumn", "endLine", "endColumn"))
                edits.append((place, one["insertedContent"]["text"]))
        assert _edited(text, edits) == wanted


def _edited(text: str, edits: Iterable[tuple[tuple[int, ...], str]]) -> str:
    """Return the text after edits by line and column, applied last first."""
    lines = text.splitlines(keepends=True)
    for (line, column, end_line, end_column), words in sorted(edits, reverse=True):
        assert line == end_line
        lines[line - 1] = lines[line - 1][: column - 1] + words + lines[line - 1][end_column - 1 :]
    return "".join(lines)


def test_what_cannot_be_mended_says_why(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MS_ALLOC_CONF", "enable_vmm=True")
    code, out, _ = run(capsys, "--env-from-process", "--fix=unsafe")
    assert code == 1
    assert "not automatic here: the variable is from the environment of this process" in out
    assert "此处不能自动修复：该变量来自当前进程" in run(capsys, "--env-from-process", "--lang", "zh")[1]


def test_a_checklist_of_ones_own_can_mend_settings(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    text = """\
dialects: [mindformers]
checks:
  - id: OUR001
    name: our-log-level
    severity: warning
    category: style
    title: {en: Not our log level, zh: 日志级别不统一}
    why: {en: The log server wants level 3., zh: 日志服务要求级别 3。}
    message: {en: "GLOG_v is {value}", zh: "GLOG_v 为 {value}"}
    help: {en: write 3, zh: 请写 3}
    evidence: [{framework: MindSpore, version: "2.9.0", file: mindspore/log.py}]
    bad: "GLOG_v=2"
    good: "GLOG_v=3"
    fix: {safe: true, set-value: "3"}
    test: {path: GLOG_v, one-of: ["3"]}
"""
    (project / "own.yaml").write_text(text)
    (project / "a.env").write_text("GLOG_v=2 # level\n")
    run(capsys, "--checklist", "own.yaml", "--select", "OUR001", "--fix", "a.env")
    assert (project / "a.env").read_text() == "GLOG_v=3 # level\n"
    # Fixes that only apply to a config, or to code, are ignored.
    for fix in ("{safe: true, remove-key: true}", "{safe: true, rewrite: level}", "{safe: true, rewrite: nothing}"):
        (project / "own.yaml").write_text(text.replace('{safe: true, set-value: "3"}', fix))
        (project / "a.env").write_text("GLOG_v=2\n")
        _, out, err = run(capsys, "--checklist", "own.yaml", "--select", "OUR001", "--fix", "a.env")
        assert "not automatic here" in out, err
        assert (project / "a.env").read_text() == "GLOG_v=2\n"
