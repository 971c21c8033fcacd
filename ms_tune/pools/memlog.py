"""Compute STAlloc's trace analysis: the theoretical peak and its composition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_tune.packing.placement import PackingProblem
from ms_tune.pools.pool import ALIGNMENT, replay_workload
from ms_tune.pools.torch_pool import TorchPool
from ms_tune.pools.torch_space import NPU_PADDING, TorchSettings
from ms_tune.pools.workload import Request, make_workload
from ms_tune.readers.memlog import HEAD, LogBlock, MemLog

VARIABLE = 512  # bytes; STAlloc calls blocks up to this size "variable" and treats them separately


class TensorKind(str, Enum):
    """The kind of a block, by when it is allocated and freed."""

    WEIGHTS = "weights"  # allocated before iteration 0, kept until the end: weights, gradient buffers, master copies
    OPTIMIZER = "optimizer"  # allocated in the first iteration, kept until the end
    INIT = "init"  # freed before the first iteration
    UNRELEASED = "unreleased"  # allocated before the first iteration, freed in a later one
    SAVED = "saved"  # activations that outlive their phase: kept for backward
    TEMPORARY = "temporary"  # activations that are freed within their phase
    SMALL = "small"  # up to 512 bytes


_PLANNED = (TensorKind.WEIGHTS, TensorKind.OPTIMIZER, TensorKind.INIT, TensorKind.SAVED, TensorKind.TEMPORARY)


class SizeShare(NamedTuple):
    """One kind of blocks: their number, bytes at the theoretical peak, and the peak of their own curve."""

    kind: TensorKind
    blocks: int
    at_peak: int
    own_peak: int


class MemLogReport(NamedTuple):
    """The results of the analysis."""

    peak: int  # bytes: the largest sum of live blocks except small and unreleased ones, STAlloc's "All"
    peak_time: int  # the first event at which it is reached
    shares: tuple[SizeShare, ...]  # one per kind
    activations: SizeShare  # saved and temporary ones together
    # Peaks of PyTorch's caching allocator when it serves the trace.
    torch_allocated: int
    torch_reserved: int

    @property
    def torch_utilisation(self) -> float:
        """Return allocated divided by reserved, as STAlloc prints it in its mode Torch."""
        return self.torch_allocated / self.torch_reserved if self.torch_reserved else 1.0


def classify_block(block: LogBlock, log: MemLog, first: int) -> TensorKind:
    """Return STAlloc's class of a block (``trace_parser.py``); ``first`` is the number of the first iteration."""
    kept = block.end_iteration is None or block.end_iteration == log.tail
    if block.size <= VARIABLE:
        return TensorKind.SMALL
    if block.iteration == HEAD:
        if kept:
            return TensorKind.WEIGHTS
        return TensorKind.INIT if block.end_iteration == HEAD else TensorKind.UNRELEASED
    if kept and block.iteration == first:
        return TensorKind.OPTIMIZER
    alike = block.iteration == block.end_iteration and block.phase == block.end_phase
    return TensorKind.TEMPORARY if alike else TensorKind.SAVED


def analyse_log(log: MemLog, *, npu: bool = False) -> MemLogReport:
    """Return the theoretical peak, its composition, and the peaks of PyTorch's (or torch_npu's) allocator on the same trace."""
    first = min((block.iteration for block in log.blocks if block.iteration != HEAD), default=HEAD + 1)
    by_kind: dict[TensorKind, list[LogBlock]] = {kind: [] for kind in TensorKind}
    for block in log.blocks:
        by_kind[classify_block(block, log, first)].append(block)
    total = _live_curve(log, [block for kind in _PLANNED for block in by_kind[kind]])
    time = int(total.argmax())

    def share_of(*kinds: TensorKind) -> SizeShare:
        blocks = [block for kind in kinds for block in by_kind[kind]]
        curve = _live_curve(log, blocks)
        return SizeShare(kinds[0], len(blocks), int(curve[time]), int(curve.max()))

    result = replay_workload(
        make_workload(Request(one.size, one.start, one.end) for one in log.blocks),
        TorchPool(TorchSettings(padding=NPU_PADDING if npu else 0)),
    )
    return MemLogReport(
        peak=int(total[time]),
        peak_time=time,
        shares=tuple(map(share_of, TensorKind)),
        activations=share_of(TensorKind.SAVED, TensorKind.TEMPORARY),
        torch_allocated=result.used_peak,
        torch_reserved=result.reserved_peak,
    )


