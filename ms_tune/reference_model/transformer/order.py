"""The order of passes in the pipelines of MindFormers' dynamic graph, which are HyperParallel's.

``Schedule1F1B`` and ``ScheduleInterleaved1F1B`` (``core/pipeline_parallel/scheduler.py`` at 019ed966). With one chunk it is
the order of Megatron-LM (:mod:`ms_tune.reference_model.schedule`); with several, micro-batches that do not fill a round of as many as
there are stages are spread over the rounds, and there are no more passes to warm up when there is one round only.
"""

from __future__ import annotations

from ms_tune.reference_model.schedule import Pass, passes


def dynamic_passes(stage: int, stages: int, chunks: int, micro_batches: int) -> list[Pass]:
    """The passes of one training step of a stage, in order.

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
