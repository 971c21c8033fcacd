"""MindSpore's two pools: the rules of their source, one by one, and what must always hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from ms_tune.pools.mindspore_pool import PAGE, MindSporeBestFitPool, MindSporePool, MindSporeSettings, Vmm, align_up
from ms_tune.pools.pool import replay_workload
from ms_tune.pools.settings import make_pool
from ms_tune.pools.workload import Request, Workload
from ms_tune.units import GIB, MIB
from tests.pools.strategies import check_invariants, workloads

if TYPE_CHECKING:
    from ms_tune.pools.pool import Pool

NEVER = MindSporeSettings()
DEFAULT = MindSporeSettings(init=2 * GIB, increase=2 * GIB)
BOTH = pytest.mark.parametrize("kind", [MindSporePool, MindSporeBestFitPool])


def ask(size: int, *, stream: int = 0, persistent: bool = False) -> Request:
    return Request(size, 0, None, stream, persistent)


class TestUnits:
    def test_without_set_memory_nothing_is_taken_before_the_first_request(self) -> None:
        pool = MindSporePool(NEVER)
        assert pool.state.reserved == 0
        pool.allocate(ask(512))
        assert (pool.state.reserved, pool.state.actual, pool.state.used) == (GIB, 512, 512)

    def test_set_memory_takes_half_of_init_size_for_each_part_at_once(self) -> None:
        pool = MindSporePool(DEFAULT)
        assert [(unit.part, unit.size) for unit in pool.state.units] == [("persistent", GIB), ("common", 2 * GIB)]
        assert pool.state.actual == 0
        pool = MindSporePool(MindSporeSettings(init=5 * GIB, increase=2 * GIB))
        # In whole units: 1 GiB each for the persistent part, increase_size for the common one.
        assert [unit.size for unit in pool.state.units] == [3 * GIB, 4 * GIB]

    def test_an_increase_size_of_1_gib_counts_as_none(self) -> None:
        pool = MindSporePool(MindSporeSettings(init=2 * GIB, increase=GIB))
        assert [unit.size for unit in pool.state.units] == [GIB, GIB]

    def test_a_request_above_one_unit_takes_several_at_once(self) -> None:
        pool = MindSporePool(MindSporeSettings(init=2 * GIB, increase=3 * GIB))
        pool.allocate(ask(7 * GIB))
        assert pool.state.units[-1].size == 9 * GIB

    def test_the_last_unit_is_what_is_left_less_1_gib(self) -> None:
        pool = MindSporePool(MindSporeSettings(init=2 * GIB, increase=4 * GIB, total=8 * GIB))
        pool.allocate(ask(4 * GIB))  # 1 + 4 are taken, 3 are left
        pool.allocate(ask(GIB))
        assert pool.state.units[-1].size == 2 * GIB
        assert not pool.state.is_over

    def test_a_simulation_goes_on_beyond_the_device(self) -> None:
        pool = MindSporePool(MindSporeSettings(total=2 * GIB))
        for _ in range(3):
            pool.allocate(ask(GIB))
        assert (pool.state.reserved, pool.state.is_over) == (3 * GIB, True)

    def test_of_the_older_pool_a_simulation_alone_goes_on_beyond_the_device(self) -> None:
        for simulated, reserved in ((True, 3 * GIB), (False, 2 * GIB)):
            settings = MindSporeSettings(total=2 * GIB, simulated=simulated)
            part = MindSporeBestFitPool(settings)
            for taken in (GIB, 2 * GIB):
                part.allocate(ask(GIB))
                assert (part.state.reserved, part.state.is_over) == (taken, False)
            assert part._try_to_expand(part._common, GIB, 0) is simulated
            assert (part.state.reserved, part.state.is_over) == (reserved, True)

    def test_a_device_tries_the_persistent_part_before_it_gives_up(self) -> None:
        pool = MindSporePool(MindSporeSettings(init=2 * GIB, increase=2 * GIB, total=4 * GIB, simulated=False))
        pool.allocate(ask(2 * GIB))
        pool.allocate(ask(GIB))
        address = pool.allocate(ask(GIB))
        assert pool.state.unit_of(address).part == "persistent"
        pool.allocate(ask(512))
        assert pool.state.is_over

    def test_sizes_written_with_a_point_are_rounded_up(self) -> None:
        assert align_up(int(0.3 * GIB)) == 322122752
        pool = MindSporePool(MindSporeSettings(init=GIB, increase=int(0.3 * GIB)))
        assert [unit.size for unit in pool.state.units] == [GIB, 2 * 322122752]


class TestPlacing:
    @BOTH
    def test_the_smallest_hole_that_fits_is_cut(self, kind: type[MindSporePool | MindSporeBestFitPool]) -> None:
        pool: Pool = kind(NEVER)
        blocks = [pool.allocate(ask(size * MIB)) for size in (8, 1, 4, 1, 6, 1)]
        for block in blocks[::2]:
            pool.free(block)
        assert pool.allocate(ask(3 * MIB)) == blocks[2]
        assert pool.allocate(ask(5 * MIB)) == blocks[4]

    @BOTH
    def test_less_than_512_bytes_are_not_split_off(self, kind: type[MindSporePool | MindSporeBestFitPool]) -> None:
        pool: Pool = kind(NEVER)
        first = pool.allocate(ask(1024))
        pool.allocate(ask(512))
        pool.free(first)
        before = pool.state.used
        pool.allocate(ask(1024 - 100))
        assert pool.state.used == before + 1024

    @BOTH
    def test_neighbours_merge_within_a_unit_and_never_across(
        self, kind: type[MindSporePool | MindSporeBestFitPool]
    ) -> None:
        pool: Pool = kind(NEVER)
        blocks = [pool.allocate(ask(GIB // 4)) for _ in range(8)]  # fill two units
        assert pool.state.reserved == 2 * GIB
        for block in blocks:
            pool.free(block)
        pool.allocate(ask(GIB))
        pool.allocate(ask(GIB))
        assert pool.state.reserved == 2 * GIB
        pool.allocate(ask(512))
        assert pool.state.reserved == 3 * GIB

    def test_among_equal_holes_the_lowest_address_wins_and_in_the_older_pool_the_oldest(self) -> None:
        for pool, expected in ((MindSporePool(NEVER), 1), (MindSporeBestFitPool(NEVER), 3)):
            blocks = [pool.allocate(ask(MIB)) for _ in range(5)]
            pool.allocate(ask(GIB - 5 * MIB))
            pool.free(blocks[3])
            pool.free(blocks[1])
            assert pool.allocate(ask(MIB)) == blocks[expected]

    def test_streams_do_not_share(self) -> None:
        pool = MindSporePool(NEVER)
        pool.free(pool.allocate(ask(MIB, stream=0)))
        pool.allocate(ask(MIB, stream=1))
        assert pool.state.reserved == 2 * GIB

    def test_the_small_pool_takes_requests_up_to_1_mib_of_the_common_part(self) -> None:
        pool = MindSporePool(MindSporeSettings(small_pool=True))
        addresses = [pool.allocate(ask(size)) for size in (MIB, MIB + 512)]
        addresses.append(pool.allocate(ask(512, persistent=True)))
        assert [pool.state.unit_of(address).part for address in addresses] == ["small", "common", "persistent"]

    @BOTH
    def test_a_continuous_allocation_is_one_hole_cut_afterwards(
        self, kind: type[MindSporePool | MindSporeBestFitPool]
    ) -> None:
        pool: Pool = kind(NEVER)
        small, _, wide, _ = (pool.allocate(ask(size * MIB)) for size in (2, 1, 4, 1))
        pool.free(small)
        pool.free(wide)
        first, second = pool.allocate_batch([ask(2 * MIB), ask(2 * MIB)])
        assert (first, second) == (wide, wide + 2 * MIB)
        pool.free(first)
        assert pool.allocate(ask(2 * MIB)) in (first, small)


class TestSpill:
    def test_persistent_requests_spill_into_the_common_part_and_stay(self) -> None:
        pool = MindSporePool(DEFAULT)
        inside = pool.allocate(ask(GIB, persistent=True))
        outside = pool.allocate(ask(GIB, persistent=True))
        assert [pool.state.unit_of(address).part for address in (inside, outside)] == ["persistent", "common"]
        assert pool.state.spilled == GIB
        pool.free(inside)
        assert pool.allocate(ask(GIB, persistent=True)) == inside

    def test_a_spill_that_finds_no_hole_grows_the_common_part(self) -> None:
        pool = MindSporePool(DEFAULT)
        for _ in range(4):
            pool.allocate(ask(GIB, persistent=True))
        assert [unit.part for unit in pool.state.units] == ["persistent", "common", "common"]

    def test_the_older_pool_spills_only_when_its_persistent_part_has_a_unit(self) -> None:
        pool = MindSporeBestFitPool(NEVER)
        pool.allocate(ask(GIB, persistent=True))
        pool.allocate(ask(GIB, persistent=True))
        assert [unit.part for unit in pool.state.units] == ["persistent", "common"]
        assert pool.state.spilled == GIB


class TestFootprint:
    def test_a_footprint_is_what_was_ever_touched_of_each_unit(self) -> None:
        pool = MindSporePool(NEVER)
        blocks = [pool.allocate(ask(GIB // 2)) for _ in range(3)]
        for block in blocks:
            pool.free(block)
        assert (pool.state.used, pool.state.actual, pool.state.reserved) == (0, 3 * GIB // 2, 2 * GIB)

    def test_the_older_pool_counts_all_units_but_the_newest_in_full(self) -> None:
        pool = MindSporeBestFitPool(NEVER)
        pool.allocate(ask(600 * MIB))
        pool.allocate(ask(600 * MIB))
        assert pool.state.actual == GIB + 600 * MIB

    def test_empty_cache_gives_back_units_without_a_live_block(self) -> None:
        pool = MindSporePool(DEFAULT)
        blocks = [pool.allocate(ask(2 * GIB)) for _ in range(2)]
        pool.free(blocks[0])
        pool.release()
        assert (pool.state.reserved, pool.state.actual) == (2 * GIB, 2 * GIB)
        pool.allocate(ask(512))
        assert pool.state.reserved == 4 * GIB
        older = MindSporeBestFitPool(DEFAULT)
        older.free(older.allocate(ask(2 * GIB)))
        before = older.state.reserved
        older.release()
        assert older.state.reserved == before

    def test_after_empty_cache_a_unit_that_stayed_is_filled_first(self) -> None:
        pool = MindSporePool(NEVER)
        blocks = [pool.allocate(ask(GIB // 2)) for _ in range(3)]
        for block in blocks[1:]:
            pool.free(block)
        pool.release()
        assert pool.state.reserved == GIB
        assert pool.allocate(ask(GIB // 2)) == blocks[1]
        assert pool.state.reserved == GIB


class TestVmm:
    SETTINGS = MindSporeSettings(vmm=Vmm.ON, simulated=False)

    def test_pages_are_taken_as_they_are_touched(self) -> None:
        pool = MindSporePool(self.SETTINGS)
        pool.allocate(ask(512))
        assert (pool.state.reserved, pool.state.actual) == (PAGE, 512)
        pool.allocate(ask(PAGE))
        assert pool.state.reserved == 2 * PAGE
        pool.allocate(ask(512, persistent=True))
        assert pool.state.reserved == 3 * PAGE

    def test_it_is_the_pool_with_one_unit_of_no_end(self) -> None:
        """With room left nothing is given back: the same as one unit that is large enough."""
        sizes = [(3, True), (900, False), (40, False), (200, True), (7, False), (2000, False)]
        requests = [ask(size * MIB, persistent=persistent) for size, persistent in sizes]
        pool = MindSporePool(self.SETTINGS)
        wide = MindSporePool(MindSporeSettings(init=32 * GIB, increase=16 * GIB))
        for request in requests:
            pool.allocate(request)
            wide.allocate(request)
        assert pool.state.actual == wide.state.actual

    def test_more_pages_than_the_device_has_do_not_fit(self) -> None:
        pool = MindSporePool(MindSporeSettings(vmm=Vmm.ON, total=GIB, simulated=False))
        pool.allocate(ask(GIB))
        assert not pool.state.is_over
        pool.allocate(ask(512))
        assert pool.state.is_over


def test_a_growth_tells_which_hole_was_too_small() -> None:
    pool = MindSporePool(NEVER)
    blocks = [pool.allocate(ask(GIB // 4)) for _ in range(4)]
    pool.free(blocks[0])
    pool.free(blocks[2])
    pool.state.request = 7
    pool.allocate(ask(GIB // 2))
    growth = pool.state.growths[-1]
    assert (growth.request, growth.part, growth.unit_bytes) == (7, "common", GIB)
    assert (growth.request_bytes, growth.largest_hole, growth.free_bytes) == (GIB // 2, GIB // 4, GIB // 2)


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


@pytest.mark.slow
@pytest.mark.parametrize("older", [False, True], ids=["newer", "older"])
@settings(max_examples=100, deadline=None)
@given(work=workloads(streams=1))
def test_all_that_is_freed_merges_into_whole_units(work: Workload, *, older: bool) -> None:
    pool = make_pool(NEVER, older=older)
    addresses = [pool.allocate(request) for request in work.requests]
    for address in addresses:
        pool.free(address)
    assert pool.state.used == 0
    reserved = pool.state.reserved
    for unit in sorted(pool.state.units, key=lambda unit: unit.size):
        if unit.part == "common":
            pool.allocate(ask(unit.size))
    assert pool.state.reserved == reserved
