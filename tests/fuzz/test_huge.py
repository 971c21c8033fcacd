from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ms_tune.resources import data_folder

if TYPE_CHECKING:
    from pathlib import Path

TEMPLATES = sorted(data_folder("yaml_templates").rglob("*.yaml"))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
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
    assert {template.parent.name for template in TEMPLATES} == {"mindformers", "mindformers_pynative", "mindspeed_ms"}
