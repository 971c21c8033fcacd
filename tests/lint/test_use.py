"""Test the use of the linter: standard input, links to documentation, and very many findings."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path

import pytest

from ms_tune.cli.main import main

CONFIG = "use_parallel: True\nrunner_config: {batch_size: 1}\nprofile: True\n"


def lint_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    assert main(["lint", "--lang", "en", "--json", *arguments]) == 1
    findings: list[dict[str, object]] = json.loads(capsys.readouterr().out)["findings"]
    return findings


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
    file = tmp_path / name  # this file does not exist
    names = {
        (one["name"], one["file"]) for one in lint_json(capsys, "--stdin-filename", str(file), "--fail-on", "info", "-")
    }
    assert (rule, str(file)) in names


def test_a_name_for_standard_input_needs_standard_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "--lang", "en", "--stdin-filename", "a.sh", "b.yaml"]) == 2
    assert "--stdin-filename requires the file argument -" in capsys.readouterr().err


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
    (finding,) = lint_json(capsys, "a.yaml")
    page = page and page.replace("MST501", str(finding["id"]))
    assert finding["more"] == {"command": "ms-tune rule profiling-on", "page": page}
    main(["lint", "--lang", "en", "a.yaml"])
    more = f"= more: ms-tune rule profiling-on, {page}\n" if page else "= more: ms-tune rule profiling-on\n"
    assert more in capsys.readouterr().out
    main(["lint", "--format", "sarif", "a.yaml"])
    (rule,) = json.loads(capsys.readouterr().out)["runs"][0]["tool"]["driver"]["rules"]
    assert rule.get("helpUri") == page
    main(["check", "--json", "a.yaml"])
    matters = json.loads(capsys.readouterr().out)["files"][0]["matters"]
    assert [one["more"] for one in matters if one["id"]] == [finding["more"]]


_LINK = re.compile(r"\033\]8;;(.*?)\033\\(.*?)\033\]8;;\033\\")


@pytest.mark.drawn(6)
@pytest.mark.parametrize(
    "case",
    [
        ({}, True),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, True),
        ({"TERM": "xterm"}, False),
        ({"TERM": "linux"}, False),
        ({"TERM": "dumb"}, False),
        ({"COLORTERM": "xfce4-terminal"}, False),
        ({"NO_COLOR": "1"}, False),
        (None, False),  # no terminal, although colours are wanted
    ],
    ids=str,
)
@pytest.mark.parametrize("command", ["lint", "lint --format concise", "check -v"])
def test_findings_are_links_where_the_terminal_shows_links(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    case: tuple[dict[str, str] | None, bool],
    command: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment, linked = case
    (tmp_path / "ms-tune.toml").write_text('rule-page = "https://example.org/{name}"\n')
    (tmp_path / "a b.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "COLORTERM", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    terminal = {"TERM": "xterm-256color", "COLUMNS": "80", **(environment or {"FORCE_COLOR": "1"})}
    for name, value in terminal.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: environment is not None)
    main([*command.split(), "--lang", "en", "a b.yaml"])
    shown = capsys.readouterr().out
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: False)
    main([*command.split(), "--lang", "en", "a b.yaml"])
    bare = capsys.readouterr().out
    colours = r"\033\[[0-9;]*m"
    assert re.sub(colours, "", _LINK.sub(r"\2", shown)) == re.sub(colours, "", bare)
    links = {target for target, _ in _LINK.findall(shown)}
    file = f"file://{os.uname().nodename}{tmp_path}/a%20b.yaml"
    assert links == ({file, "https://example.org/profiling-on"} if linked else set())


@pytest.mark.slow
def test_of_very_many_findings_the_first_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.py"
    file.write_text("from mindspore import ops\nx = 1\n" + "x = ops.add(x, 1)\n" * 2100)
    assert main(["lint", "--no-config", "--lang", "en", "--json", str(file)]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert len(findings) == 2001
    (more,) = (one for one in findings if one["id"] == "MST004")
    assert "has more findings here; only the first 2000 are listed" in more["message"]
