"""Rank layouts by estimates, using the sizes that the framework derives for each; nothing is run, and no layout is proved to fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ms_tune.dryrun.prepare import LoadedConfig, prepare_run
from ms_tune.dryrun.request import PreparedRun
from ms_tune.enums import LayerKind
from ms_tune.errors import MsTuneError, UnsupportedError
from ms_tune.estimate.flops import require_widths
from ms_tune.estimate.memory import (
    Activations,
    RankShare,
    lasting_bytes,
    layer_activations,
    layer_sent_bytes,
    logits_bytes,
    p2p_bytes,
    weight_sent_bytes,
)
from ms_tune.fit.calibration_runs import count_job_layers
from ms_tune.fit.costs import relative_costs
from ms_tune.fit.job import PlannedJob
from ms_tune.fit.layouts import can_accumulate, graph_of_layout, is_sequence_parallel, split_evenly, with_layout
from ms_tune.planning.costs import PassGraph, graph_of
from ms_tune.planning.layouts import Layout
from ms_tune.planning.schedule import Schedule, in_flight_per_chunk, why_refused
from ms_tune.planning.table import MOST_ALL_PASSES, CostTable
from ms_tune.text import Message, msg

PRUNED = 1.15  # of the limit: layouts whose estimate with full recomputation exceeds this are dropped
_ROUNDS = 4  # rounds of as many micro-batches as stages; all later rounds are identical


@dataclass(frozen=True, slots=True)
class LayoutEstimate:
    """Estimated time and memory of a layout."""

    time: float  # of a step's passes, in forward passes of a dense layer for one sample on one device
    least_bytes: int  # highest peak of all stages with full recomputation
    peak_bytes: tuple[int, ...]  # peak per stage, with an even split and as few recomputed layers as the limit allows
    recomputed: tuple[int, ...]  # layers per stage that are recomputed for that
    bubble: float  # fraction of the step in which stages wait
    sent_bytes: int  # bytes per step sent by a device of the stage that sends most


@dataclass(frozen=True, slots=True, eq=False)
class LayoutCandidate:
    """A layout that can be tried."""

    layout: Layout
    estimate: LayoutEstimate  # its estimated time and memory
    facts: LayoutFacts  # memory of its stages, to estimate any plan


@dataclass(frozen=True, slots=True)
class Ranking:
    """Layouts sorted from best to worst."""

    # By Pareto front over time and bytes sent, then by time.
    candidates: tuple[LayoutCandidate, ...]
    leading: int  # size of the first front: no other layout is better in both
    pruned: int  # layouts that exceed the limit even with full recomputation
    refused: tuple[Message, ...]  # reasons why the framework refuses the others


@dataclass(frozen=True, slots=True, eq=False)
class LayoutFacts:
    """Estimated memory of a layout's stages."""

    persistent_bytes: tuple[int, ...]  # weights, gradients and optimizer state per stage, bytes
    layers: tuple[int, ...]  # layers per stage in the even split
    activations: Mapping[LayerKind, Activations]  # per layer and micro-batch, by layer kind
    # Number of layers of each kind, per stage.
    layer_makes: tuple[Mapping[LayerKind, int], ...]
    in_flight: tuple[float, ...]  # micro-batches in flight per layer of each stage, averaged over its chunks
    logits: int  # bytes of the logits on the last stage
    sequence: bool  # true: activations between layers are split over the TP ranks

    def peak_bytes(self, stage: int, layers: int, full: int) -> int:
        """Return the peak of a stage with ``layers`` layers, ``full`` of them fully recomputed.

        Layers in excess of the even split count as the stage's average layer.
        """
        count = sum(self.layer_makes[stage].values())
        parts = [(self.activations[make], n / count) for make, n in self.layer_makes[stage].items()]
        none, recomputed = sum(one.none * part for one, part in parts), sum(one.full * part for one, part in parts)
        kept = (recomputed * full + none * (layers - full)) * self.in_flight[stage]
        lasting = self.persistent_bytes[stage] * layers / max(self.layers[stage], 1)
        logits = self.logits if stage == len(self.persistent_bytes) - 1 else 0
        return round(lasting + kept + max(none if full else 0.0, float(logits)))


