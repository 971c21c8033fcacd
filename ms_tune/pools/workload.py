"""Represent the requests to a pool, with their lifetimes, in the order in which they happened."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.readers.table import Table

_MOST_EVENTS = 150_000  # events replayed in other orders: each replay takes as long as the first
RELEASE = -(1 << 62)  # in a schedule: the script returns unused memory to the device

# Memory of the GE back end: MindSpore reports it as allocated and freed on adjacent ticks (ge_graph_executor.cc).
_NOT_IN_POOL = frozenset({"GeFixed", "GeConst"})
# In layouts without the column is_persistent, MindSpore's own memory_replay decides by type (memory_py.cc).
_CONTINUOUS = frozenset({"ContinuousMemory"})
_PERSISTENT_KINDS = frozenset({"Weight", "ConstantValue", "GeConst"})


class Request(NamedTuple):
    """One allocation; it lives in ``[start, end)``, until the end of the run if ``end`` is None."""

    size: int  # bytes; already rounded in MindSpore's traces, while PyTorch's pools round them
    start: int  # tick of the allocation; requests are in this order
    end: int | None  # tick of the release
    stream: int = 0  # index of the stream
    persistent: bool = False  # whether it is for the part with weights and constants
    # Number of requests, from this one on, in one continuous allocation; 1 for a single request, 0 if it belongs to the
    # batch of an earlier one.
    batch: int = 1


class Recorded(NamedTuple):
    """The values that the recording pool wrote about one request; None if this layout of the file lacks the column."""

    address: int
    used: int | None
    actual: int | None


class Workload(NamedTuple):
    """Requests, their order, and the values that the pool recorded for them."""

    requests: tuple[Request, ...]  # in order of their start
    recorded: tuple[Recorded, ...]  # one per request; empty if nothing was recorded
    # Events in order: `i` allocates request i, `~i` frees it, `RELEASE` returns unused memory to the device.
    schedule: tuple[int, ...]
    # Ticks at which the script calls `empty_cache`. Blocks with that end tick are freed before it, and blocks with that
    # start tick are allocated after it.
    releases: tuple[int, ...] = ()
    small_pool: bool = False  # whether any row was served from MindSpore's small pool


def make_workload(requests: Iterable[Request], releases: Sequence[int] = ()) -> Workload:
    """Make a workload without recorded values from requests that are in order of their start."""
    ordered = tuple(requests)
    return Workload(ordered, (), order_events(ordered, releases), tuple(releases))


def add_release(work: Workload, tick: int) -> Workload:
    """Return the workload with one more release."""
    releases = tuple(sorted({*work.releases, tick}))
    return work._replace(releases=releases, schedule=order_events(work.requests, releases))


def order_events(requests: Sequence[Request], releases: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the events in order; see :class:`Workload`."""
    # A row that a damaged trace has twice ends where it begins, as its address is in use again: it is still allocated first.
    ends = [(max(one.end, one.start + 1), 0, ~index) for index, one in enumerate(requests) if one.end is not None]
    ends.extend((tick, 1, RELEASE) for tick in releases)
    ends.sort(reverse=True)
    events: list[int] = []
    for index, request in enumerate(requests):
        while ends and ends[-1][0] <= request.start:
            events.append(ends.pop()[2])
        events.append(index)
    events.extend(event for _, _, event in reversed(ends))
    return tuple(events)


def split_by_pool(table: Table) -> dict[str, tuple[Workload, list[int]]]:
    """Return, for every memory pool in a trace by name, its workload and the trace row of every request.

    Rows that no pool served (static rows of MindSpore 2.3 and 2.4, GE's records of its own memory) are left out.
    """
    rows: dict[str, list[int]] = {}
    pools = table.pool.codes.tolist()
    taken = ((table.start >= 0) & ~table.kind.rows_in(_NOT_IN_POOL)).tolist()
    for row in table.start.argsort(kind="stable").tolist():
        if taken[row]:
            rows.setdefault(table.pool.values[pools[row]], []).append(row)
    return {pool: (_read_workload(table, found), found) for pool, found in rows.items()}


def _read_workload(table: Table, rows: list[int]) -> Workload:
    size, start = table.size[rows].tolist(), table.start[rows].tolist()
    end = [None if tick == NEVER_FREED else tick for tick in table.end[rows].tolist()]
    stream = [max(number, 0) for number in table.stream[rows].tolist()]
    flagged = table.persistent[rows]
    persistent = (flagged if flagged.any() else table.kind.rows_in(_PERSISTENT_KINDS)[rows]).tolist()
    used = [None if number < 0 else number for number in table.used_after[rows].tolist()]
    actual = [None if number < 0 else number for number in table.footprint_after[rows].tolist()]
    recorded = tuple(map(Recorded, table.address[rows].tolist(), used, actual))
    requests = _cut_batches(tuple(map(Request, size, start, end, stream, persistent, [1] * len(rows))), recorded)
    schedule = order_events(requests)
    continuous = table.kind.rows_in(_CONTINUOUS)[rows].tolist()
    if batches := _find_batches(requests, recorded, schedule, continuous):
        requests = tuple(request._replace(batch=batches.get(index, 1)) for index, request in enumerate(requests))
    return Workload(requests, recorded, schedule, small_pool=bool(table.small[rows].any()))


