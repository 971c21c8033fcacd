"""What the tests of the commands share."""

from __future__ import annotations

import pytest

from ms_tune.facts import query


@pytest.fixture(autouse=True)
def _no_framework_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed beside ms-tune must not change what the linter is expected to print."""
    monkeypatch.setattr(query, "installed_version", lambda _package: None)
