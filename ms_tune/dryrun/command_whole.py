"""Whole stages of launched programs, derived from ranks that ran with fewer layers, and the verdict about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ms_tune.dryrun.limits import outside_of
from ms_tune.verdict.limit import Cap
from ms_tune.verdict.outcome import judge
from ms_tune.verdict.run_record import RankRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ms_tune.dryrun.command_result import RankResult
    from ms_tune.dryrun.launchers.job import JobRank, LaunchedJob
    from ms_tune.dryrun.request import CommandRequest
    from ms_tune.dryrun.result import Reading


@dataclass(frozen=True, slots=True)
class SmallRun:
    """A run of a rank with fewer layers than its stage has, and what it left."""

    job: int
    rank: JobRank
    readings: tuple[Reading, ...]


def with_whole(
    request: CommandRequest, rank: RankResult, runs: Sequence[SmallRun], jobs: Sequence[LaunchedJob]
) -> RankResult:
    """A rank with its first run; that of a derived stage with the whole stage and the verdict about it.

    Args:
        request: What the user asks for.
        rank: The rank.
        runs: All runs of all stages.
        jobs: The jobs.
    """
    from ms_tune.dryrun.judge import derived  # noqa: PLC0415 - it needs numpy
    from ms_tune.footprint.judgement import communicators_in  # noqa: PLC0415 - as above

    job = next((job for job in jobs if job.number == rank.job), None)
    own = [one for one in runs if one.job == rank.job and one.rank.rank == rank.rank]
    if job is None or not own or rank.rank is None:
        return rank
    stage = job.stage_of(rank.rank)
    sized = replace(rank, layers=own[0].rank.layers or None, full_layers=stage.layers)
    whole = stage.factors and stage.layers is not None and len(stage.factors) == len(own)
    sound = rank.verdict.no_verdict_because is None and all(not one.rank.code and len(one.readings) == 1 for one in own)
    if not whole or stage.layers is None or not sound:
        return sized
    sizes = [(one.rank.layers, one.rank.kinds) for one in own]
    found = derived(stage.layers, sizes, stage.factors, [one.readings[0] for one in own])
    verdict = rank.verdict
    if verdict.limit is not None:
        report = rank.reading.report
        groups = communicators_in(report.collectives, report.log, report.rank)
        verdict = judge(found.need, verdict.limit, outside_of(request).with_groups(groups))
    return replace(sized, extrapolation=found, verdict=verdict)


def kept_of(request: CommandRequest, ranks: Sequence[RankResult], folder: Path) -> Mapping[str, RankRecord]:
    """What other commands need for the same verdicts about derived stages, by the folders of their ranks."""
    from ms_tune.footprint.judgement import as_asked, cap_in, communicators_in  # noqa: PLC0415 - it needs numpy

    kept = {}
    for rank in ranks:
        whole, report = rank.extrapolation, rank.reading.report
        if whole is None or rank.layers is None:
            continue
        statistics = report.log.statistics if report.log is not None else None
        asked = rank.process.asked_bytes if rank.process is not None else None
        cap = cap_in(as_asked(statistics, asked)) if statistics is not None and statistics.used_mib else None
        outside = outside_of(request).with_groups(communicators_in(report.collectives, report.log, report.rank))
        place = str(rank.reading.trace.parent.relative_to(folder))
        kept[place] = RankRecord(cap, Cap.SCRIPT, outside, rank.layers, whole.layers, whole.need)
    return kept
