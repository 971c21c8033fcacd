"""Test the inference of settings from workloads that were recorded with known settings."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ms_tune.pools.mindspore_pool import MindSporePool, MindSporeSettings, Vmm, size_in_bytes
from ms_tune.pools.pool import Mismatches, Placing, replay_workload
from ms_tune.pools.settings import infer_settings, maps_pages
from ms_tune.pools.workload import Recorded, Request, Workload, make_workload
from ms_tune.units import GIB, MIB
from tests.pools.recorded import PACKED_RUNS, recorded
from tests.pools.strategies import as_recorded, workloads

NEWER_POOL = "DefaultEnhancedAscendMemoryPool"
SIZES = st.sampled_from([1, 1.5, 2, 3, 4, 7, 8, 16])


@settings(max_examples=40, deadline=None, derandomize=True)  # some mixes of sizes and streams cannot be distinguished
@given(work=workloads(), sizes=st.one_of(st.none(), st.tuples(SIZES, SIZES)), small_pool=st.booleans())
def test_settings_are_found_again(work: Workload, sizes: tuple[float, float] | None, *, small_pool: bool) -> None:
    init, increase = (None, None) if sizes is None else (int(size * GIB) for size in sizes)
    truth = MindSporeSettings(init=init, increase=increase, small_pool=small_pool)
    trace = as_recorded(work, MindSporePool(truth), shift=12345)._replace(small_pool=small_pool)
    assert infer_settings(trace, NEWER_POOL).mismatches.total == 0


@pytest.mark.parametrize("total", [4.5, 5, 6, 6.5, 7.5])
def test_a_limit_is_found_or_taken_from_the_log(total: float) -> None:
    truth = MindSporeSettings(init=2 * GIB, increase=2 * GIB, total=int(total * GIB))
    trace = as_recorded(recorded("packed/limit_6gb")[1], MindSporePool(truth))
    assert infer_settings(trace, NEWER_POOL, truth.total).mismatches.total == 0
    assert infer_settings(trace, NEWER_POOL).mismatches.total == 0


def test_calls_of_empty_cache_are_found() -> None:
    requests = [
        Request(GIB // 4 * (1 + number % 3), 10 * number, 10 * (number - number % 8 + 8) + 3) for number in range(1, 80)
    ]
    work = make_workload(requests, (85, 244, 246, 565))
    trace = as_recorded(work, MindSporePool(MindSporeSettings()))
    found = infer_settings(trace, NEWER_POOL)
    assert found.mismatches.total == 0
    assert len(found.work.releases) == 3  # a release without effect leaves no mark
    pool, real = recorded("packed/streams_empty_cache")
    assert len(infer_settings(real, pool).work.releases) == 1


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 9])
def test_a_call_of_empty_cache_is_found_before_and_after_what_is_freed_around_it(after: int) -> None:
    """Some blocks are freed between two requests: those freed after the call stay in the pool, those before are released."""
    random = Random(after)  # noqa: S311 - the same cases every time
    for _ in range(100):
        requests = [
            Request(
                GIB // 4 * random.randrange(1, 9),
                10 * number,
                10 * (number + random.randrange(6)) + random.randrange(2, 9),
            )
            for number in range(1, 40)
        ]
        work = make_workload(requests, (10 * random.randrange(5, 35) + after,))
        trace = as_recorded(work, MindSporePool(MindSporeSettings()))
        assert infer_settings(trace, NEWER_POOL).mismatches.total == 0, work


@pytest.mark.parametrize(
    ("run", "init", "increase"),
    [
        ("graph_set_memory", 2, 5),
        ("continuous", 2, 3),
        ("large_requests_set", 2, 1.5),
        ("odd_sizes", None, 0.3),
        ("large_requests", None, None),
    ],
)
def test_what_was_written_comes_back_as_written(run: str, init: float | None, increase: float | None) -> None:
    assert run in PACKED_RUNS
    pool, work = recorded(f"packed/{run}")
    found = infer_settings(work, pool).settings
    assert found.increase == (None if increase is None else size_in_bytes(increase))
    if init is not None:
        assert found.init == int(init * GIB)


def test_what_made_no_difference_is_reported() -> None:
    few = make_workload([Request(MIB, 1, None), Request(MIB, 2, None)])
    never = infer_settings(as_recorded(few, MindSporePool(MindSporeSettings())), NEWER_POOL)
    assert never.undecided == ("set_memory",)
    pool, work = recorded("packed/graph_set_memory")
    assert "increase_size" not in infer_settings(work, pool).undecided
    pool, work = recorded("packed/limit_6gb")
    assert infer_settings(work, pool).undecided == ()


def anywhere(requests: list[Request], truth: MindSporeSettings) -> Workload:
    """Return a run whose units are at arbitrary addresses."""
    result = replay_workload(make_workload(requests), MindSporePool(truth))
    bases = sorted(unit.base for unit in result.units)
    rows = []
    for address, used, actual in zip(result.addresses, result.used, result.actual, strict=True):
        unit = max(number for number, base in enumerate(bases) if base <= address)
        rows.append(Recorded(address - bases[unit] + (unit << 42), used, actual))
    return make_workload(requests)._replace(recorded=tuple(rows))


def test_units_that_a_device_puts_anywhere_are_compared_one_by_one() -> None:
    requests = [Request(GIB // 3 // 512 * 512, number, number + 40) for number in range(1, 60)]
    found = infer_settings(anywhere(requests, MindSporeSettings(init=2 * GIB, increase=4 * GIB)), NEWER_POOL)
    assert found.placing is Placing.ANYWHERE
    assert found.mismatches == Mismatches(0, 0, 0)


@pytest.mark.drawn(4)
@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 30, 32])
def test_sizes_that_people_write_are_found_where_addresses_show_nothing(size: int) -> None:
    small = [Request(GIB // 2 - 512, number, 100) for number in range(2 * size)]  # the first unit; no whole pages
    requests = [*small, Request(GIB, 90, None), Request(size * GIB, 101, None)]  # the second, and the first again
    found = infer_settings(anywhere(requests, MindSporeSettings(init=2 * GIB, increase=size * GIB)), NEWER_POOL)
    assert (found.mismatches.total, found.settings.increase) == (0, size * GIB)


class TestVmm:
    SETTINGS = MindSporeSettings(vmm=Vmm.ON)

    def trace(self) -> Workload:
        requests = [
            Request((number * 37 % 11 + 1) * MIB, number, number + number % 13 + 1, persistent=number % 5 == 0)
            for number in range(1, 200)
        ]
        work = make_workload(requests)
        result = replay_workload(work, MindSporePool(self.SETTINGS))
        reported = zip(result.addresses, result.used, result.reserved, strict=True)
        return work._replace(recorded=tuple(Recorded(*row) for row in reported))

    def test_a_trace_with_room_is_explained(self) -> None:
        found = infer_settings(self.trace(), NEWER_POOL)
        assert (found.placing, found.settings.vmm, found.mismatches.total) == (Placing.MAPPED, Vmm.ON, 0)

    def test_one_whose_pages_were_moved_is_distinguished_and_not_explained(self) -> None:
        """After defragmentation the addresses match no replay."""
        trace = self.trace()
        rows = [
            row if number < 100 else row._replace(address=row.address + 64 * MIB * (number % 7))
            for number, row in enumerate(trace.recorded)
        ]
        found = infer_settings(trace._replace(recorded=tuple(rows)), NEWER_POOL)
        assert found.settings.vmm is Vmm.ON
        assert found.mismatches.address > 0
        assert found.mismatches.used == 0

    def test_whole_pages_give_it_away(self) -> None:
        assert maps_pages(self.trace())
        assert not maps_pages(recorded("packed/graph_set_memory")[1])
        assert not maps_pages(make_workload([]))


def test_what_no_pool_of_mindspore_did_is_not_explained() -> None:
    requests = [Request(MIB + 512, number, number + 3) for number in range(1, 300)]
    rows = tuple(Recorded(number * 7919 % 1000 * MIB, number, number * 3 + 1) for number in range(1, 300))
    found = infer_settings(make_workload(requests)._replace(recorded=rows), NEWER_POOL)
    assert found.mismatches.total > 0
    assert found.settings.vmm is Vmm.OFF
    assert found.undecided == ()
