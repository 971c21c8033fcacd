"""What the memory table of an earlier ``ms-tune fit`` says of a job as it is now, and the cheapest recompute by it."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError
from ms_tune.fit.job import present_plan
from ms_tune.planning.plan import cells_of
from ms_tune.text import msg
from ms_tune.units import gib
from ms_tune.workflows.check.result import Suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from ms_tune.fit.job import PlannedJob
    from ms_tune.planning.costs import Costs

_MOST_STATES = 2000  # tried for a stage; nobody has so many layers in one
_APART = {RecomputeMode.SELECT: RecomputeMode.COMM, RecomputeMode.COMM: RecomputeMode.SELECT}  # not both in one cell


@dataclass(frozen=True, slots=True)
class Foretold:
    """What a table says of a job."""

    fits: bool  # whether every stage keeps within its room as the config is
    # The recompute that costs the least time of those with which every stage does; else the one that frees most.
    change: Suggestion | None = None


def foretold_by_table(job: PlannedJob, room_bytes: int) -> Foretold | None:
    """What the table of an earlier run says; None where there is none that still holds, or lists cannot say what layers do now.

    Args:
        job: The job.
        room_bytes: What a stage may hold, fragments among it.
    """
    if importlib.util.find_spec("numpy") is None:
        return None
    from ms_tune.fit.table_cache import kept_table  # noqa: PLC0415 - it needs NumPy, which the base install has not

    kept = kept_table(job)
    plan = present_plan(job, kept.table) if kept is not None else None
    if kept is None or plan is None:
        return None
    import numpy as np  # noqa: PLC0415 - it needs the extra 'fit', as the table that is there did

    from ms_tune.planning.costs import costs_of  # noqa: PLC0415 - likewise

    costs = costs_of(kept.table)
    room = room_bytes - np.array(kept.fragment_bytes, np.int64)
    try:
        now = costs.state(cells_of(kept.table, plan, str(job.loaded.source.path)))
    except ConfigError:
        return None
    return _TableSearch(costs, room, now).found()


class _TableSearch:
    """The fewest more layers of every stage that is over, for each kind of recompute."""

    def __init__(self, costs: Costs, room: NDArray[Any], now: NDArray[Any]) -> None:
        self._costs, self._room, self._now = costs, room, now
        self._before = costs.peaks(now[None])[0]
        over = self._before - room
        self._over = [stage for stage in range(len(over)) if over[stage] > 0]
        self._fullest = int(over.argmax())

    def found(self) -> Foretold:
        """What there is."""
        if not self._over:
            return Foretold(fits=True)
        tried = [one for kind in self._costs.table.kinds for one in self._with(kind)]
        enough = [one for one in tried if one[0].enough]
        if enough:
            return Foretold(fits=False, change=min(enough, key=lambda one: one[1])[0])
        most = max(tried, key=lambda one: one[0].freed_bytes or 0, default=None)
        return Foretold(fits=False, change=most[0] if most is not None and (most[0].freed_bytes or 0) > 0 else None)

    def _with(self, kind: RecomputeMode) -> Iterator[tuple[Suggestion, int]]:
        """The change of one kind, and the ticks of its step."""
        if kind in (RecomputeMode.NONE, RecomputeMode.SWAP):
            return
        state = self._now
        added: dict[int, int] = {}
        for stage in self._over:
            states = self._more(state, kind, stage)
            peaks = self._costs.peaks(states)[:, stage]
            within = (peaks <= self._room[stage]).nonzero()[0]
            index = int(within[0]) if len(within) else int(peaks.argmin())
            if index:
                state, added[stage] = states[index], index
        if not added:
            return
        after = self._costs.peaks(state[None])[0]
        enough = bool((after <= self._room).all())
        time, before = (int(self._costs.time(one[None])[0]) for one in (state, self._now))
        freed = int(self._before[self._fullest] - after[self._fullest])
        text = msg("check.change.table", kind=kind.value, layers=_told(added), longer=f"{time / before - 1:.1%}")
        told = msg("check.change.frees", what=text, size=gib(max(freed, 0)))
        yield Suggestion("table", told if enough else msg("check.change.not-enough", what=told), freed, enough), time

    def _more(self, state: NDArray[Any], kind: RecomputeMode, stage: int) -> NDArray[Any]:
        """The state with no, one, two and so on more layers of a stage that recompute so, its first chunk's before the next one's."""
        import numpy as np  # noqa: PLC0415 - likewise

        table = self._costs.table
        to, none = table.kinds.index(kind), table.kinds.index(RecomputeMode.NONE)
        apart = _APART.get(kind)
        states, last = [state], state
        for cell in range(stage, table.cells, table.stages):
            if apart in table.kinds and state[cell, table.kinds.index(apart)]:
                continue
            for _ in range(min(int(state[cell, none]), _MOST_STATES - len(states))):
                last = last.copy()
                last[cell, none] -= 1
                last[cell, to] += 1
                states.append(last)
        return np.stack(states)


def _told(added: Mapping[int, int]) -> str:
    """Stages with the layers added to each; neighbours with as many are told together."""
    rows = enumerate(sorted(added))
    groups = [
        [stage for _, stage in group] for _, group in groupby(rows, key=lambda one: (one[1] - one[0], added[one[1]]))
    ]
    names = {tuple(group): f"{group[0]}-{group[-1]}" if len(group) > 1 else f"{group[0]}" for group in groups}
    return ", ".join(f"{name}: {added[group[0]]}" for group, name in names.items())
