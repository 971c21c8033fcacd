"""What a stage holds, as a straight line in its layers: the part that it holds anyhow, and what one more layer adds.

Differences are taken within one stage, never over several: what a stage holds anyhow differs from stage to stage, and a
fit over all of them would spread that difference over the layers. Seen with MindSpore 2.9 (docs/fit.md): every line is
straight to the last digit, and what a layer adds is what it keeps for the whole run, and an amount for every micro-batch in
flight, less once what the last of them frees early.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from ms_tune.enums import RecomputeMode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.dialects.stage import StageLayerKind
    from ms_tune.enums import LayerKind
    from ms_tune.fit.measure import RunFigures

_NEAR = Fraction(1001, 1000)  # the allocator rounds every tensor up
_ALIKE = Fraction(1, 50)  # of a layer's slope: a difference that says nothing about micro-batches


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """One stage whose layers all do the same."""

    stage: int
    phase: str  # the phase of the training step at whose peak it is
    base: Fraction  # bytes that it holds without any layer
    slope: Fraction  # bytes that one more layer adds
    persistent: Fraction  # what of it is weights, optimizer state and gradients
    in_flight: Fraction  # Micro-batches in flight of a layer: the mean of the stage's chunks
    even: bool = True  # it was drawn through as many layers more in each chunk

    def bytes_with(self, layers: int) -> Fraction:
        """What the stage holds with so many layers."""
        return self.base + self.slope * layers


def fit_lines(few: RunFigures, more: RunFigures) -> tuple[MemoryLine, ...]:
    """The lines through two runs of a stage, one for each phase of the training step."""
    added = {cell: count - few.cells.get(cell, 0) for cell, count in more.cells.items()}
    total = sum(added.values())
    held = few.in_flight or (1,)
    in_flight = Fraction(sum(count * held[chunk] for (chunk, _), count in added.items()), total)
    by_chunk = [sum(count for (chunk, _), count in added.items() if chunk == one) for one in range(len(held))]
    found = []
    for phase in sorted(few.phase_peaks.keys() & more.phase_peaks.keys()):
        slope = Fraction(more.phase_peaks[phase] - few.phase_peaks[phase], total)
        lasting = Fraction(more.phase_persistent[phase] - few.phase_persistent[phase], total)
        base = few.phase_peaks[phase] - slope * few.layers
        found.append(MemoryLine(few.stage, phase, base, slope, lasting, in_flight, len(set(by_chunk)) == 1))
    return tuple(found)


def split_by_moment(lines: Sequence[MemoryLine], lasting: Fraction) -> tuple[list[MemoryLine], list[MemoryLine]]:
    """Moments at which a layer holds what it holds all the time, and those at which it holds more; what holds less is left out.

    While gradients are reduced and weights updated, a copy of a layer's gradients or weights is there, whatever it recomputes and
    however much is in flight. A trace may count such a moment to another phase.
    """
    usual = [line for line in lines if lasting <= line.persistent * _NEAR and line.persistent <= lasting * _NEAR]
    return usual, [line for line in lines if line.persistent > lasting * _NEAR]


def persistent_slope(lines: Sequence[MemoryLine]) -> Fraction:
    """What a layer holds all the time: the least that two lines agree on.

    Between two sizes the peak of a phase may become another moment, with less of what lasts and not of layers: such a line may
    say anything, also less than nothing. Seen in a static graph of MindFormers 1.9, whose first stage with one layer is at its
    peak in the forward pass while the embedding's gradient is there.
    """
    found = sorted(line.persistent for line in lines)
    agreed = [less for less, more in pairwise(found) if less >= 0 and more <= less * _NEAR]
    return min(agreed, default=min((one for one in found if one >= 0), default=Fraction(0)))


def find_alike_phases(figures: RunFigures, plain: RunFigures, lasting: Fraction) -> list[str]:
    """The phases at whose peak layers hold no more of what lasts than those of another run of the stage."""
    more = lasting * (figures.layers - plain.layers)
    there = figures.phase_persistent.keys() & plain.phase_persistent.keys()
    return [
        phase
        for phase in sorted(there)
        if figures.phase_persistent[phase] <= (plain.phase_persistent[phase] + more) * _NEAR
    ]


def fit_lines_beside(one: RunFigures, plain: RunFigures, lines: Sequence[MemoryLine]) -> Iterator[MemoryLine]:
    """The lines of layers that do something else, from one run, one with as many layers that recompute nothing, and those layers' lines."""
    for line in lines:
        phase = line.phase
        if phase in one.phase_peaks and one.phase_persistent[phase] <= plain.phase_persistent[phase] * _NEAR:
            yield replace(line, slope=(one.phase_peaks[phase] - line.base) / one.layers)


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """What a layer adds to any stage."""

    persistent: Fraction  # for the whole run
    activations: Fraction  # for every micro-batch in flight
    # And once, whatever is in flight; below zero where the micro-batch that is at its backward pass holds less.
    once_bytes: Fraction

    @property
    def plausible(self) -> bool:
        """Whether the micro-batch at its backward pass holds no less than nothing: otherwise the lines are of other moments."""
        return self.activations >= 0 and self.activations + self.once_bytes >= 0

    def total_bytes(self, micro_batches: Fraction) -> Fraction:
        """All of it."""
        return self.persistent + self.activations * micro_batches + self.once_bytes


