"""Simulate a command of the user's own (``ms-tune dryrun -- python train.py``) only through its environment."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ms_tune.dryrun.cann_sim.environment import Cann, find_mindspore, prepare_cann
from ms_tune.dryrun.command_result import CommandResult, RankResult
from ms_tune.dryrun.command_tasks import (
    CommandPart,
    check_request,
    name_of,
    rank_parts,
    run_tasks,
    tasks_of,
    without_ranks,
)
from ms_tune.dryrun.judge import derive_stage, record_stage
from ms_tune.dryrun.launcher import LOG, ProcessEnd
from ms_tune.dryrun.launchers.job import JobRank, JobStage, LaunchedJob, jobs_in
from ms_tune.dryrun.local_engine import connect_engine
from ms_tune.dryrun.machine import check_level
from ms_tune.dryrun.processes import ProgramProcess, killed_forks, outside_in, processes_of, unhooked_in
from ms_tune.dryrun.reading import check_end, disk_is_full, reading_of, see_log
from ms_tune.dryrun.request import CommandRequest, untraced_needs
from ms_tune.dryrun.result import Reading, SweepResult, VariantResult
from ms_tune.dryrun.rundir import create_run_folder, make_manifest, write_manifest, write_run_record
from ms_tune.dryrun.stack import defect_in
from ms_tune.dryrun.task import Observer, Task, child_of
from ms_tune.errors import MsTuneError, TraceError
from ms_tune.footprint.judgement import apply_program_cap, list_communicators, read_cap
from ms_tune.readers.folder import find_trace
from ms_tune.text import Message, msg
from ms_tune.units import mib
from ms_tune.verdict.limit import Cap
from ms_tune.verdict.outcome import judge
from ms_tune.verdict.run_record import RUN_FOLDER, RankRecord, RunRecord

_LONGEST = 120  # maximum characters of a process's command to show


def run_command(request: CommandRequest, observer: Observer) -> CommandResult:
    """Run a command in simulation, once for each rank, and read the traces that it leaves.

    Any exit code becomes the result's: a trace that was written before a failure is still read.
    """
    check_request(request)
    connect_engine(request.engine, observer)
    cann = cann_for(request, observer)
    folder = create_run_folder(request.run_folder, name_of(request.command))
    tasks = tasks_of(request)
    kept = _write_record(request, tasks[0], folder, cann)
    begin = time.monotonic()
    ends = run_tasks(request, tasks, folder, cann, observer)
    found = _CommandFindings(folder, kept)
    for task in tasks:
        _read_task(task, folder / task.folder, ends[task.folder], found)
    kept = found.record
    ranks = [_with_whole_stage(request, rank, found.runs, found.jobs) for rank in found.ranks]
    doubts = {
        str(rank.reading.trace.parent.relative_to(folder)): rank.verdict.no_verdict_because
        for rank in ranks
        if rank.verdict.no_verdict_because is not None
    }
    write_run_record(folder, replace(kept, ranks=_rank_records(request, ranks, folder), doubts=doubts))
    failed = [ended for ended in ends.values() if ended.code]
    failed += [part.ended for part in rank_parts(found.jobs, None) if part.ended.code]
    return CommandResult(
        folder=folder,
        command=request.command,
        backend=cann.backend,
        level=request.level,
        code=_exit_code(failed[0]) if failed else 0,
        ranks=tuple(ranks),
        problems=tuple(found.problems),
        seconds=time.monotonic() - begin,
        processes=tuple(found.processes),
        jobs=tuple(found.jobs),
    )


def sweep_command(requests: Sequence[CommandRequest], observer: Observer) -> SweepResult[CommandResult]:
    """Run variants of a command one after the other; a variant that cannot be started contains its error instead of a result."""
    check_request(requests[0])
    folder = create_run_folder(requests[0].run_folder, name_of(requests[0].command))
    variants: list[VariantResult[CommandResult]] = []
    first = None
    for number, request in enumerate(requests, start=1):
        observer.say(
            msg("launch.variant", number=number, count=len(requests), settings=", ".join(map(str, request.settings)))
        )
        try:
            result = run_command(request._replace(run_folder=folder / f"variant_{number}"), observer)
            variants.append(VariantResult(request.settings, result, None))
        except MsTuneError as error:
            first = first or error
            variants.append(VariantResult(request.settings, None, error))
    if first is not None and all(variant.result is None for variant in variants):
        raise first
    return SweepResult(folder, tuple(variants))


def cann_for(request: CommandRequest, observer: Observer) -> Cann:
    """Return the CANN (real or stand-ins) for the MindSpore that a command's Python imports."""
    cann = prepare_cann(find_mindspore(request.python), observer.say)
    check_level(request.level, cann)
    return cann


