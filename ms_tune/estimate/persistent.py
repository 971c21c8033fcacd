"""Compute the bytes of weights, gradients and optimizer state of one rank from the sizes of the model.

Sources of the sizes: Megatron-LM ``core/transformer`` (column-parallel projections have ``outputs / tensor`` rows, row-parallel
ones ``inputs / tensor`` columns and a whole bias, the embedding ``words / tensor`` rows), DeepSeek-V2 (arXiv:2405.04434, section
2.1) for latent attention, MindFormers ``pynative/transformers`` (2.1) for weights that are not split. Of the bytes: mixed
precision with Adam keeps a float32 copy and two float32 moments (Micikevicius et al., arXiv:1710.03740;
``Float16OptimizerWithFloat16Params``), ZeRO shards them (arXiv:1910.02054).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

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
from ms_tune.records import Record

_MOMENTS = 2


class ShardCounts(Record):
    """Number of ranks over which persistent memory is sharded."""

    shards: int = 1  # for gradients and optimizer state, or weights too (`Sharding`)
    expert_shards: int = 1  # the same for routed experts


class WeightBytes(Record):
    """One matrix or vector of weights on a rank, before it is sharded over DP ranks."""

    rows: int  # size of its first axis
    columns: int  # all other axes together
    dtype: DType  # its number format
    experts: bool = False  # belongs to routed experts
    ways: int = 1  # number of ranks over which it is already split
    trained: bool = True  # has optimizer state, and can be sharded
    whole: bool = False  # ranks with the same weights do not shard it

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return self.rows * self.columns


class Persistent(Record):
    """Persistent bytes of a rank."""

    weights: int
    gradients: int
    optimizer: int


def persistent_bytes(config: TrainingConfig, stage: Stage, ways: ShardCounts) -> Persistent:
    """Return the persistent bytes of one rank of a stage."""
    optimizer, precision = config.optimizer, config.precision
    weights = gradients = state = 0
    for weight in stage_weights(config, stage):
        parts = ways.expert_shards if weight.experts else ways.shards
        if optimizer.sharding is Sharding.PARAMETERS:
            # Weights that cannot be split evenly along the first axis stay whole on every rank.
            share = weight.size // parts if weight.rows % parts == 0 else weight.size
            weights += share * weight.dtype.bytes
            gradients += share * precision.gradients.bytes
            copy = 0 if weight.dtype is DType.FLOAT32 else 1
            state += share * DType.FLOAT32.bytes * (copy + _MOMENTS)
            state += share * weight.dtype.bytes * copy if optimizer.keeps_clones else 0
            continue
        parts = parts if optimizer.distributed else 1
        share = -(-weight.size // parts)
        weights += weight.size * weight.dtype.bytes
        gradients += share * parts * precision.gradients.bytes if optimizer.gradient_buffers else 0
        kept = DType.FLOAT32.bytes if precision.mixed else weight.dtype.bytes
        # No copy of a float32 weight (pynative/optimizer/adamw.py), except in legacy networks.
        narrow = weight.dtype is not DType.FLOAT32 or config.shape.legacy
        copy = 1 if (precision.mixed or optimizer.distributed) and narrow else 0
        state += share * (copy * kept + _MOMENTS * kept)
        state += share * weight.dtype.bytes * copy if optimizer.keeps_clones else 0
    return Persistent(weights, gradients, state)


class StaticSharing(Record):
    """How MindSpore's static graph shards weights over the ranks of a stage (``enable_parallel_optimizer``)."""

    ranks: int = 1  # ranks of one stage
    shares: bool = False  # ranks with the same weights shard them and their optimizer state
    most: int | None = None  # maximum number of ranks that shard a weight; None for all with the same weights
    threshold: int = 0  # size in bytes below which a weight stays whole


def static_bytes(config: TrainingConfig, sharing: StaticSharing, stage: Stage) -> dict[str, int]:
    """Return the persistent bytes, by content, of one rank of a stage of MindFormers' static graph.

    Sources, MindFormers 1.9: ``parallel_core/training_graph`` (``tensor_parallel/layers.py`` for splitting,
    ``transformer/multi_latent_attention.py``, ``transformer/moe/ffn.py`` and ``router.py``, ``gpt_model.py``) for the tensors;
    ``core/optim/adamw.py`` and ``fused_adamw.py`` for two float32 moments per trained weight, without a copy. The sharding was
    compared with traces of MindSpore 2.9.
    """
    return shard_weights(stage_weights(config, stage), sharing)


