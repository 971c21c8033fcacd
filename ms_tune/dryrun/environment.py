"""The environment of the simulated process."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.dryrun.cann_sim.environment import Cann

# Left over from a real launch, these would make the process look for a scheduler, another rank or a device; and a
# module's own log level may hide the statistics that MindSpore logs as a warning.
_DROPPED = re.compile(
    r"MS_(?:ROLE|SCHED_\w+|WORKER_NUM|NODE_ID|CLUSTER_\w+|SUBMODULE_LOG_v)|RANK_TABLE_FILE|RANK_TABLE|OMPI_\w+"
)

# Of MindSpore itself; where the user has set one, ours must win.
_SIMULATION = {
    "MS_SIMULATION_LEVEL": "1",
    "MS_ALLOC_CONF": "memory_tracker:True",
    "MS_MEMORY_STATISTIC": "1",
    # Launch from the thread that runs the script: otherwise the tracker's Python stacks end in MindSpore's worker.
    "MS_DEV_LAUNCH_BLOCKING": "1",
    "DEVICE_ID": "0",
    "GLOG_v": "2",  # warnings: the statistics at exit are one
}


def simulation_environment(base: Mapping[str, str], cann: Cann, rank: int, world_size: int) -> dict[str, str]:
    """The environment in which MindSpore simulates one rank of a job and writes what its allocator did."""
    kept = {name: value for name, value in base.items() if not _DROPPED.fullmatch(name)}
    ranks = {"RANK_ID": str(rank), "RANK_SIZE": str(world_size)}
    return {**cann.environment(kept), **_SIMULATION, **ranks, "PYTHONUNBUFFERED": "1"}


def overridden(base: Mapping[str, str]) -> tuple[str, ...]:
    """Names of MindSpore's variables that the user has set to something else than a simulation needs."""
    return tuple(
        name for name, value in _SIMULATION.items() if name.startswith("MS_") and base.get(name, value) != value
    )
