"""Test checks of the legacy Llama network, of other networks, and of values that only a run refuses; ``tests/oracle`` tries random ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ms_tune.diagnostics import Severity
from ms_tune.dialects.mindformers.refusals_model import decided
from ms_tune.enums import Dialect
from ms_tune.facts.keys import keys_for
from ms_tune.facts.query import load, served
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language
from tests.jobs import context

CHECKS = [check for check in built_in(Dialect.MINDFORMERS) if check.id.startswith(("MST345", "MST346", "MST347"))]
BASE = """
run_mode: train
use_parallel: True
parallel_config: {PARALLEL}
moe_config: {EXPERTS}
model:
  model_config: {type: LlamaConfig, num_layers: 2, hidden_size: 64, num_heads: 8, seq_length: 64, MODEL}
"""


def lint_legacy(parallel: str = "", model: str = "", experts: str = "", text: str = BASE) -> list[str]:
    config = text.replace("PARALLEL", parallel).replace("MODEL", model).replace("EXPERTS", experts)
    findings = lint(parse_source(config, Path("a.yaml")), Dialect.MINDFORMERS, CHECKS)
    return [f"{one.id} {one.message.say(Language.EN)}" for one in findings]


# Each was run through `LlamaForCausalLM` of the installed MindFormers 1.9.0.
@pytest.mark.parametrize(
    ("parallel", "model", "refused"),
    [
        ("model_parallel: 8", "n_kv_heads: 4", True),
        ("model_parallel: 8", "intermediate_size: 100", True),
        ("model_parallel: 8", "vocab_size: 101", False),
        ("", "use_ring_attention: True", True),
        ("", "use_attn_mask_compression: True", True),
        ("seq_split_num: 2", "use_flash_attention: False", True),
        ("seq_split_num: 2", "use_flash_attention: True, use_ring_attention: True", True),
        (
            "context_parallel: 4, context_parallel_algo: ulysses_cp, model_parallel: 4",
            "use_flash_attention: True",
            True,
        ),
        ("", "compute_dtype: x", True),
        ("", "extend_method: YARN", True),
        ("", "extend_method: DYNAMIC_NTK, scaling_factor: x", False),
    ],
)
def test_settings(parallel: str, model: str, refused: bool) -> None:  # noqa: FBT001 - a column of the table
    assert bool(lint_legacy(parallel, model)) is refused


def test_sizes_count_only_where_the_network_is_split() -> None:
    alone = BASE.replace("use_parallel: True", "use_parallel: False")
    assert lint_legacy("model_parallel: 3", text=alone) == []
    assert lint_legacy("seq_split_num: 2", text=alone) != []  # this one is not reset


def test_other_networks_are_left_alone() -> None:
    other = BASE.replace("type: LlamaConfig", "type: ChatGLM2Config")
    assert lint_legacy("model_parallel: 3", "compute_dtype: x", text=other) == []
    research = BASE.replace("model:\n", "model:\n  arch: {type: ParallelLlamaForCausalLM}\n")
    assert lint_legacy("model_parallel: 3", text=research) == []


def test_stretched_positions() -> None:
    llama3 = (
        "extend_method: LLAMA3, scaling_factor: {factor: FACTOR, low_freq_factor: 1.0, high_freq_factor: 4.0, "
        "original_max_position_embeddings: LENGTH}"
    )
    good = llama3.replace("FACTOR", "8.0").replace("LENGTH", "32")
    assert lint_legacy(model=good) == []
    assert lint_legacy(model=good.replace("8.0", "8")) == ["MST347 LLAMA3 needs a factor with a decimal point: 8.0"]
    assert lint_legacy(model=good.replace("8.0", "0.5")) == ["MST347 the factor must be at least 1, not 0.5"]
    assert lint_legacy(model=good.replace(": 32", ": 64")) != []
    assert lint_legacy(model=good.replace("high_freq_factor: 4.0", "high_freq_factor: 0.5")) != []
    assert lint_legacy(model=good.replace("high_freq_factor: 4.0, ", "")) == [
        "MST347 extend_method: LLAMA3 also needs high_freq_factor"
    ]
    assert lint_legacy(model=good.replace("{factor", "{x: 1, factor")) == [
        "MST347 extend_method: LLAMA3 does not accept 'x'"
    ]


# ``LayerSetting`` refuses these offsets; the class has 32 layers, that of ChatGLM 28.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "refused"),
    [
        ("type: LlamaConfig, offset: [-1, 2]", ["MST302"]),
        ("type: LlamaConfig, offset: [-1, 1]", []),
        ("type: ChatGLM2Config, offset: 1", ["MST302"]),
        ("type: NobodysConfig, offset: [-1, 2]", []),
    ],
)
def test_layers_that_are_left_out_are_those_of_the_class(model: str, refused: list[str]) -> None:
    text = f"run_mode: train\nuse_parallel: True\nparallel_config: {{pipeline_stage: 2}}\nmodel: {{model_config: {{{model}}}}}\n"
    for more in ("", "base_config: other.yaml\n"):
        found = lint(
            parse_source(text + more, Path("a.yaml")), Dialect.MINDFORMERS, built_in(Dialect.MINDFORMERS), "1.9"
        )
        ids = [one.id for one in found if one.severity is Severity.ERROR]
        assert ids == ([] if more else refused), more


_RUN = """
run_mode: {mode}
use_legacy: {legacy}
use_parallel: True
trainer: {{type: CausalLanguageModelingTrainer, model_name: a}}
runner_config: {{epochs: 1, batch_size: 1, sink_mode: True}}
context: {{mode: 0, device_target: {device}}}
parallel: {{parallel_mode: 1, full_batch: {full}, enable_parallel_optimizer: True, dataset_strategy: {strategy}}}
parallel_config: {{data_parallel: {data}, model_parallel: {tensor}, pipeline_stage: 2, micro_batch_num: 2}}
{more}
"""
_CORE = "model: {model_config: {model_type: qwen3, architectures: [Qwen3ForCausalLM], num_hidden_layers: 4, "
_CORE += "hidden_size: 512, num_attention_heads: 8, num_key_value_heads: 8, seq_length: 512, vocab_size: 1000"
_LLAMA = "model: {model_config: {type: LlamaConfig, num_layers: 4, hidden_size: 512, num_heads: 8, seq_length: 512}, "
_LLAMA += "arch: {type: LlamaForCausalLM}}"
_DATA = "train_dataset: {data_loader: {type: BlendedMegatronDatasetDataLoader, config: {seq_length: 512}}, "
_DATA += "input_columns: [input_ids, labels, loss_mask, position_ids]}"
_DEFAULTS = {"mode": "train", "device": "Ascend", "full": "True", "strategy": "full_batch", "data": "1", "tensor": "1"}


def lint_names(more: str, *, legacy: bool = False, version: str = "1.9", **changes: str) -> set[str]:
    text = _RUN.format(more=more, legacy=legacy, **(_DEFAULTS | changes))
    findings = lint(parse_source(text, Path("a.yaml")), Dialect.MINDFORMERS, built_in(Dialect.MINDFORMERS), version)
    return {one.name for one in findings if one.severity.value != "info" or one.name == "cache-in-training"}


@pytest.mark.drawn(8)
@pytest.mark.parametrize("version", ["1.6", "1.9", "2.1"])
@pytest.mark.parametrize("key", ["params_dtype", "compute_dtype", "layernorm_compute_dtype", "rotary_dtype"])
@pytest.mark.parametrize("value", ["flaot32", "BF16", "half", "3"])
def test_data_types(key: str, value: str, version: str) -> None:
    assert "unknown-core-data-type" in lint_names(f"{_CORE}, {key}: {value}}}}}", version=version)
    assert "unknown-core-data-type" not in lint_names(f"{_CORE}, {key}: bf16}}}}", version=version)


def test_data_against_the_model() -> None:
    assert lint_names(f"{_CORE}}}}}\n{_DATA}") == set()
    assert lint_names(f"{_CORE}}}}}\n{_DATA.replace('512', '1024')}") == {"data-of-other-length"}
    without = f"{_CORE}}}}}\n{_DATA}".replace(", seq_length: 512, vocab", ", vocab")
    assert lint_names(without) == set()  # only where both are written
    four, two = "[[1, 1], [1, 1], [1, 1], [1, 1]]", "[[1, 1], [1, 1]]"
    assert lint_names(f"{_CORE}}}}}\n{_DATA}", full="False", strategy=four) == set()
    assert lint_names(f"{_CORE}}}}}\n{_DATA}", full="False", strategy=two) == {"strategy-of-other-columns"}


_SWAP = "swap_config: {{swap: True, op_swap: [{{op_name: '{name}', layers: {layers}, backward_prefetch: 2}}]}}\n"
_AGAIN = "recompute_config: {{select_recompute: {{'{name}': {layers}}}}}\n"


@pytest.mark.parametrize(
    ("swapped", "recomputed", "layers", "clash"),
    [
        ("attention", "feed_forward", "[0, 3]", True),  # the fourth example of the guide
        ("attention", "feed_forward", "[3]", False),
        (r"attention\.flash_attention", "feed_forward", "[0]", False),  # its results go to wo, inside attention
        ("ffn_norm", "feed_forward", "[1]", True),
        (r"feed_forward\.w1", r"feed_forward\.mul", "[1]", True),
        (r"feed_forward\.mul", r"feed_forward\.w1", "[1]", False),
        ("feed_forward", "attention", "[1]", False),
    ],
)
def test_swap_before_recompute(swapped: str, recomputed: str, layers: str, clash: bool) -> None:  # noqa: FBT001
    text = _SWAP.format(name=swapped, layers="[0, 1, 2]") + _AGAIN.format(name=recomputed, layers=layers) + _LLAMA
    assert ("swap-for-recomputed-operators" in lint_names(text, legacy=True)) is clash
    assert "swap-on-other-device" not in lint_names(text, legacy=True)
    assert "swap-on-other-device" in lint_names(text, legacy=True, device="GPU")


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