def rank_layouts(
    job: PlannedJob,
    loaded: LoadedConfig,
    layouts: Sequence[Layout],
    limit_bytes: int,
    on_ranked: Callable[[int, int], None],
) -> Ranking:
    """Rank the layouts that the framework accepts, the best first."""
    ranker = _LayoutRanker(job, loaded, limit_bytes)
    found, refused, pruned = [], [], 0
    for number, layout in enumerate(layouts):
        on_ranked(number, len(layouts))
        try:
            candidate = ranker.estimate_layout(layout)
        except MsTuneError as error:
            refused.append(error.message)
            continue
        if candidate.estimate.least_bytes > PRUNED * limit_bytes:
            pruned += 1
        else:
            found.append(candidate)
    fronts = _pareto_fronts(found)
    leading = len(fronts[0]) if fronts else 0
    return Ranking(tuple(one for front in fronts for one in front), leading, pruned, tuple(refused))


def _pareto_fronts(candidates: Sequence[LayoutCandidate]) -> list[list[LayoutCandidate]]:
    # Group layouts into Pareto fronts over time and bytes sent; each front is sorted by time.
    order = sorted(candidates, key=lambda one: (one.estimate.time, one.estimate.sent_bytes, one.layout))
    fronts: list[list[LayoutCandidate]] = []
    for one in order:
        # All earlier layouts are at least as fast: a front dominates this one if its last member sends no more.
        place = next((front for front in fronts if front[-1].estimate.sent_bytes > one.estimate.sent_bytes), None)
        if place is None:
            fronts.append([one])
        else:
            place.append(one)
    return fronts


