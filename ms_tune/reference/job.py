"""What the reference transformer is asked to train, as data that goes through a JSON file: its ranks, and what theory says of them."""

from __future__ import annotations

from ms_tune.dialects.job_parts import DType, Sharding, TrainingConfig
from ms_tune.dialects.stage import Stage  # noqa: TC001 - a job's types are asked for when it is read
from ms_tune.estimate.persistent import ShardCounts, persistent_bytes, stage_weights
from ms_tune.records import Record


class RankGroups(Record):
    """The groups that one rank is in, itself included, in order."""

    rank: int
    tensor: tuple[int, ...]  # ranks that hold other parts of the same matrices
    context: tuple[int, ...]  # ranks that see other parts of the same sequences
    ulysses: tuple[int, ...]  # those of them among which heads are exchanged
    ring: tuple[int, ...]  # those of them round which keys and values go
    # Ranks that hold the same part of the model and see other tokens, context included: gradients are summed over them.
    data: tuple[int, ...]
    shards: tuple[int, ...]  # those of them that share out what is sharded
    copies: tuple[int, ...]  # those of them that have the same part of it
    expert: tuple[int, ...]  # ranks that hold other experts of the same layers
    expert_data: tuple[int, ...]  # ranks that hold the same experts and see other tokens
    expert_shards: tuple[int, ...]  # those of them that share out what is sharded
    expert_copies: tuple[int, ...]  # those of them that have the same part of it
    previous: int  # the same place in the stage before, or in the last one
    following: int  # the same place in the stage behind, or in the first one


def rank_groups(config: TrainingConfig, data_parallel: int, rank: int) -> RankGroups:
    """The groups of one rank: which ranks work together.

    Ranks are numbered tensor first, then context, data and pipeline, as Megatron-LM, MindSpeed-Core-MS (order
    ``tp-cp-ep-dp-pp`` in ``core/parallel_state.py``, r0.1.0) and MindFormers number them. Ranks that hold different experts
    are neighbours among those that see different tokens.
    """
    parallel, experts = config.parallelism, config.shape.experts
    tensor, context = parallel.tensor, parallel.context
    in_stage = tensor * context * data_parallel
    first = rank - rank % in_stage
    place = rank - first
    column = tuple(range(first + place % tensor, first + in_stage, tensor))  # one tensor rank, all other tokens
    mine = column.index(rank)
    contexts = column[mine - mine % context :][:context]
    ulysses = ulysses_ways(config)
    where = contexts.index(rank)
    ways = parallel.expert if experts else 1
    # Experts that are not split over the tensor-parallel ranks are spread over these ranks as well. Without expert
    # parallelism every one of these has all experts (`_apply_layers_tp`, pynative/base_models/gpt/parallelize.py, 2.1).
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


def ulysses_ways(config: TrainingConfig) -> int:
    """Ranks among which heads are exchanged."""
    parallel = config.parallelism
    return {"ulysses": parallel.context, "ring": 1, "hybrid": parallel.ulysses}[parallel.context_method.value]


def _block_of(group: tuple[int, ...], index: int, size: int) -> tuple[int, ...]:
    # The run of neighbours that a member belongs to when the group is cut into runs of a size.
    return group[index - index % size :][:size]


_MOMENTS = 2


class ReferenceJob(Record):
    """Train one stage of ms-tune's reference transformer."""

    config: TrainingConfig
    stage: Stage  # the layers of the stage, already shrunk to the wanted number
    data_parallel: int  # Data-parallel ranks of the simulated job, context-parallel ones not counted
    steps: int  # training steps
    kind: str = "reference"
    module: str = "ms_tune.reference.transformer.training"


def theory_of(job: ReferenceJob, rank: int) -> dict[str, int]:
    """Bytes by content (the names of :class:`ms_tune.enums.MemoryCategory`) that theory can tell for a rank."""
    groups, optimizer = rank_groups(job.config, job.data_parallel, rank), job.config.optimizer
    parts = optimizer.sharding is Sharding.PARAMETERS
    dense, experts = (groups.shards, groups.expert_shards) if parts else (groups.data, groups.expert_data)
    ways = ShardCounts(len(dense), len(experts))
    found = persistent_bytes(job.config, job.stage, ways)
    state = found.optimizer + (_legacy_state(job, ways) if job.config.shape.legacy else 0)
    told = {"weights": found.weights, "optimizer_state": state}
    return {**told, "gradients": found.gradients} if optimizer.gradient_buffers else told


def _legacy_state(job: ReferenceJob, ways: ShardCounts) -> int:
    # How many bytes more MindSpeed-Core-MS r0.1.0's optimizers hold (core/optimizer/optimizer.py, distrib_optimizer.py).
    # Weights that are float32 already have no copy. Without the distributed optimizer, the moments that AdamW made in the
    # number format of a narrow weight stay beside the float32 ones.
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
