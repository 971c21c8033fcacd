"""Test the theoretical memory of MindFormers jobs: published parameter counts, sharding over ranks, and jobs without theory."""

from __future__ import annotations

from typing import Any

import pytest

from ms_tune.dryrun.request import DryrunRequest
from tests.dryrun.configs import edited, prepare_mindformers

_MODEL = "model.model_config"
_QWEN3_SIZES = {
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "num_hidden_layers": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "seq_length": 4096,
}
_QWEN3_MOE_SIZES = {
    "model_type": "qwen3_moe",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "moe_intermediate_size": 768,
    "moe_grouped_gemm": True,
    "seq_length": 4096,
}
# The model's own class sets everything except its layers (mindformers/models/deepseek3/configuration_deepseek_v3.py).
_DEEPSEEK_SIZES = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "first_k_dense_replace": 3,
    "num_nextn_predict_layers": 0,
    "mla_qkv_concat": False,
    "qk_layernorm": True,
    "moe_grouped_gemm": True,
    "seq_length": 4096,
}


def config(sizes: dict[str, object], **parallel: int) -> dict[str, Any]:
    return {
        "run_mode": "train",
        "use_parallel": True,
        "use_legacy": False,
        "runner_config": {"batch_size": 1},
        "optimizer": {"type": "AdamW"},
        "train_dataset": {"input_columns": ["input_ids", "labels", "loss_mask", "position_ids"]},
        "parallel_config": {"data_parallel": 1, "model_parallel": 1, "pipeline_stage": 1, **parallel},
        "parallel": {"parallel_mode": 1, "full_batch": False, "dataset_strategy": [[1, 1]] * 4},
        "model": {"model_config": dict(sizes)},
        "recompute_config": {"recompute": False},
    }


QWEN3, QWEN3_MOE, DEEPSEEK = config(_QWEN3_SIZES), config(_QWEN3_MOE_SIZES), config(_DEEPSEEK_SIZES)


def theory(wanted: dict[str, Any], stage: int = 0) -> dict[str, int]:
    return dict(prepare_mindformers(wanted, DryrunRequest(stage=stage)).theory)


