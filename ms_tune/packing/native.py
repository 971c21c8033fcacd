"""The planner's inner loops in C: compiled once, kept in the cache, called through ctypes."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.errors import StandInBuildError
from ms_tune.native import cache_root, cached_folder, compile_library
from ms_tune.packing.engine import GapFit, NumpyEngine, PackedOrder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ms_tune.packing.engine import Items, PackingEngine, PackingTask
    from ms_tune.text import Message

_FLAGS = ("-std=gnu11", "-O3", "-shared", "-fPIC", "-fvisibility=hidden")
_SOURCE = "placement.c"
_LIBRARY = "libplacement.so"
_TASKS = 2  # searched at once; not the number of cores, so that every machine finds the same
_SOLVED, _IMPOSSIBLE = 1, 0


class CompiledEngine:
    """First fit and search of ``placement.c``; see :class:`~ms_tune.packing.engine.PackingEngine`."""

    name = "compiled"
    pace = 250_000_000

    def __init__(self, library: ctypes.CDLL) -> None:
        self.searches = _TASKS
        self._threads = ThreadPoolExecutor(min(os.cpu_count() or 1, _TASKS))
        integer, long, pointer = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
        self._first_fit = library.placement_first_fit
        self._first_fit.argtypes = [integer, integer, *[pointer] * 5, long, *[pointer] * 2]
        self._first_fit.restype = long
        self._search = library.placement_search
        self._search.argtypes = [integer, integer, *[pointer] * 7, long, long, *[pointer] * 3]

    def first_fit(self, items: Items, order: NDArray[np.int32], limit: int, work: int) -> GapFit:
        """See :class:`~ms_tune.packing.engine.PackingEngine`."""
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
        """See :class:`~ms_tune.packing.engine.PackingEngine`; one thread a task, each with failures of its own."""
        parts = [np.zeros_like(failures) for _ in tasks]

        def one(task: PackingTask, part: NDArray[np.float64]) -> PackedOrder:
            return self._search_one(task, most_nodes, most_work, part)

        found = list(self._threads.map(one, tasks, parts))
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
def best_engine() -> tuple[PackingEngine, Message | None]:
    """The compiled engine, or the one in numpy and why there is no other."""
    try:
        return CompiledEngine(ctypes.CDLL(str(_library()))), None
    except StandInBuildError as error:
        return NumpyEngine(), error.message
    except OSError as error:  # compiled for another machine, or on a file system that runs nothing
        from ms_tune.text import msg  # noqa: PLC0415 - seldom needed

        return NumpyEngine(), msg("placement.not-loaded", detail=str(error))


def _library() -> Path:
    source = files("ms_tune.packing").joinpath(_SOURCE).read_bytes()
    key = hashlib.sha256(b"\0".join((source, " ".join(_FLAGS).encode(), platform.machine().encode()))).hexdigest()[:16]
    folder = cached_folder(cache_root() / "native" / f"placement-{key}", lambda fresh: _build(source, fresh), _wait)
    return folder / _LIBRARY


def _build(source: bytes, folder: Path) -> None:
    file = folder / _SOURCE
    file.write_bytes(source)
    compile_library(file, folder / _LIBRARY, dict(os.environ), _FLAGS)


def _wait() -> None:
    """Another process compiles it; that takes a second."""
