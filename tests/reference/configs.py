"""Provide small jobs for the reference transformer, each with a different feature."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from tests.dryrun.configs import MINDSPEED, edited

_SMALL = {
    "vocab_size": 1024,
    "seq_length": 512,
    "hidden_size": 256,
    "num_attention_heads": 8,
}
_DENSE = edited(
    edited(MINDSPEED, "parallel_config", {"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1}),
    "model_config",
    {**MINDSPEED["model_config"], **_SMALL, "ffn_hidden_size": 512, "num_layers": 4},
)
_PYNATIVE: dict[str, Any] = {
    "training": {"local_batch_size": 1, "global_batch_size": 32},
    "optimizer": {"type": "AdamW"},
    "lr_scheduler": {"type": "ConstantWarmUpLR"},
    "parallelism": {"data_parallel_shard": -1},
    "train_dataset": {"dataloader": {"type": "BlendedMegatronDatasetDataLoader"}},
    "model": {
        **_SMALL,
        "model_type": "qwen3",
        "architectures": "Qwen3ForCausalLM",
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_key_value_heads": 4,
        "head_dim": 32,
    },
}


@dataclass(frozen=True)
class Case:
    """A config and its devices."""

    config: dict[str, Any]
    devices: int


def _with(config: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(config)
    for name, values in sections.items():
        made[name] = {**made.get(name, {}), **values}
    return made


_DEEPSEEK = {
    "model_type": "deepseek_v3",
    "multi_latent_attention": True,
    "q_lora_rank": 96,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
}
_MOE = {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}

CASES = {
    "tensor, sequence, pipeline": Case(
        _with(
            _DENSE,
            parallel_config={
                "tensor_model_parallel_size": 2,
                "pipeline_model_parallel_size": 2,
                "sequence_parallel": True,
                "recompute_config": {"select_comm_recompute": [1, 1]},
            },
            dataset_config={"micro_batch_num": 4},
        ),
        8,
    ),
    "tensor without sequence, grouped heads, biases": Case(
        _with(
            _DENSE,
            parallel_config={"tensor_model_parallel_size": 2},
            model_config={"group_query_attention": True, "num_query_groups": 4, "qkv_has_bias": True},
        ),
        4,
    ),
    "Ulysses": Case(_with(_DENSE, parallel_config={"context_parallel_size": 2}), 4),
    "Ulysses in a ring": Case(
        _with(
            _DENSE,
            parallel_config={
                "context_parallel_size": 4,
                "context_parallel_algo": "hybrid_cp_algo",
                "ulysses_degree_in_cp": 2,
            },
        ),
        8,
    ),
    "experts over tensor-parallel ranks": Case(
        _with(
            _DENSE,
            parallel_config={
                "tensor_model_parallel_size": 2,
                "sequence_parallel": True,
                "expert_model_parallel_size": 2,
            },
            moe_config={"num_experts": 8, "moe_router_topk": 2},
        ),
        8,
    ),
    "old ways: no FlashAttention, gelu, LayerNorm, learned positions": Case(
        _with(
            _DENSE,
            parallel_config={"recompute_config": {"recompute": [1], "select_recompute": [2]}},
            model_config={
                "use_flash_attention": False,
                "hidden_act": "gelu",
                "normalization": "LayerNorm",
                "position_embedding_type": "absolute",
            },
        ),
        1,
    ),
    "float32 without buffers": Case(
        _with(
            _DENSE,
            training_config={"bf16": False, "wrap_with_ddp": False},
            model_config={"untie_embeddings_and_output_weights": True},
        ),
        2,
    ),
    "Qwen3": Case(_PYNATIVE, 4),
    "Qwen3 on one device": Case(_PYNATIVE, 1),
    "overlapped": Case(
        edited(
            edited(_DENSE, "training_config.overlap_grad_reduce", value=True), "training_config.bucket_size", 200_000
        ),
        2,
    ),
    "Qwen3-MoE": Case(
        _with(
            _PYNATIVE,
            model=_MOE,
            parallelism={"expert_parallel": 4, "tensor_parallel": 2, "sequence_parallel": True},
        ),
        8,
    ),
    "DeepSeek-V3": Case(
        _with(
            _PYNATIVE,
            model=_DEEPSEEK,
            parallelism={"expert_parallel": 2, "pipeline_parallel": 2},
            recompute={"mode": "select", "select_module": {"self_attention": ["0-1"], "mlp": ["2-3"]}},
        ),
        8,
    ),
    "Qwen3, Ulysses and gathered keys": Case(
        _with(
            _PYNATIVE,
            parallelism={"context_parallel": 4, "context_parallel_method": "hybrid", "ulysses_degree_in_cp": 2},
        ),
        8,
    ),
    "DeepSeek-V3, without pipeline": Case(
        _with(_PYNATIVE, model={**_DEEPSEEK, "moe_permute_fusion": True}, parallelism={"expert_parallel": 2}), 4
    ),
    "DeepSeek-V3, whole shared expert": Case(
        _with(
            _PYNATIVE,
            model=_DEEPSEEK,
            parallelism={"expert_parallel": 2, "tensor_parallel": 2, "sequence_parallel": True},
        ),
        4,
    ),
    "own model, four chunks": Case(  # MindFormers cannot cut Qwen3 into stages
        _with(
            _PYNATIVE,
            model={
                "model_type": "own",
                "architectures": "OwnForCausalLM",
                "num_hidden_layers": 8,
                "qk_layernorm": True,
            },
            parallelism={"pipeline_parallel": 2, "pipeline_parallel_interleave_num": 4},
        ),
        4,
    ),
    "GLM-4, interleaved": Case(
        _with(
            _PYNATIVE,
            model={"model_type": "glm4", "num_key_value_heads": 2, "partial_rotary_factor": 0.5},
            parallelism={
                "pipeline_parallel": 2,
                "pipeline_parallel_interleave_num": 2,
                "context_parallel": 2,
                "context_parallel_method": "ulysses",
            },
            training={"global_batch_size": 8},
        ),
        8,
    ),
}
