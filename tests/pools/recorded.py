"""Provide traces of MindSpore's pools with the settings of their runs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from ms_tune.pools.workload import Workload, split_by_pool
from ms_tune.readers.tracker_tables import read_block_table
from tests.readers.samples import LARGE_RUNS, LARGEST_RUN, SMALL_RUNS, folder

PACKED = Path(__file__).parents[1] / "data" / "allocator"


class Run(NamedTuple):
    """A script's arguments of ``ms.runtime.set_memory``, in GiB; None where not set."""

    init: float | None = None
    increase: float | None = None


# Written by MindSpore 2.7.2, 2.9.0 or 2.10.0 in simulation; columns that a replay does not need were cut away.
PACKED_RUNS = {
    "continuous": Run(2, 3),  # a graph with fused collectives: continuous memory
    "graph_set_memory": Run(2, 5),  # a graph, jit level O0, two input shapes
    "large_requests": Run(),  # requests above one unit
    "large_requests_set": Run(2, 1.5),
    "limit_6gb": Run(2, 2),  # max_size="6GB" and a need of 7 GiB
    "odd_sizes": Run(0.7, 0.3),
    "older_continuous": Run(2, 3),  # older_pool:True
    "older_streams": Run(),
    "small_pool": Run(),  # enable_small_pool:True
    "streams_empty_cache": Run(),  # three streams, and empty_cache in the middle
    "streams_set_memory": Run(4, 3),
}
ALL_RUNS = (*(f"packed/{name}" for name in PACKED_RUNS), *SMALL_RUNS, *LARGE_RUNS, LARGEST_RUN)


@cache
def recorded(run: str) -> tuple[str, Workload]:
    """Return the pool settings of a run."""
    place = PACKED / run.removeprefix("packed/") if run.startswith("packed/") else folder(run)
    ((pool, (work, _rows)),) = split_by_pool(read_block_table(place / "memory_block.csv")).items()
    return pool, work
