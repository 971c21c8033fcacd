"""Replays what a snapshot of PyTorch's or torch_npu's allocator recorded: exactly, or not at all.

The state before the first event is walked back from the state at the end; then every event is carried out and compared:
the address of each block, what the allocator took from the device for it, what it gave back, and the layout at the end. A
recording that differs anywhere is not this allocator's, or not with these settings: no figure is taken from its replay.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ms_tune.allocator.torch_pool import Held, SeedError, TorchPool
from ms_tune.allocator.torch_settings import (
    LARGE_SEGMENT,
    NPU_BASE_ALIGNMENT,
    NPU_PADDING,
    SMALL_REQUEST,
    SMALL_SEGMENT,
    TorchSettings,
)
from ms_tune.allocator.workload import Request
from ms_tune.trace.torch_snapshot import Action
from ms_tune.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ms_tune.allocator.pool import Growth
    from ms_tune.trace.torch_snapshot import DeviceTrace, Event

_ENDLESS = 1 << 41
_SPLITS = (32, 64, 128, 256, 512)  # MiB of max_split_size_mb that people set
_TAKES = (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)
_GIVES = (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)


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


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between a recording and its replay.

    Attributes:
        event: Its place in the trace; the number of events if it is in the layout at the end.
        what: ``address``, ``growth``, ``release``, ``layout`` or a contradiction in the recording.
        recorded: What the file tells, 0 where it is no number.
        replayed: What the replay makes of it.
    """

    event: int
    what: str
    recorded: int = 0
    replayed: int = 0


