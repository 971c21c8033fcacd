"""What ``dryrun`` finds on this machine."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.dryrun.cann_sim.environment import (
    Backend,
    check_supported,
    find_mindspore,
    find_real_cann,
    stand_ins_built,
)
from ms_tune.errors import MsTuneError
from ms_tune.facts.training import mindspeed_framework, pynative_framework
from ms_tune.native import find_compilers

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.facts.training import Framework
    from ms_tune.text import Message


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """This machine, as far as dryrun cares."""

    problem: Message | None  # why dryrun cannot run here, if so
    hint: Message | None  # what to do about it
    python: str
    machine: str
    cores: int
    mindspore: str | None
    mindformers: str | None
    numpy: str | None
    backend: Backend | None  # what the Ascend back end would be loaded with
    cann: Path | None  # home of the real CANN, or the folder of stand-ins that are built already
    compilers: tuple[str, ...]  # names of the C compilers at hand
    # The framework of MindSpeed-Core-MS configs; None where the reference transformer stands for it.
    mindspeed: Framework | None
    pynative: Framework | Message  # that of MindFormers' dynamic-graph configs, or what it lacks


def check_machine(python: str | None = None) -> MachineCheck:
    """Look at this machine without changing anything on it.

    Args:
        python: The interpreter whose MindSpore is meant; None for this one.
    """
    problem = hint = cann = backend = None
    version = _installed_version("mindspore") if python is None else None
    try:
        mindspore = find_mindspore(python)
        version = mindspore.version
        real = find_real_cann()
        if real is None:
            check_supported(mindspore)
        backend = Backend.CANN if real else Backend.STAND_IN
        cann = real.home if real else stand_ins_built(mindspore)
    except MsTuneError as error:
        problem, hint = error.message, error.hint
    return MachineCheck(
        problem=problem,
        hint=hint,
        python=platform.python_version(),
        machine=f"{platform.system()} {platform.machine()}",
        cores=len(os.sched_getaffinity(0)),
        mindspore=version,
        mindformers=_installed_version("mindformers"),
        numpy=_installed_version("numpy"),
        backend=backend,
        cann=cann,
        compilers=tuple(compiler.name for compiler in find_compilers()),
        mindspeed=mindspeed_framework(),
        pynative=pynative_framework(),
    )


def _installed_version(package: str) -> str | None:
    if importlib.util.find_spec(package) is None:
        return None
    return importlib.metadata.version(package)
