"""Compute the order of a pipeline stage's forward and backward passes by schedule, and its micro-batches in flight.

A stage runs a number of warm-up forward passes, then forward and backward passes in turn, then the remaining backward passes.
Activations stay in memory from a forward pass to its backward pass. docs/fit.md has a section for each schedule.

Sources of the orders:

- Megatron-LM ``core/pipeline_parallel/schedules.py``, core_v0.6.0 to core_v0.12.1, and MindSpeed-Core-MS r0.1.0, the file
  of the same name.
- MindSpore ``frontend/parallel/pipeline_transformer/pipeline_scheduler.cc`` (``InterleavedScheduler``: ``Reorder`` and
  ``MemoryOptimizedReorder``) and ``gpipe_interleave_scheduler.cc``. The order in MindSpore 2.9.0 was seen in simulation, kernel
  by kernel (2 and 4 stages, 2 chunks, 2 to 10 micro-batches, ``jit_level`` O0): ``interleaved``, also with as many
  micro-batches as stages, and ``interleaved-less-memory`` with ``ENABLE_LESS_MEM_VPP=1`` in the environment.
- HyperParallel ``core/pipeline_parallel/scheduler.py`` at 019ed966, for the dynamic graph of MindFormers 2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

from ms_tune.records import Record
from ms_tune.text import Message, msg

PassKey = tuple[bool, int, int]  # forward or backward, cell (chunk x stages + stage), micro-batch

MOST_PASSES = 100_000  # of a stage in one training step, followed one by one; no real job has as many


class Schedule(Enum):
    """A pipeline schedule, by its name in tables and on the command line."""

    ONE_FORWARD_ONE_BACKWARD = "1f1b"
    INTERLEAVED = "interleaved"
    INTERLEAVED_FULL_WARM_UP = "interleaved-full-warm-up"
    INTERLEAVED_SPREAD = "interleaved-spread"
    INTERLEAVED_LESS_MEMORY = "interleaved-less-memory"
    GPIPE = "gpipe"


class PipelinePass(Record):
    """One pass of one micro-batch through one chunk of the stage."""

    forward: bool
    chunk: int
    micro_batch: int


def why_refused(schedule: Schedule, stages: int, chunks: int, micro_batches: int) -> Message | None:
    """Return why no framework supports these sizes with this schedule; None if one does."""
    if schedule is Schedule.ONE_FORWARD_ONE_BACKWARD and chunks > 1:
        return msg("planning.schedule.chunks", schedule=schedule.value, chunks=chunks)
    # With one chunk, these are 1F1B. HyperParallel runs one round if there are fewer micro-batches than stages.
    if chunks > 1 and schedule not in (Schedule.GPIPE, Schedule.INTERLEAVED_SPREAD) and micro_batches < stages:
        return msg("planning.schedule.few", schedule=schedule.value, micro_batches=micro_batches, stages=stages)
    if chunks > 1 and schedule is Schedule.INTERLEAVED_FULL_WARM_UP and micro_batches % stages:
        return msg("planning.schedule.multiple", schedule=schedule.value, micro_batches=micro_batches, stages=stages)
    return None


def stage_passes(schedule: Schedule, stage: int, stages: int, chunks: int, micro_batches: int) -> list[PipelinePass]:
    """Return the passes of a stage in one training step, in order."""
    rounds = [micro_batches] if schedule is Schedule.GPIPE else _chunk_rounds(schedule, stages, chunks, micro_batches)
    forward = _in_rounds(rounds, range(chunks), forward=True)
    backward = _in_rounds(rounds, range(chunks - 1, -1, -1), forward=False)
    warm_up = warm_up_passes(schedule, stage, stages, chunks, micro_batches)
    order = forward[:warm_up]
    for following, back in zip(forward[warm_up:], backward, strict=False):
        order += [following, back]
    return order + backward[len(forward) - warm_up :]


def warm_up_passes(schedule: Schedule, stage: int, stages: int, chunks: int, micro_batches: int) -> int:
    """Return the number of warm-up passes: forward passes before the first pair of a forward and a backward pass."""
    total, later = chunks * micro_batches, stages - stage - 1
    if schedule is Schedule.GPIPE:
        return total
    if chunks == 1:
        return min(later, total)
    if schedule is Schedule.INTERLEAVED_FULL_WARM_UP and micro_batches == stages:
        return total
    first = _chunk_rounds(schedule, stages, chunks, micro_batches)[0]
    steps = 1 if schedule is Schedule.INTERLEAVED_LESS_MEMORY else 2
    return min(first * (chunks - 1) + steps * later, total)


def _chunk_rounds(schedule: Schedule, stages: int, chunks: int, micro_batches: int) -> list[int]:
    # Return, for each round, how many micro-batches go through a chunk before the next chunk: as many as there are stages. The
    # remainder is added to the first round in MindSpore, spread in HyperParallel, and refused by Megatron-LM.
    if chunks == 1:
        return [micro_batches]
    count = max(1, micro_batches // stages)
    if schedule is Schedule.INTERLEAVED_SPREAD:
        size, larger = divmod(micro_batches, count)
        return [size + 1] * larger + [size] * (count - larger)
    return [micro_batches - stages * (count - 1)] + [stages] * (count - 1)


def _in_rounds(rounds: Sequence[int], chunks: range, *, forward: bool) -> list[PipelinePass]:
    order, first = [], 0
    for size in rounds:
        order += [PipelinePass(forward, chunk, first + number) for chunk in chunks for number in range(size)]
        first += size
    return order


def _source_pass(key: PassKey, cells: int) -> PassKey | None:
    """Return the pass of the same micro-batch that produces a pass's input; None for the first pass."""
    forward, cell, micro_batch = key
    if forward:
        return (True, cell - 1, micro_batch) if cell else None
    return (False, cell + 1, micro_batch) if cell < cells - 1 else (True, cell, micro_batch)


