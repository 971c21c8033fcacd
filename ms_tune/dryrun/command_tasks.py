"""The processes of ``ms-tune dryrun -- COMMAND``: what starts them, and how they are run."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.dryrun.engines.choice import engine_for
from ms_tune.dryrun.launchers.programs import Wanted, programs
from ms_tune.dryrun.launchers.shrink import AUTO
from ms_tune.dryrun.leftovers import collect, names_in
from ms_tune.dryrun.machine import cores, jobs
from ms_tune.dryrun.request import StageChoice
from ms_tune.dryrun.rundir import told_where
from ms_tune.dryrun.task import Task
from ms_tune.errors import UsageError
from ms_tune.source import SCRIPTS
from ms_tune.text import msg
from ms_tune.units import GIB, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ms_tune.dryrun.cann_sim.environment import Cann
    from ms_tune.dryrun.launcher import ProcessEnd
    from ms_tune.dryrun.request import CommandRequest
    from ms_tune.dryrun.task import Observer

_HOST_BYTES = GIB  # of a process that nobody knows


def check_request(request: CommandRequest) -> None:
    """See that there is such a program, and that there are such ranks.

    Raises:
        UsageError: There are none.
    """
    if shutil.which(request.command[0]) is None and (request.real or not request.starts_launcher):
        raise UsageError(msg("stages.command.absent", program=request.command[0]), msg("stages.command.absent.hint"))
    size = _size(request)
    outside = [rank for rank in request.ranks if rank >= size]
    if outside and not request.launches:
        raise UsageError(msg("dryrun.ranks", rank=outside[0], size=size))


def tasks_of(request: CommandRequest) -> list[Task]:
    """One process for each rank that is asked for; of a command that launches by itself, only one."""
    ranks = dict.fromkeys(request.ranks or (_from_environment("RANK_ID") or 0,))
    return [_task(request, rank, _size(request)) for rank in ranks]


def run_tasks(
    request: CommandRequest, tasks: Sequence[Task], folder: Path, cann: Cann, observer: Observer
) -> Mapping[str, ProcessEnd]:
    """Run a command's processes to their end, and put what they left in the working folder into the run folder.

    Returns:
        How each ended, by the task's folder.
    """
    ends: dict[str, ProcessEnd] = {}

    def end(task: Task, ended: ProcessEnd) -> None:
        observer.end(task, ended)
        ends[task.folder] = ended

    observer.begin(tasks)
    before = names_in(Path.cwd())
    try:
        with told_where(folder, observer):
            engine_for(request.engine, tasks, cann, request.jobs).run(tasks, folder, observer.state, end)
    finally:
        collect(Path.cwd(), before, folder)
    return ends


def _size(request: CommandRequest) -> int:
    return request.devices or _from_environment("RANK_SIZE") or 1


def name_of(command: Sequence[str]) -> str:
    """What a run is called: its script, or its program."""
    return next((word for word in command if word.endswith(SCRIPTS)), command[0])


def _from_environment(name: str) -> int | None:
    """A variable from which MindSpore reads the size of the job, or the rank."""
    return whole_number(os.environ.get(name, ""))


def _task(request: CommandRequest, rank: int, size: int) -> Task:
    at_once = jobs([_HOST_BYTES] * cores(), request.jobs) if request.engine == "local" and not request.ranks else 1
    wanted = Wanted(
        stages=request.stages.value if isinstance(request.stages, StageChoice) else request.stages,
        ranks=(rank,) if request.ranks else (),
        devices=request.devices,
        jobs=at_once,
        python=request.python,
        settings=request.settings,
        layers=AUTO if request.fewest_layers else request.layers,
        look=request.look,
    )
    return Task(
        folder="script" if request.launches and not request.ranks else f"rank_{rank}",
        files={},
        arguments=(),
        rank=rank,
        world_size=size,
        level=request.level,
        timeout=request.timeout,
        host_bytes=_HOST_BYTES,
        stage=0,
        layers=0,
        command=request.command,
        working_folder=str(Path.cwd()),
        real=request.real,
        programs={} if request.real else programs(),
        launched=None if request.real else asdict(wanted),
    )
