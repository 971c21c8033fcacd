"""Run the inner loops of the planner, in numpy or in C.

The C code is compiled once, cached, and called through ctypes.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_tune.errors import StandInBuildError
from ms_tune.native import compiled_library
from ms_tune.packing.placement import BlockLives
from ms_tune.text import Message, msg

_MASKS = 10_000  # overhead of one numpy operation, in comparisons
_FLAGS = ("-std=gnu11", "-O3", "-shared", "-fPIC", "-fvisibility=hidden")
SEARCHES = (
    2  # number of parallel searches; independent of the number of cores, so that every machine finds the same plan
)
_SOLVED, _IMPOSSIBLE = 1, 0


class Items(NamedTuple):
    """Blocks to place: lifetimes, sizes and alignments in bytes, per block."""

    lives: BlockLives
    size: NDArray[np.int64]
    alignment: NDArray[np.int64]


class GapFit(NamedTuple):
    """A first-fit placement."""

    address: NDArray[np.int64]  # per block; -1 if not placed because a block ended above the limit
    height: int  # end of the highest block
    work: int  # work done, in the engine's own units


class PackedOrder(NamedTuple):
    """Result of a search."""

    address: NDArray[np.int64] | None  # per block; None if no placement was found
    exhausted: bool  # everything was tried: without an address, no placement exists
    work: int  # tried placements of a block, each weighted by the number of remaining blocks


@dataclass(frozen=True, slots=True, eq=False)
class PackingTask:
    """Input of a search."""

    items: Items  # the blocks, in order of their lower tick
    # Distinct number per block. Of the blocks that can come next at one address, the one with the lowest rank is tried first.
    rank: NDArray[np.int32]
    equal: NDArray[np.int32]  # per block: the equal block (lifetime, size, alignment) of the next lower rank, or -1
    capacity: int  # bytes available for the blocks
    # None, or a distinct number per block. Whenever the remaining blocks split into independent parts, those of each part are
    # ranked again: first the blocks that live where most of the part remains, and among them those with the lowest number.
    tie: NDArray[np.int32] | None = None


class NumpyEngine:
    """First fit in numpy: one mask over all placed blocks for each block; no search."""

    name = "numpy"
    pace = 400_000_000  # work of first fit per second of a busy core, so that work ends before the clock does

    def first_fit(self, items: Items, order: NDArray[np.int32], limit: int, work: int) -> GapFit:
        """Place blocks in the given order, each at the lowest address where it fits.

        Stops early if a block ends above ``limit`` or this much work is done; the height is then above the limit.
        """
        lives, size, alignment = items
        count = len(order)
        at, done = -1, 0
        lower, upper = lives.lower[order], lives.upper[order]
        starts, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
        sizes, alignments = size[order].tolist(), alignment[order].tolist()
        height = 0
        for at in range(count):
            near = np.flatnonzero((lower[:at] < upper[at]) & (upper[:at] > lower[at]))
            address = _lowest_gap(starts[near], ends[near], sizes[at], alignments[at])
            starts[at], ends[at] = address, address + sizes[at]
            height = max(height, address + sizes[at])
            done += at + _MASKS
            if height > limit or done > work:
                height = max(height, limit + 1)
                break
        result = np.full(count, -1, np.int64)
        result[order[: at + 1]] = starts[: at + 1]
        return GapFit(result, height, done)


def _lowest_gap(starts: NDArray[np.int64], ends: NDArray[np.int64], size: int, alignment: int) -> int:
    if not len(starts):
        return 0
    order = np.argsort(starts)
    tops = np.concatenate(([0], np.maximum.accumulate(ends[order])))
    tops += -tops % alignment
    fits = starts[order] - tops[:-1] >= size
    first = int(fits.argmax()) if fits.any() else len(tops) - 1
    return int(tops[first])


def find_identical_blocks(items: Items, order: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return, for each block, the previous one in ``order`` with equal lifetime, size and alignment, or -1."""
    alike = np.stack((items.lives.lower, items.lives.upper, items.size, items.alignment), axis=1)[order].tolist()
    last: dict[tuple[int, ...], int] = {}
    twin = np.full(len(order), -1, np.int32)
    for block, key in zip(order.tolist(), map(tuple, alike), strict=True):
        twin[block] = last.get(key, -1)
        last[key] = block
    return twin


