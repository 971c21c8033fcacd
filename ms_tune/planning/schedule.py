"""The order of forward and backward passes of a pipeline stage, by schedule, and what it keeps in memory.

A number of forward passes to warm up, then one forward and one backward pass in turn, then the backward passes that are
left. What lies between a forward pass and its backward pass is in memory. docs/fit.md has a section for each schedule.

Where the orders come from:

- Megatron-LM ``core/pipeline_parallel/schedules.py``, core_v0.6.0 to core_v0.12.1, and MindSpeed-Core-MS r0.1.0, the file
  of the same name.
- MindSpore ``frontend/parallel/pipeline_transformer/pipeline_scheduler.cc`` (``InterleavedScheduler``: ``Reorder`` and
  ``MemoryOptimizedReorder``) and ``gpipe_interleave_scheduler.cc``. What MindSpore 2.9.0 runs was seen in simulation, kernel
  by kernel (2 and 4 stages, 2 chunks, 2 to 10 micro-batches, ``jit_level`` O0): ``interleaved``, also with as many
  micro-batches as stages, and ``interleaved-less-memory`` with ``ENABLE_LESS_MEM_VPP=1`` in the environment.
- HyperParallel ``core/pipeline_parallel/scheduler.py`` at 019ed966, for the dynamic graph of MindFormers 2.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from ms_tune.records import Record
from ms_tune.text import Message, msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    PassKey = tuple[bool, int, int]  # whether it is a forward pass, its cell (chunk x stages + stage), its micro-batch

MOST_PASSES = 100_000  # of a stage in one training step that are followed one by one; no real job has as many


class Schedule(Enum):
    """A schedule by the name that tables and the command line use."""

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
    """Why no framework runs these sizes by this schedule; None where one does."""
    if schedule is Schedule.ONE_FORWARD_ONE_BACKWARD and chunks > 1:
        return msg("planning.schedule.chunks", schedule=schedule.value, chunks=chunks)
    # With one chunk these are 1F1B. HyperParallel makes one round of fewer micro-batches than stages.
    if chunks > 1 and schedule not in (Schedule.GPIPE, Schedule.INTERLEAVED_SPREAD) and micro_batches < stages:
        return msg("planning.schedule.few", schedule=schedule.value, micro_batches=micro_batches, stages=stages)
    if chunks > 1 and schedule is Schedule.INTERLEAVED_FULL_WARM_UP and micro_batches % stages:
        return msg("planning.schedule.multiple", schedule=schedule.value, micro_batches=micro_batches, stages=stages)
    return None


def stage_passes(schedule: Schedule, stage: int, stages: int, chunks: int, micro_batches: int) -> list[PipelinePass]:
    """The passes of one training step of a stage, in order."""
    rounds = [micro_batches] if schedule is Schedule.GPIPE else _chunk_rounds(schedule, stages, chunks, micro_batches)
    forward = _in_rounds(rounds, range(chunks), forward=True)
    backward = _in_rounds(rounds, range(chunks - 1, -1, -1), forward=False)
    warm_up = warm_up_passes(schedule, stage, stages, chunks, micro_batches)
    order = forward[:warm_up]
    for following, back in zip(forward[warm_up:], backward, strict=False):
        order += [following, back]
    return order + backward[len(forward) - warm_up :]


def warm_up_passes(schedule: Schedule, stage: int, stages: int, chunks: int, micro_batches: int) -> int:
    """Forward passes before the first backward pass is due, the one right before it not counted."""
    total, behind = chunks * micro_batches, stages - stage - 1
    if schedule is Schedule.GPIPE:
        return total
    if chunks == 1:
        return min(behind, total)
    if schedule is Schedule.INTERLEAVED_FULL_WARM_UP and micro_batches == stages:
        return total
    first = _chunk_rounds(schedule, stages, chunks, micro_batches)[0]
    steps = 1 if schedule is Schedule.INTERLEAVED_LESS_MEMORY else 2
    return min(first * (chunks - 1) + steps * behind, total)


def _chunk_rounds(schedule: Schedule, stages: int, chunks: int, micro_batches: int) -> list[int]:
    # How many micro-batches go through one chunk before the next chunk has its turn, round by round. As many as there are
    # stages. What is left over goes with the first round in MindSpore, is spread in HyperParallel, and is refused by
    # Megatron-LM.
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
    """The pass, of the same micro-batch, that a pass takes its input from; None for those that begin with the data."""
    forward, cell, micro_batch = key
    if forward:
        return (True, cell - 1, micro_batch) if cell else None
    return (False, cell + 1, micro_batch) if cell < cells - 1 else (True, cell, micro_batch)


def passes_in_turn(
    orders: Sequence[Sequence[PipelinePass]], chunks: int
) -> Iterator[tuple[int, PassKey, PassKey | None]]:
    """The passes of all stages, each after those that it waits for: its stage, itself, and what it takes its input from.

    Passes that would wait for each other are left out.
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


def most_held(order: Iterable[PipelinePass], chunks: int) -> tuple[int, ...]:
    """Micro-batches held by each chunk when the stage holds most, counted over its chunks; the first such moment."""
    held = [0] * chunks
    most = tuple(held)
    for one in order:
        held[one.chunk] += 1 if one.forward else -1
        if sum(held) > sum(most):
            most = tuple(held)
    return most


def in_flight_per_chunk(
    schedule: Schedule, stage: int, stages: int, chunks: int, micro_batches: int
) -> tuple[int, ...] | None:
    """Micro-batches between their forward and their backward pass when the stage holds most, for each chunk.

    None where no framework runs these sizes, and of interleaved passes beyond :data:`MOST_PASSES`.
    """
    if why_refused(schedule, stages, chunks, micro_batches) is not None:
        return None
    if chunks == 1 and schedule is not Schedule.GPIPE:
        return (min(stages - stage, micro_batches),)
    if schedule is Schedule.GPIPE:
        return (micro_batches,) * chunks if chunks <= MOST_PASSES else None
    if chunks * micro_batches > MOST_PASSES:
        return None
    return most_held(stage_passes(schedule, stage, stages, chunks, micro_batches), chunks)


def enough_micro_batches(stages: int, chunks: int) -> int:
    """So many micro-batches that memory has been everything it will be; every further one repeats what was.

    Without a pipeline the second one meets the gradients of the first. In a pipeline the steady part must be reached. With several
    chunks it is three rounds: after two, each chunk has had as many in flight as ever, but not all of them while the gradients of every
    chunk are there, which a chunk's first backward pass makes. Seen in the dynamic graph (MindSpore 2.9, layers with experts of 4 stages
    x 2 chunks that recompute unlike numbers of layers): 12.12 GB with two rounds, 12.60 GB with three, as with all four.
    """
    if stages == 1:
        return 2
    return stages + 1 if chunks == 1 else 3 * stages


def few_micro_batches(schedule: Schedule, stages: int, chunks: int, micro_batches: int) -> int:
    """The fewest micro-batches with which a static graph holds what it does with so many: all of them where each adds to that.

    With several chunks there must be three rounds: while backward passes of the first chunk run, forward passes of it must be
    still to come, or what these need is gone by then. Seen with MindSpore 2.9 (2 chunks, 4 stages): with two rounds the gathered
    weight of the embedding was not there beside its gradient, 604 MB of 8.6 GB.
    """
    if schedule is Schedule.GPIPE or stages == 1:
        return micro_batches
    # With several chunks those left over go with the first round, whose passes then reach into another one.
    left_over = micro_batches % stages if chunks > 1 else 0
    return min(enough_micro_batches(stages, chunks) + (stages + left_over if left_over else 0), micro_batches)
