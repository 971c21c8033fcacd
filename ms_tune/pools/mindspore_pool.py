"""Simulate MindSpore's memory pools: a persistent and a common part, each with units and free buffers.

The newer pool is the one that ``memory_block.csv`` calls ``DefaultAscendMemoryPool`` or
``DefaultEnhancedAscendMemoryPool``, from MindSpore 2.5 to 2.10 (``mem_pool/abstract_dynamic_mem_pool.cc`` (best fit,
splitting, merging, extents), ``abstract_ascend_memory_pool_support.cc`` (units), ``runtime_conf.h`` (``set_memory``)).

The older pool is ``BestFitAscendMemoryPool`` (``mem_pool/mem_dynamic_allocator.cc`` of MindSpore 2.3 to 2.10), chosen
by ``older_pool:True`` in ``MS_ALLOC_CONF`` and on some older chips. It differs from the newer pool in two points: among
equally large free buffers it takes the oldest, and it counts every unit except the newest as fully touched.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from struct import pack, unpack
from typing import Any

from ms_tune.pools.pool import ALIGNMENT, TOP, PoolGrowth, PoolSnapshot, PoolUnit
from ms_tune.pools.workload import Request
from ms_tune.units import GIB, MIB

SIMULATED_DEVICE = 61430 * MIB  # memory that MindSpore's simulation takes of its 64 GiB (ascend_memory_adapter.cc)
DEFAULT_SIZE = 2 * GIB  # init_size and increase_size of ms.runtime.set_memory
PAGE = 2 * MIB  # vmm_align_size
_UNIT = GIB  # unit size without set_memory; always that of the persistent part
_SMALL = MIB  # the largest request of the small pool (2.10)
_ENDLESS = 1 << 44  # address space of one part under vmm
_BITS = 48  # bits of an address: a free buffer's sort key is its size, then its address
_MASK = (1 << _BITS) - 1


class Vmm(Enum):
    """Virtual memory management: pages are mapped on demand into an unbounded address range."""

    OFF = "off"
    ON = "on"


@dataclass(frozen=True, slots=True)
class MindSporeSettings:
    """The settings of the pool that a user can change."""

    # `init_size` of `ms.runtime.set_memory`; None if it was never called, nor `max_device_memory` set.
    init: int | None = None
    # Its `increase_size`; None as above. Exactly 1 GiB counts as not set (`abstract_ascend_memory_pool_support.cc`).
    increase: int | None = None
    small_pool: bool = False  # `enable_small_pool` of `MS_ALLOC_CONF`
    vmm: Vmm = Vmm.OFF  # `enable_vmm` of `MS_ALLOC_CONF`; not available in a simulation
    total: int = SIMULATED_DEVICE  # bytes of the device that the pool can use
    simulated: bool = True  # whether the pool continues beyond `total`, as in a simulation


def align_up(size: int) -> int:
    """Return the address range of a unit: one of ``increase_size="0.3GB"`` is not a multiple of 512 bytes."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def size_in_bytes(gib: float) -> int:
    """Return the bytes of a size that is written in GB, which MindSpore keeps in single precision."""
    return int(unpack("f", pack("f", gib))[0] * GIB)


