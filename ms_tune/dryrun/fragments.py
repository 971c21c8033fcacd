"""The footprint of a stage that was derived: its requests, made of those of its runs, replayed in the run's own pool.

The replay is believed only where it proves itself: under the settings that it uses it reproduces every row of the run, and
the peak that it comes to is the derived one. Otherwise there is a range (:meth:`ms_tune.verdict.judge.Need.derived`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.allocator.replay import replay
from ms_tune.allocator.settings import infer, pool_for
from ms_tune.allocator.stretch import stretched
from ms_tune.allocator.workload import pools_of
from ms_tune.memory.places import operator_at
from ms_tune.texts import msg
from ms_tune.trace.table import HOST_POOL
from ms_tune.verdict.judge import Need

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from ms_tune.allocator.workload import Workload
    from ms_tune.dryrun.result import Reading

_NEAR = 0.005  # of the derived peak, that the replay's may be off
_NUMBER = re.compile(r"\d+")
_PAIR = 2


def need_of(peak: int, readings: Sequence[Reading], factors: Sequence[Fraction], layers: int) -> Need:
    """What a derived stage needs.

    Args:
        peak: Its derived peak.
        readings: The runs that it is derived from, the one with fewest layers first.
        factors: Their weights in it.
        layers: Layers of the first run.
    """
    footprint = _replayed(peak, readings, factors, layers)
    if footprint is None:
        return Need.derived(peak, [(reading.peak_bytes, reading.footprint_bytes) for reading in readings])
    return Need(peak, footprint, footprint, msg("verdict.footprint.replayed"))


def _replayed(peak: int, readings: Sequence[Reading], factors: Sequence[Fraction], layers: int) -> int | None:
    """The footprint of the repeated requests; None where the replay does not prove itself."""
    if len(readings) != _PAIR or factors[0].denominator != 1 or factors[0] >= 0:
        return None
    traced = [_requests(reading) for reading in readings]
    if any(one is None for one in traced):
        return None
    (_, small, called), (pool, large, called_too) = (one for one in traced if one is not None)
    whole = stretched(small, large, (called, called_too), layers, -int(factors[0]))
    if whole is None:
        return None
    inferred = infer(large, pool)
    if inferred.mismatches.total:
        return None
    found = replay(whole, pool_for(inferred.settings, older=inferred.older))
    near = abs(found.used_peak - peak) <= _NEAR * peak
    return max(found.actual_peak, peak) if near else None


def _requests(reading: Reading) -> tuple[str, Workload, list[str]] | None:
    """The pool of a run, its requests, and what makes them, alike for all layers; None if it has several pools."""
    table = reading.report.table
    pools = pools_of(table)
    pools.pop(HOST_POOL, None)
    if len(pools) != 1:
        return None
    ((name, (work, rows)),) = pools.items()
    return name, work, [_NUMBER.sub("", f"{table.node.at(row)} {operator_at(table, row)}") for row in rows]
