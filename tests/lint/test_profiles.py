"""Test settings by profile, the consequence of every finding, and checklists of one's own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.diagnostics import Category, Severity
from ms_tune.facts.query import data_folder
from ms_tune.lint.checklist import Check, built_in, built_in_code
from ms_tune.lint.code_files import ENVIRONMENT, PYTHON, parse_python
from ms_tune.lint.engine import lint
from ms_tune.lint.environment.settings import parse_shell
from ms_tune.lint.settings import PROFILES, settings_for
from ms_tune.source.yaml import parse_source
from ms_tune.text import lookup, texts_of
from tests.lint.code import lint_environment, lint_python
from tests.lint.test_fix import version_for

FILE = Path("file")
CODE = {check.id: (kind, check) for kind, checks in built_in_code().items() for check in checks}
CHECKS = {check.id: check for check in (*built_in(), *(check for _, check in CODE.values()))}
OPPOSITES = [check for check in CHECKS.values() if check.opposite]


def lint_profile(text: str, like: Check, profile: str) -> list[str]:
    kind = CODE[like.id][0] if like.id in CODE else None
    if kind == ENVIRONMENT:
        findings = lint_environment(parse_shell(text, FILE), profile=profile)
    elif kind == PYTHON:
        findings = lint_python(parse_python(text, FILE), profile=profile)
    else:
        dialect = min(like.dialects)
        findings = lint(parse_source(text, FILE), dialect, built_in(dialect), version_for(like, dialect), profile)
    return [finding.id for finding in findings]


def test_every_profile_asks_for_something_of_its_own() -> None:
    asked = {profile for check in OPPOSITES for profile in check.profiles}
    assert asked == set(PROFILES) - {"performance"}


@pytest.mark.parametrize("check", OPPOSITES, ids=lambda check: check.id)
def test_what_one_check_wants_is_what_the_other_finds_wrong(check: Check) -> None:
    other = CHECKS[check.opposite or ""]
    assert not {*check.profiles} & {*other.profiles}
    assert check.dialects <= other.dialects
    (mine,), theirs = check.profiles, "performance"
    assert theirs in other.profiles
    assert check.id in lint_profile(check.bad, check, mine)
    assert other.id in lint_profile(check.good, check, theirs)
    assert check.id not in lint_profile(other.bad, check, mine)
    assert other.id not in lint_profile(check.bad, check, theirs)


EVERY = [*built_in(), *(check for checks in built_in_code().values() for check in checks)]
TEXTS = {
    text_id.removeprefix("consequence."): lookup(text_id)
    for text_id in texts_of("consequence")
    if text_id not in ("consequence.label", "consequence.sentence")
}
STOPS = {one for one in TEXTS if one.startswith("stops-")} - {"stops-later-release", "stops-or-no-effect"}
# Consequences of errors that do not stop a run: its result is useless.
AS_BAD = {"hangs", "other-training", "nothing-trained", "parts-of-the-command"}
CONFIG = "runner_config: {batch_size: 1}\nparallel_config: {pipeline_stage: 1}\nprofile: True\n"


def test_each_message_of_each_check_has_a_consequence() -> None:
    for check in EVERY:
        assert check.consequences.keys() <= {"default", *check.messages}, check.id
        for message in check.messages:
            assert check.consequences.get(message, check.consequences.get("default")), (check.id, message)


def test_what_is_said_goes_with_severity_and_category() -> None:
    wrong = {}
    for check in EVERY:
        said, errors = set(check.consequences.values()), check.severity is Severity.ERROR
        if errors and not said <= STOPS | AS_BAD | {"no-effect"}:
            wrong[check.id] = said
        if errors and not said & (STOPS | AS_BAD):
            wrong[check.id] = said
        if check.category not in (Category.CORRECTNESS, Category.MEMORY) and said & STOPS and not errors:
            wrong[check.id] = said
    assert wrong == {}


def test_consequences_are_those_of_the_schema_each_with_its_sentence() -> None:
    schema = json.loads((data_folder("checklists") / "schema.json").read_text(encoding="utf-8"))
    assert schema["$defs"]["consequence"]["enum"] == list(TEXTS)
    assert {one for check in EVERY for one in check.consequences.values()} == set(TEXTS)
    for sentences in zip(*TEXTS.values(), strict=True):
        assert len(set(sentences)) == len(TEXTS)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("form", ["text", "concise", "json", "sarif", "github", "gitlab", "junit"])
def test_every_form_of_output_has_the_consequence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, language: str
) -> None:
    (tmp_path / "a.yaml").write_text(CONFIG, encoding="utf-8")
    main(["lint", "--no-config", "--lang", language, "--select", "MST509", "--format", form, str(tmp_path / "a.yaml")])
    text = TEXTS["slower-and-files"]
    assert (text.en if language == "en" else text.zh) in capsys.readouterr().out


PAGE = (Path(__file__).parents[2] / "docs" / "lint.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
PROGRAM = "runner_config: {batch_size: 1}\nparallel_config: {pipeline_stage: 1}\noutput_dir: ./output\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "team.yaml").write_text(EXAMPLE, encoding="utf-8")
    (tmp_path / "train.yaml").write_text(PROGRAM, encoding="utf-8")
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