class _UnitPool:
    """The common base of MindSpore's pools: serving requests, and sizing units."""

    def __init__(self, settings: MindSporeSettings) -> None:
        self.state = PoolSnapshot()
        self._settings = settings
        self._live: dict[int, tuple[Any, ...]] = {}  # by address: the size of the block, then further data
        self._bottom = TOP

    def allocate(self, request: Request) -> int:
        # Best fit; a persistent request that finds no free buffer tries the common part.
        return self._allocate_block(request.size, request.stream, persistent=request.persistent)

    def allocate_batch(self, requests: Sequence[Request]) -> list[int]:
        # Allocate one block for all and cut it afterwards (`ascend_memory_pool.cc`, `AllocContinuousTensorMem`).
        first, total = requests[0], sum(request.size for request in requests)
        address = self._allocate_block(total, first.stream, persistent=first.persistent)
        size, *rest = self._live[address]
        addresses = []
        for request in requests:
            addresses.append(address)
            self._live[address] = (request.size, *rest)
            address += request.size
            size -= request.size
        self._live[addresses[-1]] = (requests[-1].size + size, *rest)  # any excess of the block belongs to the last one
        return addresses

    def _allocate_block(self, size: int, stream: int, *, persistent: bool) -> int:
        raise NotImplementedError

    def _unit_bytes(self, size: int, *, common: bool, beyond: bool) -> int | None:
        left, increase = self._settings.total - self.state.reserved, self._settings.increase
        if left < size:
            self.state.is_over = True
            if not (self._settings.simulated or beyond):
                return None
            left = size
        step = _UNIT
        if common and increase is not None and increase != _UNIT:
            step = min(increase, left - _UNIT if left > _UNIT else left)
        return min(-(-size // step) * step, left)

    def _record_growth(self, part: str, unit_bytes: int, wanted: int, holes: list[int]) -> None:
        state = self.state
        state.reserved += unit_bytes
        largest = holes[-1] if holes else 0
        growth = PoolGrowth(state.request, part, unit_bytes, state.reserved, wanted, largest, sum(holes))
        state.growths.append(growth)

    def _place_unit(self, part: str, size: int) -> PoolUnit:
        self._bottom -= align_up(size)
        # The first block of a unit is at its base, so an initially empty extent there stays correct.
        unit = PoolUnit(self._bottom, size, part, self._bottom, self._bottom)
        self.state.units.append(unit)
        return unit


@dataclass(slots=True, eq=False)
class _PoolPart:
    name: str
    common: bool
    keys: list[int] = field(default_factory=list)  # the sort keys of its free buffers, in order
    units: int = 0


class MindSporePool(_UnitPool):
    """The newer pool as a state machine."""

    def __init__(self, settings: MindSporeSettings) -> None:
        super().__init__(settings)
        self._parts: dict[tuple[bool, int, bool], _PoolPart] = {}
        self._hole_at: dict[int, int] = {}  # size of the free buffer that starts at an address
        self._hole_to: dict[int, int] = {}  # start of the free buffer that ends at an address
        self._edges: set[int] = set()  # start and end addresses of units; buffers never merge across them
        self._bases: list[int] = []  # base addresses of the units, ascending
        self._units: list[PoolUnit] = []  # in the order of `_bases`
        if settings.init is not None and settings.vmm is Vmm.OFF:
            for persistent in (True, False):
                self._try_to_expand(self._part_for(persistent=persistent, stream=0, size=_UNIT), settings.init // 2)

    def free(self, address: int) -> None:
        """Free a block and merge it with the free neighbours of the same unit."""
        size, part = self._live.pop(address)
        self.state.used -= size
        end = address + size
        if address not in self._edges and (before := self._hole_to.get(address)) is not None:
            self._drop_hole(part, before, address - before)
            address = before
        if end not in self._edges and (after := self._hole_at.get(end)) is not None:
            self._drop_hole(part, end, after)
            end += after
        self._add_hole(part, address, end - address)

    def release(self) -> None:
        """Release units without live blocks, including their extents, as traces of MindSpore 2.9 and 2.10 show.

        Under vmm this has no effect: unmapping is not modelled.
        """
        if self._settings.vmm is Vmm.ON:
            return
        for part in self._parts.values():
            for key in tuple(part.keys):
                address, size = key & _MASK, key >> _BITS
                if address in self._edges and address + size in self._edges:
                    self._drop_hole(part, address, size)
                    self._drop_unit(part, address)

    def _allocate_block(self, size: int, stream: int, *, persistent: bool) -> int:
        part = self._part_for(persistent=persistent, stream=stream, size=size)
        address = self._try_part(part, size)
        if address is None and persistent:
            # Once the persistent part's unit is full, a persistent request spills into the common part and stays there.
            part = self._part_for(persistent=False, stream=stream, size=size)
            address = self._try_part(part, size)
        if address is None and self._try_to_expand(part, size):
            address = self._fit_buffer(part, size)
        if address is None and not persistent:
            other = self._parts.get((True, stream, False))
            address = None if other is None else self._fit_buffer(other, size)
        if address is None:
            self.state.is_over = True
            self._try_to_expand(part, size, beyond=True)
            address = self._fit_buffer(part, size)
            assert address is not None  # noqa: S101 - a unit of at least this size was added
        if persistent and self._live[address][1].common:
            self.state.spilled += size
        return address

    def _part_for(self, *, persistent: bool, stream: int, size: int) -> _PoolPart:
        small = self._settings.small_pool and not persistent and size <= _SMALL
        key = (persistent, stream, small)
        part = self._parts.get(key)
        if part is None:
            name = "persistent" if persistent else "small" if small else "common"
            part = self._parts[key] = _PoolPart(name, common=not persistent)
        return part

    def _try_part(self, part: _PoolPart, size: int) -> int | None:
        if not part.units and not self._try_to_expand(part, size):
            return None
        return self._fit_buffer(part, size)

    def _fit_buffer(self, part: _PoolPart, size: int) -> int | None:
        # the lowest among equally large buffers
        keys = part.keys
        position = bisect_left(keys, size << _BITS)
        if position == len(keys):
            return None
        key = keys.pop(position)
        address, hole = key & _MASK, key >> _BITS
        del self._hole_at[address], self._hole_to[address + hole]
        if hole - size >= ALIGNMENT:
            self._add_hole(part, address + size, hole - size)
        else:
            size = hole
        self._live[address] = (size, part)
        self._count_touched(address, size)
        return address

    def _count_touched(self, address: int, size: int) -> None:
        state = self.state
        state.used += size
        unit = self._units[bisect_right(self._bases, address) - 1]
        if address < unit.low or address + size > unit.high:
            before = unit.high - unit.low
            mapped = -(-before // PAGE)
            unit.low = min(unit.low, address)
            unit.high = max(unit.high, address + size)
            extent = unit.high - unit.low
            state.actual += extent - before
            if self._settings.vmm is Vmm.ON:
                state.reserved += (-(-extent // PAGE) - mapped) * PAGE
                state.is_over = state.is_over or state.reserved > self._settings.total

    def _try_to_expand(self, part: _PoolPart, size: int, *, beyond: bool = False) -> bool:
        if self._settings.vmm is Vmm.ON:
            self._add_unit(part, _ENDLESS)
            return True
        unit = self._unit_bytes(size, common=part.common, beyond=beyond)
        if unit is None:
            return False
        self._record_growth(part.name, unit, size, [key >> _BITS for key in part.keys])
        self._add_unit(part, unit)
        return True

    def _add_unit(self, part: _PoolPart, size: int) -> None:
        part.units += 1
        unit = self._place_unit(part.name, size)
        self._edges |= {unit.base, unit.base + size}
        self._bases.insert(0, unit.base)
        self._units.insert(0, unit)
        self._add_hole(part, unit.base, size)

    def _drop_unit(self, part: _PoolPart, base: int) -> None:
        part.units -= 1
        at = bisect_left(self._bases, base)
        unit = self._units.pop(at)
        del self._bases[at]
        unit.released = self.state.request
        self.state.reserved -= unit.size
        self.state.actual -= unit.high - unit.low

    def _add_hole(self, part: _PoolPart, address: int, size: int) -> None:
        insort(part.keys, size << _BITS | address)
        self._hole_at[address] = size
        self._hole_to[address + size] = address

    def _drop_hole(self, part: _PoolPart, address: int, size: int) -> None:
        del part.keys[bisect_left(part.keys, size << _BITS | address)]
        del self._hole_at[address], self._hole_to[address + size]


@dataclass(slots=True, eq=False)
class _BestFitPart:
    name: str
    total: int = 0
    units: list[PoolUnit] = field(default_factory=list)  # in the order in which they were allocated
    keys: dict[int, list[tuple[int, int, int]]] = field(
        default_factory=dict
    )  # by stream: size, age and address, in order

    def actual_bytes(self) -> int:
        # `CalActualPeak`: all units in full, except the newest, of which only the touched part counts.
        return self.total - self.units[-1].size + self.units[-1].high - self.units[-1].low if self.units else 0


class MindSporeBestFitPool(_UnitPool):
    """The older pool as a state machine; it has no small pool."""

    def __init__(self, settings: MindSporeSettings) -> None:
        super().__init__(settings)
        self._common, self._persistent = _BestFitPart("common"), _BestFitPart("persistent")
        self._holes: dict[int, tuple[int, _BestFitPart, int, PoolUnit, int]] = {}  # by address; the age comes last
        self._hole_to: dict[int, int] = {}
        self._age = 0
        if settings.init is not None:
            # Seen in traces of MindSpore 2.10: one unit of exactly half of init_size per part, persistent first.
            for part in (self._persistent, self._common):
                self._take_unit(part, settings.init // 2, stream=0, wanted=settings.init // 2)

    def free(self, address: int) -> None:
        """Free a block, merge it with free neighbours of the same unit and stream, and make it the youngest of its size."""
        size, part, stream, unit = self._live.pop(address)
        self.state.used -= size
        after = self._holes.get(address + size)
        if after is not None and after[3] is unit and after[2] == stream:
            self._drop_hole(address + size)
            size += after[0]
        before = self._hole_to.get(address)
        if before is not None and self._holes[before][3] is unit and self._holes[before][2] == stream:
            size += self._holes[before][0]
            self._drop_hole(before)
            address = before
        self._add_hole(address, size, part, stream, unit)

    def release(self) -> None:
        """Do nothing: without vmm this pool keeps its units, as traces of MindSpore 2.9 and 2.10 show."""

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
        keys = part.keys.get(stream, [])
        position = bisect_left(keys, (size,))
        if position == len(keys):
            return None
        address = keys[position][2]
        hole, _, _, unit, _ = self._holes[address]
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
        unit = self._unit_bytes(size, common=part is self._common, beyond=beyond)
        if unit is not None:
            self._take_unit(part, unit, stream, wanted=size)
        return unit is not None

    def _take_unit(self, part: _BestFitPart, unit_size: int, stream: int, *, wanted: int) -> None:
        self._record_growth(part.name, unit_size, wanted, [key[0] for key in part.keys.get(stream, [])])
        unit = self._place_unit(part.name, unit_size)
        part.units.append(unit)
        part.total += unit_size
        self._add_hole(unit.base, unit_size, part, stream, unit)

    def _add_hole(self, address: int, size: int, part: _BestFitPart, stream: int, unit: PoolUnit) -> None:
        self._age += 1
        insort(part.keys.setdefault(stream, []), (size, self._age, address))
        self._holes[address] = (size, part, stream, unit, self._age)
        self._hole_to[address + size] = address

    def _drop_hole(self, address: int) -> None:
        size, part, stream, _, age = self._holes.pop(address)
        keys = part.keys[stream]
        del keys[bisect_left(keys, (size, age))], self._hole_to[address + size]
