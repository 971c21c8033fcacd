"""Model the memory that PyTorch's caching allocator manages: its settings, its segments, and their free and live blocks.

:mod:`ms_tune.pools.torch_pool` decides how they are used. The settings are those of
``c10/cuda/CUDACachingAllocator.cpp`` and ``CUDAAllocatorConfig.cpp`` of PyTorch 2.x. ``NPUCachingAllocator.cpp`` of
torch_npu 2.x follows them, but adds 32 bytes to each request and aligns large blocks of expandable segments.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ms_tune.pools.pool import ALIGNMENT, PoolSnapshot, PoolUnit
from ms_tune.records import Record
from ms_tune.units import GIB, KIB, MIB

NPU_PADDING = 32  # bytes that torch_npu adds to each request, so that the hardware can read beyond its end
NPU_BASE_ALIGNMENT = 16 * KIB  # for blocks of 2 MiB and more in torch_npu's expandable segments (base_addr_aligned_kb)
SMALL_REQUEST = MIB  # requests up to this size use the small pool
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
ROUND_LARGE = 2 * MIB
EXPANDABLE_SPACE = 1 << 41  # address space of an expandable segment; really 9/8 of the device's memory
_OWN_SEGMENT = 10 * MIB  # requests from this size on get their own segment
_FIRST_POWER, _LAST_POWER = MIB.bit_length() - 1, (64 * GIB).bit_length() - 1  # intervals of roundup_power2_divisions


@dataclass(frozen=True, slots=True)
class TorchSettings:
    """The settings from ``PYTORCH_CUDA_ALLOC_CONF`` or ``PYTORCH_NPU_ALLOC_CONF`` and from the device."""

    padding: int = 0  # bytes added to each request: 0 on CUDA, `NPU_PADDING` on an NPU
    max_split: int | None = None  # `max_split_size_mb` in bytes; None if not set
    expandable: bool = False  # `expandable_segments`
    total: int | None = None  # bytes of the device, or of `set_per_process_memory_fraction`; None: no limit
    base_alignment: int = 0  # for blocks of 2 MiB and more in expandable segments; 0 if not aligned
    # `roundup_power2_divisions` for sizes below 2 MiB, below 4 MiB, and so on; empty if not set. A single entry applies
    # to all sizes.
    roundup: tuple[int, ...] = ()
    collect_above: float | None = None  # `garbage_collection_threshold`, a share of `total`; None if not set

    @property
    def variable(self) -> str:
        """Return the environment variable of these settings."""
        return f"PYTORCH_{'NPU' if self.padding else 'CUDA'}_ALLOC_CONF"

    def round_request(self, size: int) -> int:
        """Return the size of the block for a request: rounded up to 512 bytes, or as the settings round."""
        padded = size + self.padding
        if self.roundup:
            power = min(max(padded.bit_length() - 1, _FIRST_POWER), _LAST_POWER - 1)
            divisions = self.roundup[min(power - _FIRST_POWER, len(self.roundup) - 1)]
            if divisions > 1 and padded > ALIGNMENT * divisions:
                return _next_division(padded, divisions)
        return -(-padded // ALIGNMENT) * ALIGNMENT or ALIGNMENT

    def segment_size(self, size: int, *, small: bool) -> int:
        """Return the size of the segment for a request that fits in no free block (``get_allocation_size``)."""
        if small:
            return SMALL_SEGMENT
        return LARGE_SEGMENT if size < _OWN_SEGMENT else -(-size // ROUND_LARGE) * ROUND_LARGE

    def refuses_block(self, size: int, found: int) -> bool:
        """Return whether a free block may not be used for a request.

        Blocks above the split limit are not used for small requests, nor for large ones that would waste 20 MiB or more.
        """
        limit = self.max_split
        return limit is not None and found >= (limit if size < limit else size + LARGE_SEGMENT)

    def should_split(self, rest: int, size: int, *, small: bool, expandable: bool) -> bool:
        """Return whether the remainder of a block becomes a separate free block (``should_split``)."""
        if small or expandable:
            return rest >= ALIGNMENT
        return rest > SMALL_REQUEST and (self.max_split is None or size < self.max_split)


def _next_division(size: int, divisions: int) -> int:
    # `roundup_power2_next_division`: round up to one of the equal parts between two powers of two.
    floor = 1 << (size.bit_length() - 1)
    if size == floor:
        return size
    part = floor >> (divisions.bit_length() - 1)
    if not part:
        return floor << 1
    return -(-size // part) * part


@dataclass(slots=True, eq=False)
class BlockPool:
    """The free and the unmapped blocks of one pool (small or large) and stream."""

    small: bool
    stream: int
    holes: list[tuple[int, int, PoolBlock]] = field(default_factory=list)  # (size, address, the block) in order
    unmapped: list[int] = field(default_factory=list)  # addresses in order
    free_bytes: int = 0

    @property
    def page_bytes(self) -> int:
        """Return the number of bytes that an expandable segment maps at once."""
        return SMALL_SEGMENT if self.small else LARGE_SEGMENT

    @property
    def name(self) -> str:
        """Return the name of the pool in the recorded growths."""
        return "small" if self.small else "large"


@dataclass(slots=True, eq=False)
class PoolSegment:
    """Address space reserved at once; in an expandable one only the mapped parts are memory."""

    pool: BlockPool
    unit: PoolUnit
    base: int
    expandable: bool


@dataclass(slots=True, eq=False)
class PoolBlock:
    """A piece of a segment, linked to its neighbours."""

    address: int
    size: int
    segment: PoolSegment
    live: bool = False
    mapped: bool = True
    before: PoolBlock | None = None
    after: PoolBlock | None = None
    listed: int = 0  # the number of searches at the time when it became free

    @property
    def is_segment(self) -> bool:
        """Return whether the block is its whole segment."""
        return self.before is None and self.after is None


class InitialSegment(Record):
    """A segment that the allocator owns before the first request."""

    base: int  # its address
    size: int  # its bytes; for an expandable one, those of its address space
    small: bool  # whether it belongs to the small pool
    stream: int
    # The mapped ranges of an expandable segment as (start, end); None if it is not expandable.
    ranges: tuple[tuple[int, int], ...] | None = None


class SeedError(ValueError):
    """Live blocks that are outside the segments."""


class SegmentSpace:
    """The segments and blocks of an allocator."""

    def __init__(self) -> None:
        self.state = PoolSnapshot()
        self.pools: dict[tuple[bool, int], BlockPool] = {}  # by whether the pool is small, and by stream
        self.blocks: dict[int, PoolBlock] = {}  # by address, including unmapped ones
        self.calls = 0  # number of searches for a free block in the large pools

    def pool_for(self, *, small: bool, stream: int) -> BlockPool:
        """Return the free and unmapped blocks of a pool and stream."""
        pool = self.pools.get((small, stream))
        if pool is None:
            pool = self.pools[small, stream] = BlockPool(small, stream)
        return pool

    # --- the state in the middle of a run ---

    def set_initial_state(self, segments: Iterable[InitialSegment], live: Mapping[int, int]) -> None:
        """Set the allocator to the state of a running process: its segments, and the sizes of the live blocks by address."""
        for segment in segments:
            self._add_segment(segment)
        # Ascending, so that the rest of a free block is always after the block that was cut out of it.
        starts = sorted(self.blocks)
        at = 0
        current: PoolBlock | None = None
        for address in sorted(live):
            while at < len(starts) and starts[at] <= address:
                current = self.blocks[starts[at]]
                at += 1
            current = self._occupy_range(current, address, live[address])
        self.state.growths.clear()

    def _add_segment(self, segment: InitialSegment) -> None:
        pool = self.pool_for(small=segment.small, stream=segment.stream)
        if segment.ranges is None:
            self.new_segment(pool, segment.base, segment.size, expandable=False)
            return
        block = self.new_segment(pool, segment.base, segment.size, expandable=True)
        for start, end in segment.ranges:
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
        """Add a block to the free ones."""
        pool = block.segment.pool
        block.listed = self.calls
        insort(pool.holes, (block.size, block.address, block))
        pool.free_bytes += block.size

    def drop_hole(self, block: PoolBlock) -> None:
        """Remove a block from the free ones."""
        pool = block.segment.pool
        del pool.holes[bisect_left(pool.holes, (block.size, block.address))]
        pool.free_bytes -= block.size

    def split_block(self, block: PoolBlock, size: int) -> PoolBlock:
        """Cut a block that is in no list, and return the part after the cut."""
        address, after = block.address + size, block.after
        rest = PoolBlock(address, block.size - size, block.segment, mapped=block.mapped, before=block, after=after)
        if after is not None:
            after.before = rest
        block.after = rest
        block.size = size
        self.blocks[address] = rest
        return rest

    def merge_with_idle(self, block: PoolBlock) -> PoolBlock:
        """Merge a block with its idle neighbours of the same mapping state, removing them from their lists; return the result."""
        before = block.before
        if before is not None and not before.live and before.mapped == block.mapped:
            self._remove_from_lists(before)
            block, rest = before, block
            self._absorb_next(block, rest)
        after = block.after
        if after is not None and not after.live and after.mapped == block.mapped:
            self._remove_from_lists(after)
            self._absorb_next(block, after)
        return block

    def _absorb_next(self, block: PoolBlock, rest: PoolBlock) -> None:
        block.size += rest.size
        after = block.after = rest.after
        if after is not None:
            after.before = block
        del self.blocks[rest.address]

    def _remove_from_lists(self, block: PoolBlock) -> None:
        if block.mapped:
            self.drop_hole(block)
        else:
            block.segment.pool.unmapped.remove(block.address)

    # --- device memory ---

    def new_segment(self, pool: BlockPool, base: int, size: int, *, expandable: bool) -> PoolBlock:
        """Create a segment and return its only block: free, or unmapped if the segment is expandable."""
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
        """Add ``size`` to the reserved memory; negative values subtract."""
        if segment.expandable:
            segment.unit.size += size
            segment.unit.high = segment.unit.base + segment.unit.size
        self.state.reserved += size
        self.state.actual = self.state.reserved  # touched ranges are not tracked: all of it counts as used

    def give_back(self, block: PoolBlock) -> None:
        """Release the segment of a free block that is its whole segment."""
        self.drop_hole(block)
        del self.blocks[block.address]
        block.segment.unit.released = self.state.request
        self.count_reserved(block.segment, -block.size)
