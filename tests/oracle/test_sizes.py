"""Compare the parameters of the table's public models with those of MindFormers' own networks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from ms_tune.enums import Dialect
from ms_tune.estimate.parameters import count_parameters
from ms_tune.facts.models import model_of
from ms_tune.facts.query import load

ROOT = Path(__file__).parents[2]
MODELS = load("sizes")["models"]
# One of each class that trains, and the largest.
NAMES = ("Qwen3-0.6B", "Qwen3-32B", "TeleChat3-36B", "Qwen3-30B-A3B", "TeleChat3-105B-A4.7B", "DeepSeek-V3")


@pytest.mark.slow
@pytest.mark.mindspore
@pytest.mark.skipif(find_spec("mindformers") is None, reason="MindFormers is not installed")
def test_a_public_model_has_the_parameters_of_the_real_class(tmp_path: Path) -> None:
    configs = [json.dumps(MODELS[name]["config"]) for name in NAMES]
    command = [sys.executable, "-m", "tests.oracle.sizes_child", *configs]
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    real = [int(count) for count in re.findall(r"^parameters (\d+)$", done.stdout, re.MULTILINE)]
    source = SimpleNamespace(data={"use_legacy": False})
    models = [model_of(source, Dialect.MINDFORMERS, "1.9", MODELS[name]["config"]) for name in NAMES]
    assert dict(zip(NAMES, real, strict=True)) == dict(zip(NAMES, map(count_parameters, models), strict=True)), (
        done.stderr
    )
