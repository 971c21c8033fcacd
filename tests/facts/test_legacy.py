"""Which configs have a legacy network; ``tests/oracle/test_legacy.py`` asks the releases themselves."""

from __future__ import annotations

from typing import Any

import pytest

from ms_tune.facts.models import is_legacy
from tests.jobs import startup_of
from tests.normalize.conversion_cases import source_of


@pytest.mark.parametrize(
    ("data", "legacy", "fills"),
    [
        ({}, True, True),
        ({"use_legacy": None}, True, False),
        ({"use_legacy": "False"}, True, True),
        ({"use_legacy": 1}, True, True),
        ({"use_legacy": 0}, False, False),
        ({"use_legacy": ""}, False, False),
        ({"use_legacy": []}, False, False),
        ({"context": {"use_legacy": False}}, False, True),
        ({"use_legacy": False, "context": {"use_legacy": None}}, True, False),
        ({"use_legacy": False, "context": None}, False, False),
    ],
)
def test_what_counts_as_legacy(data: dict[str, Any], *, legacy: bool, fills: bool) -> None:
    assert (is_legacy(data), startup_of(source_of(data)).fills_experts) == (legacy, fills)
