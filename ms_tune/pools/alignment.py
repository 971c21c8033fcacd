"""Finds the events of one run again in a larger one, where a few of them happen a little earlier or later there.

A static graph's order of execution is a sort of its operators, and a layer more moves some others: of 9,000 events of a stage of
Qwen3-32B four, of others up to 35. All others are found in order, which the fewest moves tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

_MOST_EVENTS = 100_000  # of the smaller run: half a kilobyte each


def aligned(small: Sequence[Hashable], large: Sequence[Hashable], most: int) -> list[int] | None:
    """The place of each event of the smaller run in the larger one.

    Those that keep their order have the earliest places that they can have, all but the fewest do, and each of those few has
    the place nearest to where it would be of what is left.

    Args:
        small: What is the same about an event in both runs, in order.
        large: The same of the larger run.
        most: Events that may be out of order.

    Returns:
        The places; None where more are out of order or one is not there.
    """
    if len(small) > _MOST_EVENTS or len(small) > len(large):
        return None
    found = _in_order(small, large, most)
    return None if found is None else _with_moved(found, small, large)


def _in_order(small: Sequence[Hashable], large: Sequence[Hashable], most: int) -> list[int | None] | None:
    """Places that rise, None for as few events as possible; None where there are more than ``most`` of them.

    ``reached[n]`` is the earliest place at which all events so far but ``n`` can be found.
    """
    end = len(large)
    places = _places(large)
    nowhere = np.full(1, end, dtype=np.int64)
    reached = np.full(most + 1, end, dtype=np.int64)
    reached[0] = -1
    history = np.empty((len(small), most + 1), dtype=np.int32)
    taken = np.empty((len(small), most + 1), dtype=np.bool_)
    for number, key in enumerate(small):
        options = places.get(key, nowhere)
        after = options[np.minimum(np.searchsorted(options, reached, side="right"), len(options) - 1)]
        left_out = np.concatenate((nowhere, reached[:-1]))
        taken[number] = (after <= left_out) & (after < end)
        reached = np.where(taken[number], after, left_out)
        history[number] = reached
    fits = np.flatnonzero(reached < end)
    if not len(fits):
        return None
    missing, found = int(fits[0]), list[int | None]()
    for number in reversed(range(len(small))):
        if taken[number, missing]:
            found.append(int(history[number, missing]))
        else:
            found.append(None)
            missing -= 1
    return found[::-1]


def _places(events: Sequence[Hashable]) -> dict[Hashable, NDArray[np.int64]]:
    """Where each key is, and the place behind the last event for "nowhere"."""
    found: dict[Hashable, list[int]] = {}
    for place, key in enumerate(events):
        found.setdefault(key, []).append(place)
    return {key: np.array([*places, len(events)], dtype=np.int64) for key, places in found.items()}


def _with_moved(found: list[int | None], small: Sequence[Hashable], large: Sequence[Hashable]) -> list[int] | None:
    """The same with the events that were out of order, each as near as may be."""
    used = {place for place in found if place is not None}
    left: dict[Hashable, list[int]] = {}
    for place, key in enumerate(large):
        if place not in used:
            left.setdefault(key, []).append(place)
    places, before = list[int](), 0
    for key, known in zip(small, found, strict=True):
        if known is not None:
            before = known
            places.append(known)
            continue
        options = left.get(key, [])
        if not options:
            return None
        _, nearest = min((abs(option - before), option) for option in options)
        options.remove(nearest)
        places.append(nearest)
    return places
