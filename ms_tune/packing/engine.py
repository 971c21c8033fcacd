"""The inner loops of the planner, in numpy and in C.

The C code is compiled once, kept in the cache, and called through ctypes.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ms_tune.errors import StandInBuildError
from ms_tune.native import cache_root, cached_folder, compile_library
from ms_tune.text import Message, msg

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ms_tune.packing.placement import BlockLives

_MASKS = 10_000  # comparisons in whose time numpy begins one
_FLAGS = ("-std=gnu11", "-O3", "-shared", "-fPIC", "-fvisibility=hidden")
_SOURCE = "placement.c"
_LIBRARY = "libplacement.so"
SEARCHES = 2  # tasks searched at once; not the number of cores, so that every machine finds the same
_SOLVED, _IMPOSSIBLE = 1, 0


class Items(NamedTuple):
    """What is to be placed: lives, sizes and alignments in bytes, by block."""

    lives: BlockLives
    size: NDArray[np.int64]
    alignment: NDArray[np.int64]


class GapFit(NamedTuple):
    """A first-fit placement."""

    address: NDArray[np.int64]  # by block; -1 for those that were not placed any more because one ended above the limit
    height: int  # where the highest block ends
    work: int  # what was done, in the engine's own units


class PackedOrder(NamedTuple):
    """The end of a search."""

    address: NDArray[np.int64] | None  # by block; None if nothing was found
    exhausted: bool  # whether everything was tried, so that what was not found does not exist
    work: int  # placements of a block that were tried, each with the number of blocks that were left


@dataclass(frozen=True, slots=True, eq=False)
class PackingTask:
    """What to look for."""

    items: Items  # the blocks, in order of their lower tick
    # By block; a different number for each. Of the blocks that may come next at one address, that of the lowest rank is
    # tried first.
    rank: NDArray[np.int32]
    twin: NDArray[np.int32]  # by block: the alike block (same life, size and alignment) of the next lower rank, or -1
    capacity: int  # bytes in which the blocks are to be placed
    # None, or by block; a different number for each: whenever what is left falls into parts that do not meet, the
    # blocks of each are ranked anew, those first that live where most of the part is left, among them those of the
    # lowest number.
    tie: NDArray[np.int32] | None = None


class NumpyEngine:
    """First fit in numpy, a mask over all placed blocks for each block; no search."""

    name = "numpy"
    pace = 500_000_000  # work of first fit per second, about

    def first_fit(self, items: Items, order: NDArray[np.int32], limit: int, work: int) -> GapFit:
        """Place the blocks in an order, each at the lowest address where it fits.

        Stops early if a block ends above ``limit`` or so much work is done; the height is then above the limit.
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


def find_twins(items: Items, order: NDArray[np.int32]) -> NDArray[np.int32]:
    """The field ``twin`` of a task whose blocks are ranked as in ``order``."""
    alike = np.stack((items.lives.lower, items.lives.upper, items.size, items.alignment), axis=1)[order].tolist()
    last: dict[tuple[int, ...], int] = {}
    twin = np.full(len(order), -1, np.int32)
    for block, key in zip(order.tolist(), map(tuple, alike), strict=True):
        twin[block] = last.get(key, -1)
        last[key] = block
    return twin


class CompiledEngine(NumpyEngine):
    """First fit and search of ``placement.c``."""

    name = "compiled"
    pace = 250_000_000

    def __init__(self, library: ctypes.CDLL) -> None:
        self._threads = ThreadPoolExecutor(min(os.cpu_count() or 1, SEARCHES))
        integer, long, pointer = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
        self._first_fit = library.placement_first_fit
        self._first_fit.argtypes = [integer, integer, *[pointer] * 5, long, *[pointer] * 2]
        self._first_fit.restype = long
        self._search = library.placement_search
        self._search.argtypes = [integer, integer, *[pointer] * 7, long, long, *[pointer] * 3]

    def first_fit(self, items: Items, order: NDArray[np.int32], limit: int, work: int) -> GapFit:
        """See :class:`NumpyEngine`."""
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
        """Look for a placement within each task's capacity, with at most so many nodes and so much work, one thread per task.

        ``failures``, by tick, is added to: how often nothing more could be placed because of it.
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
        inputs = _Inputs(lives.lower, lives.upper, size, alignment, task.rank, task.twin)
        tie = None if task.tie is None else np.ascontiguousarray(task.tie)
        outcome = self._search(
            *(len(task.rank), lives.ticks, *inputs.pointers, None if tie is None else tie.ctypes.data),
            *(task.capacity, most_nodes),
            *(failures.ctypes.data, address.ctypes.data, ctypes.byref(work)),
        )
        return PackedOrder(address if outcome == _SOLVED else None, outcome == _IMPOSSIBLE, work.value)


class _Inputs:
    """Arrays as C wants them, kept alive as long as their addresses are in use."""

    def __init__(self, *arrays: NDArray[np.generic]) -> None:
        self._arrays = [np.ascontiguousarray(array) for array in arrays]
        self.pointers = [array.ctypes.data for array in self._arrays]


@cache
def best_engine() -> tuple[NumpyEngine, Message | None]:
    """The compiled engine, or the one in numpy and why there is no other."""
    try:
        return CompiledEngine(ctypes.CDLL(str(_library_path()))), None
    except StandInBuildError as error:
        return NumpyEngine(), error.message
    except OSError as error:  # compiled for another machine, or on a file system that runs nothing
        return NumpyEngine(), msg("placement.not-loaded", detail=str(error))


def _library_path() -> Path:
    source = files("ms_tune.packing").joinpath(_SOURCE).read_bytes()
    key = hashlib.sha256(b"\0".join((source, " ".join(_FLAGS).encode(), platform.machine().encode()))).hexdigest()[:16]
    place = cache_root() / "native" / f"placement-{key}"

    def build(folder: Path) -> None:
        file = folder / _SOURCE
        file.write_bytes(source)
        compile_library(file, folder / _LIBRARY, dict(os.environ), _FLAGS)

    # Where another process compiles it, nothing is told: that takes a second.
    return cached_folder(place, build, lambda: None) / _LIBRARY
