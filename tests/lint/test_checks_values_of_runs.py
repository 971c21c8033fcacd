"""Test values that a run refuses late: data types, devices, formats, data against the model, swap against recompute."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source

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
