"""Test settings that the network itself fixes: a warning where it does, under any name, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ms_tune.dialects.mindformers.refusals_model import decided
from ms_tune.enums import Dialect
from ms_tune.facts.keys import keys_for
from ms_tune.facts.query import load, served
from ms_tune.lint.checklist import built_in
from ms_tune.source.yaml import parse_source
from tests.jobs import context

WHERE = {
    Dialect.MINDFORMERS: "use_legacy: False\nmodel: {{model_config: {{{model}}}}}\n",
    Dialect.MINDFORMERS_PYNATIVE: "training: {{}}\nmodel: {{{model}}}\n",
}
QWEN = "model_type: qwen3, architectures: [Qwen3ForCausalLM]"
MOE = "model_type: qwen3_moe, architectures: [Qwen3MoeForCausalLM]"
DEEPSEEK = "model_type: deepseek_v3, architectures: DeepseekV3ForCausalLM"


def warned_keys(dialect: Dialect, model: str, release: str) -> list[str]:
    """Return the keys with a warning."""
    source = parse_source(WHERE[dialect].format(model=model), Path("a.yaml"))
    return [str(one.path[-1]) for one in decided(context(source, dialect, {}, release))]


@pytest.mark.parametrize(
    "setting", ["num_experts: 8", "n_routed_experts: 8", "qk_layernorm: False", "use_qk_norm: False"]
)
@pytest.mark.parametrize(
    ("dialect", "release"),
    [*((Dialect.MINDFORMERS, one) for one in ("1.7", "1.9", "2.1")), (Dialect.MINDFORMERS_PYNATIVE, "2.1")],
)
def test_what_the_network_says_itself_is_not_read(dialect: Dialect, release: str, setting: str) -> None:
    assert warned_keys(dialect, f"{QWEN}, {setting}", release) == [setting.partition(":")[0]]
    assert warned_keys(dialect, f"{DEEPSEEK}, {setting}", release) == []
    same = "qk_layernorm: True" if "norm" in setting else f"{setting.partition(':')[0]}: null"
    assert warned_keys(dialect, f"{QWEN}, {same}", release) == []


@pytest.mark.parametrize(
    ("network", "release", "expected"),
    [
        (f"{MOE}, num_experts: 8", "1.9", []),
        (f"{MOE}, qk_layernorm: False", "1.9", ["qk_layernorm"]),
        # `architectures` names the network that is built, regardless of the class.
        ("model_type: qwen3, architectures: [Qwen3MoeForCausalLM], num_experts: 8", "1.9", []),
        (f"{QWEN}, num_experts: 8", "1.6", []),  # which does not train it
    ],
)
def test_the_network_and_the_release_count(network: str, release: str, expected: list[str]) -> None:
    assert warned_keys(Dialect.MINDFORMERS, network, release) == expected


@pytest.mark.parametrize("dialect", WHERE)
def test_the_check_is_made_where_any_network_says_something(dialect: Dialect) -> None:
    names = [name for one in load("models")["classes"].values() for name in _fixed_fields(one)]
    keys = {key for release in served(dialect) for name in names for key in keys_for(name, release)}
    assert [sorted(keys)] == [list(one.keys) for one in built_in(dialect) if (one.function or [""])[-1] == "decided"]


def _fixed_fields(network: dict[str, Any]) -> list[str]:
    return [name for modes in network["says"].values() for fixed in modes.values() for name in fixed]
