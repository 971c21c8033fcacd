"""``ms-tune dryrun -- python train.py``: a command of the user's own, simulated by its environment alone."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.dryrun.backend import check_level, real_cann
from ms_tune.dryrun.cann_sim.environment import Cann, find_mindspore, prepare_cann
from ms_tune.dryrun.engines.choice import engine_for, reach
from ms_tune.dryrun.launched import Part, in_job, parts_of, without_ranks
from ms_tune.dryrun.launcher import LOG, Ended
from ms_tune.dryrun.launchers.job import jobs_in
from ms_tune.dryrun.launchers.programs import Wanted, programs
from ms_tune.dryrun.leftovers import collect, names_in
from ms_tune.dryrun.machine import cores, jobs
from ms_tune.dryrun.processes import processes_of
from ms_tune.dryrun.reading import check_end, disk_is_full, reading_of, see_log
from ms_tune.dryrun.result import CommandResult, RankResult
from ms_tune.dryrun.rundir import create_run_folder, manifest, told_where, write_kept, write_manifest
from ms_tune.dryrun.start import child_of
from ms_tune.dryrun.task import Task
from ms_tune.errors import MsTuneError, UsageError
from ms_tune.texts import msg
from ms_tune.trace.folder import find_trace
from ms_tune.units import GIB
from ms_tune.verdict.kept import OWN, Kept

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.dryrun.launchers.job import Job
    from ms_tune.dryrun.processes import Process
    from ms_tune.dryrun.request import CommandRequest
    from ms_tune.dryrun.result import Reading
    from ms_tune.dryrun.task import Observer
    from ms_tune.texts import Message

_HOST_BYTES = GIB  # of a process that nobody knows
_LONGEST = 120  # characters of a process's command that are shown


def run_command(request: CommandRequest, observer: Observer) -> CommandResult:
    """Run a command in simulation, once for each rank, and read the traces that it leaves.

    Its exit code is the result's, whatever it is: a trace that was written before a failure is read all the same.

    Raises:
        MsTuneError: The command cannot be started, or this machine cannot simulate.
    """
    size = request.devices or _from_environment("RANK_SIZE") or 1
    if shutil.which(request.command[0]) is None and (request.real or not request.starts_launcher):
        raise UsageError(msg("stages.command.absent", program=request.command[0]))
    outside = [rank for rank in request.ranks if rank >= size]
    if outside and not request.launches:
        raise UsageError(msg("dryrun.ranks", rank=outside[0], size=size))
    reach(request.engine, observer)
    cann = _cann(request, observer)
    folder = create_run_folder(request.run_folder, _name(request.command))
    tasks = [
        _task(request, rank, size) for rank in dict.fromkeys(request.ranks or (_from_environment("RANK_ID") or 0,))
    ]
    ends: dict[str, Ended] = {}
    child = child_of(tasks[0], folder / tasks[0].folder, cann)
    facts = {"backend": cann.backend.value, "simulation_level": None if request.real else request.level}
    write_manifest(folder, manifest(list(request.command), child.environment, facts))
    from ms_tune.dryrun.judge import outside_of  # noqa: PLC0415 - it needs numpy

    kept = Kept(request.chip, request.device_bytes, outside_of(request))
    write_kept(folder, replace(kept, doubts={OWN: msg("verdict.none.unfinished")}))

    def end(task: Task, ended: Ended) -> None:
        observer.end(task, ended)
        ends[task.folder] = ended

    observer.begin(tasks)
    begin, before = time.monotonic(), names_in(Path.cwd())
    try:
        with told_where(folder, observer):
            engine_for(request.engine, tasks, cann, request.jobs).run(tasks, folder, observer.state, end)
    finally:
        collect(Path.cwd(), before, folder)
    write_kept(folder, kept)  # for those who read the traces now
    ranks: list[RankResult] = []
    problems: list[tuple[Message, Message]] = []
    processes: list[Process] = []
    launched_jobs: list[Job] = []
    for task in tasks:
        here, ended = folder / task.folder, ends[task.folder]
        launched = jobs_in(here) if task.launched is not None else ()
        for part in (Part(here, ended, launched=bool(launched)), *parts_of(launched, ended)):
            own = processes_of(part.folder)
            readings = _readings(part)
            wrong = [(part.named(problem), where) for problem, where in _problems(part, task, own, readings)]
            ranks += _judged(readings, own, [problem for problem, _ in wrong], part)
            problems += wrong
            processes += own
        problems += without_ranks(launched, here)
        launched_jobs += launched
    write_kept(folder, replace(kept, doubts=_doubts(folder, ranks)))
    failed = [ended for ended in ends.values() if ended.code]
    failed += [part.ended for part in parts_of(launched_jobs, None) if part.ended.code]
    return CommandResult(
        folder=folder,
        command=request.command,
        backend=cann.backend,
        level=None if request.real else request.level,
        code=_exit_code(failed[0]) if failed else 0,
        ranks=tuple(ranks),
        problems=tuple(problems),
        seconds=time.monotonic() - begin,
        processes=tuple(processes),
        jobs=tuple(launched_jobs),
    )


def _cann(request: CommandRequest, observer: Observer) -> Cann:
    if request.real:
        return real_cann()
    cann = prepare_cann(find_mindspore(request.python), observer.say)
    check_level(request.level, cann)
    return cann


def _name(command: Sequence[str]) -> str:
    """What a run is called: its script, or its program."""
    return next((word for word in command if word.endswith(".sh")), command[0])


def _from_environment(name: str) -> int | None:
    """A variable from which MindSpore reads the size of the job, or the rank."""
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _task(request: CommandRequest, rank: int, size: int) -> Task:
    at_once = jobs([_HOST_BYTES] * cores(), request.jobs) if request.engine == "local" and not request.ranks else 1
    wanted = Wanted(
        stages=request.stages,
        ranks=(rank,) if request.ranks else (),
        devices=request.devices,
        jobs=at_once,
        python=request.python,
        settings=request.settings,
    )
    return Task(
        folder="script" if request.launches and not request.ranks else f"rank_{rank}",
        files={},
        arguments=(),
        rank=rank,
        world_size=size,
        level=request.level,
        timeout=request.timeout,
        host_bytes=_HOST_BYTES,
        stage=0,
        layers=0,
        command=request.command,
        working_folder=str(Path.cwd()),
        real=request.real,
        programs={} if request.real else programs(),
        launched=None if request.real else asdict(wanted),
    )


def _exit_code(ended: Ended) -> int:
    """As shells tell it: 128 and the signal's number for a program that a signal ended; 124 for one whose time was up."""
    if ended.timed_out:
        return 124
    return ended.code if ended.code >= 0 else 128 - ended.code


