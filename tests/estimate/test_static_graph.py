"""Compare the static graph's bytes with the listed tensors of a checkpoint, and each rank's part of them."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

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
from ms_tune.estimate.persistent import StaticSharing, WeightBytes, stage_weights, static_bytes
from tests.estimate.test_persistent import DEEPSEEK, shape, sizes


class Split(NamedTuple):
    """The split of a stage over its ranks."""

    ranks: int = 1
    tensor: int = 1
    expert: int = 1
    shares: bool = False
    most: int | None = None
    threshold: int = 0


ALONE = Split()
TINY = shape(**sizes(48, 24, 40, 1, 8, 4, 6))


def experts_of(routed: int, width: int, shared_width: int, bias: bool) -> Experts:  # noqa: FBT001 - as drawn
    return Experts(routed, 1, width, shared_width, tensor_parallel=False, flat=True, balanced=bias)


DEEPSEEK_V3 = DEEPSEEK._replace(
    qk_norm=True,
    latent=LatentAttention(1536, 512, 128, 64, 128, joined=False),
    experts=experts_of(256, 2048, 2048, bias=True),
)


def training(model: ModelShape, split: Split, dtype: DType) -> TrainingConfig:
    if model.experts:
        model = model._replace(experts=model.experts._replace(router=dtype))
    return TrainingConfig(
        model,
        Parallelism(split.tensor, 1, 1, split.expert, None, sequence=False),
        MicroBatches(1, 1),
        Precision(dtype, mixed=False, gradients=dtype),
        Optimizer("AdamW", gradient_buffers=False, sharding=Sharding.NONE),
    )


def bytes_of(model: ModelShape, split: Split, stage: Stage, dtype: DType = DType.FLOAT32) -> dict[str, int]:
    sharing = StaticSharing(split.ranks, split.shares, split.most, split.threshold)
    return static_bytes(training(model, split, dtype), sharing, stage)


def weights_of(model: ModelShape, split: Split, stage: Stage) -> list[WeightBytes]:
    return [*stage_weights(training(model, split, DType.FLOAT32), stage)]


class Tensor(NamedTuple):
    """A tensor of the whole model: its shape, and the axis that is split over which ranks."""

    rows: int
    columns: int
    cut: str = ""  # "rows" or "columns" over tensor-parallel ranks, "experts" over expert-parallel ones
    trained: bool = True


def attention(model: ModelShape) -> list[Tensor]:
    hidden, latent = model.hidden_size, model.latent
    if latent is None:
        width = model.head_size
        qkv = (model.num_attention_heads + model.num_query_groups + model.num_query_groups) * width
        found = [Tensor(qkv, hidden, "rows"), Tensor(hidden, model.num_attention_heads * width, "columns")]
        found += [Tensor(qkv, 1, "rows")] if model.qkv_bias else []
        return found + [Tensor(width, 1)] * (2 if model.qk_norm else 0)
    queries = model.num_attention_heads * (latent.plain_size + latent.rotary_size)
    down = latent.key_value_rank + latent.rotary_size
    if latent.query_rank:
        found = [Tensor(latent.query_rank, hidden), Tensor(down, hidden), Tensor(queries, latent.query_rank, "rows")]
        found = [Tensor(latent.query_rank + down, hidden), found[2]] if latent.joined else found
        norms = [latent.query_rank, latent.key_value_rank]
    else:
        found = [Tensor(queries, hidden, "rows"), Tensor(down, hidden)]
        found = [Tensor(queries + down, hidden)] if latent.joined else found
        norms = [latent.key_value_rank]
    found += [Tensor(size, 1) for size in norms] if model.qk_norm else []
    up = model.num_attention_heads * (latent.plain_size + latent.value_size)
    values = model.num_attention_heads * latent.value_size
    return [*found, Tensor(up, latent.key_value_rank, "rows"), Tensor(hidden, values, "columns")]


def layer(model: ModelShape, *, experts: bool) -> list[Tensor]:
    hidden = model.hidden_size
    found = [Tensor(hidden, 1), Tensor(hidden, 1), *attention(model)]
    if not (experts and model.experts):
        width = model.ffn_hidden_size
        return [*found, Tensor(width * 2, hidden, "rows"), Tensor(hidden, width, "columns")]
    made = model.experts
    found.append(Tensor(made.routed, hidden))
    found.append(Tensor(made.routed * hidden, made.ffn_hidden_size * 2, "experts"))
    found.append(Tensor(made.routed * made.ffn_hidden_size, hidden, "experts"))
    found += [Tensor(made.routed, 1, trained=False)] * (2 if made.balanced else 0)
    shared = made.shared_ffn_hidden_size
    return found + ([Tensor(shared * 2, hidden), Tensor(hidden, shared)] if shared else [])


def checkpoint(model: ModelShape, kinds: list[bool], *, predicts: bool) -> list[Tensor]:
    """Yield every tensor of a model on one stage; ``kinds`` states which layers have experts."""
    words, hidden = Tensor(model.vocab_size, model.hidden_size, "rows"), model.hidden_size
    found = [words] * (1 if model.tied_embeddings else 2) + [Tensor(hidden, 1)]
    for kind in kinds:
        found += layer(model, experts=kind)
    if predicts:
        found += [Tensor(hidden, 1)] * 3 + [Tensor(hidden, 2 * hidden), *layer(model, experts=kinds[-1])]
    return found


def shard_bytes(tensors: list[Tensor], dtype: DType, split: Split) -> dict[str, int]:
    """Return the bytes on one rank: a tensor is split over some ranks, and ranks with the same part may shard it."""
    weights = state = 0
    for each in tensors:
        whole = each.rows * each.columns
        if not each.trained:
            weights += whole * 4
            continue
        ways = {"": 1, "experts": split.expert}.get(each.cut, split.tensor)
        mine = whole // ways
        alike = split.ranks // ways
        parts = alike if split.most is None else min(alike, split.most)
        rows = each.rows if each.cut in ("", "columns") else each.rows // ways
        if split.shares and whole * dtype.bytes >= split.threshold and rows % parts == 0:
            mine //= parts
        weights += mine * dtype.bytes
        state += mine * 8
    return {"weights": weights, "optimizer_state": state}


def one_stage(*kinds: bool, predicts: bool = False) -> Stage:
    layers = [StageLayer(number, experts=kind) for number, kind in enumerate(kinds)]
    layers += [StageLayer(len(kinds), experts=kinds[-1], mtp=True)] if predicts else []
    return Stage(0, 1, (Chunk(tuple(layers), embedding=True, head=True),))


@st.composite
def models(draw: st.DrawFn) -> ModelShape:
    latent = draw(st.sampled_from([None, LatentAttention(8, 4, 2, 4, 6), LatentAttention(None, 4, 2, 4, 6)]))
    experts = draw(
        st.none() | st.builds(experts_of, st.sampled_from([4, 8]), st.just(12), st.sampled_from([0, 10]), st.booleans())
    )
    bias, norm, tied = (draw(st.booleans()) for _ in range(3))
    if latent is not None:
        latent = latent._replace(joined=draw(st.booleans()))
    bias = bias and latent is None  # no model has both
    return TINY._replace(latent=latent, experts=experts, qkv_bias=bias, qk_norm=norm, tied_embeddings=tied)


SPLITS = st.builds(
    Split,
    ranks=st.just(8),
    tensor=st.sampled_from([1, 2, 4]),
    expert=st.sampled_from([1, 2, 4]),
    shares=st.booleans(),
    most=st.sampled_from([None, 1, 2, 3, 4]),
    threshold=st.sampled_from([0, 24 * 4, 24 * 4 + 1, 2000, 3840, 3841, 10**9]),
)


@given(models(), SPLITS, st.lists(st.booleans(), min_size=1, max_size=3), st.booleans(), st.sampled_from(DType))
def test_a_rank_holds_its_part_of_every_tensor(
    model: ModelShape,
    split: Split,
    kinds: list[bool],
    predicts: bool,  # noqa: FBT001 - as drawn
    dtype: DType,
) -> None:
    predicts = predicts and not model.tied_embeddings
    stage, tensors = one_stage(*kinds, predicts=predicts), checkpoint(model, kinds, predicts=predicts)
    if predicts:  # the embedding is on this stage already: one copy for both ends
        assert len(weights_of(model, split, stage)) == len(tensors)
    assert bytes_of(model, split, stage, dtype) == shard_bytes(tensors, dtype, split)


def test_the_parameters_are_those_that_are_published() -> None:
    """671 billion: arXiv:2412.19437, section 4.2."""
    stage, parameters = one_stage(*[False] * 3, *[True] * 58), 671_026_404_352
    assert sum(weight.size for weight in weights_of(DEEPSEEK_V3, ALONE, stage) if weight.trained) == parameters
    found = bytes_of(DEEPSEEK_V3, ALONE, stage, DType.BFLOAT16)
    assert found == {"weights": 2 * parameters + 4 * 2 * 256 * 58, "optimizer_state": 8 * parameters}
