"""Define the result of a simulated command."""

from __future__ import annotations

import ast
import contextlib
import linecache
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ms_tune.dryrun.cann_sim.environment import Backend
from ms_tune.dryrun.launchers.job import LaunchedJob
from ms_tune.dryrun.processes import ProgramProcess, SourceOperation
from ms_tune.dryrun.result import JudgedTrace, TheoryCheck, compare_theory, unlike_theory
from ms_tune.text import Message, msg
from ms_tune.units import mib
from ms_tune.verdict.outcome import Fit, Verdict, no_verdict


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RankResult(JudgedTrace):
    """The result of one process of a command."""

    rank: int | None  # its rank; None if unknown
    process: ProgramProcess | None = None  # the record of the process itself; None if it could not write one
    stage: int | None = None  # its pipeline stage, if the rank was chosen by its stage
    job: int | None = None  # the number of the job that a launcher started it for
    layers: int | None = None  # layers of its stage in this run; None if unknown

    @property
    def theory(self) -> tuple[TheoryCheck, ...]:
        """Return the memory used from the first step to the last, compared with theory; empty if theory has no result."""
        model = self.process.model if self.process is not None else None
        return compare_theory(model.theory(), self.reading.contents) if model is not None else ()

    @property
    def footprint_bytes(self) -> int:
        """Return the footprint that the verdict is about; the upper end if only a range is known."""
        whole = self.extrapolation
        return whole.need.footprint_bytes if whole is not None else self.reading.footprint_bytes


@dataclass(frozen=True, slots=True, eq=False)
class CommandResult:
    """The result of a command of the user's own."""

    folder: Path  # where the run is stored
    command: tuple[str, ...]  # the command
    backend: Backend  # the libraries that the Ascend back end was loaded with
    level: int  # `MS_SIMULATION_LEVEL`
    code: int  # its exit code, or that of the first process that failed
    ranks: tuple[RankResult, ...]  # the traces of the command
    problems: tuple[tuple[Message, Message], ...]  # problems of its processes, and where to read more
    seconds: float  # how long it ran
    processes: tuple[ProgramProcess, ...] = ()  # its processes that imported MindSpore
    jobs: tuple[LaunchedJob, ...] = ()  # the jobs of its launchers

    @property
    def warnings(self) -> tuple[Message, ...]:
        """Return the reasons why the figures are less certain, each once, without those already listed as problems."""
        found = [warning for rank in self.ranks for warning in rank.reading.warnings]
        sound = [rank for rank in self.ranks if rank.verdict.no_verdict_because is None]
        for rank in sound:  # at the peak, gradients outside the buffers may be alive
            found += unlike_theory(pair for pair in rank.theory if pair.content != "gradients")
        found += [
            msg("launch.refused", launcher=job.launcher, problem=job.problem)
            for job in self.jobs
            if job.problem is not None
        ]
        for job in self.jobs:
            reasons = {str(stage.reason): stage.reason for stage in job.stages if stage.reason is not None}
            found += [msg("launch.layers.reason", reason=reason) for reason in reasons.values()]
            unsupported = ", ".join(job.untried_options)
            if unsupported and any(rank.code for rank in job.ranks):
                found.append(msg("launch.untold", options=unsupported))
        found += [warning for rank in self.ranks if (warning := _find_caught_oom(rank)) is not None]
        if any(rank.process is None for rank in self.ranks):
            found.append(msg("stages.command.unseen"))
        if not self.code:  # else the failure is a problem
            failed = [process for process in self.processes if process.failed]
            found += [msg("stages.command.failed-part", pid=one.pid, error=one.failed) for one in failed]
        reported = {str(problem) for problem, _ in self.problems}
        return tuple({text: warning for warning in found if (text := str(warning)) not in reported}.values())

    @property
    def reads(self) -> tuple[SourceOperation, ...]:
        """Return the places where programs read values, which simulation does not have."""
        return tuple(dict.fromkeys(place for process in self.processes for place in process.reads))

    @property
    def bounds(self) -> tuple[SourceOperation, ...]:
        """Return the places where programs use operators whose result sizes depend on values."""
        return tuple(dict.fromkeys(place for process in self.processes for place in process.bounds))

    @property
    def support(self) -> tuple[Message, ...]:
        """Return the changes to the programs' frameworks, each once."""
        return tuple({str(message): message for one in self.processes for message in one.support}.values())

    @property
    def worst(self) -> RankResult | None:
        """Return the rank with the worst verdict; among equals, the one that needs most."""
        return max(self.ranks, key=lambda rank: (rank.verdict.severity, rank.judged_bytes), default=None)

    @property
    def verdict(self) -> Verdict:
        """Return the verdict on the whole command: that of the worst rank; none if a rank or a process failed."""
        worst = self.worst
        if worst is None:
            reason = self.problems[0][0] if self.problems else msg("verdict.none.no-trace")
            return no_verdict(reason)
        if not self.problems or worst.verdict.outcome in (None, Fit.DOES_NOT_FIT):
            return worst.verdict
        return worst.verdict._replace(outcome=None, no_verdict_because=self.problems[0][0])


# MindSpore raises the first of them if memory is exhausted.
_CATCHING = {"RuntimeError", "Exception", "BaseException", "MemoryError"}
_FRAMEWORK = "-packages/mindspore/"  # frames of its handlers follow those of the program


def _find_caught_oom(rank: RankResult) -> Message | None:
    # Find a place where the program catches out-of-memory errors and continues: in simulation they never occur.
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
    # Return whether an exception of MindSpore ends at this line: in a ``try`` with a handler that does not raise.
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