def passes_in_turn(
    orders: Sequence[Sequence[PipelinePass]], chunks: int
) -> Iterator[tuple[int, PassKey, PassKey | None]]:
    """Yield the passes of all stages in a valid order, each as its stage, the pass, and the pass that produces its input.

    Passes that would deadlock are omitted.
    """
    stages, next_of = len(orders), [0] * len(orders)
    done: set[PassKey] = set()
    waiting: dict[PassKey, int] = {}
    todo = deque(range(stages))
    while todo:
        stage = todo.popleft()
        for one in orders[stage][next_of[stage] :]:
            key = (one.forward, one.chunk * stages + stage, one.micro_batch)
            giver = _source_pass(key, chunks * stages)
            if giver is not None and giver not in done:
                waiting[giver] = stage
                break
            yield stage, key, giver
            done.add(key)
            next_of[stage] += 1
            if key in waiting:
                todo.append(waiting.pop(key))


def peak_in_flight(order: Iterable[PipelinePass], chunks: int) -> tuple[int, ...]:
    """Return the micro-batches in flight per chunk at the first moment when their sum is largest."""
    in_flight = [0] * chunks
    most = tuple(in_flight)
    for one in order:
        in_flight[one.chunk] += 1 if one.forward else -1
        if sum(in_flight) > sum(most):
            most = tuple(in_flight)
    return most


def in_flight_per_chunk(
    schedule: Schedule, stage: int, stages: int, chunks: int, micro_batches: int
) -> tuple[int, ...] | None:
    """Return the micro-batches in flight per chunk when the stage has the most.

    None if no framework supports these sizes, or for more than :data:`MOST_PASSES` interleaved passes.
    """
    if why_refused(schedule, stages, chunks, micro_batches) is not None:
        return None
    if chunks == 1 and schedule is not Schedule.GPIPE:
        return (min(stages - stage, micro_batches),)
    if schedule is Schedule.GPIPE:
        return (micro_batches,) * chunks if chunks <= MOST_PASSES else None
    if chunks * micro_batches > MOST_PASSES:
        return None
    return peak_in_flight(stage_passes(schedule, stage, stages, chunks, micro_batches), chunks)


def enough_micro_batches(stages: int, chunks: int) -> int:
    """Return a number of micro-batches that reaches the peak memory; more of them repeat the same pattern.

    Without a pipeline, the second micro-batch runs while the gradients of the first exist. A pipeline must reach its steady
    phase. With several chunks this takes three rounds: after two, each chunk has reached its maximum in flight, but not while the
    gradients of every chunk exist, which its first backward pass creates. Seen in the dynamic graph (MindSpore 2.9, expert
    layers, 4 stages x 2 chunks with different numbers of recomputed layers): 12.12 GB with two rounds, 12.60 GB with three or
    four.
    """
    if stages == 1:
        return 2
    return stages + 1 if chunks == 1 else 3 * stages


def few_micro_batches(schedule: Schedule, stages: int, chunks: int, micro_batches: int) -> int:
    """Return the fewest micro-batches with which a static graph has the same peak; all of them if each adds to it.

    With several chunks there must be three rounds: memory needed only by forward passes of the first chunk is freed after the
    last of them, so some must still follow when its backward passes run. Seen with MindSpore 2.9 (2 chunks, 4 stages): with two
    rounds, the gathered embedding weight did not coexist with its gradient, 604 MB of 8.6 GB.
    """
    if schedule is Schedule.GPIPE or stages == 1:
        return micro_batches
    # With several chunks, the remainder is added to the first round, whose passes then extend into another round.
    left_over = micro_batches % stages if chunks > 1 else 0
    return min(enough_micro_batches(stages, chunks) + (stages + left_over if left_over else 0), micro_batches)
