"""Compare the installed release of a package with ``importlib.metadata``."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ms_tune.facts.query import installed_version


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    installed_version.cache_clear()
    yield
    installed_version.cache_clear()


@pytest.mark.parametrize(
    "package", ["pytest", "PyYAML", "hypothesis", "jsonschema", "mindspore", "mindformers", "no-such"]
)
def test_it_agrees_with_the_standard_library(package: str) -> None:
    try:
        wanted = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        wanted = None
    assert installed_version(package) == wanted


@pytest.mark.parametrize(
    ("folder", "version"),
    [
        ("mindformers-1.8.0.dist-info", "1.8.0"),
        ("MindFormers-2.1.0rc1+ascend.dist-info", "2.1.0rc1+ascend"),
        ("mindformers-1.3.0-py3.9.egg-info", "1.3.0"),
        ("mindformers_extra-1.0.dist-info", None),
        ("mindformers-extra-1.0.dist-info", None),
        ("mindformers", None),
    ],
)
def test_the_folder_shows(folder: str, version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / folder).mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "missing.zip"), str(tmp_path)])
    assert installed_version("mindformers") == version
