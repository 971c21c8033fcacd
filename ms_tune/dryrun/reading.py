"""Read the output of one simulated process, or report in one sentence why it is missing."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ms_tune.dryrun.command_result import CommandResult
from ms_tune.dryrun.job import JOB_FILE
from ms_tune.dryrun.launcher import LOG, ProcessEnd, too_long
from ms_tune.dryrun.result import DryrunResult, PhasePeak, Reading, StageResult
from ms_tune.errors import RunError
from ms_tune.footprint.findings import compare_findings
from ms_tune.footprint.phases import Phase
from ms_tune.footprint.report import MemoryRequest, analyse_rank, number_stages
from ms_tune.footprint.result import MemoryReport, RankReport
from ms_tune.footprint.steps import find_phase_peaks
from ms_tune.readers.folder import BLOCKS, RankFiles, find_trace
from ms_tune.readers.log_errors import is_of_mindspore
from ms_tune.readers.runtime_log import RuntimeLog, read_runtime_log
from ms_tune.text import Message, msg
from ms_tune.units import MIB

_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded|\[Errno (?:28|122)\]|File too large")
_LITTLE = 1 * MIB  # bytes left on a full disk
_PROGRESS = "progress"  # the process's file with its current action (child/common.py)
_WITH_REFERENCE = ("mindspeed", "pynative")  # jobs of frameworks that --reference can replace
_LAST_LINES = 3  # shown from a log without an error
_END = 64 * 1024  # bytes at its end that are searched


def check_end(folder: Path, ended: ProcessEnd, timeout: float, *, level: int = 1) -> None:
    """Raise :class:`RunError` unless the process ended successfully.

    A process that crashed may still have written a trace, and a failed training may exit with 0: a run can only be judged with
    both exit code 0 and MindSpore's statistics in the log. At level 0, which only compiles, statistics are not needed.
    """
    if ended.timed_out:
        raise too_long(timeout)
    log = read_runtime_log(folder / LOG)
    if ended.code == 0 and (log.statistics is not None or not level):
        return
    if disk_is_full(folder, log, ended.code):
        raise RunError(msg("dryrun.run.disk-full", folder=folder), see_log(folder))
    if ended.code == 0:
        raise RunError(msg("dryrun.run.no-statistics", reason=_last_words(folder, log)), see_log(folder))
    if ended.code < 0:
        params = {"signal": _signal_name(-ended.code), "code": ended.code}
        raise RunError(msg("dryrun.run.signal", **params, reason=_last_words(folder, log)), see_log(folder))
    raise RunError(msg("dryrun.run.failed", code=ended.code, reason=_last_words(folder, log)), see_log(folder))


def see_log(folder: Path) -> Message:
    """Return a hint with the log's location, and further remedies."""
    kind = _read_value(folder / JOB_FILE, "kind")
    if kind in _WITH_REFERENCE:
        return msg("reference.run.log", log=folder / LOG)
    if kind == "mindformers" and _read_value(folder / _PROGRESS, "phase") == "build":
        return msg("dryrun.run.log.build", log=folder / LOG)
    return msg("dryrun.run.log", log=folder / LOG)


def _read_value(file: Path, key: str) -> object:
    try:
        return json.loads(file.read_text(encoding="utf-8")).get(key)
    except (OSError, ValueError, AttributeError, RecursionError):
        return None


def read_rank(folder: Path, rank: int | None, seconds: float) -> Reading:
    """Read the trace in a process's folder."""
    (files,) = find_trace(_find_trace(folder, rank)).ranks
    return reading_of(folder, files, seconds)


def reading_of(folder: Path, files: RankFiles, seconds: float) -> Reading:
    """Read the files of one rank."""
    # Launches are not needed here, and their file is as long as the trace.
    files = replace(files, tasks=None)
    report = analyse_rank(files, MemoryRequest(with_graph=False), lambda _: None)
    if not report.curve.peak_bytes:
        raise RunError(msg("dryrun.run.empty-trace"), msg("dryrun.run.empty-trace.hint", log=folder / LOG))
    return Reading(
        folder=folder,
        trace=files.blocks,
        report=report,
        phase_peaks=_phase_peaks(report),
        seconds=seconds,
        warnings=_find_disagreements(report),
    )


def _find_trace(folder: Path, rank: int | None) -> Path:
    # Find the tracker's file: in the folder, or one level down with communication (MindSpore's rule).
    found = [path for path in (folder / BLOCKS, *sorted(folder.glob(f"rank_*/{BLOCKS}"))) if path.is_file()]
    if len(found) != 1:
        raise RunError(msg("dryrun.run.no-trace", count=len(found)), see_log(folder))
    below = found[0].parent
    if rank is not None and below != folder and below.name != f"rank_{rank}":
        raise RunError(msg("dryrun.run.other-rank", rank=rank, folder=below.name), see_log(folder))
    return found[0]


