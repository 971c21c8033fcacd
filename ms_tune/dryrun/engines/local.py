"""Runs tasks on this machine, several at once."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.dryrun.launcher import start, watched
from ms_tune.dryrun.start import child_of
from ms_tune.dryrun.task import state_of, write_files
from ms_tune.errors import RunError
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ms_tune.dryrun.cann_sim.environment import Cann
    from ms_tune.dryrun.launcher import Ended, Running, Watch
    from ms_tune.dryrun.task import State, Task

_TELL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Runs tasks on this machine.

    Attributes:
        cann: Its CANN, real or stand-in.
        jobs: Processes at once.
    """

    cann: Cann
    jobs: int

    def run(
        self,
        tasks: Sequence[Task],
        folder: Path,
        on_state: Callable[[Task, State], None],
        on_end: Callable[[Task, Ended], None],
    ) -> None:
        """Run all tasks; see :class:`~ms_tune.dryrun.task.Engine`."""
        # What needs most starts first: the last one to end should be a small one.
        waiting = deque(sorted(tasks, key=lambda task: -task.host_bytes))
        running: dict[str, tuple[Task, Running]] = {}
        told = 0.0
        with watched() as watch:
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    task = waiting.popleft()
                    running[task.folder] = (task, self._start(task, folder / task.folder, watch))
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

    def _start(self, task: Task, folder: Path, watch: Watch) -> Running:
        try:
            write_files(task, folder)
            running = start(child_of(task, folder, self.cann))
        except OSError as error:
            detail = error.strerror or str(error)
            raise RunError(msg("dryrun.run.not-started", folder=folder, detail=detail)) from error
        watch.add(running)
        return running
