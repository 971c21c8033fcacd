"""Reduce a memory curve to a block graph for the terminal, or to a few points (also by category) for a chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_tune.footprint.curve import Curve
from ms_tune.footprint.result import RankReport
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.records import Record

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def highest_per_column(curve: Curve, columns: int) -> NDArray[np.int64]:
    """Return the peak bytes in use in each of ``columns`` equal intervals of ticks, including earlier blocks."""
    if not len(curve.tick):
        return np.zeros(columns, np.int64)
    first, last = int(curve.tick[0]), int(curve.tick[-1])
    edges = first + (np.arange(columns + 1) * (last - first + 1)) // columns
    place = np.searchsorted(curve.tick, edges[:-1], side="right") - 1
    highest = np.where(place >= 0, curve.used[np.maximum(place, 0)], 0)
    column = np.searchsorted(edges, curve.tick, side="right") - 1
    np.maximum.at(highest, np.minimum(column, columns - 1), curve.used)
    return np.asarray(highest, np.int64)


def block_graph(curve: Curve, columns: int, lines: int, marks: Sequence[int]) -> list[str]:
    """Return the curve as text lines, top first; empty cells at the ticks ``marks`` contain a broken line."""
    highest = highest_per_column(curve, columns)
    top = max(int(highest.max()), 1)
    eighths = (highest * (8 * lines) + top - 1) // top
    first, last = (int(curve.tick[0]), int(curve.tick[-1])) if len(curve.tick) else (0, 1)
    marked = {min(columns - 1, (mark - first) * columns // (last - first + 1)) for mark in marks}
    rows = []
    for line in range(lines - 1, -1, -1):
        cells = [_EIGHTHS[min(8, max(0, int(value) - 8 * line))] for value in eighths]
        rows.append("".join("┆" if cell == " " and at in marked else cell for at, cell in enumerate(cells)))
    return rows


def thin_curve(curve: Curve, points: int) -> tuple[list[int], list[int], list[int]]:
    """Return ticks, bytes in use and footprints at roughly ``points`` points, keeping the extremes of every interval.

    A chart of that width shows the same minima and maxima, including the peak.
    """
    count = len(curve.tick)
    if count <= points:
        chosen = np.arange(count)
    else:
        stretch = np.arange(count) * (points // 4) // count
        starts = np.flatnonzero(np.append([True], stretch[1:] != stretch[:-1]))
        ends = np.append(starts[1:], count)
        high = np.array([a + int(curve.used[a:b].argmax()) for a, b in zip(starts, ends, strict=True)])
        low = np.array([a + int(curve.used[a:b].argmin()) for a, b in zip(starts, ends, strict=True)])
        peak = [int(curve.used.argmax())]
        chosen = np.unique(np.concatenate([starts, ends - 1, high, low, peak]))
    return curve.tick[chosen].tolist(), curve.used[chosen].tolist(), curve.footprint[chosen].tolist()


class Bands(Record):
    """Bytes in use by category at some ticks."""

    tick: list[int]
    # Bytes by category name, without empty categories; at each tick they add up to the curve.
    used: dict[str, list[int]]
    footprint: list[int]  # the footprint at each tick


def bands_of(rank: RankReport, points: int) -> Bands:
    """Return a rank's curve by category at roughly ``points`` points, including its extremes."""
    table, rows = rank.table, rank.curve.rows
    lives = Lives(table.start[rows], table.end[rows], table.size[rows], rank.contents.codes[rows])
    return split_in_bands(rank.curve, lives, [content.value for content in rank.peak.contents], points)


class Lives(NamedTuple):
    """Lifetimes of blocks: allocation and release ticks, bytes, category index."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    size: NDArray[np.int64]
    codes: NDArray[np.integer[Any]]


def split_in_bands(curve: Curve, lives: Lives, contents: Sequence[str], points: int) -> Bands:
    """Return a curve by category at roughly ``points`` points, including its extremes."""
    ticks, _, footprint = thin_curve(curve, points)
    if not ticks:
        return Bands([], {}, [])
    # Use the last event of each tick: the memory in use after it.
    at = np.unique(np.array(ticks, np.int64))
    keep = np.searchsorted(np.array(ticks), at, side="right") - 1
    used = {}
    for code, content in enumerate(contents):
        mine = lives.codes == code
        if mine.any():
            used[content] = _in_use(lives.start[mine], lives.end[mine], lives.size[mine], at).tolist()
    return Bands(at.tolist(), used, [footprint[place] for place in keep.tolist()])


def _in_use(
    start: NDArray[np.int64], end: NDArray[np.int64], size: NDArray[np.int64], at: NDArray[np.int64]
) -> NDArray[np.int64]:
    freed = end != NEVER_FREED
    tick = np.concatenate([end[freed], start])
    order = np.argsort(tick, kind="stable")
    total = np.cumsum(np.concatenate([-size[freed], size])[order])
    place = np.searchsorted(tick[order], at, side="right") - 1
    return np.where(place >= 0, total[np.maximum(place, 0)], 0)
