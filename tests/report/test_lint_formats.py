"""Test the machine-readable output formats of ``ms-tune lint``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from ms_tune.cli.main import main
from ms_tune.enums import YAML_DIALECTS
from ms_tune.lint.rules import all_rules
from tests.files import read_data
from tests.lint.few import make_only_few

SCHEMA = read_data("sarif/sarif-2.1.0-rtm.4.json")
VALIDATOR = jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER)
CONFIG = """\
trainer: {type: A}
profile: True
optimizer: {eps: 1e-8}  # 数
parallel_config: {pipeline_stage: 1}
recompute_config:
  recompute: [1, 1]
zebra_stripes: "<, :%"
"""


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    make_only_few(monkeypatch)
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "work" / "my config.yaml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "clean.yaml").write_text("trainer: {type: A}\n", encoding="utf-8")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main(["lint", *arguments])
    return capsys.readouterr().out


def sarif(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:  # noqa: ANN401 - JSON
    log = json.loads(run(capsys, "--format", "sarif", *arguments))
    VALIDATOR.validate(log)
    return log["runs"][0]


def test_sarif(capsys: pytest.CaptureFixture[str]) -> None:
    log = sarif(capsys, "my config.yaml")
    rules = log["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["MST102", "MST202", "MST401", "MST509"]
    results = log["results"]
    assert [result["ruleId"] for result in results] == ["MST509", "MST102", "MST401", "MST202"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in results)
    assert [result["level"] for result in results] == ["warning", "warning", "error", "note"]
    (location,) = results[1]["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "my%20config.yaml", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 3, "startColumn": 18, "endLine": 3, "endColumn": 22},
    }
    (fix,) = results[1]["fixes"]
    (replacement,) = fix["artifactChanges"][0]["replacements"]
    assert replacement["insertedContent"] == {"text": "1.e-8"}
    assert results[2]["relatedLocations"][0]["message"] == {"text": "the number of stages"}


@pytest.mark.slow
def test_sarif_of_every_check_is_valid(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    folder = tmp_path / "all"
    folder.mkdir()
    endings = {"yaml": ".yaml", "sh": ".sh", "python": ".py"}
    for rule in all_rules():
        (folder / f"{rule.id}{endings[rule.language]}").write_text(rule.bad, encoding="utf-8")
    for dialect in YAML_DIALECTS:
        main(["lint", "--no-config", "--format", "sarif", "--dialect", dialect.value, str(folder)])
        log = json.loads(capsys.readouterr().out)
        VALIDATOR.validate(log)
        assert len(log["runs"][0]["tool"]["driver"]["rules"]) > 70


def test_sarif_fingerprints_survive_a_move(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    def prints() -> list[str]:
        results = sarif(capsys, "my config.yaml")["results"]
        return [result["partialFingerprints"]["msTuneFinding/v1"] for result in results]

    before = prints()
    assert len(set(before)) == len(before)
    file = project / "work" / "my config.yaml"
    file.write_text(f"seed: 1\n\n{CONFIG}eps: 1e-8\n", encoding="utf-8")
    after = prints()
    assert set(before) < set(after)
    assert len(set(after)) == len(after)


def test_sarif_of_other_places(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    log = sarif(capsys, "my config.yaml", str(project / "clean.yaml"), "missing.yaml")
    (invocation,) = log["invocations"]
    (failure,) = invocation["toolExecutionNotifications"]
    assert not invocation["executionSuccessful"]
    assert failure["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("missing.yaml")
    (project / "other.yaml").write_text("trainer: {type: A}\nprofile: True\n")
    log = sarif(capsys, "../other.yaml")
    uri = log["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == (project / "other.yaml").as_uri()
    assert sarif(capsys, "../clean.yaml")["results"] == []


def test_github(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "--format", "github", "my config.yaml").splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error", "::warning", "::warning", "::notice"]
    assert lines[2] == (
        "::warning file=my config.yaml,line=3,endLine=3,col=18,endColumn=22,title=MST102 number-read-as-text"
        "::YAML reads '1e-8' as a string, not as a number; every process stops during startup, before the first step"
        "%0Ahelp: write it with a decimal point and a signed exponent: 1.e-8"
    )


def test_gitlab(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    # The fields that GitLab reads of a Code Quality report, and its five severities (doc/ci/testing/code_quality.md).
    found = json.loads(run(capsys, "--format", "gitlab", "my config.yaml", str(project / "absent.yaml")))
    fields = {"description", "check_name", "fingerprint", "severity", "location"}
    assert {frozenset(one) for one in found} == {frozenset(fields)}
    assert {one["severity"] for one in found} <= {"info", "minor", "major", "critical", "blocker"}
    assert len({one["fingerprint"] for one in found}) == len(found)
    places = [(one["check_name"], one["location"]["path"], one["location"]["lines"]["begin"]) for one in found]
    assert places[1] == ("MST102 number-read-as-text", "my config.yaml", 3)
    assert places[-1][:2] == ("unreadable", str(project / "absent.yaml"))


def test_junit(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    out = run(capsys, "--format", "junit", "my config.yaml", str(project / "clean.yaml"))
    root = ET.fromstring(out)  # noqa: S314 - our own output
    assert root.attrib == {"name": "ms-tune lint", "tests": "5", "failures": "3", "errors": "0"}
    first, second = root
    assert (first.get("name"), first.get("failures")) == ("my config.yaml", "3")
    cases = [case.get("name") for case in first]
    assert cases[1] == "MST102 number-read-as-text (3:18)"
    assert [case.find("failure") is None for case in first] == [False, False, False, True]
    assert second.get("name") == str(project / "clean.yaml")
    assert len(second) == 1
