"""Reads the steps out of a training log, however long: runs, their ranks, and what was said between the steps.

A file may hold several runs, one behind the other: a run ends where the counter of its steps falls, where the number of
steps in all changes, or where a step comes again that was another one (another norm of its gradients, or another loss).
It may hold the lines of several ranks: behind prefixes, or without, where the same step comes again and says the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.errors import TraceError, nearby
from ms_tune.texts import msg
from ms_tune.trace.log_lines import bodies, chosen
from ms_tune.trace.logged_memory import reports_in
from ms_tune.trace.logged_steps import LoggedRun, RankSteps, Remark, TrainingLog
from ms_tune.trace.recompute_log import rank_of
from ms_tune.trace.step_baseline import read_baseline
from ms_tune.trace.step_lines import Form, rank_before, samples_per_second, steps_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ms_tune.trace.logged_steps import LoggedMemory
    from ms_tune.trace.step_lines import StepLine

_MOST_STEPS = 1_000_000  # of a file; what is beyond is counted
_MOST_RUNS = 1000
_MOST_RANKS = 4096
_MOST_REMARKS = 10_000
_MOST_DAMAGED = 100

_TIMES = (b"per_step_time", b"elapsed time per iteration", b"samples/s/p", b", Time: ")
# megatron/training/checkpointing.py and training.py; mindformers/core/callback/callback.py.
_REMARKS = {
    "saving checkpoint at iteration": "checkpoint",
    "......Saving ckpt......": "checkpoint",
    "validation loss at": "evaluation",
    "Eval result: ": "evaluation",
}
_TAIL = re.compile(r"==> \S{0,400}worker_(\d{1,6})\.log <==")
_NEEDLES = (*_TIMES, b" memory (MB) |", *(text.encode() for text in _REMARKS), b".log <==")


def read_training_log(path: Path, on_bytes: Callable[[int], None] = lambda _count: None) -> TrainingLog:
    """Read a log, however long.

    Args:
        path: The file; a JSON file of lists (the baselines of MindSpeed-LLM's and -MM's tests) is one run.
        on_bytes: Told how many bytes more are read.

    Raises:
        TraceError: The file cannot be read, or no line of it tells about a step.
    """
    reader, ended = _Reader(), True
    try:
        with path.open("rb") as file:
            for body, first in bodies(file):
                if first == 1 and body.lstrip()[:1] == b"{" and path.suffix == ".json":
                    return TrainingLog(path, rank_of(path), (read_baseline(path),))
                for number, line, whole in chosen(body, first, _NEEDLES):
                    reader.take(number, line, whole=whole)
                ended = body.endswith(b"\n")
                on_bytes(len(body))
    except FileNotFoundError:
        raise TraceError(msg("trace.folder.absent"), nearby(path), path=path) from None
    except OSError as error:
        raise TraceError(msg("trace.unreadable", detail=error.strerror or str(error)), path=path) from error
    runs = tuple(reader.runs)
    if not runs:
        if reader.damaged:
            raise TraceError(
                msg("trace.steps.damaged"), msg("trace.steps.none.hint"), path=path, line=reader.damaged[0]
            )
        raise TraceError(msg("trace.steps.none"), msg("trace.steps.none.hint"), path=path)
    return TrainingLog(
        path,
        rank_of(path),
        runs,
        damaged=tuple(reader.damaged),
        damaged_count=reader.damaged_count,
        dropped=reader.dropped,
        orphans=reader.orphans,
        cut_off=not ended,
    )


@dataclass(slots=True)
class _Writer:
    """Who writes lines: one rank, or, without prefixes, perhaps several."""

    run: int = -1  # number of its present run
    last: int = 0  # the largest number of a step in it
    epoch: int = 0
    offset: int = 0  # steps of the epochs before this one, where lines do not say how many an epoch has


class _Reader:
    """The runs met so far."""

    def __init__(self) -> None:
        self.runs: list[LoggedRun] = []
        self.damaged: list[int] = []
        self.damaged_count = self.dropped = self.orphans = 0
        self._kept = 0
        self._writers: dict[int | None, _Writer] = {}
        self._tailed: int | None = None  # the rank whose lines `tail -f` shows
        self._latest: RankSteps | None = None
        self._early: dict[int, LoggedMemory] = {}  # what was said of a run before its first step

    def take(self, number: int, line: str, *, whole: bool) -> None:
        """Read a line; one without an end may be cut off."""
        rank, text = rank_before(line)
        rank = self._tailed if rank is None else rank
        found = False
        for step in steps_in(text):
            found = True
            if step is None:
                self.damaged_count += 1
                if len(self.damaged) < _MOST_DAMAGED:
                    self.damaged.append(number)
            else:
                self._step(rank, step, number)
        if "samples/s/p" in text:
            self._rate(text, whole=whole)
        elif not found:
            self._other(text, number)

    def _step(self, rank: int | None, step: StepLine, line: int) -> None:
        writer = self._writers.get(rank)
        if writer is None:
            if len(self._writers) >= _MOST_RANKS:
                self.dropped += 1
                return
            writer = self._writers[rank] = _Writer()
        number = _counted(writer, step)
        place = self._place(writer, rank, step, number)
        if place is None or self._kept >= _MOST_STEPS:
            self.dropped += 1
            return
        self._kept += 1
        place.add(step, number, line)
        writer.last = max(writer.last, number)
        self._latest = place

    def _place(self, writer: _Writer, rank: int | None, step: StepLine, number: int) -> RankSteps | None:
        """Where a step belongs: to a rank of the writer's present run, or to a new run."""
        run = self.runs[writer.run] if writer.run >= 0 else None
        if run is not None and step.total == run.total:
            own = [one for one in run.ranks if one.rank == rank and one.form is step.form]
            if own and number > own[0].number[-1]:
                return own[0]
            # Without prefixes the same step once more may be another rank's, a step late at most.
            if own and rank is None and number >= writer.last - 1 and _same(own[0], step, number):
                later = next((one for one in own[1:] if one.number[-1] < number), None)
                return later or _more(run, RankSteps(step.form, None))
        return self._new_run(writer, rank, step, number)

    def _new_run(self, writer: _Writer, rank: int | None, step: StepLine, number: int) -> RankSteps | None:
        repeated = writer.run >= 0 and number == writer.last
        writer.run += 1
        if writer.run == len(self.runs):
            if writer.run >= _MOST_RUNS:
                writer.run -= 1
                return None
            self.runs.append(LoggedRun(total=step.total, repeated=repeated, memory=self._early))
            self._early = {}
        if step.form is Form.MINDSPEED and writer.offset:
            writer.offset = 0
        writer.last = 0
        return _more(self.runs[writer.run], RankSteps(step.form, rank))

    def _rate(self, text: str, *, whole: bool) -> None:
        rate = samples_per_second(text)
        if self._latest is None:
            self.orphans += 1
        elif whole:
            self._latest.rate[-1] = rate

    def _other(self, text: str, line: int) -> None:
        if tail := _TAIL.search(text):
            self._tailed = int(tail[1])
        if " memory (MB) |" in text:
            for memory in reports_in(text):
                self._memory(memory)
        if not self.runs:
            return
        run = self.runs[-1]
        for words, kind in _REMARKS.items():
            if words in text and len(run.remarks) < _MOST_REMARKS and self._latest is not None:
                run.remarks.append(Remark(kind, self._latest.number[-1], line))

    def _memory(self, memory: LoggedMemory) -> None:
        """Of the present run, or of the one that begins: ranks do not wait for the one that writes its first step."""
        begun = self.runs and self._latest is not None and self._latest.number[-1] <= memory.steps
        kept = self.runs[-1].memory if begun else self._early
        if memory.rank in kept or len(kept) < _MOST_RANKS:
            kept[memory.rank] = memory


def _counted(writer: _Writer, step: StepLine) -> int:
    """The step's number in its job: some counters begin anew with each epoch."""
    if step.form is Form.MINDSPEED:
        if step.epoch == writer.epoch + 1 and step.number + writer.offset <= writer.last:
            writer.offset = writer.last
        elif step.epoch < writer.epoch:
            writer.offset = 0
        writer.epoch = step.epoch
        return step.number + writer.offset
    return step.number + max(step.epoch - 1, 0) * step.total


def _same(steps: RankSteps, step: StepLine, number: int) -> bool:
    """Whether a step that is there already says what this line says: as far as gradients go, or else the loss."""
    place = next((at for at in range(len(steps) - 1, max(len(steps) - 3, -1), -1) if steps.number[at] == number), None)
    if place is None:
        return False
    for mine, theirs in ((steps.norm[place], step.norm), (steps.loss[place], step.loss)):
        if mine == mine and theirs == theirs:  # noqa: PLR0124 - both are there
            return mine == theirs
    return True


def _more(run: LoggedRun, rank: RankSteps) -> RankSteps | None:
    if len(run.ranks) >= _MOST_RANKS:
        return None
    run.ranks.append(rank)
    return rank
