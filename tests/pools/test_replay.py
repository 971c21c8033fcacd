"""Compare the replay with MindSpore's own columns: address, use and footprint of every row of every trace."""

from __future__ import annotations

import pytest

from ms_tune.pools.mindspore_pool import MindSporePool, MindSporeSettings
from ms_tune.pools.pool import Divergence, Mismatches, Placing, compare_with_trace, find_divergence, replay_workload
from ms_tune.pools.settings import infer_settings, make_pool
from ms_tune.pools.workload import RELEASE, Recorded, Request, add_release, make_workload
from ms_tune.units import GIB, MIB
from tests.pools.recorded import ALL_RUNS, PACKED_RUNS, recorded

NOTHING = Mismatches(0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("run", ALL_RUNS)
def test_every_row_of_every_trace_is_reproduced(run: str) -> None:
    pool, work = recorded(run)
    found = infer_settings(work, pool)
    assert found.mismatches == NOTHING
    assert found.first_difference is None
    assert found.placing is Placing.TOP_DOWN
    result = found.replay
    reported = [row.actual for row in work.recorded if row.actual is not None]
    assert result.actual_peak == max(reported)
    assert all(
        used <= actual <= reserved
        for used, actual, reserved in zip(result.used, result.actual, result.reserved, strict=True)
    )


@pytest.mark.parametrize("run", PACKED_RUNS)
def test_the_settings_of_the_script_reproduce_it(run: str) -> None:
    """Not only inferred settings, but also those that the script really set."""
    pool, work = recorded(f"packed/{run}")
    found = infer_settings(work, pool)
    init, increase = PACKED_RUNS[run]
    settings = MindSporeSettings(
        init=None if init is None else int(init * GIB),
        increase=None if increase is None else int(increase * GIB),
        small_pool=run == "small_pool",
        total=6 * GIB if run == "limit_6gb" else found.settings.total,
    )
    result = replay_workload(found.work, make_pool(settings, older=run.startswith("older")))
    assert compare_with_trace(found.work, result) == NOTHING


def test_wrong_settings_show_at_once() -> None:
    _, work = recorded("packed/graph_set_memory")
    wrong = MindSporePool(MindSporeSettings())
    found = find_divergence(work, wrong)
    assert found.row < len(work.requests) / 5
    assert found.shift
    result = replay_workload(work, MindSporePool(MindSporeSettings()))
    assert compare_with_trace(work, result).address > 0
    assert compare_with_trace(work, result).used == 0  # the bytes in use do not depend on the settings


def test_a_release_comes_after_what_is_freed_and_before_what_is_allocated_at_its_tick() -> None:
    work = add_release(make_workload([Request(MIB, 1, 5), Request(MIB, 5, None)]), 5)
    assert work.schedule == (0, ~0, RELEASE, 1)
    assert add_release(work, 5) == work
    result = replay_workload(work, MindSporePool(MindSporeSettings()))
    assert result.addresses[0] - result.addresses[1] == GIB
    assert [unit.released for unit in result.units] == [0, None]


def test_a_divergence_is_reported_with_its_shift_and_address() -> None:
    """All addresses may differ by one number; the first that differs by another one is reported with the difference."""
    work = make_workload([Request(MIB, 1, None), Request(MIB, 2, None), Request(MIB, 3, None)])
    result = replay_workload(work, MindSporePool(MindSporeSettings()))
    rows = [
        Recorded(address + 100, used, actual)
        for address, used, actual in zip(result.addresses, result.used, result.actual, strict=True)
    ]
    same = work._replace(recorded=tuple(rows))
    assert find_divergence(same, MindSporePool(MindSporeSettings())) == Divergence(3, 0, 0)
    for column, shift in (("address", -512), ("used", 0), ("actual", 0)):
        wrong = rows[1]._replace(**{column: getattr(rows[1], column) + 512})
        other = same._replace(recorded=(rows[0], wrong, rows[2]))
        found = find_divergence(other, MindSporePool(MindSporeSettings()))
        assert found == Divergence(1, shift, result.addresses[1])
        unknown = other._replace(recorded=(rows[0], Recorded(rows[1].address, None, None), rows[2]))
        assert find_divergence(unknown, MindSporePool(MindSporeSettings())).row == 3
