"""Compute the state of PyTorch's or torch_npu's allocator before a recording's first event, by undoing all events."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Mapping
from itertools import pairwise

import numpy as np

from ms_tune.pools.pool import ALIGNMENT
from ms_tune.pools.torch_space import (
    EXPANDABLE_SPACE,
    LARGE_SEGMENT,
    SMALL_REQUEST,
    SMALL_SEGMENT,
    InitialSegment,
    TorchSettings,
)
from ms_tune.readers.torch_snapshot import Action, DeviceTrace
from ms_tune.records import Record

_MAPS = (Action.SEGMENT_MAP, Action.SEGMENT_UNMAP)


class RecordingError(ValueError):
    """A contradiction between events, at the given event; the reason is the name of a text."""

    def __init__(self, *, reason: str, event: int) -> None:
        super().__init__(reason)
        self.reason, self.event = reason, event


class Start(Record):
    """The state of the allocator before the first event."""

    segments: tuple[InitialSegment, ...]
    live: Mapping[int, int]  # sizes of its live blocks by address
    requested: Mapping[int, tuple[int, int]]  # bytes requested for those blocks, and their streams
    # Bytes by which some of those blocks may be larger: (the event that frees the block, the bytes).
    uncertain: tuple[tuple[int, int], ...] = ()


def rewind_recording(device: DeviceTrace, settings: TorchSettings) -> Start:
    """Return the allocator's state before the first event; RecordingError if events contradict each other.

    Of blocks that were live at the start and freed later only the request is recorded, and not the unsplit
    remainder after it, which follows from the blocks after them.
    """
    rounded = settings.round_request
    final = {each.address: (each, one.stream) for one in device.segments for each in one.blocks if each.active}
    wrong = _find_contradiction(device, final)
    classic = _classic_segments(device, wrong.event if wrong is not None else -1)
    if wrong is not None:
        raise wrong
    live = {address: block.size for address, (block, _) in final.items()}
    asked = {address: (block.requested, stream) for address, (block, stream) in final.items()}
    freed: dict[int, int] = {}  # blocks that were live at the start: the events that free them
    for address, place, allocates in device.events.first_turns():
        if allocates:
            live.pop(address, None)
        else:
            event = device.events[place]
            live[address], asked[address], freed[address] = rounded(event.size), (event.size, event.stream), place
    segments = [classic[base] for base in sorted(classic)]
    uncertain = _extend_blocks(device, segments, live, freed, settings.max_split)
    if any(one.expandable for one in device.segments) or device.events.rows_with(*_MAPS).any():
        segments += _expandable_segments(device, live, asked, rounded)
    segments.sort(key=lambda one: one.base)
    for one, following in pairwise(segments):
        if one.base + one.size > following.base:
            raise RecordingError(reason="segment", event=0)
    return Start(tuple(segments), live, {address: asked[address] for address in live}, uncertain)


def _extend_blocks(
    device: DeviceTrace,
    segments: Iterable[InitialSegment],
    live: dict[int, int],
    freed: Mapping[int, int],
    max_split: int | None,
) -> tuple[tuple[int, int], ...]:
    # Add to blocks the unsplit remainders after them, and return the unknown ones (as in `Start.uncertain`).
    # In the large pool a remainder of up to `SMALL_REQUEST` stays with the block (`should_split`), so that no free block
    # is that small. A larger gap is a free block, from whose beginning later blocks are allocated: the lowest of them,
    # if it lies within `SMALL_REQUEST`, is where the block before it ends.
    turns, order = device.events.turns_by_address, sorted(live)
    starts, places = turns.address[turns.allocates], turns.place[turns.allocates]
    uncertain = []
    for segment in segments:
        end = segment.base + segment.size
        inside = order[bisect_left(order, segment.base) : bisect_left(order, end)]
        for address, following in pairwise([*inside, end]):
            if segment.small or address not in freed:
                continue
            own_end = address + live[address]
            gap = following - own_end
            if gap <= SMALL_REQUEST or (max_split is not None and live[address] >= max_split):
                live[address] += max(gap, 0)
                continue
            behind = slice(*np.searchsorted(starts, [own_end, own_end + SMALL_REQUEST + 1]))
            marks = starts[behind][places[behind] < freed[address]]
            if len(marks):
                live[address] = int(marks[0]) - address
            elif gap > SMALL_REQUEST + ALIGNMENT:
                uncertain.append((freed[address], min(SMALL_REQUEST, gap - SMALL_REQUEST - ALIGNMENT)))
    return tuple(uncertain)


def _find_contradiction(device: DeviceTrace, final: Container[int]) -> RecordingError | None:
    # At each address, allocations and releases must alternate, and end in the final state.
    turns = device.events.turns_by_address
    following = np.append(turns.allocates[1:], False)
    lives = ~following  # live after this event, seen backwards: a block that is released next must be live now
    ends = np.flatnonzero(turns.last)
    lives[ends] = [address in final for address in turns.address[ends].tolist()]
    wrong = np.flatnonzero(lives != turns.allocates)
    if not len(wrong):
        return None
    place = wrong[np.argmax(turns.place[wrong])]
    return RecordingError(reason="alloc" if turns.allocates[place] else "free", event=int(turns.place[place]))


def _classic_segments(device: DeviceTrace, before: int) -> dict[int, InitialSegment]:
    classic = {
        one.address: InitialSegment(one.address, one.size, one.small, one.stream)
        for one in device.segments
        if not one.expandable
    }
    places = device.events.places_with(Action.SEGMENT_ALLOC, Action.SEGMENT_FREE)[::-1]
    for place, action, address, size, stream in device.events.iterate_rows(places[places > before]):
        if action == Action.SEGMENT_FREE:
            classic[address] = InitialSegment(address, size, size == SMALL_SEGMENT, stream)
        elif classic.pop(address, None) is None:
            raise RecordingError(reason="segment", event=place)
    return classic


def _expandable_segments(
    device: DeviceTrace, live: Mapping[int, int], asked: Mapping[int, tuple[int, int]], rounded: Callable[[int], int]
) -> list[InitialSegment]:
    mapped = Ranges()
    for segment in device.segments:
        if segment.expandable:
            mapped.add(segment.address, segment.address + segment.size)
    for _, action, address, size, _ in device.events.iterate_rows(device.events.places_with(*_MAPS)[::-1]):
        change = mapped.remove if action == Action.SEGMENT_MAP else mapped.add
        change(address, address + size)
    # Each expandable segment covers one run of addresses; a run of another kind in between splits it into two segments.
    runs: list[tuple[tuple[bool, int], int]] = []
    for start, kind in sorted(_segment_kinds(device, live, asked, rounded)):
        if not runs or runs[-1][0] != kind:
            runs.append((kind, start))
    found = []
    for number, ((small, stream), base) in enumerate(runs):
        end = runs[number + 1][1] if number + 1 < len(runs) else base + EXPANDABLE_SPACE
        ranges = mapped.ranges_between(base, end)
        if ranges:  # segments without mapped ranges are created in the course of the trace
            found.append(InitialSegment(base, min(end - base, EXPANDABLE_SPACE), small, stream, tuple(ranges)))
    return found


def _segment_kinds(
    device: DeviceTrace, live: Mapping[int, int], asked: Mapping[int, tuple[int, int]], rounded: Callable[[int], int]
) -> list[tuple[int, tuple[bool, int]]]:
    seen, events = Ranges(), device.events
    kinds: list[tuple[int, tuple[bool, int]]] = []

    def add_kind(address: int, size: int, kind: tuple[bool, int]) -> None:
        kinds.extend((start, kind) for start, _ in seen.missing_between(address, address + size))
        seen.add(address, address + size)

    for segment in device.segments:
        if segment.expandable:
            add_kind(segment.address, segment.size, (segment.small, segment.stream))
    mapped, allocations = events.places_with(Action.SEGMENT_MAP), events.places_with(Action.ALLOC)
    following = np.searchsorted(allocations, mapped)  # memory is mapped for the block that is allocated next
    there = following < len(allocations)
    taken, blocks = events.iterate_rows(mapped[there]), events.iterate_rows(allocations[following[there]])
    for (_, _, address, size, _), (_, _, _, wanted, stream) in zip(taken, blocks, strict=True):
        add_kind(address, size, (rounded(wanted) <= SMALL_REQUEST, stream))
    order = sorted(live)
    # For ranges mapped before the first event, the live blocks in them determine the kind.
    for _, _, address, size, stream in events.iterate_rows(events.places_with(Action.SEGMENT_UNMAP)):
        at = bisect_left(order, address)
        inside = at < len(order) and order[at] < address + size
        guess = size < LARGE_SEGMENT or size % LARGE_SEGMENT != 0
        add_kind(address, size, (live[order[at]] <= SMALL_REQUEST, asked[order[at]][1]) if inside else (guess, stream))
    return kinds


class Ranges:
    """A set of addresses as ascending ranges that do not touch."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Add a range."""
        if end <= start:
            return
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]

    def remove(self, start: int, end: int) -> None:
        """Remove a range."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if first >= last or end <= start:
            return
        left = [(self._starts[first], start)] if self._starts[first] < start else []
        right = [(end, self._ends[last - 1])] if self._ends[last - 1] > end else []
        kept = left + right
        self._starts[first:last] = [one for one, _ in kept]
        self._ends[first:last] = [one for _, one in kept]

    def ranges_between(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of a range that are in the set."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        pairs = zip(self._starts[first:last], self._ends[first:last], strict=True)
        return [(max(low, start), min(high, end)) for low, high in pairs]

    def missing_between(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of a range that are not in the set."""
        found = []
        for low, high in self.ranges_between(start, end):
            if low > start:
                found.append((start, low))
            start = high
        return [*found, (start, end)] if start < end else found
