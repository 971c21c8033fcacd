"""Compare the cheapest recomputation from a memory table with every number of layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ms_tune.enums import RecomputeMode
from ms_tune.planning.costs import costs_of
from ms_tune.workflows.check.measured import _stage_ranges, _TableSearch
from tests.planning import naive
from tests.planning.tables import random_table
from tests.planning.test_add_recompute import Cells, lightest

if TYPE_CHECKING:
    from ms_tune.planning.table import CostTable

_APART = {RecomputeMode.SELECT: RecomputeMode.COMM, RecomputeMode.COMM: RecomputeMode.SELECT}


def more(table: CostTable, cells: Cells, kind: RecomputeMode, stage: int) -> list[Cells]:
    """Return the plans in which 0, 1, 2, ... layers of a stage have this mode, the first chunk's before the next one's."""
    plans = [cells]
    for place in range(stage, table.cells, table.stages):
        if cells[place].get(_APART.get(kind, RecomputeMode.SWAP)):
            continue
        for _ in range(cells[place][RecomputeMode.NONE]):
            last = [dict(cell) for cell in plans[-1]]
            last[place][RecomputeMode.NONE] -= 1
            last[place][kind] = last[place].get(kind, 0) + 1
            plans.append(last)
    return plans


def tried(table: CostTable, cells: Cells, room: list[int]) -> list[tuple[bool, int, Cells]]:
    """Return for each mode whether every stage fits, how much less the fullest stage needs, and the plan."""
    before = naive.peaks_of(table, cells)
    over = [peak - most for peak, most in zip(before, room, strict=True)]
    fullest = over.index(max(over))
    found = []
    for kind in set(table.kinds) - {RecomputeMode.NONE, RecomputeMode.SWAP}:
        plan = cells
        for stage in (stage for stage, size in enumerate(over) if size > 0):
            ways = more(table, plan, kind, stage)
            peaks = [naive.peaks_of(table, one)[stage] for one in ways]
            within = [one for one, peak in zip(ways, peaks, strict=True) if peak <= room[stage]]
            plan = within[0] if within else ways[peaks.index(min(peaks))]
        after = naive.peaks_of(table, plan)
        if plan != cells:
            enough = all(peak <= most for peak, most in zip(after, room, strict=True))
            found.append((enough, before[fullest] - after[fullest], plan))
    return found


@pytest.mark.parametrize("seed", range(30))
def test_the_cheapest_of_all_that_are_enough(seed: int) -> None:
    table = random_table(80_000 + seed, tiny=True)
    if RecomputeMode.NONE not in table.kinds or table.layer_count < table.cells:
        pytest.skip("no plan to begin with")
    cells, costs = lightest(table), costs_of(table)
    now = naive.peaks_of(table, cells)
    full = [naive.peaks_of(table, plan) for _, _, plan in tried(table, cells, [0] * table.stages)]
    least = [min(peaks[stage] for peaks in [now, *full]) for stage in range(table.stages)]
    share = (seed % 5) / 4  # from a limit that no plan reaches to the needs of the current plan
    room = [round(low - 1 + share * (high + 1 - low)) for low, high in zip(least, now, strict=True)]
    found = _TableSearch(costs, room, costs.state_of(cells)).search()
    assert found.fits is all(peak <= most for peak, most in zip(now, room, strict=True))
    if found.fits:
        assert found.change is None
        return
    ways = tried(table, cells, room)
    enough = [way for way in ways if way[0]]
    if enough:
        assert found.change is not None
        assert found.change.enough
        times = {way[1]: int(costs.step_ticks(costs.state_of(way[2])[None])[0]) for way in enough}
        assert times[found.change.freed_bytes or 0] == min(times.values())
    else:
        most = max((way[1] for way in ways), default=0)
        assert (found.change.freed_bytes if found.change else 0) == max(most, 0)
        assert found.change is None or not found.change.enough


def test_neighbours_with_as_many_layers_are_reported_together() -> None:
    assert _stage_ranges({0: 2, 1: 2, 2: 3, 4: 3, 5: 3}) == "0-1: 2, 2: 3, 4-5: 3"
