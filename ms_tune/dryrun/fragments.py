"""The footprint of a stage that was derived: its requests, made of those of its runs, replayed in the run's own pool.

The replay is believed only where it proves itself: under the settings that it uses it reproduces every row of the run, and
the peak that it comes to is the derived one. Otherwise there is a range (:meth:`ms_tune.verdict.outcome.Need.derived`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.footprint.attribution import operator_at
from ms_tune.pools.repeat_layers import repeat_layers
from ms_tune.pools.replay import replay
from ms_tune.pools.settings import infer, pool_for
from ms_tune.pools.workload import free_order_variants, pools_of
from ms_tune.readers.table import HOST_POOL
from ms_tune.text import msg
from ms_tune.units import gib
from ms_tune.verdict.outcome import Need

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from ms_tune.dryrun.result import Reading
    from ms_tune.pools.workload import Workload

_NEAR = 0.005  # of the derived peak, that the replay's may be off
_ALIKE = 0.001  # of a footprint, by which those of several orders may differ and be one
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
    footprints = _replayed(peak, readings, factors, layers)
    if not footprints:
        return Need.derived(peak, [(reading.peak_bytes, reading.footprint_bytes) for reading in readings])
    least, most = min(footprints), max(footprints)
    if most - least <= _ALIKE * most:
        return Need(peak, footprints[0], footprints[0], msg("verdict.footprint.replayed"))
    return Need(peak, most, least, msg("verdict.footprint.replayed-orders", low=gib(least), high=gib(most)))


def _replayed(peak: int, readings: Sequence[Reading], factors: Sequence[Fraction], layers: int) -> list[int]:
    """The footprints of the repeated requests, of several orders where the runs have several; none where the replay does not prove itself."""
    if len(readings) != _PAIR or factors[0].denominator != 1 or factors[0] >= 0:
        return []
    traced = [_requests(reading) for reading in readings]
    if any(one is None for one in traced):
        return []
    (_, small, called), (pool, large, called_too) = (one for one in traced if one is not None)
    whole = repeat_layers(small, large, (called, called_too), layers, -int(factors[0]))
    if whole is None:
        return []
    inferred = infer(large, pool)
    if inferred.mismatches.total:
        return []
    orders = [whole.work, *(free_order_variants(whole.work) if whole.moved else ())]
    found = [replay(order, pool_for(inferred.settings, older=inferred.older)) for order in orders]
    near = abs(found[0].used_peak - peak) <= _NEAR * peak
    return [max(one.actual_peak, peak) for one in found] if near else []


def _requests(reading: Reading) -> tuple[str, Workload, list[str]] | None:
    """The pool of a run, its requests, and what makes them, alike for all layers; None if it has several pools."""
    table = reading.report.table
    pools = pools_of(table)
    pools.pop(HOST_POOL, None)
    if len(pools) != 1:
        return None
    ((name, (work, rows)),) = pools.items()
    return name, work, [_NUMBER.sub("", f"{table.node.at(row)} {operator_at(table, row)}") for row in rows]
