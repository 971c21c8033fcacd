"""Test persistent bytes: published parameter counts of models, and relations between ranks."""

from __future__ import annotations

import pytest

from ms_tune.dialects.job_parts import (
    DType,
    Experts,
    LatentAttention,
    MicroBatches,
    ModelShape,
    Optimizer,
    Parallelism,
    Precision,
    Sharding,
    TrainingConfig,
)
from ms_tune.dialects.stage import Chunk, Stage, StageLayer
from ms_tune.estimate.persistent import ShardCounts, layer_weights, persistent_bytes, stage_weights


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
    """Return vocabulary size, hidden size, feed-forward width, layers, heads, key/value heads and head size."""
    names = [
        "vocab_size",
        "hidden_size",
        "ffn_hidden_size",
        "layers",
        "num_attention_heads",
        "num_query_groups",
        "head_size",
    ]
    return dict(zip(names, values, strict=True))


def config(model: ModelShape, tensor: int = 1) -> TrainingConfig:
    return TrainingConfig(
        model,
        Parallelism(tensor, 1, 1, 1, None, sequence=True),
        MicroBatches(1, 1),
        Precision(DType.BFLOAT16, mixed=True, gradients=DType.FLOAT32),
        Optimizer("AdamW", gradient_buffers=True, sharding=Sharding.OPTIMIZER),
    )


def whole(model: ModelShape, dense: int = 0) -> Stage:
    layers = tuple(
        StageLayer(number, experts=model.experts is not None and number >= dense) for number in range(model.layers)
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


def test_a_prediction_layer_is_a_layer_three_norms_and_a_projection_more() -> None:
    plain, predicting = StageLayer(60, experts=True), StageLayer(61, experts=True, mtp=True)
    more = sum(w.size for w in layer_weights(config(DEEPSEEK), predicting)) - sum(
        w.size for w in layer_weights(config(DEEPSEEK), plain)
    )
    assert more == 3 * 7168 + 2 * 7168**2


def sizes_of(model: ModelShape, layer: StageLayer | None = None, **changed: object) -> list[int]:
    made = config(model)._replace(**changed)  # type: ignore[arg-type]
    weights = layer_weights(made, layer) if layer else stage_weights(made, whole(model))
    return [weight.size for weight in weights]


TINY = shape(**sizes(100, 12, 20, 2, 4, 2, 6))
# Projections of queries, keys and values, and of the output: 4 and twice 2 heads of 6; two adjacent matrices and one.
ATTENTION, FEED_FORWARD = [(4 + 2 * 2) * 6 * 12, 12 * 4 * 6], [2 * 20 * 12, 12 * 20]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, [12, 12, *ATTENTION, *FEED_FORWARD]),
        ({"sandwich_norm": True}, [12] * 4 + ATTENTION + FEED_FORWARD),
        ({"normalization": "LayerNorm"}, [12] * 4 + ATTENTION + FEED_FORWARD),  # each has a bias too
        ({"qkv_bias": True}, [12, 12, ATTENTION[0], 48, ATTENTION[1], *FEED_FORWARD]),
        ({"output_bias": True}, [12, 12, *ATTENTION, 12, *FEED_FORWARD]),
        ({"mlp_bias": True}, [12, 12, *ATTENTION, FEED_FORWARD[0], 40, FEED_FORWARD[1], 12]),
        ({"qk_norm": True}, [12, 12, ATTENTION[0], 6, 6, ATTENTION[1], *FEED_FORWARD]),
        ({"activation": "gelu"}, [12, 12, *ATTENTION, 20 * 12, 12 * 20]),
    ],
)
def test_a_layer_is_its_norms_attention_and_feed_forward(changed: dict[str, object], expected: list[int]) -> None:
    assert sizes_of(TINY._replace(**changed), StageLayer(0)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("latent", "expected"),
    [
        # Down to 8 for queries, 5 for keys and values and 4 that turn; then up for 4 heads of 3 + 4, and of 3 + 6.
        (LatentAttention(8, 5, 3, 4, 6), [(8 + 5 + 4) * 12, 8, 4 * 7 * 8, 5, 4 * 9 * 5, 12 * 4 * 6]),
        # Queries are not compressed: 4 heads of 3 + 4 in addition to the narrow part.
        (LatentAttention(None, 5, 3, 4, 6), [(28 + 5 + 4) * 12, 5, 4 * 9 * 5, 12 * 4 * 6]),
    ],
)
def test_latent_attention(latent: LatentAttention, expected: list[int]) -> None:
    assert sizes_of(TINY._replace(latent=latent, qk_norm=True), StageLayer(0)) == [12, 12, *expected, *FEED_FORWARD]
    plain = [size for size in expected if size not in {latent.query_rank, latent.key_value_rank}]
    assert sizes_of(TINY._replace(latent=latent), StageLayer(0)) == [12, 12, *plain, *FEED_FORWARD]


