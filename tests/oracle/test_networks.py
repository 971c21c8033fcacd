"""Compare the harvested refusals of MindFormers' network configs with the checklists, and the class with what was harvested."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from ms_tune.enums import Dialect
from ms_tune.facts.query import VERSIONS
from ms_tune.lint.checklist import built_in
from tests.oracle.framework import why_missing
from tests.oracle.make_networks import FIGURES, IDS, Release

_SHARE = 0.4  # of the places that stop, served at least in each release


@pytest.mark.parametrize("dialect", IDS)
def test_most_refusals_of_networks_are_rows(dialect: Dialect) -> None:
    figures = json.loads(FIGURES.read_text("utf-8"))
    assert figures.keys() == {*VERSIONS}
    assert all(one["served"] >= _SHARE * sum(one.values()) for one in figures.values())
    rows = next(one for one in built_in(dialect) if one.id == IDS[dialect]).entry["test"]
    assert len(rows) >= max(one["served"] for one in figures.values())


@pytest.mark.slow
@pytest.mark.mindspore
@pytest.mark.skipif(find_spec("mindspore") is None, reason="MindSpore is not installed")
def test_the_class_stops_as_harvested(tmp_path: Path) -> None:
    missing = why_missing("1.9")
    if missing:
        pytest.skip(missing)
    release = Release("1.9", tmp_path)
    found = [(kind, stop) for kind, stop in release.stops() if stop.condition]
    assert [stop for kind, stop in found[::5] if not release.served(kind, stop)] == []
    release.close()
