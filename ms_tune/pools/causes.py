"""Why a pool took from the device what it took: holes too small, spilled requests, blocks that pin whole units."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ms_tune.pools.pool import PoolGrowth, PoolUnit
    from ms_tune.pools.replay import Replay
    from ms_tune.pools.workload import Workload


@dataclass(frozen=True, slots=True)
class Pin:
    """A unit when most bytes are in use: how much of it is empty, and which block keeps it."""

    unit: PoolUnit
    touched: int  # bytes of it that were ever used, up to the end of the trace
    live: int  # bytes of it in use at the peak
    # Position of the live block in it that lives longest, the largest among equals; None if it is empty.
    request: int | None


@dataclass(frozen=True, slots=True)
class Causes:
    """Why the pool of a run reserved more than was in use."""

    growths: tuple[PoolGrowth, ...]  # every time it took memory from the device, with the largest hole at that time
    missed: tuple[
        PoolGrowth, ...
    ]  # the growths at which the free bytes would have been enough, had they been in one piece
    spilled: int  # bytes of persistent requests that the common part served
    untouched: int  # bytes that were reserved and never used: the ends of the units
    idle_at_peak: int  # bytes of touched extents that were free when most bytes were in use
    pins: tuple[Pin, ...]  # the units, those with most idle touched bytes first


def causes_of(work: Workload, result: Replay) -> Causes:
    """Explain a replay."""
    pins = _pins(work, result)
    return Causes(
        growths=result.growths,
        missed=tuple(growth for growth in result.growths if growth.free_bytes >= growth.request_bytes),
        spilled=result.spilled,
        untouched=result.reserved_peak - result.actual_peak,
        idle_at_peak=sum(pin.touched - pin.live for pin in pins),
        pins=tuple(sorted(pins, key=lambda pin: pin.live - pin.touched)),
    )


def _pins(work: Workload, result: Replay) -> list[Pin]:
    peak = result.used.index(result.used_peak) if work.requests else 0
    held = [unit for unit in result.units if unit.released is None or unit.released >= peak]
    units = sorted(held, key=lambda unit: unit.base)
    bases = [unit.base for unit in units]
    live = [0] * len(units)
    longest: list[tuple[float, int, int] | None] = [None] * len(units)
    tick = work.requests[peak].start if work.requests else 0
    for index, (request, address) in enumerate(zip(work.requests, result.addresses, strict=True)):
        if request.start <= tick and (request.end is None or request.end > tick):
            at = bisect_right(bases, address) - 1
            live[at] += request.size
            key = (float("inf") if request.end is None else request.end, request.size, index)
            longest[at] = max(longest[at] or key, key)
    return [
        Pin(unit, unit.high - unit.low, live[at], None if found is None else found[2])
        for at, (unit, found) in enumerate(zip(units, longest, strict=True))
    ]
