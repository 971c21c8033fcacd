from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ms_tune.facts.query import data_folder

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
    assert {template.parent.name for template in TEMPLATES} == {"mindformers", "mindformers_pynative", "mindspeed_ms"}
