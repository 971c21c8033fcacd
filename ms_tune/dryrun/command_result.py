"""What a simulated command found."""

from __future__ import annotations

import ast
import contextlib
import linecache
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.dryrun.result import beside_theory, unlike_theory
from ms_tune.text import msg
from ms_tune.units import mib
from ms_tune.verdict.outcome import Fit, Verdict, no_verdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ms_tune.dryrun.cann_sim.environment import Backend
    from ms_tune.dryrun.launchers.job import LaunchedJob
    from ms_tune.dryrun.processes import ProcessPlace, ProgramProcess
    from ms_tune.dryrun.result import BesideTheory, Extrapolation, Reading
    from ms_tune.enums import MemoryCategory
    from ms_tune.text import Message


@dataclass(frozen=True, slots=True, eq=False)
class RankResult:
    """What one process of a command left behind."""

    rank: int | None  # its rank; None if nothing tells
    reading: Reading  # what it left
    verdict: Verdict  # whether it fits, and on what grounds
    process: ProgramProcess | None = None  # what the process told of itself; None where it could not
    stage: int | None = None  # its pipeline stage, where a launcher's stand-in chose it by that
    job: int | None = None  # the number of the job that a launcher started it for
    layers: int | None = None  # layers of its stage as it ran; None where that is not known
    full_layers: int | None = None  # layers that the program's arguments give the stage; None where that is not known
    extrapolation: Extrapolation | None = None  # the whole stage, if it ran with fewer layers

    @property
    def judged_bytes(self) -> int:
        """The peak that the verdict is about: of the whole stage where it was derived."""
        return self.extrapolation.peak_bytes if self.extrapolation is not None else self.reading.peak_bytes

    @property
    def theory(self) -> tuple[BesideTheory, ...]:
        """What the run holds from its first step to its last, beside theory; empty where theory tells nothing."""
        model = self.process.model if self.process is not None else None
        return beside_theory(model.theory(), self.reading.contents) if model is not None else ()

    @property
    def footprint_bytes(self) -> int:
        """The footprint that the verdict is about; the upper end where only a range is known."""
        whole = self.extrapolation
        return whole.need.footprint_bytes if whole is not None else self.reading.footprint_bytes

    @property
    def contents(self) -> Mapping[MemoryCategory, int]:
        """What the peak that the verdict is about is made of."""
        return self.extrapolation.contents if self.extrapolation is not None else self.reading.contents


@dataclass(frozen=True, slots=True, eq=False)
class CommandResult:
    """A command of the user's own that was run."""

    folder: Path  # where the run is kept
    command: tuple[str, ...]  # the command
    backend: Backend  # what the Ascend back end was loaded with
    level: int | None  # `MS_SIMULATION_LEVEL`; None on devices
    code: int  # its exit code; of the first process that failed, if any did
    ranks: tuple[RankResult, ...]  # the traces that it left
    problems: tuple[tuple[Message, Message], ...]  # what is wrong with its processes, and where to read more
    seconds: float  # how long it ran
    processes: tuple[ProgramProcess, ...] = ()  # its processes that imported MindSpore
    jobs: tuple[LaunchedJob, ...] = ()  # the jobs that its launchers were told to start

    @property
    def warnings(self) -> tuple[Message, ...]:
        """What makes the figures less certain than they look, each thing once, and no problem again."""
        found = [warning for rank in self.ranks for warning in rank.reading.warnings]
        sound = [rank for rank in self.ranks if rank.verdict.no_verdict_because is None]
        for rank in sound:  # at the peak other gradients than those of the buffers may be alive
            found += unlike_theory(pair for pair in rank.theory if pair.content != "gradients")
        found += [
            msg("launch.refused", launcher=job.launcher, problem=job.problem)
            for job in self.jobs
            if job.problem is not None
        ]
        for job in self.jobs:
            told_once = {str(stage.reason): stage.reason for stage in job.stages if stage.reason is not None}
            found += [msg("launch.layers.reason", reason=reason) for reason in told_once.values()]
            untold = ", ".join(job.untold)
            if untold and any(rank.code for rank in job.ranks):
                found.append(msg("launch.untold", options=untold))
        found += [
            warning for rank in self.ranks if self.level is not None and (warning := _find_caught_oom(rank)) is not None
        ]
        if self.level is not None and any(rank.process is None for rank in self.ranks):
            found.append(msg("stages.command.unseen"))
        if not self.code:  # else the failure is a problem
            failed = [process for process in self.processes if process.failed]
            found += [msg("stages.command.failed-part", pid=one.pid, error=one.failed) for one in failed]
        told = {str(problem) for problem, _ in self.problems}
        return tuple({text: warning for warning in found if (text := str(warning)) not in told}.values())

    @property
    def reads(self) -> tuple[ProcessPlace, ...]:
        """Where programs read values, which simulation has not."""
        return tuple(dict.fromkeys(place for process in self.processes for place in process.reads))

    @property
    def bounds(self) -> tuple[ProcessPlace, ...]:
        """Where programs use operators whose sizes follow from values."""
        return tuple(dict.fromkeys(place for process in self.processes for place in process.bounds))

    @property
    def support(self) -> tuple[Message, ...]:
        """What of the programs' frameworks is changed, each thing once."""
        return tuple({str(message): message for one in self.processes for message in one.support}.values())

    @property
    def worst(self) -> RankResult | None:
        """The rank with the worst verdict that needs most."""
        return max(self.ranks, key=lambda rank: (rank.verdict.severity, rank.judged_bytes), default=None)

    @property
    def verdict(self) -> Verdict:
        """About the whole command: that of the worst rank; none where a rank or a process went wrong."""
        worst = self.worst
        if worst is None:
            reason = self.problems[0][0] if self.problems else msg("verdict.none.no-trace")
            return no_verdict(reason)
        if not self.problems or worst.verdict.outcome in (None, Fit.DOES_NOT_FIT):
            return worst.verdict
        return worst.verdict._replace(outcome=None, no_verdict_because=self.problems[0][0])


# MindSpore raises the first of them where memory is out.
_CATCHING = {"RuntimeError", "Exception", "BaseException", "MemoryError"}
_FRAMEWORK = "-packages/mindspore/"  # whose own handlers are behind the program's lines


def _find_caught_oom(rank: RankResult) -> Message | None:
    # Where the program catches that there is no memory, and goes on: in simulation there always is some.
    curve, table, limit = rank.reading.report.curve, rank.reading.report.table, rank.verdict.limit
    if rank.verdict.outcome is not Fit.DOES_NOT_FIT or limit is None or rank.reading.peak_bytes <= limit.bytes:
        return None
    tick = int(curve.tick[int(np.argmax(curve.used > limit.bytes))])
    for frame in table.stack.value_at(int(curve.rows[int(np.argmax(table.start[curve.rows] == tick))])):
        if _FRAMEWORK in frame.file:
            return None
        if _catches_error(frame.file, frame.line):
            return msg("stages.command.caught", place=f"{frame.file}:{frame.line}", limit=mib(limit.bytes))
    return None


def _catches_error(file: str, line: int) -> bool:
    # Whether an exception of MindSpore's ends at this line: in a ``try`` with a handler that raises nothing itself.
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        for node in ast.walk(ast.parse("".join(linecache.getlines(file)))):
            if isinstance(node, ast.Try) and node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0):
                for handler in node.handlers:
                    names = (
                        {one.id for one in ast.walk(handler.type) if isinstance(one, ast.Name)}
                        if handler.type
                        else _CATCHING
                    )
                    if names & _CATCHING and not any(isinstance(one, ast.Raise) for one in ast.walk(handler)):
                        return True
    return False
