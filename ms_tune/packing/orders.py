"""Orders in which first fit is tried: blocks that are there at the peak, large ones and long ones come first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ms_tune.packing.placement import most_live

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ms_tune.packing.placement import Lives, Problem

# The shares of the peak from which on a block counts as being there at the peak; measured on traces of MindSpore, where
# a little less than the whole is best, and on SOMAS problems, where size alone is.
_NEAR_PEAK = (0.999, 0.99, 0.97, 0.95, 0.9, 0.8)
_LEVELS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99, 0.999, 1.0)


def portfolio(problem: Problem, lives: Lives) -> Iterator[tuple[str, NDArray[np.int32]]]:
    """Names and orders of block numbers, the most promising first."""
    size, span = problem.size, (lives.upper - lives.lower).astype(np.int64)
    most = most_live(lives)
    peak = lives.live.max(initial=0)
    area = size.astype(np.float64) * span
    yield "peak-first-by-size", by(most >= peak, size)
    yield "near-peak-99.9%-by-start", by(most >= 0.999 * peak, -lives.lower, size)
    yield "size", by(size, span)
    for share in _NEAR_PEAK:
        yield f"near-peak-{share:.1%}-by-size", by(most >= share * peak, size)
    yield "peak-first-by-span", by(most, span, size)
    yield "area", by(area, size)
    yield "live-by-size", by(most, size)
    yield "weighed-size", by(size * (most / max(peak, 1)) ** 4, span)
    yield "span", by(span, size)
    yield "levels-by-start", by(np.searchsorted(_LEVELS, most / max(peak, 1), side="right"), -lives.lower, size)
    yield "size-class-by-span", by(np.frexp(size.astype(np.float64))[1], span, size)
    yield "start", by(-lives.lower, size)


def by(*keys: NDArray[np.generic]) -> NDArray[np.int32]:
    """Block numbers in descending order of the first key, then of the next; equal ones in their own order."""
    count = len(keys[0])
    reverse = np.arange(count)[::-1]
    ascending = np.lexsort((reverse, *(np.asarray(key, np.float64) for key in reversed(keys))))
    return np.asarray(ascending[::-1], np.int32)
