"""Damage real files, and put huge numbers into configs: an answer or a clear error."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ms_tune.facts.query import data_folder
from tests.fuzz.__main__ import prepare
from tests.fuzz.targets import TARGETS, survives


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(number=st.integers(0, 2**64))
def test_damaged_files_are_read_or_refused(name: str, number: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        prepare(TARGETS[name], Path(place), 1, number)
        assert survives(TARGETS[name], Path(place))


def test_an_input_that_failed(tmp_path: Path) -> None:
    prepare(TARGETS["outputs"], tmp_path, 77, 4985)  # blocks that end when they begin, of one operator
    assert survives(TARGETS["outputs"], tmp_path) == "read"


def test_an_input_is_made_of_its_number_alone(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        prepare(TARGETS["report"], tmp_path, 3, 14)
        found.append({path.name: path.read_bytes() for path in tmp_path.iterdir()})
    assert found[0] == found[1]


TEMPLATES = sorted(data_folder("yaml_templates").rglob("*.yaml"))


_FEW = {"deepseek3_1b_moe", "llama2_13b_vpp", "mixtral_8x7b_swap", "qwen3_8b_dynamic", "deepseek4_flash_dynamic"}


@pytest.mark.parametrize(
    "template",
    [
        pytest.param(
            one, id=one.stem, marks=[] if one.stem in _FEW or "mindspeed" in one.parent.name else [pytest.mark.more]
        )
        for one in TEMPLATES
    ],
)
def test_a_number_beyond_all_bounds_does_no_harm_anywhere(template: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.huge", str(template)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_there_are_templates_of_every_dialect() -> None:
    assert {template.parent.name for template in TEMPLATES} == {
        *("mindformers", "mindformers_pynative", "mindspeed_ms", "hyper_parallel")
    }


def test_any_file_may_be_any_argument(tmp_path: Path) -> None:
    """``python -m tests.fuzz.any_file`` tries thousands."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.any_file", "--count", "60"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 of 60 failed\n", "")
