"""Test that one rank of each pipeline stage runs, by Megatron's order of ranks."""

from __future__ import annotations

import itertools
import random

import pytest

from ms_tune.dryrun.launchers.arguments import ProgramSplit, SimulatedRank, choose_ranks, first_rank, parallel_of
from ms_tune.errors import UsageError


def stages_of(world: int, parallel: ProgramSplit) -> list[list[int]]:
    """Return the ranks of each stage, by counting through the dimensions in order, the first one fastest."""
    data = world // (parallel.tensor * parallel.pipeline * parallel.context)
    sizes = {"t": parallel.tensor, "c": parallel.context, "d": data, "p": parallel.pipeline}
    order = "tcpd" if parallel.pipeline_before_data else "tcdp"
    found: list[list[int]] = [[] for _ in range(parallel.pipeline)]
    for rank, place in enumerate(itertools.product(*(range(sizes[name]) for name in reversed(order)))):
        found[dict(zip(reversed(order), place, strict=True))["p"]].append(rank)
    return found


def test_the_first_rank_of_a_stage() -> None:
    draw = random.Random(14)  # noqa: S311 - no secret
    for _ in range(300):
        sizes = [draw.choice((1, 2, 3, 4, 8)) for _ in range(4)]
        parallel = ProgramSplit(sizes[0], sizes[1], sizes[2], pipeline_before_data=draw.random() < 0.5)
        world = sizes[0] * sizes[1] * sizes[2] * sizes[3]
        ranks = stages_of(world, parallel)
        assert [first_rank(stage, world, parallel) for stage in range(parallel.pipeline)] == [one[0] for one in ranks]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("--num-layers 4", None),
        ("--pipeline-model-parallel-size 4", ProgramSplit(pipeline=4)),
        ("--pipeline-model-parallel-size=4 --tensor-model-parallel-size 2", ProgramSplit(2, 4)),
        ("--pipeline-model-parallel-size 4 --pipeline-model-parallel-size 2", ProgramSplit(pipeline=2)),
        ("--pipeline-model-parallel-size four", None),
        ("--pipeline-model-parallel-size", None),
        ("--pipeline-model-parallel-size 0", None),
        (
            "--pipeline-model-parallel-size 2 --context-parallel-size 4 --expert-model-parallel-size 8 --use-tp-pp-dp-mapping",
            ProgramSplit(1, 2, 4, 8, pipeline_before_data=True),
        ),
    ],
)
def test_the_split_that_the_programs_arguments_name(line: str, found: ProgramSplit | None) -> None:
    assert parallel_of(line.split()) == found


def test_one_rank_of_each_stage() -> None:
    parallel = ProgramSplit(tensor=2, pipeline=2)
    assert choose_ranks(8, parallel) == (SimulatedRank(0, 0), SimulatedRank(4, 1))
    assert choose_ranks(8, parallel, stages=(1, 1)) == (SimulatedRank(4, 1),)
    assert choose_ranks(8, parallel, ranks=(3, 5, 3)) == (SimulatedRank(3, None), SimulatedRank(5, None))
    assert choose_ranks(8, None) == (SimulatedRank(0, 0),)
    assert choose_ranks(1, parallel) == (SimulatedRank(0, 0),)  # the program itself will refuse it


@pytest.mark.parametrize(
    ("stages", "ranks", "says"),
    [((2,), (), "stage 2 does not exist: the job has 2 stages"), (None, (8,), "rank 8 does not exist")],
)
def test_what_there_is_not_is_refused(stages: tuple[int, ...] | None, ranks: tuple[int, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        choose_ranks(8, ProgramSplit(pipeline=2), stages, ranks)
