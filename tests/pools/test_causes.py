"""Test the causes of a pool's growth, counted block by block."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from ms_tune.pools.mindspore_pool import MindSporeBestFitPool, MindSporePool, MindSporeSettings
from ms_tune.pools.pool import replay_workload
from ms_tune.pools.what_if import explain_replay
from tests.pools.strategies import workloads

if TYPE_CHECKING:
    from ms_tune.pools.workload import Workload


@pytest.mark.parametrize("kind", [MindSporePool, MindSporeBestFitPool])
@settings(max_examples=30, deadline=None)
@given(work=workloads(releases=True))
def test_units_hold_the_blocks_that_live_at_the_peak(
    kind: type[MindSporePool | MindSporeBestFitPool], work: Workload
) -> None:
    result = replay_workload(work, kind(MindSporeSettings()))
    causes = explain_replay(work, result)
    peak = max(range(len(work.requests)), key=lambda index: (result.used[index], -index))
    now = work.requests[peak].start
    alive = [
        (index, request)
        for index, request in enumerate(work.requests)
        if request.start <= now < (math.inf if request.end is None else request.end)
    ]
    held = [unit for unit in result.units if unit.released is None or unit.released >= peak]
    assert {pin.unit.base for pin in causes.pins} == {unit.base for unit in held}
    for pin in causes.pins:
        unit = pin.unit
        inside = [one for one in alive if unit.base <= result.addresses[one[0]] < unit.base + unit.size]
        assert pin.live_at_peak_bytes == sum(request.size for _, request in inside)
        assert pin.touched_bytes == unit.high - unit.low
        last = max(inside, key=lambda one: (one[1].end or math.inf, one[1].size, one[0]), default=(None, None))
        assert pin.request == last[0]
    idle = [pin.touched_bytes - pin.live_at_peak_bytes for pin in causes.pins]
    assert idle == sorted(idle, reverse=True)
    assert causes.idle_at_peak_bytes == sum(idle)
    assert causes.untouched_bytes == result.reserved_peak - result.actual_peak
    assert causes.spilled_bytes == result.spilled
    assert causes.growths == result.growths
    assert causes.missed == tuple(one for one in result.growths if one.free_bytes >= one.request_bytes)
