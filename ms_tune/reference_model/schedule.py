"""The order of forward and backward passes of one pipeline stage.

1F1B and its interleaved form, as in Megatron-LM ``core/pipeline_parallel/schedules.py`` and MindSpeed-Core-MS r0.1.0, the
file of the same name: a number of forward passes to warm up, then one forward and one backward pass in turn, then the
backward passes that are left. What lies between a forward pass and its backward pass is in memory.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of one micro-batch through one chunk of the stage."""

    forward: bool
    chunk: int
    micro_batch: int


def passes(stage: int, stages: int, chunks: int, micro_batches: int) -> list[Pass]:
    """The passes of one training step, in order.

    Args:
        stage: The stage, from 0.
        stages: Pipeline stages.
        chunks: Chunks of each stage; with more than one, ``micro_batches`` is a multiple of ``stages``.
        micro_batches: Micro-batches of a step.
    """
    total = chunks * micro_batches
    warm_up = warm_up_passes(stage, stages, chunks, micro_batches)
    forward = [_pass(number, stages, chunks, forward=True) for number in range(total)]
    backward = [_pass(number, stages, chunks, forward=False) for number in range(total)]
    order = forward[:warm_up]
    for number in range(total - warm_up):
        order += [forward[warm_up + number], backward[number]]
    return order + backward[total - warm_up :]


def warm_up_passes(stage: int, stages: int, chunks: int, micro_batches: int) -> int:
    """Forward passes before the first backward pass is due, the one right before it not counted."""
    total = chunks * micro_batches
    if chunks == 1:
        return min(stages - stage - 1, total)
    if micro_batches == stages:
        return total
    return min(2 * (stages - stage - 1) + (chunks - 1) * stages, total)


def enough_micro_batches(stages: int, chunks: int) -> int:
    """So many micro-batches that memory has been everything it will be; every further one repeats what was.

    Without a pipeline the second one meets the gradients of the first. In a pipeline the steady part must be reached.
    """
    if stages == 1:
        return 2
    return stages + 1 if chunks == 1 else 2 * stages


def _pass(number: int, stages: int, chunks: int, *, forward: bool) -> Pass:
    """Micro-batches go through a stage in groups of as many as there are stages: the group takes one chunk after another."""
    if chunks == 1:
        return Pass(forward, 0, number)
    group, inside = divmod(number, stages * chunks)
    chunk, micro_batch = divmod(inside, stages)
    return Pass(forward, chunk if forward else chunks - 1 - chunk, group * stages + micro_batch)


def dynamic_passes(stage: int, stages: int, chunks: int, micro_batches: int) -> list[Pass]:
    """The passes of one training step of a stage in MindFormers' dynamic graph, whose pipelines are HyperParallel's.

    ``Schedule1F1B`` and ``ScheduleInterleaved1F1B`` (``core/pipeline_parallel/scheduler.py`` at 019ed966). With one chunk the
    order is that of :func:`passes`; with several, micro-batches that do not fill a round of as many as there are stages are
    spread over the rounds, and there are no more passes to warm up when there is one round only.

    Args:
        stage: The stage, from 0.
        stages: Pipeline stages.
        chunks: Chunks of each stage.
        micro_batches: Micro-batches of a step.
    """
    if chunks == 1:
        return passes(stage, stages, chunks, micro_batches)
    rounds = _rounds(stages, micro_batches)
    forward = _in_rounds(rounds, range(chunks), forward=True)
    backward = _in_rounds(rounds, range(chunks - 1, -1, -1), forward=False)
    warm_up = min((chunks - 1) * rounds[0] + 2 * (stages - 1 - stage), len(forward))
    order = forward[:warm_up]
    for following, back in zip(forward[warm_up:], backward, strict=False):
        order += [following, back]
    return order + backward[len(forward) - warm_up :]


def _rounds(stages: int, micro_batches: int) -> list[int]:
    """How many micro-batches go through one chunk before the next chunk has its turn, round by round."""
    count = max(1, micro_batches // stages)
    size, larger = divmod(micro_batches, count)
    return [size + 1] * larger + [size] * (count - larger)


def _in_rounds(rounds: list[int], chunks: range, *, forward: bool) -> list[Pass]:
    order, first = [], 0
    for size in rounds:
        order += [Pass(forward, chunk, first + number) for chunk in chunks for number in range(size)]
        first += size
    return order
