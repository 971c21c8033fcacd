"""Model a stage's memory as a straight line in its number of layers: a base, and a slope per layer.

Differences are taken within one stage: the base differs from stage to stage, and a fit over several stages would spread that
difference over the layers. Seen with MindSpore 2.9 (docs/fit.md): every line is exactly straight. The slope is the layer's
persistent memory plus an amount per micro-batch in flight, minus the memory that the last micro-batch frees early.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from ms_tune.dialects.stage import StageLayerKind
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.fit.measure import RunFigures

_NEAR = Fraction(1001, 1000)  # tolerance: the allocator rounds every tensor up
_ALIKE = Fraction(1, 50)  # relative difference of slopes; below it, they count as equal


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """Memory of one stage whose layers all have the same recompute mode."""

    stage: int
    phase: str  # the phase of the training step whose peak this is
    base: Fraction  # bytes without any layer
    slope: Fraction  # bytes per layer
    persistent: Fraction  # the part of the slope for weights, optimizer state and gradients
    in_flight: Fraction  # micro-batches in flight per layer, averaged over the stage's chunks
    even: bool = True  # the two runs differ by the same number of layers in each chunk

    def bytes_with(self, layers: int) -> Fraction:
        """Return the memory of the stage with this number of layers."""
        return self.base + self.slope * layers


def fit_lines(few: RunFigures, more: RunFigures) -> tuple[MemoryLine, ...]:
    """Fit lines through two runs of a stage, one line per phase of the training step."""
    added = {cell: count - few.cells.get(cell, 0) for cell, count in more.cells.items()}
    total = sum(added.values())
    per_chunk = few.in_flight or (1,)
    in_flight = Fraction(sum(count * per_chunk[chunk] for (chunk, _), count in added.items()), total)
    by_chunk = [sum(count for (chunk, _), count in added.items() if chunk == one) for one in range(len(per_chunk))]
    found = []
    for phase in sorted(few.phase_peaks.keys() & more.phase_peaks.keys()):
        slope = Fraction(more.phase_peaks[phase] - few.phase_peaks[phase], total)
        lasting = Fraction(more.phase_persistent[phase] - few.phase_persistent[phase], total)
        base = few.phase_peaks[phase] - slope * few.layers
        found.append(MemoryLine(few.stage, phase, base, slope, lasting, in_flight, len(set(by_chunk)) == 1))
    return tuple(found)


def split_by_moment(lines: Sequence[MemoryLine], lasting: Fraction) -> tuple[list[MemoryLine], list[MemoryLine]]:
    """Split lines by their persistent memory per layer: the usual amount, or more; lines with less are dropped.

    While gradients are reduced and weights updated, a copy of each layer's gradients or weights exists, regardless of
    recomputation and micro-batches in flight. A trace may assign such a moment to another phase.
    """
    usual = [line for line in lines if lasting <= line.persistent * _NEAR and line.persistent <= lasting * _NEAR]
    return usual, [line for line in lines if line.persistent > lasting * _NEAR]


def persistent_slope(lines: Sequence[MemoryLine]) -> Fraction:
    """Return the persistent memory per layer: the smallest value on which two lines agree.

    Between two sizes, the peak of a phase may move to another moment, with less persistent memory. The slope of such a line is
    meaningless and can even be negative. Seen in a static graph of MindFormers 1.9: with one layer, the first stage peaks in the
    forward pass, while the embedding's gradient exists.
    """
    found = sorted(line.persistent for line in lines)
    agreed = [less for less, more in pairwise(found) if less >= 0 and more <= less * _NEAR]
    return min(agreed, default=min((one for one in found if one >= 0), default=Fraction(0)))


def find_alike_phases(figures: RunFigures, plain: RunFigures, lasting: Fraction) -> list[str]:
    """Return the phases in which the layers have no more persistent memory than in another run of the stage."""
    more = lasting * (figures.layers - plain.layers)
    there = figures.phase_persistent.keys() & plain.phase_persistent.keys()
    return [
        phase
        for phase in sorted(there)
        if figures.phase_persistent[phase] <= (plain.phase_persistent[phase] + more) * _NEAR
    ]


def fit_mode_lines(one: RunFigures, plain: RunFigures, lines: Sequence[MemoryLine]) -> Iterator[MemoryLine]:
    """Yield the lines of another recompute mode from one run (``one``), using the lines and a same-size run without recomputation."""
    for line in lines:
        phase = line.phase
        if phase in one.phase_peaks and one.phase_persistent[phase] <= plain.phase_persistent[phase] * _NEAR:
            yield replace(line, slope=(one.phase_peaks[phase] - line.base) / one.layers)


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """Memory that a layer adds to any stage."""

    persistent: Fraction  # for the whole run
    activations: Fraction  # per micro-batch in flight
    # Once, regardless of micro-batches in flight; negative if the micro-batch in its backward pass uses less.
    once_bytes: Fraction

    @property
    def plausible(self) -> bool:
        """Return whether a micro-batch in its backward pass uses at least 0 bytes; otherwise the lines are not comparable."""
        return self.activations >= 0 and self.activations + self.once_bytes >= 0

    def total_bytes(self, micro_batches: Fraction) -> Fraction:
        """Return the total memory of the layer with this number of micro-batches in flight."""
        return self.persistent + self.activations * micro_batches + self.once_bytes


def fit_layer_bytes(lines: Sequence[MemoryLine]) -> LayerBytes:
    """Fit the memory per layer from the lines of one layer kind; with a single line, all non-persistent memory counts as activations."""
    # Take the lines with the most and the fewest micro-batches in flight. How many of a chunk are in flight at a stage's peak
    # depends on its layers: the sum over chunks stays, but one chunk may have more and another fewer. For layers that were added
    # evenly to all chunks, the sum is enough, so use these lines if there are two. Seen with four layers in one chunk and one in
    # the other: the peak was at another moment than with two and one.
    even = [line for line in lines if line.even]
    found = even if len({line.in_flight for line in even}) > 1 else lines
    first, last = max(found, key=lambda line: line.in_flight), min(found, key=lambda line: line.in_flight)
    lasting = first.persistent
    if first.in_flight == last.in_flight:
        return LayerBytes(lasting, (first.slope - lasting) / first.in_flight, Fraction(0))
    if abs(first.slope - last.slope) <= first.slope * _ALIKE and first.slope < last.slope:
        # Almost nothing is kept per micro-batch, and the transient memory of the two lines differs by a tensor or two.
        return LayerBytes(lasting, Fraction(0), last.slope - lasting)
    activations = (first.slope - last.slope) / (first.in_flight - last.in_flight)
    return LayerBytes(lasting, activations, last.slope - lasting - activations * last.in_flight)


def interpolate(lines: Sequence[tuple[Fraction, Fraction]], at: Fraction) -> Fraction:
    """Interpolate linearly between known points; outside their range, return the nearest value."""
    (low, small), (high, large) = min(lines), max(lines)
    if low == high:
        return max(small, large)
    at = min(max(at, low), high)
    return small + (large - small) * (at - low) / (high - low)


_NEXT_TO_NOTHING = Fraction(1, 1000)  # of a layer's memory: the allocator rounds every tensor up


@dataclass(frozen=True, slots=True)
class FreedByRecompute:
    """Memory that full recomputation frees on one stage at the end of the last forward pass.

    A stage with all layers recomputed peaks at another moment than one without recomputation: while its first layer is
    recomputed, the embedding's gradient exists, or gradients are reduced. The difference of two such runs is therefore not the
    memory that a layer keeps at the end of the last forward pass, which is the peak as long as some layers are not recomputed.
    Runs with one and two recomputed layers measure that memory; runs with all of them then measure the transient on top. Seen
    with MindSpore 2.9: in MindFormers' dynamic graph, the expert weights gathered for recomputation stay until the backward pass
    ends; MindSpeed-Core-MS keeps a copy of a stage's input as soon as its first layer is recomputed.
    """

    line: MemoryLine  # of fully recomputed layers, at the moment of the peak when some are not
    each: Fraction  # bytes freed per recomputed layer
    # As ``each``, per dense layer at the start of the first chunk, where most layers have experts.
    by_dense: Fraction
    first: Fraction  # bytes added once as soon as one layer is recomputed
    # As ``each``, per layer of the first chunk; None if no run distinguishes the chunks.
    in_first_chunk: Fraction | None = None


@dataclass(frozen=True, slots=True)
class RecomputeTransient:
    """Transient memory of a stage while its layers are recomputed."""

    # Bytes, regardless of the number of layers; can be negative if each layer leaves some (``left``).
    transient: Fraction = Fraction(0)
    per_layer: Fraction = Fraction(0)  # bytes per layer of the cell, until its backward pass ends


def fully_recomputed(figures: RunFigures) -> list[tuple[StageLayerKind, int]]:
    """Return the kinds of the fully recomputed layers with the number of each."""
    return [(kind, count) for kind, count in figures.kinds.items() if kind.recompute is RecomputeMode.FULL]


def _weigh_recomputed(figures: RunFigures, main: LayerKind) -> tuple[Fraction, int]:
    # Count the fully recomputed layers: of the most frequent kind, and others. The former are weighted by the micro-batches in
    # flight of their chunk relative to the mean of all chunks.
    per_chunk, weighed, others = figures.in_flight or (1,), Fraction(0), 0
    for kind, count in fully_recomputed(figures):
        chunk, make = kind.cell
        if make is main:
            weighed += Fraction(per_chunk[chunk] * count * len(per_chunk), sum(per_chunk))
        else:
            others += count
    return weighed, others


def _count_recomputed_main(figures: RunFigures, main: LayerKind) -> int:
    return sum(count for kind, count in fully_recomputed(figures) if kind.make is main)


def fit_freed(
    plain: MemoryLine, mixed: Sequence[RunFigures], main: LayerKind, others: Fraction
) -> FreedByRecompute | None:
    """Fit the memory that full recomputation frees on a stage; return None if no run measures it.

    Freed memory grows at least in proportion to the layers, but seems smaller when the peak moves to another moment; so use the
    largest value.
    """
    seen = {(Fraction(0), 0): Fraction(0)}
    for figures in mixed:
        if plain.phase in figures.phase_peaks:
            seen[_weigh_recomputed(figures, main)] = plain.bytes_with(figures.layers) - figures.phase_peaks[plain.phase]
    points = [(count, freed - others * rest) for (count, rest), freed in sorted(seen.items())]
    steps = [
        (freed - before) / (count - fewer) for (fewer, before), (count, freed) in pairwise(points) if count > fewer
    ]
    if not steps:
        return None
    each = max(steps)
    # The run with the fewest recomputed layers is the least affected by the moment at which fully recomputed stages peak.
    first = max(Fraction(0), each * points[1][0] - points[1][1])
    return FreedByRecompute(replace(plain, slope=plain.slope - each), each, others, first)


def with_first_chunk(
    freed: FreedByRecompute, plain: MemoryLine, figures: RunFigures, main: LayerKind
) -> FreedByRecompute:
    """Return ``freed`` with the memory that a first-chunk layer frees, from a run that recomputes only in that chunk."""
    count, (_, others) = _count_recomputed_main(figures, main), _weigh_recomputed(figures, main)
    if plain.phase not in figures.phase_peaks or not count:
        return freed
    alone = plain.bytes_with(figures.layers) - figures.phase_peaks[plain.phase] + freed.first - freed.by_dense * others
    return replace(freed, in_first_chunk=alone / count)


def fit_transient(
    freed: FreedByRecompute, whole: Sequence[tuple[RunFigures, Fraction]], main: LayerKind, kept: Fraction
) -> RecomputeTransient:
    """Fit the transient memory with all layers recomputed, from two such runs, each with the stage's memory without recomputation."""
    more = []
    for figures, plain in whole:
        count, others = _weigh_recomputed(figures, main)
        least = plain - freed.each * count - freed.by_dense * others + freed.first
        more.append((count, others, figures.peak - least))
    (few, others, one), (many, _, two) = more
    each = (two - one) / (many - few)
    if each <= freed.each * _NEXT_TO_NOTHING:
        return RecomputeTransient(max(one, Fraction(0)))
    chunks = len({chunk for chunk, _ in whole[0][0].cells})  # one of the chunks is in its backward pass
    left = each * chunks + kept  # each layer frees the memory it kept for the micro-batch
    transient = one - each * few - (0 if others else kept)
    return RecomputeTransient(transient, left)


def fit_first_chunk_transient(
    freed: FreedByRecompute, plain: MemoryLine, figures: RunFigures, main: LayerKind
) -> RecomputeTransient:
    """Return the transient memory when all layers of only the first chunk are recomputed."""
    weighed, others = _weigh_recomputed(figures, main)
    first = freed.in_first_chunk
    less = freed.each * weighed if first is None else first * _count_recomputed_main(figures, main)
    least = plain.bytes_with(figures.layers) - less - freed.by_dense * others + freed.first
    return RecomputeTransient(max(figures.peak - least, Fraction(0)))
