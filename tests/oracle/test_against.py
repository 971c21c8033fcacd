"""Compare logs that the framework's own classes wrote with the plan of the same config: equal, until one of them is changed.

The classes match patterns in layers made from ms-tune's trees: ms-tune must predict every line that they log, and where
they stop.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.dialects.mindformers.operators import ahead_lines, find_failure, layer_lines
from ms_tune.dialects.mindformers.placement import KEYS, RecomputeInputs, RecomputeValues, SwapValues
from ms_tune.dialects.mindformers.recompute import normalize
from ms_tune.dialects.operators import LayerModel, bare_model, layer_model
from ms_tune.facts.query import VERSIONS
from ms_tune.normalize.compare_log import LogVerdict, compare_plan
from ms_tune.readers.recompute_log import read_recompute_log
from tests.oracle import layer_setting, pynative
from tests.oracle.amount import cases
from tests.oracle.cases import as_read, random_case
from tests.oracle.job_logs import formats, job_log
from tests.oracle.pynative_cases import random_config
from tests.oracle.static_child import Layer
from tests.oracle.test_pynative import plan_of
from tests.oracle.whole_cases import CORE_PATTERNS, LEGACY_PATTERNS

if TYPE_CHECKING:
    from ms_tune.dialects import LayerPlan

CASES = cases(500, 1250) // 25  # of each release
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "5"))

_LEGACY = (("LlamaForCausalLM", "", 0), ("TelechatForCausalLM", "", 0), ("DeepseekV3ForCausalLM", "", 2))
_CORE = (("qwen3", "silu", 0), ("deepseek_v3", "silu", 2), ("telechat3_moe", "fusedswiglu", 1))


def random_model(random: Random, inputs: RecomputeInputs) -> LayerModel:
    if inputs.reduced:
        return bare_model()
    while True:
        name, variant, dense = random.choice(_LEGACY if inputs.legacy else _CORE)
        model = layer_model(name, inputs.version, variant, (False,) * dense)
        if model is not None and (model.ahead is not None or not inputs.mtp_layers or inputs.legacy):
            return model


_PATTERNS = {
    True: (
        *LEGACY_PATTERNS,
        r"feed_forward\.w.",
        r".*\.w1\..*ation",
        "atten.*",
        r"feed_forward\.w1\.(",
        r"layers\.feed_forward",
    ),
    False: CORE_PATTERNS,
}


def with_patterns(random: Random, inputs: RecomputeInputs) -> RecomputeInputs:
    """Return the case with patterns that match operators of the model."""
    patterns = _PATTERNS[inputs.legacy]

    def renamed(value: Any) -> Any:  # noqa: ANN401 - sound or not
        if isinstance(value, dict):
            return dict(zip(random.sample(patterns, len(value)), value.values(), strict=True))
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            return random.sample(patterns, len(value))
        return value

    def renamed_swap(swap: SwapValues) -> SwapValues:
        entries = [swap.op_swap] if isinstance(swap.op_swap, dict) else swap.op_swap
        if isinstance(entries, list) and all(isinstance(entry, dict) and "op_name" in entry for entry in entries):
            entries = [{**entry, "op_name": random.choice(patterns)} for entry in entries]
        return swap._replace(op_swap=entries)

    values = RecomputeValues(*map(renamed, inputs.values))
    return inputs._replace(values=values, swap=renamed_swap(inputs.swap), core_swap=renamed_swap(inputs.core_swap))


def check(plan: LayerPlan, lines: list[str], style: str, random: Random, folder: Path) -> int:
    """Check that the log agrees, and that it does not without one layer's lines, or with another number in a list."""
    file = folder / "worker_0.log"
    log = job_log(lines, style)
    file.write_text("\n".join(log) + "\n")
    result = compare_plan(plan, [read_recompute_log(file)])
    assert result.verdict is LogVerdict.SAME, (result.differences[:3], plan, lines)
    assert all(state.agrees for state in result.layers)
    said = [line.partition("Set ")[2] for line in log]  # without the time, which differs where a line is logged twice
    spots = [
        number for number, text in enumerate(said) if " at layer " in log[number] and text and said.count(text) == 1
    ]
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
def test_static_graph(version: str, tmp_path: Path) -> None:
    missing = layer_setting.why_missing(version)
    if missing:
        pytest.skip(missing)
    random = Random(SEED)  # noqa: S311 - the same cases every time
    styles = formats(version)
    count = changed = longest = 0

    def make_layer(layer: int) -> Layer:
        tree = model.tree(layer) if layer < inputs.placed_layers else model.ahead
        assert tree is not None
        return Layer(tree)

    oracle = layer_setting.Oracle(version, make_layer)
    while count < 5 * CASES // 2:
        inputs = with_patterns(random, random_case(random, version))
        model = random_model(random, inputs)
        plan = normalize(inputs)
        if plan.failure is not None or (inputs.reduced and inputs.mtp_layers):
            continue  # tested elsewhere; the reduced class logs its lists again between the layers
        if inputs.mtp_layers and not inputs.layers:
            continue  # a model without layers is refused when it is read
        outcome = oracle.ask(inputs, dict(zip(KEYS, copy.deepcopy(tuple(inputs.values)), strict=True)))
        stopped = find_failure(inputs, plan, model)
        if stopped is not None:
            assert stopped.failure is not None
            assert (stopped.failure.exception, stopped.failure.layer) == (outcome.exception, outcome.layer), inputs
            assert stopped.failure.text in {outcome.text, ""}
            continue
        assert outcome.exception is None, (outcome.text, inputs)
        lines = (*plan.log, *layer_lines(inputs, plan, model), *ahead_lines(inputs, plan, model))
        assert list(lines[len(plan.log) :]) == outcome.log[len(plan.log) :], inputs
        longest += len(lines) - len(plan.log)
        if count < CASES:
            changed += check(plan._replace(log=lines, matches={}), outcome.log, styles[count % 2], random, tmp_path)
        count += 1
    assert longest > count
    assert changed > CASES // 4


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_dynamic_graph(version: str, tmp_path: Path) -> None:
    missing = pynative.why_missing()
    if missing:
        pytest.skip(missing)
    oracle = pynative.Oracle(f"{version}.0")
    modules = oracle.modules()
    random = Random(SEED)  # noqa: S311 - as above
    count = changed = 0
    while count < CASES:
        config, layers, mtp = random_config(random, version)
        outcome = oracle.ask(as_read(config), layers, mtp)
        plan = plan_of(config, layers, mtp, version, modules)._replace(matches={})
        if plan.failure is not None:
            continue
        if plan.placement is not None and len(plan.placement[0]) > 1:
            continue  # a rank logs its own layers only: tested with logs of several ranks
        changed += check(plan, outcome.lines, formats(version)[count % 2], random, tmp_path)
        count += 1
    assert changed > count // 4
