"""What ms-tune says of the layers of a program is what the frameworks' own code does with its arguments."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from ms_tune.normalize.megatron import SERVED
from tests.oracle.make_megatron import SOURCES
from tests.oracle.megatron_cases import random_arguments
from tests.oracle.megatron_layers import answers, told

pytestmark = [
    pytest.mark.skipif(SOURCES not in os.environ, reason=f"{SOURCES} names no sources of MindSpeed-LLM"),
    pytest.mark.slow,
]
CASES = int(os.environ.get("MS_TUNE_ORACLE_CASES", "50"))
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "1"))


def cases_of(seed: str, count: int) -> list[list[str]]:
    random = Random(seed)  # noqa: S311 - cases, no secrets
    return [random_arguments(random) for _ in range(count)]


@pytest.mark.parametrize("release", SERVED)
def test_random_arguments(release: str) -> None:
    cases = cases_of(f"{SEED} {release}", CASES)
    found = answers(Path(os.environ[SOURCES], release), cases)
    different = [
        (" ".join(case), theirs, ours)
        for case, theirs in zip(cases, found, strict=True)
        if theirs != (ours := told(case, release))
    ]
    assert different == []


@pytest.mark.parametrize("release", SERVED)
def test_a_process_that_has_imported_everything_answers_as_a_new_one_does(release: str) -> None:
    cases = cases_of(f"new {SEED} {release}", 5)
    folder = Path(os.environ[SOURCES], release)
    assert list(answers(folder, cases)) == list(answers(folder, cases, "cold"))
