"""Bytes that one rank of a static-graph MindFormers job holds for the whole run, from the sizes of the model.

Sources, MindFormers 1.9: ``parallel_core/training_graph`` (``tensor_parallel/layers.py`` for what is split,
``transformer/multi_latent_attention.py``, ``transformer/moe/ffn.py`` and ``router.py``, ``gpt_model.py``) for the tensors;
``core/optim/adamw.py`` and ``fused_adamw.py`` for two float32 moments of each that is trained, and no copy of it. How
MindSpore shares weights out (``enable_parallel_optimizer``) was compared with traces of MindSpore 2.9.
"""

from __future__ import annotations

from collections import Counter

from ms_tune.dialects.job_parts import DType
from ms_tune.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.job_parts import LatentAttention
    from ms_tune.dialects.stage import Chunk, Stage, StageLayer

_MOMENTS = 2


class StaticExperts(Record):
    """The routed and the shared experts of a layer."""

    routed: int  # routed experts, on all ranks together
    width: int  # width inside one of them
    shared_width: int  # width inside the shared expert, which is whole on every rank; 0 without one
    bias: bool  # the router balances experts with a bias, and counts for it what each was sent


class StaticModel(Record):
    """The sizes of a MindFormers model of ``parallel_core``: RMSNorm, gated feed-forward blocks, rotary positions."""

    vocab_size: int
    hidden_size: int
    ffn_hidden_size: int
    heads: int
    groups: int  # key and value heads
    head_size: int
    qkv_bias: bool  # queries, keys and values have a bias
    qk_norm: bool  # queries and keys, or what latent attention makes them of, are normalised
    tied: bool  # the output projection uses the word embedding's weight
    predicts: bool  # the last stage has a layer that predicts one token more (multi-token prediction)
    latent: LatentAttention | None  # latent attention instead of the usual one
    joined: bool  # latent attention's narrow projections are one matrix
    experts: StaticExperts | None  # the feed-forward block of the layers that have experts
    dtype: DType  # number format of every weight that is trained


class StaticSplit(Record):
    """How a stage is split over its ranks."""

    ranks: int  # ranks of one stage
    tensor: int  # ranks that hold other parts of the same matrices
    expert: int  # ranks that hold other experts of the same layers
    shares: bool  # ranks that hold the same weights share them out, and their optimizer state with them
    most: int | None  # over how many ranks at most; None for all that hold the same
    threshold: int  # bytes below which a weight stays whole


class StaticWeight(Record):
    """A tensor as a rank holds it before ranks that hold the same share it out."""

    rows: int  # size of its first axis
    columns: int  # all other axes together
    ways: int = 1  # over how many ranks it is split already
    trained: bool = True  # it has optimizer state, and may be shared out

    @property
    def size(self) -> int:
        """Elements."""
        return self.rows * self.columns


class StaticBytes(Record):
    """Bytes that a rank holds for the whole run."""

    weights: int
    optimizer_state: int


