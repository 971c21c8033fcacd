"""Replays what a snapshot of PyTorch's or torch_npu's allocator recorded: exactly, or not at all.

The state before the first event is walked back from the state at the end; then every event is carried out and compared:
the address of each block, what the allocator took from the device for it, what it gave back, and the layout at the end. A
recording that differs anywhere is not this allocator's, or not with these settings: no figure is taken from its replay.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field, replace
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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ms_tune.allocator.pool import Growth
    from ms_tune.trace.torch_snapshot import DeviceTrace, Event

_PAGE = SMALL_SEGMENT  # the least that expandable segments map
_ENDLESS = 1 << 41
_MOST_PAGES = 4_000_000  # 8 TiB; more is no device
_TAKES = (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)
_GIVES = (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)


class RecordingError(ValueError):
    """Events that contradict each other, at a place; the reason is the name of a text."""

    def __init__(self, reason: str, event: int) -> None:
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
    best: TorchReplay | None = None
    for number, settings in enumerate(tried):
        try:
            found = _replay(device, settings, lambda share, at=number: on_progress((at + share) / len(tried)))
        except RecordingError as error:
            found = _contradiction(device, settings, error)
        if found.exact:
            return found
        if best is None or found.differences < best.differences:
            best = found
    assert best is not None  # noqa: S101 - at least one was tried
    return best


def _padded(device: DeviceTrace) -> bool:
    """Whether a block takes 512 bytes more than what was asked for needs, as on an NPU."""
    return any(
        block.active and block.requested % 512 in (0, *range(481, 512)) and block.size == -(-block.requested // 512) * 512 + 512
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


def _replay(device: DeviceTrace, settings: TorchSettings, on_progress: Callable[[float], None]) -> TorchReplay:
    start = start_of(device, settings.rounded)
    bases = _Bases()
    pool = TorchPool(settings, bases)
    found = TorchReplay(settings, start)
    try:
        pool.seed(start.segments, start.live)
    except SeedError:
        raise RecordingError("start", 0) from None
    begun = pool.state.reserved
    where = {address: address for address in start.live}
    wanted: list[tuple[int, int]] = []
    recorded = begun
    for place, event in enumerate(device.events):
        action = event.action
        if action is Action.ALLOC:
            found.allocations += 1
            _allocate(found, pool, bases, (place, event), wanted, where)
            wanted = []
        elif action is Action.FREE_COMPLETED:
            address = where.pop(event.address, None)
            if address is None or not pool.is_live(address):
                raise RecordingError("free", place)
            pool.free(address)
        elif action in _TAKES:
            wanted.append((event.address, event.size))
            recorded += event.size
        elif action in _GIVES:
            recorded -= event.size
            if not place or device.events[place - 1].action not in _GIVES:
                pool.state.request = place
                pool.release()
            last = place + 1 == len(device.events) or device.events[place + 1].action not in _GIVES
            if last and pool.state.reserved != recorded:
                found.differs(Difference(place, "release", recorded, pool.state.reserved))
        found.used.append(pool.state.used)
        found.reserved.append(pool.state.reserved)
        if not place % 4096:
            on_progress(place / len(device.events))
    found.growths = tuple(pool.state.growths)
    _compare_layout(found, device, pool)
    return found


def _allocate(
    found: TorchReplay,
    pool: TorchPool,
    bases: _Bases,
    at: tuple[int, Event],
    wanted: Sequence[tuple[int, int]],
    where: dict[int, int],
) -> None:
    place, event = at
    if event.address in where:
        raise RecordingError("alloc", place)
    bases.queue = deque(address for address, _ in wanted)
    pool.state.request = place
    before, held = len(pool.state.growths), pool.state.reserved
    address = pool.allocate(Request(event.size, place, None, event.stream))
    where[event.address] = address
    found.sizes[place] = pool.size_at(address)
    if address != event.address:
        found.differs(Difference(place, "address", event.address, address))
    elif pool.state.reserved - held != sum(size for _, size in wanted):
        taken = sum(growth.unit_bytes for growth in pool.state.growths[before:])
        found.differs(Difference(place, "growth", sum(size for _, size in wanted), taken))


def _compare_layout(found: TorchReplay, device: DeviceTrace, pool: TorchPool) -> None:
    recorded = {
        block.address: (block.size, block.active) for segment in device.segments for block in segment.blocks
    }
    ours = pool.layout()
    wrong = [address for address in {*recorded, *ours} if recorded.get(address) != ours.get(address)]
    if wrong:
        first = min(wrong)
        there, here = recorded.get(first, (0, False)), ours.get(first, (0, False))
        found.differs(Difference(len(device.events), "layout", there[0], here[0]), len(wrong))


def start_of(device: DeviceTrace, rounded: Callable[[int], int]) -> Start:
    """What was held before the first event: the end, with all events taken back.

    Args:
        device: The device.
        rounded: What a block of a size takes; what was live at the start and was freed later tells only what was asked.

    Raises:
        RecordingError: The events contradict each other.
    """
    final = [block for segment in device.segments for block in segment.blocks if block.active]
    live = {block.address: block.size for block in final}
    requested = {block.address: block.requested for block in final}
    streams = {block.address: segment.stream for segment in device.segments for block in segment.blocks if block.active}
    classic = {
        segment.address: Held(segment.address, segment.size, segment.small, segment.stream)
        for segment in device.segments
        if not segment.expandable
    }
    for place in range(len(device.events) - 1, -1, -1):
        event = device.events[place]
        if event.action is Action.FREE_COMPLETED:
            if event.address in live:
                raise RecordingError("free", place)
            live[event.address] = rounded(event.size)
            requested[event.address], streams[event.address] = event.size, event.stream
        elif event.action is Action.ALLOC:
            if live.pop(event.address, None) is None:
                raise RecordingError("alloc", place)
        elif event.action is Action.SEGMENT_ALLOC:
            if classic.pop(event.address, None) is None:
                raise RecordingError("segment", place)
        elif event.action is Action.SEGMENT_FREE:
            classic[event.address] = Held(event.address, event.size, event.size == SMALL_SEGMENT, event.stream)
    held = [*(classic[base] for base in sorted(classic)), *_expandable(device, live, streams, rounded)]
    held.sort(key=lambda one: one.base)
    for one, following in zip(held, held[1:], strict=False):
        if one.base + one.size > following.base:
            raise RecordingError("segment", 0)
    return Start(
        tuple(held),
        live,
        {address: requested[address] for address in live},
        {address: streams[address] for address in live},
    )


def _expandable(
    device: DeviceTrace, live: Mapping[int, int], streams: Mapping[int, int], rounded: Callable[[int], int]
) -> list[Held]:
    """The expandable segments with the pages that were mapped before the first event."""
    kinds = _kinds(device, live, streams, rounded)
    mapped = {
        page for segment in device.segments if segment.expandable for page in _pages(segment.address, segment.size)
    }
    for event in reversed(device.events):
        if event.action is Action.SEGMENT_MAP:
            mapped.difference_update(_pages(event.address, event.size))
        elif event.action is Action.SEGMENT_UNMAP:
            mapped.update(_pages(event.address, event.size))
    # A segment's pages lie side by side; where another's are between, there are two segments.
    runs: list[tuple[tuple[bool, int], list[int]]] = []
    for page in sorted(kinds):
        if runs and runs[-1][0] == kinds[page]:
            runs[-1][1].append(page)
        else:
            runs.append((kinds[page], [page]))
    found = []
    for number, ((small, stream), pages) in enumerate(runs):
        ranges: list[tuple[int, int]] = []
        for page in pages:
            if page not in mapped:
                continue
            if ranges and ranges[-1][1] == page:
                ranges[-1] = (ranges[-1][0], page + _PAGE)
            else:
                ranges.append((page, page + _PAGE))
        if ranges:  # others are taken in the course of the trace
            end = runs[number + 1][1][0] if number + 1 < len(runs) else pages[0] + _ENDLESS
            found.append(Held(pages[0], min(end - pages[0], _ENDLESS), small, stream, tuple(ranges)))
    return found


def _kinds(
    device: DeviceTrace, live: Mapping[int, int], streams: Mapping[int, int], rounded: Callable[[int], int]
) -> dict[int, tuple[bool, int]]:
    """The pool of every page that is ever mapped: that of the block that it was mapped for."""
    kinds: dict[int, tuple[bool, int]] = {}
    count = 0
    for segment in device.segments:
        if segment.expandable:
            count += segment.size // _PAGE
            _check_pages(count)
            kinds.update(dict.fromkeys(_pages(segment.address, segment.size), (segment.small, segment.stream)))
    waiting: list[Event] = []
    untold: list[Event] = []
    for event in device.events:
        if event.action in (Action.SEGMENT_MAP, Action.SEGMENT_UNMAP):
            count += event.size // _PAGE
            _check_pages(count)
            (waiting if event.action is Action.SEGMENT_MAP else untold).append(event)
        elif event.action is Action.ALLOC and waiting:
            for taken in waiting:
                for page in _pages(taken.address, taken.size):
                    kinds.setdefault(page, (rounded(event.size) <= SMALL_REQUEST, event.stream))
            waiting = []
    order = sorted(live)
    for event in untold:  # mapped before the first event: what lived there tells
        at = bisect_left(order, event.address)
        inside = at < len(order) and order[at] < event.address + event.size
        guess = event.size < LARGE_SEGMENT or event.size % LARGE_SEGMENT != 0
        kind = (live[order[at]] <= SMALL_REQUEST, streams[order[at]]) if inside else (guess, event.stream)
        for page in _pages(event.address, event.size):
            kinds.setdefault(page, kind)
    return kinds


def _check_pages(count: int) -> None:
    if count > _MOST_PAGES:
        raise RecordingError("segment", 0)


def _pages(address: int, size: int) -> range:
    return range(address, address + size, _PAGE)
