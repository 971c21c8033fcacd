"""Run the example of the documentation unchanged."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "normalize-recompute.md"


def test_the_documented_example() -> None:
    outcome = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert outcome.attempted >= 6
    assert outcome.failed == 0
