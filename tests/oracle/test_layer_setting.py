"""Compare ms-tune with the source of every supported release of MindFormers."""

from __future__ import annotations

import copy
import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.dialects.mindformers.placement import KEYS, RecomputeInputs, RecomputeValues
from ms_tune.dialects.mindformers.recompute import normalize
from ms_tune.enums import Dialect, RecomputeMode
from ms_tune.errors import ConfigError
from ms_tune.facts.query import VERSIONS
from ms_tune.job.detect import recognise
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language, render
from tests.jobs import read_recompute
from tests.oracle import layer_setting, wheels
from tests.oracle.amount import cases
from tests.oracle.cases import random_case

if TYPE_CHECKING:
    from ms_tune.dialects import LayerPlan, LayerSpec
    from tests.oracle.layer_setting import Outcome

CASES = cases(120, 750)  # of each release
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "1"))
_STOPS = {"ValueError", "IndexError", "TypeError", "endless-loop"}  # each of which some case must reach


@pytest.fixture(scope="module", params=VERSIONS)
def released(request: pytest.FixtureRequest) -> layer_setting.Oracle:
    missing = layer_setting.why_missing(request.param)
    if missing:
        pytest.skip(missing)
    return layer_setting.Oracle(request.param)


def run_both(oracle: layer_setting.Oracle, inputs: RecomputeInputs) -> tuple[LayerPlan, Outcome]:
    before = repr((inputs.values, inputs.swap))
    plan = normalize(inputs)
    assert repr((inputs.values, inputs.swap)) == before  # the inputs are unchanged
    # One call of deepcopy, so that shared lists stay shared.
    values = dict(zip(KEYS, copy.deepcopy(tuple(inputs.values)), strict=True))
    return plan, oracle.ask(inputs, values)


def layer_view(layer: LayerSpec) -> dict[str, Any]:
    return {
        "layer": layer.layer,
        "stage": layer.stage,
        "chunk": layer.chunk,
        "full": layer.recompute is RecomputeMode.FULL,
        "select": list(layer.select_patterns),
        "comm": list(layer.comm_patterns),
        "select_exclude": list(layer.select_excludes),
        "comm_exclude": list(layer.comm_excludes),
        "swap": [(plan.target, plan.prefetch) for plan in layer.swap],
    }


def assert_same(plan: LayerPlan, outcome: Outcome) -> None:
    assert list(plan.log) == outcome.log
    if outcome.exception is None:
        assert plan.failure is None
        assert plan.placement is not None
        assert plan.formative is not None
        assert [list(row) for row in plan.placement] == outcome.counts
        assert plan.formative == outcome.formative
        for layer, expected in zip(plan.layers, outcome.layers, strict=True):
            stage = layer.stage if expected["stage"] is None else expected["stage"]  # 1.6 and 1.7: not set with swap
            assert layer_view(layer) == {**expected, "stage": stage}
        return
    assert plan.formative is None
    assert plan.failure is not None
    assert plan.failure.exception == outcome.exception
    assert plan.failure.layer == outcome.layer
    if outcome.exception != "regex.error":  # the text is that of the module regex, which ms-tune does not use
        assert plan.failure.text == outcome.text
        assert outcome.text in render(plan.problems[0].message, Language.ZH)


def test_random_cases(released: layer_setting.Oracle) -> None:
    random = Random(SEED)  # noqa: S311 - the same cases every time
    seen: Counter[str] = Counter()
    swapped = 0
    for number in range(CASES * 10):
        if number >= CASES and seen.keys() >= _STOPS:  # a rare one may need more cases
            break
        inputs = random_case(random, released.version)
        plan, outcome = run_both(released, inputs)
        swapped += plan.formative is not None and inputs.swaps.swap is True
        seen[outcome.exception or "fine"] += 1
        try:
            assert_same(plan, outcome)
        except AssertionError:
            print(f"case {number}: {inputs}")  # noqa: T201 - the report of a failed test
            raise
    assert seen["fine"] > CASES // 4
    assert swapped > CASES // 25
    assert seen.keys() >= _STOPS


def test_configs_of_mindformers(released: layer_setting.Oracle) -> None:
    compared, unknown = 0, []
    for name, text in wheels.configs(released.version).items():
        source = parse_source(text, Path(name))
        if recognise(source.data).dialect is not Dialect.MINDFORMERS:
            continue
        try:
            inputs = read_recompute(source, released.version)
        except ConfigError as error:
            said = ("the number of layers", "config.json of pretrained_model_dir", "names no model")
            unknown += [] if any(part in str(error) for part in said) else [name]
            continue
        assert_same(*run_both(released, inputs))
        compared += 1
    assert unknown == []
    assert compared


@pytest.mark.parametrize(
    "value",
    [
        [True],
        ["1", "1"],
        [[1, 2, 3, 4, 5]],
        [[9] * 5, [9] * 5],
        [[True] * 5, False],
        [[-1] * 5, [0] * 5],
        [1, 2, 3, 4, 5, 6],
        [-1],
        {},
        {"a": [0] * 6},
        {"a": ["x"]},
        {1: True},
        "x",
        3,
        None,
        [(1, 2), [1]],
    ],
    ids=repr,
)
@pytest.mark.parametrize("key", KEYS)
def test_every_form_of_every_value(key: str, value: object, released: layer_setting.Oracle) -> None:
    for legacy in (True, False):
        inputs = RecomputeInputs(
            layers=48,
            stages=5,
            offset=[[0, 1, 1, 1, 1], [1, 1, 1, 1, 0]],
            interleave=True,
            interleave_num=2,
            legacy=legacy,
            mtp_layers=1,
            values=RecomputeValues(**{key: value}),
            version=released.version,
        )
        assert_same(*run_both(released, inputs))


def test_long_rows_are_printed_as_numpy_does(released: layer_setting.Oracle) -> None:
    for stages in (16, 20, 21, 22, 23, 24, 25, 40, 64):
        for offset in (0, [0] * (stages + 1), [[0] * stages] * 3, [[1] * (stages - 1) + [1 - stages]] * 2):
            inputs = RecomputeInputs(
                layers=stages * 24,
                stages=stages,
                offset=offset,
                interleave=True,
                interleave_num=2,
                values=RecomputeValues(recompute=[True, [0]]),
                version=released.version,
            )
            assert_same(*run_both(released, inputs))