class _LayoutRanker:
    """Estimator for the layouts of one job; caches data that several layouts share."""

    def __init__(self, job: PlannedJob, loaded: LoadedConfig, limit_bytes: int) -> None:
        model = job.loaded.job.model
        widths = require_widths(model)
        self._job, self._loaded, self._limit, self._widths = job, loaded, limit_bytes, widths
        costs = relative_costs(job)
        self._head = costs.head
        counts = count_job_layers(job).counts
        self._forward = [costs.of_layer(make) for make, count in counts.items() for _ in range(count)]
        self._read: dict[tuple[int, ...], _ReadLayout | MsTuneError] = {}
        self._schedules: dict[bool, Schedule] = {}
        self._graphs: dict[tuple[Schedule, int, int, int], PassGraph] = {}

    def estimate_layout(self, layout: Layout) -> LayoutCandidate:
        """Estimate a layout."""
        if not can_accumulate(self._job.loaded.dialect, layout):
            raise UnsupportedError(msg("layouts.refused.accumulation"))
        read = self._read_layout(layout)
        schedule = self._schedule_of(layout)
        refused = why_refused(schedule, layout.pipeline, layout.chunks, layout.micro_batches)
        if refused is not None:
            raise UnsupportedError(refused)
        placement = split_evenly(self._job.layers, layout)
        facts = self._layout_facts(layout, read, schedule, placement)
        full = tuple(_fewest_recomputed(facts, stage, self._limit) for stage in range(layout.pipeline))
        time, bubble = self._step_time(layout, schedule, placement, full)
        peaks = tuple(facts.peak_bytes(stage, count, full[stage]) for stage, count in enumerate(facts.layers))
        least = max(facts.peak_bytes(stage, count, count) for stage, count in enumerate(facts.layers))
        sent = self._sent_bytes(layout, facts, full, read.weights)
        return LayoutCandidate(layout, LayoutEstimate(time, least, peaks, full, bubble, sent), facts)

    def _read_layout(self, layout: Layout) -> _ReadLayout:
        # Read the framework's sizes, which do not depend on chunks and micro-batches.
        key = (layout.tensor, layout.pipeline, layout.context, layout.expert, layout.data)
        if key not in self._read:
            try:
                self._read[key] = self._prepare_layout(layout._replace(chunks=1))
            except MsTuneError as error:
                self._read[key] = error
        found = self._read[key]
        if isinstance(found, MsTuneError):
            raise found
        return found

    def _prepare_layout(self, layout: Layout) -> _ReadLayout:
        loaded = with_layout(self._loaded, layout, self._job.layers)
        stages, request = layout.pipeline, self._job.request._replace(devices=layout.devices, layers=None, settings=())
        asked = {
            stage: prepare_run(request._replace(stage=stage), loaded) for stage in {0, min(1, stages - 1), stages - 1}
        }
        if not all(run.theory for run in asked.values()):
            raise UnsupportedError(msg("layouts.refused.unknown"))
        runs = [asked.get(stage, asked[min(1, stages - 1)]) for stage in range(stages)]
        self._schedules.setdefault(False, runs[0].pipeline.schedule or Schedule.ONE_FORWARD_ONE_BACKWARD)
        lasting = tuple(lasting_bytes(run.theory, loaded.job.model, loaded.dialect) for run in runs)
        makes = tuple(_count_makes(run) for run in runs)
        return _ReadLayout(
            lasting, tuple(run.layers for run in runs), makes, runs[0].theory["weights"], is_sequence_parallel(loaded)
        )

    def _schedule_of(self, layout: Layout) -> Schedule:
        # Return the framework's order of passes, with or without chunks.
        several = layout.chunks > 1
        if several not in self._schedules:
            loaded = with_layout(self._loaded, layout, self._job.layers)
            run = prepare_run(
                self._job.request._replace(devices=layout.devices, stage=0, layers=None, settings=()), loaded
            )
            if run.pipeline.schedule is None:
                raise UnsupportedError(msg("fitting.schedule"), msg("fitting.schedule.hint"))
            self._schedules[several] = run.pipeline.schedule
        return self._schedules[several]

    def _rank_share(self, layout: Layout, *, sequence: bool) -> RankShare:
        tokens = self._widths.tokens * layout.size // layout.context
        return RankShare(tokens, layout.tensor, sequence, layout.context, layout.expert, layout.data)

    def _layout_facts(
        self, layout: Layout, read: _ReadLayout, schedule: Schedule, placement: list[list[int]]
    ) -> LayoutFacts:
        share, model = self._rank_share(layout, sequence=read.sequence), self._loaded.job.model
        graph = graph_of_layout(self._loaded, layout)
        stages, layers, in_flight = layout.pipeline, [], []
        for stage in range(stages):
            counts = [row[stage] for row in placement]
            micro_batches = _few_micro_batches(layout)
            flight = in_flight_per_chunk(schedule, stage, stages, layout.chunks, micro_batches) or (1,) * layout.chunks
            layers.append(sum(counts))
            in_flight.append(sum(one * count for one, count in zip(flight, counts, strict=True)) / max(sum(counts), 1))
        lasting = tuple(
            size * own // there for size, own, there in zip(read.persistent_bytes, layers, read.layers, strict=True)
        )
        names = {make for one in read.layer_makes for make in one}
        activations = {
            make: layer_activations(
                self._widths, share, graph, experts=make is not LayerKind.DENSE and bool(self._widths.experts)
            )
            for make in names
        }
        return LayoutFacts(
            lasting,
            tuple(layers),
            activations,
            read.layer_makes,
            tuple(in_flight),
            logits_bytes(self._widths, share, graph.logits + graph.more_logits * model.mtp_layers),
            read.sequence,
        )

    def _pass_graph(self, layout: Layout, schedule: Schedule) -> PassGraph:
        micro_batches = _few_micro_batches(layout)
        key = (schedule, layout.pipeline, layout.chunks, micro_batches)
        if 2 * layout.pipeline * layout.chunks * micro_batches > MOST_ALL_PASSES:
            raise UnsupportedError(msg("layouts.refused.passes"))
        if key not in self._graphs:
            sizes = CostTable(layout.pipeline, layout.chunks, micro_batches, 0, schedule, ())
            self._graphs[key] = graph_of(sizes)
        return self._graphs[key]

    def _step_time(
        self, layout: Layout, schedule: Schedule, placement: list[list[int]], full: Sequence[int]
    ) -> tuple[float, float]:
        # Return the step time, in dense forward passes for one sample on one device, and the fraction in which stages wait.
        graph, stages, first = self._pass_graph(layout, schedule), layout.pipeline, 0
        cells = stages * layout.chunks
        durations = np.zeros(2 * cells)
        for cell in range(cells):
            chunk, stage = divmod(cell, stages)
            count = placement[chunk][stage]
            work = sum(self._forward[first : first + count])
            again = work * full[stage] / max(sum(row[stage] for row in placement), 1)
            tail = self._head if cell == cells - 1 else 0.0
            durations[cell], durations[cells + cell] = work + tail, 2 * (work + tail) + again
            first += count
        of_stage = (durations[:cells] + durations[cells:]).reshape(layout.chunks, stages).sum(axis=0)
        # Once the pipeline is full, each further micro-batch takes as long as on the slowest stage.
        step = float(graph.step_ticks(durations[:, None])[0]) + float(of_stage.max()) * (
            layout.micro_batches - _few_micro_batches(layout)
        )
        busy = float(of_stage.sum()) * layout.micro_batches
        return step * layout.size / (layout.tensor * layout.context), max(
            1 - busy / (stages * step), 0.0
        ) if step else 0.0

    def _sent_bytes(self, layout: Layout, facts: LayoutFacts, full: Sequence[int], weights: int) -> int:
        # Return the bytes that a device of the busiest stage sends per step.
        share, widths, most = self._rank_share(layout, sequence=facts.sequence), self._widths, 0
        for stage, makes in enumerate(facts.layer_makes):
            count, of_layers = facts.layers[stage], 0.0
            for make, part in makes.items():
                experts = make is not LayerKind.DENSE and bool(widths.experts)
                plain, again = (layer_sent_bytes(widths, share, experts=experts, again=both) for both in (False, True))
                of_layers += (plain * (count - full[stage]) + again * full[stage]) * part / sum(makes.values())
            handed = p2p_bytes(widths, share) * layout.chunks if layout.pipeline > 1 else 0
            most = max(most, round((of_layers + handed) * layout.micro_batches))
        return most + weight_sent_bytes(weights, layout.data * layout.context)


