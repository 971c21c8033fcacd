"""Compare today's answers with the recorded ones, see :mod:`tests.normalize.recorded`."""

from __future__ import annotations

import json

import pytest

from tests.normalize import recorded_scripts
from tests.normalize.recorded import answer, recorded

CHUNK = 250
CASES = recorded()
SCRIPTS = recorded(recorded_scripts.FILE)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, len(CASES), CHUNK))
def test_answers_are_those_that_were_recorded(start: int) -> None:
    for case in CASES[start : start + CHUNK]:
        assert json.loads(json.dumps(answer(case))) == case["answer"], case["config"]


def test_the_answers_are_of_every_kind() -> None:
    """They contain accepted and refused plans, remedies, explicit lists, conversions and merged lists."""
    reported = [line for case in CASES for line in case["answer"].get("problems", ())]
    assert sum(" | " in line for line in reported) > len(CASES) // 10
    for key in ("written", "values", "lines", "refused"):
        assert sum(bool(case["answer"].get(key)) for case in CASES) > 10, key


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, len(SCRIPTS), CHUNK))
def test_answers_about_scripts_are_those_that_were_recorded(start: int) -> None:
    """Other tests compare their layers with the frameworks' code; this one compares problems and conversions."""
    for case in SCRIPTS[start : start + CHUNK]:
        assert json.loads(json.dumps(recorded_scripts.answer(case))) == case["answer"], case


def test_the_answers_about_scripts_are_of_every_kind() -> None:
    reported = [line for case in SCRIPTS for line in case["answer"].get("problems", ())]
    assert sum(" | " in line for line in reported) > 20
    for key in ("problems", "values", "converted"):
        assert sum(bool(case["answer"].get(key)) for case in SCRIPTS) > 20, key
