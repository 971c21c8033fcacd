"""Estimate the memory of a job's stages by formulas."""

from __future__ import annotations

from collections.abc import Sequence

from ms_tune.dialects.mindformers.read import has_whole_vocabulary, shards_accumulated_gradients
from ms_tune.dialects.stage import with_prediction
from ms_tune.dryrun.prepare import prepare_run
from ms_tune.dryrun.request import PreparedRun
from ms_tune.enums import Dialect, LayerKind, RecomputeMode
from ms_tune.errors import UnsupportedError
from ms_tune.estimate.flops import Widths, require_widths
from ms_tune.estimate.memory import (
    Estimate,
    KeptBytes,
    LiveLayers,
    RankShare,
    StageEstimate,
    estimate_stage,
    exchanged_bytes,
    head_bytes,
    lasting_bytes,
    layer_activations,
    with_static_weights,
)
from ms_tune.estimate.persistent import StaticSharing
from ms_tune.estimate.static import StaticMemory, StaticModel, estimate_static_memory
from ms_tune.fit.job import PlannedJob
from ms_tune.fit.layouts import graph_of_layout, is_sequence_parallel, layout_keys, read_layout, shards_weights
from ms_tune.records import Record
from ms_tune.text import msg
from ms_tune.verdict.limit import Limit


class StageParts(Record):
    """The parts of a stage's memory, from which it is estimated for any number of recomputed layers."""

    stage: int
    layers: int
    lasting_bytes: int  # weights, gradients and optimizer state
    groups: tuple[LiveLayers, ...]  # its layers, those of the first chunk first
    head_bytes: int  # of the loss and the head
    static: StaticMemory | None  # memory for the weights of a static graph
    always_bytes: int = 0  # attention masks, and whole weights of a dynamic graph in a pipeline
    step_bytes: int = 0  # least bytes beside the lasting ones, for the optimizer's step
    regathered: int = 0  # bytes per parameter of one more recomputed layer

    def estimate(self, more: int = 0) -> StageEstimate:
        """Estimate the stage with this many more layers fully recomputed."""
        groups, gathered = [], 0
        for one in self.groups:
            moved = 0 if one.full else min(more, one.layers)
            more -= moved
            gathered += moved * self.regathered * one.activations.parameters
            groups += [one._replace(layers=one.layers - moved), one._replace(layers=moved, full=True)]
        there = [one for one in groups if one.layers]
        found = estimate_stage(self.stage, self.layers, self.lasting_bytes, there, self.head_bytes)
        transient = max(found.transient_bytes + self.always_bytes + gathered, self.step_bytes - found.activation_bytes)
        found = found._replace(transient_bytes=transient)
        return found if self.static is None else with_static_weights(found, self.static)


def estimate_job(job: PlannedJob, limit: Limit, reserve_bytes: int) -> Estimate:
    """Estimate the memory of every stage of a job."""
    return estimate_parts(job, read_stages(job), limit, reserve_bytes)


def estimate_parts(job: PlannedJob, parts: Sequence[StageParts], limit: Limit, reserve_bytes: int) -> Estimate:
    """Estimate the memory of every stage of a job from its parts."""
    graph = graph_of_layout(job.loaded, read_layout(job.loaded, job.first))
    swaps = any(layer.swap for layer in job.now.layers)
    return Estimate(tuple(one.estimate() for one in parts), limit, reserve_bytes, graph.ratios, less=swaps)


def read_stages(job: PlannedJob) -> tuple[StageParts, ...]:
    """Read the parts of the memory of every stage."""
    widths = require_widths(job.loaded.job.model)
    layout = read_layout(job.loaded, job.first)
    graph = graph_of_layout(job.loaded, layout)
    tokens = widths.tokens * layout.size // layout.context
    sequence = is_sequence_parallel(job.loaded)
    share = RankShare(tokens, layout.tensor, sequence, layout.context, layout.expert, layout.data)
    others = [prepare_run(job.request._replace(stage=one, layers=None), job.loaded) for one in range(1, job.stages)]
    return tuple(_read_stage(job, run, widths, share, graph) for run in (job.first, *others))


def _read_stage(job: PlannedJob, run: PreparedRun, widths: Widths, share: RankShare, graph: KeptBytes) -> StageParts:
    static = _estimate_static(job, run, widths)
    if static is None and not run.theory:
        raise UnsupportedError(msg("check.no-theory"))
    if run.in_flight is None:
        raise UnsupportedError(msg("fitting.schedule"))
    loaded = job.loaded
    last, predictions = run.stage == run.stages - 1, loaded.job.model.mtp_layers
    pipelined, graph = (0, graph) if run.stages == 1 else (graph.pipelined, graph.in_pipeline())
    lasting = sum(run.theory.values()) if static else lasting_bytes(run.theory, loaded.job.model, loaded.dialect)
    if not run.theory and static is not None:
        lasting = static.weights + static.optimizer
    layers = []
    for kind, count in sorted(run.kinds.items(), key=lambda one: one[0].chunk or 0):
        chunk, make = kind.cell
        activations = layer_activations(
            widths, share, graph, experts=make is not LayerKind.DENSE and bool(widths.experts)
        )
        full = kind.recompute is RecomputeMode.FULL
        # Without stages there is one pass, regardless of the chunks in the layer lists.
        passes = run.in_flight[chunk if run.stages > 1 else 0]
        layers.append(LiveLayers(activations, passes, full=full, layers=count))
    head = whole = step = 0
    if last:
        activations = layer_activations(widths, share, graph, experts=bool(widths.experts))
        full = job.now.layers[-1].recompute is RecomputeMode.FULL
        layers += [LiveLayers(activations, 1, full=full)] * predictions
        head = head_bytes(widths, share, graph, predictions, again=full)
        if static is not None:
            static = static._replace(step=static.step + 2 * exchanged_bytes(widths, share, graph))
    if pipelined:
        matrices = (run.stage == 0) + (1 + (predictions > 0) if last else 0)
        parameters = matrices * widths.hidden * widths.vocabulary // share.tensor
        parameters += sum(one.layers * one.activations.parameters for one in layers)
        whole = max(0, pipelined * parameters - run.theory.get("gradients", 0))
    if loaded.dialect is Dialect.MINDSPEED_MS:  # the update copies the weights when activations are gone
        step = run.theory["weights"]
    always = graph.mask * widths.tokens**2 + whole
    shards = static is not None and shards_weights(loaded, read_layout(loaded, job.first))
    gathers = graph.regathered if shards else 0
    return StageParts(run.stage, run.layers, lasting, tuple(layers), head, static, always, step, gathers)


def _estimate_static(job: PlannedJob, run: PreparedRun, widths: Widths) -> StaticMemory | None:
    # Return the memory for the weights of a static graph; None for other dialects, or if its layers are unknown.
    loaded, split = job.loaded, run.split
    pipeline = loaded.prepared_config.pipeline if loaded.dialect is Dialect.MINDFORMERS else ()
    if not pipeline:
        return None
    model, key = loaded.job.model, layout_keys(loaded.dialect).sharded
    ranks = split.data * split.context * split.tensor
    sharded = key is not None and loaded.source.get(key) is True
    whole = has_whole_vocabulary(loaded.source)
    static = StaticModel(model, widths, split.tensor, split.expert, whole_vocabulary=whole)
    stage = with_prediction(pipeline[run.stage], model.mtp_layers)
    shards_sums = shards_accumulated_gradients(loaded.source)
    return estimate_static_memory(static, StaticSharing(ranks, sharded), stage, shards_sums=shards_sums)
