from __future__ import annotations

import pytest

from ms_tune.lint.engine import matches


@pytest.mark.parametrize(
    ("version", "versions_", "fits"),
    [
        ("1.9", None, True),
        ("1.10", ">=1.9", True),
        ("1.9", ">=1.7,<1.9", False),
        ("2", "==2.0", True),
        ("2.1", "!=2.1", False),
    ],
)
def test_a_version_lies_in_a_range(version: str, versions_: str | None, *, fits: bool) -> None:
    assert matches(version, versions_) is fits