@dataclass(frozen=True, slots=True)
class _ReadLayout:
    """The framework's sizes for each stage of a layout without chunks."""

    persistent_bytes: tuple[int, ...]  # weights, gradients and optimizer state, bytes
    layers: tuple[int, ...]
    layer_makes: tuple[Mapping[LayerKind, int], ...]  # number by layer kind
    weights: int  # bytes of the first stage's weights
    sequence: bool  # true: activations between layers are split over the TP ranks


def _few_micro_batches(layout: Layout) -> int:
    # Return enough micro-batches to fill the pipeline, with a first round as long as with all micro-batches.
    full = _ROUNDS * layout.pipeline + layout.micro_batches % layout.pipeline
    return min(layout.micro_batches, full)


def _count_makes(run: PreparedRun) -> Mapping[LayerKind, int]:
    found: Counter[LayerKind] = Counter()
    for kind, count in run.kinds.items():
        found[kind.make] += count
    return dict(found) or {LayerKind.DENSE: max(run.layers, 1)}


def _fewest_recomputed(facts: LayoutFacts, stage: int, limit_bytes: int) -> int:
    # Return the smallest number of recomputed layers for which the estimate is within the limit; all layers if none is.
    count = facts.layers[stage]
    return next((full for full in range(count) if facts.peak_bytes(stage, count, full) <= limit_bytes), count)