def fit_layer_bytes(lines: Sequence[MemoryLine]) -> LayerBytes:
    """What the lines of one kind of layer say about any stage; one alone takes all that is not lasting for activations."""
    first, last = _find_extreme_lines(lines)
    lasting = first.persistent
    if first.in_flight == last.in_flight:
        return LayerBytes(lasting, (first.slope - lasting) / first.in_flight, Fraction(0))
    if abs(first.slope - last.slope) <= first.slope * _ALIKE and first.slope < last.slope:
        # Nothing to speak of is kept of a micro-batch, and what lies on top of both differs by a tensor or two.
        return LayerBytes(lasting, Fraction(0), last.slope - lasting)
    activations = (first.slope - last.slope) / (first.in_flight - last.in_flight)
    return LayerBytes(lasting, activations, last.slope - lasting - activations * last.in_flight)


def _find_extreme_lines(lines: Sequence[MemoryLine]) -> tuple[MemoryLine, MemoryLine]:
    # The lines with the most and the least in flight. How many micro-batches of a chunk are in flight at a stage's peak depends
    # on its layers: while the sum over chunks stays, one has more and another one fewer. Layers that were added to all chunks
    # alike are in flight as often as that sum in any case; a line through others is used where there are not two such lines.
    # Seen with four layers of one chunk and one of the other, whose peak was at another moment with two and one.
    even = [line for line in lines if line.even]
    found = even if len({line.in_flight for line in even}) > 1 else lines
    return max(found, key=lambda line: line.in_flight), min(found, key=lambda line: line.in_flight)


def interpolate(lines: Sequence[tuple[Fraction, Fraction]], at: Fraction) -> Fraction:
    """A value between two known ones, on the straight line through them; beyond them that of the nearer one."""
    (low, small), (high, large) = min(lines), max(lines)
    if low == high:
        return max(small, large)
    at = min(max(at, low), high)
    return small + (large - small) * (at - low) / (high - low)


_NEXT_TO_NOTHING = Fraction(1, 1000)  # of what a layer adds: the allocator rounds every tensor up


@dataclass(frozen=True, slots=True)
class FreedByRecompute:
    """What full recomputation frees on one stage when the last forward pass ends.

    A stage whose layers are all recomputed is at its peak at another moment than one whose layers are not: while its first layer is
    computed once more, the embedding's gradient is there, or gradients are reduced. The difference of two such runs is therefore not
    what a layer keeps at the end of the last forward pass, which decides as long as some layers recompute nothing. Runs with one
    and with two recomputed layers tell that; runs with all of them then tell what comes on top. Seen with MindSpore 2.9: in
    MindFormers' dynamic graph the weights that experts gathered for their recomputation stay until the backward pass ends;
    MindSpeed-Core-MS keeps a copy of what enters a stage as soon as its first layer is recomputed.
    """

    line: MemoryLine  # of layers that recompute everything, at the moment that decides where some do not
    each: Fraction  # bytes that one more recomputed layer frees
    # The same of a layer of another make than most, which the stage has before them, in its first chunk.
    by_dense: Fraction
    first: Fraction  # bytes that the stage holds on top as soon as one layer is recomputed
    # As `each`, of a layer of the first chunk; None where nothing tells the chunks apart.
    in_first_chunk: Fraction | None = None