def _find_batches(
    requests: Sequence[Request], recorded: Sequence[Recorded], schedule: Sequence[int], continuous: Sequence[bool] = ()
) -> dict[int, int]:
    # MindSpore serves a continuous allocation as one block and cuts it afterwards: its rows are consecutive and contiguous, and
    # all show the memory in use after the whole batch (`ascend_memory_pool.cc`, `AllocContinuousTensorMem`). If the trace lacks
    # the memory in use: rows of the right type, one tick and no gap apart.
    swept = _sum_used(requests, schedule) if any(row.used is not None for row in recorded) else None

    def continues(first: int, last: int) -> bool:
        one, other, row, following = requests[last], requests[last + 1], recorded[last], recorded[last + 1]
        if row.used != following.used or row.address + one.size != following.address or one.stream != other.stream:
            return False
        if swept is None:
            return continuous[last] and continuous[last + 1] and one.start + 1 == other.start
        return recorded[first].used not in (None, swept[first], swept[last])

    batches: dict[int, int] = {}
    first = 0
    while first < len(requests):
        last = first
        while last + 1 < len(requests) and continues(first, last):
            last += 1
        if last > first and (swept is None or swept[last] == recorded[first].used):
            batches.update(dict.fromkeys(range(first, last + 1), 0))
            batches[first] = last - first + 1
        else:
            last = first
        first = last + 1
    return batches


def _cut_batches(requests: tuple[Request, ...], recorded: Sequence[Recorded]) -> tuple[Request, ...]:
    # MindSpore's older pool records the size of the whole batch in its first row: the following rows are inside it.
    cut = list(requests)
    for row in range(len(requests) - 1):
        size = recorded[row + 1].address - recorded[row].address
        if 0 < size < requests[row].size and recorded[row].used == recorded[row + 1].used:
            end = recorded[row].address + requests[row].size
            last = row + 1
            while (
                last + 1 < len(requests) and recorded[last].address + requests[last].size == recorded[last + 1].address
            ):
                if recorded[last + 1].address >= end:
                    break
                last += 1
            if recorded[last].address + requests[last].size == end:
                cut[row] = requests[row]._replace(size=size)
    return tuple(cut)


def _sum_used(requests: Sequence[Request], schedule: Sequence[int]) -> list[int]:
    swept = [0] * len(requests)
    used = 0
    for event in schedule:
        if event < 0:
            used -= requests[~event].size
        else:
            swept[event] = used = used + requests[event].size
    return swept


def free_order_variants(work: Workload) -> Iterator[Workload]:
    """Yield variants of the workload with the ends of twin blocks exchanged: for one half of the pairs, then for the other.

    The execution order of a static graph is a sort of its operators, and unordered operators change places from one build to the
    next. If two blocks of equal size are allocated one after the other, either may live longer, and the free blocks differ from
    there on: in a stage of Qwen3-32B (MindFormers 1.9, 4 layers) two blocks of 16,896 bytes alone make the difference between
    18,842 MiB and 19,392 MiB of footprint. Workloads with too many events have no variants.
    """
    pairs = _find_equal_pairs(work)
    if not pairs or len(work.schedule) > _MOST_EVENTS:
        return
    chosen = random.Random(0)  # noqa: S311  - any half will do
    half = [chosen.random() < 0.5 for _ in pairs]  # noqa: PLR2004 - one half of the pairs
    for taken in (half, [not one for one in half]):
        ends = {block: request.end for block, request in enumerate(work.requests)}
        for (one, other), swap in zip(pairs, taken, strict=True):
            if swap:
                ends[one], ends[other] = ends[other], ends[one]
        yield make_workload(request._replace(end=ends[block]) for block, request in enumerate(work.requests))


def _find_equal_pairs(work: Workload) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    taken: set[int] = set()
    for one, other in zip(work.schedule, work.schedule[1:], strict=False):
        if one < 0 or other < 0 or one in taken:
            continue
        first, second = work.requests[one], work.requests[other]
        alike = first._replace(start=0, end=None) == second._replace(start=0, end=None)
        if alike and first.batch == 1 and first.end != second.end:
            found.append((one, other))
            taken |= {one, other}
    return found
