from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.__main__ import prepare
from tests.fuzz.targets import TARGETS, survives


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(number=st.integers(0, 2**64))
def test_damaged_files_are_read_or_refused(name: str, number: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        prepare(TARGETS[name], Path(place), 1, number)
        assert survives(TARGETS[name], Path(place))


def test_an_input_is_made_of_its_number_alone(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        prepare(TARGETS["report"], tmp_path, 3, 14)
        found.append({path.name: path.read_bytes() for path in tmp_path.iterdir()})
    assert found[0] == found[1]
