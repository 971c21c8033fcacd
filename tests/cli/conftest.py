"""Provide fixtures for tests of the commands."""

from __future__ import annotations

import pytest

import ms_tune.dryrun.cann_sim.environment  # noqa: F401 - binds the function that is hidden here, whatever test runs first
from ms_tune.facts import query


@pytest.fixture(autouse=True)
def _no_framework_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide installed frameworks, which would change the linter's output."""
    monkeypatch.setattr(query, "installed_version", lambda _package: None)
