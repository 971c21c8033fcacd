"""Test how a config of the dynamic graph becomes sizes, groups and formats: one setting at a time, by MindFormers 2.1."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from ms_tune.dialects.job_parts import ContextMethod, DType, Sharding, TrainingConfig
from ms_tune.dialects.mindformers_pynative.training_config import expert_layers, read_pynative
from ms_tune.errors import ConfigError
from ms_tune.facts.query import data_folder

TEMPLATES = data_folder("yaml_templates") / "mindformers_pynative"
QWEN, DEEPSEEK = (
    yaml.safe_load((TEMPLATES / f"{name}.yaml").read_text("utf-8"))
    for name in ("qwen3_8b_dynamic", "deepseek3_671b_dynamic")
)
FILE = Path("train.yaml")


def read(data: dict[str, Any], devices: int, changes: dict[str, Any]) -> TrainingConfig:
    """Read a config in which some values, by dotted path, are replaced; None removes the key."""
    data = deepcopy(data)
    for path, value in changes.items():
        section, _, key = path.rpartition(".")
        data.setdefault(section, {})[key] = value
        if value is None:
            del data[section][key]
    return read_pynative(data, FILE, devices)


def value_at(config: TrainingConfig, path: str) -> object:
    value: object = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


@pytest.mark.parametrize(
    ("changes", "path", "expected"),
    [
        ({}, "shape.tied_embeddings", False),
        ({"model.tie_word_embeddings": None}, "shape.tied_embeddings", False),
        ({"model.tie_word_embeddings": True}, "shape.tied_embeddings", True),
        ({}, "shape.ffn_hidden_size", 12288),
        ({}, "shape.num_query_groups", 8),
        ({"model.num_key_value_heads": None}, "shape.num_query_groups", 32),
        ({"model.head_dim": None}, "shape.head_size", 128),
        ({"model.head_dim": 64}, "shape.head_size", 64),
        ({}, "shape.activation", "swiglu"),
        ({"model.hidden_act": "fusedswiglu"}, "shape.activation", "fusedswiglu"),
        ({"model.hidden_act": "gelu"}, "shape.activation", "gelu"),
        ({"model.hidden_act": "silu", "model.gated_linear_unit": False}, "shape.activation", "silu"),
        ({}, "shape.qkv_bias", False),
        ({"model.add_qkv_bias": True}, "shape.qkv_bias", True),
        ({"model.add_bias_linear": True}, "shape.qkv_bias", True),
        ({"model.add_bias_linear": True}, "shape.mlp_bias", True),
        ({}, "shape.qk_norm", True),
        ({"model.model_type": "deepseek_v3"}, "shape.qk_norm", False),
        ({"model.model_type": "deepseek_v3", "model.qk_layernorm": True}, "shape.qk_norm", True),
        ({"model.partial_rotary_factor": 0.5}, "shape.rotary_fraction", 0.5),
        ({"model.partial_rotary_factor": 2}, "shape.rotary_fraction", 1.0),
        ({"model.position_embedding_type": "none"}, "shape.rotary", False),
        ({}, "batch.micro_batch_num", 16),
        ({"training.local_batch_size": 2}, "batch.micro_batch_num", 8),
        ({"training.local_batch_size": 2}, "batch.micro_batch_size", 2),
        ({"parallelism.pipeline_parallel": 4}, "batch.micro_batch_num", 64),
        ({"parallelism.pipeline_parallel": 4}, "parallelism.virtual_pipeline", None),
        (
            {"parallelism.pipeline_parallel": 4, "parallelism.pipeline_parallel_interleave_num": 3},
            "parallelism.virtual_pipeline",
            3,
        ),
        ({}, "parallelism.sequence", True),
        ({"parallelism.sequence_parallel": False}, "parallelism.sequence", False),
        ({}, "parallelism.context_method", ContextMethod.RING),
        ({"parallelism.context_parallel_method": "ulysses"}, "parallelism.context_method", ContextMethod.ULYSSES),
        ({"parallelism.enable_loss_parallel": True}, "parallelism.split_loss", True),
        (
            {"parallelism.enable_loss_parallel": True, "parallelism.tensor_parallel": 1},
            "parallelism.split_loss",
            False,
        ),
        ({}, "precision.parameters", DType.BFLOAT16),
        ({}, "precision.attention", None),
        ({"model.params_dtype": "float32"}, "precision.parameters", DType.BFLOAT16),
        ({"model.params_dtype": "float32"}, "precision.attention", DType.FLOAT32),
        ({"model.compute_dtype": "float32"}, "precision.parameters", DType.FLOAT32),
        ({"model.layernorm_compute_dtype": "bfloat16"}, "precision.norm", DType.BFLOAT16),
        ({"model.rotary_dtype": "bfloat16"}, "precision.rotary", DType.BFLOAT16),
        ({"model.embedding_params_dtype": "bfloat16"}, "precision.embedding", DType.BFLOAT16),
        ({}, "optimizer.sharding", Sharding.PARAMETERS),
        ({}, "optimizer.shards", None),
        ({"parallelism.data_parallel_shard": 2}, "optimizer.shards", 2),
        ({}, "optimizer.reshards", True),
        ({"parallelism.pipeline_parallel": 4}, "optimizer.reshards", False),
        ({"parallelism.reshard_after_forward_policy": "never"}, "optimizer.reshards", False),
        (
            {"parallelism.reshard_after_forward_policy": "always", "parallelism.pipeline_parallel": 4},
            "optimizer.reshards",
            True,
        ),
        ({"optimizer.type": "Muon"}, "optimizer.name", "Muon"),
    ],
)
def test_one_setting(changes: dict[str, Any], path: str, expected: object) -> None:
    assert value_at(read(QWEN, 16, changes), path) == expected


@pytest.mark.parametrize(
    ("changes", "path", "expected"),
    [
        ({}, "shape.tied_embeddings", False),
        ({"model.tie_word_embeddings": True}, "shape.tied_embeddings", False),  # its network ignores the key
        ({}, "shape.latent.query_rank", 1536),
        ({"model.q_lora_rank": 0}, "shape.latent.query_rank", None),
        ({}, "shape.latent.key_value_rank", 512),
        ({}, "shape.latent.plain_size", 128),
        ({}, "shape.latent.rotary_size", 64),
        ({}, "shape.num_query_groups", 128),
        ({}, "shape.head_size", 192),
        ({}, "shape.experts.routed", 256),
        ({}, "shape.experts.per_token", 8),
        ({}, "shape.experts.ffn_hidden_size", 2048),
        ({}, "shape.experts.shared_ffn_hidden_size", 2048),
        ({"model.n_shared_experts": 2}, "shape.experts.shared_ffn_hidden_size", 4096),
        ({"model.n_shared_experts": 0}, "shape.experts.shared_ffn_hidden_size", 0),
        ({"model.moe_expert_capacity_factor": 1.5}, "shape.experts.capacity_factor", 1.5),
        ({"model.moe_expert_capacity_factor": -1.0}, "shape.experts.capacity_factor", None),
        ({"model.use_shared_expert_gating": True}, "shape.experts.shared_gate", True),
    ],
)
def test_one_setting_of_experts_and_latent_attention(changes: dict[str, Any], path: str, expected: object) -> None:
    changes = {"training.global_batch_size": 4096, **changes}
    assert value_at(read(DEEPSEEK, 1024, changes), path) == expected


def test_one_device_shards_nothing() -> None:
    one = read(QWEN, 1, {"parallelism.tensor_parallel": 1}).optimizer
    assert (one.sharding, one.gradient_buffers) == (Sharding.NONE, False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training.global_batch_size": 62}, "must be a multiple of 4 data-parallel ranks x"),
        ({"training.global_batch_size": 2}, "must be a multiple of 4 data-parallel ranks x"),
        ({"model.num_key_value_heads": 5}, "num_query_groups"),
    ],
)
def test_what_does_not_divide_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(QWEN, 16, changes)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({}, (False,) * 4),
        ({"num_moe_experts": 8}, (True,) * 4),
        ({"n_routed_experts": 8, "first_k_dense_replace": 1}, (False, True, True, True)),
        ({"num_moe_experts": 8, "moe_layer_freq": 2}, (True, False, True, False)),
        ({"num_moe_experts": 8, "moe_layer_freq": [0, 1, 1, 0]}, (False, True, True, False)),
        ({"num_moe_experts": 8, "moe_layer_freq": [1, 1]}, (True,) * 4),
        ({"num_experts": 8, "mlp_only_layers": [2]}, (True, True, False, True)),
    ],
)
def test_which_layers_have_experts(model: dict[str, Any], expected: tuple[bool, ...]) -> None:
    assert expert_layers({"model": model}, FILE, 4) == expected