def static_bytes(model: StaticModel, split: StaticSplit, stage: Stage) -> StaticBytes:
    """What one rank of a stage holds for the whole run."""
    weights = state = 0
    for weight, count in Counter(static_weights(model, split, stage)).items():
        if not weight.trained:
            weights += count * weight.size * DType.FLOAT32.bytes
            continue
        share = count * (weight.size // _shard_count(weight, model.dtype, split))
        weights += share * model.dtype.bytes
        state += share * _MOMENTS * DType.FLOAT32.bytes
    return StaticBytes(weights, state)


def _shard_count(weight: StaticWeight, dtype: DType, split: StaticSplit) -> int:
    # Over how many ranks a weight is shared out; 1 where it stays whole. It is cut along its first axis, evenly or not at all.
    # The threshold is about the whole weight, on all ranks together.
    same = split.ranks // weight.ways
    parts = min(same, split.most or same)
    small = weight.size * weight.ways * dtype.bytes < split.threshold
    return 1 if small or not split.shares or weight.rows % parts else parts


def static_weights(model: StaticModel, split: StaticSplit, stage: Stage) -> Iterator[StaticWeight]:
    """Every tensor of a stage, as one rank holds it before it is shared out."""
    for chunk in stage.chunks:
        yield from _chunk_weights(model, split, chunk)


def _chunk_weights(model: StaticModel, split: StaticSplit, chunk: Chunk) -> Iterator[StaticWeight]:
    words = _column_weight(model.vocab_size, model.hidden_size, split)
    predicts = chunk.head and model.predicts
    # The last stage needs the embedding for the tokens it predicts from, and for a head that has no weight of its own.
    if chunk.embedding or predicts or (chunk.head and model.tied):
        yield words
    for layer in chunk.layers:
        yield from _layer_weights(model, split, layer)
    if chunk.head:
        yield _norm_weight(model.hidden_size)
        if not model.tied:
            yield words
    if predicts:
        for _ in range(3):
            yield _norm_weight(model.hidden_size)
        yield StaticWeight(model.hidden_size, 2 * model.hidden_size)
        yield from _layer_weights(model, split, chunk.layers[-1])  # of the kind of the model's last layer


def _layer_weights(model: StaticModel, split: StaticSplit, layer: StageLayer) -> Iterator[StaticWeight]:
    for _ in range(2):
        yield _norm_weight(model.hidden_size)
    yield from _latent_weights(model, model.latent, split) if model.latent else _attention_weights(model, split)
    if layer.experts and model.experts:
        yield from _expert_weights(model, model.experts, split)
    else:
        yield _column_weight(2 * model.ffn_hidden_size, model.hidden_size, split)
        yield _row_weight(model.hidden_size, model.ffn_hidden_size, split)


def _attention_weights(model: StaticModel, split: StaticSplit) -> Iterator[StaticWeight]:
    outputs = (model.heads + 2 * model.groups) * model.head_size
    yield _column_weight(outputs, model.hidden_size, split)
    if model.qkv_bias:
        yield _column_weight(outputs, 1, split)
    if model.qk_norm:
        yield _norm_weight(model.head_size)
        yield _norm_weight(model.head_size)
    yield _row_weight(model.hidden_size, model.heads * model.head_size, split)


def _latent_weights(model: StaticModel, latent: LatentAttention, split: StaticSplit) -> Iterator[StaticWeight]:
    queries, narrow = model.heads * latent.head_size, latent.key_value_rank + latent.rotary_size
    if model.joined:
        yield StaticWeight((latent.query_rank or queries) + narrow, model.hidden_size)
    else:
        yield StaticWeight(narrow, model.hidden_size)
        if latent.query_rank:
            yield StaticWeight(latent.query_rank, model.hidden_size)
        else:
            yield _column_weight(queries, model.hidden_size, split)
    if latent.query_rank:
        yield _column_weight(queries, latent.query_rank, split)
        if model.qk_norm:
            yield _norm_weight(latent.query_rank)
    if model.qk_norm:
        yield _norm_weight(latent.key_value_rank)
    yield _column_weight(model.heads * (latent.plain_size + latent.value_size), latent.key_value_rank, split)
    yield _row_weight(model.hidden_size, model.heads * latent.value_size, split)


def _expert_weights(model: StaticModel, experts: StaticExperts, split: StaticSplit) -> Iterator[StaticWeight]:
    hidden, local = model.hidden_size, experts.routed // split.expert
    yield StaticWeight(experts.routed, hidden)
    yield StaticWeight(local * hidden, 2 * experts.width, split.expert)
    yield StaticWeight(local * experts.width, hidden, split.expert)
    if experts.bias:
        for _ in range(2):
            yield StaticWeight(experts.routed, 1, trained=False)
    if experts.shared_width:
        yield StaticWeight(2 * experts.shared_width, hidden)
        yield StaticWeight(hidden, experts.shared_width)


def _column_weight(outputs: int, inputs: int, split: StaticSplit) -> StaticWeight:
    return StaticWeight(outputs // split.tensor, inputs, split.tensor)


def _row_weight(outputs: int, inputs: int, split: StaticSplit) -> StaticWeight:
    return StaticWeight(outputs, inputs // split.tensor, split.tensor)


def _norm_weight(size: int) -> StaticWeight:
    return StaticWeight(size, 1)
