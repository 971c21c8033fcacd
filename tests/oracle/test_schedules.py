"""What lint says of schedules that lack an argument, beside the real classes of the installed MindFormers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from ms_tune.enums import Dialect
from ms_tune.facts.query import load
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source

CASES = int(os.environ.get("MS_TUNE_ORACLE_CASES", "20"))
SEED = os.environ.get("MS_TUNE_ORACLE_SEED", "11")
ARGUMENTS = {
    "learning_rate": 1.0e-4,
    "warmup_steps": 2,
    "warmup_ratio": 0.1,
    "decay_start_steps": 5,
    "decay_start_ratio": 0.5,
    "base_lr": 1.0e-4,
    "t_max": 10,
    "t_0": 10,
    "lr_end": 0.0,
    "warmup_lr_init": 0.0,
}
RELEASE = "1.9"  # what the tests install


def settings(random: Random, name: str) -> dict[str, Any]:
    """A schedule with some of its arguments, some of them null."""
    chosen = {key: value for key, value in ARGUMENTS.items() if random.random() < 0.6}
    nulls = {key: None for key in chosen if key.startswith(("warmup_s", "decay")) and random.random() < 0.1}
    return {"type": name, "total_steps": 20, **chosen, **nulls}


def told(schedule: dict[str, Any]) -> bool:
    text = yaml.safe_dump({"run_mode": "train", "lr_schedule": schedule})
    checks = [one for one in built_in(Dialect.MINDFORMERS) if one.id == "MST551"]
    return bool(lint(parse_source(text, Path("a.yaml")), Dialect.MINDFORMERS, checks, RELEASE))


@pytest.mark.mindspore
def test_what_lacks_an_argument_cannot_be_built_and_nothing_else(tmp_path: Path) -> None:
    random = Random(SEED)  # noqa: S311 - test data
    cases = [settings(random, name) for name in load("needed")["lr_schedule"] for _ in range(CASES)]
    command = [sys.executable, "-m", "tests.oracle.schedules_child"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        command, input=json.dumps(cases), cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    built = json.loads(done.stdout.splitlines()[-1])
    assert [not told(case) for case in cases] == built
    assert 0.2 < sum(built) / len(built) < 0.9
