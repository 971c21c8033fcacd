"""The caching allocator of PyTorch and of torch_npu as a state machine.

``c10/cuda/CUDACachingAllocator.cpp`` of PyTorch 2.x and ``NPUCachingAllocator.cpp`` of torch_npu 2.x. Held against the
snapshots of real runs address by address (:mod:`ms_tune.pools.torch_replay`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from ms_tune.pools.pool import TOP, PoolGrowth
from ms_tune.pools.torch_space import (
    EXPANDABLE_SPACE,
    ROUND_LARGE,
    SMALL_REQUEST,
    BlockPool,
    HeldSegment,
    PoolBlock,
    SegmentSpace,
    TorchSettings,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ms_tune.pools.workload import Request


class TorchPool:
    """The allocator.

    ``bases`` are the addresses of the segments in the order in which they are taken, if known. Among free blocks of one size
    the lowest address wins, so a recorded run is only reproduced with its own. Without them, and after them, segments lie one
    above the other.
    """

    def __init__(self, settings: TorchSettings, bases: Iterable[int] = ()) -> None:
        self._space = SegmentSpace()
        self._pools = self._space.pools
        self.state = self._space.state
        self._settings = settings
        self._bases = iter(bases)
        self._top = TOP

    # --- what every pool does ---

    def allocate(self, request: Request) -> int:
        """Best fit among the free blocks, else a new segment, else a new segment after releasing cached ones."""
        return self.take(request.size, request.stream).address

    def take(self, wanted: int, stream: int) -> PoolBlock:
        """The block for so many bytes on a stream, as :meth:`allocate` finds it."""
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
        """This allocator has no continuous allocation: one after the other."""
        return [self.allocate(request) for request in requests]

    def free(self, address: int) -> None:
        """Merge with the free neighbours of the same segment."""
        self.give(self._space.blocks[address])

    def give(self, block: PoolBlock) -> None:
        """:meth:`free` of a block that :meth:`take` found."""
        block.live = False
        self.state.used -= block.size
        self._space.add_hole(self._space.merge_with_idle(block))

    def release(self) -> None:
        """Give back what holds no live block: whole segments, and whole pages of expandable ones (``empty_cache``)."""
        for pool in self._space.pools.values():
            for _, _, block in list(pool.holes):
                if block.segment.expandable:
                    self._unmap_pages(block)
                elif block.is_segment:
                    self._space.give_back(block)

    def set_initial_state(self, segments: Iterable[HeldSegment], live: Mapping[int, int]) -> None:
        """Put the allocator into the state of a running process, before the first request."""
        self._space.set_initial_state(segments, live)
        self._top = max([self._top, *(block.segment.base + EXPANDABLE_SPACE for block in self._space.blocks.values())])

    def mapped_blocks(self) -> dict[int, tuple[int, bool]]:
        """Size and liveness of all mapped blocks by address."""
        return {block.address: (block.size, block.live) for block in self._space.blocks.values() if block.mapped}

    def state_key(self) -> object:
        """All that decides where blocks will lie, but for the ages of free ones: two pools with the same serve alike."""
        return self._top, {
            block.address: (
                *(block.size, block.live, block.mapped),
                *(block.segment.base, block.segment.expandable, block.segment.pool.small, block.segment.pool.stream),
            )
            for block in self._space.blocks.values()
        }

    def live_blocks(self) -> dict[int, PoolBlock]:
        """The live blocks by address."""
        return {address: block for address, block in self._space.blocks.items() if block.live}

    # --- free blocks ---

    def _find_free(self, pool: BlockPool, size: int) -> int | None:
        # Where the smallest free block is that is large enough, at the lowest address (`get_free_block`).
        self._space.calls += not pool.small
        holes = pool.holes
        place = bisect_left(holes, (size,))
        if not self._settings.expandable:  # expandable memory is for such settings only, once they are switched off
            while place < len(holes) and holes[place][2].segment.expandable:
                place += 1
        if place == len(holes):
            return None
        block = holes[place][2]
        if block.segment.expandable:
            # The last mapped block can grow into unmapped memory, which makes it the last choice.
            for following in range(place + 1, len(holes)):
                other = holes[following][2]
                if not block.segment.expandable or _could_be(other) >= _could_be(block):
                    break
                place, block = following, other
        return None if self._settings.keeps_whole(size, block.size) else place

    # --- memory of the device ---

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
        # Give back what was free for long once more than the threshold is held (`garbage_collect_cached_blocks`).
        # The age of a free block is how often one was looked for since. In each pass those of the mean age and above
        # go, all of them, until enough has gone. Only with `set_per_process_memory_fraction`, whose bytes are `total`.
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
        # Give back just enough of what is too large to be split (`release_available_cached_blocks`).
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
        held = state.reserved + taken
        state.growths.append(PoolGrowth(state.request, pool.name, taken, held, wanted, largest, pool.free_bytes))

    # --- expandable segments ---

    def _map_for(self, pool: BlockPool, size: int) -> PoolBlock:
        # Map memory for a request (`try_allocate_expandable_block`); a free block before it counts.
        block = self._expandable_place(pool, size)
        if self._settings.total is not None:
            missing = size - (block.size if block.mapped else 0)
            self._make_room(-(-missing // pool.page_bytes) * pool.page_bytes, size, pool)
            block = self._expandable_place(pool, size)  # what was unmapped for it may lie lower
        if not block.mapped:
            block = self._map_pages(block, min(block.size, size), size)
        while block.size < size:
            behind = block.after
            assert behind is not None  # noqa: S101 - the place was chosen for its room
            block = self._map_pages(behind, min(size - block.size, behind.size), size)
        return block

    def _expandable_place(self, pool: BlockPool, size: int) -> PoolBlock:
        # The lowest unmapped block that, with the free block before it, has room (`find_expandable_block`).
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
        # Map whole pages from a block's start on (`map_block`); the free block that this makes.
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
            # Its address space is given back, too (`release_expandable_segment`).
            del self._space.blocks[block.address]
            segment.unit.released = self.state.request
        else:
            insort(segment.pool.unmapped, block.address)


def _could_be(block: PoolBlock) -> int:
    # A free block's size with the unmapped memory behind it.
    after = block.after
    return block.size + (after.size if after is not None and not after.mapped else 0)
