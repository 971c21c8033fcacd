"""Compare ``migrate`` operator by operator: the settings that both graphs' own code makes, with random lists and missing keys.

An operator that the two sides treat differently must lead to a question, or the proof must fail.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from ms_tune.source.yaml import parse_source
from tests.jobs import known_layers, migrate_source, read_recompute
from tests.oracle import acting, layer_setting, pynative
from tests.oracle.test_migration import TARGETS, random_config

CASES = int(os.environ.get("MS_TUNE_ORACLE_CASES", "12"))
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "1"))
RELEASES = ("1.7", "1.8", "1.9")  # 1.6 hears of whole layers only
_MISSING = pynative.why_missing() or layer_setting.why_missing("1.9")
pytestmark = pytest.mark.skipif(_MISSING is not None, reason=str(_MISSING))
CELLS = (
    *(r"self_attention\.core_attention", r"self_attention\.linear_proj", "input_layernorm", "mlp", "self_attention"),
    *(r"self_attention\.q_layernorm", r"self_attention\.kv_layernorm", r"self_attention\.linear_q_down_proj"),
    *(r"mlp\.linear_fc1", r"mlp\.shared_experts", r"mlp\.experts", r"mlp\.router", r"self_attention\.linear_.*"),
)
OPERATORS = (
    *(r".*\.norm", r"mlp\.mul", r"mlp\.activation_func\.silu", r"mlp\.shared_experts\.mul", "add"),
    *(r"self_attention\.core_attention\.flash_attention", r"self_attention\.linear_proj\.matmul", r"mlp\.router\.topk"),
    *(r"mlp\.linear_fc2\.matmul", r"self_attention\.linear_.*\.cast", r"self_attention\.reshape"),
    *(r"mlp\.shared_experts\.linear_fc.\.matmul", r"mlp\.shared_experts\.activation_func\..*glu"),
)


def chosen_layers(random: Random, config: dict[str, Any]) -> Any:  # noqa: ANN401 - a switch, or lists of numbers
    """Return layers in the form of recompute lists: counts per cell, or with swap their numbers."""
    model, stages = config["model"]["model_config"], config["parallel_config"]["pipeline_stage"]
    chunks, layers = model["pp_interleave_num"], model["num_hidden_layers"]
    if model.get("swap") or model.get("cpu_offloading"):
        return random.choice((True, sorted(random.sample(range(layers), random.randint(0, layers)))))
    least = layers // (stages * chunks) - (1 if model["offset"] else 0)
    lists = [[random.randint(0, least) for _ in range(stages)] for _ in range(chunks)]
    return random.choice((True, lists if chunks > 1 else lists[0]))


def random_swap(random: Random, layers: int) -> dict[str, Any]:
    """Return swap settings of whole layers and operators, in the model's own section, under either name."""

    def some() -> Any:  # noqa: ANN401 - a switch or numbers
        return random.choice((True, sorted(random.sample(range(layers), random.randint(1, layers)))))

    prefetch, swap = random.choice((1, 1, 2)), {random.choice(("swap", "cpu_offloading")): True}
    if random.random() < 0.7:
        swap[random.choice(("layer_swap", "cpu_offloading_num_layers"))] = [
            {"backward_prefetch": prefetch, "layers": some()}
        ]  # type: ignore[assignment] # YAML
    if random.random() < 0.7:
        names = random.sample(OPERATORS + CELLS, random.randint(1, 2))
        soon = random.choice((prefetch, prefetch, 3))
        swap["op_swap"] = [{"op_name": name, "backward_prefetch": soon, "layers": some()} for name in names]  # type: ignore[assignment] # as above
    return swap


def with_operators(random: Random) -> dict[str, Any]:
    """Return a random config with lists of all kinds, and without some keys."""
    config = random_config(random)
    model, recompute = config["model"]["model_config"], config["recompute_config"]
    if random.random() < 0.5:
        model["hidden_act"] = random.choice(("silu", "swiglu", "fusedswiglu"))
    if random.random() < 0.35:
        layers = model["num_hidden_layers"]
        model |= random_swap(random, layers)
        recompute["recompute"] = random.choice((False, True, sorted(random.sample(range(layers), layers // 2))))
        if random.random() < 0.8:  # the dynamic graph does not swap in a pipeline
            config["parallel_config"]["pipeline_stage"], model["pp_interleave_num"], model["offset"] = 1, 1, 0
            config["parallel"].pop("pipeline_config", None)

    elif random.random() < 0.2:  # of whole layers, in the section that every model may have
        config["swap_config"] = {"swap": True, "layer_swap": [{"backward_prefetch": 1, "layers": [0]}]}

    def lists(names: tuple[str, ...], most: int) -> dict[str, Any]:
        return {name: chosen_layers(random, config) for name in random.sample(names, random.randint(1, most))}

    for key, share, value in (
        ("select_recompute", 0.7, random.choice((True, lists(CELLS + OPERATORS, 3), [random.choice(CELLS)]))),
        ("select_comm_recompute", 0.4, random.choice((True, lists(OPERATORS, 2)))),
        ("select_recompute_exclude", 0.3, lists(OPERATORS, 1)),
        ("select_comm_recompute_exclude", 0.2, lists(OPERATORS, 1)),
    ):
        if random.random() < share:
            recompute[key] = value
    for section, key in ((recompute, "recompute"), (model, "first_k_dense_replace"), (config, "recompute_config")):
        if random.random() < 0.15:
            section.pop(key, None)
    return config


def judged(text: str, release: str, target: str, oracle: pynative.Oracle) -> tuple[str, int]:
    """Return the outcome for a config, and the number of compared operators.

    Args:
        text: The config.
        release: The release of the static graph.
        target: That of the dynamic graph.
        oracle: The target's own code.
    """
    source = parse_source(text, Path("a.yaml"))
    old, found = acting.static_acts(source, release), migrate_source(source, target, version=release)
    if isinstance(old, str):
        assert found.exit_code, (text, old)
        return "the static graph does not start, and it is refused or asked", 0
    assert not found.refused, (text, found.blocking)
    model = known_layers(source, read_recompute(source, release))
    assert model is not None
    new = acting.dynamic_acts(oracle, target, yaml.safe_load(found.text), model.experts)
    assert not isinstance(new, str), (text, new)
    differences = acting.differences(old, new)
    assert not differences or found.exit_code, (text, differences[:3], found.proof)
    same = "different and asked" if differences else "the same and asked" if found.exit_code else "the same, proved"
    return same, acting.compared(old, new)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_every_operator_is_the_same_or_asked(target: str) -> None:
    random = Random(f"operators {SEED} {target}")  # noqa: S311 - test data
    oracle = pynative.Oracle(f"{target}.0")
    oracle.devices = 1024
    outcomes, compared = Counter[str](), 0
    for number in range(8 * CASES):
        if number >= CASES and outcomes["the same, proved"]:
            break  # with few cases none may be of this kind
        text = yaml.safe_dump(with_operators(random), sort_keys=False)
        said, operators = judged(text, random.choice(RELEASES), target, oracle)
        outcomes[said] += 1
        compared += operators
    assert compared
    assert outcomes["the same, proved"]
