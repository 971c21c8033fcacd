"""Test operators in simulation: which run, the answers of several devices, and tokens distributed over experts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.dryrun import dynamic
from ms_tune.dryrun.experts import shared_out
from ms_tune.dryrun.job import PynativeJob
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.enums import Dialect
from ms_tune.facts.training import Framework
from tests import dynamic_jobs
from tests.dryrun.configs import edited, source_of
from tests.dryrun.machine import needs_mindspore
from tests.dryrun.operator_calls import CALLS, DATA
from tests.dryrun.operators import ROOT, data_file, failed, reason_of, release_of
from tests.reference.configs import CASES


@given(tokens=st.integers(0, 500), local=st.integers(1, 6), ranks=st.integers(1, 6), data=st.data())
def test_no_token_is_lost_and_no_expert_gets_two_more_than_another(
    tokens: int, local: int, ranks: int, data: st.DataObject
) -> None:
    own, experts = data.draw(st.integers(0, ranks - 1)), local * ranks
    chosen = sorted(token % experts for token in range(tokens))  # the expert of every token, distributed in turn
    counts = [chosen.count(expert) for expert in range(experts)]
    ends, sent, received = shared_out(tokens, experts, ranks, own)
    assert sent == tuple(sum(counts[rank * local : (rank + 1) * local]) for rank in range(ranks))
    assert received == (sent[own],) * ranks
    assert ends == tuple(accumulate(ranks * count for count in counts[own * local : (own + 1) * local]))
    assert ends[-1] == sum(received)


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