def shard_weights(weights: Iterable[WeightBytes], sharing: StaticSharing) -> dict[str, int]:
    """Return the bytes, by content, that one rank keeps of weights on its TP and EP rank."""
    kept = state = 0
    for weight, count in Counter(weights).items():
        share = count * (weight.size // (_shard_count(weight, sharing) if weight.trained else 1))
        kept += share * weight.dtype.bytes
        state += share * _MOMENTS * DType.FLOAT32.bytes if weight.trained else 0
    return {"weights": kept, "optimizer_state": state}


def gathered_bytes(weights: Iterable[WeightBytes], sharing: StaticSharing) -> int:
    """Return the bytes of the whole weights that a rank gathers in the forward pass, and keeps for the backward pass."""
    counts = Counter(weight for weight in weights if weight.trained)
    return sum(
        weight.size * weight.dtype.bytes * count
        for weight, count in counts.items()
        if _shard_count(weight, sharing) > 1
    )


def _shard_count(weight: WeightBytes, sharing: StaticSharing) -> int:
    # Return over how many ranks a weight is sharded, 1 if it stays whole. It is split evenly along its first axis or not at all.
    # The threshold applies to the whole weight, on all ranks together.
    same = sharing.ranks // weight.ways
    parts = max(1, min(same, sharing.most or same))
    small = weight.size * weight.ways * weight.dtype.bytes < sharing.threshold
    return 1 if small or weight.whole or not sharing.shares or weight.rows % parts else parts


def weights_config(
    shape: ModelShape, dtype: DType, tensor: int = 1, expert: int = 1, norm: DType | None = None
) -> TrainingConfig:
    """Return the settings for which weights are counted, where nothing else of a training matters."""
    return TrainingConfig(
        shape,
        Parallelism(tensor, 1, 1, expert, None, sequence=False),
        MicroBatches(1, 1),
        Precision(dtype, mixed=False, gradients=dtype, norm=norm),
        Optimizer("AdamW", gradient_buffers=False, sharding=Sharding.NONE),
    )


def stage_weights(config: TrainingConfig, stage: Stage) -> Iterator[WeightBytes]:
    """Yield every weight of a stage as on one rank."""
    for chunk in stage.chunks:
        yield from _chunk_weights(config, chunk)


def _chunk_weights(config: TrainingConfig, chunk: Chunk) -> Iterator[WeightBytes]:
    shape, tensor = config.shape, config.parallelism.tensor
    dtype = config.precision.parameters
    predicts = any(layer.mtp for layer in chunk.layers)
    if chunk.embedding or predicts or (chunk.head and shape.tied_embeddings):
        embedding = config.precision.embedding or dtype
        yield WeightBytes(shape.vocab_size // tensor, shape.hidden_size, embedding, ways=tensor)
        if not shape.rotary:
            yield WeightBytes(shape.seq_length, shape.hidden_size, dtype)
    for layer in chunk.layers:
        yield from layer_weights(config, layer)
    if chunk.head:
        yield from _norm_weights(config, shape.hidden_size)
        if not shape.tied_embeddings:
            yield WeightBytes(shape.vocab_size // tensor, shape.hidden_size, dtype, ways=tensor)


def layer_weights(config: TrainingConfig, layer: StageLayer) -> Iterator[WeightBytes]:
    """Yield every weight of one layer as on one rank."""
    shape = config.shape
    for _ in range(4 if shape.sandwich_norm else 2):
        yield from _norm_weights(config, shape.hidden_size)
    yield from _latent_attention(config, shape.latent) if shape.latent else _attention_weights(config)
    if layer.experts and shape.experts:
        yield from _expert_weights(config, shape.experts)
    else:
        yield from _feed_forward(config, shape.ffn_hidden_size, config.parallelism.tensor)
    if layer.mtp:
        for _ in range(3):
            yield from _norm_weights(config, shape.hidden_size)
        ways = config.parallelism.tensor if config.parallelism.gathers_sequence else 1
        yield WeightBytes(shape.hidden_size, 2 * shape.hidden_size // ways, config.precision.parameters, ways=ways)


def _attention_weights(config: TrainingConfig) -> Iterator[WeightBytes]:
    shape, tensor = config.shape, config.parallelism.tensor
    dtype = config.precision.attention or config.precision.parameters
    heads, groups = shape.num_attention_heads // tensor, max(1, shape.num_query_groups // tensor)
    outputs = (heads + 2 * groups) * shape.head_size
    yield from _projection(outputs, shape.hidden_size, dtype, bias=shape.qkv_bias, ways=tensor)
    if shape.qk_norm:
        yield from _norm_weights(config, shape.head_size)
        yield from _norm_weights(config, shape.head_size)
    yield from _projection(shape.hidden_size, heads * shape.head_size, dtype, bias=shape.output_bias, ways=tensor)


def _latent_attention(config: TrainingConfig, latent: LatentAttention) -> Iterator[WeightBytes]:
    shape, tensor, dtype = config.shape, config.parallelism.tensor, config.precision.parameters
    heads, bias = shape.num_attention_heads, shape.qkv_bias
    queries = heads * latent.head_size
    narrow = latent.key_value_rank + latent.rotary_size
    if latent.joined:
        yield from _projection((latent.query_rank or queries) + narrow, shape.hidden_size, dtype, bias=bias)
    else:
        yield from _projection(narrow, shape.hidden_size, dtype, bias=bias)
        ways = 1 if latent.query_rank else tensor
        yield from _projection((latent.query_rank or queries) // ways, shape.hidden_size, dtype, bias=bias, ways=ways)
    if latent.query_rank:
        yield from _norm_weights(config, latent.query_rank) if shape.qk_norm else ()
        yield from _projection(queries // tensor, latent.query_rank, dtype, bias=bias, ways=tensor)
    yield from _norm_weights(config, latent.key_value_rank) if shape.qk_norm else ()
    up = heads * (latent.plain_size + latent.value_size) // tensor
    yield from _projection(up, latent.key_value_rank, dtype, bias=bias, ways=tensor)
    values = heads * latent.value_size // tensor
    yield from _projection(shape.hidden_size, values, dtype, bias=shape.output_bias, ways=tensor)


def _feed_forward(config: TrainingConfig, width: int, tensor: int) -> Iterator[WeightBytes]:
    shape, dtype = config.shape, config.precision.parameters
    wide = _first_width(shape, width) // tensor
    yield from _projection(wide, shape.hidden_size, dtype, bias=shape.mlp_bias, ways=tensor)
    yield from _projection(shape.hidden_size, width // tensor, dtype, bias=shape.mlp_bias, ways=tensor)


def _expert_weights(config: TrainingConfig, experts: Experts) -> Iterator[WeightBytes]:
    shape, parallel, dtype = config.shape, config.parallelism, config.precision.parameters
    local = experts.routed // parallel.expert
    width = experts.ffn_hidden_size // (parallel.tensor if experts.tensor_parallel else 1)
    wide, hidden = _first_width(shape, width), shape.hidden_size
    yield WeightBytes(experts.routed, hidden, experts.router)
    for _ in range(2 if experts.balanced else 0):
        yield WeightBytes(experts.routed, 1, DType.FLOAT32, trained=False)
    if experts.grouped:
        for inputs, outputs in ((hidden, wide), (width, hidden)):
            rows, columns = (local * inputs, outputs) if experts.flat else (local, inputs * outputs)
            yield WeightBytes(rows, columns, dtype, experts=True, ways=parallel.expert)
    else:
        for _ in range(local):
            for rows, columns in ((wide, hidden), (hidden, width)):
                yield WeightBytes(rows, columns, dtype, experts=True)
                if shape.mlp_bias:
                    yield WeightBytes(rows, 1, dtype, experts=True)
    if experts.shared_ffn_hidden_size:
        tensor = parallel.tensor if experts.shared_split else 1
        yield from _feed_forward(config, experts.shared_ffn_hidden_size, tensor)
        if experts.shared_gate:
            yield WeightBytes(1, hidden, experts.router)


def _first_width(shape: ModelShape, width: int) -> int:
    return 2 * width if shape.gated else width


def _projection(outputs: int, inputs: int, dtype: DType, *, bias: bool, ways: int = 1) -> Iterator[WeightBytes]:
    # A column-parallel or row-parallel projection: its bias has as many elements as the rank has outputs.
    yield WeightBytes(outputs, inputs, dtype, ways=ways)
    if bias:
        yield WeightBytes(outputs, 1, dtype, ways=ways)


def _norm_weights(config: TrainingConfig, size: int) -> Iterator[WeightBytes]:
    dtype = config.precision.norm or config.precision.parameters
    yield WeightBytes(size, 1, dtype)
    if config.shape.normalization.endswith("LayerNorm"):
        yield WeightBytes(size, 1, dtype)