class CompiledEngine(NumpyEngine):
    """First fit and search in C (``placement.c``)."""

    name = "compiled"
    pace = 80_000_000

    def __init__(self, library: ctypes.CDLL) -> None:
        self._threads = ThreadPoolExecutor(min(os.cpu_count() or 1, SEARCHES))
        integer, long, pointer = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
        self._first_fit = library.placement_first_fit
        self._first_fit.argtypes = [integer, integer, *[pointer] * 5, long, *[pointer] * 2]
        self._first_fit.restype = long
        self._search = library.placement_search
        self._search.argtypes = [integer, integer, *[pointer] * 7, long, long, *[pointer] * 3]

    def first_fit(self, items: Items, order: NDArray[np.int32], limit: int, work: int) -> GapFit:
        """Place blocks as :class:`NumpyEngine` does."""
        address = np.full(len(order), -1, np.int64)
        lives = items.lives
        inputs = _Inputs(lives.lower, lives.upper, items.size, items.alignment, order)
        done = ctypes.c_int64(work)
        outputs = (ctypes.byref(done), address.ctypes.data)
        height = self._first_fit(len(order), lives.ticks, *inputs.pointers, limit, *outputs)
        if height < 0:
            raise MemoryError
        return GapFit(address, height, done.value)

    def search(
        self, tasks: Sequence[PackingTask], most_nodes: int, most_work: int, failures: NDArray[np.float64]
    ) -> list[PackedOrder]:
        """Search for a placement within each task's capacity, one thread per task, with a limit of nodes and work.

        For each tick, ``failures`` is increased by the number of times that it prevented any further placement.
        """
        parts = [np.zeros_like(failures) for _ in tasks]
        limits = repeat(most_nodes), repeat(most_work)
        found = list(self._threads.map(self._search_one, tasks, *limits, parts))
        for part in parts:
            failures += part
        return found

    def _search_one(
        self, task: PackingTask, most_nodes: int, most_work: int, failures: NDArray[np.float64]
    ) -> PackedOrder:
        address = np.zeros(len(task.rank), np.int64)
        work = ctypes.c_int64(most_work)
        lives, size, alignment = task.items
        inputs = _Inputs(lives.lower, lives.upper, size, alignment, task.rank, task.equal)
        tie = None if task.tie is None else np.ascontiguousarray(task.tie)
        outcome = self._search(
            *(len(task.rank), lives.ticks, *inputs.pointers, None if tie is None else tie.ctypes.data),
            *(task.capacity, most_nodes),
            *(failures.ctypes.data, address.ctypes.data, ctypes.byref(work)),
        )
        return PackedOrder(address if outcome == _SOLVED else None, outcome == _IMPOSSIBLE, work.value)


class _Inputs:
    """Contiguous arrays for C, kept alive while their addresses are in use."""

    def __init__(self, *arrays: NDArray[np.generic]) -> None:
        self._arrays = [np.ascontiguousarray(array) for array in arrays]
        self.pointers = [array.ctypes.data for array in self._arrays]


@cache
def best_engine() -> tuple[NumpyEngine, Message | None]:
    """Return the compiled engine, or the numpy one and the reason why C is unavailable."""
    try:
        library = compiled_library("packing", "placement.c", _FLAGS)
        return CompiledEngine(ctypes.CDLL(str(library))), None
    except StandInBuildError as error:
        return NumpyEngine(), error.message
    except OSError as error:  # compiled for another machine, or on a file system without execution
        return NumpyEngine(), msg("placement.not-loaded", detail=str(error))
