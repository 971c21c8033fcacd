"""Replays what a snapshot of PyTorch's or torch_npu's allocator recorded: exactly, or not at all.

The state before the first event is walked back from the state at the end; then every event is carried out and compared:
the address of each block, what the allocator took from the device for it, what it gave back, and the layout at the end. A
recording that differs anywhere is not this allocator's, or not with these settings: no figure is taken from its replay.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ms_tune.allocator.pool import ALIGNMENT
from ms_tune.allocator.torch_pool import TorchPool
from ms_tune.allocator.torch_settings import (
    NPU_BASE_ALIGNMENT,
    NPU_PADDING,
    TorchSettings,
)
from ms_tune.allocator.torch_space import SeedError
from ms_tune.allocator.torch_start import RecordingError, Start, start_of
from ms_tune.allocator.workload import Request
from ms_tune.trace.torch_snapshot import Action
from ms_tune.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable

    from ms_tune.allocator.pool import Growth
    from ms_tune.trace.torch_snapshot import DeviceTrace, Event

_SPLITS = (32, 64, 128, 256, 512)  # MiB of max_split_size_mb that people set
_TAKES = (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)
_GIVES = (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between a recording and its replay.

    Attributes:
        event: Its place in the trace; the number of events if it is in the layout at the end.
        what: ``address``, ``growth``, ``release``, ``layout``, ``foreign`` or a contradiction in the recording.
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
    foreign = _foreign(device)
    if foreign is not None:
        return _contradiction(device, told, foreign)
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
        return _contradiction(device, settings, Difference(error.event, error.reason))
    except (LookupError, AssertionError):  # memory is taken where there is some already, which no allocator does
        return _contradiction(device, settings, Difference(0, "segment"))


def _padded(device: DeviceTrace) -> bool:
    """Whether a block takes 512 bytes more than what was asked for needs, as on an NPU."""
    return any(
        block.active
        and block.requested % 512 in (0, *range(481, 512))
        and block.size == -(-block.requested // 512) * 512 + 512
        for segment in device.segments
        for block in segment.blocks
    )


def _foreign(device: DeviceTrace) -> Difference | None:
    """The first block at an address that these allocators never give away: they cut memory into pieces of 512 bytes."""
    for place, event in enumerate(device.events):
        if event.action is Action.ALLOC and event.address % ALIGNMENT:
            return Difference(place, "foreign", event.address)
    return None


def _contradiction(device: DeviceTrace, settings: TorchSettings, difference: Difference) -> TorchReplay:
    count = sum(event.action is Action.ALLOC for event in device.events)
    found = TorchReplay(settings, Start((), {}, {}, {}), count)
    found.differs(difference, max(count, 1))
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
