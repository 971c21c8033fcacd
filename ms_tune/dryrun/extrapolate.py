"""Extrapolate from runs with few layers to the whole model: every figure that is a sum over layers.

A stage's memory at the peak is a constant part (embedding, head, buffers) plus an amount per layer of each kind: dense
or with experts, with or without recomputation. As vectors of counts, the full stage is a weighted sum of the stages
that were run, and each of its figures is the same sum of theirs::

    full = (1, 32)   runs = (1, 4), (1, 5)   =>   full = -27 runs[0] + 28 runs[1]

Micro-batches in flight are already included in the figures of the runs, which have the job's stages and micro-batches.
The method assumes that the peak stays in the same part of the step; therefore the peaks of the phases are derived one
by one, and the largest is the peak. docs/accuracy-dryrun.md shows the error measured against full runs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

_KindT = TypeVar("_KindT", bound=Hashable)


def solve_weights(full: Mapping[_KindT, int], runs: Sequence[Mapping[_KindT, int]]) -> tuple[Fraction, ...] | None:
    """Return one weight per run, so that the weighted sum of their layer counts equals that of the full stage.

    One per run, with sum 1; None without a solution: for example, a kind of layer is in none of the runs.
    """
    kinds = {kind for counts in (full, *runs) for kind in counts}
    # One equation for the constant part, which every run has once, and one for every kind of layer.
    equations = [[Fraction(1)] * len(runs) + [Fraction(1)]]
    equations += [[Fraction(counts.get(kind, 0)) for counts in (*runs, full)] for kind in kinds]
    return _solve_rows(equations, len(runs))


def undominated_stages(counts: Sequence[Mapping[_KindT, int]]) -> tuple[int, ...]:
    """Return the stages that may need the most memory: no earlier stage has at least as many layers of every kind.

    With 1F1B, interleaved or not, an earlier stage never has fewer micro-batches in flight. The last stage contains the
    head and its logits, so it is always returned.
    """
    return tuple(
        stage
        for stage, mine in enumerate(counts)
        if stage == len(counts) - 1
        or not any(all(other.get(kind, 0) >= count for kind, count in mine.items()) for other in counts[:stage])
    )


def combine_figures(parts: Sequence[int], factors: Sequence[Fraction]) -> int:
    """Return the weighted sum of one figure of the runs, to the nearest byte and not below zero."""
    return max(
        0, round(sum((Fraction(part) * factor for part, factor in zip(parts, factors, strict=True)), Fraction(0)))
    )


def _solve_rows(rows: list[list[Fraction]], unknowns: int) -> tuple[Fraction, ...] | None:
    # Gauss-Jordan elimination over fractions; free unknowns are 0. None without a solution.
    rows = [row[:] for row in rows]
    pivots: list[int] = []
    for column in range(unknowns):
        place = len(pivots)
        found = next((index for index in range(place, len(rows)) if rows[index][column]), None)
        if found is None:
            continue
        rows[place], rows[found] = rows[found], rows[place]
        rows[place] = [value / rows[place][column] for value in rows[place]]
        for index, row in enumerate(rows):
            if index != place and row[column]:
                rows[index] = [value - row[column] * one for value, one in zip(row, rows[place], strict=True)]
        pivots.append(column)
    if any(row[-1] for row in rows[len(pivots) :]):
        return None
    solution = [Fraction(0)] * unknowns
    for place, column in enumerate(pivots):
        solution[column] = rows[place][-1]
    return tuple(solution)
