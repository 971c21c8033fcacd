"""Where a config's time goes now, without a dryrun: the order of passes, what layers cost, what they recompute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.dialects.stage import make_name
from ms_tune.enums import RecomputeMode
from ms_tune.errors import UnsupportedError
from ms_tune.fit.costs import DENSE_UNITS, EXTRA, costs_of
from ms_tune.fit.job import check_plannable, read_job
from ms_tune.fit.probes import model_in
from ms_tune.planning.costs import breakdown
from ms_tune.planning.fit import time_of
from ms_tune.planning.table import MOST_BYTES, CostTable, End, LayerCost, LayerGroup, check
from ms_tune.planning.time_scale import timed, with_layers
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.dialects.plan_result import LayerSpec
    from ms_tune.dryrun.request import DryrunRequest
    from ms_tune.fit.costs import RelativeCosts
    from ms_tune.fit.job import PlannedJob
    from ms_tune.planning.costs import StepTimeBreakdown
    from ms_tune.planning.time_scale import Clock


@dataclass(frozen=True, slots=True)
class TimeExplanation:
    """Where a config's time goes."""

    table: CostTable  # its pipeline and what its layers cost; there are no sizes in it
    cells: tuple[dict[RecomputeMode, int], ...]  # how many layers of each kind of recompute every cell has
    parts: StepTimeBreakdown  # where the time goes
    costs: RelativeCosts  # what the parts of the model cost beside each other
    seconds: float | None  # a step; None where nothing was measured
    clock: Clock  # what was measured


def explain_config(request: DryrunRequest, clock: Clock) -> TimeExplanation:
    """Where the time of a config's step goes; nothing is run.

    Raises:
        ConfigError: The config cannot be read, or its framework refuses it.
        UnsupportedError: Its layers or its schedule are not known.
        UsageError: The measured step is shorter than its passes.
    """
    job = read_job(request)
    check_plannable(job)
    costs = costs_of(job)
    source = str(job.loaded.source.path)
    table = table_without_sizes(job, costs)
    clock = with_layers(clock, table)
    table = check(timed(table, clock.times, source), source)
    cells = _cells(job)
    time = time_of(table, cells)
    clock.check(has_present=True, reference=time)
    return TimeExplanation(table, cells, breakdown(table, cells), costs, clock.seconds(time, time), clock)


def table_without_sizes(job: PlannedJob, costs: RelativeCosts) -> CostTable:
    """A job's pipeline and what its layers cost.

    Raises:
        UnsupportedError: Its schedule is not known, or layers of different makes alternate.
    """
    pipeline = job.first.pipeline
    if pipeline.schedule is None:
        raise UnsupportedError(msg("fitting.schedule"), msg("fitting.schedule.hint"))
    kept = {kind: LayerCost(0, extra) for kind, extra in EXTRA.items()}
    return CostTable(
        stages=job.stages,
        chunks=job.chunks,
        micro_batches=pipeline.micro_batches,
        limit_bytes=MOST_BYTES,
        order=pipeline.schedule,
        layers=tuple(
            LayerGroup(make_name(make), count, round(DENSE_UNITS * costs.of_layer(make)), 0, kept)
            for make, count in model_in(job).counts.items()
        ),
        tail=End(round(DENSE_UNITS * costs.head)),
    )


def _cells(job: PlannedJob) -> tuple[dict[RecomputeMode, int], ...]:
    """What every cell recomputes now, counted; which of its layers do makes no difference to its time."""
    found = [dict.fromkeys(RecomputeMode, 0) for _ in range(job.stages * job.chunks)]
    for layer in job.now.layers[: job.layers]:
        found[layer.chunk * job.stages + layer.stage][_kind(layer)] += 1
    return tuple(found)


def _kind(layer: LayerSpec) -> RecomputeMode:
    if layer.recompute is RecomputeMode.FULL:
        return RecomputeMode.FULL
    select, comm = bool(layer.select_patterns), bool(layer.comm_patterns)
    if layer.swap and not select and not comm:
        return RecomputeMode.SWAP
    if select and comm:
        return RecomputeMode.BOTH
    return RecomputeMode.SELECT if select else RecomputeMode.COMM if comm else RecomputeMode.NONE
