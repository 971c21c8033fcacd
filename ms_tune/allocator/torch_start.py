"""What PyTorch's or torch_npu's allocator held before a recording's first event: the state at the end, with every event taken back."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ms_tune.allocator.torch_settings import LARGE_SEGMENT, SMALL_REQUEST, SMALL_SEGMENT
from ms_tune.allocator.torch_space import Held
from ms_tune.trace.torch_snapshot import Action

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ms_tune.trace.torch_snapshot import DeviceTrace, Event

_MAPS = (Action.SEGMENT_MAP, Action.SEGMENT_UNMAP)
_ENDLESS = 1 << 41  # address space of an expandable segment


class RecordingError(ValueError):
    """Events that contradict each other, at a place; the reason is the name of a text."""

    def __init__(self, *, reason: str, event: int) -> None:
        super().__init__(reason)
        self.reason, self.event = reason, event


@dataclass(frozen=True, slots=True)
class Start:
    """What the allocator holds before the first event.

    Attributes:
        segments: Its segments.
        live: Sizes of its live blocks by address.
        requested: What was asked for those.
        streams: Their streams.
    """

    segments: tuple[Held, ...]
    live: Mapping[int, int]
    requested: Mapping[int, int]
    streams: Mapping[int, int]


@dataclass(slots=True)
class _Walk:
    """What is held at a moment, on the way back from the end."""

    live: dict[int, int]
    requested: dict[int, int]
    streams: dict[int, int]
    classic: dict[int, Held]

    def take_back(self, place: int, event: Event, rounded: Callable[[int], int]) -> None:
        """Go back over an event."""
        if event.action is Action.FREE_COMPLETED:
            if event.address in self.live:
                raise RecordingError(reason="free", event=place)
            self.live[event.address] = rounded(event.size)
            self.requested[event.address], self.streams[event.address] = event.size, event.stream
        elif event.action is Action.ALLOC:
            if self.live.pop(event.address, None) is None:
                raise RecordingError(reason="alloc", event=place)
        elif event.action is Action.SEGMENT_ALLOC:
            if self.classic.pop(event.address, None) is None:
                raise RecordingError(reason="segment", event=place)
        elif event.action is Action.SEGMENT_FREE:
            small = event.size == SMALL_SEGMENT
            self.classic[event.address] = Held(event.address, event.size, small, event.stream)


def start_of(device: DeviceTrace, rounded: Callable[[int], int]) -> Start:
    """What was held before the first event: the end, with all events taken back.

    Args:
        device: The device.
        rounded: What a block of a size takes; what was live at the start and was freed later tells only what was asked.

    Raises:
        RecordingError: The events contradict each other.
    """
    final = [block for segment in device.segments for block in segment.blocks if block.active]
    found = _Walk(
        live={block.address: block.size for block in final},
        requested={block.address: block.requested for block in final},
        streams={each.address: one.stream for one in device.segments for each in one.blocks if each.active},
        classic={
            one.address: Held(one.address, one.size, one.small, one.stream)
            for one in device.segments
            if not one.expandable
        },
    )
    for place in range(len(device.events) - 1, -1, -1):
        found.take_back(place, device.events[place], rounded)
    live, requested, streams, classic = found.live, found.requested, found.streams, found.classic
    held = [classic[base] for base in sorted(classic)]
    if any(one.expandable for one in device.segments) or any(event.action in _MAPS for event in device.events):
        held += _expandable(device, live, streams, rounded)
    held.sort(key=lambda one: one.base)
    for one, following in pairwise(held):
        if one.base + one.size > following.base:
            raise RecordingError(reason="segment", event=0)
    return Start(
        tuple(held),
        live,
        {address: requested[address] for address in live},
        {address: streams[address] for address in live},
    )


def _expandable(
    device: DeviceTrace, live: Mapping[int, int], streams: Mapping[int, int], rounded: Callable[[int], int]
) -> list[Held]:
    """The expandable segments with what was mapped before the first event."""
    mapped = Ranges()
    for segment in device.segments:
        if segment.expandable:
            mapped.add(segment.address, segment.address + segment.size)
    for event in reversed(device.events):
        if event.action is Action.SEGMENT_MAP:
            mapped.remove(event.address, event.address + event.size)
        elif event.action is Action.SEGMENT_UNMAP:
            mapped.add(event.address, event.address + event.size)
    # A segment's memory lies side by side; where another's is between, there are two segments.
    runs: list[tuple[tuple[bool, int], int]] = []
    for start, kind in sorted(_kinds(device, live, streams, rounded)):
        if not runs or runs[-1][0] != kind:
            runs.append((kind, start))
    found = []
    for number, ((small, stream), base) in enumerate(runs):
        end = runs[number + 1][1] if number + 1 < len(runs) else base + _ENDLESS
        ranges = mapped.between(base, end)
        if ranges:  # others are taken in the course of the trace
            found.append(Held(base, min(end - base, _ENDLESS), small, stream, tuple(ranges)))
    return found


def _kinds(
    device: DeviceTrace, live: Mapping[int, int], streams: Mapping[int, int], rounded: Callable[[int], int]
) -> list[tuple[int, tuple[bool, int]]]:
    """Where memory is ever mapped, and the pool: that of the block that it was mapped for."""
    seen = Ranges()
    kinds: list[tuple[int, tuple[bool, int]]] = []

    def tell(address: int, size: int, kind: tuple[bool, int]) -> None:
        kinds.extend((start, kind) for start, _ in seen.missing(address, address + size))
        seen.add(address, address + size)

    for segment in device.segments:
        if segment.expandable:
            tell(segment.address, segment.size, (segment.small, segment.stream))
    waiting: list[Event] = []
    untold: list[Event] = []
    for event in device.events:
        if event.action is Action.SEGMENT_MAP:
            waiting.append(event)
        elif event.action is Action.SEGMENT_UNMAP:
            untold.append(event)
        elif event.action is Action.ALLOC and waiting:
            for taken in waiting:
                tell(taken.address, taken.size, (rounded(event.size) <= SMALL_REQUEST, event.stream))
            waiting = []
    order = sorted(live)
    for event in untold:  # mapped before the first event: what lived there tells
        at = bisect_left(order, event.address)
        inside = at < len(order) and order[at] < event.address + event.size
        guess = event.size < LARGE_SEGMENT or event.size % LARGE_SEGMENT != 0
        kind = (live[order[at]] <= SMALL_REQUEST, streams[order[at]]) if inside else (guess, event.stream)
        tell(event.address, event.size, kind)
    return kinds


class Ranges:
    """A set of addresses as ascending ranges that do not touch."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Put a range in."""
        if end <= start:
            return
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]

    def remove(self, start: int, end: int) -> None:
        """Take a range out."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if first >= last or end <= start:
            return
        left = [(self._starts[first], start)] if self._starts[first] < start else []
        right = [(end, self._ends[last - 1])] if self._ends[last - 1] > end else []
        kept = left + right
        self._starts[first:last] = [one for one, _ in kept]
        self._ends[first:last] = [one for _, one in kept]

    def between(self, start: int, end: int) -> list[tuple[int, int]]:
        """What is in the set of a range."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        pairs = zip(self._starts[first:last], self._ends[first:last], strict=True)
        return [(max(low, start), min(high, end)) for low, high in pairs]

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """What is not in the set of a range."""
        found = []
        for low, high in self.between(start, end):
            if low > start:
                found.append((start, low))
            start = high
        return [*found, (start, end)] if start < end else found
