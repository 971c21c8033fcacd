"""Compute STAlloc's trace analysis: the theoretical peak and its composition."""

from __future__ import annotations

from collections.abc import Iterable
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
