"""Compare the memory of the reference transformer and the real framework, config by config.

Not in the default run, because it takes minutes and a separate environment. ``MS_TUNE_TEST_MINDSPEED`` names a Python with
MindSpore 2.7, MindFormers 1.6 (which contains MindSpeed-Core-MS's layers) and ms-tune's requirements.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.files import read_data

CHECKOUT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("MS_TUNE_TEST_MINDSPEED", "")
DATA = read_data("framework_cases.yaml")
CLOSE = 0.015


def config_of(case: str) -> dict[str, Any]:
    config: dict[str, Any] = copy.deepcopy(DATA["base"])
    for path, value in DATA["cases"][case].items():
        section, key = path.split(".", 1)
        config[section][key] = value
    return config


def dryrun(folder: Path, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [
            PYTHON,
            "-m",
            "ms_tune",
            "dryrun",
            "case.yaml",
            "--devices",
            str(DATA["devices"]),
            "--json",
            "--layers",
            "all",
            *options,
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def mask_bytes(config: dict[str, Any], result: dict[str, Any]) -> int:
    """Return the bytes of the attention mask of all micro-batches, one byte per element: the reference run has no mask."""
    batch, length = config["dataset_config"], config["model_config"]["seq_length"]
    changed = {change["key"]: change["after"] for change in result["changes"]}
    micro_batches: int = changed.get("dataset_config.micro_batch_num", batch["micro_batch_num"])
    return micro_batches * int(batch["batch_size"]) * int(length) ** 2


@pytest.mark.mindspore
@pytest.mark.skipif(not PYTHON, reason="MS_TUNE_TEST_MINDSPEED names no Python with MindSpore 2.7 and MindFormers 1.6")
@pytest.mark.parametrize("case", DATA["cases"])
def test_the_reference_needs_the_memory_that_the_framework_needs(case: str, tmp_path: Path) -> None:
    config = config_of(case)
    (tmp_path / "case.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    real, reference = dryrun(tmp_path), dryrun(tmp_path, "--reference")
    assert real["model"] != reference["model"], "the framework's own code was not used"
    mask = mask_bytes(config, real)
    for one, other in zip(real["stages"], reference["stages"], strict=True):
        assert other["peak_bytes"] == pytest.approx(one["peak_bytes"] - mask, rel=CLOSE), f"stage {one['stage']}"
