"""What a command's launchers started, as parts of the command that are read one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.dryrun.launcher import LOG, ProcessEnd
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from ms_tune.dryrun.launchers.job import JobRank, LaunchedJob
    from ms_tune.text import Message

_LOST = -9  # the exit code of a rank that was ended with its launcher


@dataclass(frozen=True, slots=True)
class CommandPart:
    """A command's own process, or a rank that one of its launchers started."""

    folder: Path  # where its log and its traces are
    ended: ProcessEnd  # how it ended
    launched: bool = False  # it launched jobs, whose ranks are parts of their own
    rank: JobRank | None = None  # the rank; None for the command's own process
    job: int | None = None  # the number of the rank's job

    @property
    def stage(self) -> int | None:
        """The rank's pipeline stage, if it was chosen by that."""
        return self.rank.stage if self.rank is not None else None

    def named(self, problem: Message) -> Message:
        """What is wrong with it, with the rank's name before it."""
        if self.rank is None:
            return problem
        kind = "launch.rank" if self.stage is None else "launch.stage"
        return msg(kind, job=self.job, rank=self.rank.rank, stage=self.stage, problem=problem)


def parts_of(jobs: Iterable[LaunchedJob], command: ProcessEnd | None) -> Iterator[CommandPart]:
    """The ranks of jobs that came to be started.

    Args:
        jobs: The jobs.
        command: How the command itself ended; None where nobody asks for ranks that it took with it.
    """
    for job in jobs:
        for rank in job.ranks:
            timed_out = rank.code is None and command is not None and command.timed_out
            code = rank.code if rank.code is not None else _LOST
            if (rank.folder / LOG).is_file():
                yield CommandPart(rank.folder, ProcessEnd(code, rank.seconds, timed_out), rank=rank, job=job.number)


def without_ranks(jobs: Sequence[LaunchedJob], folder: Path) -> list[tuple[Message, Message]]:
    """Why nothing was simulated, if launchers were called and none of them came to start a rank."""
    if not jobs or any(job.ranks for job in jobs):
        return []
    last = jobs[-1]
    problem = msg("launch.refused", launcher=last.launcher, problem=last.problem or "")
    return [(problem, last.hint or msg("dryrun.run.log", log=folder / LOG))]


def in_job(trace: Path, folder: Path) -> bool:
    """Whether a trace below a command's folder is one of a launched rank."""
    return trace.relative_to(folder).parts[0].startswith("job_")
