"""Define the protocol of replayed pools, replay a workload in one, and compare the result with the trace.

A pool assigns invented addresses. Units (memory taken from the device at once) are at descending addresses, as in
MindSpore's simulation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from ms_tune.pools.workload import RELEASE, Request, Workload
from ms_tune.records import Record

ALIGNMENT = 512  # bytes; in MindSpore's, torch's and torch_npu's pools
TOP = 1 << 47  # the end address of the first unit


@dataclass(frozen=True, slots=True)
class PoolGrowth:
    """One growth of a pool: the memory that it took from the device, and why."""

    request: int | None  # index of the request that made it grow; None if it grew before the first one (`init_size`)
    part: str  # the part of the pool that grew, such as `common`
    unit_bytes: int  # bytes taken
    reserved_bytes: int  # bytes reserved afterwards
    request_bytes: int  # bytes requested
    largest_hole: int  # the largest free block of that part: too small, or rejected
    free_bytes: int  # all free bytes of that part


@dataclass(slots=True)
class PoolUnit:
    """Memory that a pool took from the device at once, and its touched range ``[low, high)``.

    ``released`` is the last request served before the unit was returned to the device; None if it never was.
    """

    base: int
    size: int
    part: str
    low: int
    high: int
    released: int | None = None


@dataclass(slots=True)
class PoolSnapshot:
    """The state of a pool while it runs."""

    used: int = 0  # bytes of live blocks, as the pool counts them
    # Bytes between the lowest and the highest address ever used, summed over the units: the footprint that MindSpore
    # calls "actual peak".
    actual: int = 0
    reserved: int = 0  # bytes taken from the device
    is_over: bool = False  # whether it needed more memory than the device has
    spilled: int = 0
    request: int | None = None  # index of the request being served, None before the first
    units: list[PoolUnit] = field(default_factory=list)
    growths: list[PoolGrowth] = field(default_factory=list)

    def unit_of(self, address: int) -> PoolUnit:
        """Return the unit that contains an address."""
        return next(unit for unit in reversed(self.units) if unit.base <= address < unit.base + unit.size)


class Pool(Protocol):
    """A memory pool: its state, and its operations."""

    state: PoolSnapshot

    def allocate(self, request: Request) -> int:
        """Serve one request and return the address of its block."""

    def allocate_batch(self, requests: Sequence[Request]) -> list[int]:
        """Serve several requests in one contiguous block and return their addresses."""

    def free(self, address: int) -> None:
        """Free a block."""

    def release(self) -> None:
        """Return memory without live blocks to the device, as ``empty_cache`` does."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of replaying a workload in a pool."""

    addresses: tuple[int, ...]  # of each request's block, in the pool's own address space
    # Bytes just after each request was served; see `ms_tune.pools.pool.PoolSnapshot`.
    used: tuple[int, ...]
    actual: tuple[int, ...]
    reserved: tuple[int, ...]
    # Their largest values.
    used_peak: int
    actual_peak: int
    reserved_peak: int
    is_over: bool  # whether the pool needed more memory than the device has
    spilled: int  # bytes of persistent requests served from the common part, as in MindSpore's pool
    units: tuple[PoolUnit, ...]  # units taken from the device, in order
    growths: tuple[PoolGrowth, ...]  # when and why they were taken


class Mismatches(Record):
    """The number of trace rows that a replay does not reproduce, by column."""

    address: int
    used: int
    actual: int

    @property
    def total(self) -> int:
        """Return the sum over all columns."""
        return self.address + self.used + self.actual


def replay_workload(work: Workload, pool: Pool) -> Replay:
    """Replay a workload in a new pool."""
    state, addresses = pool.state, [0] * len(work.requests)
    used, actual, reserved = addresses.copy(), addresses.copy(), addresses.copy()
    for event in _serve_requests(work, pool, addresses):
        used[event], actual[event], reserved[event] = state.used, state.actual, state.reserved
    return Replay(
        addresses=tuple(addresses),
        used=tuple(used),
        actual=tuple(actual),
        reserved=tuple(reserved),
        used_peak=max(used, default=0),
        actual_peak=max(actual, default=0),
        reserved_peak=max(reserved, default=0),
        is_over=state.is_over,
        spilled=state.spilled,
        units=tuple(state.units),
        growths=tuple(state.growths),
    )


def _serve_requests(work: Workload, pool: Pool, addresses: list[int]) -> Iterator[int]:
    # Yield each request as soon as it has its address.
    requests, state, allocate, free = work.requests, pool.state, pool.allocate, pool.free
    for event in work.schedule:
        if event >= 0:
            request = requests[event]
            state.request = event
            if request.batch == 1:
                addresses[event] = allocate(request)
            elif request.batch:
                addresses[event : event + request.batch] = pool.allocate_batch(requests[event : event + request.batch])
            yield event
        elif event == RELEASE:
            pool.release()
        else:
            free(addresses[~event])


class Placing(Enum):
    """The placement of units by the recorded pool; determines which columns of its trace can be compared, and how."""

    TOP_DOWN = "top-down"  # a simulation, contiguous: all addresses differ from a replay's by the same offset
    ANYWHERE = "anywhere"  # a device: each unit has its own offset
    MAPPED = "mapped"  # a device with vmm: each part has its own offset; the footprint is the mapped memory


class Divergence(NamedTuple):
    """The first difference between a replay and a trace."""

    row: int  # index of the request; the number of requests if nothing differs
    # How much further the block is from the first block in the trace than in the replay, in the direction in which
    # units are allocated; 0 if only other columns differ.
    shift: int = 0
    address: int = 0  # of the block in the replay


def compare_with_trace(work: Workload, result: Replay, placing: Placing = Placing.TOP_DOWN) -> Mismatches:
    """Compare a replay with the recorded values, for the columns that the trace has."""
    footprint = result.reserved if placing is Placing.MAPPED else result.actual
    used = sum(row.used not in (None, ours) for ours, row in zip(result.used, work.recorded, strict=True))
    actual = sum(row.actual not in (None, ours) for ours, row in zip(footprint, work.recorded, strict=True))
    bases = sorted(unit.base for unit in result.units) if placing is not Placing.TOP_DOWN else [0]
    offsets: dict[int, int] = {}
    address = 0
    for ours, row in zip(result.addresses, work.recorded, strict=True):
        offset = ours - row.address
        address += offset != offsets.setdefault(bisect_right(bases, ours), offset)
    return Mismatches(address, used, actual)


def find_divergence(work: Workload, pool: Pool, placing: Placing = Placing.TOP_DOWN) -> Divergence:
    """Replay in a fresh pool until the first row that differs from the trace; the pool keeps its state at that row."""
    state, addresses = pool.state, [0] * len(work.requests)
    offsets: dict[int, int] = {}
    for event in _serve_requests(work, pool, addresses):
        row, address = work.recorded[event], addresses[event]
        offset = address - row.address
        first = offsets.setdefault(0 if placing is Placing.TOP_DOWN else state.unit_of(address).base, offset)
        footprint = state.reserved if placing is Placing.MAPPED else state.actual
        if offset != first or row.used not in (None, state.used) or row.actual not in (None, footprint):
            return Divergence(event, offset - first, address)
    return Divergence(len(addresses))
