"""Check that the changes that make a simulated process cheap do not affect MindSpore or its tracker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
_STACKS = """
import json, sys, traceback
from ms_tune.training_process import make_stacks_cheap

def deep(number, ask):
    if number:
        return deep(number - 1, ask)
    return ask()

def ask():
    return [[one.filename, one.lineno, one.name, one.line, *one] for one in traceback.extract_stack()]

def both():
    return [deep(3, ask) for _ in range(2)]

before, parts = both(), [traceback.extract_stack(limit=2)[-1].name, traceback.extract_stack(sys._getframe(), 1)[0].name]
make_stacks_cheap()
after, again = both(), [traceback.extract_stack(limit=2)[-1].name, traceback.extract_stack(sys._getframe(), 1)[0].name]
lines = [[frame for frame in stack if frame[2] != "<module>"] for stack in (*before, *after)]
print(json.dumps([lines, parts, again]))
"""
_CLONES = """
import json
import mindspore as ms
from mindspore import Parameter, ParameterTuple
from ms_tune.training_process import make_clones_cheap

def facts():
    weights = ParameterTuple([
        Parameter(ms.ops.ones((4, 3), dtype), name=f"w.{dtype}.{grad}", requires_grad=grad)
        for dtype in (ms.float32, ms.bfloat16) for grad in (True, False)
    ])
    same = [one.asnumpy().astype("float32").sum().item() for one in weights.clone("same")]
    return [same] + [
        [one.name, one.shape, str(one.dtype), one.requires_grad, one.has_init, *one.asnumpy().astype("float32").ravel().tolist()]
        for one in weights.clone("m", init="zeros")
    ]

before = facts()
make_clones_cheap()
print(json.dumps([before, facts()]))
"""


def printed(folder: Path, code: str) -> Any:  # noqa: ANN401 - any JSON
    (folder / "program.py").write_text(code, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.mindspore
@pytest.mark.slow
def test_a_stack_is_what_traceback_makes_of_it(tmp_path: Path) -> None:
    (before, once_more, *after), parts, again = printed(tmp_path, _STACKS)
    assert len(before) == 7
    assert [before, once_more, *after] == [before] * 4
    assert parts == again


@pytest.mark.mindspore
@pytest.mark.slow
def test_a_clone_is_what_mindspore_makes_of_it(tmp_path: Path) -> None:
    before, after = printed(tmp_path, _CLONES)
    assert before[0] == [12.0] * 4
    assert [one[-12:] for one in before[1:]] == [[0.0] * 12] * 4
    assert before == after
