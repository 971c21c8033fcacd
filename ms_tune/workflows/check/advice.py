"""Suggest the cheapest change with which a job fits: by the plan that ``ms-tune fit`` verified, else by the estimate.

By the estimate it fits even if it needs as much above it as the worst simulated job did.
"""

from __future__ import annotations

import importlib.util
import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from ms_tune.diagnostics import KeyPath
from ms_tune.dryrun.prepare import LoadedConfig, limit_before
from ms_tune.dryrun.request import Setting
from ms_tune.dryrun.settings import with_settings
from ms_tune.enums import Dialect, RecomputeMode
from ms_tune.errors import MsTuneError
from ms_tune.estimate.flops import require_widths
from ms_tune.estimate.memory import Estimate, StageEstimate
from ms_tune.fit.job import (
    FOLDER,
    PlannedJob,
    layer_offset_or_none,
    lists_of_plan,
    read_job,
    read_present_plan,
    table_name,
)
from ms_tune.fit.layouts import can_accumulate, is_sequence_parallel, layout_keys, read_layout, with_layout
from ms_tune.normalize.sapp_lists import SappLists
from ms_tune.planning.table import PlanLists, cells_of
from ms_tune.records import Any, Record
from ms_tune.source.yaml import MISSING, SourceFile
from ms_tune.text import Message, msg
from ms_tune.units import short_gib
from ms_tune.workflows.check.estimate import StageParts, estimate_parts, read_stages
from ms_tune.workflows.check.result import Suggestion, settings_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ms_tune.fit.table_cache import CachedTable

# How many times its estimate a stage may need in the verdict of a dryrun, with fragmentation: what stays for the whole step, and the
# rest. No simulated job needed as much (docs/accuracy.md).
_MARGINS = {
    Dialect.MINDFORMERS: (1.35, 1.75),
    Dialect.MINDFORMERS_PYNATIVE: (1.35, 1.75),
    Dialect.MINDSPEED_MS: (1.3, 1.3),
}
_WIDER = {"tensor": 8, "pipeline": 16}  # splits with more ranks, and their maximum; more TP ranks would leave a machine


def suggest_change(job: PlannedJob, now: Estimate, *, recomputes: bool = True) -> Suggestion | None:
    """Return the cheapest change after which every stage fits with a margin; None if no known change does.

    The first steps cost no time: optimizer state and activations that more ranks share. Then more layers are recomputed, the
    micro-batch gets smaller, and more TP ranks or stages share the layers.

    ``recomputes`` is false if measured layers show that recomputation alone does not suffice.
    """
    search = _Search(job, now)
    for trial, may_recompute in search.list_trials(alone=recomputes):
        try:
            found = search.try_change(trial, recompute=may_recompute and job.first.recomputes)
        except MsTuneError:
            continue  # the framework refuses it, or the config cannot express it
        if found is not None:
            return found
    return None


class _Trial(Record):
    """A changed copy of a job."""

    job: PlannedJob
    changes: tuple[tuple[str, Message], ...] = ()  # the kind of each change, and the change in words


