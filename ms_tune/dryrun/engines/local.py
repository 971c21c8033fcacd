"""Runs tasks on this machine, several at once."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ms_tune.dryrun.fork_server import ForkServer, shared_imports
from ms_tune.dryrun.launcher import Running, start, watched
from ms_tune.dryrun.start import child_of
from ms_tune.dryrun.task import state_of, write_files
from ms_tune.errors import RunError, reason_of
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ms_tune.dryrun.cann_sim.environment import Cann
    from ms_tune.dryrun.launcher import Child, ProcessEnd, Watch
    from ms_tune.dryrun.task import Task, TaskState

_TELL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Runs tasks on this machine."""

    cann: Cann  # its CANN, real or stand-in
    jobs: int  # processes at once

    def run(
        self,
        tasks: Sequence[Task],
        folder: Path,
        on_state: Callable[[Task, TaskState], None],
        on_end: Callable[[Task, ProcessEnd], None],
    ) -> None:
        """Run all tasks; see :class:`~ms_tune.dryrun.task.TaskEngine`."""
        # What needs most starts first: the last one to end should be a small one.
        waiting = deque(sorted(tasks, key=lambda task: -task.host_bytes))
        running: dict[str, tuple[Task, Running]] = {}
        told = 0.0
        with contextlib.ExitStack() as last, watched() as watch:
            processes = _Processes(self._children(tasks, folder), folder, watch, last)
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    task = waiting.popleft()
                    running[task.folder] = (task, processes.start(task))
                if time.monotonic() - told >= _TELL_SECONDS:
                    told = time.monotonic()
                    for task, process in running.values():
                        on_state(task, state_of(folder / task.folder, process.elapsed))
                watch.rest()
                for task, process in list(running.values()):
                    ended = process.ended()
                    if ended is not None:
                        watch.remove(process)
                        del running[task.folder]
                        on_end(task, ended)

    def _children(self, tasks: Sequence[Task], folder: Path) -> dict[str, Child]:
        return {task.folder: child_of(task, folder / task.folder, self.cann) for task in tasks}


@dataclass(slots=True)
class _Processes:
    """Starts the processes of tasks, those that share their imports from one server."""

    children: Mapping[str, Child]  # what each task starts, by its folder
    folder: Path  # the run folder
    watch: Watch  # ends whatever is left
    last: contextlib.ExitStack  # what is to be done when all is over
    servers: dict[tuple[str, ...], ForkServer] = field(default_factory=dict)  # by what they have imported

    def start(self, task: Task) -> Running:
        """Start the process of a task."""
        child = self.children[task.folder]
        try:
            write_files(task, child.folder)
            running = self._forked(child) or start(child)
        except OSError as error:
            raise RunError(msg("dryrun.run.not-started", folder=child.folder, detail=reason_of(error))) from error
        self.watch.add(running)
        return running

    def _forked(self, child: Child) -> Running | None:
        """A process of the server for such children; None where it would be its only one."""
        imports = shared_imports(child)
        if imports is None or Counter(map(shared_imports, self.children.values()))[imports] == 1:
            return None
        if imports not in self.servers:
            server = ForkServer.start(child, self.folder)
            self.servers[imports] = server
            self.last.callback(server.close)
            self.watch.add(Running(server.process, math.inf))
        return self.servers[imports].fork(child)
