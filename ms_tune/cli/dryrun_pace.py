"""When the processes of a job will have ended, from how those before them got on."""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.dryrun.launcher import ProcessEnd
    from ms_tune.dryrun.task import Task, TaskState

# What part of its time a process has behind it when a phase begins: seen in runs of the packaged model and of two stages of a
# small DeepSeek-V3, MindSpore 2.9. Used until the first process has ended. Nothing tells beforehand how long a graph will be
# compiled, which is most of a static graph's time.
_DYNAMIC = {("step", 1): 0.6, ("step", 2): 0.75, ("write", 0): 0.95}
_COMPILED = {("step", 2): 0.94, ("write", 0): 0.97}
_LAST = 4  # processes that have ended


class Pace:
    """Sees processes begin, get on and end.

    Args:
        tasks: All that will run.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._waiting = {task.folder: task for task in tasks}
        self._running: dict[str, tuple[Task, float]] = {}  # with the seconds since the start
        self._expected: dict[str, float] = {}  # by its phases: seconds from start to end
        self._phase: dict[str, tuple[str, int]] = {}
        self._compiled: set[str] = set()
        self._took: list[tuple[int, float]] = []  # layers and seconds of those that have ended
        self._at_once = 1

    def state(self, task: Task, state: TaskState) -> None:
        """A process runs."""
        self._waiting.pop(task.folder, None)
        self._running[task.folder] = (task, state.elapsed)
        self._at_once = max(self._at_once, len(self._running))
        phase = (state.phase, state.step)
        if self._phase.get(task.folder) == phase:
            return
        self._phase[task.folder] = phase
        if state.phase == "compile":
            self._compiled.add(task.folder)
        before = _COMPILED if task.folder in self._compiled else _DYNAMIC
        if phase in before:
            self._expected[task.folder] = state.elapsed / before[phase]

    def end(self, task: Task, ended: ProcessEnd) -> None:
        """A process has ended."""
        self._waiting.pop(task.folder, None)
        self._running.pop(task.folder, None)
        self._took.append((task.layers, ended.seconds))

    def left(self) -> float | None:
        """Seconds until the last process will have ended; None while nothing tells."""
        free = [self._left_of(task, elapsed) for task, elapsed in self._running.values()]
        each = [self._whole(task) for task in self._waiting.values()]
        known = [seconds for seconds in (*free, *each) if seconds is not None]
        if len(known) < len(free) + len(each):
            return None
        places = (known[: len(free)] + [0.0] * self._at_once)[: max(self._at_once, len(free))]
        heapify(places)
        for seconds in known[len(free) :]:
            heapreplace(places, places[0] + seconds)
        return max(places)

    def _left_of(self, task: Task, elapsed: float) -> float | None:
        """Of a running process; None also where it takes longer than was expected."""
        whole = self._whole(task)
        return whole - elapsed if whole is not None and whole > elapsed else None

    def _whole(self, task: Task) -> float | None:
        """What a process takes: as the last ones with as many layers took, else as the last ones did, else as its phases tell.

        Where only others have ended, half of the time is taken to go with the layers: what starts first has most of them.
        """
        took = [seconds for layers, seconds in self._took if layers == task.layers]
        if not took:
            took = [seconds * (1 + task.layers / max(layers, 1)) / 2 for layers, seconds in self._took]
        if took:
            last = took[-_LAST:]  # how busy the machine is now
            return sum(last) / len(last)
        if task.folder in self._expected:
            return self._expected[task.folder]
        return max(self._expected.values(), default=None)
