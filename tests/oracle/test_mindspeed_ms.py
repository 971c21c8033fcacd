"""Compare ms-tune with the code of MindSpeed-Core-MS r0.1.0 in the wheel of MindFormers 1.6.0."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.dialects import FrameworkStop
from ms_tune.dialects.mindspeed_ms.read import TextTooBigError, literal_list
from ms_tune.dialects.mindspeed_ms.recompute import KINDS
from ms_tune.dialects.values import leaves
from ms_tune.errors import ConfigError
from ms_tune.source.yaml import parse_source
from tests.jobs import mindspeed_plan
from tests.oracle import mindspeed_ms, wheels
from tests.oracle.amount import cases
from tests.oracle.cases import as_read, text_of
from tests.oracle.mindspeed_cases import random_config
from tests.oracle.whole_cases import DROP, without_some

if TYPE_CHECKING:
    from ms_tune.dialects import LayerPlan

pytestmark = pytest.mark.skipif(mindspeed_ms.MISSING is not None, reason=str(mindspeed_ms.MISSING))


@pytest.fixture(scope="module")
def oracle() -> mindspeed_ms.Oracle:
    found = wheels.wheel("1.6")
    if isinstance(found, str):
        pytest.skip(found)
    return mindspeed_ms.Oracle()


CASES = cases(80, 375)
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "1"))


def plan_of(config: dict[str, Any]) -> LayerPlan:
    return mindspeed_plan(parse_source(text_of(config), Path("config.yaml")))


def assert_same(oracle: mindspeed_ms.Oracle, config: dict[str, Any]) -> str:
    outcome = oracle.run(as_read(config))
    try:
        plan = plan_of(config)
    except ConfigError:
        assert outcome.exception is not None, config
        return "refused while it is read"
    found = None if plan.failure is None else plan.failure.exception
    if has_odd_counts(config):
        # Refused as soon as they are read; Booleans, which NumPy adds in its own way, are numbers here.
        assert plan.failure is None or outcome.exception is not None or "bool" in str(plan.problems), config
        return "odd counts"
    assert found == outcome.exception, (config, outcome.exception, outcome.text, plan.failure)
    if plan.failure is not None:
        assert without_address(plan.failure.text) == without_address(outcome.text), config
        assert plan.formative is None
        assert plan.layers == ()
        return found or ""
    assert plan.placement is not None
    counts = {(v, p): count for v, row in enumerate(plan.placement) for p, count in enumerate(row)}
    assert counts == outcome.counts, config
    layers = {
        layer.layer: (
            layer.chunk,
            layer.stage,
            layer.recompute.value,
            bool(layer.select_patterns),
            bool(layer.comm_patterns),
        )
        for layer in plan.layers
    }
    assert layers == outcome.layers, config
    assert list(plan.log) == outcome.log, config
    return "plan"


def has_odd_counts(config: dict[str, Any]) -> bool:
    """Return whether a list of counts has items that are no whole numbers, or none at all."""
    parallel = config.get("parallel_config") or {}
    lists = parallel.get("recompute_config")
    values = [*(lists.values() if isinstance(lists, dict) else ()), *map(parallel.get, ("num_layer_list", *KINDS))]
    try:
        parts = [literal_list(value) if isinstance(value, str) else value for value in values]
    except (FrameworkStop, TextTooBigError):
        return False  # no list
    items = [leaves(value) for value in parts if value and isinstance(value, (list, tuple))]
    return any(not row or any(type(item) is not int for item in row) for row in items)


def without_address(text: str) -> str:
    return text.partition(" at 0x")[0].rstrip(">")


def test_random_configs(oracle: mindspeed_ms.Oracle) -> None:
    seen: Counter[str] = Counter()
    for number in range(CASES):
        random = Random(f"{SEED}/{number}")  # noqa: S311 - reproducible cases
        config = random_config(random)
        seen[assert_same(oracle, config)] += 1
        # Again with keys left out, so that the framework's own defaults apply.
        dropped = {name: without_some(random, section) for name, section in config.items()}
        seen[assert_same(oracle, without_some(random, dropped, DROP / 3))] += 1
    assert seen["plan"] > CASES / 4
    assert seen["ValueError"] > CASES / 20


# Results of the framework's own code (MindSpeed-Core-MS r0.1.0).
@pytest.mark.parametrize(
    ("layers", "stages", "chunks", "standalone", "wanted"),
    [
        (8, 4, None, False, [[2, 2, 2, 2]]),
        (9, 4, None, False, [[2, 2, 3, 2]]),
        (10, 4, None, False, [[2, 3, 3, 2]]),
        (11, 4, None, False, [[3, 3, 3, 2]]),
        (62, 4, None, False, [[15, 16, 16, 15]]),
        (62, 4, 4, False, [[4, 4, 4, 3], [4, 4, 4, 4], [4, 4, 4, 4], [4, 4, 4, 3]]),
        (8, 2, 2, False, [[2, 2], [2, 2]]),
        (9, 2, 2, False, [[3, 2], [2, 2]]),
        (7, 2, 2, False, [[2, 2], [2, 1]]),
        (5, 2, 2, False, [[2, 1], [1, 1]]),
        (10, 4, None, True, [[0, 3, 4, 3]]),
        (8, 4, None, True, [[0, 3, 3, 2]]),
    ],
)
def test_the_split_of_the_real_code(  # noqa: PLR0913 - a case and who is asked
    layers: int,
    stages: int,
    chunks: int | None,
    *,
    standalone: bool,
    wanted: list[list[int]],
    oracle: mindspeed_ms.Oracle,
) -> None:
    parallel = {
        "pipeline_model_parallel_size": stages,
        "virtual_pipeline_model_parallel_size": chunks,
        "standalone_embedding_stage": standalone,
    }
    config = {"parallel_config": parallel, "model_config": {"num_layers": layers}}
    plan = plan_of(config)
    assert plan.placement is not None
    assert [list(row) for row in plan.placement] == wanted
    assert_same(oracle, config)


def test_what_chunks_of_one_config_object_forget(oracle: mindspeed_ms.Oracle) -> None:
    """A training script that keeps the config passes the same object to every chunk, and the first one has changed it."""
    config = {
        "parallel_config": {
            "pipeline_model_parallel_size": 2,
            "virtual_pipeline_model_parallel_size": 2,
            "recompute_config": {"recompute": [[1, 0], [0, 0]]},
        },
        "model_config": {"num_layers": 8, "recompute_granularity": "selective"},
    }
    assert_same(oracle, config)
    apart, shared = oracle.run(config), mindspeed_ms.Oracle(shared_config=True).run(config)
    assert [apart.layers[layer][2] for layer in range(8)] == ["full"] + ["select"] * 7
    assert [shared.layers[layer][2] for layer in range(8)] == ["full"] + ["select"] * 3 + ["none"] * 4
    assert "selective-forgotten" in {problem.id for problem in plan_of(config).problems}
