"""Show progress on standard error while ``ms-tune dryrun`` runs processes: runs done, share, time left, current process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from heapq import heapify, heapreplace
from types import TracebackType

from ms_tune.cli.output import ProgressLine, describe_time_left
from ms_tune.dryrun.launcher import ProcessEnd
from ms_tune.dryrun.task import Observer, Task, TaskState
from ms_tune.extras import need
from ms_tune.report.console import Console
from ms_tune.text import Message, msg


class DryrunProgress(Observer, AbstractContextManager["DryrunProgress"]):
    """Progress display for the user."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._line = ProgressLine(console)
        self._tasks: dict[str, Task] = {}
        self._pace = Pace(())
        self._ended = 0
        self._begun = time.monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.__exit__(kind, error, trace)

    def say(self, message: Message) -> None:
        """Show a message that is not about a single process."""
        self._line.announce(self._console.say(message))

    def note(self, message: Message) -> None:
        """Show a message that stays on the screen."""
        self._line.clear()
        self._console.note(self._console.say(message))

    def show(self, message: Message, share: float) -> None:
        """Show the share of work between two simulations."""
        self._line.show(message, share)

    def begin(self, tasks: Sequence[Task]) -> None:
        """Set the list of processes that will run."""
        self._tasks = {task.folder: task for task in tasks}
        self._pace = Pace(tasks)
        self._ended, self._begun = 0, time.monotonic()  # of these: `fit` begins several lists

    def state(self, task: Task, state: TaskState) -> None:
        """Show the state of a process."""
        self._pace.state(task, state)
        self._show_state(task, _state_message(state))

    def end(self, task: Task, ended: ProcessEnd) -> None:
        """Show that a process has ended."""
        self._ended += 1
        self._pace.end(task, ended)
        if len(self._tasks) > 1:
            self._show_state(task, msg("dryrun.progress.ended", seconds=round(ended.seconds)))

    def _show_state(self, task: Task, what: Message) -> None:
        # Runs and time first, because a terminal's line is cut; a single process needs no name.
        parts = []
        if len(self._tasks) > 1:
            parts.append(self._console.text("dryrun.progress.done", done=self._ended, all=len(self._tasks)))
            what = msg("dryrun.progress.task", stage=task.stage, layers=task.layers, what=what)
        left = self._pace.remaining_seconds()
        if left is not None:
            spent = time.monotonic() - self._begun
            parts += [f"{spent / max(spent + left, 1e-9):.0%}", describe_time_left(left, self._console)]
        self._line.write("; ".join([*parts, self._console.say(what)]))


def watch_dryrun(command: str, console: Console) -> DryrunProgress:
    """Return the progress display of a command that needs the extra ``dryrun`` only for one of its options."""
    need(command, "dryrun", "numpy")
    return DryrunProgress(console)


def _state_message(state: TaskState) -> Message:
    seconds = round(state.elapsed)
    if state.blocks is not None:
        return msg("dryrun.progress.blocks", blocks=f"{state.blocks:,}", seconds=seconds)
    return msg(f"dryrun.progress.{state.phase}", step=state.step, steps=state.steps, seconds=seconds)


# Share of a process's time that has passed when a phase begins: measured with MindSpore 2.9 on the packaged model and
# two stages of a small DeepSeek-V3. Used until the first process has ended. Compile time, most of a static graph's
# time, cannot be predicted.
_DYNAMIC = {("step", 1): 0.6, ("step", 2): 0.75, ("write", 0): 0.95}
_COMPILED = {("step", 2): 0.94, ("write", 0): 0.97}
_LAST = 4  # recently ended processes that are used


class Pace:
    """Estimator of the time left, from the phases and durations of processes."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._waiting = {task.folder: task for task in tasks}
        self._running: dict[str, tuple[Task, float]] = {}  # with the elapsed seconds
        self._expected: dict[str, float] = {}  # expected total seconds, from the phase
        self._phase: dict[str, tuple[str, int]] = {}
        self._compiled: set[str] = set()
        self._took: list[tuple[int, float]] = []  # layers and seconds of ended processes
        self._at_once = 1

    def state(self, task: Task, state: TaskState) -> None:
        """Record the phase of a running process."""
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
        """Record that a process has ended."""
        self._waiting.pop(task.folder, None)
        self._running.pop(task.folder, None)
        self._took.append((task.layers, ended.seconds))

    def remaining_seconds(self) -> float | None:
        """Return the seconds until the last process ends; None if unknown."""
        free = [self._remaining_of(task, elapsed) for task, elapsed in self._running.values()]
        each = [self._expected_seconds(task) for task in self._waiting.values()]
        known = [seconds for seconds in (*free, *each) if seconds is not None]
        if len(known) < len(free) + len(each):
            return None
        places = (known[: len(free)] + [0.0] * self._at_once)[: max(self._at_once, len(free))]
        heapify(places)
        for seconds in known[len(free) :]:
            heapreplace(places, places[0] + seconds)
        return max(places)

    def _remaining_of(self, task: Task, elapsed: float) -> float | None:
        # Remaining seconds of a running process; None also if it takes longer than expected.
        whole = self._expected_seconds(task)
        return whole - elapsed if whole is not None and whole > elapsed else None

    def _expected_seconds(self, task: Task) -> float | None:
        # Expected total seconds: the mean of recent processes with as many layers, else of recent ones, else the
        # estimate from the phase. For other layer counts, half of the time scales with the layers: the largest
        # processes start first.
        took = [seconds for layers, seconds in self._took if layers == task.layers]
        if not took:
            took = [seconds * (1 + task.layers / max(layers, 1)) / 2 for layers, seconds in self._took]
        if took:
            last = took[-_LAST:]  # recent ones reflect the current load of the machine
            return sum(last) / len(last)
        if task.folder in self._expected:
            return self._expected[task.folder]
        return max(self._expected.values(), default=None)
