"""The static graph's bytes: beside the tensors of a checkpoint, listed one by one, and each rank's part of them."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.dialects.job_parts import DType, LatentAttention
from ms_tune.dialects.stage import Chunk, Stage, StageLayer
from ms_tune.estimate.static_graph import (
    StaticBytes,
    StaticExperts,
    StaticModel,
    StaticSplit,
    static_bytes,
    static_weights,
)

LATENT = LatentAttention(1536, 512, 128, 64, 128)
ALONE = StaticSplit(ranks=1, tensor=1, expert=1, shares=False, most=None, threshold=0)
TINY = StaticModel(
    vocab_size=48,
    hidden_size=24,
    ffn_hidden_size=40,
    heads=8,
    groups=4,
    head_size=6,
    qkv_bias=False,
    qk_norm=False,
    tied=False,
    predicts=False,
    latent=None,
    joined=False,
    experts=None,
    dtype=DType.FLOAT32,
)
DEEPSEEK_V3 = TINY._replace(
    vocab_size=129280,
    hidden_size=7168,
    ffn_hidden_size=18432,
    heads=128,
    groups=128,
    head_size=192,
    qk_norm=True,
    latent=LATENT,
    experts=StaticExperts(256, 2048, 2048, bias=True),
)


class Tensor(NamedTuple):
    """A tensor of the whole model: its shape, and which axis is cut over which ranks."""

    rows: int
    columns: int
    cut: str = ""  # "rows" or "columns" over tensor-parallel ranks, "experts" over expert-parallel ones
    trained: bool = True


def attention(model: StaticModel) -> list[Tensor]:
    hidden, latent = model.hidden_size, model.latent
    if latent is None:
        width = model.head_size
        qkv = (model.heads + model.groups + model.groups) * width
        found = [Tensor(qkv, hidden, "rows"), Tensor(hidden, model.heads * width, "columns")]
        found += [Tensor(qkv, 1, "rows")] if model.qkv_bias else []
        return found + [Tensor(width, 1)] * (2 if model.qk_norm else 0)
    queries = model.heads * (latent.plain_size + latent.rotary_size)
    down = latent.key_value_rank + latent.rotary_size
    if latent.query_rank:
        found = [Tensor(latent.query_rank, hidden), Tensor(down, hidden), Tensor(queries, latent.query_rank, "rows")]
        found = [Tensor(latent.query_rank + down, hidden), found[2]] if model.joined else found
        norms = [latent.query_rank, latent.key_value_rank]
    else:
        found = [Tensor(queries, hidden, "rows"), Tensor(down, hidden)]
        found = [Tensor(queries + down, hidden)] if model.joined else found
        norms = [latent.key_value_rank]
    found += [Tensor(size, 1) for size in norms] if model.qk_norm else []
    up = model.heads * (latent.plain_size + latent.value_size)
    values = model.heads * latent.value_size
    return [*found, Tensor(up, latent.key_value_rank, "rows"), Tensor(hidden, values, "columns")]


def layer(model: StaticModel, *, experts: bool) -> list[Tensor]:
    hidden = model.hidden_size
    found = [Tensor(hidden, 1), Tensor(hidden, 1), *attention(model)]
    if not (experts and model.experts):
        width = model.ffn_hidden_size
        return [*found, Tensor(width * 2, hidden, "rows"), Tensor(hidden, width, "columns")]
    made = model.experts
    found.append(Tensor(made.routed, hidden))
    found.append(Tensor(made.routed * hidden, made.width * 2, "experts"))
    found.append(Tensor(made.routed * made.width, hidden, "experts"))
    found += [Tensor(made.routed, 1, trained=False)] * (2 if made.bias else 0)
    shared = made.shared_width
    return found + ([Tensor(shared * 2, hidden), Tensor(hidden, shared)] if shared else [])


def checkpoint(model: StaticModel, kinds: list[bool]) -> list[Tensor]:
    """Every tensor of a model on one stage; ``kinds`` says which layers have experts."""
    words, hidden = Tensor(model.vocab_size, model.hidden_size, "rows"), model.hidden_size
    found = [words] * (1 if model.tied else 2) + [Tensor(hidden, 1)]
    for kind in kinds:
        found += layer(model, experts=kind)
    if model.predicts:
        found += [Tensor(hidden, 1)] * 3 + [Tensor(hidden, 2 * hidden), *layer(model, experts=kinds[-1])]
    return found


def held(tensors: list[Tensor], dtype: DType, split: StaticSplit) -> StaticBytes:
    """What one rank holds: a tensor is cut over some ranks, and those that hold the same part may share it out."""
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
    return StaticBytes(weights, state)


def one_stage(*kinds: bool) -> Stage:
    return Stage(
        0, 1, (Chunk(tuple(StageLayer(n, experts=kind) for n, kind in enumerate(kinds)), embedding=True, head=True),)
    )


@st.composite
def models(draw: st.DrawFn) -> StaticModel:
    latent = draw(st.sampled_from([None, LatentAttention(8, 4, 2, 4, 6), LatentAttention(None, 4, 2, 4, 6)]))
    experts = draw(
        st.none()
        | st.builds(StaticExperts, st.sampled_from([4, 8]), st.just(12), st.sampled_from([0, 10]), st.booleans())
    )
    switches = {name: draw(st.booleans()) for name in ("qkv_bias", "qk_norm", "tied", "joined")}
    model = TINY._replace(latent=latent, experts=experts, dtype=draw(st.sampled_from([*DType])), **switches)
    return model._replace(predicts=not model.tied and draw(st.booleans()))


SPLITS = st.builds(
    StaticSplit,
    ranks=st.just(8),
    tensor=st.sampled_from([1, 2, 4]),
    expert=st.sampled_from([1, 2, 4]),
    shares=st.booleans(),
    most=st.sampled_from([None, 1, 2, 3, 4]),
    threshold=st.sampled_from([0, 24 * 4, 24 * 4 + 1, 2000, 3840, 3841, 10**9]),
)


@given(models(), SPLITS, st.lists(st.booleans(), min_size=1, max_size=3))
def test_a_rank_holds_its_part_of_every_tensor(model: StaticModel, split: StaticSplit, kinds: list[bool]) -> None:
    found = static_bytes(model, split, one_stage(*kinds))
    tensors = checkpoint(model, kinds)
    if model.predicts:  # the embedding is on this stage already: one copy for both ends
        assert len([*static_weights(model, split, one_stage(*kinds))]) == len(tensors)
    assert found == held(tensors, model.dtype, split)


QWEN3_06B = TINY._replace(
    vocab_size=151936,
    hidden_size=1024,
    ffn_hidden_size=3072,
    heads=16,
    groups=8,
    head_size=128,
    qk_norm=True,
    tied=True,
)
QWEN3_32B = TINY._replace(
    vocab_size=151936, hidden_size=5120, ffn_hidden_size=25600, heads=64, groups=8, head_size=128, qk_norm=True
)


@pytest.mark.parametrize(
    ("model", "kinds", "parameters"),
    [
        # model.safetensors.index.json of Qwen/Qwen3-0.6B without the copy of its embedding, and of Qwen/Qwen3-32B
        pytest.param(QWEN3_06B, [False] * 28, 596_049_920, id="Qwen3-0.6B"),
        pytest.param(QWEN3_32B, [False] * 64, 32_762_123_264, id="Qwen3-32B"),
        # arXiv:2412.19437, section 4.2: 671 B
        pytest.param(DEEPSEEK_V3, [False] * 3 + [True] * 58, 671_026_404_352, id="DeepSeek-V3"),
    ],
)
def test_the_parameters_are_those_that_are_published(model: StaticModel, kinds: list[bool], parameters: int) -> None:
    weights = [*static_weights(model, ALONE, one_stage(*kinds))]
    assert sum(weight.size for weight in weights if weight.trained) == parameters
    found = static_bytes(model._replace(dtype=DType.BFLOAT16), ALONE, one_stage(*kinds))
    untrained = 2 * 256 * kinds.count(True)
    assert found == StaticBytes(2 * parameters + 4 * untrained, 8 * parameters)


def test_the_ends_of_a_pipeline_hold_what_they_need() -> None:
    """The embedding is at the first stage, and at the last one too if its weight is read there again."""
    words, norm = 48 * 24, 24
    block = sum(tensor.rows * tensor.columns for tensor in layer(TINY, experts=False))
    first, middle, last = (
        Stage(index, 3, (Chunk((StageLayer(index),), embedding=index == 0, head=index == 2),)) for index in range(3)
    )

    def sizes(model: StaticModel) -> list[int]:
        return [static_bytes(model, ALONE, stage).weights // 4 for stage in (first, middle, last)]

    more = 3 * norm + 24 * 48 + block
    assert sizes(TINY) == [words + block, block, block + norm + words]
    assert sizes(TINY._replace(tied=True)) == [words + block, block, words + block + norm]
    assert sizes(TINY._replace(predicts=True)) == [words + block, block, words + block + norm + words + more]


def test_every_chunk_of_a_stage_counts() -> None:
    chunks = (Chunk((StageLayer(0),), embedding=True), Chunk((StageLayer(2), StageLayer(3)), head=True))
    together = static_bytes(TINY, ALONE, Stage(0, 1, chunks))
    singly = [static_bytes(TINY, ALONE, Stage(0, 1, (chunk,))) for chunk in chunks]
    assert together.weights == sum(each.weights for each in singly)
    assert together.optimizer_state == sum(each.optimizer_state for each in singly) == 2 * together.weights


def _tied() -> tuple[StaticModel, Stage]:
    model = TINY._replace(vocab_size=10, hidden_size=3, ffn_hidden_size=4, heads=1, groups=1, head_size=4, tied=True)
    return model, Stage(0, 1, (Chunk((StageLayer(0),), embedding=True),))


def test_a_weight_that_cannot_be_cut_evenly_stays_whole() -> None:
    model, stage = _tied()
    split = StaticSplit(ranks=4, tensor=1, expert=1, shares=True, most=None, threshold=0)
    # 10 words and 3 rows cannot be cut into 4; 12 rows of queries, keys and values can, and 8 of the feed-forward block.
    whole = 10 * 3 + 2 * 3 + 3 * 4 + 3 * 4
    assert static_bytes(model, split, stage).weights == 4 * (whole + (12 * 3 + 8 * 3) // 4)


@pytest.mark.parametrize(
    ("threshold", "shared"), [(8 * 3 * 4, 12 * 3 + 8 * 3), (8 * 3 * 4 + 1, 12 * 3), (12 * 3 * 4 + 1, 0)]
)
def test_the_threshold_is_about_the_whole_weight(threshold: int, shared: int) -> None:
    model, stage = _tied()
    split = StaticSplit(ranks=4, tensor=2, expert=1, shares=True, most=None, threshold=threshold)
    # On a rank: 5 words, norms, 6 and 4 rows that two ranks can share, 3 rows that they cannot.
    each = 5 * 3 + 2 * 3 + 3 * 2 + 3 * 2 + (12 * 3 + 8 * 3) // 2
    assert static_bytes(model, split, stage).weights == 4 * (each - shared // 4)
