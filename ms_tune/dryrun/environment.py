"""The environment of the simulated process, and of the same process on a real device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ms_tune.dryrun.cann_sim.environment import Cann

LEVELS = (0, 1, 2, 3)

# Left over from a real launch, these would make the process look for a scheduler, another rank or a device; and a
# module's own log level may hide the statistics that MindSpore logs as a warning.
_DROPPED = re.compile(
    r"MS_(?:ROLE|SCHED_\w+|WORKER_NUM|NODE_ID|CLUSTER_\w+|SUBMODULE_LOG_v)|RANK_TABLE_FILE|RANK_TABLE|OMPI_\w+"
)

ALLOCATOR = "MS_ALLOC_CONF"
# Of MindSpore itself; where the user has set one, ours must win.
_TRACKED = {
    ALLOCATOR: "memory_tracker:True",
    "MS_MEMORY_STATISTIC": "1",
    "GLOG_v": "2",  # warnings: the statistics at exit are one
}
_SIMULATION = {
    "MS_SIMULATION_LEVEL": "1",
    **_TRACKED,
    # Launch from the thread that runs the script: otherwise the tracker's Python stacks end in MindSpore's worker.
    "MS_DEV_LAUNCH_BLOCKING": "1",
    "DEVICE_ID": "0",
}
# MindSpore splits MS_ALLOC_CONF at these (``runtime/memory/mem_pool/mem_env.cc``); such a path cannot be handed over.
_SEPARATORS = re.compile(r"[,:]")


def simulation_environment(  # noqa: PLR0913 - what tells one simulated process from another
    base: Mapping[str, str], cann: Cann, rank: int, world_size: int, *, level: int = 1, trace: Path | None = None
) -> dict[str, str]:
    """The environment in which MindSpore simulates one rank of a job and writes what its allocator did.

    Args:
        base: The environment of ms-tune.
        cann: What the Ascend back end is loaded with.
        rank: The rank.
        world_size: Ranks of the job.
        level: ``MS_SIMULATION_LEVEL``.
        trace: Where the tracker writes; None for the process's working folder.
    """
    kept = {name: value for name, value in base.items() if not _DROPPED.fullmatch(name)}
    own = {
        **_SIMULATION,
        "MS_SIMULATION_LEVEL": str(level),
        ALLOCATOR: tracker_settings(trace),
        "RANK_ID": str(rank),
        "RANK_SIZE": str(world_size),
        "PYTHONUNBUFFERED": "1",
    }
    return {**cann.environment(kept), **own}


def real_environment(base: Mapping[str, str], trace: Path | None) -> dict[str, str]:
    """The environment of a run on devices: the user's own with the tracker on and no simulation.

    Launch blocking is left off: it would make a real run slow, and a run of the same shape with it is at hand, the
    simulated one.
    """
    kept = {name: value for name, value in base.items() if name != "MS_SIMULATION_LEVEL"}
    return {**kept, **_TRACKED, ALLOCATOR: tracker_settings(trace), "PYTHONUNBUFFERED": "1"}


def tracker_settings(trace: Path | None) -> str:
    """``MS_ALLOC_CONF`` with the memory tracker on and told where to write, where MindSpore can be told."""
    settings = _TRACKED[ALLOCATOR]
    if trace is None or _SEPARATORS.search(str(trace)):
        return settings
    return f"{settings},memory_tracker_path:{trace}"


def allocator_settings(own: str, needed: str) -> str:
    """``MS_ALLOC_CONF`` of a command: the user's own settings, as a device would have them, and what the tracker needs."""
    kept = [setting for setting in own.split(",") if setting and not setting.startswith("memory_tracker")]
    return ",".join([*kept, needed])


def overridden_variables(base: Mapping[str, str]) -> tuple[str, ...]:
    """Names of MindSpore's variables that the user has set to something else than a simulation needs."""
    return tuple(
        name for name, value in _SIMULATION.items() if name.startswith("MS_") and base.get(name, value) != value
    )