@dataclass(frozen=True, slots=True)
class RecomputeTransient:
    """What a stage holds on top of that while its layers are computed once more."""

    # Bytes, however many layers there are; may be below zero where each leaves something.
    transient: Fraction = Fraction(0)
    left: Fraction = Fraction(0)  # bytes for each layer of the cell, until its backward pass ends


def fully_recomputed(figures: RunFigures) -> list[tuple[StageLayerKind, int]]:
    """Layers that are recomputed in full, and how many there are of each kind."""
    return [(kind, count) for kind, count in figures.kinds.items() if kind.recompute is RecomputeMode.FULL]


def _weigh_recomputed(figures: RunFigures, main: LayerKind) -> tuple[Fraction, int]:
    # Layers that are recomputed in full: of what most are made of, and others. The former count as often as their chunk's
    # micro-batches are in flight beside the mean of all chunks.
    held, weighed, others = figures.in_flight or (1,), Fraction(0), 0
    for kind, count in fully_recomputed(figures):
        chunk, make = kind.cell
        if make is main:
            weighed += Fraction(held[chunk] * count * len(held), sum(held))
        else:
            others += count
    return weighed, others


def _count_recomputed_main(figures: RunFigures, main: LayerKind) -> int:
    return sum(count for kind, count in fully_recomputed(figures) if kind.make is main)


def fit_freed(
    plain: MemoryLine, mixed: Sequence[RunFigures], main: LayerKind, others: Fraction
) -> FreedByRecompute | None:
    """What full recomputation frees on a stage; None where no run tells.

    More layers free at least in proportion, and where another moment takes over they seem to free less: the most counts.
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
    # The run with the fewest is the farthest from the moment at which all are recomputed.
    first = max(Fraction(0), each * points[1][0] - points[1][1])
    return FreedByRecompute(replace(plain, slope=plain.slope - each), each, others, first)


def with_first_chunk(
    freed: FreedByRecompute, plain: MemoryLine, figures: RunFigures, main: LayerKind
) -> FreedByRecompute:
    """The same with what a layer of the first chunk frees, by a run that recomputes there alone."""
    count, (_, others) = _count_recomputed_main(figures, main), _weigh_recomputed(figures, main)
    if plain.phase not in figures.phase_peaks or not count:
        return freed
    alone = plain.bytes_with(figures.layers) - figures.phase_peaks[plain.phase] + freed.first - freed.by_dense * others
    return replace(freed, in_first_chunk=alone / count)


def fit_transient(
    freed: FreedByRecompute, whole: Sequence[tuple[RunFigures, Fraction]], main: LayerKind, kept: Fraction
) -> RecomputeTransient:
    """What comes on top where all layers of a stage are recomputed, from two such runs and what as many layers that recompute nothing hold."""
    more = []
    for figures, plain in whole:
        count, others = _weigh_recomputed(figures, main)
        least = plain - freed.each * count - freed.by_dense * others + freed.first
        more.append((count, others, figures.peak - least))
    (few, others, one), (many, _, two) = more
    each = (two - one) / (many - few)
    if each <= freed.each * _NEXT_TO_NOTHING:
        return RecomputeTransient(max(one, Fraction(0)))
    chunks = len({chunk for chunk, _ in whole[0][0].cells})  # one of them is in its backward pass
    left = each * chunks + kept  # each layer gives back what it kept of the micro-batch
    transient = one - each * few - (0 if others else kept)
    return RecomputeTransient(transient, left)


def fit_transient_alone(
    freed: FreedByRecompute, plain: MemoryLine, figures: RunFigures, main: LayerKind
) -> RecomputeTransient:
    """What comes on top where the first chunk's layers are all recomputed, and no others."""
    weighed, others = _weigh_recomputed(figures, main)
    first = freed.in_first_chunk
    less = freed.each * weighed if first is None else first * _count_recomputed_main(figures, main)
    least = plain.bytes_with(figures.layers) - less - freed.by_dense * others + freed.first
    return RecomputeTransient(max(figures.peak - least, Fraction(0)))
