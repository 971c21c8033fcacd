"""What a snapshot of PyTorch's or torch_npu's allocator tells: the peak, what made it up, what is left, why memory was taken.

Where the replay is exact, sizes are the allocator's (blocks with padding and rounding); where it is not, only what was asked
for is known, and the allocator's figures are left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from ms_tune.allocator.torch_replay import TorchReplay, replay_recording
from ms_tune.allocator.torch_settings import TorchSettings
from ms_tune.errors import TraceError, UsageError
from ms_tune.memory.phases import Origin, origin
from ms_tune.memory.torch_steps import StepGrowth, grown_by_step, step_ends
from ms_tune.texts import msg
from ms_tune.trace.plain_pickle import no_collection
from ms_tune.trace.torch_snapshot import Action, read_torch_snapshot
from ms_tune.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ms_tune.texts import Message
    from ms_tune.trace.memory_block import Frame
    from ms_tune.trace.torch_snapshot import DeviceTrace, TorchSnapshot

_TORCH = re.compile(
    r"(?:site|dist)-packages/(?:torch|torch_npu|apex|megatron|mindspeed)/|/(?:torch|torch_npu|megatron)/"
)
_SURVIVORS, _SPREAD = 3, 0.5  # so many blocks of one stack, over so much of the trace, look like a leak
_LEAST_LEAK = MIB


@dataclass(frozen=True, slots=True)
class Place:
    """Blocks that one line of the script allocated.

    Attributes:
        where: ``file:line`` of its first frame of the user's; empty where no frame of Python was recorded.
        before: Whether they were there before the recording began, so that nobody recorded who allocated them.
        bytes: Their sizes.
        count: How many they are.
        category: What PyTorch says they hold; empty if it does not say.
    """

    where: str
    before: bool
    bytes: int
    count: int
    category: str


@dataclass(frozen=True, slots=True)
class Cause:
    """Why memory was taken from the device.

    Attributes:
        event: The event that asked.
        taken: Bytes taken.
        wanted: Bytes asked for, rounded.
        free: Free bytes of the same pool.
        largest: The largest free block there.
    """

    event: int
    taken: int
    wanted: int
    free: int
    largest: int

    @property
    def fragments(self) -> bool:
        """Whether enough was free, and no hole was large enough."""
        return self.free >= self.wanted


@dataclass(frozen=True, slots=True)
class Survivors:
    """Blocks of one Python stack that are alive at the end, though they were allocated while it was recorded.

    Attributes:
        where: ``file:line``.
        bytes: Their sizes.
        count: How many they are.
        events: The events that allocated them.
        leak: Whether they come again and again, so that they look like a leak.
    """

    where: str
    bytes: int
    count: int
    events: tuple[int, ...]
    leak: bool


@dataclass(frozen=True, slots=True)
class Shortage:
    """The allocator's report of an OOM.

    Attributes:
        event: Its place.
        wanted: Bytes asked of the device.
        device_free: What the device still had; 0 if the file does not tell.
        reserved: What the allocator held; None if the replay is not exact.
        used: What of it was in use; None likewise.
    """

    event: int
    wanted: int
    device_free: int
    reserved: int | None
    used: int | None


@dataclass(frozen=True, slots=True)
class TorchReport:
    """What is known about one device of a snapshot.

    Attributes:
        snapshot: The file's content.
        device: The device.
        replay: Its replay.
        peak_bytes, peak_event: The most bytes of live blocks as the allocator counts them, and the event after which they
            are in use (-1: before the first); None if the replay is not exact.
        requested_peak_bytes, requested_peak_event: The same of the bytes that were asked for.
        reserved_peak_bytes, reserved_peak_event: The most bytes taken from the device; None if nothing tells.
        event: The event that ``contents`` is about.
        contents: What was alive after it, the largest first; by the allocator's sizes if the replay is exact.
        cached_bytes: What the allocator held then and nobody used; None if the replay is not exact.
        survivors: What was allocated and is still alive at the end.
        causes: Why memory was taken from the device; empty if the replay is not exact.
        shortages: Where the device had no more.
        step_ends: The last event of each training step; empty where nothing tells.
        step_growth: Lines of the script that hold more after each step.
    """

    snapshot: TorchSnapshot
    device: DeviceTrace
    replay: TorchReplay
    peak_bytes: int | None
    peak_event: int | None
    requested_peak_bytes: int
    requested_peak_event: int
    reserved_peak_bytes: int | None
    reserved_peak_event: int | None
    event: int
    contents: tuple[Place, ...]
    cached_bytes: int | None
    survivors: tuple[Survivors, ...]
    causes: tuple[Cause, ...]
    shortages: tuple[Shortage, ...]
    step_ends: tuple[int, ...]
    step_growth: tuple[StepGrowth, ...]

    @property
    def refused_because(self) -> Message | None:
        """Why nothing is taken from the replay; None if it is exact."""
        first = self.replay.first
        if first is None:
            return None
        as_text = hex if first.what in ("address", "foreign") else str
        params = {
            "event": first.event,
            "recorded": as_text(first.recorded),
            "replayed": as_text(first.replayed),
        }
        return msg(f"snapshot.differs.{first.what}", **params)


def settings_of(snapshot: TorchSnapshot) -> TorchSettings:
    """The allocator's settings, as far as the file tells them."""
    return TorchSettings(max_split=snapshot.max_split, roundup=snapshot.roundup)