@dataclass(slots=True)
class TorchReplay:
    """A recording beside its replay.

    Attributes:
        settings: Those that reproduce it, or most of it.
        start: What was held before the first event.
        allocations: How many there are.
        differences: How many of them, of releases and of blocks at the end differ; 0 if the replay is exact.
        first: The first difference.
        used: Bytes of live blocks after each event, in block sizes.
        reserved: Bytes taken from the device after each event.
        sizes: The block size of each event that allocates.
        growths: When and why memory was taken; ``request`` is the place of the event.
    """

    settings: TorchSettings
    start: Start
    allocations: int = 0
    differences: int = 0
    first: Difference | None = None
    used: list[int] = field(default_factory=list)
    reserved: list[int] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    growths: tuple[Growth, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether nothing differs."""
        return self.first is None

    def differs(self, difference: Difference, count: int = 1) -> None:
        """Count a difference."""
        self.differences += count
        if self.first is None:
            self.first = difference


def replay_recording(
    device: DeviceTrace, told: TorchSettings, on_progress: Callable[[float], None] = lambda _: None
) -> TorchReplay:
    """Replay one device's events with the settings of CUDA and of an NPU, whichever reproduce them.

    Args:
        device: The device.
        told: What the snapshot tells of the settings.
        on_progress: Told the share that is done.
    """
    expandable = any(event.action in (Action.SEGMENT_MAP, Action.SEGMENT_UNMAP) for event in device.events) or any(
        segment.expandable for segment in device.segments
    )
    plain = replace(told, expandable=expandable)
    npu = replace(plain, padding=NPU_PADDING, base_alignment=NPU_BASE_ALIGNMENT if expandable else 0)
    tried = [plain, npu, *([replace(npu, base_alignment=0)] if expandable else [])]
    if _padded(device):
        tried = [*tried[1:], plain]
    if told.max_split is None and not expandable:  # torch_npu's files do not tell the setting
        tried += [replace(settings, max_split=limit * MIB) for settings in tried for limit in _SPLITS]
    best, furthest = tried[0], -1
    for number, settings in enumerate(tried):
        on_progress(number / len(tried))
        found = _tried(device, settings, lambda _share: None, stop=True)
        if found.first is None:
            return found
        if found.first.event > furthest:
            best, furthest = settings, found.first.event
    return _tried(device, best, on_progress, stop=False)


def _tried(
    device: DeviceTrace, settings: TorchSettings, on_progress: Callable[[float], None], *, stop: bool
) -> TorchReplay:
    """The replay under some settings; up to the first difference if nobody needs more."""
    try:
        return _replay(device, settings, on_progress, stop=stop)
    except RecordingError as error:
        return _contradiction(device, settings, error)
    except (LookupError, AssertionError):  # memory is taken where there is some already, which no allocator does
        return _contradiction(device, settings, RecordingError(reason="segment", event=0))


def _padded(device: DeviceTrace) -> bool:
    """Whether a block takes 512 bytes more than what was asked for needs, as on an NPU."""
    return any(
        block.active
        and block.requested % 512 in (0, *range(481, 512))
        and block.size == -(-block.requested // 512) * 512 + 512
        for segment in device.segments
        for block in segment.blocks
    )


def _contradiction(device: DeviceTrace, settings: TorchSettings, error: RecordingError) -> TorchReplay:
    count = sum(event.action is Action.ALLOC for event in device.events)
    found = TorchReplay(settings, Start((), {}, {}, {}), count)
    found.differs(Difference(error.event, error.reason), max(count, 1))
    return found


class _Bases:
    """The addresses of what the recorded allocator took for the block that is being allocated."""

    def __init__(self) -> None:
        self.queue: deque[int] = deque()

    def __iter__(self) -> _Bases:
        return self

    def __next__(self) -> int:
        if not self.queue:
            raise StopIteration
        return self.queue.popleft()


def _replay(
    device: DeviceTrace, settings: TorchSettings, on_progress: Callable[[float], None], *, stop: bool
) -> TorchReplay:
    run = _Run(device, TorchReplay(settings, start_of(device, settings.rounded)))
    for place, event in enumerate(device.events):
        run.carry_out(place, event)
        if stop and run.found.first is not None:
            return run.found
        if not place % 4096:
            on_progress(place / len(device.events))
    run.found.growths = tuple(run.pool.state.growths)
    _compare_layout(run.found, device, run.pool)
    return run.found


class _Run:
    """A replay as it goes on.

    Args:
        device: The device.
        found: What is found, with settings and start.
    """

    def __init__(self, device: DeviceTrace, found: TorchReplay) -> None:
        self._events = device.events
        self.found = found
        self._bases = _Bases()
        self.pool = TorchPool(found.settings, self._bases)
        try:
            self.pool.seed(found.start.segments, found.start.live)
        except SeedError:
            raise RecordingError(reason="start", event=0) from None
        self._recorded = self.pool.state.reserved  # what the events tell of it
        self._where = {address: address for address in found.start.live}
        self._taken: list[tuple[int, int]] = []  # what was taken from the device for the block that comes next

    def carry_out(self, place: int, event: Event) -> None:
        """Carry out an event and compare."""
        if event.action is Action.ALLOC:
            self._allocate(place, event)
        elif event.action is Action.FREE_COMPLETED:
            address = self._where.pop(event.address, None)
            if address is None or not self.pool.is_live(address):
                raise RecordingError(reason="free", event=place)
            self.pool.free(address)
        elif event.action in _TAKES:
            self._taken.append((event.address, event.size))
            self._recorded += event.size
        elif event.action in _GIVES:
            self._give(place, event)
        self.found.used.append(self.pool.state.used)
        self.found.reserved.append(self.pool.state.reserved)

    def _allocate(self, place: int, event: Event) -> None:
        if event.address in self._where:
            raise RecordingError(reason="alloc", event=place)
        found, state = self.found, self.pool.state
        found.allocations += 1
        self._bases.queue = deque(address for address, _ in self._taken)
        wanted = sum(size for _, size in self._taken)
        self._taken = []
        state.request = place
        held, before = state.reserved, len(state.growths)
        address = self._where[event.address] = self.pool.allocate(Request(event.size, place, None, event.stream))
        found.sizes[place] = self.pool.size_at(address)
        if address != event.address:
            found.differs(Difference(place, "address", event.address, address))
        elif state.reserved - held != wanted:
            grown = sum(growth.unit_bytes for growth in state.growths[before:])
            found.differs(Difference(place, "growth", wanted, grown))

    def _give(self, place: int, event: Event) -> None:
        """A run of segments that are given back is one call of ``empty_cache``."""
        self._recorded -= event.size
        if not place or self._events[place - 1].action not in _GIVES:
            self.pool.state.request = place
            self.pool.release()
        last = place + 1 == len(self._events) or self._events[place + 1].action not in _GIVES
        if last and self.pool.state.reserved != self._recorded:
            self.found.differs(Difference(place, "release", self._recorded, self.pool.state.reserved))


def _compare_layout(found: TorchReplay, device: DeviceTrace, pool: TorchPool) -> None:
    recorded = {block.address: (block.size, block.active) for segment in device.segments for block in segment.blocks}
    ours = pool.layout()
    wrong = [address for address in {*recorded, *ours} if recorded.get(address) != ours.get(address)]
    if wrong:
        first = min(wrong)
        there, here = recorded.get(first, (0, False)), ours.get(first, (0, False))
        found.differs(Difference(len(device.events), "layout", there[0], here[0]), len(wrong))


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
    held = [*(classic[base] for base in sorted(classic)), *_expandable(device, live, streams, rounded)]
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
