"""Generate artificial workloads."""

from __future__ import annotations

from hypothesis import strategies as st

from ms_tune.pools.pool import ALIGNMENT, Pool, Replay, replay_workload
from ms_tune.pools.workload import RELEASE, Recorded, Request, Workload, make_workload, order_events
from ms_tune.units import GIB, KIB, MIB

SIZES = st.one_of(
    st.integers(1, 64).map(lambda blocks: blocks * ALIGNMENT),
    st.integers(1, 4096).map(lambda blocks: blocks * 64 * KIB),
    st.sampled_from([MIB, MIB + ALIGNMENT, GIB, GIB + ALIGNMENT, GIB - ALIGNMENT, 2 * GIB + MIB]),
)


@st.composite
def workloads(draw: st.DrawFn, *, most: int = 40, releases: bool = False) -> Workload:
    """Draw up to ``most`` requests of any size, some freed, in any order."""
    count = draw(st.integers(1, most))
    requests = []
    for number in range(count):
        start = 10 * number + 1
        lives = draw(st.one_of(st.none(), st.integers(1, 10 * count)))
        requests.append(
            Request(
                size=draw(SIZES),
                start=start,
                end=None if lives is None else start + lives,
                stream=draw(st.integers(0, 1)),
                persistent=draw(st.booleans()),
            )
        )
    ticks = draw(st.lists(st.integers(1, 10 * count), max_size=3, unique=True)) if releases else []
    return make_workload(requests, tuple(sorted(ticks)))


def as_recorded(work: Workload, pool: Pool, *, shift: int = 0) -> Workload:
    """Return the workload as a trace of this pool."""
    result = replay_workload(work, pool)
    reported = zip(result.addresses, result.used, result.actual, strict=True)
    rows = tuple(Recorded(address - shift, used, actual) for address, used, actual in reported)
    return work._replace(recorded=rows, releases=(), schedule=order_events(work.requests))


def check_invariants(work: Workload, result: Replay) -> None:
    """Check rules of every pool: live blocks never overlap, lie in units, and used <= actual <= reserved."""
    live: dict[int, int] = {}
    for event in work.schedule:
        if event == RELEASE:
            continue
        if event < 0:
            del live[result.addresses[~event]]
            continue
        address, size = result.addresses[event], work.requests[event].size
        assert address % ALIGNMENT == 0
        assert any(unit.base <= address and address + size <= unit.base + unit.size for unit in result.units)
        assert all(address + size <= other or other + length <= address for other, length in live.items())
        live[address] = size
        assert sum(live.values()) <= result.used[event] <= result.actual[event] <= result.reserved[event]