def device_of_snapshot(snapshot: TorchSnapshot, number: int | None) -> DeviceTrace:
    """The device that is asked for, or the one with the most events.

    Raises:
        UsageError: There is no such device.
        TraceError: There is none at all.
    """
    if not snapshot.devices:
        raise TraceError(msg("snapshot.empty"), msg("snapshot.hint"), path=snapshot.path)
    if number is None:
        return max(snapshot.devices, key=lambda device: (len(device.events), len(device.segments), -device.number))
    for device in snapshot.devices:
        if device.number == number:
            return device
    raise UsageError(
        msg("snapshot.no-device", device=number, devices=", ".join(str(d.number) for d in snapshot.devices))
    )


def analyse_snapshot(
    path: Path, device: int | None, at: int | None, on_progress: Callable[[Message, float], None]
) -> TorchReport:
    """Read a snapshot, replay one device, take its peak apart.

    Args:
        path: The file.
        device: The device's number; None for the one with the most events.
        at: The event after which memory is taken apart; None for the peak.
        on_progress: Told what is being done, and how much of it.

    Raises:
        TraceError: The file cannot be read.
        UsageError: There is no such device or event.
    """
    on_progress(msg("snapshot.progress.read"), 0.0)
    with no_collection():
        return _analysed(path, device, at, on_progress)


def _analysed(
    path: Path, device: int | None, at: int | None, on_progress: Callable[[Message, float], None]
) -> TorchReport:
    snapshot = read_torch_snapshot(path)
    chosen = device_of_snapshot(snapshot, device)
    if at is not None and at >= len(chosen.events):
        raise UsageError(msg("snapshot.no-event", event=at, events=len(chosen.events)))
    told = settings_of(snapshot)
    replayed = replay_recording(chosen, told, lambda share: on_progress(msg("snapshot.progress.replay"), share))
    return _report(snapshot, chosen, replayed, at)


def _report(snapshot: TorchSnapshot, device: DeviceTrace, replayed: TorchReplay, at: int | None) -> TorchReport:
    exact = replayed.exact
    asked = requested_curve(device)
    used = [sum(replayed.start.live.values()), *replayed.used] if exact else asked
    reserved = held_curve(device, exact=exact)
    event = used.index(max(used)) - 1 if at is None else at
    sizes = replayed.sizes if exact else {}
    ends = step_ends(device, snapshot.stacks)
    return TorchReport(
        snapshot=snapshot,
        device=device,
        replay=replayed,
        peak_bytes=max(used) if exact else None,
        peak_event=used.index(max(used)) - 1 if exact else None,
        requested_peak_bytes=max(asked),
        requested_peak_event=asked.index(max(asked)) - 1,
        reserved_peak_bytes=max(reserved) if reserved else None,
        reserved_peak_event=reserved.index(max(reserved)) - 1 if reserved else None,
        event=event,
        contents=_contents(snapshot, device, replayed, event),
        cached_bytes=_after(replayed.reserved, event, reserved[0]) - used[event + 1] if exact and reserved else None,
        survivors=_survivors(snapshot, device, sizes),
        causes=_causes(replayed) if exact else (),
        shortages=_shortages(device, replayed),
        step_ends=ends,
        step_growth=grown_by_step(device, [where_of(stack) for stack in snapshot.stacks], sizes, ends),
    )


def _causes(replayed: TorchReplay) -> tuple[Cause, ...]:
    """One for each request that took memory, in however many steps."""
    found: dict[int, Cause] = {}
    for growth in replayed.growths:
        event = growth.request
        if event is None:
            continue
        first = found.get(event)
        if first is None:
            cause = Cause(event, growth.unit_bytes, growth.request_bytes, growth.free_bytes, growth.largest_hole)
        else:
            cause = replace(first, taken=first.taken + growth.unit_bytes)
        found[event] = cause
    return tuple(found.values())


def _after(curve: Sequence[int], event: int, start: int) -> int:
    return curve[event] if event >= 0 else start


def requested_curve(device: DeviceTrace) -> list[int]:
    """Bytes that were asked for and are not free again: before the first event, and after each."""
    live = before_recording(device)
    total = sum(live.values())
    curve = [total]
    for event in device.events:
        if event.action is Action.ALLOC:
            total += event.size - live.get(event.address, 0)
            live[event.address] = event.size
        elif event.action is Action.FREE_COMPLETED:
            total -= live.pop(event.address, 0)
        curve.append(total)
    return curve


def held_curve(device: DeviceTrace, *, exact: bool) -> list[int]:
    """Bytes taken from the device, likewise; empty where the events tell of blocks and never of segments that hold them."""
    change = [
        _step(event.action, event.size, Action.SEGMENT_ALLOC, Action.SEGMENT_FREE)
        or _step(event.action, event.size, Action.SEGMENT_MAP, Action.SEGMENT_UNMAP)
        for event in device.events
    ]
    total = sum(segment.size for segment in device.segments)
    curve = _summed(total - sum(change), change)
    return curve if min(curve) >= 0 and (exact or any(change)) else []


