"""Estimate the memory of a job's stages by formulas, and find the cheapest change for the fullest stage."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from ms_tune.diagnostics import KeyPath
from ms_tune.dialects.mindformers.read import has_whole_vocabulary, shards_accumulated_gradients
from ms_tune.dialects.stage import with_prediction
from ms_tune.dryrun.prepare import LoadedConfig, prepare_run
from ms_tune.dryrun.request import PreparedRun, Setting
from ms_tune.dryrun.settings import with_settings
from ms_tune.enums import Dialect, LayerKind, RecomputeMode
from ms_tune.errors import ConfigError, MsTuneError, UnsupportedError
from ms_tune.estimate.flops import Widths, require_widths
from ms_tune.estimate.memory import (
    Estimate,
    LiveLayers,
    Outlook,
    RankShare,
    StageEstimate,
    estimate_stage,
    layer_activations,
    logits_bytes,
    with_static_weights,
)
from ms_tune.estimate.persistent import StaticSharing
from ms_tune.estimate.static import StaticMemory, StaticModel, estimate_static_memory
from ms_tune.fit.job import PlannedJob, layer_offset_or_none, read_job, read_present_plan
from ms_tune.fit.layouts import is_sequence_parallel, layout_keys, read_layout
from ms_tune.normalize.sapp_lists import SappLists
from ms_tune.planning.table import cells_of
from ms_tune.records import Record
from ms_tune.text import Message, msg
from ms_tune.units import short_gib
from ms_tune.verdict.limit import Limit
from ms_tune.workflows.check.result import Suggestion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ms_tune.planning.costs import Costs


def estimate_job(job: PlannedJob, limit: Limit, reserve_bytes: int) -> Estimate:
    """Estimate the memory of every stage of a job."""
    widths = require_widths(job.loaded.job.model)
    if any(layer.swap for layer in job.now.layers):
        raise UnsupportedError(msg("check.swap"))
    layout = read_layout(job.loaded, job.first)
    tokens = widths.tokens * layout.size // layout.context
    share = RankShare(tokens, layout.tensor, is_sequence_parallel(job.loaded), layout.context, layout.expert)
    others = [prepare_run(job.request._replace(stage=one, layers=None), job.loaded) for one in range(1, job.stages)]
    stages = tuple(_config_stage(job, run, widths, share) for run in (job.first, *others))
    static = job.loaded.dialect is Dialect.MINDFORMERS
    return Estimate(stages, limit, reserve_bytes, bool(widths.experts), static)


def _config_stage(job: PlannedJob, run: PreparedRun, widths: Widths, share: RankShare) -> StageEstimate:
    static = _estimate_static(job, run, widths)
    if static is None and not run.theory:
        raise UnsupportedError(msg("check.no-theory"))
    if run.in_flight is None:
        raise UnsupportedError(msg("fitting.schedule"))
    lasting = sum(run.theory.values())
    if not run.theory and static is not None:
        lasting = static.weights + static.optimizer
    elif static is None and "gradients" not in run.theory:  # as large as the weights, if in the same format
        lasting += run.theory.get("weights", 0)
    layers = []
    for kind, count in run.kinds.items():
        chunk, make = kind.cell
        activations = layer_activations(widths, share, experts=make is not LayerKind.DENSE and bool(widths.experts))
        full = kind.recompute is RecomputeMode.FULL
        # Without stages there is one pass, regardless of the chunks in the layer lists.
        passes = run.in_flight[chunk if run.stages > 1 else 0]
        layers.append(LiveLayers(activations, passes, full=full, layers=count))
    logits = logits_bytes(widths, share) if run.stage == run.stages - 1 else 0
    estimate = estimate_stage(run.stage, run.layers, lasting, layers, logits)
    return with_static_weights(estimate, static) if static is not None else estimate


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


_TRIES = 12  # bisection steps over the number of layers; no stage has more than a few thousand


def cheapest_change(job: PlannedJob, now: Estimate) -> Suggestion | None:
    """Return the cheapest change with an estimate below the limit; else the one that saves most.

    None if no known change saves memory.
    """
    best: Suggestion | None = None
    for change in _list_changes(job, now):
        if change.enough:
            return change
        if best is None or (change.freed_bytes or 0) > (best.freed_bytes or 0):
            best = change
    return best if best is not None and (best.freed_bytes or 0) > 0 else None


def _list_changes(job: PlannedJob, now: Estimate) -> Iterator[Suggestion]:
    dialect, split = job.loaded.dialect, job.first.split
    shared = layout_keys(dialect).sharded
    if shared is not None and split.data * split.context > 1 and job.loaded.source.get(shared) is not True:
        yield from _try_value(job, now, "optimizer", shared, value=True)
    if split.tensor > 1 and not is_sequence_parallel(job.loaded):
        yield from _try_value(job, now, "sequence", layout_keys(dialect).sequence, value=True)
    yield from _try_recompute(job, now)
    path = layout_keys(dialect).sizes["size"]
    size = job.loaded.source.get(path)
    if isinstance(size, int) and not isinstance(size, bool) and size > 1:
        yield from _try_value(job, now, "micro-batch", path, value=size // 2)


def _try_value(job: PlannedJob, now: Estimate, name: str, path: KeyPath, *, value: bool | int) -> Iterator[Suggestion]:
    written = str(value).lower()
    try:
        source = with_settings(job.loaded.source, [Setting(path, written)], job.loaded.dialect)
        after = _estimate_with(job, job.loaded.with_source(source), now)
    except MsTuneError:
        return
    key = ".".join(map(str, path))
    yield _suggest_by_estimate(name, now, after, key=key, value=written)


def _try_recompute(job: PlannedJob, now: Estimate) -> Iterator[Suggestion]:
    # Yield full recomputation of the fewest additional layers for which the fullest stage is below the limit; else of all its
    # layers.
    rows = _count_recomputed(job)
    stage = now.fullest.stage
    if rows is None or now.fullest.recomputed >= now.fullest.layers:
        return
    least, most = 1, now.fullest.layers - now.fullest.recomputed
    found = None
    for _ in range(_TRIES):
        middle = (least + most) // 2 if found is not None else most
        try:
            after = _estimate_with(job, job.with_lists(_lists_with_more(job, rows, stage, middle)), now)
        except MsTuneError:
            return
        enough = after.stages[stage].peak_bytes <= now.room_bytes
        if found is None or enough:
            found = (middle, after)
        if not enough and middle == most and found[0] == most:
            break  # not even all of them
        least, most = (least, middle) if enough else (middle + 1, most)
        if least >= most:
            break
    if found is not None:
        yield _suggest_by_estimate("recompute", now, found[1], count=found[0], stage=stage)


def _count_recomputed(job: PlannedJob) -> list[list[int]] | None:
    # Return the fully recomputed layers of each cell, or None if they are not the first ones of a cell.
    rows = [[0] * job.stages for _ in range(job.chunks)]
    seen: dict[tuple[int, int], int] = {}
    for layer in job.now.layers[: job.layers]:
        cell = (layer.chunk, layer.stage)
        rank = seen[cell] = seen.get(cell, 0) + 1
        if layer.recompute is RecomputeMode.FULL:
            if rows[layer.chunk][layer.stage] != rank - 1:
                return None
            rows[layer.chunk][layer.stage] = rank
    return rows


def _lists_with_more(job: PlannedJob, rows: list[list[int]], stage: int, more: int) -> SappLists:
    # Return the lists with this many more layers of a stage, filling its first chunk before the next.
    wanted = [list(row) for row in rows]
    for chunk, row in enumerate(wanted):
        added = min(more, job.placement[chunk][stage] - row[stage])
        row[stage] += added
        more -= added
    return SappLists(layer_offset_or_none(job.placement), wanted, None, None)


def _estimate_with(job: PlannedJob, loaded: LoadedConfig, now: Estimate) -> Estimate:
    return estimate_job(read_job(job.request, loaded), now.limit, now.reserve_bytes)


def _suggest_by_estimate(name: str, now: Estimate, after: Estimate, **params: object) -> Suggestion:
    freed = now.fullest.peak_bytes - after.stages[now.fullest.stage].peak_bytes
    enough = after.outlook is not Outlook.OVER and after.fullest.peak_bytes <= now.room_bytes
    return _suggest_change(name, msg(f"check.change.{name}", **params), freed, enough=enough)


def _suggest_change(name: str, change: Message, freed: int, *, enough: bool) -> Suggestion:
    text = msg("check.change.frees", what=change, size=short_gib(max(freed, 0)))
    return Suggestion(name, text if enough else msg("check.change.not-enough", what=text), freed, enough)


_MOST_STATES = 2000  # maximum per stage; no stage has so many layers
_APART = {RecomputeMode.SELECT: RecomputeMode.COMM, RecomputeMode.COMM: RecomputeMode.SELECT}  # cannot be in one cell


class TablePrediction(Record):
    """The prediction of a table for a job."""

    fits: bool  # every stage is within the limit without a change
    # The fastest change with which every stage is within the limit; else the one that saves most.
    change: Suggestion | None = None


def predict_by_table(job: PlannedJob, room_bytes: int) -> TablePrediction | None:
    """Predict from the table of an earlier run; None if no valid table exists, or lists cannot express the layers."""
    if importlib.util.find_spec("numpy") is None:
        return None
    from ms_tune.fit.table_cache import read_cached_table  # noqa: PLC0415 - it needs NumPy, which the base install has not

    kept = read_cached_table(job)
    plan = read_present_plan(job, kept.table) if kept is not None else None
    if kept is None or plan is None:
        return None
    costs = kept.costs
    try:
        now = costs.state_of(cells_of(kept.table, plan, str(job.loaded.source.path)))
    except ConfigError:
        return None
    return _TableSearch(costs, room_bytes - kept.fragment_bytes, now).search()


class _TableSearch:
    """Search for the fewest additional layers of every stage over the limit, per recompute mode."""

    def __init__(self, costs: Costs, room: NDArray[Any], now: NDArray[Any]) -> None:
        self._costs, self._room, self._now = costs, room, now
        self._before = costs.peak_bytes(now[None])[0]
        over = self._before - room
        self._over = [stage for stage in range(len(over)) if over[stage] > 0]
        self._fullest = int(over.argmax())

    def search(self) -> TablePrediction:
        """Return the prediction."""
        if not self._over:
            return TablePrediction(fits=True)
        tried = [one for kind in self._costs.table.kinds for one in self._suggest_mode(kind)]
        enough = [one for one in tried if one[0].enough]
        if enough:
            return TablePrediction(fits=False, change=min(enough, key=lambda one: one[1])[0])
        most = max(tried, key=lambda one: one[0].freed_bytes or 0, default=None)
        return TablePrediction(
            fits=False, change=most[0] if most is not None and (most[0].freed_bytes or 0) > 0 else None
        )

    def _suggest_mode(self, kind: RecomputeMode) -> Iterator[tuple[Suggestion, int]]:
        # Yield the change for one recompute mode, and the ticks of its step.
        if kind in (RecomputeMode.NONE, RecomputeMode.SWAP):
            return
        state = self._now
        added: dict[int, int] = {}
        for stage in self._over:
            states = self._states_with_more(state, kind, stage)
            peaks = self._costs.peak_bytes(states)[:, stage]
            within = (peaks <= self._room[stage]).nonzero()[0]
            index = int(within[0]) if len(within) else int(peaks.argmin())
            if index:
                state, added[stage] = states[index], index
        if not added:
            return
        after = self._costs.peak_bytes(state[None])[0]
        enough = bool((after <= self._room).all())
        time, before = (int(self._costs.step_ticks(one[None])[0]) for one in (state, self._now))
        freed = int(self._before[self._fullest] - after[self._fullest])
        text = msg(
            "check.change.table", kind=kind.value, layers=_stage_ranges(added), longer=f"{time / before - 1:.1%}"
        )
        yield _suggest_change("table", text, freed, enough=enough), time

    def _states_with_more(self, state: NDArray[Any], kind: RecomputeMode, stage: int) -> NDArray[Any]:
        # Return the state with 0, 1, 2, ... more layers of a stage in this mode, filling its first chunk before the next.
        table = self._costs.table
        to, none = table.kinds.index(kind), table.kinds.index(RecomputeMode.NONE)
        apart = _APART.get(kind)
        states, count = state[None].repeat(_MOST_STATES, axis=0), 1
        for cell in range(stage, table.cells, table.stages):
            if apart in table.kinds and state[cell, table.kinds.index(apart)]:
                continue
            for number in range(count, min(count + int(state[cell, none]), _MOST_STATES)):
                states[number:, cell, none] -= 1
                states[number:, cell, to] += 1
                count = number + 1
        return states[:count]


def _stage_ranges(added: Mapping[int, int]) -> str:
    # Return the stages with the layers added to each; adjacent stages with equal numbers are grouped.
    rows = enumerate(sorted(added))
    groups = [
        [stage for _, stage in group] for _, group in groupby(rows, key=lambda one: (one[1] - one[0], added[one[1]]))
    ]
    names = {tuple(group): f"{group[0]}-{group[-1]}" if len(group) > 1 else f"{group[0]}" for group in groups}
    return ", ".join(f"{name}: {added[group[0]]}" for group, name in names.items())
