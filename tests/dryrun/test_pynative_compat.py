"""Test the answers of several devices, requested by a small program in simulation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ms_tune.dryrun import dynamic
from ms_tune.dryrun.job import PynativeJob
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.enums import Dialect
from ms_tune.facts.training import Framework
from tests import dynamic_jobs
from tests.dryrun.configs import edited, source_of
from tests.dryrun.machine import needs_mindspore
from tests.reference.configs import CASES

PROGRAM = Path(__file__).with_name("answers_program.py")
CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.mindspore
@pytest.mark.slow
@needs_mindspore
def test_what_simulation_cannot_answer_is_answered(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ms_tune", "dryrun", "--devices", "4", "--run-dir", "run", "--"]
    subprocess.run(
        [*command, sys.executable, str(PROGRAM), "answers.json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")])},
        check=False,
        capture_output=True,
    )
    (found,) = tmp_path.rglob("answers.json")
    answers = json.loads(found.read_text("utf-8"))
    assert answers == {
        "everybody": [0, 1, 2, 3],
        "pair": [0, 2],
        "without an answer": [[0, 0, 0, 0], [0, 0, 0, 0]],
        "even": [[3, 3, 3, 3], [3, 3, 3, 3]],
        "without an answer, 2.0": [[0, 0, 0, 0], [0, 0, 0, 0], [0], [0], [2]],
        "even, 2.0": [[48, 48, 48, 48], [48, 48, 48, 48], [12], [12], [2]],
        "handed": [[128, 1, 64], "BFloat16"],
    }


@pytest.mark.parametrize("pipeline", [1, 2])
def test_a_stage_knows_what_comes_from_the_one_before(pipeline: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic, "pynative_framework", lambda: Framework("mindformers.pynative", "MindFormers 2.1.0"))
    config = edited(CASES["DeepSeek-V3"].config, "parallelism.pipeline_parallel", pipeline)
    model, split = config["model"], config["parallelism"]
    run = dynamic_jobs.prepare(
        source_of(config), "config.yaml", DryrunRequest(stage=pipeline - 1), 8, Dialect.MINDFORMERS_PYNATIVE
    )
    assert isinstance(run.job, PynativeJob)
    tokens = model["seq_length"] // split.get("tensor_parallel", 1) // split.get("context_parallel", 1)
    expected = () if pipeline == 1 else (tokens, 1, model["hidden_size"])
    assert run.job.handed == expected
    assert run.job.handed_dtype == ("" if pipeline == 1 else "bfloat16")
