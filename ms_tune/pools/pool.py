"""What every replayed pool does: a small state machine behind one protocol.

A pool hands out addresses of its own making. Whole units (what it takes from the device at once) lie at descending
addresses, as in MindSpore's simulation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.pools.workload import Request

ALIGNMENT = 512  # bytes; of MindSpore's, torch's and torch_npu's pools
TOP = 1 << 47  # where the first unit ends


@dataclass(frozen=True, slots=True)
class PoolGrowth:
    """Why and by how much a pool took memory from the device."""

    request: int | None  # position of the request that made it grow; None if it grew before the first one (`init_size`)
    part: str  # the part of the pool that grew, such as `common`
    unit_bytes: int  # what it took
    reserved_bytes: int  # what it holds since
    request_bytes: int  # what was asked for
    largest_hole: int  # the largest free hole of that part: too small, or refused
    free_bytes: int  # all free bytes of that part


@dataclass(slots=True)
class PoolUnit:
    """Memory that a pool took from the device at once, and how much of it was ever touched: ``[low, high)``.

    ``released`` is the last request served before it was given back; None if it never was.
    """

    base: int
    size: int
    part: str
    low: int
    high: int
    released: int | None = None


@dataclass(slots=True)
class PoolSnapshot:
    """What a pool tells about itself while it runs."""

    used: int = 0  # bytes of live blocks, as the pool counts them
    # Bytes between the lowest and the highest address ever used, summed over the units: the footprint that MindSpore
    # calls "actual peak".
    actual: int = 0
    reserved: int = 0  # bytes taken from the device
    is_over: bool = False  # whether it needed more than the device has
    spilled: int = 0
    request: int | None = None  # position of the request being served, None before the first
    units: list[PoolUnit] = field(default_factory=list)
    growths: list[PoolGrowth] = field(default_factory=list)

    def unit_of(self, address: int) -> PoolUnit:
        """The unit that an address lies in."""
        return next(unit for unit in reversed(self.units) if unit.base <= address < unit.base + unit.size)


def cut_block(live: dict[int, Any], address: int, requests: Sequence[Request]) -> list[int]:
    """The addresses of requests for which one live block was taken; what it is longer is the last one's.

    ``live`` has the size of each live block, and what else is known of it; the parts take the block's place.
    """
    size, *rest = live[address]
    addresses = []
    for request in requests:
        addresses.append(address)
        live[address] = (request.size, *rest)
        address += request.size
        size -= request.size
    live[addresses[-1]] = (requests[-1].size + size, *rest)
    return addresses


class Pool(Protocol):
    """A memory pool: state, and two operations."""

    state: PoolSnapshot

    def allocate(self, request: Request) -> int:
        """Serve one request; the address of its block."""

    def allocate_batch(self, requests: Sequence[Request]) -> list[int]:
        """Serve several requests side by side; their addresses."""

    def free(self, address: int) -> None:
        """Take a block back."""

    def release(self) -> None:
        """Give memory without a live block back to the device, as ``empty_cache`` does."""
