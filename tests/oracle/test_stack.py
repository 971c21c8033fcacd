"""Compare the documented versions for MindSpeed-Core-MS with its own scripts and README."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ms_tune.facts.query import load
from tests.oracle.make_stack import SOURCES, make_rows


@pytest.mark.skipif(SOURCES not in os.environ, reason=f"{SOURCES} names no folder with MindSpeed-Core-MS's releases")
def test_the_documented_releases() -> None:
    assert make_rows(Path(os.environ[SOURCES])) == load("stack")["releases"]
