"""Logs that the framework's own classes wrote, beside the plan of the same config: the same, until one of them is changed."""

from __future__ import annotations

import copy
import os
from random import Random
from typing import TYPE_CHECKING

import pytest

from ms_tune.dialects.mindformers.operators import ahead_lines, find_failure, layer_lines
from ms_tune.dialects.mindformers.placement import KEYS
from ms_tune.dialects.mindformers.recompute import normalize
from ms_tune.facts.query import VERSIONS
from ms_tune.normalize.compare_log import LogVerdict, compare_plan
from ms_tune.readers.recompute_log import read_recompute_log
from tests.oracle import layer_setting, pynative
from tests.oracle.cases import random_case
from tests.oracle.job_logs import formats, job_log
from tests.oracle.pynative_cases import random_config
from tests.oracle.test_layer_lines import make_cells, random_model, with_patterns
from tests.oracle.test_pynative import plan_of

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.dialects import LayerPlan

CASES = int(os.environ.get("MS_TUNE_ORACLE_CASES", "1250")) // 25  # of each release
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "5"))


def check(plan: LayerPlan, lines: list[str], style: str, random: Random, folder: Path) -> int:
    """The log agrees; without one of its layers' lines, or with another number in a list, it does not."""
    file = folder / "worker_0.log"
    log = job_log(lines, style)
    file.write_text("\n".join(log) + "\n")
    result = compare_plan(plan, [read_recompute_log(file)])
    assert result.verdict is LogVerdict.SAME, (result.differences[:3], plan, lines)
    assert all(state.agrees for state in result.layers)
    spots = [number for number, line in enumerate(log) if " at layer " in line and "Set " in line]
    spots = [spot for spot in spots if sum(log[spot][24:] == line[24:] for line in log) == 1]
    if not spots or (plan.dialect != "mindformers" and len(plan.placement or ((),)) > 1):
        return 0
    spot = random.choice(spots)
    without = [*log[:spot], *log[spot + 1 :]]
    file.write_text("\n".join(without) + "\n")
    result = compare_plan(plan, [read_recompute_log(file)])
    assert result.verdict is LogVerdict.DIFFERS, (log[spot], plan)
    assert f"at layer {result.differences[0].layer}" in log[spot]
    return 1


@pytest.mark.parametrize("version", VERSIONS)
def test_static_graph(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = layer_setting.why_missing(version)
    if missing:
        pytest.skip(missing)
    random = Random(SEED)  # noqa: S311 - the same cases every time
    styles = formats(version)
    count = changed = 0
    make_layer, current = make_cells()
    oracle = layer_setting.Oracle(version, make_layer)
    while count < CASES:
        inputs = with_patterns(random, random_case(random, version))
        model = random_model(random, inputs)
        current[:] = [(model, inputs.placed_layers)]
        plan = normalize(inputs)
        if plan.failure is not None or (inputs.reduced and inputs.mtp_layers):
            continue
        if find_failure(inputs, plan, model) is not None:
            continue
        outcome = oracle.ask(inputs, dict(zip(KEYS, copy.deepcopy(tuple(inputs.values)), strict=True)))
        assert outcome.exception is None
        lines = (*plan.log, *layer_lines(inputs, plan, model), *ahead_lines(inputs, plan, model))
        changed += check(plan._replace(log=lines, matches={}), outcome.log, styles[count % 2], random, tmp_path)
        count += 1
    with capsys.disabled():
        print(f"\n{version}: {count} logs, {changed} changed ones")  # noqa: T201 - the count is the point
    assert changed > count // 4


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_dynamic_graph(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = pynative.why_missing()
    if missing:
        pytest.skip(missing)
    oracle = pynative.Oracle(f"{version}.0")
    modules = oracle.modules()
    random = Random(SEED)  # noqa: S311 - as above
    count = changed = 0
    while count < CASES:
        config, layers, mtp = random_config(random, version)
        outcome = oracle.ask(copy.deepcopy(config), layers, mtp)
        plan = plan_of(config, layers, mtp, version, modules)._replace(matches={})
        if plan.failure is not None:
            continue
        if plan.placement is not None and len(plan.placement[0]) > 1:
            continue  # a rank logs its own layers only: tested with logs of several ranks
        changed += check(plan, outcome.lines, formats(version)[count % 2], random, tmp_path)
        count += 1
    with capsys.disabled():
        print(f"\n{version}: {count} logs, {changed} changed ones")  # noqa: T201 - as above
    assert changed > count // 4
