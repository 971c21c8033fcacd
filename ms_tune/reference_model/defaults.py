"""What MindFormers' model classes fill in where a dynamic-graph config says nothing.

MindFormers makes ``model`` an object of the class that ``model_type`` names; the class's own defaults are those of one
published model. The table has the sizes among them (``mindformers/models/*/configuration_*.py``, the arguments of
``__init__`` and of ``register_mf_model_parameter`` above it; the same in 2.0 and 2.1: a test reads them out of the wheels).
What is a matter of taste (activation, normalisation, biases, number formats) has the same default in every class and in
:mod:`ms_tune.reference_model.configs.pynative`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.config.source import SourceFile
    from ms_tune.texts import Message

# A size goes by several names (`COMMON_CONFIG_MAPPING`, parallel_core/transformer_config_utils.py).
_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "num_hidden_layers": ("num_layers", "n_layer"),
    "num_nextn_predict_layers": ("mtp_depth", "mtp_num_layers"),
    "num_attention_heads": ("num_heads", "n_head"),
    "num_key_value_heads": ("num_query_groups", "n_kv_heads"),
    "intermediate_size": ("ffn_hidden_size",),
    "head_dim": ("kv_channels",),
    "qk_nope_head_dim": ("qk_head_dim",),
    "qk_rope_head_dim": ("qk_pos_emb_head_dim",),
    "n_routed_experts": ("num_experts", "num_moe_experts", "expert_num"),
    "num_experts": ("n_routed_experts", "num_moe_experts", "expert_num"),
    "num_experts_per_tok": ("moe_router_topk", "num_experts_chosen"),
    "moe_intermediate_size": ("moe_ffn_hidden_size",),
    "n_shared_experts": ("shared_expert_num",),
}
DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "deepseek_v3": {
        "vocab_size": 129280,
        "seq_length": 4096,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "num_hidden_layers": 61,
        "num_nextn_predict_layers": 1,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "multi_latent_attention": True,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3,
    },
    "qwen3": {
        "vocab_size": 151936,
        "seq_length": 4096,
        "hidden_size": 4096,
        "intermediate_size": 22016,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "head_dim": 128,
    },
    "qwen3_moe": {
        "vocab_size": 151936,
        "seq_length": 4096,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
    },
    "glm4": {
        "vocab_size": 151552,
        "seq_length": 4096,
        "hidden_size": 4096,
        "intermediate_size": 13696,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "head_dim": 128,
    },
    "glm4_moe": {
        "vocab_size": 151552,
        "seq_length": 4096,
        "hidden_size": 4096,
        "intermediate_size": 10944,
        "num_hidden_layers": 46,
        "num_attention_heads": 96,
        "num_key_value_heads": 8,
        "n_routed_experts": 128,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 1408,
        "first_k_dense_replace": 1,
    },
    "telechat3": {
        "vocab_size": 131072,
        "seq_length": 4096,
        "hidden_size": 4096,
        "intermediate_size": 22016,
        "num_hidden_layers": 32,
        "num_nextn_predict_layers": 0,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "head_dim": 128,
    },
}


def with_defaults(source: SourceFile) -> tuple[SourceFile, tuple[Message, ...]]:
    """The config with the sizes that its model class fills in, and a word about them."""
    model = source.data.get("model")
    kind = model.get("model_type") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not isinstance(kind, str):
        return source, ()
    taken = {
        key: value
        for key, value in DEFAULTS.get(kind, {}).items()
        if not any(name in model for name in (key, *_OTHER_NAMES.get(key, ())))
    }
    if not taken:
        return source, ()
    told = ", ".join(f"{key}: {value}" for key, value in taken.items())
    completed = replace(source, data={**source.data, "model": {**model, **taken}})
    return completed, (msg("reference.defaults", kind=kind, keys=told),)
