"""The memory curve by content, in few enough points for a chart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.report.memory_curve import thinned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ms_tune.footprint.curve import Curve
    from ms_tune.footprint.result import RankReport


@dataclass(frozen=True, slots=True)
class Bands:
    """Bytes in use at some ticks."""

    tick: list[int]
    # Bytes by content's name; contents that never hold anything are left out. At each tick they add up to the curve.
    used: dict[str, list[int]]
    footprint: list[int]  # the footprint at each tick


def bands_of(rank: RankReport, points: int) -> Bands:
    """The curve by content at about so many points, its extremes among them."""
    table, rows = rank.table, rank.curve.rows
    lives = Lives(table.start[rows], table.end[rows], table.size[rows], rank.contents.codes[rows])
    return bands(rank.curve, lives, [content.value for content in rank.peak.contents], points)


class Lives(NamedTuple):
    """Blocks: when they are allocated and released, their bytes, and what they hold as a place in the contents."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    size: NDArray[np.int64]
    codes: NDArray[np.integer[Any]]


def bands(curve: Curve, lives: Lives, contents: Sequence[str], points: int) -> Bands:
    """A curve by content at about so many points, its extremes among them."""
    ticks, _, footprint = thinned(curve, points)
    if not ticks:
        return Bands([], {}, [])
    # The last event of each tick counts, so that a point tells what is in use after it.
    at = np.unique(np.array(ticks, np.int64))
    keep = np.searchsorted(np.array(ticks), at, side="right") - 1
    used = {}
    for code, content in enumerate(contents):
        mine = lives.codes == code
        if mine.any():
            used[content] = _in_use(lives.start[mine], lives.end[mine], lives.size[mine], at).tolist()
    return Bands(at.tolist(), used, [footprint[place] for place in keep.tolist()])


def _in_use(
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    size: NDArray[np.int64],
    at: NDArray[np.int64],
) -> NDArray[np.int64]:
    freed = end != NEVER_FREED
    tick = np.concatenate([end[freed], start])
    order = np.argsort(tick, kind="stable")
    total = np.cumsum(np.concatenate([-size[freed], size])[order])
    place = np.searchsorted(tick[order], at, side="right") - 1
    return np.where(place >= 0, total[np.maximum(place, 0)], 0)
