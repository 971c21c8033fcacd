from __future__ import annotations

import pytest

from ms_tune.frameworks.dialect import Dialect
from ms_tune.lint import versions
from ms_tune.lint.versions import DEFAULT_VERSIONS, KNOWN_VERSIONS, Release, matches, release_for

STATIC, DYNAMIC, SPEED = Dialect


@pytest.mark.parametrize(
    ("dialect", "installed", "asked", "release", "is_installed"),
    [
        (STATIC, None, None, Release("MindFormers", "1.9"), False),
        (STATIC, "1.8.0", None, Release("MindFormers", "1.8", "1.8.0"), True),
        (STATIC, "1.8.0", "1.7", Release("MindFormers", "1.7"), False),
        (STATIC, "2.1.0rc1", None, Release("MindFormers", "2.1", "2.1.0rc1"), True),
        (STATIC, "1.3.2", None, Release("MindFormers", "1.9", "1.3.2"), False),
        (STATIC, "2.10.0", None, Release("MindFormers", "1.9", "2.10.0"), False),
        (DYNAMIC, "1.9.0", None, Release("MindFormers", "2.1", "1.9.0"), False),
        (DYNAMIC, "2.0.0", None, Release("MindFormers", "2.0", "2.0.0"), True),
        (SPEED, "1.9.0", None, Release("MindSpeed-Core-MS", "0.1"), False),
    ],
)
def test_the_installed_version_counts_if_it_is_known(  # noqa: PLR0913 - one for each column of the table
    dialect: Dialect,
    installed: str | None,
    asked: str | None,
    release: Release,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_installed: bool,
) -> None:
    monkeypatch.setattr(versions, "installed_version", lambda _package: installed)
    assert release_for(dialect, asked) == release
    assert release.is_installed is is_installed


def test_the_default_is_known() -> None:
    assert all(DEFAULT_VERSIONS[dialect] in KNOWN_VERSIONS[dialect] for dialect in Dialect)


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
