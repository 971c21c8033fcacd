"""Compare groups of ranks with the same groups in an array of all ranks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.dialects.job_parts import ContextMethod, Experts, Parallelism, TrainingConfig
from ms_tune.reference.job import rank_groups
from tests.dryrun.configs import SHAPE, TRAINING

SIZES = st.sampled_from([1, 2, 4])


@st.composite
def jobs(draw: st.DrawFn) -> tuple[TrainingConfig, int]:
    tensor, context, pipeline, data, expert = (draw(SIZES) for _ in range(5))
    method = draw(st.sampled_from(ContextMethod))
    split = draw(st.booleans())
    others = context * data * (1 if split else tensor)
    expert = expert if others % expert == 0 else 1
    parallel = Parallelism(
        tensor, pipeline, context, expert, None, sequence=True, context_method=method, ulysses=min(2, context)
    )
    shards = draw(st.sampled_from([None, 1, data]))
    return (
        TRAINING._replace(
            shape=SHAPE._replace(experts=Experts(8, 2, 32, tensor_parallel=split)),
            parallelism=parallel,
            optimizer=TRAINING.optimizer._replace(shards=shards),
        ),
        data,
    )


@given(jobs(), st.data())
def test_the_groups_are_those_of_an_array_of_all_ranks(job: tuple[TrainingConfig, int], data: st.DataObject) -> None:
    config, ways = job
    parallel, experts = config.parallelism, config.shape.experts
    assert experts is not None
    everything = np.arange(parallel.pipeline * ways * parallel.context * parallel.tensor)
    ranks = everything.reshape(parallel.pipeline, ways, parallel.context, parallel.tensor)
    rank = data.draw(st.sampled_from(everything.tolist()))
    p, d, c, t = (int(axis[0]) for axis in np.where(ranks == rank))
    groups = rank_groups(config, ways, rank)
    assert groups.tensor == tuple(ranks[p, d, c])
    assert groups.context == tuple(ranks[p, d, :, t])
    assert groups.data == tuple(ranks[p, :, :, t].reshape(-1))
    # Without expert parallelism every tensor-parallel rank has all experts, like all norms.
    column_only = experts.tensor_parallel or parallel.expert == 1
    tokens = ranks[p, :, :, t].reshape(-1) if column_only else ranks[p].reshape(-1)
    grid = tokens.reshape(-1, parallel.expert)
    row, column = (int(axis[0]) for axis in np.where(grid == rank))
    assert groups.expert == tuple(grid[row])
    assert groups.expert_data == tuple(grid[:, column])
    assert groups.previous == int(np.roll(ranks, 1, axis=0)[p, d, c, t])
    assert groups.following == int(np.roll(ranks, -1, axis=0)[p, d, c, t])


@given(jobs(), st.data())
def test_a_group_is_the_same_for_all_its_members(job: tuple[TrainingConfig, int], data: st.DataObject) -> None:
    config, ways = job
    world = config.parallelism.model_size * ways
    rank = data.draw(st.integers(0, world - 1))
    groups = rank_groups(config, ways, rank)
    for name in ("ulysses", "ring", "shards", "expert_shards"):
        members = getattr(groups, name)
        assert rank in members
        assert all(getattr(rank_groups(config, ways, other), name) == members for other in members)
    assert len(groups.ulysses) * len(groups.ring) == config.parallelism.context
    assert set(groups.shards) <= set(groups.data)
    assert set(groups.expert_shards) <= set(groups.expert_data)
    if config.optimizer.shards is None:
        assert (groups.shards, groups.expert_shards) == (groups.data, groups.expert_data)
