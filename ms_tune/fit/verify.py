"""The plan's own dryrun, beside what the table foretold; where they differ the table learns it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ms_tune.dryrun.plan import plan as planned
from ms_tune.dryrun.request import StageChoice
from ms_tune.dryrun.run import dryrun
from ms_tune.normalize.sapp_lists import SappLists

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.dryrun.request import DryrunRequest
    from ms_tune.dryrun.result import DryrunResult
    from ms_tune.dryrun.task import Observer
    from ms_tune.fit.job import PlannedJob
    from ms_tune.planning.table import CostTable, PlanLists, Rows
    from ms_tune.verdict.outcome import Verdict

NEAR = 0.005  # of the dryrun's peak, that the table's may be off


@dataclass(frozen=True, slots=True)
class Verified:
    """A stage of a plan that was simulated."""

    stage: int
    predicted_bytes: int  # its peak by the table
    peak_bytes: int
    footprint_bytes: int  # with fragments
    verdict: Verdict  # whether it fits

    @property
    def error(self) -> float:
        """How much the table's peak is off, as a part of the peak; above zero where the table foretold more."""
        return (self.predicted_bytes - self.peak_bytes) / self.peak_bytes

    @property
    def needed_bytes(self) -> int:
        """All that the verdict compares with the limit: the peak, its fragments, what is set aside."""
        return self.footprint_bytes + self.verdict.reserve_bytes


def lists_of(job: PlannedJob, plan: PlanLists) -> SappLists:
    """A plan's lists as they are merged into the job's config: what it neither has nor is to have stays unsaid."""
    nothing = plan.recompute
    counts = tuple(map(tuple, job.now.placement or ()))
    base = job.layers // (job.stages * job.chunks)
    placed = tuple(tuple(base + more for more in row) for row in plan.offset)
    # With swap on the framework reads lists of recompute as layers' numbers: all are said where it is or was.
    swaps = bool(plan.swap) or any(layer.swap for layer in job.now.layers)
    selects = swaps or any(layer.select_patterns for layer in job.now.layers)
    communicates = swaps or any(layer.comm_patterns for layer in job.now.layers)
    return SappLists(
        _rows(plan.offset) if placed != counts or any(map(any, plan.offset)) else None,
        _rows(plan.recompute),
        _rows(plan.select_recompute) if selects or plan.select_recompute != nothing else None,
        _rows(plan.select_comm_recompute) if communicates or plan.select_comm_recompute != nothing else None,
        swap=_rows(plan.swap or tuple((0,) * job.stages for _ in range(job.chunks))) if swaps else None,
    )


def _rows(rows: Rows) -> list[list[int]]:
    return [list(row) for row in rows]


def worst_stages(job: PlannedJob, plan: PlanLists) -> tuple[int, ...]:
    """The stages of a plan that no other one outdoes.

    Raises:
        MsTuneError: The plan cannot be written into the config.
    """
    loaded = job.with_lists(lists_of(job, plan))
    return tuple(stage.run.stage for stage in planned(_whole(job, StageChoice.WORST), loaded).stages)


def simulated(job: PlannedJob, plan: PlanLists, stages: tuple[int, ...], observer: Observer) -> DryrunResult:
    """The dryrun of some stages of a plan, with all their layers and micro-batches.

    Raises:
        MsTuneError: The plan cannot be written into the config, or a process failed.
    """
    return dryrun(_whole(job, stages), observer, job.with_lists(lists_of(job, plan)))


def _whole(job: PlannedJob, stages: StageChoice | tuple[int, ...]) -> DryrunRequest:
    return replace(job.request, layers=None, fewest_layers=False, stages=stages)


def same_stage(one: PlanLists, other: PlanLists, stage: int) -> bool:
    """Whether a stage has the same layers in two plans, which do the same: then its dryruns show the same."""
    return one.offset == other.offset and _column(one, stage) == _column(other, stage)


def _column(plan: PlanLists, stage: int) -> tuple[tuple[int, ...], ...]:
    rows = (plan.recompute, plan.select_recompute, plan.select_comm_recompute, plan.swap)
    return tuple(tuple(row[stage] for row in every) for every in rows)


def beside(result: DryrunResult, predicted: Sequence[int]) -> tuple[Verified, ...]:
    """The simulated stages beside what was foretold.

    Args:
        result: The dryrun.
        predicted: The peak of every stage by the table.
    """
    found = []
    for stage in result.stages:
        need = stage.verdict.need
        peak = stage.judged_bytes
        footprint = need.footprint_bytes if need is not None else peak
        found.append(Verified(stage.run.stage, predicted[stage.run.stage], peak, footprint, stage.verdict))
    return tuple(found)


def corrected(table: CostTable, verified: Sequence[Verified], stages: Sequence[int]) -> CostTable:
    """The table with what a dryrun showed.

    Args:
        table: The table.
        verified: The stages that it simulated.
        stages: For each stage the one that stands for it.
    """
    more = {one.stage: one.peak_bytes - one.predicted_bytes for one in verified}
    own = table.stage_bytes or (0,) * table.stages
    return replace(table, stage_bytes=tuple(own[stage] + more.get(stages[stage], 0) for stage in range(table.stages)))
