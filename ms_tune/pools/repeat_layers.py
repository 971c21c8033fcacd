"""Extrapolate the requests of two runs that differ by one or a few layers to a run with many: repeat the additional events.

The events of the smaller run are matched in the larger one (:func:`match_events`); the unmatched rest belongs to the
additional layers: stretches of the forward pass, the backward pass and the optimizer. Each stretch is repeated. Blocks
that every layer allocates and another stretch frees are freed in the order of the run: oldest first (data that one
layer passes to the next) or newest first (data that the backward pass consumes). If that fails, nothing is returned.
The caller compares the peak of the result with the expected one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_tune.pools.workload import Request, Workload, make_workload

_Pairs = tuple[list[int], list[int]]

_MOST_ALIGNED = 100_000  # events of the smaller run: half a kilobyte each
_PAIR = 2
_ONE_IN_LAYER = 4  # limit on events that a layer has more or less than the one before
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


class RequestOrigin(NamedTuple):
    """Where a request of a repeated run comes from; a stretch is -1 outside all of them."""

    block: int  # the request of the larger run that it repeats
    stretch: int  # the stretch that allocates it
    copy: int  # the repetition of that stretch, from 0
    freed_like: int = -1  # the request of the larger run whose release frees it; -1 if nothing frees it
    freed_in: int = -1  # the stretch of that release
    freed_copy: int = 0  # the repetition of that stretch


class RepeatedClock(NamedTuple):
    """The ticks of a repeated run: each stretch of the larger run passes several times."""

    begins: NDArray[np.int64]  # first tick of each stretch in the larger run, ascending
    lengths: NDArray[np.int64]  # ticks from there to the next copy
    copies: int

    def find_stretches(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of the stretch that contains each tick; -1 outside all of them."""
        if not len(self.begins):
            return np.full(len(ticks), -1, np.int64)
        last = np.searchsorted(self.begins, ticks, side="right") - 1
        inside = (last >= 0) & (ticks < self.begins[last] + self.lengths[last])
        return np.where(inside, last, -1)

    def move_ticks(
        self, ticks: NDArray[np.int64], stretches: NDArray[np.int64], copies: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the ticks of the repeated run at which ticks of the larger one pass, in one copy of their stretch."""
        added = np.concatenate([[0], np.cumsum(self.lengths * (self.copies - 1))])
        over = np.searchsorted(self.begins, ticks, side="right")
        inside = stretches >= 0
        passed = np.where(inside, added[stretches], added[over])
        return np.asarray(
            ticks + passed + np.where(inside, copies * np.append(self.lengths, 0)[stretches], 0), np.int64
        )


class RepeatedWorkload(NamedTuple):
    """The requests of a run with more layers."""

    work: Workload
    moved: bool  # whether some events of the smaller run are in another order in the larger one
    origins: tuple[RequestOrigin, ...]  # one per request
    clock: RepeatedClock


class _Event(NamedTuple):
    key: tuple[object, ...]
    block: int
    frees: bool
    tick: int


class _Stretch(NamedTuple):
    """A stretch of events that only the larger run has; ``end`` is exclusive."""

    first: int
    end: int


def repeat_layers(
    small: Workload, large: Workload, names: tuple[Sequence[Hashable], Sequence[Hashable]], layers: int, more: int
) -> RepeatedWorkload | None:
    """Return the larger run with the events of its ``layers`` additional layers repeated ``more`` times, in order.

    None if the smaller run cannot be matched in the larger one, or the repetition would free a block that is not live.
    ``names`` contains a name for the code that allocates each request, with the same name in all layers.
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
    stretches = _join_stretches([event.key for event in after], stretches)
    if len(after) + more * (len(after) - len(before)) > _MOST_EVENTS:
        return None
    sizes = {block: large.requests[block].size for block in range(len(large.requests))}
    for one, other in zip(*grown, strict=True):
        sizes[other] += more * (sizes[other] - small.requests[one].size)
    copies = _RepeatedRequests(large, sizes, after, stretches, more + 1)
    copies.find_families(layers)
    return copies.make_workload(moved=places != found)


def _join_stretches(keys: Sequence[Hashable], stretches: Sequence[_Stretch]) -> list[_Stretch]:
    # Matching early can leave a layer in pieces, with a few events between them that equal events at its end. Join such
    # pieces if the same events, in the same order, are left outside a single stretch.
    found: list[_Stretch] = []
    cluster: list[_Stretch] = []
    for stretch in stretches:
        longest = max([stretch.end - stretch.first, *(one.end - one.first for one in cluster)])
        if cluster and stretch.first - cluster[-1].end >= longest:
            found += _join_cluster(keys, cluster)
            cluster = []
        cluster.append(stretch)
    return [*found, *_join_cluster(keys, cluster)]


def _join_cluster(keys: Sequence[Hashable], cluster: list[_Stretch]) -> list[_Stretch]:
    if len(cluster) < _PAIR:
        return cluster
    first, end = cluster[0].first, cluster[-1].end
    length = sum(one.end - one.first for one in cluster)
    common = [keys[place] for one, other in pairwise(cluster) for place in range(one.end, other.first)]
    for at in range(len(common) + 1):
        if keys[first + at + length : end] == common[at:]:
            return [_Stretch(first + at, first + at + length)]
        if at < len(common) and keys[first + at] != common[at]:
            break
    gaps = [other.first - one.end for one, other in pairwise(cluster)]
    widest = gaps.index(max(gaps)) + 1
    return [*_join_cluster(keys, cluster[:widest]), *_join_cluster(keys, cluster[widest:])]


def _pair_grown_blocks(
    small: Workload, large: Workload, names: tuple[Sequence[Hashable], Sequence[Hashable]]
) -> _Pairs | None:
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


def _list_events(work: Workload, names: Sequence[Hashable], grown: Sequence[int]) -> list[_Event]:
    found = []
    numbers = {block: -number for number, block in enumerate(grown, start=1)}
    for event in work.schedule:
        block = event if event >= 0 else ~event
        one = work.requests[block]
        size = numbers.get(block, one.size)
        key = (size, one.stream, one.persistent, one.batch, names[block], event < 0)
        found.append(_Event(key, block, event < 0, one.start if event >= 0 or one.end is None else one.end))
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
        # Copies of a stretch follow each other without gaps, and never share a tick.
        last = [events[stretch.end - 1].tick + 1 for stretch in stretches]
        following = [events[one.end].tick if one.end < len(events) else 0 for one in stretches]
        begins = [events[first].tick for first in self._firsts]
        self._lengths = [max(pair) - begin for *pair, begin in zip(last, following, begins, strict=True)]
        self._delays = [0, *accumulate(length * (copies - 1) for length in self._lengths)]
        self.clock = RepeatedClock(np.array(begins, np.int64), np.array(self._lengths, np.int64), copies)
        self._allocated_at = {event.block: number for number, event in enumerate(events) if not event.frees}
        self._freed_at = {event.block: number for number, event in enumerate(events) if event.frees}
        self._queues: dict[int, deque[tuple[int, int]]] = {}  # by block of a family: the blocks to be freed next

    def _find_number(self, place: int) -> int:
        number = bisect_right(self._firsts, place) - 1
        return number if number >= 0 and place < self._stretches[number].end else -1

    def _find_stretch(self, place: int) -> _Stretch | None:
        number = self._find_number(place)
        return self._stretches[number] if number >= 0 else None

    def find_families(self, layers: int) -> None:
        # Find the blocks that every layer allocates in the same way and that are freed outside these stretches.
        # The copies of a stretch free them in the order of the run: oldest first, or newest first.
        alike: dict[Hashable, list[int]] = {}
        for place, event in enumerate(self._events):
            if not event.frees:
                alike.setdefault(event.key, []).append(place)
        for stretch in self._stretches:
            for place in range(stretch.first, stretch.end):
                event = self._events[place]
                freed = self._freed_at.get(event.block)
                if event.frees or freed is None or self._find_stretch(freed) is not None:
                    continue
                places = alike[event.key]
                each = bisect_left(places, stretch.end) - bisect_left(places, stretch.first)  # per layer
                earlier = places[bisect_left(places, place) % each : bisect_left(places, place) : each][-layers:]
                family, length = [event.block], stretch.end - stretch.first
                for before, after in zip(reversed(earlier), [place, *reversed(earlier)], strict=False):
                    # A layer may have a few events of its own, the first one most.
                    if abs(after - before - length) > length // _ONE_IN_LAYER or self._find_stretch(before):
                        break
                    family.insert(0, self._events[before].block)
                self._queue_frees(family)

    def _queue_frees(self, family: list[int]) -> None:
        blocks = [(block, 0) for block in family] + [(family[-1], copy) for copy in range(1, self._copies)]
        freed = [self._freed_at.get(block) for block in family]
        places = [place for place in freed if place is not None]
        if len(places) < len(family):
            return
        *others, last = places
        if len(others) >= _PAIR and self._are_ordered(others, reverse=True) and last > others[0]:
            # The output of the last layer is kept longest: for the next stage, or for the loss.
            self._queues[family[-1]] = deque([blocks.pop()])
            family = family[:-1]
            blocks.reverse()
        elif self._are_ordered(places, reverse=True):
            blocks.reverse()
        elif not self._are_ordered(places, reverse=False):
            return
        queue = deque(blocks)
        self._queues.update(dict.fromkeys(family, queue))

    def _are_ordered(self, places: list[int], *, reverse: bool) -> bool:
        once = sum(self._find_stretch(place) is not None for place in places) == 1
        return once and places == sorted(places, reverse=reverse)

    def make_workload(self, *, moved: bool) -> RepeatedWorkload | None:
        requests: list[Request] = []
        origins: list[RequestOrigin] = []
        lives: dict[tuple[int, int], int] = {}
        for place, repetition, block, copy in self._repeat_events():
            event = self._events[place]
            number = self._find_number(place)
            if number >= 0:
                delay = self._delays[number] + repetition * self._lengths[number]
            else:
                delay = self._delays[bisect_right(self._firsts, place)]
            tick = event.tick + delay
            if not event.frees:
                lives[block, copy] = len(requests)
                requests.append(self._requests[block]._replace(size=self._sizes[block], start=tick, end=None))
                origins.append(RequestOrigin(block, number, copy))
                continue
            at = lives.get((block, copy))
            if at is None or requests[at].end is not None:
                return None
            requests[at] = requests[at]._replace(end=tick)
            origins[at] = origins[at]._replace(freed_like=event.block, freed_in=number, freed_copy=repetition)
        return RepeatedWorkload(make_workload(requests), moved, tuple(origins), self.clock)

    def _repeat_events(self) -> Iterator[tuple[int, int, int, int]]:
        # Yield events with their repetition, and the block and copy that they allocate or free.
        place = 0
        while place < len(self._events):
            stretch = self._find_stretch(place)
            end = place + 1 if stretch is None else stretch.end
            for copy in range(1 if stretch is None else self._copies):
                for each in range(place, end):
                    for block, freed in self._repeat_event(self._events[each], copy, common=stretch is None):
                        yield each, copy, block, freed
            place = end

    def _repeat_event(self, event: _Event, copy: int, *, common: bool) -> Iterator[tuple[int, int]]:
        block = event.block
        if not event.frees:
            yield block, copy
        elif block in self._queues:
            yield self._queues[block].popleft()
        elif self._find_stretch(self._allocated_at[block]) is None:  # allocated once and freed once
            if not copy:
                yield block, 0
        elif common:  # allocated by each copy, freed by none of them
            yield from ((block, each) for each in range(self._copies))
        else:
            yield block, copy