def _step(action: Action, size: int, more: Action, less: Action) -> int:
    return size if action is more else -size if action is less else 0


def _summed(start: int, change: Sequence[int]) -> list[int]:
    curve = [start]
    for each in change:
        curve.append(curve[-1] + each)
    return curve


def _contents(snapshot: TorchSnapshot, device: DeviceTrace, replayed: TorchReplay, last: int) -> tuple[Place, ...]:
    """What is alive after an event, by line of the script; its bytes add up to the peak."""
    exact = replayed.exact
    final = {block.address: block.stack for segment in device.segments for block in segment.blocks if block.active}
    live: dict[int, tuple[int, int, str, bool]] = {}  # size, stack, category, whether it was there before
    sizes = replayed.start.live if exact else before_recording(device)
    for address, size in sizes.items():
        live[address] = (size, final.get(address, 0), "", True)
    for place, event in enumerate(islice(device.events, last + 1)):
        if event.action is Action.ALLOC:
            size = replayed.sizes[place] if exact else event.size
            live[event.address] = (size, event.stack, event.category, False)
        elif event.action is Action.FREE_COMPLETED:
            live.pop(event.address, None)
    found: dict[tuple[str, bool, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for size, stack, category, before in live.values():
        where = where_of(snapshot.stacks[stack])
        key = (where, before and not where, category)
        total, count = found[key]
        found[key] = (total + size, count + 1)
    places = [Place(where, before, size, count, category) for (where, before, category), (size, count) in found.items()]
    return tuple(sorted(places, key=lambda place: (-place.bytes, place.where, place.category)))


def before_recording(device: DeviceTrace) -> dict[int, int]:
    """What was asked for of the blocks that were there before the first event."""
    live = {block.address: block.requested for segment in device.segments for block in segment.blocks if block.active}
    for event in reversed(device.events):
        if event.action is Action.FREE_COMPLETED:
            live[event.address] = event.size
        elif event.action is Action.ALLOC:
            live.pop(event.address, None)
    return live


def _survivors(snapshot: TorchSnapshot, device: DeviceTrace, sizes: Mapping[int, int]) -> tuple[Survivors, ...]:
    alive: dict[int, int] = {}
    for place, event in enumerate(device.events):
        if event.action is Action.ALLOC:
            alive[event.address] = place
        elif event.action is Action.FREE_COMPLETED:
            alive.pop(event.address, None)
    by_stack: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place in sorted(alive.values()):
        event = device.events[place]
        by_stack[event.stack, event.size].append(place)
    found = []
    for (stack, _), places in by_stack.items():
        total = sum(sizes.get(place, device.events[place].size) for place in places)
        spread = (places[-1] - places[0]) / len(device.events)
        leak = stack > 0 and len(places) >= _SURVIVORS and spread >= _SPREAD and total >= _LEAST_LEAK
        found.append(Survivors(where_of(snapshot.stacks[stack]), total, len(places), tuple(places), leak))
    return tuple(sorted(found, key=lambda each: (not each.leak, -each.bytes, each.where)))


def _shortages(device: DeviceTrace, replayed: TorchReplay) -> tuple[Shortage, ...]:
    return tuple(
        Shortage(
            place,
            event.size,
            event.address,
            replayed.reserved[place] if replayed.exact else None,
            replayed.used[place] if replayed.exact else None,
        )
        for place, event in enumerate(device.events)
        if event.action is Action.OOM
    )


@lru_cache(maxsize=65536)
def where_of(stack: tuple[Frame, ...]) -> str:
    """``file:line`` of the innermost frame of the user's code, else of a library's but PyTorch, else any of Python's."""
    python = [frame for frame in reversed(stack) if frame.file.endswith(".py")]
    own = (frame for frame in python if origin(frame) is Origin.USER and not _TORCH.search(frame.file))
    libraries = (frame for frame in python if not _TORCH.search(frame.file) and origin(frame) is not Origin.NOISE)
    frame = next(own, None) or next(libraries, None) or next(iter(python), None)
    return f"{frame.file}:{frame.line}" if frame is not None else ""


@dataclass(frozen=True, slots=True)
class PlaceChange:
    """What one line of the script holds at the peak of one snapshot and of another."""

    where: str
    before: int
    after: int

    @property
    def bytes(self) -> int:
        """How much more it is."""
        return self.after - self.before


def compare_snapshots(before: TorchReport, after: TorchReport) -> tuple[PlaceChange, ...]:
    """What the lines of the script hold at the peaks, the largest change first; the changes add up to that of the peaks."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for number, report in enumerate((before, after)):
        for place in report.contents:
            totals[place.where][number] += place.bytes
    found = [PlaceChange(where, *sizes) for where, sizes in totals.items() if sizes[0] != sizes[1]]
    return tuple(sorted(found, key=lambda change: (-abs(change.bytes), change.where)))