def _write_record(request: CommandRequest, first: Task, folder: Path, cann: Cann) -> RunRecord:
    child = child_of(first, folder / first.folder, cann)
    facts = {"backend": cann.backend.value, "simulation_level": request.level}
    write_manifest(folder, make_manifest(list(request.command), child.environment, facts))
    kept = RunRecord(request.chip, request.device_bytes, untraced_needs(request))
    write_run_record(folder, replace(kept, doubts={RUN_FOLDER: msg("verdict.none.unfinished")}))
    return kept


@dataclass(slots=True)
class _CommandFindings:
    """The findings about a command's processes, collected task by task."""

    folder: Path  # of the run
    record: RunRecord  # the record by which the traces are judged, written for other commands
    ranks: list[RankResult] = field(default_factory=list)
    runs: list[_SmallRun] = field(default_factory=list)
    problems: list[tuple[Message, Message]] = field(default_factory=list)
    processes: list[ProgramProcess] = field(default_factory=list)
    jobs: list[LaunchedJob] = field(default_factory=list)

    def record_limits(self, processes: Sequence[ProgramProcess]) -> None:
        """Record the memory limits that programs request, before their traces are judged."""
        requested = {
            str(one.folder.relative_to(self.folder)): one.requested_bytes
            for one in processes
            if one.requested_bytes is not None
        }
        self.record = replace(self.record, requested_bytes={**self.record.requested_bytes, **requested})
        write_run_record(self.folder, self.record)


def _read_task(task: Task, here: Path, ended: ProcessEnd, found: _CommandFindings) -> None:
    launched = jobs_in(here) if task.launched is not None else ()
    for part in (CommandPart(here, ended, launched=bool(launched)), *rank_parts(launched, ended)):
        own = processes_of(part.folder)
        found.record_limits(own)
        readings, unread = _read_traces(part)
        wrong = [
            (part.name_problem(problem), defect_in(str(problem)) or where)
            for problem, where in _find_problems(part, task, own, readings, unread)
        ]
        if part.rank is None or not part.rank.run:  # further runs of a rank are only used to derive its stage
            found.ranks += _judge_readings(readings, own, [problem for problem, _ in wrong], part)
        if part.rank is not None and part.job is not None:
            found.runs.append(_SmallRun(part.job, part.rank, tuple(readings)))
        found.problems += wrong
        found.processes += own
    found.problems += without_ranks(launched, here)
    found.jobs += launched


def _exit_code(ended: ProcessEnd) -> int:
    # As in shells: 128 plus the signal's number for a program that a signal ended; 124 after a timeout.
    if ended.timed_out:
        return 124
    return ended.code if ended.code >= 0 else 128 - ended.code


def _read_traces(part: CommandPart) -> tuple[list[Reading], list[tuple[Message, Message]]]:
    # Return every trace below a process's folder, since the command may have started further processes, and why others
    # are not read.
    try:
        traces = find_trace(part.folder).ranks
    except MsTuneError:
        return [], []
    found: list[Reading] = []
    unread: list[tuple[Message, Message]] = []
    for files in traces:
        if part.launched and files.blocks.relative_to(part.folder).parts[0].startswith("job_"):
            continue  # the trace of a launched rank, which is read with that rank
        try:
            found.append(reading_of(part.folder, files, part.ended.seconds))
        except TraceError as error:
            unread.append((error.message, see_log(part.folder)))
        except MsTuneError:  # a run on the CPU, whose trace is only a header
            pass
    return found, unread


def _judge_readings(
    readings: Sequence[Reading], processes: Sequence[ProgramProcess], problems: Sequence[Message], part: CommandPart
) -> Iterator[RankResult]:
    # Yield the traces with their verdicts. If the command failed, its memory is shown without a verdict: it may have been about
    # to allocate more. The same applies if a process did not log its memory use, since then the trace may be incomplete.
    for reading in readings:
        verdict, log = reading.report.verdict, reading.report.log
        doubts = list(problems)
        if log is None or log.statistics is None:
            doubts.append(msg("stages.command.no-statistics"))
        if doubts:
            verdict = verdict._replace(outcome=None, no_verdict_because=doubts[0])
        places = (reading.trace.parent, reading.trace.parent.parent)
        process = next((one for one in processes if one.folder in places), None)
        rank = reading.report.rank
        number = part.rank.rank if part.rank is not None and rank is None else rank
        yield RankResult(rank=number, reading=reading, verdict=verdict, process=process, stage=part.stage, job=part.job)


