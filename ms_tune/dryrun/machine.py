"""How many simulated processes this machine can run at once."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.dryrun.job import MindFormersJob
from ms_tune.units import GIB, KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.dryrun.request import PreparedRun

# Resident memory of a simulated process on the host, measured (docs/dryrun.md), with a margin of a quarter: the
# dynamic graph needs 718 MiB for 4 layers and 862 MiB for 32; MindFormers' graphs need 1.2 GiB and grow with the layers.
_DYNAMIC, _DYNAMIC_LAYER = 900 * MIB, 6 * MIB
_MINDFORMERS, _MINDFORMERS_LAYER = 1600 * MIB, 160 * MIB
_SPARE = GIB // 2  # for ms-tune itself and for whatever else runs
_AVAILABLE = re.compile(r"MemAvailable:\s+(\d+) kB")
_CGROUP = Path("/sys/fs/cgroup")


def host_bytes(run: PreparedRun) -> int:
    """Memory that a run will need on the host."""
    if isinstance(run.job, MindFormersJob):
        return _MINDFORMERS + run.layers * _MINDFORMERS_LAYER
    return _DYNAMIC + run.layers * _DYNAMIC_LAYER


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def available_bytes() -> int:
    """Memory that can be had on this machine now, within the limit of a container."""
    found = _AVAILABLE.search(Path("/proc/meminfo").read_text(encoding="utf-8"))
    free = int(found[1]) * KIB if found else GIB
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is not None and used is not None:
        free = min(free, max(0, limit - used))
    return free


def jobs(needs: Sequence[int], wanted: int | None) -> int:
    """How many of the processes may run at once.

    Args:
        needs: Memory that each needs on the host.
        wanted: What the user asks for, which is taken as it is.
    """
    if wanted is not None:
        return wanted
    largest = max(needs, default=GIB)
    return max(1, min(cores(), len(needs), (available_bytes() - _SPARE) // largest))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
