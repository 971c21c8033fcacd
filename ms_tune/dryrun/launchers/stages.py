"""Which ranks of a launched job are simulated: one of each pipeline stage, by the order in which Megatron numbers them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.dryrun.launchers.words import OptionWords
from ms_tune.errors import UsageError
from ms_tune.facts.query import load
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Parallel:
    """How a program's own arguments split its job; 1 for what they leave out."""

    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1  # over how many ranks the experts are; these are ranks of the other dimensions
    # Ranks are numbered tensor, context, pipeline, data, and not with the pipeline last.
    pipeline_before_data: bool = False


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank that is simulated, and its stage; None where stages are not what it was chosen by."""

    rank: int
    stage: int | None


def parallel_of(arguments: Sequence[str]) -> Parallel | None:
    """The split that Megatron's arguments name, the last one of each winning; None if they name no pipeline."""
    names, words = load("launchers")["parallel"], OptionWords(arguments)
    pipeline = words.number(names["pipeline"])
    if pipeline is None:
        return None
    return Parallel(
        tensor=words.number(names["tensor"]) or 1,
        pipeline=pipeline,
        context=words.number(names["context"]) or 1,
        expert=words.number(names["expert"]) or 1,
        pipeline_before_data=names["pipeline_before_data"] in arguments,
    )


def first_rank(stage: int, world: int, parallel: Parallel) -> int:
    """The lowest rank of a stage.

    Megatron's order is tensor, context, expert, data, pipeline, so that a stage's ranks are neighbours; with
    ``--use-tp-pp-dp-mapping`` the data dimension is the last one (Megatron-LM core_v0.12.1,
    ``megatron/core/parallel_state.py``, ``initialize_model_parallel``).
    """
    if parallel.pipeline_before_data:
        return stage * parallel.tensor * parallel.context
    return stage * (world // parallel.pipeline)


def chosen(
    world: int, parallel: Parallel | None, stages: Sequence[int] | None = None, ranks: Sequence[int] = ()
) -> tuple[Rank, ...]:
    """The ranks to simulate, each once.

    Args:
        world: Ranks of the job.
        parallel: The program's split, if its arguments tell.
        stages: Only these stages; None for all.
        ranks: These ranks and no others, if any.

    Raises:
        UsageError: There is no such stage or rank.
    """
    if ranks:
        beyond = next((rank for rank in ranks if rank >= world), None)
        if beyond is not None:
            raise UsageError(msg("launch.beyond.rank", number=beyond, count=world))
        return tuple(Rank(rank, None) for rank in dict.fromkeys(ranks))
    if parallel is None or parallel.pipeline > world:
        parallel = Parallel()
    wanted = range(parallel.pipeline) if stages is None else dict.fromkeys(stages)
    beyond = next((stage for stage in wanted if stage >= parallel.pipeline), None)
    if beyond is not None:
        raise UsageError(msg("launch.beyond.stage", number=beyond, count=parallel.pipeline))
    return tuple(Rank(first_rank(stage, world, parallel), stage) for stage in wanted)
