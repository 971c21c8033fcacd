"""Define the processes of a job as data: their inputs, their progress, and how they are started."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.dryrun.environment import (
    ALLOCATOR,
    BIN,
    LaunchPlan,
    allocator_settings,
    launch_environment,
    simulation_environment,
    stand_in_programs,
)
from ms_tune.dryrun.launcher import LOG, TRACES, ChildProcess, ProcessEnd
from ms_tune.text import Message

if TYPE_CHECKING:
    from ms_tune.dryrun.cann_sim.environment import Cann

_PHASES = ("start", "build", "compile", "step", "write")
_BLOCKS = re.compile(rb"mem block num: (\d{1,12})")  # mem_tracker.cc, when the tracker begins to write
_TAIL = 16 * 1024


@dataclass(frozen=True, slots=True)
class Task:
    """One simulated process; it can run on any machine with MindSpore and ms-tune."""

    folder: str  # its folder, relative to the run folder
    files: Mapping[str, str]  # texts of its input files, by name
    # Arguments of the Python that runs it, such as `("-m", "ms_tune.dryrun.child", MODULE, "job.json")`.
    arguments: tuple[str, ...]
    rank: int  # the rank that it simulates, of `world_size`
    world_size: int
    level: int  # `MS_SIMULATION_LEVEL`
    timeout: float  # seconds after which it is stopped
    host_bytes: int  # host memory that it needs, in bytes
    stage: int  # its pipeline stage, for progress
    layers: int  # its layers, for progress; 0 for a command, whose layers are unknown
    command: tuple[str, ...] = ()  # a command of the user's own, run instead of `arguments`
    working_folder: str = ""  # the working folder of a command; exists on every machine that may run it
    # The parts of launched jobs to simulate; None if launchers are not replaced.
    launched: LaunchPlan | None = None


@dataclass(frozen=True, slots=True)
class TaskState:
    """The current activity of a process."""

    phase: str  # `start`, `build`, `compile`, `step`, `write` or `remote` (it runs elsewhere)
    step: int  # the current training step, of `steps`
    steps: int
    blocks: int | None  # blocks that the tracker has counted so far; None before it reports them
    elapsed: float  # seconds since the start


class Observer:
    """A receiver of progress; this base class ignores it."""

    def say(self, message: Message) -> None:
        """Receive a message that is not about one process."""

    def note(self, message: Message) -> None:
        """Receive a message to keep on the screen."""

    def begin(self, tasks: Sequence[Task]) -> None:
        """Receive the processes that will run."""

    def state(self, task: Task, state: TaskState) -> None:
        """Receive the state of a process, several times a second."""

    def end(self, task: Task, ended: ProcessEnd) -> None:
        """Receive the end of a process."""


def write_files(task: Task, folder: Path) -> None:
    """Create the task's folder with its input files."""
    folder.mkdir(parents=True)
    for name, text in task.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name, text in stand_in_programs().items() if task.launched is not None else ():
        program = folder / BIN / name  # found first in the PATH of a command
        program.parent.mkdir(exist_ok=True)
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)


def state_of(folder: Path, elapsed: float) -> TaskState:
    """Return the state that the process in a folder last reported."""
    try:
        said = json.loads((folder / "progress").read_text(encoding="utf-8"))
        phase, step, steps = str(said["phase"]), int(said["step"]), int(said["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        phase, step, steps = "start", 0, 0
    known = phase if phase in _PHASES else "start"
    return TaskState(known, step, steps, _count_blocks(folder / LOG) if known == "write" else None, elapsed)


def _count_blocks(log: Path) -> int | None:
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL))
            found = _BLOCKS.findall(file.read())
    except OSError:
        return None
    return int(found[-1]) if found else None


_SUPERVISOR = str(Path(__file__).resolve().parent / "supervisor.py")
# Every Python process of the program loads this first.
_STARTUP = str(Path(__file__).resolve().parent / "child" / "hook" / "startup")


def child_of(task: Task, folder: Path, cann: Cann) -> ChildProcess:
    """Return the process of a task."""
    environment = simulation_environment(os.environ, cann, task.rank, task.world_size, level=task.level, trace=folder)
    if task.command:
        environment[TRACES] = str(folder)
        environment[ALLOCATOR] = allocator_settings(os.environ.get(ALLOCATOR, ""), environment[ALLOCATOR])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [_STARTUP, environment.get("PYTHONPATH")]))
        if task.launched is not None:
            environment |= launch_environment(environment, folder, cann, task.level, _STARTUP, task.launched)
        command = (sys.executable, "-I", "-S", _SUPERVISOR, str(os.getpid()), *task.command)
        return ChildProcess(command, environment, folder, task.timeout, working_folder=Path(task.working_folder))
    # A checkout that is run without installation must also be found from the run's folder.
    checkout = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), checkout]))
    return ChildProcess((sys.executable, *task.arguments), environment, folder, task.timeout, is_child=True)
