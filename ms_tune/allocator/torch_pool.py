"""The caching allocator of PyTorch and of torch_npu.

``c10/cuda/CUDACachingAllocator.cpp`` of PyTorch 2.x and ``NPUCachingAllocator.cpp`` of torch_npu 2.x, which follows it
and asks for 32 bytes more each time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.allocator.pool import ALIGNMENT, TOP, Growth, PoolState, Unit
from ms_tune.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ms_tune.allocator.workload import Request

NPU_PADDING = 32  # bytes that torch_npu adds to each request, for the hardware to read beyond its end
_SMALL_REQUEST = MIB  # up to this, the small pool serves
_SMALL_SEGMENT = 2 * MIB
_LARGE_SEGMENT = 20 * MIB
_OWN_SEGMENT = 10 * MIB  # from this on, a request gets a segment of its own
_ROUND_LARGE = 2 * MIB
_ENDLESS = 1 << 40  # address space of an expandable segment; the allocator reserves 9/8 of the device's memory


@dataclass(frozen=True, slots=True)
class TorchSettings:
    """What ``PYTORCH_CUDA_ALLOC_CONF`` or ``PYTORCH_NPU_ALLOC_CONF`` and the device decide.

    Attributes:
        padding: Bytes added to each request: 0 on CUDA, :data:`NPU_PADDING` on an NPU.
        max_split: ``max_split_size_mb`` in bytes; None if not set.
        expandable: ``expandable_segments``.
        total: Bytes that the device has; None: no limit.
    """

    padding: int = 0
    max_split: int | None = None
    expandable: bool = False
    total: int | None = None


class _Pool:
    """The free blocks of one (small or large, stream), as (size, address) in order."""

    __slots__ = ("frontier", "holes", "limit", "small", "unit")

    def __init__(self, *, small: bool) -> None:
        self.small = small
        self.holes: list[tuple[int, int]] = []
        self.unit: Unit | None = None  # the expandable segment
        self.frontier = self.limit = 0  # where its mapped memory ends, and its address space


class TorchPool:
    """The allocator as a state machine.

    Args:
        settings: Its settings.
        bases: Addresses of the segments in the order in which they are taken, if known. Among free blocks of one size
            the lowest address wins, so a recorded run is only reproduced with its own. Without them, and after them,
            segments lie one above the other.
    """

    def __init__(self, settings: TorchSettings, bases: Iterable[int] = ()) -> None:
        self.state = PoolState()
        self._settings = settings
        self._pools: dict[tuple[bool, int], _Pool] = {}
        self._live: dict[int, tuple[int, _Pool]] = {}
        self._hole_at: dict[int, int] = {}
        self._hole_to: dict[int, int] = {}
        self._edges: set[int] = set()
        self._units: dict[int, Unit] = {}  # the segments by their base
        self._bases = iter(bases)
        self._top = TOP

    def allocate(self, request: Request) -> int:
        """Best fit among the free blocks, else a new segment, else a new segment after releasing cached ones."""
        size = self.rounded(request.size)
        small = size <= _SMALL_REQUEST
        pool = self._pools.get((small, request.stream))
        if pool is None:
            pool = self._pools[small, request.stream] = _Pool(small=small)
        hole = self._find(pool, size)
        if hole is None:
            hole = self._grow(pool, size)
        length, address = hole
        del self._hole_at[address], self._hole_to[address + length]
        if self._should_split(pool, length, size):
            self._add_hole(pool, address + size, length - size)
        else:
            size = length
        self._live[address] = (size, pool)
        self.state.used += size
        return address

    def allocate_batch(self, requests: Sequence[Request]) -> list[int]:
        """This allocator has no continuous allocation: one after the other."""
        return [self.allocate(request) for request in requests]

    def free(self, address: int) -> None:
        """Merge with the free neighbours of the same segment."""
        size, pool = self._live.pop(address)
        self.state.used -= size
        end = address + size
        if address not in self._edges and (before := self._hole_to.get(address)) is not None:
            self._drop_hole(pool, before, address - before)
            address = before
        if end not in self._edges and (behind := self._hole_at.get(end)) is not None:
            self._drop_hole(pool, end, behind)
            end += behind
        self._add_hole(pool, address, end - address)

    def rounded(self, size: int) -> int:
        """What a request of a size takes, before an unsplit remainder."""
        padded = size + self._settings.padding
        return max(ALIGNMENT, -(-padded // ALIGNMENT) * ALIGNMENT)

    def _find(self, pool: _Pool, size: int) -> tuple[int, int] | None:
        position = bisect_left(pool.holes, (size, 0))
        if position == len(pool.holes):
            return None
        limit, found = self._settings.max_split, pool.holes[position][0]
        if self._settings.expandable:
            position = self._least_expandable(pool, position)
        elif limit is not None and not pool.small and found >= (limit if size < limit else size + _LARGE_SEGMENT):
            # A block above the limit is kept whole: small requests pass it by, large ones waste at most 20 MiB of it.
            return None
        return pool.holes.pop(position)

    def _least_expandable(self, pool: _Pool, position: int) -> int:
        """Of blocks in order of size, the first whose successor would not grow less (``get_free_block``).

        The last mapped block can grow into unmapped memory, which makes it the last choice.
        """

        def room(index: int) -> int:
            size, address = pool.holes[index]
            return size + (pool.limit - pool.frontier if address + size == pool.frontier else 0)

        while position + 1 < len(pool.holes) and room(position + 1) < room(position):
            position += 1
        return position

    def _should_split(self, pool: _Pool, length: int, size: int) -> bool:
        rest = length - size
        if pool.small or self._settings.expandable:
            return rest >= ALIGNMENT
        limit = self._settings.max_split
        return rest > _SMALL_REQUEST and (limit is None or size < limit)

    def _grow(self, pool: _Pool, size: int) -> tuple[int, int]:
        if self._settings.expandable:
            return self._map(pool, size)
        segment = self._segment_size(pool, size)
        if not self._has(segment):
            self.release()
        if not self._has(segment):
            self.state.over = True
        self._record_growth(pool, segment, size)
        base = self._place(segment)
        unit = Unit(base, segment, _name(pool), base, base + segment)
        self._units[base] = unit
        self.state.units.append(unit)
        self._add_hole(pool, base, segment)
        return pool.holes.pop(bisect_left(pool.holes, (segment, base)))

    def _place(self, size: int) -> int:
        base = next(self._bases, self._top)
        self._top = max(self._top, base + size)
        self._edges.update((base, base + size))
        return base

    def _map(self, pool: _Pool, size: int) -> tuple[int, int]:
        """Map pages behind what is mapped of the expandable segment; a free block before them counts."""
        if pool.unit is None:
            base = self._place(_ENDLESS)
            pool.frontier, pool.limit = base, base + _ENDLESS
            pool.unit = Unit(base, 0, _name(pool), base, base)
            self.state.units.append(pool.unit)
        last = self._hole_to.get(pool.frontier)
        have = 0 if last is None else pool.frontier - last
        page = _SMALL_SEGMENT if pool.small else _LARGE_SEGMENT
        mapped = -(-(size - have) // page) * page
        if not self._has(mapped):
            self.state.over = True
        self._record_growth(pool, mapped, size)
        if last is not None:
            self._drop_hole(pool, last, have)
        start = pool.frontier - have
        pool.frontier += mapped
        pool.unit.size += mapped
        pool.unit.high = pool.frontier
        self._add_hole(pool, start, have + mapped)
        return pool.holes.pop(bisect_left(pool.holes, (have + mapped, start)))

    def _segment_size(self, pool: _Pool, size: int) -> int:
        if pool.small:
            return _SMALL_SEGMENT
        return _LARGE_SEGMENT if size < _OWN_SEGMENT else -(-size // _ROUND_LARGE) * _ROUND_LARGE

    def _has(self, size: int) -> bool:
        total = self._settings.total
        return total is None or self.state.reserved + size <= total

    def release(self) -> None:
        """Give back the segments of which no byte is in use (``release_cached_blocks``)."""
        for pool in self._pools.values():
            for size, address in list(pool.holes):
                unit = self._units.get(address)
                if unit is not None and unit.size == size:
                    self._drop_hole(pool, address, size)
                    del self._units[address]
                    unit.released = self.state.request
                    self.state.reserved -= size
                    self.state.actual = self.state.reserved

    def _record_growth(self, pool: _Pool, taken: int, wanted: int) -> None:
        state = self.state
        state.reserved += taken
        state.actual = state.reserved  # this allocator knows no touched extents: what it holds is lost to others
        largest = pool.holes[-1][0] if pool.holes else 0
        free = sum(size for size, _ in pool.holes)
        state.growths.append(Growth(state.request, _name(pool), taken, state.reserved, wanted, largest, free))

    def _add_hole(self, pool: _Pool, address: int, size: int) -> None:
        insort(pool.holes, (size, address))
        self._hole_at[address] = size
        self._hole_to[address + size] = address

    def _drop_hole(self, pool: _Pool, address: int, size: int) -> None:
        del pool.holes[bisect_left(pool.holes, (size, address))]
        del self._hole_at[address], self._hole_to[address + size]


def _name(pool: _Pool) -> str:
    return "small" if pool.small else "large"
