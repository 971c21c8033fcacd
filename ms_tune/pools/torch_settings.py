"""What the settings of PyTorch's and torch_npu's caching allocator make of a request.

``c10/cuda/CUDACachingAllocator.cpp`` and ``CUDAAllocatorConfig.cpp`` of PyTorch 2.x, ``NPUCachingAllocator.cpp`` of torch_npu
2.x, which follows them, asks for 32 bytes more each time and aligns large blocks of expandable segments.
"""

from __future__ import annotations

from dataclasses import dataclass

from ms_tune.pools.pool import ALIGNMENT
from ms_tune.units import GIB, KIB, MIB

NPU_PADDING = 32  # bytes that torch_npu adds to each request, for the hardware to read beyond its end
NPU_BASE_ALIGNMENT = 16 * KIB  # of blocks of 2 MiB and more in torch_npu's expandable segments (base_addr_aligned_kb)
SMALL_REQUEST = MIB  # up to this, the small pool serves
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
ROUND_LARGE = 2 * MIB
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
            divisions = self._power2_divisions(padded)
            if divisions > 1 and padded > ALIGNMENT * divisions:
                return _next_division(padded, divisions)
        return -(-padded // ALIGNMENT) * ALIGNMENT or ALIGNMENT

    def _power2_divisions(self, size: int) -> int:
        place = min(max(size.bit_length() - 1 - _FIRST_POWER, 0), _LAST_POWER - _FIRST_POWER - 1)
        return self.roundup[min(place, len(self.roundup) - 1)]

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
    """``roundup_power2_next_division``: the space between two powers of two in equal parts."""
    floor = 1 << (size.bit_length() - 1)
    if size == floor:
        return size
    part = floor >> (divisions.bit_length() - 1)
    if not part:
        return floor << 1
    return -(-size // part) * part
