"""The caching allocator of PyTorch and of torch_npu as a state machine.

``c10/cuda/CUDACachingAllocator.cpp`` of PyTorch 2.x and ``NPUCachingAllocator.cpp`` of torch_npu 2.x. Held against the
snapshots of real runs address by address (:mod:`ms_tune.allocator.torch_replay`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ms_tune.allocator.pool import TOP, Growth, PoolState, Unit
from ms_tune.allocator.torch_settings import LARGE_SEGMENT, ROUND_LARGE, SMALL_REQUEST, SMALL_SEGMENT, TorchSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ms_tune.allocator.workload import Request

_ENDLESS = 1 << 41  # address space of an expandable segment; the allocator reserves 9/8 of the device's memory


@dataclass(slots=True, eq=False)
class _Pool:
    """The free and the unmapped blocks of one (small or large, stream)."""

    small: bool
    stream: int
    holes: list[tuple[int, int]] = field(default_factory=list)  # (size, address) in order
    unmapped: list[int] = field(default_factory=list)  # addresses in order
    free_bytes: int = 0

    @property
    def page(self) -> int:
        """What an expandable segment maps at once."""
        return SMALL_SEGMENT if self.small else LARGE_SEGMENT

    @property
    def name(self) -> str:
        """How growths call it."""
        return "small" if self.small else "large"


@dataclass(slots=True, eq=False)
class _Segment:
    """Address space taken at once; of an expandable one only the mapped parts are memory."""

    pool: _Pool
    unit: Unit
    base: int
    expandable: bool
    mapped: int = 0


@dataclass(slots=True, eq=False)
class _Block:
    """A piece of a segment, between its neighbours there."""

    address: int
    size: int
    segment: _Segment
    live: bool = False
    mapped: bool = True
    before: _Block | None = None
    after: _Block | None = None

    @property
    def idle(self) -> bool:
        """Whether nobody uses it, mapped or not."""
        return not self.live


@dataclass(frozen=True, slots=True)
class Held:
    """A segment that the allocator holds before the first request.

    Attributes:
        base: Its address.
        size: Its bytes; of an expandable one, those of its address space.
        small: Whether it is of the small pool.
        stream: Its stream.
        ranges: The mapped ranges of an expandable segment as (start, end); None if it is not expandable.
    """

    base: int
    size: int
    small: bool
    stream: int
    ranges: tuple[tuple[int, int], ...] | None = None


class SeedError(ValueError):
    """Live blocks that do not lie in the segments."""


class TorchPool:
    """The allocator.

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
        self._blocks: dict[int, _Block] = {}
        self._bases = iter(bases)
        self._top = TOP

    # --- what every pool does ---

    def allocate(self, request: Request) -> int:
        """Best fit among the free blocks, else a new segment, else a new segment after releasing cached ones."""
        size = self.rounded(request.size)
        small = size <= SMALL_REQUEST
        pool = self._pool(small, request.stream)
        block = self._find(pool, size)
        if block is None:
            block = self._map_for(pool, size) if self._settings.expandable else self._take(pool, size)
        self._drop_hole(block)
        expandable = block.segment.expandable
        alignment = self._settings.base_alignment
        if alignment and expandable and size >= ROUND_LARGE and block.address % alignment:
            skipped = alignment - block.address % alignment
            if skipped + size <= block.size:
                aligned = self._split(block, skipped)
                self._add_hole(block)
                block = aligned
        if self._settings.splits(block.size - size, size, small=small, expandable=expandable):
            self._add_hole(self._split(block, size))
        block.live = True
        self.state.used += block.size
        return block.address

    def allocate_batch(self, requests: Sequence[Request]) -> list[int]:
        """This allocator has no continuous allocation: one after the other."""
        return [self.allocate(request) for request in requests]

    def free(self, address: int) -> None:
        """Merge with the free neighbours of the same segment."""
        block = self._blocks[address]
        block.live = False
        self.state.used -= block.size
        self._add_hole(self._merged(block))

    def release(self) -> None:
        """Give back what holds no live block: whole segments, and whole pages of expandable ones (``empty_cache``)."""
        for pool in self._pools.values():
            for _, address in list(pool.holes):
                block = self._blocks[address]
                if block.segment.expandable:
                    self._unmap(block)
                elif block.before is None and block.after is None:
                    self._give_back(block)

    def rounded(self, size: int) -> int:
        """What a request of a size takes, before an unsplit remainder."""
        return self._settings.rounded(size)

    # --- what a replay from the middle of a run needs ---

    def seed(self, segments: Iterable[Held], live: Mapping[int, int]) -> None:
        """Put the allocator into the state of a running process.

        Args:
            segments: What it holds, each with its neighbours apart.
            live: Sizes of the live blocks by address.

        Raises:
            SeedError: A live block does not lie in mapped memory.
        """
        for held in segments:
            self._hold(held)
        # Ascending, so that what is left of a hole always lies behind the block that was cut out of it.
        starts = sorted(self._blocks)
        at = 0
        current: _Block | None = None
        for address in sorted(live):
            while at < len(starts) and starts[at] <= address:
                current = self._blocks[starts[at]]
                at += 1
            current = self._occupy(current, address, live[address])
        self.state.growths.clear()
        self._top = max([self._top, *(self._blocks[address].segment.base + _ENDLESS for address in starts[-1:])])

    def layout(self) -> dict[int, tuple[int, bool]]:
        """Size and liveness of all mapped blocks by address."""
        return {block.address: (block.size, block.live) for block in self._blocks.values() if block.mapped}

    def size_at(self, address: int) -> int:
        """The size of the block at an address."""
        return self._blocks[address].size

    def is_live(self, address: int) -> bool:
        """Whether a live block begins at an address."""
        block = self._blocks.get(address)
        return block is not None and block.live

    def _hold(self, held: Held) -> None:
        pool = self._pool(held.small, held.stream)
        if held.ranges is None:
            self._new_segment(pool, held.base, held.size, expandable=False)
            return
        block = self._new_segment(pool, held.base, held.size, expandable=True)
        for start, end in held.ranges:
            if not block.address <= start < end <= block.address + block.size:
                raise SeedError
            pool.unmapped.remove(block.address)
            if start > block.address:
                mapped = self._split(block, start - block.address)
                insort(pool.unmapped, block.address)
                block = mapped
            rest = self._split(block, end - start) if end < block.address + block.size else None
            block.mapped = True
            self._add_hole(block)
            self._count(block.segment, end - start)
            if rest is None:
                break
            rest.mapped = False
            insort(pool.unmapped, rest.address)
            block = rest

    def _occupy(self, block: _Block | None, address: int, size: int) -> _Block:
        if block is None or block.live or not block.mapped or address + size > block.address + block.size or size <= 0:
            raise SeedError
        self._drop_hole(block)
        if address > block.address:
            taken = self._split(block, address - block.address)
            self._add_hole(block)
            block = taken
        rest = self._split(block, size) if size < block.size else block
        if rest is not block:
            self._add_hole(rest)
        block.live = True
        self.state.used += size
        return rest

    # --- free blocks ---

    def _pool(self, small: bool, stream: int) -> _Pool:  # noqa: FBT001 - the key of the table
        pool = self._pools.get((small, stream))
        if pool is None:
            pool = self._pools[small, stream] = _Pool(small, stream)
        return pool

    def _find(self, pool: _Pool, size: int) -> _Block | None:
        """The smallest free block that is large enough, at the lowest address (``get_free_block``)."""
        candidates = self._from(pool, size)
        block = next(candidates, None)
        if block is None:
            return None
        if block.segment.expandable:
            # The last mapped block can grow into unmapped memory, which makes it the last choice.
            for other in candidates:
                if not block.segment.expandable or _could_be(other) >= _could_be(block):
                    break
                block = other
        return None if self._settings.refuses(size, block.size) else block

    def _from(self, pool: _Pool, size: int) -> Iterator[_Block]:
        for place in range(bisect_left(pool.holes, (size, 0)), len(pool.holes)):
            block = self._blocks[pool.holes[place][1]]
            # Expandable memory is for expandable settings only, once those are switched off.
            if self._settings.expandable or not block.segment.expandable:
                yield block

    def _add_hole(self, block: _Block) -> None:
        pool = block.segment.pool
        insort(pool.holes, (block.size, block.address))
        pool.free_bytes += block.size

    def _drop_hole(self, block: _Block) -> None:
        pool = block.segment.pool
        del pool.holes[bisect_left(pool.holes, (block.size, block.address))]
        pool.free_bytes -= block.size

    def _split(self, block: _Block, size: int) -> _Block:
        """Cut a block that stands in no list; what is behind the cut."""
        rest = _Block(block.address + size, block.size - size, block.segment, mapped=block.mapped)
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.after = rest
        block.size = size
        self._blocks[rest.address] = rest
        return rest

    def _merged(self, block: _Block) -> _Block:
        """The block with the idle neighbours that are mapped if it is, which leave their lists."""
        before = block.before
        if before is not None and before.idle and before.mapped == block.mapped:
            self._unlist(before)
            block, behind = before, block
            self._absorb(block, behind)
        after = block.after
        if after is not None and after.idle and after.mapped == block.mapped:
            self._unlist(after)
            self._absorb(block, after)
        return block

    def _absorb(self, block: _Block, behind: _Block) -> None:
        block.size += behind.size
        block.after = behind.after
        if behind.after is not None:
            behind.after.before = block
        del self._blocks[behind.address]

    def _unlist(self, block: _Block) -> None:
        if block.mapped:
            self._drop_hole(block)
        else:
            block.segment.pool.unmapped.remove(block.address)

    # --- memory of the device ---

    def _new_segment(self, pool: _Pool, base: int, size: int, *, expandable: bool) -> _Block:
        unit = Unit(base, 0 if expandable else size, pool.name, base, base if expandable else base + size)
        segment = _Segment(pool, unit, base, expandable)
        self.state.units.append(unit)
        block = _Block(base, size, segment, mapped=not expandable)
        self._blocks[base] = block
        if expandable:
            insort(pool.unmapped, base)
        else:
            self._count(segment, size)
            self._add_hole(block)
        return block

    def _count(self, segment: _Segment, size: int) -> None:
        """More or, below zero, less memory of the device."""
        segment.mapped += size
        if segment.expandable:
            segment.unit.size += size
            segment.unit.high = segment.unit.base + segment.unit.size
        self.state.reserved += size
        self.state.actual = self.state.reserved  # it knows no touched extents: what it holds is lost to others

    def _base(self, size: int) -> int:
        base = next(self._bases, self._top)
        self._top = max(self._top, base + size)
        return base

    def _take(self, pool: _Pool, size: int) -> _Block:
        wanted = self._settings.segment_size(size, small=pool.small)
        self._make_room(wanted)
        base = self._base(wanted)
        self._record_growth(pool, wanted, size)
        return self._new_segment(pool, base, wanted, expandable=False)

    def _make_room(self, wanted: int) -> None:
        total = self._settings.total
        if total is not None and self.state.reserved + wanted > total:
            self.release()
            self.state.over |= self.state.reserved + wanted > total

    def _record_growth(self, pool: _Pool, taken: int, wanted: int) -> None:
        state = self.state
        largest = pool.holes[-1][0] if pool.holes else 0
        held = state.reserved + taken
        state.growths.append(Growth(state.request, pool.name, taken, held, wanted, largest, pool.free_bytes))

    def _give_back(self, block: _Block) -> None:
        self._drop_hole(block)
        del self._blocks[block.address]
        block.segment.unit.released = self.state.request
        self._count(block.segment, -block.size)

    # --- expandable segments ---

    def _map_for(self, pool: _Pool, size: int) -> _Block:
        """Map memory for a request (``try_allocate_expandable_block``); a free block before it counts."""
        block = self._expandable_place(pool, size)
        if self._settings.total is not None:
            missing = size - (block.size if block.mapped else 0)
            self._make_room(-(-missing // pool.page) * pool.page)
            block = self._expandable_place(pool, size)  # what was unmapped for it may lie lower
        if not block.mapped:
            block = self._map(block, min(block.size, size), size)
        while block.size < size:
            behind = block.after
            assert behind is not None  # noqa: S101 - the place was chosen for its room
            block = self._map(behind, min(size - block.size, behind.size), size)
        return block

    def _expandable_place(self, pool: _Pool, size: int) -> _Block:
        """The lowest unmapped block that, with the free block before it, has room (``find_expandable_block``)."""
        for address in pool.unmapped:
            block = self._blocks[address]
            if block.before is not None and block.before.idle:
                block = block.before
            room = 0
            part: _Block | None = block
            while room < size and part is not None and part.idle:
                room += part.size
                part = part.after
            if room >= size:
                return block
        return self._new_segment(pool, self._base(_ENDLESS), _ENDLESS, expandable=True)

    def _map(self, block: _Block, size: int, wanted: int) -> _Block:
        """Map whole pages from a block's start on (``map_block``); the free block that this makes."""
        segment, pool = block.segment, block.segment.pool
        pages = -(-(block.address + size - segment.base) // pool.page) * pool.page
        size = min(segment.base + pages - block.address, block.size)
        self._record_growth(pool, size, wanted)
        pool.unmapped.remove(block.address)
        if size < block.size:
            insort(pool.unmapped, self._split(block, size).address)
        block.mapped = True
        self._count(segment, size)
        block = self._merged(block)
        self._add_hole(block)
        return block

    def _unmap(self, block: _Block) -> None:
        """Unmap the whole pages of a free block (``unmap_block``)."""
        segment, page = block.segment, block.segment.pool.page
        low = segment.base + -(-(block.address - segment.base) // page) * page
        high = segment.base + (block.address + block.size - segment.base) // page * page
        if high <= low:
            return
        self._drop_hole(block)
        if high < block.address + block.size:
            self._add_hole(self._split(block, high - block.address))
        if low > block.address:
            pages = self._split(block, low - block.address)
            self._add_hole(block)
            block = pages
        block.mapped = False
        self._count(segment, -block.size)
        block = self._merged(block)
        if block.before is None and block.after is None:
            del self._blocks[block.address]  # its address space is given back, too (``release_expandable_segment``)
            segment.unit.released = self.state.request
        else:
            insort(segment.pool.unmapped, block.address)


def _could_be(block: _Block) -> int:
    """A free block's size with the unmapped memory behind it."""
    after = block.after
    return block.size + (after.size if after is not None and not after.mapped else 0)
