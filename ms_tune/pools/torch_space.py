"""The memory that PyTorch's caching allocator manages: its settings, segments, the blocks that they are cut into, which are free.

What is done with them, and when, is :mod:`ms_tune.pools.torch_pool`. Settings as ``c10/cuda/CUDACachingAllocator.cpp`` and
``CUDAAllocatorConfig.cpp`` of PyTorch 2.x have them; ``NPUCachingAllocator.cpp`` of torch_npu 2.x, which follows them, asks for
32 bytes more each time and aligns large blocks of expandable segments.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ms_tune.pools.pool import ALIGNMENT, PoolSnapshot, PoolUnit
from ms_tune.records import Record
from ms_tune.units import GIB, KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NPU_PADDING = 32  # bytes that torch_npu adds to each request, for the hardware to read beyond its end
NPU_BASE_ALIGNMENT = 16 * KIB  # of blocks of 2 MiB and more in torch_npu's expandable segments (base_addr_aligned_kb)
SMALL_REQUEST = MIB  # up to this, the small pool serves
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
ROUND_LARGE = 2 * MIB
EXPANDABLE_SPACE = 1 << 41  # addresses of an expandable segment; the allocator reserves 9/8 of the device's memory
_OWN_SEGMENT = 10 * MIB  # from this on, a request gets a segment of its own
_FIRST_POWER, _LAST_POWER = MIB.bit_length() - 1, (64 * GIB).bit_length() - 1  # intervals of roundup_power2_divisions


@dataclass(frozen=True, slots=True)
class TorchSettings:
    """What ``PYTORCH_CUDA_ALLOC_CONF`` or ``PYTORCH_NPU_ALLOC_CONF`` and the device decide."""

    padding: int = 0  # bytes added to each request: 0 on CUDA, `NPU_PADDING` on an NPU
    max_split: int | None = None  # `max_split_size_mb` in bytes; None if not set
    expandable: bool = False  # `expandable_segments`
    total: int | None = None  # bytes that the device has, or `set_per_process_memory_fraction` leaves; None: no limit
    base_alignment: int = 0  # of blocks of 2 MiB and more in expandable segments; 0 for none
    # `roundup_power2_divisions` for sizes below 2 MiB, below 4 MiB, and so on; empty if not set. One entry serves all
    # sizes.
    roundup: tuple[int, ...] = ()
    collect_above: float | None = None  # `garbage_collection_threshold`, a share of `total`; None if not set

    def round_request(self, size: int) -> int:
        """What a request of a size takes, before an unsplit remainder."""
        padded = size + self.padding
        if self.roundup:
            power = min(max(padded.bit_length() - 1, _FIRST_POWER), _LAST_POWER - 1)
            divisions = self.roundup[min(power - _FIRST_POWER, len(self.roundup) - 1)]
            if divisions > 1 and padded > ALIGNMENT * divisions:
                return _next_division(padded, divisions)
        return -(-padded // ALIGNMENT) * ALIGNMENT or ALIGNMENT

    def segment_size(self, size: int, *, small: bool) -> int:
        """What a miss takes from the device (``get_allocation_size``)."""
        if small:
            return SMALL_SEGMENT
        return LARGE_SEGMENT if size < _OWN_SEGMENT else -(-size // ROUND_LARGE) * ROUND_LARGE

    def keeps_whole(self, size: int, found: int) -> bool:
        """Whether a free block is kept whole.

        Above the limit of splitting, small requests pass it by, and large ones waste at most 20 MiB of it.
        """
        limit = self.max_split
        return limit is not None and found >= (limit if size < limit else size + LARGE_SEGMENT)

    def should_split(self, rest: int, size: int, *, small: bool, expandable: bool) -> bool:
        """Whether what a request leaves of a block becomes a block of its own (``should_split``)."""
        if small or expandable:
            return rest >= ALIGNMENT
        return rest > SMALL_REQUEST and (self.max_split is None or size < self.max_split)


def _next_division(size: int, divisions: int) -> int:
    # `roundup_power2_next_division`: the space between two powers of two in equal parts.
    floor = 1 << (size.bit_length() - 1)
    if size == floor:
        return size
    part = floor >> (divisions.bit_length() - 1)
    if not part:
        return floor << 1
    return -(-size // part) * part


@dataclass(slots=True, eq=False)
class BlockPool:
    """The free and the unmapped blocks of one (small or large, stream)."""

    small: bool
    stream: int
    holes: list[tuple[int, int, PoolBlock]] = field(default_factory=list)  # (size, address, the block) in order
    unmapped: list[int] = field(default_factory=list)  # addresses in order
    free_bytes: int = 0

    @property
    def page_bytes(self) -> int:
        """What an expandable segment maps at once."""
        return SMALL_SEGMENT if self.small else LARGE_SEGMENT

    @property
    def name(self) -> str:
        """How growths call it."""
        return "small" if self.small else "large"


@dataclass(slots=True, eq=False)
class PoolSegment:
    """Address space taken at once; of an expandable one only the mapped parts are memory."""

    pool: BlockPool
    unit: PoolUnit
    base: int
    expandable: bool


@dataclass(slots=True, eq=False)
class PoolBlock:
    """A piece of a segment, between its neighbours there."""

    address: int
    size: int
    segment: PoolSegment
    live: bool = False
    mapped: bool = True
    before: PoolBlock | None = None
    after: PoolBlock | None = None
    listed: int = 0  # the count of searches when it became free

    @property
    def is_segment(self) -> bool:
        """Whether it is the whole of its segment."""
        return self.before is None and self.after is None


class HeldSegment(Record):
    """A segment that the allocator holds before the first request."""

    base: int  # its address
    size: int  # its bytes; of an expandable one, those of its address space
    small: bool  # whether it is of the small pool
    stream: int
    # The mapped ranges of an expandable segment as (start, end); None if it is not expandable.
    ranges: tuple[tuple[int, int], ...] | None = None


class SeedError(ValueError):
    """Live blocks that do not lie in the segments."""


class SegmentSpace:
    """Segments and blocks."""

    def __init__(self) -> None:
        self.state = PoolSnapshot()
        self.pools: dict[tuple[bool, int], BlockPool] = {}  # by whether it is small, and by stream
        self.blocks: dict[int, PoolBlock] = {}  # by address, unmapped ones too
        self.calls = 0  # how often a free block of the large pools was looked for

    def pool_for(self, *, small: bool, stream: int) -> BlockPool:
        """The free blocks of a size and stream."""
        pool = self.pools.get((small, stream))
        if pool is None:
            pool = self.pools[small, stream] = BlockPool(small, stream)
        return pool

    # --- what a replay from the middle of a run needs ---

    def set_initial_state(self, segments: Iterable[HeldSegment], live: Mapping[int, int]) -> None:
        """Put the allocator into the state of a running process: its segments, and sizes of the live blocks by address."""
        for held in segments:
            self._hold_segment(held)
        # Ascending, so that what is left of a hole always lies behind the block that was cut out of it.
        starts = sorted(self.blocks)
        at = 0
        current: PoolBlock | None = None
        for address in sorted(live):
            while at < len(starts) and starts[at] <= address:
                current = self.blocks[starts[at]]
                at += 1
            current = self._occupy_range(current, address, live[address])
        self.state.growths.clear()

    def _hold_segment(self, held: HeldSegment) -> None:
        pool = self.pool_for(small=held.small, stream=held.stream)
        if held.ranges is None:
            self.new_segment(pool, held.base, held.size, expandable=False)
            return
        block = self.new_segment(pool, held.base, held.size, expandable=True)
        for start, end in held.ranges:
            if not block.address <= start < end <= block.address + block.size:
                raise SeedError
            pool.unmapped.remove(block.address)
            if start > block.address:
                mapped = self.split_block(block, start - block.address)
                insort(pool.unmapped, block.address)
                block = mapped
            rest = self.split_block(block, end - start) if end < block.address + block.size else None
            block.mapped = True
            self.add_hole(block)
            self.count_reserved(block.segment, end - start)
            if rest is None:
                break
            rest.mapped = False
            insort(pool.unmapped, rest.address)
            block = rest

    def _occupy_range(self, block: PoolBlock | None, address: int, size: int) -> PoolBlock:
        if block is None or block.live or not block.mapped or address + size > block.address + block.size or size <= 0:
            raise SeedError
        self.drop_hole(block)
        if address > block.address:
            taken = self.split_block(block, address - block.address)
            self.add_hole(block)
            block = taken
        rest = self.split_block(block, size) if size < block.size else block
        if rest is not block:
            self.add_hole(rest)
        block.live = True
        self.state.used += size
        return rest

    # --- free blocks ---

    def add_hole(self, block: PoolBlock) -> None:
        """Put a block among the free ones."""
        pool = block.segment.pool
        block.listed = self.calls
        insort(pool.holes, (block.size, block.address, block))
        pool.free_bytes += block.size

    def drop_hole(self, block: PoolBlock) -> None:
        """Take a block from among the free ones."""
        pool = block.segment.pool
        del pool.holes[bisect_left(pool.holes, (block.size, block.address))]
        pool.free_bytes -= block.size

    def split_block(self, block: PoolBlock, size: int) -> PoolBlock:
        """Cut a block that stands in no list; what is behind the cut."""
        address, after = block.address + size, block.after
        rest = PoolBlock(address, block.size - size, block.segment, mapped=block.mapped, before=block, after=after)
        if after is not None:
            after.before = rest
        block.after = rest
        block.size = size
        self.blocks[address] = rest
        return rest

    def merge_with_idle(self, block: PoolBlock) -> PoolBlock:
        """The block with the idle neighbours that are mapped if it is, which leave their lists."""
        before = block.before
        if before is not None and not before.live and before.mapped == block.mapped:
            self._remove_from_lists(before)
            block, behind = before, block
            self._absorb_behind(block, behind)
        after = block.after
        if after is not None and not after.live and after.mapped == block.mapped:
            self._remove_from_lists(after)
            self._absorb_behind(block, after)
        return block

    def _absorb_behind(self, block: PoolBlock, behind: PoolBlock) -> None:
        block.size += behind.size
        after = block.after = behind.after
        if after is not None:
            after.before = block
        del self.blocks[behind.address]

    def _remove_from_lists(self, block: PoolBlock) -> None:
        if block.mapped:
            self.drop_hole(block)
        else:
            block.segment.pool.unmapped.remove(block.address)

    # --- memory of the device ---

    def new_segment(self, pool: BlockPool, base: int, size: int, *, expandable: bool) -> PoolBlock:
        """Memory, or of an expandable segment address space, that is one free block."""
        unit = PoolUnit(base, 0 if expandable else size, pool.name, base, base if expandable else base + size)
        segment = PoolSegment(pool, unit, base, expandable)
        self.state.units.append(unit)
        block = PoolBlock(base, size, segment, mapped=not expandable)
        self.blocks[base] = block
        if expandable:
            insort(pool.unmapped, base)
        else:
            self.count_reserved(segment, size)
            self.add_hole(block)
        return block

    def count_reserved(self, segment: PoolSegment, size: int) -> None:
        """More or, below zero, less memory of the device."""
        if segment.expandable:
            segment.unit.size += size
            segment.unit.high = segment.unit.base + segment.unit.size
        self.state.reserved += size
        self.state.actual = self.state.reserved  # it knows no touched extents: what it holds is lost to others

    def give_back(self, block: PoolBlock) -> None:
        """Give the segment of a free block back, which is all of it."""
        self.drop_hole(block)
        del self.blocks[block.address]
        block.segment.unit.released = self.state.request
        self.count_reserved(block.segment, -block.size)
