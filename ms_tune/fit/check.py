"""The table's own check: one stage that it has not seen, with all its layers, of which half are recomputed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.enums import RecomputeMode
from ms_tune.fit.job import full_first
from ms_tune.fit.measure import Probe
from ms_tune.fit.verify import NEAR
from ms_tune.planning.costs import costs_of

if TYPE_CHECKING:
    from ms_tune.fit.job import PlannedJob
    from ms_tune.normalize.sapp_lists import Table as Rows
    from ms_tune.planning.table import CostTable


@dataclass(frozen=True, slots=True)
class Checked:
    """What the table foretold of its check run, and what that held."""

    stage: int
    layers: int
    predicted_bytes: int  # its peak by the table
    peak_bytes: int

    @property
    def error(self) -> float:
        """How much the table is off, as a part of the peak; above zero where it foretold more."""
        return (self.predicted_bytes - self.peak_bytes) / self.peak_bytes

    @property
    def exact(self) -> bool:
        """Whether it is as near as the plans' dryruns are asked to be."""
        return abs(self.error) <= NEAR

    @property
    def margin_bytes(self) -> int:
        """What is set aside for it: what the table foretold too little, if it is off."""
        return 0 if self.exact else max(0, self.peak_bytes - self.predicted_bytes)


def check_probe(job: PlannedJob) -> Probe:
    """The run: of the last but one stage, which small runs tell least about, or of the first where there is none between."""
    stage = job.stages - 2 if job.stages > 2 else 0  # noqa: PLR2004 - the first, one between, the last
    full: Rows = [[count - count // 2 for count in row] for row in job.placement]
    loaded = job.small(full_first(job.placement, full))
    return Probe("check", loaded, stage, sum(row[stage] for row in job.placement))


def foretold(job: PlannedJob, table: CostTable, stage: int) -> int:
    """The peak of the check run's stage by the table, in bytes."""
    costs = costs_of(table)
    cells = [
        {RecomputeMode.FULL: count - count // 2, RecomputeMode.NONE: count // 2}
        for row in job.placement
        for count in row
    ]
    return int(costs.peaks(costs.state(cells)[None])[0, stage])
