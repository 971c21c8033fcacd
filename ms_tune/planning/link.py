"""Swap's time: what of the copies to the host and back is not hidden behind the passes of the layer that makes them.

A layer that swaps sends what it keeps of a micro-batch to the host once its forward pass has made it, and fetches it for its
backward pass. Both go beside the computation, in both directions at once, so a pass takes as long as the longer of the two: the
layer's own computation, or its copies. Copies are not lent to layers that swap nothing, so a plan's time is rather too long.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError
from ms_tune.planning.table import CostTable, LayerCost, LayerGroup
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.text import Message

MOST_LONGER = 100.0  # that copies make a pass: slower links are refused
_DIGITS = 10**6


def swaps(table: CostTable) -> bool:
    """Whether a plan of a table may swap."""
    return RecomputeMode.SWAP in table.layers[0].recompute


def with_link(table: CostTable, bytes_per_time: float, source: str) -> CostTable:
    """The table with the time that its layers' swap takes.

    Args:
        table: The table.
        bytes_per_time: Bytes that go to the host, and as many that come back, in one unit of the table's time.
        source: Where the table is from.

    Raises:
        ConfigError: Copies take so much longer than passes that swap is no remedy, or a layer that swaps takes no time.
    """
    return replace(table, layers=tuple(_linked(layer, bytes_per_time, source) for layer in table.layers))


def _linked(layer: LayerGroup, bytes_per_time: float, source: str) -> LayerGroup:
    kept = layer.recompute.get(RecomputeMode.SWAP)
    if kept is None or not kept.swapped_bytes:
        return layer
    plain = layer.recompute.get(RecomputeMode.NONE, LayerCost(0))
    copies = kept.swapped_bytes / bytes_per_time
    back = 2 * layer.forward * (1 + plain.backward_extra)
    if not layer.forward or not back or copies / min(layer.forward, back) > MOST_LONGER:
        raise ConfigError(_too_slow(layer, copies), msg("planning.link.slow.hint"), path=source)
    longer = kept._replace(
        forward_extra=_extra(copies, layer.forward, layer.forward),
        backward_extra=_extra(copies, back, 2 * layer.forward),
    )
    return replace(layer, recompute={**layer.recompute, RecomputeMode.SWAP: longer})


def _extra(copies: float, own: float, unit: float) -> float:
    """The longer of copies and computation, as a part of a unit beyond it, rounded up."""
    longest = max(copies, own)
    return ceil(round((longest / unit - 1) * _DIGITS, 3)) / _DIGITS


def _too_slow(layer: LayerGroup, copies: float) -> Message:
    times = f"{copies / layer.forward:,.0f}" if layer.forward else "-"
    return msg("planning.link.slow", layer=layer.name, times=times, most=f"{MOST_LONGER:g}")
