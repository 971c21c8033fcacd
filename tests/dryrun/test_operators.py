"""Test which operators can be simulated, forward and backward, by the record for each release of MindSpore.

``MS_TUNE_TEST_OPERATORS`` names the Python of an environment with any MindSpore. For a release without a record, all
failures are shown.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.dryrun.operator_calls import CALLS, DATA
from tests.dryrun.operators import ROOT, data_file, failed, reason_of, release_of

_PYTHON = os.environ.get("MS_TUNE_TEST_OPERATORS", "")
_FINE = {"outputs": [[[4, 6], "Float32"]], "gradients": {"x": [4, 6]}, "inputs": {"x": [4, 6]}}


@pytest.mark.mindspore
@pytest.mark.slow
@pytest.mark.skipif(not _PYTHON, reason="takes minutes; MS_TUNE_TEST_OPERATORS names a Python with MindSpore")
def test_what_fails_is_written_down() -> None:
    file = data_file(release_of(_PYTHON))
    known = json.loads(file.read_text("utf-8"))["failed"] if file.is_file() else {}
    assert failed(_PYTHON) == known


@pytest.mark.parametrize(
    ("simulated", "computed", "reason"),
    [
        (_FINE, _FINE, ""),
        (_FINE, {"forward": "TypeError: no kernel"}, ""),
        ({"ended": "SIGSEGV"}, _FINE, "ended: SIGSEGV"),
        (_FINE | {"backward": "no"}, {"backward": "no"}, "backward, on the CPU too: no"),
        (_FINE, _FINE | {"outputs": [[[7, 6], "Float32"]]}, "shape: [[4, 6]], on the CPU [[7, 6]]"),
        (
            _FINE | {"outputs": [[[4, 5], "Float32"]]},
            _FINE | {"outputs": [[[4, 3], "Float32"]]},
            "bound: [[4, 5]], on the CPU [[4, 3]]",
        ),
        (_FINE | {"gradients": {"x": [1]}}, _FINE, "gradient: {'x': [1]}"),
    ],
)
def test_whatever_is_not_as_it_should_be_has_a_reason(
    simulated: dict[str, Any], computed: dict[str, Any], reason: str
) -> None:
    assert reason_of(simulated, computed) == reason


@pytest.mark.parametrize("file", sorted(DATA.glob("*.json")), ids=lambda file: file.stem)
def test_the_docs_name_what_fails(file: Any) -> None:  # noqa: ANN401 - a path
    result = json.loads(file.read_text("utf-8"))
    assert (result["mindspore"], set(result["failed"]) <= set(CALLS)) == (file.stem, True)
    docs = (ROOT / "docs" / "dryrun-operators.md").read_text("utf-8")
    assert [call for call in result["failed"] if f"`{call}`" not in docs] == []
