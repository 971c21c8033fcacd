"""The lists of expected figures that MindSpeed's tests keep."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ms_tune.errors import TraceError
from ms_tune.readers.logged_steps import read_baseline
from ms_tune.units import MIB

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("time", [0, 0.0, -1.0, 1e10, "1.5", None, True])
def test_a_step_takes_some_time_and_not_for_ever(time: object, tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    file.write_text(json.dumps({"time info": [1200.0, time]}), encoding="utf-8")
    with pytest.raises(TraceError) as caught:
        read_baseline(file)
    assert caught.value.message.params == {"list": "time info", "place": 2}


@pytest.mark.parametrize(("size", "kept"), [(0, True), (1.5, True), (-1.0, False), (1e9, False), ("1", False)])
def test_memory_is_mebibytes_from_none_up(size: object, kept: bool, tmp_path: Path) -> None:  # noqa: FBT001 - parametrised
    file = tmp_path / "baseline.json"
    memory = [{"rank": 3, "allocated memory": size, "max allocated memory": 2.5}]
    file.write_text(json.dumps({"time": [1200.0], "memo info": memory}), encoding="utf-8")
    found = read_baseline(file).memory
    assert list(found) == ([3] if kept else [])
    if isinstance(size, int | float) and kept:
        assert (found[3].allocated, found[3].max_allocated) == (size * MIB, 2.5 * MIB)
