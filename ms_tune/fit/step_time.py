"""Predict the time of a training step: passes of layers, the pipeline by its schedule, and the work after the passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.estimate.flops import Widths, head_flops, layer_flops, prediction_flops
from ms_tune.estimate.memory import RankShare
from ms_tune.estimate.step_time import (
    SHARDED_WEIGHTS,
    PassTimes,
    Software,
    end_times,
    hand_over_seconds,
    head_times,
    layer_times,
    sharded_pass,
    stage_parameters,
)
from ms_tune.facts.devices import Speed
from ms_tune.planning.costs import PassGraph, graph_of
from ms_tune.planning.layouts import Layout
from ms_tune.planning.schedule import Schedule
from ms_tune.planning.table import CostTable

CellLayers = Sequence[Mapping[RecomputeMode, float]]  # number of layers by recompute mode, for each cell
_ROUNDS = 4  # rounds of as many micro-batches as stages; all later rounds are identical
_TERA = 1e12


@dataclass(frozen=True, slots=True)
class StepTime:
    """Predicted time of a step."""

    seconds: float
    bubble: float  # fraction of the step in which stages wait, on average
    sent_seconds: float  # of these, in which the busiest stage only communicates
    tokens_per_second: float  # per device
    mfu: float  # operations of the model, without recomputation, as a fraction of the device's peak

    def times(self, factor: float) -> StepTime:
        """Return the prediction with all seconds multiplied by a factor."""
        rate, mfu = self.tokens_per_second / factor, self.mfu / factor
        return StepTime(self.seconds * factor, self.bubble, self.sent_seconds * factor, rate, mfu)

    @property
    def waiting_seconds(self) -> float:
        """Return the seconds of a step in which a stage waits (mean over stages)."""
        return self.bubble * self.seconds

    @property
    def work_seconds(self) -> float:
        """Return the seconds of a step in which a stage computes: it neither waits nor sends (mean over stages)."""
        return self.seconds - self.waiting_seconds - self.sent_seconds


@lru_cache(maxsize=256)
def pass_graph(schedule: Schedule, stages: int, chunks: int, micro_batches: int) -> PassGraph:
    """Return the passes of a pipeline."""
    return graph_of(CostTable(stages, chunks, micro_batches, 0, schedule, ()))


def few_micro_batches(layout: Layout) -> int:
    """Return a number of micro-batches that fills the pipeline and whose first round is as long as that of all."""
    return min(layout.micro_batches, _ROUNDS * layout.pipeline + layout.micro_batches % layout.pipeline)


class StepModel:
    """The steps of a model on a device, in any layout."""

    def __init__(self, widths: Widths, makes: Sequence[LayerKind], speed: Speed, predictions: int = 0) -> None:
        """Take the kind of each layer in order, and the number of further predictions (MTP)."""
        self._widths, self._makes, self._speed, self._predictions = widths, makes, speed, predictions
        self._flops = sum(layer_flops(widths, experts=self._routes(make)) for make in makes) + head_flops(widths)
        last = layer_flops(widths, experts=self._routes(makes[-1]))
        self._flops += predictions * (last + prediction_flops(widths))

    def predict(
        self, layout: Layout, schedule: Schedule, cells: CellLayers, software: Software, *, sequence: bool
    ) -> StepTime:
        """Predict a step with these layers in the cells, in the order chunks x stages."""
        widths, speed, stages = self._widths, self._speed, layout.pipeline
        tokens = widths.tokens * layout.size // layout.context
        share = RankShare(tokens, layout.tensor, sequence, layout.context, layout.expert, layout.data)
        makes = self._split_makes(cells)
        passes = self._cell_times(cells, makes, share, software)
        ends, words = [], widths.hidden * widths.vocabulary / layout.tensor
        for stage in range(stages):
            routed = [self._routes(make) for own in makes[stage::stages] for make in own]
            parameters = stage_parameters(widths, share, len(routed) - sum(routed), sum(routed))
            parameters += round(words * ((stage == 0) + (stage == stages - 1)))
            if software.shards == SHARDED_WEIGHTS:
                part = parameters / layout.chunks
                passes[stage::stages] = [sharded_pass(one, part, share, speed) for one in passes[stage::stages]]
            one = _add_passes(passes[stage::stages])
            ends.append(end_times(parameters, share, speed, software).after(one, software))
        moved = hand_over_seconds(widths, share, speed, software) if stages > 1 else 0.0
        step, bubble = _pipeline_seconds(layout, schedule, passes, moved)
        seconds = step + max(ends)
        sent = max(_add_passes(passes[stage::stages]).sent for stage in range(stages)) * layout.micro_batches
        rate = layout.samples * widths.tokens / seconds / layout.devices
        return StepTime(seconds, bubble, sent + max(ends), rate, 3 * self._flops * rate / (speed.tflops * _TERA))

    def _routes(self, make: LayerKind) -> bool:
        return make is not LayerKind.DENSE and bool(self._widths.experts)

    def _split_makes(self, cells: CellLayers) -> list[Sequence[LayerKind]]:
        found, first = [], 0
        for cell in cells:
            count = round(sum(cell.values()))
            found.append(self._makes[first : first + count])
            first += count
        return found

    def _cell_times(
        self, cells: CellLayers, makes: Sequence[Sequence[LayerKind]], share: RankShare, software: Software
    ) -> list[PassTimes]:
        times = {
            make: layer_times(self._widths, share, self._speed, software, experts=self._routes(make))
            for make in set(self._makes)
        }
        found = []
        for cell, own in zip(cells, makes, strict=True):
            whole = _add_passes([times[make] for make in own])
            again = sum(times[make].again[kind] * count for make in own for kind, count in cell.items()) / max(
                len(own), 1
            )
            found.append(whole._replace(backward=whole.backward + again))
        head = head_times(self._widths, share, self._speed)
        tail = [head, *[head, times[self._makes[-1]]] * self._predictions]
        found[-1] = _add_passes([found[-1], *tail])
        return found


def _add_passes(parts: Sequence[PassTimes]) -> PassTimes:
    sums = (sum(getattr(one, name) for one in parts) for name in ("forward", "backward", "sent"))
    forward, backward, sent = sums
    return PassTimes(forward, backward, {}, sent)


def _pipeline_seconds(
    layout: Layout, schedule: Schedule, passes: Sequence[PassTimes], moved: float
) -> tuple[float, float]:
    # Return the seconds of the passes of a step, and the fraction of them in which stages wait.
    last = len(passes) - 1
    forward = np.array([one.forward + (moved if at else 0.0) for at, one in enumerate(passes)])
    backward = np.array([one.backward + (moved if at < last else 0.0) for at, one in enumerate(passes)])
    of_stage = (forward + backward).reshape(layout.chunks, layout.pipeline).sum(axis=0)
    few = few_micro_batches(layout)
    graph = pass_graph(schedule, layout.pipeline, layout.chunks, few)
    # Once the pipeline is full, each further micro-batch takes as long as on the slowest stage.
    step = float(graph.step_ticks(np.concatenate([forward, backward])[:, None])[0])
    step += float(of_stage.max()) * (layout.micro_batches - few)
    busy = float(of_stage.sum()) * layout.micro_batches
    return step, max(1 - busy / (layout.pipeline * step), 0.0)
