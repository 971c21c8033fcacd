"""Test settings that are right in one profile and wrong in another."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.lint.checklist import Check, built_in, built_in_code
from ms_tune.lint.code_files import ENVIRONMENT, PYTHON
from ms_tune.lint.engine import lint
from ms_tune.lint.environment.settings import parse_shell
from ms_tune.lint.python_code.source import parse_python
from ms_tune.lint.settings import PROFILES
from ms_tune.source.yaml import parse_source
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
