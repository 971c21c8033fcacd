"""Test MindSpore's two pools: the rules of their source, one by one, and invariants."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from ms_tune.pools.mindspore_pool import PAGE, MindSporeBestFitPool, MindSporePool, MindSporeSettings, Vmm
from ms_tune.pools.pool import replay_workload
from ms_tune.pools.settings import make_pool
from ms_tune.pools.workload import Request, Workload
from ms_tune.units import GIB, MIB
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
@settings(max_examples=150, deadline=None)
@given(work=workloads(releases=True))
def test_blocks_never_overlap_and_sizes_are_in_order(work: Workload, *, older: bool) -> None:
    for chosen in EVERY_SETTING:
        if older and chosen.vmm is Vmm.ON:
            continue
        check_invariants(work, replay_workload(work, make_pool(chosen, older=older)))
