"""What lint says about values of ``parallel`` against the installed MindSpore's ``set_auto_parallel_context``."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ms_tune.diagnostics import Severity
from ms_tune.dialects.mindformers.refusals_values import _DEMANDS  # the keys that are compared
from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source

pytestmark = [
    pytest.mark.mindspore,
    pytest.mark.skipif(importlib.util.find_spec("mindspore") is None, reason="MindSpore is not installed"),
]
CHECKS = built_in(Dialect.MINDFORMERS)
VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 2, 5000, True, False, "x", "", "2", 1.0, 2.5, None, [], {}, [1], [2, 1], [1, 4], {"a": 1}),
    *({"openstate": False}, {"load_file": 1}, {"save_file": "a"}, {"only_trainable_params": True}),
    *("sharding_propagation", "recursive_programming", "same_server_group_parallel", "all_group_parallel"),
    *({"parallel_optimizer_threshold": -1}, {"gradient_accumulation_shard": 1}, {"optimizer_weight_shard_size": 0}),
    *({"optimizer_level": "level2", "gradient_accumulation_shard": True}, {"optimizer_level": "level9"}),
    {"allreduce": {"mode": "auto", "config": None}},
)
INDICES: tuple[Any, ...] = (
    [True],
    [1, True],
    [0, 1],
    [-1, 1],
    [1, 1],
    [1, "2"],
    [1.0],
    [None],
    [2**32 - 1],
    [2**32],
    [2**40],
)
# Values of `config` of all modes, and sections that lack something.
FUSIONS: tuple[Any, ...] = (
    *({"mode": mode, "config": value} for mode in ("auto", "size", "index", "sizes", None, 1) for value in VALUES),
    *({"mode": "auto"}, {"config": 1}, {}, None, 1, "auto", [], True),
    *({"mode": "size", "config": value} for value in (10**9, 2**31, 2**63 - 1, 2**63, 10**20, -0.5, 1e300, "auto")),
    *({"mode": "index", "config": value} for value in INDICES),
    *({"mode": ["auto"], "config": 1}, {"mode": "auto", "config": 1, "more": 2}),
)
# `full_batch` is set by MindFormers first, and it refuses an automatic pipeline of its own.
LEFT_OUT = ("full_batch",)
_CHILD = """
import json, sys
import mindspore as ms
for key, value in json.loads(sys.stdin.read()):
    ms.reset_auto_parallel_context()
    try:
        ms.context.set_auto_parallel_context(**{key: value})
        print("fine")
    except Exception as error:
        print(type(error).__name__)
"""


def errors(key: str, value: object) -> list[str]:
    config = {"use_parallel": True, "run_mode": "train", "parallel": {"parallel_mode": 1, key: value}}
    findings = lint(parse_source(yaml.safe_dump(config), Path("a.yaml")), Dialect.MINDFORMERS, CHECKS, "1.9")
    return [one.id for one in findings if one.severity is Severity.ERROR]


def compare(cases: list[tuple[str, Any]]) -> int:
    """How many of the values MindSpore takes; lint has to call the others an error, and no more."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD], input=json.dumps(cases), capture_output=True, text=True, check=True, timeout=120
    )
    answers = done.stdout.split()
    assert len(answers) == len(cases)
    wrong = [
        (key, value, answer, told)
        for (key, value), answer in zip(cases, answers, strict=True)
        if bool(told := errors(key, value)) != (answer != "fine")
    ]
    assert not wrong
    return answers.count("fine")


def test_every_key_with_odd_values() -> None:
    cases = [(key, value) for key in _DEMANDS if key not in LEFT_OUT for value in VALUES]
    cases = [(key, value) for key, value in cases if not (key == "auto_pipeline" and value is True)]
    assert 100 < compare(cases) < len(cases) - 100


def test_fusion_with_odd_values() -> None:
    kinds = ("openstate", "allreduce", "allgather", "reducescatter", "broadcast")
    cases: list[tuple[str, Any]] = [("comm_fusion", {kind: value}) for kind in kinds for value in FUSIONS]
    sound = {"mode": "auto", "config": None}
    cases += [("comm_fusion", {"allreduce": sound, kind: value}) for kind in kinds[2:] for value in (sound, {}, False)]
    cases += [("all_reduce_fusion_config", value) for value in INDICES]
    assert 100 < compare(cases) < len(cases) - 100
