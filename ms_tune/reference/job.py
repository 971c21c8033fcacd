"""Define the jobs of the reference transformer as data for a JSON file: its ranks, and its memory by theory."""

from __future__ import annotations

from ms_tune.dialects.job_parts import DType, Sharding, TrainingConfig
from ms_tune.dialects.stage import Stage
from ms_tune.estimate.persistent import ShardCounts, persistent_bytes, stage_weights
from ms_tune.records import Record


class RankGroups(Record):
    """The groups of one rank, in order, including the rank itself."""

    rank: int
    tensor: tuple[int, ...]  # ranks with the other parts of the same matrices
    context: tuple[int, ...]  # ranks with the other parts of the same sequences
    ulysses: tuple[int, ...]  # the context ranks that exchange heads with each other
    ring: tuple[int, ...]  # the context ranks that pass keys and values around
    # Ranks with the same part of the model and other tokens, including context parallelism: gradients are summed over them.
    data: tuple[int, ...]
    shards: tuple[int, ...]  # the data ranks among which the state is sharded
    copies: tuple[int, ...]  # the data ranks with the same shard
    expert: tuple[int, ...]  # ranks with the other experts of the same layers
    expert_data: tuple[int, ...]  # ranks with the same experts and other tokens
    expert_shards: tuple[int, ...]  # the expert-data ranks among which the state is sharded
    expert_copies: tuple[int, ...]  # the expert-data ranks with the same shard
    previous: int  # the same position in the previous stage, or in the last one
    following: int  # the same position in the next stage, or in the first one


def rank_groups(config: TrainingConfig, data_parallel: int, rank: int) -> RankGroups:
    """Return the groups of one rank: which ranks communicate with it.

    Ranks are numbered tensor first, then context, data and pipeline, as in Megatron-LM, MindSpeed-Core-MS (order
    ``tp-cp-ep-dp-pp`` in ``core/parallel_state.py``, r0.1.0) and MindFormers. Ranks with different experts are neighbours among
    those with different tokens.
    """
    parallel, experts = config.parallelism, config.shape.experts
    tensor, context = parallel.tensor, parallel.context
    in_stage = tensor * context * data_parallel
    first = rank - rank % in_stage
    place = rank - first
    column = tuple(range(first + place % tensor, first + in_stage, tensor))  # the same tensor rank, all other tokens
    mine = column.index(rank)
    contexts = column[mine - mine % context :][:context]
    ulysses = ulysses_degree(config)
    where = contexts.index(rank)
    ways = parallel.expert if experts else 1
    # Experts that are not split over the tensor-parallel ranks are distributed over these ranks as well. Without expert
    # parallelism each of them has all experts (`_apply_layers_tp`, pynative/base_models/gpt/parallelize.py, 2.1).
    everywhere = experts and not experts.tensor_parallel and ways > 1
    spread = tuple(range(first, first + in_stage)) if everywhere else column
    index = spread.index(rank)
    expert_data = spread[index % ways :: ways]
    parts, members = config.optimizer.shards, len(expert_data)
    shards = _block_of(column, mine, parts * context if parts else len(column))
    expert_parts = max(1, members * parts // data_parallel) if parts else members
    expert_shards = _block_of(expert_data, expert_data.index(rank), expert_parts)
    return RankGroups(
        rank=rank,
        tensor=tuple(range(rank - place % tensor, rank - place % tensor + tensor)),
        context=contexts,
        ulysses=contexts[where - where % ulysses :][:ulysses],
        ring=contexts[where % ulysses :: ulysses],
        data=column,
        shards=shards,
        copies=column[shards.index(rank) :: len(shards)],
        expert=_block_of(spread, index, ways),
        expert_data=expert_data,
        expert_shards=expert_shards,
        expert_copies=expert_data[expert_shards.index(rank) :: len(expert_shards)],
        previous=(rank - in_stage) % (in_stage * parallel.pipeline),
        following=(rank + in_stage) % (in_stage * parallel.pipeline),
    )


def ulysses_degree(config: TrainingConfig) -> int:
    """Return the number of ranks that exchange heads."""
    parallel = config.parallelism
    return {"ulysses": parallel.context, "ring": 1, "hybrid": parallel.ulysses}[parallel.context_method.value]


def _block_of(group: tuple[int, ...], index: int, size: int) -> tuple[int, ...]:
    # Return the run of `size` neighbours that a member belongs to.
    return group[index - index % size :][:size]


_MOMENTS = 2


class ReferenceJob(Record):
    """A job that trains one stage of ms-tune's reference transformer."""

    config: TrainingConfig
    stage: Stage  # the layers of the stage, already reduced to the requested number
    data_parallel: int  # data-parallel ranks of the simulated job, without context-parallel ones
    steps: int  # training steps
    kind: str = "reference"
    module: str = "ms_tune.reference.transformer.training"


def theory_of(job: ReferenceJob, rank: int) -> dict[str, int]:
    """Return a rank's theoretical bytes by category (names of :class:`ms_tune.enums.MemoryCategory`); empty if unknown."""
    groups, optimizer = rank_groups(job.config, job.data_parallel, rank), job.config.optimizer
    parts = optimizer.sharding is Sharding.PARAMETERS
    dense, experts = (groups.shards, groups.expert_shards) if parts else (groups.data, groups.expert_data)
    ways = ShardCounts(len(dense), len(experts))
    found = persistent_bytes(job.config, job.stage, ways)
    state = found.optimizer + (_legacy_state(job, ways) if job.config.shape.legacy else 0)
    sizes = {"weights": found.weights, "optimizer_state": state}
    return {**sizes, "gradients": found.gradients} if optimizer.gradient_buffers else sizes


def _legacy_state(job: ReferenceJob, ways: ShardCounts) -> int:
    # Return the additional bytes of MindSpeed-Core-MS r0.1.0's optimizers (core/optimizer/optimizer.py, distrib_optimizer.py).
    # Weights that are already float32 have no copy. Without the distributed optimizer, the moments that AdamW created in the
    # number format of a narrow weight remain in addition to the float32 ones.
    config, more = job.config, 0
    for weight in stage_weights(config, job.stage):
        parts = ways.expert_shards if weight.experts else ways.shards
        if weight.dtype is DType.FLOAT32 and config.optimizer.distributed:
            more -= -(-weight.size // parts) * DType.FLOAT32.bytes
        elif weight.dtype is DType.FLOAT32 and config.precision.mixed:
            more -= weight.size * DType.FLOAT32.bytes
        elif config.precision.mixed and not config.optimizer.distributed:
            more += _MOMENTS * weight.size * weight.dtype.bytes
    return more
