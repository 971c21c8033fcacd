"""How a task becomes a process on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.dryrun.environment import ALLOCATOR, allocator_settings, real_environment, simulation_environment
from ms_tune.dryrun.launcher import TRACES, Child
from ms_tune.dryrun.launchers.programs import Wanted, launch_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.dryrun.cann_sim.environment import Cann
    from ms_tune.dryrun.task import Task

_SUPERVISOR = str(Path(__file__).resolve().parent / "supervisor.py")
# What every Python process of the program loads first.
_STARTUP = str(Path(__file__).resolve().parent / "child" / "hook" / "startup")


def child_of(task: Task, folder: Path, cann: Cann, base: Mapping[str, str] | None = None) -> Child:
    """The process of a task.

    Args:
        task: The task.
        folder: Its folder on this machine.
        cann: This machine's CANN, real or stand-in.
        base: The environment to start from; None for that of ms-tune.
    """
    own = os.environ if base is None else base
    if task.real:
        environment = real_environment(cann.environment(own), folder)
    else:
        environment = simulation_environment(own, cann, task.rank, task.world_size, level=task.level, trace=folder)
    environment |= task.environment
    if task.command:
        environment[TRACES] = str(folder)
        environment[ALLOCATOR] = allocator_settings(own.get(ALLOCATOR, ""), environment[ALLOCATOR])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [_STARTUP, environment.get("PYTHONPATH")]))
        if task.launched is not None:
            wanted = Wanted(**task.launched)
            environment |= launch_environment(environment, folder, cann, task.level, _STARTUP, wanted)
        command = (sys.executable, "-I", "-S", _SUPERVISOR, str(os.getpid()), *task.command)
        return Child(command, environment, folder, task.timeout, working_folder=Path(task.working_folder))
    # A checkout that is run in place must be found from the run's folder too.
    checkout = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), checkout]))
    return Child((sys.executable, *task.arguments), environment, folder, task.timeout, own=True)