def _readings(part: Part) -> list[Reading]:
    """Every trace below a process's folder: the command may have started processes of its own."""
    try:
        traces = find_trace(part.folder).ranks
    except MsTuneError:
        return []
    found = []
    for files in traces:
        if part.launched and in_job(files.blocks, part.folder):
            continue  # read with its rank
        with contextlib.suppress(MsTuneError):  # such as a run on the CPU, which leaves no more than a header
            found.append(reading_of(part.folder, files, part.ended.seconds))
    return found


def _judged(
    readings: Sequence[Reading], processes: Sequence[Process], problems: Sequence[Message], part: Part
) -> Iterator[RankResult]:
    """The traces with their verdicts.

    Where the command went wrong, what it allocated is shown, and judged by nobody: it may have been about to allocate
    more. Nor is a trace whose process did not log how much it used, since nothing tells that the trace is whole.
    """
    for reading in readings:
        verdict, log = reading.report.verdict, reading.report.log
        doubts = list(problems)
        if log is None or log.statistics is None:
            doubts.append(msg("stages.command.no-statistics"))
        if doubts:
            verdict = replace(verdict, outcome=None, no_verdict_because=doubts[0])
        places = (reading.trace.parent, reading.trace.parent.parent)
        process = next((one for one in processes if one.folder in places), None)
        rank = reading.report.rank
        told = part.rank.rank if part.rank is not None and rank is None else rank
        yield RankResult(told, reading, verdict, process, part.stage, part.job)


def _doubts(folder: Path, ranks: Sequence[RankResult]) -> dict[str, Message]:
    """Why traces are not judged, by their folders."""
    return {
        str(rank.reading.trace.parent.relative_to(folder)): rank.verdict.no_verdict_because
        for rank in ranks
        if rank.verdict.no_verdict_because is not None
    }


def _problems(
    part: Part, task: Task, processes: Sequence[Process], readings: Sequence[Reading]
) -> list[tuple[Message, Message]]:
    """What is wrong with a command's processes, and where to read more; with any of it there is no verdict."""
    folder, ended = part.folder, part.ended
    if part.launched and not ended.code and not ended.timed_out and not processes:
        return []  # what its launchers started is looked at rank by rank
    found = [
        (msg("stages.command.endless", place=str(process.endless)), msg("stages.command.endless.hint"))
        for process in processes
        if process.endless is not None
    ]
    unwritten = not readings or not all(one.ended for one in processes)
    if not ended.code and unwritten and disk_is_full(folder):
        found.append((msg("dryrun.run.disk-full", folder=folder), see_log(folder)))
    elif not ended.code:
        found += [
            (msg("stages.command.killed", pid=one.pid, command=shlex.join(one.arguments)[:_LONGEST]), see_log(folder))
            for one in processes
            if not one.ended and one.endless is None
        ]
    if ended.code or ended.timed_out:
        try:
            check_end(folder, ended, task.timeout)
        except MsTuneError as error:
            found.append((error.message, error.hint or see_log(folder)))
    elif not readings and processes and not found:
        found.append((msg("stages.command.no-device"), msg("stages.command.no-device.hint", log=folder / LOG)))
    elif not readings and not processes and not found:
        found.append((msg("stages.command.no-mindspore"), msg("stages.command.no-mindspore.hint", log=folder / LOG)))
    return found
