"""Rank layouts by estimates, using the sizes that the framework derives for each; nothing is run, and no layout is proved to fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ms_tune.dryrun.prepare import LoadedConfig, prepare_run
from ms_tune.dryrun.request import PreparedRun
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.errors import MsTuneError, UnsupportedError
from ms_tune.estimate.flops import require_widths
from ms_tune.estimate.memory import (
    Activations,
    LiveLayers,
    RankShare,
    estimate_stage,
    lasting_bytes,
    layer_activations,
    logits_bytes,
)
from ms_tune.fit.job import PlannedJob
from ms_tune.fit.layouts import (
    can_accumulate,
    graph_of_layout,
    is_sequence_parallel,
    shards_weights,
    split_evenly,
    with_layout,
)
from ms_tune.fit.predict import Cluster, model_of_steps, software_of
from ms_tune.fit.step_time import CellLayers, StepTime, few_micro_batches
from ms_tune.planning.layouts import Layout
from ms_tune.planning.schedule import Schedule, in_flight_per_chunk, why_refused
from ms_tune.planning.table import MOST_ALL_PASSES
from ms_tune.records import Record
from ms_tune.text import Message, msg

PRUNED = 1.15  # of the limit: layouts whose estimate with full recomputation exceeds this are dropped


@dataclass(frozen=True, slots=True)
class LayoutEstimate:
    """Estimated time and memory of a layout."""

    step: StepTime  # with as few recomputed layers as the limit allows
    least_bytes: int  # highest peak of all stages with full recomputation
    peak_bytes: tuple[int, ...]  # peak per stage, with an even split and as few recomputed layers as the limit allows
    recomputed: tuple[int, ...]  # layers per stage that are recomputed for that


@dataclass(frozen=True, slots=True, eq=False)
class LayoutCandidate:
    """A layout that can be tried."""

    layout: Layout
    estimate: LayoutEstimate  # its estimated time and memory
    facts: LayoutFacts  # memory of its stages, to estimate any plan
    predict: Callable[[CellLayers], StepTime]  # the time of any plan


@dataclass(frozen=True, slots=True)
class Ranking:
    """Layouts sorted from the fastest to the slowest."""

    candidates: tuple[LayoutCandidate, ...]
    pruned: int  # layouts that exceed the limit even with full recomputation
    refused: tuple[Message, ...]  # reasons why the framework refuses the others
    # Place of the current layout among the candidates, from 0; the last one if it exceeds the limit; None if it is not possible.
    present: int | None
    present_fits: bool  # by its estimate, with full recomputation
    cluster: Cluster  # the devices and links of the estimates

    @property
    def now(self) -> LayoutCandidate | None:
        """Return the current layout, or None."""
        return None if self.present is None else self.candidates[self.present]

    @property
    def fitting(self) -> tuple[LayoutCandidate, ...]:
        """Return the candidates that can fit by their estimates."""
        return self.candidates if self.present_fits else self.candidates[:-1]


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
    regathered: int  # bytes per parameter of a recomputed layer, if ranks shard its weights

    def peak_bytes(self, stage: int, layers: int, full: int) -> int:
        """Return the peak of a stage with ``layers`` layers, ``full`` of them fully recomputed.

        Layers in excess of the even split count as the stage's average layer.
        """
        parts, count = self.layer_makes[stage], sum(self.layer_makes[stage].values())
        groups = []
        for again, number in ((False, layers - full), (True, full)):
            for make, of_make in parts.items():
                share = round(number * of_make / count) if len(parts) > 1 else number
                groups.append(LiveLayers(self.activations[make], self.in_flight[stage], full=again, layers=share))
        lasting = self.persistent_bytes[stage] * layers // max(self.layers[stage], 1)
        logits = self.logits if stage == len(self.persistent_bytes) - 1 else 0
        regathered = self.regathered * sum(one.layers * one.activations.parameters for one in groups if one.full)
        return round(estimate_stage(stage, layers, lasting, groups, logits).peak_bytes + regathered)


class RankTarget(Record):
    """The job that layouts are ranked for."""

    now: Layout  # the current layout
    limit_bytes: int
    cluster: Cluster
    shards: bool = False  # the ranks with the same weights shard their optimizer states, except in the current layout


def rank_layouts(
    job: PlannedJob,
    loaded: LoadedConfig,
    layouts: Sequence[Layout],
    target: RankTarget,
    on_ranked: Callable[[int, int], None],
) -> Ranking:
    """Rank the layouts that the framework accepts, the fastest first."""
    ranker, now = _LayoutRanker(job, loaded, target), target.now
    found: list[LayoutCandidate] = []
    pruned: list[LayoutCandidate] = []
    refused: list[Message] = []
    for number, layout in enumerate(layouts):
        on_ranked(number, len(layouts))
        try:
            candidate = ranker.estimate_layout(layout)
        except MsTuneError as error:
            refused.append(error.message)
            continue
        (pruned if candidate.estimate.least_bytes > PRUNED * target.limit_bytes else found).append(candidate)
    found.sort(key=lambda one: (one.estimate.step.seconds, one.layout))
    over = [one for one in pruned if one.layout == now]
    found += over
    present = next((place for place, one in enumerate(found) if one.layout == now), None)
    return Ranking(tuple(found), len(pruned), tuple(refused), present, not over, target.cluster)


class _LayoutRanker:
    """Estimator for the layouts of one job; caches data that several layouts share."""

    def __init__(self, job: PlannedJob, loaded: LoadedConfig, target: RankTarget) -> None:
        self._job, self._loaded, self._target = job, loaded, target
        self._widths, self._model = require_widths(job.loaded.job.model), model_of_steps(job, target.cluster.speed)
        self._read: dict[tuple[int, ...], _ReadLayout | MsTuneError] = {}
        self._schedules: dict[bool, Schedule] = {}

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
        full = tuple(_fewest_recomputed(facts, stage, self._target.limit_bytes) for stage in range(layout.pipeline))
        if 2 * layout.pipeline * layout.chunks * few_micro_batches(layout) > MOST_ALL_PASSES:
            raise UnsupportedError(msg("layouts.refused.passes"))
        software = software_of(read.loaded, shards=shards_weights(read.loaded, layout))
        sequence, scale = read.sequence and layout.tensor > 1, self._target.cluster.scale or 1.0

        def predict(cells: CellLayers) -> StepTime:
            return self._model.predict(layout, schedule, cells, software, sequence=sequence).times(scale)

        step = predict(_recompute_cells(placement, full))
        peaks = tuple(facts.peak_bytes(stage, count, full[stage]) for stage, count in enumerate(facts.layers))
        least = max(facts.peak_bytes(stage, count, count) for stage, count in enumerate(facts.layers))
        return LayoutCandidate(layout, LayoutEstimate(step, least, peaks, full), facts, predict)

    def _read_layout(self, layout: Layout) -> _ReadLayout:
        # Read the framework's sizes, which do not depend on chunks and micro-batches.
        shards = self._target.shards and layout != self._target.now
        key = (layout.tensor, layout.pipeline, layout.context, layout.expert, layout.data, shards)
        if key not in self._read:
            try:
                self._read[key] = self._prepare_layout(layout._replace(chunks=1), shards=shards)
            except MsTuneError as error:
                self._read[key] = error
        found = self._read[key]
        if isinstance(found, MsTuneError):
            raise found
        return found

    def _prepare_layout(self, layout: Layout, *, shards: bool) -> _ReadLayout:
        loaded = with_layout(self._loaded, layout, self._job.layers, shards=shards)
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
        return _ReadLayout(lasting, tuple(run.layers for run in runs), makes, is_sequence_parallel(loaded), loaded)

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

    def _layout_facts(
        self, layout: Layout, read: _ReadLayout, schedule: Schedule, placement: list[list[int]]
    ) -> LayoutFacts:
        tokens, model = self._widths.tokens * layout.size // layout.context, self._loaded.job.model
        share = RankShare(tokens, layout.tensor, read.sequence, layout.context, layout.expert, layout.data)
        graph = graph_of_layout(read.loaded, layout)
        stages, layers, in_flight = layout.pipeline, [], []
        for stage in range(stages):
            counts = [row[stage] for row in placement]
            micro_batches = few_micro_batches(layout)
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
            graph.regathered if shards_weights(read.loaded, layout) else 0,
        )


@dataclass(frozen=True, slots=True)
class _ReadLayout:
    """The framework's sizes for each stage of a layout without chunks."""

    persistent_bytes: tuple[int, ...]  # weights, gradients and optimizer state, bytes
    layers: tuple[int, ...]
    layer_makes: tuple[Mapping[LayerKind, int], ...]  # number by layer kind
    sequence: bool  # true: activations between layers are split over the TP ranks
    loaded: LoadedConfig  # the config with this layout


def _recompute_cells(placement: list[list[int]], full: Sequence[int]) -> CellLayers:
    # Return the layers of each cell; the recomputed layers of a stage are spread over its chunks.
    found = []
    for row in placement:
        for stage, count in enumerate(row):
            again = count * full[stage] / max(sum(one[stage] for one in placement), 1)
            found.append({RecomputeMode.NONE: count - again, RecomputeMode.FULL: again})
    return found


def _count_makes(run: PreparedRun) -> Mapping[LayerKind, int]:
    found: Counter[LayerKind] = Counter()
    for kind, count in run.kinds.items():
        found[kind.make] += count
    return dict(found) or {LayerKind.DENSE: max(run.layers, 1)}


def _fewest_recomputed(facts: LayoutFacts, stage: int, limit_bytes: int) -> int:
    # Return the smallest number of recomputed layers for which the estimate is within the limit; all layers if none is.
    count = facts.layers[stage]
    return next((full for full in range(count) if facts.peak_bytes(stage, count, full) <= limit_bytes), count)
