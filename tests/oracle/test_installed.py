"""Compare the values that the installed MindSpore and MindFormers accept with lint's findings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ms_tune.diagnostics import Severity
from ms_tune.dialects.mindformers.refusals_values import _DEMANDS  # the keys that are compared
from ms_tune.enums import Dialect
from ms_tune.facts.query import load
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source
from tests.dryrun.machine import needs_mindformers, needs_mindspore
from tests.oracle.cases import text_of

pytestmark = [pytest.mark.mindspore, needs_mindspore]
CASES = int(os.environ.get("MS_TUNE_ORACLE_CASES", "20"))
SEED = os.environ.get("MS_TUNE_ORACLE_SEED", "11")
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
# MindFormers sets `full_batch` first, and it refuses an automatic pipeline of its own.
LEFT_OUT = ("full_batch",)
ADAMW = {
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
RELEASE = "1.9"  # the installed release
# Run every case like a real run, and report the refused ones; frameworks print to stdout, which is not that of the answers.
_CHILD = """
import json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
import numpy as np
import mindspore as ms

def parallel(key, value):
    ms.reset_auto_parallel_context()
    ms.context.set_auto_parallel_context(**{key: value})

def optimizer(case):
    from mindformers.core.optim import build_optim
    from mindformers.tools.register import MindFormerConfig
    ms.set_context(device_target="CPU")
    parameters = [ms.Parameter(ms.Tensor(np.ones(4, np.float32)), name="w")]
    build_optim(MindFormerConfig(**case), default_args={"params": parameters, "learning_rate": 1e-3})

def schedule(case):
    from mindformers.core.lr import build_lr
    build_lr(case)

for line in sys.stdin:
    kind, cases, errors = json.loads(line)
    refused = []
    for case in cases:
        try:
            vars()[kind](*case)
        except Exception as error:
            if errors and type(error).__name__ not in errors:
                raise
            refused.append(True)
        else:
            refused.append(False)
    print(json.dumps(refused), file=answers, flush=True)
"""
Refuses = Callable[..., list[bool]]


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Refuses]:
    """Give the cases that are refused; with ``errors``, other exceptions end the process, which all tests share."""
    folder = tmp_path_factory.mktemp("installed")
    with (
        (folder / "errors.txt").open("w+") as log,
        subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=folder,
            text=True,
        ) as child,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        given, answers = child.stdin, child.stdout

        def ask(kind: str, cases: list[Any], *errors: str) -> list[bool]:
            print(json.dumps([kind, cases, errors]), file=given, flush=True)
            line = answers.readline()
            assert line, (folder / "errors.txt").read_text()[-3000:]
            found: list[bool] = json.loads(line)
            assert len(found) == len(cases)
            return found

        yield ask


def lint_ids(config: dict[str, Any], *ids: str) -> list[str]:
    """Return the checks that find something in a config: these ids, or else all that report an error."""
    checks = tuple(one for one in built_in(Dialect.MINDFORMERS) if not ids or one.id in ids)
    source = parse_source(text_of({"run_mode": "train", **config}), Path("a.yaml"))
    return [
        one.id for one in lint(source, Dialect.MINDFORMERS, checks, RELEASE) if ids or one.severity is Severity.ERROR
    ]


def compare(refused: Refuses, cases: list[tuple[str, Any]]) -> None:
    """Check that lint reports an error for exactly the values of ``parallel`` that MindSpore refuses."""
    answers = refused("parallel", cases)
    wrong = [
        (key, value, stops, found)
        for (key, value), stops in zip(cases, answers, strict=True)
        if bool(found := lint_ids({"use_parallel": True, "parallel": {"parallel_mode": 1, key: value}})) != stops
    ]
    assert not wrong
    assert 100 < answers.count(False) < len(cases) - 100


def test_every_key_with_odd_values(refused: Refuses) -> None:
    cases = [(key, value) for key in _DEMANDS if key not in LEFT_OUT for value in VALUES]
    compare(refused, [(key, value) for key, value in cases if not (key == "auto_pipeline" and value is True)])


def test_fusion_with_odd_values(refused: Refuses) -> None:
    kinds = ("openstate", "allreduce", "allgather", "reducescatter", "broadcast")
    cases: list[tuple[str, Any]] = [("comm_fusion", {kind: value}) for kind in kinds for value in FUSIONS]
    sound = {"mode": "auto", "config": None}
    cases += [("comm_fusion", {"allreduce": sound, kind: value}) for kind in kinds[2:] for value in (sound, {}, False)]
    compare(refused, cases + [("all_reduce_fusion_config", value) for value in INDICES])


@needs_mindformers
@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [{}, pytest.param({"use_fused": True}, marks=pytest.mark.more)], ids=["plain", "fused"]
)
def test_numbers_of_adamw(more: dict[str, bool], refused: Refuses) -> None:
    sound = {"type": "AdamW", "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, **more}
    cases = [{**sound, key: value} for key, values in ADAMW.items() for value in values]
    answers = refused("optimizer", [[one] for one in cases], "TypeError", "ValueError", "IndexError")
    for case, wrong in zip(cases, answers, strict=True):
        found = lint_ids({"optimizer": case}, "MST566", "MST571", "MST572")
        assert bool(found) == wrong, (case, found)
    assert 0 < sum(answers) < len(answers)


def settings(random: Random, name: str) -> dict[str, Any]:
    """Return a schedule with some of its arguments, some of them null."""
    chosen = {key: value for key, value in ARGUMENTS.items() if random.random() < 0.6}
    nulls = {key: None for key in chosen if key.startswith(("warmup_s", "decay")) and random.random() < 0.1}
    return {"type": name, "total_steps": 20, **chosen, **nulls}


@needs_mindformers
def test_a_schedule_that_lacks_an_argument_cannot_be_built_and_no_other(refused: Refuses) -> None:
    random = Random(SEED)  # noqa: S311 - test data
    cases = [settings(random, name) for name in load("needed")["lr_schedule"] for _ in range(CASES)]
    answers = refused("schedule", [[one] for one in cases], "TypeError", "ValueError")
    assert [bool(lint_ids({"lr_schedule": case}, "MST551")) for case in cases] == answers
    assert 0.1 < sum(answers) / len(answers) < 0.8
