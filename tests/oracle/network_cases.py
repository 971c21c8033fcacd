"""Random settings of the legacy networks: Llama and ChatGLM, with or without experts."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

ARCHITECTURES = {"LlamaConfig": "LlamaForCausalLM", "ChatGLM2Config": "ChatGLM2ForConditionalGeneration"}
LEGACY_EXPERTS: dict[str, tuple[Any, ...]] = {
    "expert_num": (1, 8, 16),
    "num_experts_chosen": (1, 2),
    "capacity_factor": (1.1, 1.5),
    "aux_loss_factor": (0.05, 0.01),
    "routing_policy": ("TopkRouterV1", "TopkRouterV2", "TopkRouterV2"),
    "expert_model_parallel": (None, 1, 2),
    "use_allgather_dispatcher": (False, True),
    "hot_expert_num": (0, 1),
    "cold_token_percent": (1.0, 0.5),
    "router_dense_type": ("float32", "bfloat16"),
    "comp_comm_parallel_degree": (2, 4),
    "aux_loss_types": (None, ["expert"]),
    "aux_loss_factors": (None, [0.01]),
    "update_step": (10000, 10),
    "cur_layer": (0, 1),
    "group_wise_a2a": (True, False),
    "use_gmm": (False, True),
    "shared_expert_num": (0, 1),
    "enable_deredundency": (False, True),
    "npu_nums_per_device": (1, 2, 8),
    "enable_gmm_safe_tokens": (False, True),
    "comp_comm_parallel": (False, True),
    "use_gating_sigmoid": (False, True),
    "balance_via_topk_bias": (False, True),
}
_LLAMA: dict[str, tuple[Any, ...]] = {
    "n_kv_heads": (None, 1, 2, 4, 8, 3, 64),
    "intermediate_size": (None, 256, 100, 90),
    "multiple_of": (256, 2, 6),
    "ffn_dim_multiplier": (None, 1, 1.3),
    "seq_length": (64, 2048),
    "use_attn_mask_compression": (False, False, True),
    "use_eod_attn_mask_compression": (False, False, True),
    "use_ring_attention": (False, False, True),
    "compute_dtype": ("bfloat16", "Float16", "float32", "bf16"),
    "residual_dtype": (None, "float32", "fp32"),
    "softmax_compute_type": ("float32", None),
    "max_position_embedding": (None, 128, 8192),
    "qkv_concat": (True, False),
    "qkv_has_bias": (True, False),
    "rmsnorm_compute_2d": (True, False),
    "fused_rms_norm": (True, False),
    "is_dynamic": (True, False),
}
# Tensor parallelism in three dimensions: their product is to be `model_parallel`.
_DIMENSIONS: dict[str, tuple[Any, ...]] = {
    "tp_x": (1, 2, 2, 4),
    "tp_y": (1, 1, 2, 3),
    "tp_z": (1, 1, 2),
}
_GLM: dict[str, tuple[Any, ...]] = {
    "multi_query_attention": (True, True, True, False),
    "multi_query_group_num": (2, 4, 8),
    "kv_channels": (8, 16),
    "ffn_hidden_size": (256, 90),
    "seq_length": (64, 2048),
    "use_flash_attention": (True, True, False),
    "use_ring_attention": (False, False, True),
    "mask_generate": (None, "inmap", "compress_reset"),
    "qkv_concat": (True, False),
    "mlp_concat": (True, False),
    "use_rearrange_rope": (True, False),
    "enable_high_performance": (True, False),
    "rmsnorm": (True, False),
    "add_bias_linear": (True, False),
    "attention_dropout": (0.0, 0.1),
    "fine_grain_interleave": (1, 2),
    "post_self_attn_layernorm": (True, False),
    "compute_dtype": ("bfloat16", "Float16", "float32", "bf16"),
    "residual_dtype": ("float32", None),
    "rotary_dtype": (None, "float32", "fp32"),
}
_STRETCHED: tuple[dict[str, Any], ...] = (
    {"extend_method": "PI", "scaling_factor": 2.0},
    {"extend_method": "NTK", "scaling_factor": 2},
    {"extend_method": "NTK", "scaling_factor": {"factor": 2.0}},
    {"extend_method": "linear", "scaling_factor": {"factor": 2.0}},
    {"extend_method": "DYNAMIC_NTK", "scaling_factor": "x"},
    {
        "extend_method": "LLAMA3",
        "scaling_factor": {
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    },
    {
        "extend_method": "YARN",
        "scaling_factor": {
            "factor": 4,
            "beta_slow": 1,
            "beta_fast": 32.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 64,
        },
    },
)
# Parallel sizes; the first of each half the time, so that most networks go through.
_PARALLEL: dict[str, tuple[Any, ...]] = {
    "data_parallel": (1, 2, 4),
    "model_parallel": (2, 1, 2, 4, 8),
    "context_parallel": (1, 1, 1, 1, 2, 4),
    "expert_parallel": (1, 1, 1, 2, 4),
    "seq_split_num": (1, 1, 1, 1, 1, 2),
    "use_seq_parallel": (True, True, False),
    "context_parallel_algo": ("colossalai_cp", "colossalai_cp", "ulysses_cp", "hybrid_cp"),
    "ulysses_degree_in_cp": (1, 1, 2),
}


def legacy_model(random: Random, sizes: dict[str, Any], heads: int, share: float = 0.05) -> dict[str, Any]:
    """The section ``model_config`` of a legacy network, with this share of all settings written."""
    if random.random() < 0.15:
        several = {"num_attention_heads": heads, "multi_query_group_num": heads}
        return {"type": "ChatGLM2Config", **sizes, **several, **some(random, _GLM, 2 * share)}
    more: dict[str, Any] = {"vocab_size": 1024, "use_flash_attention": random.random() < 0.9}
    if random.random() < 2 * share:
        more["fine_grain_interleave"] = random.choice((1, 2, 2, 4))
    if random.random() < 2 * share:
        more |= {"use_3d_tensor_parallel": random.random() < 0.9, **some(random, _DIMENSIONS, 0.5)}
    more |= {**some(random, _LLAMA, share), **_stretched(random)}
    return {"type": "LlamaConfig", "num_heads": heads, **sizes, **more}


def random_network(random: Random) -> dict[str, Any]:
    """A config with nothing in it but a legacy network and how it is split: more of them reach the network."""
    heads = random.choice((8, 8, 16, 16, 12))
    sizes = {"num_layers": 2, "hidden_size": heads * 8, "seq_length": random.choice((64, 2048, 4096))}
    model = legacy_model(random, sizes, heads, random.choice((0.05, 0.1, 0.2)))
    config: dict[str, Any] = {
        "run_mode": "train",
        "use_parallel": random.random() < 0.95,
        "runner_config": {"batch_size": 1},
        "train_dataset": {"data_loader": {"type": "MindDataset"}},
        "parallel": {"parallel_mode": random.choice((1, 1, 1, 1, 0, 2)), "full_batch": True},
        "parallel_config": some(random, _PARALLEL, 0.5),
        "model": {"arch": {"type": ARCHITECTURES[model["type"]]}, "model_config": model},
    }
    if random.random() < 0.15:
        config["parallel"]["search_mode"] = "sharding_propagation"
    if random.random() < 0.4:
        config["moe_config"] = {"routing_policy": "TopkRouterV2", **some(random, LEGACY_EXPERTS, 0.25)}
    return config


def some(random: Random, choices: dict[str, tuple[Any, ...]], share: float) -> dict[str, Any]:
    """This share of the settings, each with one of its values."""
    return {key: copy.deepcopy(random.choice(values)) for key, values in choices.items() if random.random() < share}


def _stretched(random: Random) -> dict[str, Any]:
    """Positions that are stretched, mostly as they may be."""
    if random.random() < 0.9:
        return {}
    found = copy.deepcopy(random.choice(_STRETCHED))
    factor = found["scaling_factor"]
    if isinstance(factor, dict) and random.random() < 0.5:
        key = random.choice(list(factor))
        if random.random() < 0.2:
            del factor[key]
        else:
            factor[random.choice((key, key, key, "x"))] = random.choice((0.5, 1, 2, 16, 64, 2.0, "8", None))
    return found
