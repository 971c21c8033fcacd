"""Predict a job's memory, and the cheapest recomputation that makes it fit, by the table that an earlier ``ms-tune fit`` measured."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from ms_tune.dryrun.request import Setting
from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError, MsTuneError
from ms_tune.fit.job import FOLDER, PlannedJob, lists_of_plan, read_present_plan, table_name
from ms_tune.planning.table import PlanLists, cells_of, plan_of
from ms_tune.records import Any, Record
from ms_tune.text import msg
from ms_tune.units import short_gib
from ms_tune.workflows.check.advice import changed_settings
from ms_tune.workflows.check.result import Suggestion, settings_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ms_tune.fit.table_cache import CachedTable
    from ms_tune.planning.costs import Costs

_MOST_STATES = 2000  # maximum per stage; no stage has so many layers
_APART = {RecomputeMode.SELECT: RecomputeMode.COMM, RecomputeMode.COMM: RecomputeMode.SELECT}  # cannot be in one cell
_NEAR = 0.005  # of the limit: how far peaks of other plans may be from those of the table (docs/accuracy.md)


class TablePrediction(Record):
    """The prediction of a table for a job."""

    fits: bool  # every stage is within the limit without a change
    # The fastest change with which every stage is within the limit; else the one that saves most.
    change: Suggestion | None = None


def predict_by_table(job: PlannedJob, room_bytes: int) -> TablePrediction | None:
    """Predict from the table of an earlier run; None if no valid table exists, or lists cannot express the layers."""
    kept = _find_table(job)
    plan = read_present_plan(job, kept.table) if kept is not None else None
    if kept is None or plan is None:
        return None
    costs, source = kept.costs, str(job.loaded.source.path)
    try:
        now = costs.state_of(cells_of(kept.table, plan, source))
    except ConfigError:
        return None
    verified = kept.table.present if kept.needs and max(kept.needs) <= room_bytes else None
    if verified == plan:
        return TablePrediction(fits=True)

    def write(state: NDArray[Any]) -> tuple[Setting, ...]:
        return _plan_settings(job, plan_of(kept.table, costs.cells_of(state)))

    room = [room_bytes - size - round(_NEAR * room_bytes) for size in kept.fragment_bytes]
    found = _TableSearch(costs, room, now, write).search()
    if verified is None or found.fits:
        return found
    return TablePrediction(fits=False, change=_verified_change(job, kept, verified, now))


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
    settings, fullest = _plan_settings(job, plan), int(peaks.argmax())
    sizes = {"longer": f"{time / before - 1:+.1%}", "need": short_gib(max(kept.needs))}
    text = msg("check.change.verified", settings=settings_text(settings), **sizes)
    return Suggestion("table", text, int(peaks[fullest] - after[fullest]), enough=True, settings=settings)


def _plan_settings(job: PlannedJob, plan: PlanLists) -> tuple[Setting, ...]:
    try:
        return changed_settings(job.loaded.source, job.with_lists(lists_of_plan(job, plan)).source)
    except MsTuneError:  # the config cannot express it
        return ()


class _TableSearch:
    """Search for the fewest further recomputed layers with which each stage fits, by recompute mode."""

    def __init__(
        self,
        costs: Costs,
        room: Sequence[int],
        now: NDArray[Any],
        write: Callable[[NDArray[Any]], tuple[Setting, ...]] = lambda _state: (),
    ) -> None:
        self._costs, self._room, self._now, self._write = costs, room, now, write
        self._before = costs.peak_bytes(now[None])[0]
        over = self._before - room
        self._over = [stage for stage in range(len(over)) if over[stage] > 0]
        self._fullest = int(over.argmax())

    def search(self) -> TablePrediction:
        """Return whether every stage fits, and if not, the cheapest recomputation with which it does."""
        if not self._over:
            return TablePrediction(fits=True)
        tried = [one for kind in self._costs.table.kinds for one in self._suggest_mode(kind)]
        enough = [one for one in tried if one[0].enough]
        if enough:
            change, _, state = min(enough, key=lambda one: one[1])
            settings = self._write(state)
            text = msg("check.change.set", what=change.text, settings=settings_text(settings))
            return TablePrediction(fits=False, change=change._replace(text=text, settings=settings))
        most = max(tried, key=lambda one: one[0].freed_bytes or 0, default=None)
        return TablePrediction(
            fits=False, change=most[0] if most is not None and (most[0].freed_bytes or 0) > 0 else None
        )

    def _suggest_mode(self, kind: RecomputeMode) -> Iterator[tuple[Suggestion, int, NDArray[Any]]]:
        # Yield the change for one recompute mode, the ticks of its step, and its plan.
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
        longer = f"{time / before - 1:.1%}"
        text = msg("check.change.table", kind=kind.value, layers=_stage_ranges(added), longer=longer)
        yield Suggestion("table", text, freed, enough), time, state

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