@pytest.mark.parametrize(
    ("whole", "parameters", "untrained"),
    [
        # model.safetensors.index.json of Qwen/Qwen3-32B, Qwen/Qwen3-30B-A3B (bytes of bfloat16, halved)
        (QWEN3, 65_524_246_528 // 2, 0),
        (QWEN3_MOE, 61_064_245_248 // 2, 0),
        # Of DeepSeek-V3 without multi-token prediction, by the sizes in its paper (arXiv:2412.19437, section 4.2): 671 B.
        # Beside them a bias and a counter for each routed expert.
        (DEEPSEEK, 671_026_404_352, 2 * 58 * 256),
    ],
    ids=["Qwen3-32B", "Qwen3-30B-A3B", "DeepSeek-V3"],
)
def test_one_rank_alone_holds_what_the_authors_publish(whole: dict[str, Any], parameters: int, untrained: int) -> None:
    assert theory(whole) == {"weights": 4 * (parameters + untrained), "optimizer_state": 8 * parameters}


def test_a_tied_embedding_is_on_the_first_stage_and_on_the_last() -> None:
    ranks = config({**_QWEN3_SIZES, "tie_word_embeddings": True}, pipeline_stage=2, micro_batch_num=2)
    untied = config(_QWEN3_SIZES, pipeline_stage=2, micro_batch_num=2)
    assert [theory(ranks, stage) for stage in range(2)] == [theory(untied, stage) for stage in range(2)]
    alone = config({**_QWEN3_SIZES, "tie_word_embeddings": True})
    assert theory(QWEN3)["weights"] - theory(alone)["weights"] == 4 * 151936 * 5120


def test_ranks_that_hold_the_same_share_it_out() -> None:
    copies = config(_QWEN3_SIZES, data_parallel=8, model_parallel=4)
    shared = edited(copies, "parallel.enable_parallel_optimizer", value=True)
    whole, part = theory(copies), theory(shared)
    norms = 4 * (64 * (2 * 5120 + 2 * 128) + 5120)  # below the threshold of 64 KiB
    assert part["weights"] == (whole["weights"] - norms) // 8 + norms
    assert part["optimizer_state"] == 2 * part["weights"]
    fewer = edited(shared, "parallel.parallel_optimizer_config.optimizer_weight_shard_size", 2)
    assert theory(fewer)["weights"] == (whole["weights"] - norms) // 2 + norms
    every = edited(shared, "parallel.parallel_optimizer_config.parallel_optimizer_threshold", 0)
    assert theory(every)["weights"] < part["weights"]


def test_experts_and_the_router_are_shared_out_among_other_ranks_than_the_rest() -> None:
    copies = config(_QWEN3_MOE_SIZES, data_parallel=8, expert_parallel=4)
    shared = edited(copies, "parallel.enable_parallel_optimizer", value=True)
    experts, router = 48 * 128 * 3 * 2048 * 768, 48 * 128 * 2048
    norms = 48 * (2 * 2048 + 2 * 128) + 2048
    rest = theory(QWEN3_MOE)["weights"] // 4 - experts - router - norms
    assert theory(copies)["weights"] == 4 * (experts // 4 + router + norms + rest)
    assert theory(shared)["weights"] == 4 * (experts // 8 + router // 8 + norms + rest // 8)


def test_the_last_stage_predicts_one_token_more() -> None:
    ranks = config({**_DEEPSEEK_SIZES, "num_hidden_layers": 60}, pipeline_stage=4, micro_batch_num=4)
    more = edited(ranks, f"{_MODEL}.num_nextn_predict_layers", 1)
    assert theory(more, 2) == theory(ranks, 2)
    attention = 1536 * 7168 + 576 * 7168 + 1536 + 512 + 128 * 192 * 1536 + 128 * 256 * 512 + 7168 * 128 * 128
    experts = 257 * 3 * 7168 * 2048 + 256 * 7168
    layer = 2 * 7168 + attention + experts + 3 * 7168 + 2 * 7168 * 7168
    embedding = 129280 * 7168  # MindFormers puts a copy on the last stage
    assert theory(more, 3)["optimizer_state"] - theory(ranks, 3)["optimizer_state"] == 8 * (layer + embedding)


_EXPERTS = f"{_MODEL}.moe_grouped_gemm"


@pytest.mark.parametrize(
    ("made", "key", "value"),
    [
        (QWEN3, "use_legacy", True),
        (QWEN3, "optimizer.type", "Muon"),
        (QWEN3, "optimizer.swap", True),
        (QWEN3, "parallel.parallel_mode", 0),
        (QWEN3, "parallel.parallel_mode", 2),
        (QWEN3, "parallel.pipeline_config.pipeline_scheduler", "zero_bubble_v"),
        (QWEN3, "parallel.parallel_optimizer_config.optimizer_level", "level3"),
        (QWEN3, "parallel.parallel_optimizer_config.parallel_optimizer_threshold", "64"),
        (QWEN3, "parallel_config.expert_parallel", 0),
        (QWEN3, f"{_MODEL}.model_type", "glm4_moe"),
        (QWEN3, f"{_MODEL}.model_type", ["qwen3"]),
        (QWEN3, f"{_MODEL}.normalization", "LayerNorm"),
        (QWEN3, f"{_MODEL}.add_bias_linear", True),
        (QWEN3, f"{_MODEL}.params_dtype", "float64"),
        (QWEN3, f"{_MODEL}.ffn_hidden_size", 25600),
        (QWEN3, f"{_MODEL}.hidden_size", "5120"),
        (QWEN3, f"{_MODEL}.head_dim", None),
        (QWEN3, f"{_MODEL}.tie_word_embeddings", "yes"),
        (QWEN3, f"{_MODEL}.pet_config", {"pet_type": "lora"}),
        (QWEN3, f"{_MODEL}.multi_latent_attention", True),
        (QWEN3, f"{_MODEL}.num_experts", 8),
        (QWEN3_MOE, f"{_MODEL}.moe_layer_freq", 2),
        (QWEN3_MOE, f"{_MODEL}.moe_token_dispatcher_type", "alltoall_deredundency"),
        (QWEN3_MOE, _EXPERTS, False),
        (DEEPSEEK, f"{_MODEL}.use_shared_expert_gating", True),
        (DEEPSEEK, f"{_MODEL}.experimental_attention_variant", "dsa"),
        (DEEPSEEK, f"{_MODEL}.num_nextn_predict_layers", 2),
        (DEEPSEEK, f"{_MODEL}.attention_bias", True),
        (DEEPSEEK, f"{_MODEL}.tie_word_embeddings", True),
    ],
)
def test_nothing_is_reported_where_it_would_be_a_guess(made: dict[str, Any], key: str, value: object) -> None:
    assert theory(made)
    assert theory(edited(made, key, value)) == {}


def test_groups_of_unlike_size_have_no_theory() -> None:
    ranks = edited(config(_QWEN3_SIZES, data_parallel=6), "parallel.enable_parallel_optimizer", value=True)
    assert theory(ranks)
    assert theory(edited(ranks, "parallel.parallel_optimizer_config.optimizer_weight_shard_size", 4)) == {}
