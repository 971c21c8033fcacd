"""MindSpore's older memory pool, which ``memory_block.csv`` calls ``BestFitAscendMemoryPool``.

``mem_pool/mem_dynamic_allocator.cc`` of MindSpore 2.3 to 2.10; chosen by ``older_pool:True`` in ``MS_ALLOC_CONF`` and on
some older chips. Unlike the newer pool it takes the oldest among equally large free buffers, and counts every unit but
the newest as touched from end to end.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from ms_tune.pools.mindspore_pool import MindSporeSettings, align_up
from ms_tune.pools.pool import ALIGNMENT, TOP, PoolGrowth, PoolSnapshot, PoolUnit, cut_block
from ms_tune.units import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.pools.workload import Request

_UNIT = GIB


class _Buffers:
    """The free buffers of one part and stream: (size, age) in order, with the address of each age."""

    __slots__ = ("address_of", "key_of", "keys")

    def __init__(self) -> None:
        self.keys: list[tuple[int, int]] = []
        self.address_of: dict[int, int] = {}
        self.key_of: dict[int, tuple[int, int]] = {}


class _BestFitPart:
    """Common or persistent: its units in the order in which they were taken."""

    __slots__ = ("buffers", "name", "total", "units")

    def __init__(self, name: str) -> None:
        self.name = name
        self.total = 0
        self.units: list[PoolUnit] = []
        self.buffers: dict[int, _Buffers] = {}

    def actual_bytes(self) -> int:
        """``CalActualPeak``: all units, of the newest only what was touched."""
        return self.total - self.units[-1].size + self.units[-1].high - self.units[-1].low if self.units else 0


class MindSporeBestFitPool:
    """The older pool as a state machine; it knows no small pool."""

    def __init__(self, settings: MindSporeSettings) -> None:
        self.state = PoolSnapshot()
        self._settings = settings
        self._common, self._persistent = _BestFitPart("common"), _BestFitPart("persistent")
        self._live: dict[int, tuple[int, _BestFitPart, int, PoolUnit]] = {}
        self._holes: dict[int, tuple[int, _BestFitPart, int, PoolUnit]] = {}
        self._hole_to: dict[int, int] = {}
        self._age = 0
        self._bottom = TOP
        if settings.init is not None:
            # Seen in traces of MindSpore 2.10: a unit of exactly half of init_size for each part, persistent first.
            for part in (self._persistent, self._common):
                self._take_unit(part, settings.init // 2, stream=0, wanted=settings.init // 2)

    def allocate(self, request: Request) -> int:
        """Best fit in the request's part; persistent requests go on to the common part once theirs has a unit."""
        return self._allocate_block(request.size, request.stream, persistent=request.persistent)

    def allocate_batch(self, requests: Sequence[Request]) -> list[int]:
        """One block for all, cut afterwards."""
        first = requests[0]
        address = self._allocate_block(
            sum(request.size for request in requests), first.stream, persistent=first.persistent
        )
        return cut_block(self._live, address, requests)

    def free(self, address: int) -> None:
        """Merge with the free neighbours of the same unit and stream, and count as the youngest of its size."""
        size, part, stream, unit = self._live.pop(address)
        self.state.used -= size
        behind = self._holes.get(address + size)
        if behind is not None and behind[3] is unit and behind[2] == stream:
            self._drop_hole(address + size)
            size += behind[0]
        before = self._hole_to.get(address)
        if before is not None and self._holes[before][3] is unit and self._holes[before][2] == stream:
            size += self._holes[before][0]
            self._drop_hole(before)
            address = before
        self._add_hole(address, size, part, stream, unit)

    def release(self) -> None:
        """Nothing: without vmm this pool keeps what it has, as traces of MindSpore 2.9 and 2.10 show."""

    def _allocate_block(self, size: int, stream: int, *, persistent: bool) -> int:
        part = self._persistent if persistent else self._common
        address = self._fit_buffer(part, size, stream)
        if address is None and persistent and self._persistent.units:
            part = self._common
            address = self._fit_buffer(part, size, stream)
        if address is None and not self._try_to_expand(part, size, stream):
            address = self._fit_buffer(self._common if part is self._persistent else self._persistent, size, stream)
            if address is None:
                self._try_to_expand(part, size, stream, beyond=True)
        if address is None:
            address = self._fit_buffer(part, size, stream)
            assert address is not None  # noqa: S101 - a unit of at least this size was added
        if persistent and self._live[address][1] is self._common:
            self.state.spilled += size
        self.state.actual = self._common.actual_bytes() + self._persistent.actual_bytes()
        return address

    def _fit_buffer(self, part: _BestFitPart, size: int, stream: int) -> int | None:
        buffers = part.buffers.get(stream)
        if buffers is None:
            return None
        position = bisect_left(buffers.keys, (size, 0))
        if position == len(buffers.keys):
            return None
        address = buffers.address_of[buffers.keys[position][1]]
        hole, _, _, unit = self._holes[address]
        self._drop_hole(address)
        if hole - size >= ALIGNMENT:
            self._add_hole(address + size, hole - size, part, stream, unit)
        else:
            size = hole
        self._live[address] = (size, part, stream, unit)
        self.state.used += size
        unit.low, unit.high = min(unit.low, address), max(unit.high, address + size)
        return address

    def _try_to_expand(self, part: _BestFitPart, size: int, stream: int, *, beyond: bool = False) -> bool:
        settings, state = self._settings, self.state
        left = settings.total - state.reserved
        if left < size:
            state.is_over = True
            if not (settings.simulated or beyond):
                return False
            left = size
        step = self._unit_size(part, left)
        self._take_unit(part, min(-(-size // step) * step, left), stream, wanted=size)
        return True

    def _take_unit(self, part: _BestFitPart, unit_size: int, stream: int, *, wanted: int) -> None:
        state = self.state
        state.reserved += unit_size
        keys = part.buffers[stream].keys if stream in part.buffers else []
        free = sum(key[0] for key in keys)
        largest = keys[-1][0] if keys else 0
        state.growths.append(PoolGrowth(state.request, part.name, unit_size, state.reserved, wanted, largest, free))
        self._bottom -= unit_size
        unit = PoolUnit(self._bottom, unit_size, part.name, self._bottom, self._bottom)
        state.units.append(unit)
        part.units.append(unit)
        part.total += unit_size
        self._add_hole(self._bottom, unit_size, part, stream, unit)

    def _unit_size(self, part: _BestFitPart, left: int) -> int:
        increase = self._settings.increase
        if increase is None or increase == _UNIT or part is self._persistent:
            return _UNIT
        return min(align_up(increase), left - _UNIT if left > _UNIT else left)

    def _add_hole(self, address: int, size: int, part: _BestFitPart, stream: int, unit: PoolUnit) -> None:
        self._age += 1
        buffers = part.buffers.setdefault(stream, _Buffers())
        insort(buffers.keys, (size, self._age))
        buffers.address_of[self._age] = address
        buffers.key_of[address] = (size, self._age)
        self._holes[address] = (size, part, stream, unit)
        self._hole_to[address + size] = address

    def _drop_hole(self, address: int) -> None:
        size, part, stream, _ = self._holes.pop(address)
        buffers = part.buffers[stream]
        key = buffers.key_of.pop(address)
        del buffers.keys[bisect_left(buffers.keys, key)], buffers.address_of[key[1]], self._hole_to[address + size]
