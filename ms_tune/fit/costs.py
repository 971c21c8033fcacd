"""Compute the relative time of a layer, the embedding and the head from the config's sizes; no absolute times."""

from __future__ import annotations

from dataclasses import dataclass

from ms_tune.dialects import LayerSpec
from ms_tune.dialects.stage import make_name
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.errors import UnsupportedError
from ms_tune.estimate.flops import head_flops, layer_flops, prediction_flops, widths_of
from ms_tune.facts.devices import fastest_peak, find_peak
from ms_tune.fit.calibration_runs import count_job_layers
from ms_tune.fit.job import PlannedJob, check_plannable, read_job
from ms_tune.fit.layouts import read_layout
from ms_tune.planning.costs import StepTimeBreakdown, break_down_step
from ms_tune.planning.fit import time_of
from ms_tune.planning.table import MOST_BYTES, CostTable, LayerCost, LayerGroup, StageEnd, check_table
from ms_tune.planning.time_scale import Clock, with_layers, with_times
from ms_tune.text import msg

# Extra time of a backward pass for each recompute mode: SAPP's shares (pipeline_balance/utils/recompute.py), which are within 2 %
# of the published steps of models of 22 billion to a trillion parameters (Korthikanti et al., 2022, table 5).
EXTRA = {
    RecomputeMode.NONE: 0.0,
    RecomputeMode.SELECT: 0.04,
    RecomputeMode.COMM: 0.125,
    RecomputeMode.BOTH: 0.165,
    RecomputeMode.FULL: 0.5,
    RecomputeMode.SWAP: 0.0,  # copy time that exceeds the passes is added from a bandwidth
}


DENSE_UNITS = 1000  # table time units of a dense layer's forward pass
_TERA = 1e12


@dataclass(frozen=True, slots=True)
class RelativeCosts:
    """Forward-pass times relative to a dense layer, which is 1."""

    dense: float = 1.0  # a layer without experts
    experts: float = 1.0  # a layer with experts
    head: float = 0.0  # output projection, loss, and the layers for multi-token prediction
    # True if computed from the model's sizes; otherwise all layers count as equal and the head as free.
    known: bool = False
    # Lower bound in seconds of a dense layer's forward pass of a micro-batch, on the named device or else the fastest known one;
    # None if the model's sizes are unknown.
    shortest: float | None = None

    def of_layer(self, make: LayerKind) -> float:
        """Return the relative time of a layer."""
        return self.dense if make is LayerKind.DENSE else self.experts


def relative_costs(job: PlannedJob) -> RelativeCosts:
    """Return the relative times of the parts of a job's model."""
    model = job.loaded.job.model
    widths = widths_of(model)
    if widths is None:
        return RelativeCosts()
    dense = layer_flops(widths, experts=False)
    experts = layer_flops(widths, experts=True) if widths.experts else dense
    split, chip = job.first.split, job.request.chip
    named = find_peak(chip) if chip is not None else None
    tflops = named.tflops if named is not None else fastest_peak()
    tokens = widths.tokens * read_layout(job.loaded, job.first).size
    shortest = dense * tokens / (split.tensor * split.context) / (tflops * _TERA)
    head = head_flops(widths) + model.mtp_layers * (experts + prediction_flops(widths))
    return RelativeCosts(1.0, experts / dense, head / dense, known=True, shortest=shortest)


@dataclass(frozen=True, slots=True)
class TimeExplanation:
    """Breakdown of a config's step time."""

    table: CostTable  # pipeline and layer times, without memory sizes
    cells: tuple[dict[RecomputeMode, int], ...]  # number of layers by recompute mode, for each cell
    parts: StepTimeBreakdown  # the step time by cause
    costs: RelativeCosts  # relative times of the model's parts
    seconds: float | None  # step time; None without a measurement
    clock: Clock  # the user's measurements


def explain_config(request: DryrunRequest, clock: Clock) -> TimeExplanation:
    """Break down the step time of a config; nothing is run."""
    job = read_job(request)
    check_plannable(job)
    costs = relative_costs(job)
    source = str(job.loaded.source.path)
    table = table_without_sizes(job, costs)
    clock = with_layers(clock, table)
    table = check_table(with_times(table, clock.times), source)
    cells = present_cells(job)
    time = time_of(table, cells)
    clock.check(has_present=True, reference=time)
    return TimeExplanation(table, cells, break_down_step(table, cells), costs, clock.seconds(time, time), clock)


def table_without_sizes(job: PlannedJob, costs: RelativeCosts) -> CostTable:
    """Return a table of a job's pipeline and layer times, without memory sizes."""
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
            for make, count in count_job_layers(job).counts.items()
        ),
        tail=StageEnd(round(DENSE_UNITS * costs.head)),
    )


def present_cells(job: PlannedJob) -> tuple[dict[RecomputeMode, int], ...]:
    """Count the layers of each cell by their current recompute mode; the order within a cell does not affect its time."""
    cells = tuple(dict.fromkeys(RecomputeMode, 0) for _ in range(job.stages * job.chunks))
    for layer in job.now.layers[: job.layers]:
        cells[layer.chunk * job.stages + layer.stage][_recompute_mode(layer)] += 1
    return cells


def _recompute_mode(layer: LayerSpec) -> RecomputeMode:
    if layer.recompute is RecomputeMode.FULL:
        return RecomputeMode.FULL
    select, comm = bool(layer.select_patterns), bool(layer.comm_patterns)
    if layer.swap and not select and not comm:
        return RecomputeMode.SWAP
    if select and comm:
        return RecomputeMode.BOTH
    return RecomputeMode.SELECT if select else RecomputeMode.COMM if comm else RecomputeMode.NONE
