"""From the kernels of a profile's layers to the times of a table's parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ms_tune.enums import RecomputeMode
from ms_tune.errors import UsageError
from ms_tune.planning.clock import HEAD, TAIL, LayerTimes
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.planning.clock import Clock, SeenLayer
    from ms_tune.planning.table import CostTable


def with_layers(clock: Clock, table: CostTable) -> Clock:
    """The clock with times of the table's layers, and what these cover; times that it has stay.

    A kind of layers takes the mean of those that the profile has. What runs twice because it is recomputed counts half for each
    run: scopes do not tell them apart. A part that the profile has not takes as much beside the kind with most layers as the
    table says.

    Raises:
        UsageError: The profile has layers that the table has not: it is of another model.
    """
    if not clock.seen:
        return clock
    last = max(one.number for one in clock.seen)
    if last >= table.layer_count:
        raise UsageError(msg("planning.seen.beyond", number=last, layers=table.layer_count))
    found: dict[str, LayerTimes] = {}
    counts: dict[str, int] = {}
    start = 0
    for layer in table.layers:
        own = [one for one in clock.seen if start <= one.number < start + layer.count]
        start += layer.count
        if own and layer.forward:
            found[layer.name], counts[layer.name] = _mean(own, table.micro_batches), len(own)
    if not found:
        return clock
    reference = max((layer for layer in table.layers if layer.name in found), key=lambda layer: counts[layer.name])
    scale = clock.times.get(reference.name, found[reference.name]).forward / reference.forward
    ends = ((name, getattr(table, name).forward) for name in (HEAD, TAIL))
    parts = {**{layer.name: layer.forward for layer in table.layers}, **dict(ends)}
    rest = {name: LayerTimes(forward * scale) for name, forward in parts.items() if forward and name not in found}
    told = [
        f"{layer.name} {_told(found[layer.name])} ({counts[layer.name]}/{layer.count})"
        for layer in table.layers
        if layer.name in found and layer.name not in clock.times
    ]
    notes = [msg("planning.seen.layers", times=", ".join(told))] if told else []
    left = [f"{name} {times.forward:.4g} ms" for name, times in rest.items() if name not in clock.times]
    if left:
        notes.append(msg("planning.seen.rest", parts=", ".join(left), layer=reference.name))
    return replace(clock, times={**found, **rest, **clock.times}, seen=None, notes=(*clock.notes, *notes))


def _mean(layers: Sequence[SeenLayer], micro_batches: int) -> LayerTimes:
    """Of one layer and one micro-batch. Layers that recompute nothing tell the forward pass best; the backward pass is that of all."""
    plain = [one for one in layers if not one.twice]
    whole = [one for one in layers if one.twice and not one.forward]

    def mean(figures: Iterator[float], of: Sequence[SeenLayer]) -> float:
        return sum(figures) / len(of) / micro_batches

    forward = mean((one.forward + one.twice / 2 for one in plain or layers), plain or layers)
    backward = {RecomputeMode.NONE: mean((one.backward for one in layers), layers)}
    if whole:
        backward[RecomputeMode.FULL] = backward[RecomputeMode.NONE] + mean((one.twice / 2 for one in whole), whole)
    return LayerTimes(forward, backward)


def _told(times: LayerTimes) -> str:
    backward = " | ".join(f"{kind.value} {time:.4g}" for kind, time in times.backward.items())
    return f"{times.forward:.4g} / {backward} ms"
