"""Test dynamic-graph configs in the neutral model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ms_tune.dialects.job_parts import DType
from ms_tune.dialects.mindformers_pynative.training_config import read_pynative
from ms_tune.dialects.mindspeed_ms.training_config import read_mindspeed_ms
from ms_tune.errors import ConfigError
from ms_tune.facts.query import data_folder

PATH = Path("config.yaml")
DENSE: dict[str, Any] = {
    "training": {"local_batch_size": 2, "global_batch_size": 16},
    "model": {
        "vocab_size": 1024,
        "seq_length": 128,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
    },
}


def with_model(**values: object) -> dict[str, Any]:
    return {**DENSE, "model": {**DENSE["model"], **values}}


def test_formats_are_those_that_mindformers_computes_in() -> None:
    # transformer_config.py, 2.1: embedding, norms and positions are float32 unless the config sets it.
    precision = read_pynative(DENSE, PATH, 1).precision
    assert (precision.parameters, precision.gradients) == (DType.BFLOAT16, DType.FLOAT32)
    assert (precision.embedding, precision.norm, precision.rotary) == (DType.FLOAT32,) * 3
    changed = read_pynative(with_model(layernorm_compute_dtype="bfloat16"), PATH, 1).precision
    assert changed.norm is DType.BFLOAT16


@pytest.mark.parametrize(
    ("names", "field", "value"),
    [
        (("num_key_value_heads", "n_kv_heads", "num_query_groups"), "num_query_groups", 4),
        (("head_dim", "kv_channels"), "head_size", 64),
        (("qk_layernorm", "use_qk_norm"), "qk_norm", True),
        (("attention_bias", "add_qkv_bias", "qkv_has_bias"), "qkv_bias", True),
    ],
)
def test_all_names_of_a_size_are_read(names: tuple[str, ...], field: str, value: object) -> None:
    for name in names:
        assert getattr(read_pynative(with_model(**{name: value}), PATH, 1).shape, field) == value


@pytest.mark.parametrize(("kind", "written", "norms"), [("qwen3", False, True), ("deepseek_v3", False, False)])
def test_qwen3_has_query_norms_whatever_the_config_says(kind: str, written: bool, norms: bool) -> None:  # noqa: FBT001
    # models/qwen3/modeling_qwen3_train_pynative.py, 2.0 and 2.1: MindFormers' own run had 1 % more at its peak.
    assert read_pynative(with_model(model_type=kind, qk_layernorm=written), PATH, 1).shape.qk_norm is norms


@pytest.mark.parametrize(
    ("kind", "key", "router"),
    [
        ("deepseek_v3", "router_dense_type", DType.FLOAT32),  # its own converter omits it
        ("deepseek_v3", "moe_router_dtype", DType.BFLOAT16),
        ("qwen3_moe", "router_dense_type", DType.BFLOAT16),
    ],
)
def test_a_router_has_the_format_of_a_key_that_its_model_knows(kind: str, key: str, router: DType) -> None:
    model = {"model_type": kind, "num_experts": 8, "n_routed_experts": 8, "moe_intermediate_size": 64, key: "bfloat16"}
    if kind == "qwen3_moe":
        del model["n_routed_experts"]
    experts = read_pynative(with_model(**model), PATH, 1).shape.experts
    assert experts is not None
    assert experts.router is router


def test_a_step_is_divided_by_the_ranks_that_see_different_samples() -> None:
    assert read_pynative(DENSE, PATH, 4).batch.micro_batch_num == 2
    with pytest.raises(ConfigError) as caught:
        read_pynative(DENSE, PATH, 3)
    assert caught.value.message.id == "model.global-batch"


@pytest.mark.parametrize(
    ("policy", "stages", "again"),
    [("default", 1, True), ("default", 2, False), ("always", 2, True), ("never", 1, False)],
)
def test_whole_weights_are_let_go_as_the_policy_says(policy: str, stages: int, again: bool) -> None:  # noqa: FBT001
    # pynative/distributed/fsdp.py, get_fsdp_reshard_after_forward_policy
    data = {**DENSE, "parallelism": {"reshard_after_forward_policy": policy, "pipeline_parallel": stages}}
    assert read_pynative(data, PATH, stages).optimizer.reshards is again


def test_experts_of_mindspeed_are_all_layers_and_one_after_the_other() -> None:
    data = yaml.safe_load((data_folder("yaml_templates") / "mindspeed_ms" / "llama2_7b.yaml").read_text("utf-8"))
    assert read_mindspeed_ms(data, PATH).shape.experts is None
    data["moe_config"] = {"num_experts": 8, "moe_router_topk": 1, "moe_expert_capacity_factor": -1.0}
    experts = read_mindspeed_ms(data, PATH).shape.experts
    assert experts is not None
    assert (experts.routed, experts.per_token, experts.grouped, experts.capacity_factor) == (8, 1, False, None)
    assert experts.ffn_hidden_size == 11008
