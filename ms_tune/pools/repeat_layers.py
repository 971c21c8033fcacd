"""Extrapolate the requests of two runs that differ by one or a few layers to a run with many: repeat the additional events.

The events of the smaller run are matched in the larger one (:func:`match_events`); the unmatched rest belongs to the
additional layers: stretches of the forward pass, the backward pass and the optimizer. Each stretch is repeated. Blocks
that every layer allocates and another stretch frees are freed in the order of the run: oldest first (data that one
layer passes to the next) or newest first (data that the backward pass consumes). If that fails, nothing is returned.
The caller compares the peak of the result with the expected one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ms_tune.pools.workload import Request, Workload, make_workload

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    _Pairs = tuple[list[int], list[int]]

_MOST_ALIGNED = 100_000  # events of the smaller run: half a kilobyte each
_MOST_EVENTS = 1_500_000  # events of a run to be replayed: some seconds
_MOST_MOVED, _ONE_IN = 100, 50  # limits on events in another order: absolute, and one in so many; 35 of 9,493 were seen


def match_events(small: Sequence[Hashable], large: Sequence[Hashable], most: int) -> list[int] | None:
    """Return the position of each event of the smaller run in the larger one; None if more than ``most`` are out of order.

    The execution order of a static graph is a sort of its operators, and an additional layer moves some others: 4 of 9,000 events
    of a stage of Qwen3-32B, up to 35 in other models. Events in order get their earliest possible positions, with as few as
    possible out of order; each of those gets the unmatched position nearest to the event before it.
    """
    if len(small) > _MOST_ALIGNED or len(small) > len(large):
        return None
    found = _place_in_order(small, large, most)
    return None if found is None else _place_moved(found, small, large)


def _place_in_order(small: Sequence[Hashable], large: Sequence[Hashable], most: int) -> list[int | None] | None:
    # Return ascending positions, None for as few events as possible; None if more than `most` events have none.
    # `reached[n]` is the earliest position at which all events so far, except `n`, are matched.
    end = len(large)
    places = _places_by_key(large)
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


def _places_by_key(events: Sequence[Hashable]) -> dict[Hashable, NDArray[np.int64]]:
    found: dict[Hashable, list[int]] = {}
    for place, key in enumerate(events):
        found.setdefault(key, []).append(place)
    return {key: np.array([*places, len(events)], dtype=np.int64) for key, places in found.items()}


def _place_moved(found: list[int | None], small: Sequence[Hashable], large: Sequence[Hashable]) -> list[int] | None:
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


class RepeatedWorkload(NamedTuple):
    """The requests of a run with more layers."""

    work: Workload
    moved: bool  # whether some events of the smaller run are in another order in the larger one


class _Event(NamedTuple):
    key: tuple[object, ...]
    block: int
    frees: bool


class _Stretch(NamedTuple):
    """A stretch of events that only the larger run has; ``end`` is exclusive."""

    first: int
    end: int


def repeat_layers(
    small: Workload, large: Workload, names: tuple[Sequence[str], Sequence[str]], layers: int, more: int
) -> RepeatedWorkload | None:
    """Return the larger run with the events of its ``layers`` additional layers repeated ``more`` times, in order.

    None if the smaller run cannot be matched in the larger one, or the repetition would free a block that is not live.
    ``names`` contains the allocating operator of each request, with the same name in all layers.
    """
    if small.releases or large.releases:
        return None
    grown = _pair_grown_blocks(small, large, names)
    if grown is None:
        return None
    before, after = _list_events(small, names[0], grown[0]), _list_events(large, names[1], grown[1])
    moved = min(_MOST_MOVED, len(before) // _ONE_IN)
    places = match_events([event.key for event in before], [event.key for event in after], moved)
    if places is None:
        return None
    found = sorted(places)
    ends = zip([-1, *found], [*found, len(after)], strict=True)
    stretches = [_Stretch(place + 1, following) for place, following in ends if place + 1 < following]
    if len(after) + more * (len(after) - len(before)) > _MOST_EVENTS:
        return None
    sizes = {block: large.requests[block].size for block in range(len(large.requests))}
    for one, other in zip(*grown, strict=True):
        sizes[other] += more * (sizes[other] - small.requests[one].size)
    copies = _RepeatedRequests(large, sizes, after, stretches, more + 1)
    copies.find_families(layers)
    made = copies.make_requests()
    return None if made is None else RepeatedWorkload(made, places != found)


def _pair_grown_blocks(small: Workload, large: Workload, names: tuple[Sequence[str], Sequence[str]]) -> _Pairs | None:
    sized = [
        [(called[block], one.stream, one.persistent, one.size) for block, one in enumerate(work.requests)]
        for work, called in ((small, names[0]), (large, names[1]))
    ]
    first: dict[tuple[object, ...], list[int]] = {}
    second: dict[tuple[object, ...], list[int]] = {}
    for found, mine, others in ((first, sized[0], set(sized[1])), (second, sized[1], set(sized[0]))):
        for block, key in enumerate(mine):
            if key not in others:
                found.setdefault(key[:-1], []).append(block)
    if {key: len(blocks) for key, blocks in first.items()} != {key: len(blocks) for key, blocks in second.items()}:
        return None
    return [block for key in first for block in first[key]], [block for key in first for block in second[key]]


def _list_events(work: Workload, names: Sequence[str], grown: Sequence[int]) -> list[_Event]:
    found = []
    numbers = {block: -number for number, block in enumerate(grown, start=1)}
    for event in work.schedule:
        block = event if event >= 0 else ~event
        one = work.requests[block]
        size = numbers.get(block, one.size)
        key = (size, one.stream, one.persistent, one.batch, names[block], event < 0)
        found.append(_Event(key, block, event < 0))
    return found


class _RepeatedRequests:
    def __init__(
        self,
        work: Workload,
        sizes: Mapping[int, int],
        events: Sequence[_Event],
        stretches: Sequence[_Stretch],
        copies: int,
    ) -> None:
        self._requests, self._sizes, self._events = work.requests, sizes, events
        self._stretches, self._copies = stretches, copies
        self._firsts = [stretch.first for stretch in stretches]
        self._allocated_at = {event.block: number for number, event in enumerate(events) if not event.frees}
        self._freed_at = {event.block: number for number, event in enumerate(events) if event.frees}
        self._queues: dict[int, deque[tuple[int, int]]] = {}  # by block of a family: the blocks to be freed next

    def _find_stretch(self, place: int) -> _Stretch | None:
        number = bisect_right(self._firsts, place) - 1
        stretch = self._stretches[number] if number >= 0 else None
        return stretch if stretch is not None and place < stretch.end else None

    def find_families(self, layers: int) -> None:
        # Find the blocks that every layer allocates in the same way and that are freed outside these stretches.
        # The copies of a stretch free them in the order of the run: oldest first, or newest first.
        for stretch in self._stretches:
            for place in range(stretch.first, stretch.end):
                event = self._events[place]
                freed = self._freed_at.get(event.block)
                if event.frees or freed is None or self._find_stretch(freed) is not None:
                    continue
                family = [event.block]
                for layer in range(1, layers + 1):
                    before = place - layer * (stretch.end - stretch.first)
                    if before < 0 or self._events[before].key != event.key or self._find_stretch(before):
                        break
                    family.insert(0, self._events[before].block)
                self._queue_frees(family)

    def _queue_frees(self, family: list[int]) -> None:
        freed = [self._freed_at.get(block) for block in family]
        places = [place for place in freed if place is not None]
        if len(places) < len(family) or sum(self._find_stretch(place) is not None for place in places) != 1:
            return
        blocks = [(block, 0) for block in family] + [(family[-1], copy) for copy in range(1, self._copies)]
        if places == sorted(places, reverse=True):
            blocks.reverse()
        elif places != sorted(places):
            return
        queue = deque(blocks)
        self._queues.update(dict.fromkeys(family, queue))

    def make_requests(self) -> Workload | None:
        requests: list[Request] = []
        lives: dict[tuple[int, int], int] = {}
        for tick, (block, copy, frees) in enumerate(self._repeat_events()):
            if not frees:
                lives[block, copy] = len(requests)
                requests.append(self._requests[block]._replace(size=self._sizes[block], start=tick, end=None))
                continue
            at = lives.get((block, copy))
            if at is None or requests[at].end is not None:
                return None
            requests[at] = requests[at]._replace(end=tick)
        return make_workload(requests)

    def _repeat_events(self) -> Iterator[tuple[int, int, bool]]:
        place = 0
        while place < len(self._events):
            stretch = self._find_stretch(place)
            end = place + 1 if stretch is None else stretch.end
            for copy in range(1 if stretch is None else self._copies):
                for event in self._events[place:end]:
                    yield from self._repeat_event(event, copy, common=stretch is None)
            place = end

    def _repeat_event(self, event: _Event, copy: int, *, common: bool) -> Iterator[tuple[int, int, bool]]:
        block = event.block
        if not event.frees:
            yield block, copy, False
        elif block in self._queues:
            yield *self._queues[block].popleft(), True
        elif self._find_stretch(self._allocated_at[block]) is None:  # allocated once and freed once
            if not copy:
                yield block, 0, True
        elif common:  # allocated by each copy, freed by none of them
            yield from ((block, each, True) for each in range(self._copies))
        else:
            yield block, copy, True