@pytest.mark.parametrize(
    ("experts", "expected"),
    [
        (Experts(4, 2, 10), [4 * 12, 4 * 12 * 20, 4 * 10 * 12]),
        (Experts(2, 2, 10, grouped=False), [2 * 12, 20 * 12, 12 * 10, 20 * 12, 12 * 10]),
        (Experts(4, 2, 10, shared_ffn_hidden_size=7), [4 * 12, 4 * 12 * 20, 4 * 10 * 12, 14 * 12, 12 * 7]),
        (
            Experts(4, 2, 10, shared_ffn_hidden_size=7, shared_gate=True),
            [4 * 12, 4 * 12 * 20, 4 * 10 * 12, 14 * 12, 12 * 7, 12],
        ),
    ],
)
def test_experts(experts: Experts, expected: list[int]) -> None:
    model = TINY._replace(experts=experts)
    assert sizes_of(model, StageLayer(0, experts=True)) == [12, 12, *ATTENTION, *expected]
    assert sizes_of(model, StageLayer(0)) == [12, 12, *ATTENTION, *FEED_FORWARD]


def test_experts_one_by_one_may_have_biases() -> None:
    model = TINY._replace(experts=Experts(2, 2, 10, grouped=False), mlp_bias=True)
    assert sizes_of(model, StageLayer(0, experts=True))[4:] == [2 * 12, *[20 * 12, 20, 12 * 10, 12] * 2]


@pytest.mark.parametrize("grouped", [True, False])
def test_all_of_an_expert_is_shared_out_as_experts_are_and_its_router_is_not(*, grouped: bool) -> None:
    model = TINY._replace(experts=Experts(2, 2, 10, grouped=grouped), mlp_bias=not grouped)
    weights = list(layer_weights(config(model), StageLayer(0, experts=True)))
    assert [weight.experts for weight in weights[4:]] == [False, *[True] * (2 if grouped else 8)]


@pytest.mark.parametrize(("split", "width"), [(True, 5), (False, 10)])
def test_expert_and_tensor_parallel_ranks(split: bool, width: int) -> None:  # noqa: FBT001 - a case of the table
    experts = Experts(8, 2, 10, shared_ffn_hidden_size=6, shared_split=True, tensor_parallel=split)
    model = TINY._replace(experts=experts, legacy=True)
    parallel = Parallelism(2, 1, 1, 4, None, sequence=True)
    found = sizes_of(model, StageLayer(0, experts=True), parallelism=parallel)
    # 2 of 8 experts; the shared one is split in MindSpeed-Core-MS and MindFormers 2.0, and whole in 2.1's dynamic
    # graph.
    assert found[4:] == [8 * 12, 2 * 12 * 2 * width, 2 * width * 12, 6 * 12, 12 * 3]
    whole = model._replace(experts=experts._replace(shared_split=False), legacy=False)
    modern = sizes_of(whole, StageLayer(0, experts=True), parallelism=parallel)
    assert modern[-2:] == [12 * 12, 12 * 6]


def test_key_and_value_heads_are_on_every_rank_once_there_are_more_ranks_than_heads() -> None:
    parallel = Parallelism(4, 1, 1, 1, None, sequence=True)
    assert sizes_of(TINY, StageLayer(0), parallelism=parallel)[2] == (1 + 2 * 1) * 6 * 12


@pytest.mark.parametrize(
    ("chunk", "changed", "expected"),
    [
        (Chunk((), embedding=True), {}, [1200]),
        (Chunk((), embedding=True), {"rotary": False}, [1200, 4096 * 12]),  # learned positions
        (Chunk((), head=True), {}, [12, 1200]),
        (Chunk((), head=True), {"tied_embeddings": True}, [1200, 12]),
        (Chunk((), embedding=True, head=True), {"tied_embeddings": True}, [1200, 12]),
        (Chunk(()), {"rotary": False}, []),
    ],
)
def test_the_ends_of_a_pipeline(chunk: Chunk, changed: dict[str, object], expected: list[int]) -> None:
    made = config(TINY._replace(**changed))  # type: ignore[arg-type]
    assert [weight.size for weight in stage_weights(made, Stage(0, 1, (chunk,)))] == expected


def test_a_chunk_that_predicts_further_tokens_has_the_embedding() -> None:
    layer = StageLayer(2, mtp=True)
    found = [*stage_weights(config(TINY), Stage(0, 1, (Chunk((layer,)),)))]
    assert [found[0].size, *(weight.size for weight in layer_weights(config(TINY), layer))] == [w.size for w in found]
    assert found[0].size == 1200


