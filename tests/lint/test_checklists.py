"""Test the built-in checklists: their form, their texts, and their examples."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from string import Formatter

import pytest

from ms_tune.dialects.mindspeed_mm.read import multimodal_commands
from ms_tune.enums import Dialect
from ms_tune.facts.query import data_folder, default_release, served
from ms_tune.lint.checklist import Check, built_in, built_in_code, read_checklist
from ms_tune.lint.engine import lint, matches
from ms_tune.source.shell.read import read_launches
from ms_tune.source.yaml import SourceFile, parse_source
from ms_tune.text import Language
from tests.jobs import commands_in
from tests.lint.few import profile_for
from tests.scratch import new_folder

CHECKS = built_in()
CASES = [
    pytest.param(check, dialect, id=f"{check.id}-{dialect.value}")
    for check in CHECKS
    for dialect in sorted(check.dialects)
]


def sources(config: str, dialect: Dialect) -> tuple[SourceFile, ...]:
    if dialect is Dialect.MEGATRON:
        return commands_in(Path("pretrain.sh"), config, default_release(dialect))
    if dialect is Dialect.MINDSPEED_MM and not config.startswith(("parallel", "{")):
        folder = new_folder("checklists")
        for name, content in re.findall(r"^# (\S+\.(?:json|yaml)): (.*)$", config, re.MULTILINE):
            (folder / name).write_text(content, encoding="utf-8")  # files that a script names, in its comments
        return multimodal_commands(read_launches(folder / "pretrain.sh", config), config)
    return (parse_source(config, Path("config.yaml")),)


def ids(config: str, check: Check, dialect: Dialect) -> list[str]:
    versions = (default_release(dialect), *reversed(served(dialect)))
    version = next(version for version in versions if matches(version, check.versions))
    found = [
        lint(source, dialect, built_in(dialect), version, profile_for(check)) for source in sources(config, dialect)
    ]
    findings = [finding for one in found for finding in one]
    for finding in findings:
        for language in Language:
            for wording in (finding.message, finding.help, *(related.message for related in finding.related)):
                assert wording is None or not re.search("[{}]{2}", wording.say(language))
    return [finding.id for finding in findings if finding.id not in check.also]


@pytest.mark.slow
@pytest.mark.parametrize(("check", "dialect"), CASES)
def test_bad_example_is_found_and_good_example_is_clean(check: Check, dialect: Dialect) -> None:
    assert ids(check.bad, check, dialect) == [check.id]
    assert ids(check.good, check, dialect) == []


checklist = cache(read_checklist)


@pytest.mark.slow
def test_every_checklist_is_read() -> None:
    written = sum(len(checklist(path).checks) for path in data_folder("checklists").glob("*.yaml"))
    assert len(CHECKS) == written
    for kind, checks in built_in_code().items():
        read = read_checklist(data_folder("checklists") / "code" / f"{kind}.yaml").checks
        assert [check.entry for check in read] == [check.entry for check in checks]
    for dialect in Dialect:
        found = [check.id for check in built_in(dialect)]
        assert found == [check.id for check in CHECKS if dialect in check.dialects]


def test_ids_and_names_are_unique() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:  # MST0xx: the linter itself
        assert re.fullmatch(r"MST[1-9]\d\d\d\d" if check.family else r"MST[1-9]\d\d", check.id)


def test_texts_say_the_same_in_both_languages() -> None:
    def parameters(text: str) -> set[str]:
        return {name for _, name, _, _ in Formatter().parse(text) if name}

    wrong = set()
    for check in CHECKS:
        for text in (check.help, *check.messages.values()):
            if parameters(text.en) != parameters(text.zh):
                wrong.add((check.id, "parameters", text.en))
        for text in (check.title, check.why, check.help, *check.messages.values()):
            if not re.search("[一-鿿]", text.zh) or not text.en.isascii():
                wrong.add((check.id, "language", text.zh))
            # Full-width punctuation between Chinese characters.
            if re.search("[一-鿿][,;:?!()]|[,;?!][一-鿿]", text.zh):
                wrong.add((check.id, "punctuation", text.zh))
    assert wrong == set()
