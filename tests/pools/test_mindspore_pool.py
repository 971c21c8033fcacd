"""Test MindSpore's two pools: the rules of their source, invariants, and the columns of every row of every trace."""

from __future__ import annotations

import pytest
from hypothesis import given

from ms_tune.pools.mindspore_pool import PAGE, MindSporeBestFitPool, MindSporePool, MindSporeSettings, Vmm
from ms_tune.pools.pool import Divergence, Mismatches, Placing, compare_with_trace, find_divergence, replay_workload
from ms_tune.pools.settings import infer_settings, make_pool
from ms_tune.pools.workload import RELEASE, Recorded, Request, Workload, add_release, make_workload
from ms_tune.units import GIB, MIB
from tests.pools.recorded import ALL_RUNS, PACKED_RUNS, recorded
from tests.pools.strategies import check_invariants, workloads

NEVER = MindSporeSettings()
DEFAULT = MindSporeSettings(init=2 * GIB, increase=2 * GIB)


def make_request(size: int, *, stream: int = 0, persistent: bool = False) -> Request:
    return Request(size, 0, None, stream, persistent)


class TestUnits:
    def test_a_simulation_goes_on_beyond_the_device(self) -> None:
        pool = MindSporePool(MindSporeSettings(total=2 * GIB))
        for _ in range(3):
            pool.allocate(make_request(GIB))
        assert (pool.state.reserved, pool.state.is_over) == (3 * GIB, True)

    def test_of_the_older_pool_a_simulation_alone_goes_on_beyond_the_device(self) -> None:
        for simulated, reserved in ((True, 3 * GIB), (False, 2 * GIB)):
            settings = MindSporeSettings(total=2 * GIB, simulated=simulated)
            part = MindSporeBestFitPool(settings)
            for taken in (GIB, 2 * GIB):
                part.allocate(make_request(GIB))
                assert (part.state.reserved, part.state.is_over) == (taken, False)
            assert part._try_to_expand(part._common, GIB, 0) is simulated
            assert (part.state.reserved, part.state.is_over) == (reserved, True)

    def test_a_device_tries_the_persistent_part_before_it_gives_up(self) -> None:
        pool = MindSporePool(MindSporeSettings(init=2 * GIB, increase=2 * GIB, total=4 * GIB, simulated=False))
        pool.allocate(make_request(2 * GIB))
        pool.allocate(make_request(GIB))
        address = pool.allocate(make_request(GIB))
        assert pool.state.unit_of(address).part == "persistent"
        pool.allocate(make_request(512))
        assert pool.state.is_over


class TestVmm:
    SETTINGS = MindSporeSettings(vmm=Vmm.ON, simulated=False)

    def test_pages_are_taken_as_they_are_touched(self) -> None:
        pool = MindSporePool(self.SETTINGS)
        pool.allocate(make_request(512))
        assert (pool.state.reserved, pool.state.actual) == (PAGE, 512)
        pool.allocate(make_request(PAGE))
        assert pool.state.reserved == 2 * PAGE
        pool.allocate(make_request(512, persistent=True))
        assert pool.state.reserved == 3 * PAGE

    def test_it_is_the_pool_with_one_unit_of_no_end(self) -> None:
        """While space is left nothing is released: the result equals that of one sufficiently large unit."""
        sizes = [(3, True), (900, False), (40, False), (200, True), (7, False), (2000, False)]
        requests = [make_request(size * MIB, persistent=persistent) for size, persistent in sizes]
        pool = MindSporePool(self.SETTINGS)
        wide = MindSporePool(MindSporeSettings(init=32 * GIB, increase=16 * GIB))
        for request in requests:
            pool.allocate(request)
            wide.allocate(request)
        assert pool.state.actual == wide.state.actual

    def test_more_pages_than_the_device_has_do_not_fit(self) -> None:
        pool = MindSporePool(MindSporeSettings(vmm=Vmm.ON, total=GIB, simulated=False))
        pool.allocate(make_request(GIB))
        assert not pool.state.is_over
        pool.allocate(make_request(512))
        assert pool.state.is_over


EVERY_SETTING = (
    NEVER,
    DEFAULT,
    MindSporeSettings(init=6 * GIB, increase=3 * GIB, total=8 * GIB),
    MindSporeSettings(init=2 * GIB, increase=4 * GIB, total=5 * GIB, simulated=False),
    MindSporeSettings(init=GIB, increase=int(0.3 * GIB), small_pool=True),
    MindSporeSettings(vmm=Vmm.ON),
)


@pytest.mark.slow
@pytest.mark.parametrize("older", [False, True], ids=["newer", "older"])
@given(work=workloads(releases=True))
def test_blocks_never_overlap_and_sizes_are_in_order(work: Workload, *, older: bool) -> None:
    for chosen in EVERY_SETTING:
        if older and chosen.vmm is Vmm.ON:
            continue
        check_invariants(work, replay_workload(work, make_pool(chosen, older=older)))


NOTHING = Mismatches(0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("run", ALL_RUNS)
def test_every_row_of_every_trace_is_reproduced(run: str) -> None:
    pool, work = recorded(run)
    found = infer_settings(work, pool)
    assert found.mismatches == NOTHING
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
