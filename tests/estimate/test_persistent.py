"""Persistent bytes: parameter counts that the models' authors publish, and what must hold between ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.config.model import (
    Batch,
    DType,
    Experts,
    LatentAttention,
    ModelShape,
    Optimizer,
    Parallelism,
    Precision,
    Sharding,
    TrainingConfig,
)
from ms_tune.estimate.persistent import Ways, layer_weights, persistent_bytes, stage_weights
from ms_tune.layers.stage import Chunk, Stage, StageLayer


def shape(**sizes: object) -> ModelShape:
    plain: dict[str, object] = {
        "activation": "swiglu",
        "normalization": "RMSNorm",
        "rotary": True,
        "tied_embeddings": False,
        "qkv_bias": False,
        "output_bias": False,
        "mlp_bias": False,
        "flash_attention": True,
        "seq_length": 4096,
    }
    return ModelShape(**{**plain, **sizes})  # type: ignore[arg-type]


def sizes(*values: int) -> dict[str, object]:
    """Words, hidden size, feed-forward width, layers, heads, key/value heads, head size."""
    names = [
        "vocab_size",
        "hidden_size",
        "ffn_hidden_size",
        "num_layers",
        "num_attention_heads",
        "num_query_groups",
        "head_size",
    ]
    return dict(zip(names, values, strict=True))


def config(model: ModelShape, tensor: int = 1) -> TrainingConfig:
    return TrainingConfig(
        model,
        Parallelism(tensor, 1, 1, 1, None, sequence=True),
        Batch(1, 1),
        Precision(DType.BFLOAT16, mixed=True, gradients=DType.FLOAT32),
        Optimizer("AdamW", gradient_buffers=True, sharding=Sharding.OPTIMIZER),
    )


def whole(model: ModelShape, dense: int = 0) -> Stage:
    layers = tuple(
        StageLayer(number, experts=model.experts is not None and number >= dense) for number in range(model.num_layers)
    )
    return Stage(0, 1, (Chunk(layers, embedding=True, head=True),))


LLAMA_7B = shape(**sizes(32000, 4096, 11008, 32, 32, 32, 128))
LLAMA_13B = shape(**sizes(32000, 5120, 13824, 40, 40, 40, 128))
QWEN3_32B = shape(**sizes(151936, 5120, 25600, 64, 64, 8, 128), qk_norm=True)
QWEN3_06B = shape(**sizes(151936, 1024, 3072, 28, 16, 8, 128), qk_norm=True, tied_embeddings=True)
MIXTRAL = shape(**sizes(32000, 4096, 14336, 32, 32, 8, 128), experts=Experts(8, 2, 14336))
QWEN3_MOE = shape(**sizes(151936, 2048, 6144, 48, 32, 4, 128), qk_norm=True, experts=Experts(128, 8, 768))
DEEPSEEK = shape(
    **sizes(129280, 7168, 18432, 61, 128, 128, 192),
    latent=LatentAttention(1536, 512, 128, 64, 128),
    experts=Experts(256, 8, 2048, shared_ffn_hidden_size=2048),
)

# Parameters, counted from the checkpoints' own tensors by their authors (the models' pages on Hugging Face).
PUBLISHED = [
    pytest.param(LLAMA_7B, 0, 6_738_415_616, id="Llama-2-7B"),
    pytest.param(LLAMA_13B, 0, 13_015_864_320, id="Llama-2-13B"),
    pytest.param(QWEN3_32B, 0, 32_762_123_264, id="Qwen3-32B"),
    pytest.param(QWEN3_06B, 0, 596_049_920, id="Qwen3-0.6B"),
    pytest.param(MIXTRAL, 0, 46_702_792_704, id="Mixtral-8x7B"),
    pytest.param(QWEN3_MOE, 0, 30_532_122_624, id="Qwen3-30B-A3B"),
]


@pytest.mark.parametrize(("model", "dense", "parameters"), PUBLISHED)
def test_the_parameters_are_those_that_are_published(model: ModelShape, dense: int, parameters: int) -> None:
    assert sum(weight.size for weight in stage_weights(config(model), whole(model, dense))) == parameters


def test_deepseek_v3_has_671_billion_parameters() -> None:
    count = sum(weight.size for weight in stage_weights(config(DEEPSEEK), whole(DEEPSEEK, 3)))
    assert count == pytest.approx(671.0e9, rel=0.001)


def test_mixed_precision_needs_18_bytes_a_parameter() -> None:
    found = persistent_bytes(config(LLAMA_7B), whole(LLAMA_7B), Ways())
    count = 6_738_415_616
    assert (found.weights, found.gradients, found.optimizer) == (2 * count, 4 * count, 12 * count)


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([LLAMA_7B, QWEN3_32B, MIXTRAL, QWEN3_MOE]))
def test_matrices_are_split_over_tensor_parallel_ranks_and_vectors_are_not(tensor: int, model: ModelShape) -> None:
    one, part = (list(stage_weights(config(model, tensor=ways), whole(model))) for ways in (1, tensor))
    router = model.experts.count if model.experts else 0
    for before, after in zip(one, part, strict=True):
        alone = before.columns == 1 or (before.rows == router and not before.experts)
        copied = tensor > model.num_query_groups and before.rows == (
            (model.num_attention_heads + 2 * model.num_query_groups) * model.head_size
        )
        if not copied:
            assert after.size * (1 if alone else tensor) == before.size


@given(st.sampled_from([1, 2, 3, 7, 64]), st.sampled_from([1, 2, 8]))
def test_sharded_state_is_as_much_in_total_and_padding(shards: int, expert_shards: int) -> None:
    stage = whole(MIXTRAL)
    everything = persistent_bytes(config(MIXTRAL), stage, Ways())
    part = persistent_bytes(config(MIXTRAL), stage, Ways(shards, expert_shards))
    assert part.weights == everything.weights
    assert part.optimizer * max(shards, expert_shards) >= everything.optimizer
    assert part.optimizer == pytest.approx(
        12 * sum(w.size / (expert_shards if w.experts else shards) for w in stage_weights(config(MIXTRAL), stage)),
        rel=1e-4,
    )


def test_fully_sharded_weights_are_parts_too() -> None:
    whole_config = config(QWEN3_MOE)
    optimizer = replace(whole_config.optimizer, sharding=Sharding.PARAMETERS)
    sharded = replace(whole_config, optimizer=optimizer)
    count = 30_532_122_624
    found = persistent_bytes(sharded, whole(QWEN3_MOE), Ways(8, 8))
    assert found.weights == pytest.approx(2 * count / 8, rel=5e-4)  # routers are float32
    assert found.gradients == pytest.approx(4 * count / 8, rel=1e-4)
    assert found.optimizer == pytest.approx(12 * count / 8, rel=5e-4)


def test_a_prediction_layer_is_a_layer_three_norms_and_a_projection_more() -> None:
    plain, predicting = StageLayer(60, experts=True), StageLayer(61, experts=True, mtp=True)
    more = sum(w.size for w in layer_weights(config(DEEPSEEK), predicting)) - sum(
        w.size for w in layer_weights(config(DEEPSEEK), plain)
    )
    assert more == 3 * 7168 + 2 * 7168**2


def test_without_mixed_precision_there_are_no_copies() -> None:
    plain = config(LLAMA_7B)
    plain = replace(
        plain,
        precision=Precision(DType.FLOAT32, mixed=False, gradients=DType.FLOAT32),
        optimizer=Optimizer("AdamW", gradient_buffers=False, sharding=Sharding.NONE),
    )
    found = persistent_bytes(plain, whole(LLAMA_7B), Ways())
    count = 6_738_415_616
    assert (found.weights, found.gradients, found.optimizer) == (4 * count, 0, 8 * count)
