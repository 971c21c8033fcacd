"""Compare ms-tune with the source of the dynamic graph in the MindFormers wheels 2.0.0 and 2.1.0."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.dialects import FrameworkStop, LayerPlan
from ms_tune.dialects.mindformers_pynative import read as dialect
from ms_tune.dialects.mindformers_pynative.placement import PynativeInputs
from ms_tune.dialects.mindformers_pynative.recompute import normalize_pynative
from ms_tune.enums import Dialect
from ms_tune.job.detect import recognise
from ms_tune.source.yaml import parse_source
from tests.jobs import dynamic_plan
from tests.oracle import pynative, wheels
from tests.oracle.amount import cases
from tests.oracle.cases import as_read, text_of
from tests.oracle.pynative_cases import random_config

if TYPE_CHECKING:
    from tests.oracle.pynative import Outcome

_MISSING = pynative.why_missing()
pytestmark = pytest.mark.skipif(_MISSING is not None, reason=str(_MISSING))

CASES = cases(120, 750)
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "1"))
_LABELS = {
    "Recompute": "select_patterns",
    "Comm Select Recompute": "comm_patterns",
    "ExcludeOp": "select_excludes",
}


@pytest.fixture(scope="module")
def version(oracle: pynative.Oracle) -> str:
    return oracle._version


oracle = pynative.oracle_of("2.0.0", "2.1.0")


def plan_of(config: dict[str, Any], layers: int, mtp: int, version: str, modules: list[str]) -> LayerPlan:
    """Return the plan with known modules of the layers."""
    text = text_of({**config, "model": {"num_layers": layers, "mtp_num_layers": mtp}})
    source = parse_source(text, Path("config.yaml"))
    try:
        values = dialect._load(source.data)
    except FrameworkStop:
        return dynamic_plan(source, version)
    inputs = PynativeInputs(layers=layers, mtp_layers=mtp, version=version[:3], **values)
    everywhere = dict.fromkeys(range(layers + mtp), modules)
    plain = dynamic_plan(source, version)
    plan = normalize_pynative(inputs._replace(modules=everywhere))
    assert plain.placement == plan.placement
    assert [layer.recompute for layer in plain.layers if layer.recompute.value == "full"] == [
        layer.recompute for layer in plan.layers if layer.recompute.value == "full"
    ]
    return plan


def assert_same(  # noqa: PLR0913, PLR0917 - a case and who is asked
    oracle: pynative.Oracle, config: dict[str, Any], layers: int, mtp: int, version: str, modules: list[str]
) -> str:
    outcome = oracle.ask(as_read(config), layers, mtp)
    plan = plan_of(config, layers, mtp, version, modules)
    found = None if plan.failure is None else plan.failure.exception
    assert found == outcome.exception, (config, outcome.exception, outcome.text, plan.failure)
    if plan.failure is not None:
        assert found == "regex.error" or plan.failure.text == outcome.text, (config, outcome.text)
        return found or ""
    assert_same_layers(plan, outcome, layers, version)
    return "plan"


def assert_same_layers(plan: LayerPlan, outcome: Outcome, layers: int, version: str, *, kept: bool = True) -> None:
    """Assert that every layer is equal. Without ``kept``, patterns that may be for communication and match no module are left out."""
    assert plan.placement is not None
    counts = [last - first + 1 for first, last in outcome.ranges]
    assert [count for row in plan.placement for count in row] == counts
    stages = len(plan.placement[0])
    times = Counter(layer for first, last in outcome.ranges for layer in range(first, last + 1))
    for number, (first, last) in enumerate(outcome.ranges):
        alone = {layer for layer in range(first, min(last + 1, layers)) if times[layer] == 1}
        inside = [layer for layer in plan.layers if layer.layer in alone]
        assert len(inside) == len(alone)
        assert all((layer.chunk, layer.stage) == divmod(number, stages) for layer in inside)
    # The oracle's blocks contain all layers of a range; the plan contains the model's layers only, and reports it.
    beyond = {layer for layer in times if layer >= layers}
    assert bool(beyond) == any(problem.id == "layers-beyond" for problem in plan.problems)
    layers_of_plan = [layer for layer in plan.layers if layer.layer not in beyond]
    assert {layer.layer for layer in layers_of_plan if layer.recompute.value == "full"} == outcome.full - beyond
    for label, attribute in _LABELS.items():
        if label == "ExcludeOp" and version.startswith("2.0"):
            continue  # names for the whole model
        mine = {layer.layer: list(getattr(layer, attribute)) for layer in layers_of_plan if getattr(layer, attribute)}
        reported = {layer: names for layer, names in outcome.maps.get(label, {}).items() if layer not in beyond}
        if not kept and label != "Recompute":
            mine = {layer: [name for name in names if name in reported.get(layer, ())] for layer, names in mine.items()}
            mine = {layer: names for layer, names in mine.items() if names}
        assert mine == reported, label
    whole = {layer.layer for layer in layers_of_plan if any(not swap.target for swap in layer.swap)}
    assert whole == outcome.swapped - beyond
    operators = {
        layer.layer: [swap.target for swap in layer.swap]
        for layer in layers_of_plan
        if any(swap.target for swap in layer.swap)
    }
    swapped = {layer: names for layer, names in outcome.maps.get("Swap", {}).items() if layer not in beyond}
    assert operators == swapped
    if set(times.values()) <= {1} and not beyond and kept:
        assert list(plan.log) == outcome.lines


def test_random_configs(oracle: pynative.Oracle, version: str) -> None:
    modules = oracle.modules()
    seen: Counter[str] = Counter()
    for number in range(CASES):
        random = Random(f"{SEED}/{number}")  # noqa: S311 - reproducible cases
        config, layers, mtp = random_config(random, version[:3])
        seen[assert_same(oracle, config, layers, mtp, version, modules)] += 1
    assert seen["plan"] > CASES / 5
    assert seen["ValueError"] > CASES / 20


def test_the_configs_in_the_wheel(oracle: pynative.Oracle, version: str) -> None:
    found = 0
    for name, text in wheels.configs(version[:3]).items():
        source = parse_source(text, Path(name))
        if recognise(source.data).dialect is not Dialect.MINDFORMERS_PYNATIVE:
            continue
        found += 1
        plan = dynamic_plan(source, version)
        layers = plan.layers[-1].layer + 1
        counts = plan.placement
        assert counts is not None
        placed = sum(map(sum, counts))
        sections = {key: value for key, value in source.data.items() if key in dialect.SECTIONS}
        assert_same(oracle, sections, placed, layers - placed, version, oracle.modules())
    assert found


@pytest.mark.parametrize(
    "value", ["0-3", True, 5, 0, None, [], {"0": 1}, {0: 1}, [-1], ["0-4"], ["1", "1"], ["2", 1]], ids=repr
)
def test_every_form_of_a_list_of_layers(value: Any, oracle: pynative.Oracle, version: str) -> None:  # noqa: ANN401
    modules = oracle.modules()
    for section in (
        {"mode": "full", "full_recompute_layer": value},
        {"mode": "select", "select_module": {"mlp": value}},
        {"mode": "select", "select_module": value},
        {"mode": "select", "full_recompute_layer": ["0"], "select_module": {"mlp": value}},
    ):
        assert_same(oracle, {"recompute": section}, 4, 0, version, modules)
        assert_same(oracle, {"swap": {"enable": True, "layer_swap": [{"layers": value}]}}, 4, 0, version, modules)
