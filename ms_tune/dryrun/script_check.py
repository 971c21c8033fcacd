"""``ms-tune dryrun --check SCRIPT``: what a launch script's programs would find, and whether they come as far as their first step."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.dryrun.command import cann_for
from ms_tune.dryrun.command_tasks import check_request, run_tasks, tasks_of, without_ranks
from ms_tune.dryrun.command_tasks import rank_parts as ranks_of
from ms_tune.dryrun.launchers.job import jobs_in
from ms_tune.dryrun.processes import processes_of
from ms_tune.dryrun.reading import check_end
from ms_tune.dryrun.stack import (
    Documented,
    StackPart,
    differing_parts,
    documented_set,
    find_refusals,
    missing_parts,
    parts_of,
)
from ms_tune.errors import MsTuneError
from ms_tune.facts.query import load
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dryrun.launcher import ProcessEnd
    from ms_tune.dryrun.launchers.arguments import OptionChange
    from ms_tune.dryrun.launchers.job import LaunchedJob, LauncherLook
    from ms_tune.dryrun.request import CommandRequest
    from ms_tune.dryrun.task import Observer
    from ms_tune.text import Message


@dataclass(frozen=True, slots=True)
class JobCheck:
    """What the program of one job would find."""

    job: LaunchedJob  # what its launcher was told
    look: LauncherLook | None  # where its Python finds what it needs; None if that Python did not answer
    parts: tuple[StackPart, ...]  # the parts of the stack, found or not
    megatron: bool  # the program takes Megatron's arguments, and so needs them all
    missing: tuple[str, ...]  # the parts that it needs and that were not found
    documented: Documented  # the documented set that goes with what was found
    unlike: tuple[tuple[StackPart, str], ...]  # parts of another release than that set has, with its release of them
    # Paths among its arguments in whose place something is made up, since they are not there.
    made_up: tuple[OptionChange, ...]


@dataclass(frozen=True, slots=True)
class ScriptCheck:
    """A script, as far as its first training step."""

    command: tuple[str, ...]  # what was run
    jobs: tuple[JobCheck, ...]  # the jobs that it starts
    # Why it would not come to a figure, each with what to do about it.
    problems: tuple[tuple[Message, Message | None], ...]


def check_script(request: CommandRequest, observer: Observer) -> ScriptCheck:
    """Run a script up to its launchers; of each job one rank imports what its program imports, and ends.

    Args:
        request: The script, and in which environment.
        observer: Told what is going on.

    Raises:
        MsTuneError: The command cannot be started, or this machine cannot simulate.
    """
    check_request(request)
    cann = cann_for(request, observer)
    with tempfile.TemporaryDirectory(prefix="ms-tune-") as place:
        folder = Path(place)
        asked = request._replace(look=True, stages=None, ranks=())
        (task,) = tasks_of(asked)
        here = folder / task.folder
        ended = run_tasks(asked, [task], folder, cann, observer)[task.folder]
        jobs = jobs_in(here)
        checked = tuple(map(_check_job, jobs))
        problems: list[tuple[Message, Message | None]] = [*without_ranks(jobs, here)]
        for one in checked:
            problems += _find_problems(one)
        for part in ranks_of(jobs, ended):
            problems += [
                (part.name_problem(reason), None) for reason in _why_failed(part.folder, part.ended, task.timeout)
            ]
        if not jobs:
            problems += [(reason, None) for reason in _why_failed(here, ended, task.timeout)]
        if not jobs and not problems:
            known = "alone" if processes_of(here) else "nothing"
            problems.append((msg(f"stack.{known}"), msg(f"stack.{known}.hint")))
    return ScriptCheck(request.command, checked, tuple(problems))


def _check_job(job: LaunchedJob) -> JobCheck:
    facts = load("launchers")["megatron"]
    folders = job.look.folders if job.look is not None else {}
    parts = parts_of(folders)
    wanted = documented_set(parts)
    paths = {*facts["tokenizer"], *facts["data"]}
    megatron = all(any(word.partition("=")[0] == name for word in job.arguments) for name in facts["known_by"])
    return JobCheck(
        job=job,
        look=job.look,
        parts=parts,
        megatron=megatron,
        missing=missing_parts(parts) if job.look is not None and megatron else (),
        documented=wanted,
        unlike=tuple(differing_parts(parts, wanted)),
        made_up=tuple(change for change in job.changes if change.key in paths and change.before is not None),
    )


def _find_problems(one: JobCheck) -> Iterator[tuple[Message, Message | None]]:
    if one.look is not None:
        yield from find_refusals(one.parts, one.look.folders)
    if one.missing:
        told = ", ".join(f"{name} {one.documented.parts.get(name, '')}".rstrip() for name in one.documented.parts)
        params = {"release": one.documented.release, "parts": told, "script": one.documented.script}
        yield msg("stack.missing", parts=", ".join(one.missing)), msg("stack.documented", **params)


def _why_failed(folder: Path, ended: ProcessEnd, timeout: float) -> Iterator[Message]:
    # Why a process failed, if it did; where its log lies is not told, since that is gone in a moment.
    try:
        check_end(folder, ended, timeout, level=0)
    except MsTuneError as error:
        yield error.message
