"""Check that every finding states its consequence in the run, in every output format: by the form of the checklists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.diagnostics import Category, Severity
from ms_tune.facts.query import data_folder
from ms_tune.lint.checklist import built_in, built_in_code
from ms_tune.text import lookup, texts_of

CHECKS = [*built_in(), *(check for checks in built_in_code().values() for check in checks)]
TEXTS = {
    text_id.removeprefix("consequence."): lookup(text_id)
    for text_id in texts_of("consequence")
    if text_id not in ("consequence.label", "consequence.sentence")
}
STOPS = {one for one in TEXTS if one.startswith("stops-")} - {"stops-later-release", "stops-or-no-effect"}
# Consequences of errors that do not stop a run: its result is useless.
AS_BAD = {"hangs", "other-training", "parts-of-the-command"}
CONFIG = "runner_config: {batch_size: 1}\nparallel_config: {pipeline_stage: 1}\nprofile: True\n"


def test_each_message_of_each_check_has_a_consequence() -> None:
    for check in CHECKS:
        assert check.consequences.keys() <= {"default", *check.messages}, check.id
        for message in check.messages:
            assert check.consequences.get(message, check.consequences.get("default")), (check.id, message)


def test_what_is_said_goes_with_severity_and_category() -> None:
    wrong = {}
    for check in CHECKS:
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
    assert {one for check in CHECKS for one in check.consequences.values()} == set(TEXTS)
    for sentences in zip(*TEXTS.values(), strict=True):
        assert len(set(sentences)) == len(TEXTS)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("form", ["text", "concise", "json", "sarif", "github", "junit"])
def test_every_form_of_output_has_the_consequence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, language: str
) -> None:
    (tmp_path / "a.yaml").write_text(CONFIG, encoding="utf-8")
    main(["lint", "--no-config", "--lang", language, "--select", "MST509", "--format", form, str(tmp_path / "a.yaml")])
    text = TEXTS["slower-and-files"]
    assert (text.en if language == "en" else text.zh) in capsys.readouterr().out