def test_number_formats_of_parts() -> None:
    parts = {"embedding": DType.FLOAT16, "norm": DType.FLOAT32, "attention": DType.FLOAT32}
    precision = config(TINY).precision._replace(**parts)  # type: ignore[arg-type]
    made = config(TINY)._replace(precision=precision)
    found = [(weight.size, weight.dtype) for weight in stage_weights(made, whole(TINY._replace(layers=1)))]
    wide, narrow = DType.FLOAT32, DType.BFLOAT16
    layer = [(12, wide), (12, wide), *((size, wide) for size in ATTENTION), *((size, narrow) for size in FEED_FORWARD)]
    assert found == [(1200, DType.FLOAT16), *layer, (12, wide), (1200, narrow)]


@pytest.mark.parametrize("shards", [1, 4, 5, 24])
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_of_fully_sharded_weights_those_that_cannot_be_cut_stay_whole(shards: int, dtype: DType) -> None:
    made = config(TINY)
    made = made._replace(
        precision=made.precision._replace(parameters=dtype),
        optimizer=made.optimizer._replace(sharding=Sharding.PARAMETERS),
    )
    kept = sum(w.size // (shards if w.rows % shards == 0 else 1) for w in stage_weights(made, whole(TINY)))
    found = persistent_bytes(made, whole(TINY), ShardCounts(shards))
    copies = 0 if dtype is DType.FLOAT32 else 4
    assert (found.weights, found.gradients, found.optimizer) == (kept * dtype.bytes, kept * 4, kept * (8 + copies))


@pytest.mark.parametrize(
    ("dtype", "mixed", "sharding", "legacy", "state"),
    [
        # bytes of optimizer state for an element: a copy where the weight is narrow, and two moments
        (DType.BFLOAT16, True, Sharding.NONE, False, 12),
        (DType.BFLOAT16, True, Sharding.OPTIMIZER, False, 12),
        (DType.BFLOAT16, False, Sharding.OPTIMIZER, False, 6),
        (DType.BFLOAT16, False, Sharding.NONE, False, 4),
        (DType.FLOAT32, True, Sharding.OPTIMIZER, False, 8),  # pynative/optimizer/adamw.py makes no copy of it
        (DType.FLOAT32, True, Sharding.OPTIMIZER, True, 12),  # MindSpeed-Core-MS does
        (DType.FLOAT32, False, Sharding.NONE, True, 8),
    ],
)
def test_what_the_optimizer_keeps_of_an_element(
    dtype: DType,
    mixed: bool,  # noqa: FBT001 - a column of the table
    sharding: Sharding,
    legacy: bool,  # noqa: FBT001 - as above
    state: int,
) -> None:
    made = config(TINY._replace(legacy=legacy))
    made = made._replace(
        precision=made.precision._replace(parameters=dtype, mixed=mixed),
        optimizer=made.optimizer._replace(sharding=sharding),
    )
    elements = sum(weight.size for weight in stage_weights(made, whole(made.shape)))
    found = persistent_bytes(made, whole(made.shape), ShardCounts())
    assert (found.weights, found.gradients, found.optimizer) == (elements * dtype.bytes, elements * 4, elements * state)


@pytest.mark.parametrize("sharding", [Sharding.NONE, Sharding.PARAMETERS])
@pytest.mark.parametrize(("dtype", "state"), [(DType.BFLOAT16, 14), (DType.FLOAT32, 8)])
def test_clones_that_stay_are_as_wide_as_the_weights(sharding: Sharding, dtype: DType, state: int) -> None:
    made = config(TINY)
    optimizer = made.optimizer._replace(sharding=sharding, keeps_clones=True)
    made = made._replace(precision=made.precision._replace(parameters=dtype), optimizer=optimizer)
    elements = sum(weight.size for weight in stage_weights(made, whole(TINY)))
    assert persistent_bytes(made, whole(TINY), ShardCounts()).optimizer == elements * state


def test_gradients_have_padding_and_stay_whole_where_only_the_optimizer_is_sharded() -> None:
    made = config(TINY)
    weights = [*stage_weights(made, whole(TINY))]
    found = persistent_bytes(made, whole(TINY), ShardCounts(5))
    padded = sum(-(-weight.size // 5) * 5 for weight in weights)
    assert found.gradients == 4 * padded > 4 * sum(weight.size for weight in weights)
    assert found.optimizer == 12 * padded // 5
    bare = made._replace(optimizer=made.optimizer._replace(gradient_buffers=False))
    assert persistent_bytes(bare, whole(TINY), ShardCounts(5)).gradients == 0
