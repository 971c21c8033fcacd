"""What layers that are recomputed in full keep and add, from runs in which only some of them are.

A stage whose layers are all recomputed is at its peak at another moment than one whose layers are not: while its first layer is
computed once more, the embedding's gradient is there, or gradients are reduced. The difference of two such runs is therefore not
what a layer keeps at the end of the last forward pass, which decides as long as some layers recompute nothing. Runs with one and
with two recomputed layers tell that; runs with all of them then tell what comes on top. Seen with MindSpore 2.9: in
MindFormers' dynamic graph the weights that experts gathered for their recomputation stay until the backward pass ends;
MindSpeed-Core-MS keeps a copy of what enters a stage as soon as its first layer is recomputed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from ms_tune.enums import RecomputeMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.dialects.stage import StageLayerKind
    from ms_tune.enums import LayerKind
    from ms_tune.fit.lines import Line
    from ms_tune.fit.measure import RunFigures

_NEXT_TO_NOTHING = Fraction(1, 1000)  # of what a layer adds: the allocator rounds every tensor up


@dataclass(frozen=True, slots=True)
class Freed:
    """What full recomputation frees on one stage when the last forward pass ends."""

    line: Line  # of layers that recompute everything, at the moment that decides where some do not
    each: Fraction  # bytes that one more recomputed layer frees
    others: (
        Fraction  # the same of a layer of another make than most, which the stage has before them, in its first chunk
    )
    first: Fraction  # bytes that the stage holds on top as soon as one layer is recomputed
    # As `each`, of a layer of the first chunk; None where nothing tells the chunks apart.
    in_first_chunk: Fraction | None = None


@dataclass(frozen=True, slots=True)
class OnTop:
    """What a stage holds on top of that while its layers are computed once more."""

    # Bytes, however many layers there are; may be below zero where each leaves something.
    transient: Fraction = Fraction(0)
    left: Fraction = Fraction(0)  # bytes for each layer of the cell, until its backward pass ends


def recomputed_kinds(figures: RunFigures) -> list[tuple[StageLayerKind, int]]:
    """Layers that are recomputed in full, and how many there are of each kind."""
    return [(kind, count) for kind, count in figures.kinds.items() if kind.recompute is RecomputeMode.FULL]


def recomputed_in(figures: RunFigures, main: LayerKind) -> tuple[Fraction, int]:
    """Layers that are recomputed in full: of what most are made of, and others.

    The former count as often as their chunk's micro-batches are in flight beside the mean of all chunks.
    """
    held, weighed, others = figures.in_flight or (1,), Fraction(0), 0
    for kind, count in recomputed_kinds(figures):
        chunk, make = kind.cell
        if make is main:
            weighed += Fraction(held[chunk] * count * len(held), sum(held))
        else:
            others += count
    return weighed, others


def _of_main(figures: RunFigures, main: LayerKind) -> int:
    """Layers of what most are made of that are recomputed in full."""
    return sum(count for kind, count in recomputed_kinds(figures) if kind.make is main)


def freed_on(plain: Line, mixed: Sequence[RunFigures], main: LayerKind, others: Fraction) -> Freed | None:
    """What full recomputation frees on a stage; None where no run tells.

    More layers free at least in proportion, and where another moment takes over they seem to free less: the most counts.

    Args:
        plain: The line of layers that recompute nothing, at the moment that decides.
        mixed: Runs in which some layers are recomputed and others are not.
        main: What most layers are made of.
        others: What a recomputed layer of another make frees.
    """
    seen = {(Fraction(0), 0): Fraction(0)}
    for figures in mixed:
        if plain.phase in figures.peaks:
            seen[recomputed_in(figures, main)] = plain.at(figures.layers) - figures.peaks[plain.phase]
    points = [(count, freed - others * rest) for (count, rest), freed in sorted(seen.items())]
    steps = [
        (freed - before) / (count - fewer) for (fewer, before), (count, freed) in pairwise(points) if count > fewer
    ]
    if not steps:
        return None
    each = max(steps)
    # The run with the fewest is the farthest from the moment at which all are recomputed.
    first = max(Fraction(0), each * points[1][0] - points[1][1])
    return Freed(replace(plain, slope=plain.slope - each), each, others, first)


def told_apart(freed: Freed, plain: Line, figures: RunFigures, main: LayerKind) -> Freed:
    """The same with what a layer of the first chunk frees, by a run that recomputes there alone.

    Args:
        freed: What it frees in all chunks alike.
        plain: The line of layers that recompute nothing.
        figures: A run in which layers of the first chunk are recomputed, and no others.
        main: What most layers are made of.
    """
    count, (_, others) = _of_main(figures, main), recomputed_in(figures, main)
    if plain.phase not in figures.peaks or not count:
        return freed
    alone = plain.at(figures.layers) - figures.peaks[plain.phase] + freed.first - freed.others * others
    return replace(freed, in_first_chunk=alone / count)


def on_top_of(freed: Freed, whole: Sequence[tuple[RunFigures, Fraction]], main: LayerKind, kept: Fraction) -> OnTop:
    """What comes on top where all layers of a stage are recomputed.

    Args:
        freed: What full recomputation frees there.
        whole: Two runs with all layers recomputed, the smaller one first, and what as many layers that recompute nothing hold.
        main: What most layers are made of.
        kept: What a recomputed layer keeps of a micro-batch.
    """
    more = []
    for figures, plain in whole:
        count, others = recomputed_in(figures, main)
        least = plain - freed.each * count - freed.others * others + freed.first
        more.append((count, others, figures.peak - least))
    (few, others, one), (many, _, two) = more
    each = (two - one) / (many - few)
    if each <= freed.each * _NEXT_TO_NOTHING:
        return OnTop(max(one, Fraction(0)))
    chunks = len({chunk for chunk, _ in whole[0][0].cells})  # one of them is in its backward pass
    left = each * chunks + kept  # each layer gives back what it kept of the micro-batch
    transient = one - each * few - (0 if others else kept)
    return OnTop(transient, left)


def on_top_alone(freed: Freed, plain: Line, figures: RunFigures, main: LayerKind) -> OnTop:
    """What comes on top where the first chunk's layers are all recomputed, and no others.

    Args:
        freed: What full recomputation frees there.
        plain: The line of layers that recompute nothing.
        figures: Such a run.
        main: What most layers are made of.
    """
    weighed, others = recomputed_in(figures, main)
    first = freed.in_first_chunk
    less = freed.each * weighed if first is None else first * _of_main(figures, main)
    least = plain.at(figures.layers) - less - freed.others * others + freed.first
    return OnTop(max(figures.peak - least, Fraction(0)))
