"""Check this machine's resources: MindSpore and CANN, the number of processes that fit at once, and devices."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ms_tune.dialects.mindformers.read import jit_level
from ms_tune.dryrun.cann_sim.environment import (
    Backend,
    Cann,
    check_supported,
    find_built_stand_ins,
    find_mindspore,
    find_real_cann,
)
from ms_tune.dryrun.job import MindFormersJob
from ms_tune.dryrun.request import PreparedRun
from ms_tune.errors import MsTuneError, UnsupportedError
from ms_tune.facts.query import installed_version
from ms_tune.facts.training import Framework, mindspeed_framework, pynative_framework
from ms_tune.native import find_compilers
from ms_tune.source.yaml import SourceFile
from ms_tune.text import Message, msg
from ms_tune.units import GIB, KIB, MIB

# Resident memory of a simulated process on the host, measured (docs/dryrun.md), plus a quarter: the dynamic graph needs 718 MiB
# for 4 layers and 862 MiB for 32; MindFormers' graphs need 1.2 GiB and grow with the layers.
_DYNAMIC, _DYNAMIC_LAYER = 900 * MIB, 6 * MIB
_MINDFORMERS, _MINDFORMERS_LAYER = 1600 * MIB, 160 * MIB
_SPARE = GIB // 2  # for ms-tune itself and other programs
_AVAILABLE = re.compile(r"MemAvailable:\s+(\d+) kB")
_CGROUP = Path("/sys/fs/cgroup")


def host_bytes(run: PreparedRun) -> int:
    """Return the host memory that a run needs, in bytes."""
    if isinstance(run.job, MindFormersJob):
        return _MINDFORMERS + run.layers * _MINDFORMERS_LAYER
    return _DYNAMIC + run.layers * _DYNAMIC_LAYER


def usable_cores() -> int:
    """Return the number of processors that this process can use."""
    return len(os.sched_getaffinity(0))


def available_bytes() -> int:
    """Return the bytes of memory available on this machine now, within the limit of a container."""
    found = _AVAILABLE.search(Path("/proc/meminfo").read_text(encoding="utf-8"))
    free = int(found[1]) * KIB if found else GIB
    limit, used = _read_number(_CGROUP / "memory.max"), _read_number(_CGROUP / "memory.current")
    if limit is not None and used is not None:
        free = min(free, max(0, limit - used))
    return free


def processes_at_once(needs: Sequence[int], wanted: int | None) -> int:
    """Return the number of processes that can run at once."""
    if wanted is not None:
        return wanted
    largest = max(needs, default=GIB)
    return max(1, min(usable_cores(), len(needs), (available_bytes() - _SPARE) // largest))


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


_WITHOUT_DEVICE = 1  # the highest simulation level without a device
_BY_CANN = "O2"  # `jit_level` at which CANN's graph engine compiles (MindSpore, set_context(jit_config=...))


def check_level(level: int, cann: Cann) -> None:
    """Raise :class:`UnsupportedError` if a simulation level is not available: levels from 2 on need a device."""
    if level > _WITHOUT_DEVICE and cann.backend is Backend.STAND_IN:
        raise UnsupportedError(msg("stages.level.executes", level=level), msg("stages.level.executes.hint"))


def check_graph_engine(source: SourceFile) -> None:
    """Raise :class:`UnsupportedError` if a static-graph config requires CANN's graph engine, but CANN is not installed."""
    level = jit_level(source)
    if level == _BY_CANN and find_real_cann() is None:
        raise UnsupportedError(msg("dryrun.graph-engine", level=level), msg("dryrun.graph-engine.hint"))


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """The properties of this machine that dryrun needs."""

    problem: Message | None  # why dryrun cannot run here, if so
    hint: Message | None  # how to fix it
    python: str
    machine: str
    cores: int
    mindspore: str | None
    mindformers: str | None
    numpy: str | None
    backend: Backend | None  # the libraries that the Ascend back end would be loaded with
    cann: Path | None  # home of the real CANN, or the folder of its stand-ins if built
    compilers: tuple[str, ...]  # names of the available C compilers
    # The framework of MindSpeed-Core-MS configs; None if the reference transformer replaces it.
    mindspeed: Framework | None
    pynative: Framework | Message  # that of MindFormers' dynamic-graph configs, or the missing part


def check_machine(python: str | None = None) -> MachineCheck:
    """Check this machine without changing anything on it."""
    problem = hint = cann = backend = None
    version = installed_version("mindspore") if python is None else None
    try:
        mindspore = find_mindspore(python)
        version = mindspore.version
        real = find_real_cann()
        if real is None:
            check_supported(mindspore)
        backend = Backend.CANN if real else Backend.STAND_IN
        cann = real.home if real else find_built_stand_ins(mindspore)
    except MsTuneError as error:
        problem, hint = error.message, error.hint
    return MachineCheck(
        problem=problem,
        hint=hint,
        python=platform.python_version(),
        machine=f"{platform.system()} {platform.machine()}",
        cores=usable_cores(),
        mindspore=version,
        mindformers=installed_version("mindformers"),
        numpy=installed_version("numpy"),
        backend=backend,
        cann=cann,
        compilers=tuple(compiler.name for compiler in find_compilers()),
        mindspeed=mindspeed_framework(),
        pynative=pynative_framework(),
    )