def make_problem(log: MemLog) -> PackingProblem:
    """Return all blocks of a trace as a placement problem; sizes rounded up to 512 bytes, as by PyTorch's allocator."""
    lower = np.array([block.start for block in log.blocks], np.int64)
    upper = np.array([log.events if block.end is None else block.end for block in log.blocks], np.int64)
    size = np.array([round_up(block.size) for block in log.blocks], np.int64)
    return PackingProblem(lower, upper, size, np.full(len(size), ALIGNMENT))


def round_up(size: int) -> int:
    """Round up a size as PyTorch's allocator does."""
    return max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)


def _live_curve(log: MemLog, blocks: Iterable[LogBlock]) -> NDArray[np.int64]:
    change = np.zeros(log.events + 1, np.int64)
    for block in blocks:
        change[block.start] += round_up(block.size)
        if block.end is not None:
            change[block.end] -= round_up(block.size)
    return np.cumsum(change)[: log.events]


class StaticBlocks(NamedTuple):
    """The allocations listed in a plan file, from which STAlloc's allocator serves the next run.

    ``Allocator/StaticAllocator.hpp`` counts the allocations above 512 bytes. Those before the first iteration and in
    iteration 0 occur once; those of iteration 1 recur in each later iteration, at the same planned places. An
    allocation whose size differs from the plan, or whose place is -1, goes to PyTorch's allocator.
    """

    sizes: tuple[int, ...]  # requested sizes, in order of allocation
    # Indices into `sizes` of the allocations that get a place; the others outlive the iteration that allocates them again.
    planned: tuple[int, ...]
    problem: PackingProblem  # the planned ones, to be placed
    count_once: int  # number of allocations before iteration 1, which occur only once
    allocated: int  # bytes: the largest live sum of the planned ones
    small: int  # bytes: the largest live sum of all blocks up to 512 bytes, which have a separate pool
    later_count: int  # allocations of the iterations after iteration 1
    later_of_other_size: int  # number of them whose size differs from the planned size at that position


def select_static_blocks(log: MemLog) -> StaticBlocks | None:
    """Return the plan for a trace without expert layers, whose blocks are placed while the training runs.

    None if the trace has no iterations 0 and 1.
    """
    counted = [block for block in log.blocks if block.size > VARIABLE and block.iteration != log.tail]
    small = [block for block in log.blocks if block.size <= VARIABLE and block.iteration != log.tail]
    once = [block for block in counted if block.iteration in (HEAD, 0)]
    again = [block for block in counted if block.iteration == 1]
    if not again or not any(block.iteration == 0 for block in once):
        return None
    later = [block for block in counted if block.iteration > 1]
    begin = again[0].start
    end = min((block.start for block in log.blocks if block.iteration > 1), default=log.events)
    spans: list[tuple[int, int] | None] = [
        (block.start, end if block.end is None else min(block.end, end)) for block in once
    ]
    following = [block for block in later if block.iteration == 2]  # noqa: PLR2004  - the first iteration that repeats
    spans += [_block_span(block, place, following, (begin, end)) for place, block in enumerate(again)]
    rows = [*once, *again]
    planned = tuple(number for number, span in enumerate(spans) if span is not None)
    lower, upper = zip(*(span for span in spans if span is not None), strict=True)
    size = np.array([round_up(rows[number].size) for number in planned], np.int64)
    problem = PackingProblem(
        np.array(lower, np.int64), np.maximum(upper, np.array(lower, np.int64) + 1), size, np.full(len(size), ALIGNMENT)
    )
    return StaticBlocks(
        sizes=tuple(block.size for block in rows),
        planned=planned,
        problem=problem,
        count_once=len(once),
        allocated=int(_live_curve(log, [rows[number] for number in planned]).max()),
        small=int(_live_curve(log, small).max()),
        later_count=len(later),
        # Positions continue across iterations.
        later_of_other_size=sum(block.size != again[turn % len(again)].size for turn, block in enumerate(later)),
    )


def _block_span(
    block: LogBlock, place: int, following: Sequence[LogBlock], iteration: tuple[int, int]
) -> tuple[int, int] | None:
    if block.end_iteration == 1 and block.end is not None:
        return block.start, block.end
    if block.end is None or place >= len(following) or block.end > following[place].start:
        return None
    return iteration  # it lives into the next iteration, which has the same places