def _find_problems(
    part: CommandPart,
    task: Task,
    processes: Sequence[ProgramProcess],
    readings: Sequence[Reading],
    unread: Sequence[tuple[Message, Message]],
) -> list[tuple[Message, Message]]:
    folder, ended = part.folder, part.ended
    found = _find_unwatched(folder, processes)
    if part.launched and not ended.code and not ended.timed_out and not processes:
        return found  # the ranks that its launchers started are checked one by one
    traced = {place for reading in readings for place in (reading.trace.parent, reading.trace.parent.parent)}
    untraced = [one for one in processes if one.ended and one.allocated and one.folder not in traced and not unread]
    unwritten = not readings or untraced or not all(one.ended for one in processes)
    if not ended.code and unwritten and disk_is_full(folder):
        found.append((msg("dryrun.run.disk-full", folder=folder), see_log(folder)))
    elif not ended.code:
        found += [
            (msg("stages.command.killed", pid=one.pid, command=shlex.join(one.arguments)[:_LONGEST]), see_log(folder))
            for one in processes
            if not one.ended and one.endless is None
        ]
        found += [
            (msg("stages.command.untraced", pid=one.pid, size=mib(one.allocated)), see_log(folder)) for one in untraced
        ]
    if ended.code or ended.timed_out:
        try:
            check_end(folder, ended, task.timeout)
        except MsTuneError as error:
            found.append((error.message, error.hint or see_log(folder)))
    elif unread and not found:
        found += unread
    elif not readings and processes and not found:
        found.append((msg("stages.command.no-device"), msg("stages.command.no-device.hint", log=folder / LOG)))
    elif not readings and not processes and not found:
        found.append((msg("stages.command.no-mindspore"), msg("stages.command.no-mindspore.hint", log=folder / LOG)))
    return found


def _find_unwatched(folder: Path, processes: Sequence[ProgramProcess]) -> list[tuple[Message, Message]]:
    found: list[tuple[str, dict[str, object]]] = []
    found += [("endless", {"place": str(one.endless)}) for one in processes if one.endless is not None]
    found += [("skipped", {"place": str(one.skipped)}) for one in processes if one.skipped is not None]
    found += [("forked", {"pid": one.pid, "size": mib(one.forked_bytes)}) for one in processes if one.forked_bytes]
    found += [("fork-killed", {"pid": pid, "parent": one.pid}) for one, pid in killed_forks(processes)]
    found += [("outside", {"pid": pid, "command": command[:_LONGEST]}) for pid, command in outside_in(folder)]
    if processes:
        found += [("unhooked", {"pid": pid}) for pid in unhooked_in(folder, processes)]
    return [(msg(f"stages.command.{text}", **params), msg(f"stages.command.{text}.hint")) for text, params in found]


@dataclass(frozen=True, slots=True)
class _SmallRun:
    """A run of a rank with fewer layers than its stage has, and its traces."""

    job: int
    rank: JobRank
    readings: tuple[Reading, ...]


def _with_whole_stage(
    request: CommandRequest, rank: RankResult, runs: Sequence[_SmallRun], jobs: Sequence[LaunchedJob]
) -> RankResult:
    job = next((job for job in jobs if job.number == rank.job), None)
    own = [one for one in runs if one.job == rank.job and one.rank.rank == rank.rank]
    if job is None or not own or rank.rank is None:
        return rank
    stage = next((one for one in job.stages if one.rank == rank.rank), JobStage(rank.rank, None))
    sized = replace(rank, layers=own[0].rank.layers or None, full_layers=stage.layers)
    whole = stage.factors and stage.layers is not None and len(stage.factors) == len(own)
    sound = rank.verdict.no_verdict_because is None and all(not one.rank.code and len(one.readings) == 1 for one in own)
    if not whole or stage.layers is None or not sound:
        return sized
    sizes = [(one.rank.layers, one.rank.kinds) for one in own]
    found = derive_stage(stage.layers, sizes, stage.factors, [one.readings[0] for one in own])
    verdict = rank.verdict
    if verdict.limit is not None:
        report = rank.reading.report
        groups = list_communicators(report.collectives, report.log, report.rank)
        verdict = judge(found.need, verdict.limit, untraced_needs(request).with_groups(groups))
    return replace(sized, extrapolation=found, verdict=verdict)


def _rank_records(request: CommandRequest, ranks: Sequence[RankResult], folder: Path) -> Mapping[str, RankRecord]:
    # Return the data that other commands need for the same verdicts about derived stages, by the folders of their ranks.
    kept = {}
    for rank in ranks:
        whole, report = rank.extrapolation, rank.reading.report
        if whole is None or rank.layers is None:
            continue
        statistics = report.log.statistics if report.log is not None else None
        asked = rank.process.requested_bytes if rank.process is not None else None
        cap = read_cap(apply_program_cap(statistics, asked)) if statistics is not None and statistics.used_mib else None
        outside = untraced_needs(request).with_groups(list_communicators(report.collectives, report.log, report.rank))
        place = str(rank.reading.trace.parent.relative_to(folder))
        kept[place] = record_stage(RankRecord(cap, Cap.SCRIPT, outside), whole, folder)
    return kept
