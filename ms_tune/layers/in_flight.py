"""How many micro-batches a pipeline stage holds between their forward and their backward pass, by its schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


MOST_PASSES = 100_000  # of a training step that are followed one by one; no real job has as many


def most_held(passes: Iterable[tuple[bool, int]], chunks: int) -> tuple[int, ...]:
    """Micro-batches held by each chunk when the stage holds most, counted over its chunks; the first such moment.

    Args:
        passes: The passes of one training step, in order: whether it is a forward pass, and the chunk.
        chunks: Chunks of the stage.
    """
    held = [0] * chunks
    most = tuple(held)
    for forward, chunk in passes:
        held[chunk] += 1 if forward else -1
        if sum(held) > sum(most):
            most = tuple(held)
    return most


def held_by_1f1b(stage: int, stages: int, micro_batches: int) -> tuple[int, ...]:
    """The same for one forward and one backward pass in turn, without chunks."""
    return (min(stages - stage, micro_batches),)


def held_by_static_graph(stage: int, stages: int, chunks: int, micro_batches: int) -> tuple[int, ...] | None:
    """The same for MindSpore's interleaved schedule of graphs that are run kernel by kernel (``jit_level`` O0 and O1).

    ``InterleavedScheduler::MemoryOptimizedReorder`` in MindSpore's
    ``frontend/parallel/pipeline_transformer/pipeline_scheduler.cc``: micro-batches go through the chunks in rounds of as many
    as there are stages; the first round takes what is left over as well. The backward passes begin when the last chunk has
    the first micro-batch, and one more for each stage behind this one.

    Args:
        stage: The stage, from 0.
        stages: Pipeline stages.
        chunks: Chunks of each stage.
        micro_batches: Micro-batches of a step.

    Returns:
        None where MindSpore refuses the job, which has fewer micro-batches than stages, and beyond :data:`MOST_PASSES`.
    """
    if micro_batches < stages or chunks * micro_batches > MOST_PASSES:
        return None
    left_over = micro_batches % stages
    rounds = [stages + left_over] + [stages] * (micro_batches // stages - 1)
    forward = [chunk for size in rounds for chunk in range(chunks) for _ in range(size)]
    backward = [chunk for size in rounds for chunk in reversed(range(chunks)) for _ in range(size)]
    warm_up = (stages + left_over) * (chunks - 1) + stages - stage - 1
    passes = [(True, chunk) for chunk in forward[:warm_up]]
    for chunk, back in zip(forward[warm_up:], backward, strict=False):
        passes += [(True, chunk), (False, back)]
    return most_held(passes, chunks)
