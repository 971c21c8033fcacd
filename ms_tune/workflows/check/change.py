"""The cheapest change of a config that frees memory on its fullest stage: each is written into a copy and estimated anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dryrun.request import Setting
from ms_tune.dryrun.settings import with_settings
from ms_tune.enums import RecomputeMode
from ms_tune.errors import MsTuneError
from ms_tune.estimate.memory import Outlook
from ms_tune.fit.job import offset_of, read_job
from ms_tune.fit.layouts import keys_of, sequence_parallel
from ms_tune.normalize.sapp_lists import SappLists
from ms_tune.text import msg
from ms_tune.units import gib
from ms_tune.workflows.check.estimate import estimate_of
from ms_tune.workflows.check.result import Suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dryrun.prepare import LoadedConfig
    from ms_tune.estimate.memory import Estimate
    from ms_tune.fit.job import PlannedJob

_TRIES = 12  # halvings of a number of layers; nobody has more than a few thousand in a stage


def cheapest_change(job: PlannedJob, now: Estimate) -> Suggestion | None:
    """The first change, by its price, with which the estimate is below the limit; else the one that frees most.

    Returns:
        The change; None where none of those known frees anything.
    """
    best: Suggestion | None = None
    for change in _changes(job, now):
        if change.enough:
            return change
        if best is None or (change.freed_bytes or 0) > (best.freed_bytes or 0):
            best = change
    return best if best is not None and (best.freed_bytes or 0) > 0 else None


def _changes(job: PlannedJob, now: Estimate) -> Iterator[Suggestion]:
    """What can be tried, what costs no time first."""
    dialect, split = job.loaded.dialect, job.first.split
    shared = keys_of(dialect).sharded
    if shared is not None and split.data * split.context > 1 and job.loaded.source.get(shared) is not True:
        yield from _set(job, now, "optimizer", shared, value=True)
    if split.tensor > 1 and not sequence_parallel(job.loaded):
        yield from _set(job, now, "sequence", keys_of(dialect).sequence, value=True)
    yield from _recompute(job, now)
    path = keys_of(dialect).sizes["size"]
    size = job.loaded.source.get(path)
    if isinstance(size, int) and not isinstance(size, bool) and size > 1:
        yield from _set(job, now, "micro-batch", path, value=size // 2)


def _set(job: PlannedJob, now: Estimate, name: str, path: KeyPath, *, value: bool | int) -> Iterator[Suggestion]:
    """A value, if it can be set and frees anything."""
    written = str(value).lower()
    try:
        source = with_settings(job.loaded.source, [Setting(path, written)], job.loaded.dialect)
        after = _estimated(job, job.loaded.with_source(source), now)
    except MsTuneError:
        return
    key = ".".join(map(str, path))
    yield _change(name, now, after, key=key, value=written)


def _recompute(job: PlannedJob, now: Estimate) -> Iterator[Suggestion]:
    """The fewest more layers of the fullest stage to recompute in full with which it is below the limit; else all."""
    rows = _recomputed(job)
    stage = now.fullest.stage
    if rows is None or now.fullest.recomputed >= now.fullest.layers:
        return
    least, most = 1, now.fullest.layers - now.fullest.recomputed
    found = None
    for _ in range(_TRIES):
        middle = (least + most) // 2 if found is not None else most
        try:
            after = _estimated(job, job.with_lists(_lists(job, rows, stage, middle)), now)
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
        yield _change("recompute", now, found[1], count=found[0], stage=stage)


def _recomputed(job: PlannedJob) -> list[list[int]] | None:
    """How many layers of each cell are recomputed in full; None where others are than the first ones."""
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


def _lists(job: PlannedJob, rows: list[list[int]], stage: int, more: int) -> SappLists:
    """The lists with so many more layers of a stage, of its first chunk before those of the next."""
    wanted = [list(row) for row in rows]
    for chunk, row in enumerate(wanted):
        added = min(more, job.placement[chunk][stage] - row[stage])
        row[stage] += added
        more -= added
    return SappLists(offset_of(job.placement), wanted, None, None)


def _estimated(job: PlannedJob, loaded: LoadedConfig, now: Estimate) -> Estimate:
    """What the job holds with another config."""
    return estimate_of(read_job(job.request, loaded), now.limit, now.reserve_bytes)


def _change(name: str, now: Estimate, after: Estimate, **params: object) -> Suggestion:
    freed = now.fullest.peak_bytes - after.stages[now.fullest.stage].peak_bytes
    enough = after.outlook is not Outlook.OVER and after.fullest.peak_bytes <= now.room_bytes
    text = msg(f"check.change.{name}", **params)
    told = msg("check.change.frees", what=text, size=gib(max(freed, 0)))
    return Suggestion(name, told if enough else msg("check.change.not-enough", what=told), freed, enough)