def disk_is_full(folder: Path, log: RuntimeLog | None = None, code: int = 0) -> bool:
    """Return whether output could not be written for lack of disk space, by exit code, log, or free space."""
    log = read_runtime_log(folder / LOG) if log is None else log
    if code == -signal.SIGXFSZ or _DISK_FULL.search(log.last_error or ""):
        return True
    return shutil.disk_usage(folder).free < _LITTLE


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _last_words(folder: Path, log: RuntimeLog) -> Message | str:
    # Return the last error, after the program's own line that raised it, or the last lines of a log without an error. Lines
    # that MindSpore writes at its end come after them, and are skipped.
    if log.last_error:
        return f"{log.raised_at}: {log.last_error}" if log.raised_at else log.last_error
    with (folder / LOG).open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - _END))
        lines = [line.strip()[:200] for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    own = [line for line in lines if not is_of_mindspore(line)]
    if not own:
        return msg("dryrun.run.silent")
    return msg("dryrun.run.last-lines", lines="\n".join(own[-_LAST_LINES:]))


def _phase_peaks(report: RankReport) -> Mapping[Phase | None, PhasePeak]:
    curve = report.curve
    # Every moment must belong to a phase here, so that each can be derived from runs with fewer layers.
    found = find_phase_peaks(curve, report.table, report.contents.phases.guessed_codes)
    return {phase: PhasePeak(*peak) for phase, peak in found.items()} or {
        None: PhasePeak(curve.peak_bytes, curve.peak_tick)
    }


def _find_disagreements(report: RankReport) -> tuple[Message, ...]:
    # Report disagreements: MindSpore counts the same memory by two other methods, and the child listed its tensors.
    peak, table, log = report.curve.peak_bytes, report.table, report.log
    found = []
    if log is not None and log.statistics is not None and log.statistics.peak_mib != peak // MIB:
        found.append(msg("dryrun.warning.log-differs", log=log.statistics.peak_mib, trace=peak // MIB))
    if log is not None and log.thread_error:
        found.append(msg("dryrun.warning.thread", error=log.thread_error))
    if len(report.curve.mismatches):
        found.append(msg("dryrun.warning.column-differs", rows=len(report.curve.mismatches)))
    if table.dropped_count or table.truncated:
        found.append(msg("dryrun.warning.dropped", rows=table.dropped_count))
    if report.host_bytes >= MIB:  # a program that only reads a few numbers does not offload
        found.append(msg("memory.offloaded", rows=report.host_rows, size=round(report.host_bytes / MIB)))
    if not report.contents.stacks_useful:
        found.append(msg("memory.stacks-useless"))
    if report.contents.tensors_missing:
        found.append(msg("memory.tensors-missing", missing=report.contents.tensors_missing))
    return tuple(found)


class _WorstFirst(MemoryReport):
    # Its ranks are in the order of their verdicts, which may be about more layers than were run.
    __slots__ = ()

    @property
    def worst(self) -> RankReport:
        return self.ranks[0]


@dataclass(frozen=True, slots=True, eq=False)
class JobReport:
    """A finished job read again for the browser, with number formats, launches and collectives, which verdicts do not need."""

    memory: MemoryReport  # its ranks, the worst first
    stages: tuple[StageResult, ...]  # their results, in the same order; empty for a command, whose stages are unknown
    omitted: int  # number of ranks that are omitted, because they need less


def job_report(result: DryrunResult | CommandResult, most: int) -> JobReport:
    """Read the stages of a job, or the ranks of a command, in full."""
    if isinstance(result, CommandResult):
        by_peak = sorted(result.ranks, key=lambda rank: (-rank.verdict.severity, -rank.reading.peak_bytes))
        ranks = [_in_full(one.reading, one.rank) for one in by_peak[:most]]
        return JobReport(_memory_report(result.folder, ranks, number_stages(ranks)), (), len(by_peak) - len(ranks))
    ordered = sorted(result.stages, key=lambda stage: (-stage.verdict.severity, -stage.judged_bytes))
    shown = ordered[:most]
    ranks = [_in_full(stage.reading, stage.run.rank) for stage in shown]
    memory = _memory_report(result.folder, ranks, [stage.run.stage for stage in shown])
    return JobReport(memory, tuple(shown), len(ordered) - len(shown))


def _in_full(reading: Reading, rank: int | None) -> RankReport:
    (files,) = find_trace(reading.trace).ranks
    return analyse_rank(replace(files, rank=rank), MemoryRequest(), lambda _: None)


def _memory_report(folder: Path, ranks: Sequence[RankReport], stages: Iterable[int | None]) -> MemoryReport:
    return _WorstFirst(folder, tuple(ranks), tuple(stages), compare_findings(ranks, stale=False))
