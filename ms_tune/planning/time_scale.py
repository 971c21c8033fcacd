"""Convert relative times to seconds, from a measured step time, measured layer times, or both; never from anything else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError, UsageError
from ms_tune.planning.table import CostTable, LayerCost, LayerGroup
from ms_tune.text import Message, msg

HEAD, TAIL = "head", "tail"
_MOST_SECONDS = 1e7
_MS = 1000
_SECONDS = {"": 1e-3, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_DURATION = re.compile(r"\s*(\d{1,12}(?:\.\d{1,12})?)\s*(us|ms|s|min|)\s*")


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Measured times of one layer and one micro-batch, in milliseconds."""

    forward: float
    # Backward pass by recompute mode, for the measured modes.
    backward: Mapping[RecomputeMode, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProfiledLayer:
    """Kernel times of one layer per step, from a profile, in milliseconds."""

    number: int  # layer number in the model
    forward: float  # forward passes, without recomputed kernels
    backward: float  # backward passes only
    twice: float  # recomputed kernels, the sum of both runs


@dataclass(frozen=True, slots=True)
class Clock:
    """The user's time measurements."""

    step_seconds: float | None = None  # step time of the present plan; None if not measured
    # By the table's name of a layer group, or `head` and `tail`; empty if not measured.
    times: Mapping[str, LayerTimes] = field(default_factory=dict)
    layers: tuple[ProfiledLayer, ...] | None = None  # of a profile; `with_layers` converts them to times
    notes: tuple[Message, ...] = ()  # messages about what the measurements cover

    @property
    def runs(self) -> bool:
        """Return whether anything was measured."""
        return self.step_seconds is not None or bool(self.times)

    def seconds(self, time: float, reference: float) -> float | None:
        """Return the step time in seconds; None without measurements.

        With only a measured step, the time scales like its passes. With measured layers, the passes are computed from them, and
        the rest of a measured step stays constant. Arguments are in the table's unit, which is milliseconds if layers were
        measured.
        """
        if self.times:
            passes = time / _MS
            return passes if self.step_seconds is None else self.step_seconds + passes - reference / _MS
        return None if self.step_seconds is None else self.step_seconds * time / reference

    def check(self, *, has_present: bool, reference: float) -> None:
        """Check that the measured step can be that of the present plan."""
        if self.step_seconds is None:
            return
        if not has_present:
            raise UsageError(msg("planning.clock.no-present"), msg("planning.clock.no-present.hint"))
        if self.times and reference / _MS > self.step_seconds:
            sizes = {"passes": f"{reference / _MS:.4g}", "step": f"{self.step_seconds:.4g}"}
            raise UsageError(msg("planning.clock.contradiction", **sizes))


def parse_step(text: str) -> float:
    """Parse the seconds of ``step=11.5s`` (units: us, ms, s, min)."""
    name, equals, rest = text.partition("=")
    match = _DURATION.fullmatch(rest) if equals and name.strip() == "step" else None
    seconds = float(match[1]) * _SECONDS[match[2]] if match and match[2] else 0.0
    if not 0 < seconds <= _MOST_SECONDS:
        message = f"not a step: {text!r}"
        raise ValueError(message)
    return seconds


def with_times(table: CostTable, times: Mapping[str, LayerTimes]) -> CostTable:
    """Return the table with the times that :func:`with_layers` found for all of its parts, so that its unit is a millisecond.

    A recompute mode whose backward pass was not measured takes as much extra time, in forward passes, as in the table.
    """
    layers = (_timed_layer(layer, times[layer.name]) if layer.name in times else layer for layer in table.layers)
    head, tail = (
        end._replace(forward=times[name].forward) if name in times else end
        for name, end in ((HEAD, table.head), (TAIL, table.tail))
    )
    return table._replace(layers=tuple(layers), head=head, tail=tail)


def _timed_layer(layer: LayerGroup, times: LayerTimes) -> LayerGroup:
    twice = 2 * times.forward
    plain = layer.recompute.get(RecomputeMode.NONE)
    before = plain.backward_extra if plain is not None else 0.0
    measured = times.backward.get(RecomputeMode.NONE)
    least = before if measured is None else measured / twice - 1
    recompute = {}
    for kind, kept in layer.recompute.items():
        own = times.backward.get(kind)
        extra = least + kept.backward_extra - before if own is None else own / twice - 1
        recompute[kind] = kept._replace(backward_extra=round(extra, 9))
    return layer._replace(forward=times.forward, recompute=recompute)


def with_layers(clock: Clock, table: CostTable) -> Clock:
    """Return the clock with times of the table's parts and notes about their coverage.

    A layer group gets the mean of its profiled layers. Recomputed kernels run twice and count half for each run, as profiler
    scopes do not distinguish them. The time of a part missing from the profile is scaled from the group with the most profiled
    layers, using the table.
    """
    if not clock.layers:
        return clock
    last = max(one.number for one in clock.layers)
    if last >= table.layer_count:
        raise UsageError(msg("planning.seen.beyond", number=last, layers=table.layer_count))
    found: dict[str, LayerTimes] = {}
    counts: dict[str, int] = {}
    start = 0
    for layer in table.layers:
        own = [one for one in clock.layers if start <= one.number < start + layer.layer_count]
        start += layer.layer_count
        if own and layer.forward:
            found[layer.name], counts[layer.name] = _mean_times(own, table.micro_batches), len(own)
    if not found:
        return clock
    reference = max((layer for layer in table.layers if layer.name in found), key=lambda layer: counts[layer.name])
    scale = found[reference.name].forward / reference.forward
    ends = ((name, getattr(table, name).forward) for name in (HEAD, TAIL))
    parts = {**{layer.name: layer.forward for layer in table.layers}, **dict(ends)}
    rest = {name: LayerTimes(forward * scale) for name, forward in parts.items() if forward and name not in found}
    shown = []
    for layer in table.layers:
        if layer.name in found:
            times = found[layer.name]
            backward = " | ".join(f"{kind.value} {time:.4g}" for kind, time in times.backward.items())
            seen = f"{counts[layer.name]}/{layer.layer_count}"
            shown.append(f"{layer.name} {times.forward:.4g} / {backward} ms ({seen})")
    notes = [msg("planning.seen.layers", times=", ".join(shown))]
    left = [f"{name} {times.forward:.4g} ms" for name, times in rest.items()]
    if left:
        notes.append(msg("planning.seen.rest", parts=", ".join(left), layer=reference.name))
    return replace(clock, times={**found, **rest}, layers=None, notes=(*clock.notes, *notes))


def _mean_times(layers: Sequence[ProfiledLayer], micro_batches: int) -> LayerTimes:
    # Return the mean of one layer and one micro-batch. Layers without recomputation give the best forward time; the backward time
    # is the mean of all layers.
    plain = [one for one in layers if not one.twice]
    whole = [one for one in layers if one.twice and not one.forward]

    def mean(figures: Iterator[float], of: Sequence[ProfiledLayer]) -> float:
        return sum(figures) / len(of) / micro_batches

    forward = mean((one.forward + one.twice / 2 for one in plain or layers), plain or layers)
    backward = {RecomputeMode.NONE: mean((one.backward for one in layers), layers)}
    if whole:
        backward[RecomputeMode.FULL] = backward[RecomputeMode.NONE] + mean((one.twice / 2 for one in whole), whole)
    return LayerTimes(forward, backward)


MOST_LONGER = 100.0  # longest copies, in passes of their layer; slower links are refused
_DIGITS = 10**6


def can_swap(table: CostTable) -> bool:
    """Return whether plans of a table may swap."""
    return RecomputeMode.SWAP in table.layers[0].recompute


def with_swap_time(table: CostTable, bytes_per_time: float, source: str) -> CostTable:
    """Return the table with the time of swap: the part of a layer's copies that exceeds its own passes.

    A layer that swaps copies its activations of a micro-batch to the host after its forward pass, and back for its backward pass,
    in parallel with computation and in both directions at once: a pass takes as long as the longer of the two. Copies are not
    overlapped with layers that do not swap, so the predicted time is an upper estimate.
    """
    return table._replace(layers=tuple(_with_copy_time(layer, bytes_per_time, source) for layer in table.layers))


def _with_copy_time(layer: LayerGroup, bytes_per_time: float, source: str) -> LayerGroup:
    kept = layer.recompute.get(RecomputeMode.SWAP)
    if kept is None or not kept.swapped_bytes:
        return layer
    plain = layer.recompute.get(RecomputeMode.NONE, LayerCost(0))
    copies = kept.swapped_bytes / bytes_per_time
    back = 2 * layer.forward * (1 + plain.backward_extra)
    if not layer.forward or not back or copies / min(layer.forward, back) > MOST_LONGER:
        times = f"{copies / layer.forward:,.0f}" if layer.forward else "-"
        slow = msg("planning.link.slow", layer=layer.name, times=times, most=f"{MOST_LONGER:g}")
        raise ConfigError(slow, msg("planning.link.slow.hint"), path=source)
    longer = kept._replace(
        forward_extra=_extra_time(copies, layer.forward, layer.forward),
        backward_extra=_extra_time(copies, back, 2 * layer.forward),
    )
    return layer._replace(recompute={**layer.recompute, RecomputeMode.SWAP: longer})


def _extra_time(copies: float, own: float, unit: float) -> float:
    # Return the extra time as a fraction of a unit, rounded up, for the longer of copies and computation.
    longest = max(copies, own)
    return ceil(round((longest / unit - 1) * _DIGITS, 3)) / _DIGITS