class _Search:
    def __init__(self, job: PlannedJob, now: Estimate) -> None:
        self._job, self._now = job, now
        self._margins = _MARGINS[job.loaded.dialect]

    def list_trials(self, *, alone: bool) -> Iterator[tuple[_Trial, bool]]:
        """Yield changed copies of the job, those that cost least first, and whether more layers may be recomputed in them."""
        first = best = _Trial(self._job)
        for step in (self._shard_optimizer, self._split_sequence):
            free = step(first)
            if free is not None:
                yield free, False
                best = step(best) or best
        if len(best.changes) > 1:
            yield best, False
        if alone:
            yield first, True
        if best is not first:
            yield best, True
        smaller: _Trial | None = best
        while smaller is not None and (smaller := self._halve_micro_batch(smaller)) is not None:
            best = smaller
            yield best, True
        for name, most in _WIDER.items():
            wider: _Trial | None = best
            while wider is not None and (wider := self._double_ranks(wider, name, most)) is not None:
                yield wider, True

    def try_change(self, trial: _Trial, *, recompute: bool) -> Suggestion | None:
        """Return the suggestion of a trial, with as few recomputed layers as needed; None if a stage may exceed the limit."""
        job = trial.job
        limit, reserve = limit_before(job.request, job.first)
        room, parts = limit.bytes - reserve, read_stages(job)
        rows = _count_recomputed(job) if recompute else None
        more = []
        for one in parts:
            left = sum(row[one.stage] for row in job.placement) - sum(row[one.stage] for row in rows) if rows else 0
            count = self._count_needed(one, left, room)
            if count is None:
                return None
            more.append(count)
        if rows is not None and any(more):
            loaded = job.with_lists(_lists_with_more(job, rows, more))
            trial = _add_change(trial, loaded, "recompute", count=sum(more))
            parts = read_stages(trial.job)
        after = estimate_parts(trial.job, parts, limit, reserve)
        need = max(map(self._need, after.stages))
        return self._suggest(trial, after, need + reserve) if trial.changes and need <= room else None

    def _count_needed(self, stage: StageParts, left: int, room: int) -> int | None:
        # Return the fewest of the remaining layers to recompute; None if not even all of them are enough.
        counts = range(left + 1)
        count = bisect_left(counts, x=True, key=lambda more: self._need(stage.estimate(more)) <= room)
        return count if count in counts else None

    def _need(self, stage: StageEstimate) -> int:
        lasting, rest = self._margins
        return round(lasting * stage.lasting_bytes + rest * (stage.activation_bytes + stage.transient_bytes))

    def _suggest(self, trial: _Trial, after: Estimate, need: int) -> Suggestion:
        settings = changed_settings(self._job.loaded.source, trial.job.loaded.source)
        what = trial.changes[0][1]
        for _, other in trial.changes[1:]:
            what = msg("check.change.and", first=what, second=other)
        sizes = {"need": short_gib(need), "limit": short_gib(after.limit.bytes)}
        what = msg("check.change.set", what=what, settings=settings_text(settings))
        text = msg("check.change.estimate", what=what, **sizes)
        freed = self._now.fullest.peak_bytes - after.fullest.peak_bytes
        return Suggestion(trial.changes[-1][0], text, freed, enough=True, settings=settings)

    def _shard_optimizer(self, trial: _Trial) -> _Trial | None:
        loaded, split = trial.job.loaded, trial.job.first.split
        key = layout_keys(loaded.dialect).sharded
        if key is None or split.data * split.context == 1 or loaded.source.get(key) is True:
            return None
        return _set_values(trial, "optimizer", {key: True})

    def _split_sequence(self, trial: _Trial) -> _Trial | None:
        loaded = trial.job.loaded
        if trial.job.first.split.tensor == 1 or is_sequence_parallel(loaded):
            return None
        return _set_values(trial, "sequence", {layout_keys(loaded.dialect).sequence: True})

    def _halve_micro_batch(self, trial: _Trial) -> _Trial | None:
        # Halve the micro-batch, and double their number where that keeps the samples of a step.
        keys, layout = layout_keys(trial.job.loaded.dialect).sizes, read_layout(trial.job.loaded, trial.job.first)
        if layout.size < 2:  # noqa: PLR2004 - nothing to halve
            return None
        values: dict[KeyPath, object] = {keys["size"]: layout.size // 2}
        if "micro_batches" in keys and can_accumulate(trial.job.loaded.dialect, layout._replace(micro_batches=2)):
            values[keys["micro_batches"]] = layout.micro_batches * layout.size // (layout.size // 2)
        return _set_values(trial, "micro-batch", values, value=layout.size // 2)

    def _double_ranks(self, trial: _Trial, name: str, most: int) -> _Trial | None:
        # Double the TP ranks or the stages, halve the DP ranks, and keep the samples of a step where micro-batches can accumulate.
        job = trial.job
        layout, one = read_layout(job.loaded, job.first), require_widths(job.loaded.job.model).attention
        ranks = 2 * getattr(layout, name)
        wider = layout._replace(**{name: ranks}, data=layout.data // 2, micro_batches=2 * layout.micro_batches)
        if layout.data % 2 or ranks > most or one.heads % wider.tensor or one.groups % wider.tensor:
            return None
        if not can_accumulate(job.loaded.dialect, wider):
            wider = wider._replace(micro_batches=layout.micro_batches)
        try:
            return _add_change(trial, with_layout(job.loaded, wider, job.layers), name, value=ranks)
        except MsTuneError:
            return None


def changed_settings(before: SourceFile, after: SourceFile) -> tuple[Setting, ...]:
    """Return the keys that differ, with their new values."""
    paths = changed_keys(after.data, before.data, ())
    return tuple(Setting(path, json.dumps(after.get(path), ensure_ascii=False)) for path in paths)


def changed_keys(now: object, was: object, path: KeyPath) -> Iterator[KeyPath]:
    """Yield the paths of values that differ, below a path."""
    if isinstance(now, dict) and isinstance(was, dict):
        for name in dict.fromkeys((*now, *was)):
            if isinstance(name, (str, int)):
                yield from changed_keys(now.get(name, MISSING), was.get(name, MISSING), (*path, name))
    elif now != was and path:
        yield path


def _set_values(trial: _Trial, name: str, values: Mapping[KeyPath, object], **params: object) -> _Trial | None:
    # Return the job with other values of its config, or None if the framework refuses them.
    loaded, settings = trial.job.loaded, [Setting(path, json.dumps(value)) for path, value in values.items()]
    try:
        changed = loaded.with_source(with_settings(loaded.source, settings, loaded.dialect))
        return _add_change(trial, changed, name, **params)
    except MsTuneError:
        return None


def _add_change(trial: _Trial, loaded: LoadedConfig, name: str, **params: object) -> _Trial:
    # Replace an earlier change of the same kind.
    before = tuple(one for one in trial.changes if one[0] != name)
    return _Trial(read_job(trial.job.request, loaded), (*before, (name, msg(f"check.change.{name}", **params))))


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


def _lists_with_more(job: PlannedJob, rows: Sequence[Sequence[int]], more: Sequence[int]) -> SappLists:
    # Return the lists with this many more layers of each stage, filling its first chunk before the next.
    wanted = [list(row) for row in rows]
    for stage, count in enumerate(more):
        left = count
        for chunk, row in enumerate(wanted):
            added = min(left, job.placement[chunk][stage] - row[stage])
            row[stage] += added
            left -= added
    return SappLists(layer_offset_or_none(job.placement), wanted, None, None)


_NEAR = 0.005  # of the limit: how far peaks of other plans may be from those of the table (docs/accuracy.md)


class TablePrediction(Record):
    """The prediction of a table for a job."""

    fits: bool  # every stage is within the limit without a change
    change: Suggestion | None = None  # to the plan whose dryruns fitted; None if none did, or they exceed this limit


def predict_by_table(job: PlannedJob, room_bytes: int) -> TablePrediction | None:
    """Predict from the table of an earlier run; None if no valid table exists, or lists cannot express the layers."""
    kept = _find_table(job)
    plan = read_present_plan(job, kept.table) if kept is not None else None
    if kept is None or plan is None:
        return None
    costs = kept.costs
    now = costs.state_of(cells_of(kept.table, plan, str(job.loaded.source.path)))
    verified = kept.table.present if kept.needs and max(kept.needs) <= room_bytes else None
    room = [room_bytes - size - round(_NEAR * room_bytes) for size in kept.fragment_bytes]
    if verified == plan or bool((costs.peak_bytes(now[None])[0] <= room).all()):
        return TablePrediction(fits=True)
    return TablePrediction(fits=False, change=verified and _verified_change(job, kept, verified, now))


def _find_table(job: PlannedJob) -> CachedTable | None:
    # Look at the names of files first: few jobs have a table, and reading one needs NumPy and the job without recomputation.
    from ms_tune.native import cache_root  # noqa: PLC0415 - only where memory may not be enough

    try:
        if not any((cache_root() / FOLDER).glob(f"{table_name(job)}*")):
            return None
    except (MsTuneError, OSError):
        return None
    if importlib.util.find_spec("numpy") is None:
        return None
    from ms_tune.fit.table_cache import read_cached_table  # noqa: PLC0415 - it needs NumPy, which the base install has not

    return read_cached_table(job)


def _verified_change(job: PlannedJob, kept: CachedTable, plan: PlanLists, now: NDArray[Any]) -> Suggestion:
    # Return the change to the plan that the earlier run found, whose dryruns showed that it fits.
    costs = kept.costs
    state = costs.state_of(cells_of(kept.table, plan, str(job.loaded.source.path)))
    time, before = (int(costs.step_ticks(one[None])[0]) for one in (state, now))
    peaks, after = (costs.peak_bytes(one[None])[0] for one in (now, state))
    try:
        settings = changed_settings(job.loaded.source, job.with_lists(lists_of_plan(job, plan)).source)
    except MsTuneError:  # the config cannot express it
        settings = ()
    fullest = int(peaks.argmax())
    sizes = {"longer": f"{time / before - 1:+.1%}", "need": short_gib(max(kept.needs))}
    text = msg("check.change.verified", settings=settings_text(settings), **sizes)
    return Suggestion("table", text, int(peaks[fullest] - after[fullest]), enough=True, settings=settings)
