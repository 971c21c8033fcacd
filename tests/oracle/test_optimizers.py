"""Which numbers MindFormers' AdamW takes: the installed class is built, and lint has to say the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source
from tests.dryrun.machine import needs_mindformers, needs_mindspore

VALUES = {
    "betas": (
        [0.9, 0.95],
        [0.9, 1],
        [0, 0.9],
        [0.0, 0.9],
        [0.9, 0.0],
        [0.9, 1.0],
        [0.9],
        [0.9, True],
        0.9,
        [0.9, "0.95"],
    ),
    "eps": (1e-8, 1, 0, 0.0, -1.0, True),
    "weight_decay": (0.0, 0.1, 0, 1, -0.1, True),
}
# Builds the optimizer as the trainer does, once with each value in its place.
CHILD = """
import json, sys
import numpy as np
from mindspore import Parameter, Tensor, set_context
from mindformers.core.optim import build_optim
from mindformers.tools.register import MindFormerConfig
set_context(device_target="CPU")
answers = []
for case in json.load(sys.stdin):
    parameters = [Parameter(Tensor(np.ones(4, np.float32)), name="w")]
    try:
        build_optim(MindFormerConfig(**case), default_args={"params": parameters, "learning_rate": 1e-3})
    except (TypeError, ValueError, IndexError):
        answers.append(True)
    else:
        answers.append(False)
print(json.dumps(answers))
"""


@needs_mindspore
@needs_mindformers
@pytest.mark.mindspore
@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [{}, pytest.param({"use_fused": True}, marks=pytest.mark.more)], ids=["plain", "fused"]
)
def test_numbers_of_adamw(more: dict[str, bool]) -> None:
    sound = {"type": "AdamW", "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, **more}
    cases = [{**sound, key: value} for key, values in VALUES.items() for value in values]
    done = subprocess.run(
        [sys.executable, "-c", CHILD], input=json.dumps(cases), capture_output=True, text=True, timeout=300, check=True
    )
    refused = json.loads(done.stdout.splitlines()[-1])
    checks = tuple(check for check in built_in() if check.id in ("MST566", "MST571", "MST572"))
    for case, wrong in zip(cases, refused, strict=True):
        source = parse_source(json.dumps({"run_mode": "train", "optimizer": case}), Path("a.yaml"))
        told = [one.id for one in lint(source, Dialect.MINDFORMERS, checks, "1.9")]
        assert bool(told) == wrong, (case, told)
    assert 0 < sum(refused) < len(refused)
