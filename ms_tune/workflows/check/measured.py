"""Judge a job by the table that an earlier ``ms-tune fit`` measured, and name the plan that it verified."""

from __future__ import annotations

import importlib.util

from ms_tune.errors import MsTuneError
from ms_tune.fit.job import FOLDER, PlannedJob, lists_of_plan, read_present_plan, table_name
from ms_tune.planning.table import PlanLists, cells_of
from ms_tune.records import Any, Record
from ms_tune.text import msg
from ms_tune.units import short_gib
from ms_tune.workflows.check.advice import changed_settings
from ms_tune.workflows.check.result import Suggestion, settings_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ms_tune.fit.table_cache import CachedTable

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
