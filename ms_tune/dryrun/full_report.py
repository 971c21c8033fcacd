"""The ranks of a finished job read once more with all of their files, for the report of ``ms-tune memory``.

Verdicts need the blocks alone; a report for the browser shows number formats, launches and collectives as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ms_tune.dryrun.command_result import CommandResult
from ms_tune.footprint.findings import findings_between
from ms_tune.footprint.report import analyse_rank, stages_of
from ms_tune.footprint.request import MemoryRequest
from ms_tune.footprint.result import MemoryReport, RankReport
from ms_tune.readers.folder import find_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ms_tune.dryrun.result import DryrunResult, Reading, StageResult


class WorstFirst(MemoryReport):
    """A report whose ranks stand in the order of their verdicts, which may be about more layers than were run."""

    __slots__ = ()

    @property
    def worst(self) -> RankReport:
        """The first rank."""
        return self.ranks[0]


@dataclass(frozen=True, slots=True, eq=False)
class JobReport:
    """The report of a job."""

    memory: MemoryReport  # its ranks, the worst first
    stages: tuple[StageResult, ...]  # their results, in the same order; empty for a command, whose stages nobody knows
    left_out: int  # ranks that need less and are not in it


def job_report(result: DryrunResult | CommandResult, most: int) -> JobReport:
    """The stages of a job, or the ranks of a command.

    Args:
        result: A finished job that left traces.
        most: Ranks to show at most.

    Raises:
        TraceError: A trace cannot be read any more.
    """
    if isinstance(result, CommandResult):
        by_peak = sorted(result.ranks, key=lambda rank: (-rank.verdict.severity, -rank.reading.peak_bytes))
        ranks = [_in_full(one.reading, one.rank) for one in by_peak[:most]]
        return JobReport(_report(result.folder, ranks, stages_of(ranks)), (), len(by_peak) - len(ranks))
    ordered = sorted(result.stages, key=lambda stage: (-stage.verdict.severity, -stage.judged_bytes))
    shown = ordered[:most]
    ranks = [_in_full(stage.reading, stage.run.rank) for stage in shown]
    memory = _report(result.folder, ranks, [stage.run.stage for stage in shown])
    return JobReport(memory, tuple(shown), len(ordered) - len(shown))


def _in_full(reading: Reading, rank: int | None) -> RankReport:
    (files,) = find_trace(reading.trace).ranks
    return analyse_rank(replace(files, rank=rank), MemoryRequest(), lambda _: None)


def _report(folder: Path, ranks: Sequence[RankReport], stages: Iterable[int | None]) -> MemoryReport:
    return WorstFirst(folder, tuple(ranks), tuple(stages), findings_between(ranks, stale=False))
