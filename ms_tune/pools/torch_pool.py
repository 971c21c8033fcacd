"""Simulate the caching allocator of PyTorch and of torch_npu as a state machine.

Follows ``c10/cuda/CUDACachingAllocator.cpp`` of PyTorch 2.x and ``NPUCachingAllocator.cpp`` of torch_npu 2.x. Validated
address by address against snapshots of real runs (:mod:`ms_tune.pools.torch_replay`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence

from ms_tune.pools.pool import TOP, PoolGrowth
from ms_tune.pools.torch_space import (
    EXPANDABLE_SPACE,
    ROUND_LARGE,
    SMALL_REQUEST,
    BlockPool,
    InitialSegment,
    PoolBlock,
    SegmentSpace,
    TorchSettings,
)
from ms_tune.pools.workload import Request


class TorchPool:
    """The caching allocator.

    ``bases`` are the addresses of the segments in order of allocation, if known. Among free blocks of one size the lowest
    address wins, so a recorded run is only reproduced with the recorded addresses. Without them, and once they are used
    up, segments are at ascending addresses.
    """

    def __init__(self, settings: TorchSettings, bases: Iterable[int] = ()) -> None:
        self._space = SegmentSpace()
        self._pools = self._space.pools
        self.state = self._space.state
        self._settings = settings
        self._bases = iter(bases)
        self._top = TOP

    # --- the protocol of pools ---

    def allocate(self, request: Request) -> int:
        """Allocate the best fit of the free blocks, else a new segment, releasing cached ones if memory is short."""
        return self.take(request.size, request.stream).address

    def take(self, wanted: int, stream: int) -> PoolBlock:
        """Return a block of at least ``wanted`` bytes on a stream, as :meth:`allocate` finds it."""
        size = self._settings.round_request(wanted)
        small = size <= SMALL_REQUEST
        pool = self._pools.get((small, stream)) or self._space.pool_for(small=small, stream=stream)
        place = self._find_free(pool, size)
        if place is None:
            self._collect_garbage()
            block = self._map_for(pool, size) if self._settings.expandable else self._new_segment(pool, size)
            self._space.drop_hole(block)
        else:
            block = pool.holes.pop(place)[2]
            pool.free_bytes -= block.size
        expandable = block.segment.expandable
        alignment = self._settings.base_alignment
        if alignment and expandable and size >= ROUND_LARGE and block.address % alignment:
            skipped = alignment - block.address % alignment
            if skipped + size <= block.size:
                aligned = self._space.split_block(block, skipped)
                self._space.add_hole(block)
                block = aligned
        rest = block.size - size
        if rest and self._settings.should_split(rest, size, small=small, expandable=expandable):
            self._space.add_hole(self._space.split_block(block, size))
        block.live = True
        self.state.used += block.size
        return block

    def allocate_batch(self, requests: Sequence[Request]) -> list[int]:
        """Serve the requests one by one: this allocator has no contiguous batch allocation."""
        return [self.allocate(request) for request in requests]

    def free(self, address: int) -> None:
        """Free a block and merge it with the free neighbours of the same segment."""
        self.give(self._space.blocks[address])

    def give(self, block: PoolBlock) -> None:
        """Free a block returned by :meth:`take`."""
        block.live = False
        self.state.used -= block.size
        self._space.add_hole(self._space.merge_with_idle(block))

    def release(self) -> None:
        """Return memory without live blocks: whole segments, and whole pages of expandable ones (``empty_cache``)."""
        for pool in self._space.pools.values():
            for _, _, block in list(pool.holes):
                if block.segment.expandable:
                    self._unmap_pages(block)
                elif block.is_segment:
                    self._space.give_back(block)

    def set_initial_state(self, segments: Iterable[InitialSegment], live: Mapping[int, int]) -> None:
        """Set the allocator to the state of a running process, before the first request."""
        self._space.set_initial_state(segments, live)
        self._top = max([self._top, *(block.segment.base + EXPANDABLE_SPACE for block in self._space.blocks.values())])

    def mapped_blocks(self) -> dict[int, tuple[int, bool]]:
        """Return size and liveness of all mapped blocks by address."""
        return {block.address: (block.size, block.live) for block in self._space.blocks.values() if block.mapped}

    def state_key(self) -> object:
        """Return the state that determines placements, except the ages of free blocks: pools with equal keys behave identically."""
        return self._top, {
            block.address: (
                *(block.size, block.live, block.mapped),
                *(block.segment.base, block.segment.expandable, block.segment.pool.small, block.segment.pool.stream),
            )
            for block in self._space.blocks.values()
        }

    def live_blocks(self) -> dict[int, PoolBlock]:
        """Return the live blocks by address."""
        return {address: block for address, block in self._space.blocks.items() if block.live}

    # --- free blocks ---

    def _find_free(self, pool: BlockPool, size: int) -> int | None:
        # Find the smallest free block that is large enough, at the lowest address (`get_free_block`).
        self._space.calls += not pool.small
        holes = pool.holes
        place = bisect_left(holes, (size,))
        if not self._settings.expandable:  # with the setting switched off, blocks of expandable segments are not used
            while place < len(holes) and holes[place][2].segment.expandable:
                place += 1
        if place == len(holes):
            return None
        block = holes[place][2]
        if block.segment.expandable:
            # The last mapped block can grow into unmapped memory, so it is the last choice.
            for following in range(place + 1, len(holes)):
                other = holes[following][2]
                if not block.segment.expandable or _could_be(other) >= _could_be(block):
                    break
                place, block = following, other
        return None if self._settings.refuses_block(size, block.size) else place

    # --- device memory ---

    def _next_base(self, size: int) -> int:
        base = next(self._bases, self._top)
        self._top = max(self._top, base + size)
        return base

    def _new_segment(self, pool: BlockPool, size: int) -> PoolBlock:
        wanted = self._settings.segment_size(size, small=pool.small)
        self._make_room(wanted, size, pool)
        base = self._next_base(wanted)
        self._record_growth(pool, wanted, size)
        return self._space.new_segment(pool, base, wanted, expandable=False)

    def _collect_garbage(self) -> None:
        # Release long-free blocks once reserved memory exceeds the threshold (`garbage_collect_cached_blocks`). The age
        # of a free block is the number of searches since it became free; each pass releases all blocks of at least the
        # mean age, until enough is released. Only with `set_per_process_memory_fraction`, whose bytes are `total`.
        share, total = self._settings.collect_above, self._settings.total
        if share is None or total is None or self.state.reserved <= int(share * total):
            return
        wanted = self.state.reserved - int(share * total)
        blocks = [block for pool in self._space.pools.values() if not pool.small for _, _, block in pool.holes]
        kept = [block for block in blocks if block.is_segment and not block.segment.expandable]
        while wanted > 0 and kept:
            mean = sum(self._space.calls - block.listed for block in kept) / len(kept)
            old = [block for block in kept if self._space.calls - block.listed >= mean]
            kept = [block for block in kept if self._space.calls - block.listed < mean]
            for block in old:
                wanted -= block.size
                self._space.give_back(block)

    def _give_oversize(self, size: int, pool: BlockPool) -> bool:
        # Release just enough blocks that are too large to be split (`release_available_cached_blocks`).
        limit = self._settings.max_split
        if limit is None or self._settings.expandable:
            return False
        key = max(size, limit)
        place = bisect_left(pool.holes, (key,))
        if place < len(pool.holes):
            block = pool.holes[place][2]
            if block.is_segment:
                self._space.give_back(block)
            return block.is_segment
        given = 0
        while given < key and pool.holes and pool.holes[-1][0] >= limit:
            block = pool.holes[-1][2]
            if not block.is_segment:
                break
            given += block.size
            self._space.give_back(block)
        return given >= key

    def _make_room(self, wanted: int, size: int, pool: BlockPool) -> None:
        total = self._settings.total
        if total is not None and self.state.reserved + wanted > total:
            if self._give_oversize(size, pool) and self.state.reserved + wanted <= total:
                return
            self.release()
            self.state.is_over |= self.state.reserved + wanted > total

    def _record_growth(self, pool: BlockPool, taken: int, wanted: int) -> None:
        state = self.state
        largest = pool.holes[-1][0] if pool.holes else 0
        reserved = state.reserved + taken
        state.growths.append(PoolGrowth(state.request, pool.name, taken, reserved, wanted, largest, pool.free_bytes))

    # --- expandable segments ---

    def _map_for(self, pool: BlockPool, size: int) -> PoolBlock:
        # Map memory for a request (`try_allocate_expandable_block`), including a free block just before it.
        block = self._expandable_place(pool, size)
        if self._settings.total is not None:
            missing = size - (block.size if block.mapped else 0)
            self._make_room(-(-missing // pool.page_bytes) * pool.page_bytes, size, pool)
            block = self._expandable_place(pool, size)  # unmapping may have made a lower place available
        if not block.mapped:
            block = self._map_pages(block, min(block.size, size), size)
        while block.size < size:
            after = block.after
            assert after is not None  # noqa: S101  - the place was chosen for its size
            block = self._map_pages(after, min(size - block.size, after.size), size)
        return block

    def _expandable_place(self, pool: BlockPool, size: int) -> PoolBlock:
        # Find the lowest unmapped block that, together with the free block before it, is large enough (`find_expandable_block`).
        for address in pool.unmapped:
            block = self._space.blocks[address]
            if block.before is not None and not block.before.live:
                block = block.before
            room = 0
            part: PoolBlock | None = block
            while room < size and part is not None and not part.live:
                room += part.size
                part = part.after
            if room >= size:
                return block
        return self._space.new_segment(pool, self._next_base(EXPANDABLE_SPACE), EXPANDABLE_SPACE, expandable=True)

    def _map_pages(self, block: PoolBlock, size: int, wanted: int) -> PoolBlock:
        # Map whole pages from a block's start on (`map_block`) and return the resulting free block.
        segment, pool = block.segment, block.segment.pool
        pages = -(-(block.address + size - segment.base) // pool.page_bytes) * pool.page_bytes
        size = min(segment.base + pages - block.address, block.size)
        self._record_growth(pool, size, wanted)
        pool.unmapped.remove(block.address)
        if size < block.size:
            insort(pool.unmapped, self._space.split_block(block, size).address)
        block.mapped = True
        self._space.count_reserved(segment, size)
        block = self._space.merge_with_idle(block)
        self._space.add_hole(block)
        return block

    def _unmap_pages(self, block: PoolBlock) -> None:
        # Unmap the whole pages of a free block (`unmap_block`).
        segment, page = block.segment, block.segment.pool.page_bytes
        low = segment.base + -(-(block.address - segment.base) // page) * page
        high = segment.base + (block.address + block.size - segment.base) // page * page
        if high <= low:
            return
        self._space.drop_hole(block)
        if high < block.address + block.size:
            self._space.add_hole(self._space.split_block(block, high - block.address))
        if low > block.address:
            pages = self._space.split_block(block, low - block.address)
            self._space.add_hole(block)
            block = pages
        block.mapped = False
        self._space.count_reserved(segment, -block.size)
        block = self._space.merge_with_idle(block)
        if block.before is None and block.after is None:
            # Its address space is released, too (`release_expandable_segment`).
            del self._space.blocks[block.address]
            segment.unit.released = self.state.request
        else:
            insort(segment.pool.unmapped, block.address)


def _could_be(block: PoolBlock) -> int:
    # Return a free block's size including the unmapped memory after it.
    after = block.after
    return block.size + (after.size if after is not None and not after.mapped else 0)
