"""What a snapshot of PyTorch's or torch_npu's allocator tells: the peak, what made it up, what is left, why memory was taken.

Where the replay is exact, sizes are the allocator's (blocks with padding and rounding); where it is not, only what was asked
for is known, and the allocator's figures are left out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.errors import TraceError, UsageError
from ms_tune.footprint.curve import Curve
from ms_tune.footprint.torch_blocks import (
    StepGrowth,
    TorchBlocks,
    find_script_location,
    find_step_ends,
    find_step_growth,
    list_blocks,
    sum_held,
    sum_requested,
    sum_used,
)
from ms_tune.pools.torch_replay import Cache, Recording, TorchReplay, change_segments, replay_recording, replay_setting
from ms_tune.pools.torch_space import TorchSettings
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.readers.plain_pickle import no_collection
from ms_tune.readers.torch_snapshot import Action, DeviceTrace, TorchSnapshot, read_torch_snapshot
from ms_tune.records import Record
from ms_tune.text import Message, msg
from ms_tune.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


_SURVIVORS, _SPREAD = 3, 0.5  # so many blocks of one stack, over so much of the trace, look like a leak
_LEAST_LEAK = MIB
_NAMED = 5  # actions
_LEAST = 1000  # a remedy that frees less than this part of the peak is none


@dataclass(frozen=True, slots=True)
class CodeLocation:
    """Blocks that one line of the script allocated."""

    where: str  # `file:line` of its first frame of the user's; empty where no frame of Python was recorded
    # whether they were there before the recording began, so that nobody recorded who allocated them
    before_recording: bool
    bytes: int  # their sizes
    count: int  # how many they are
    category: str  # what PyTorch says they hold; empty if it does not say


@dataclass(frozen=True, slots=True)
class GrowthCause:
    """Why memory was taken from the device."""

    event: int  # the event that asked
    taken_bytes: int  # bytes taken
    wanted_bytes: int  # bytes asked for, rounded
    free_bytes: int  # free bytes of the same pool
    largest_free_bytes: int  # the largest free block there

    @property
    def fragments(self) -> bool:
        """Whether enough was free, and no hole was large enough."""
        return self.free_bytes >= self.wanted_bytes


@dataclass(frozen=True, slots=True)
class Survivors:
    """Blocks of one Python stack that are alive at the end, though they were allocated while it was recorded."""

    where: str  # `file:line`
    bytes: int  # their sizes
    count: int  # how many they are
    events: tuple[int, ...]  # the events that allocated them
    leak: bool  # whether they come again and again, so that they look like a leak


class OomReport(Record):
    """The allocator's report of an OOM."""

    event: int  # its place
    wanted_bytes: int  # bytes asked of the device
    device_free_bytes: int  # what the device still had; 0 if the file does not tell
    reserved_bytes: int | None  # what the allocator held; None if the replay is not exact
    used_bytes: int | None  # what of it was in use; None likewise


class TorchReport(Record):
    """What is known about one device of a snapshot."""

    snapshot: TorchSnapshot  # the file's content
    device: DeviceTrace
    replay: TorchReplay
    # The most bytes of live blocks as the allocator counts them, and the event after which they are in use (-1: before
    # the first); None if the replay is not exact, or no event was recorded.
    peak_bytes: int | None
    peak_event: int | None
    # The same of the bytes that were asked for; what was alive when the snapshot was taken if no event was recorded.
    requested_peak_bytes: int
    requested_peak_event: int
    # The most bytes taken from the device; None if nothing tells.
    reserved_peak_bytes: int | None
    reserved_peak_event: int | None
    event: int  # the event that `contents` is about
    # What was alive after it, the largest first; by the allocator's sizes if the replay is exact.
    contents: tuple[CodeLocation, ...]
    cached_bytes: int | None  # what the allocator held then and nobody used; None if the replay is not exact
    survivors: tuple[Survivors, ...]  # what was allocated and is still alive at the end
    causes: tuple[GrowthCause, ...]  # why memory was taken from the device; empty if the replay is not exact
    shortages: tuple[OomReport, ...]  # where the device had no more
    step_ends: tuple[int, ...]  # the last event of each training step; empty where nothing tells
    step_growth: tuple[StepGrowth, ...]  # lines of the script that hold more after each step

    @property
    def recording(self) -> Recording:
        """What can be replayed under other settings."""
        return Recording(self.device.events, self.replay.start, self.step_ends)

    @property
    def passed_over(self) -> Message | None:
        """What is said of events of actions that are not known here; None if there are none."""
        unknown = self.device.events.unknown
        if not unknown:
            return None
        named = [f"{name!r} ({count:,})" for name, count in islice(unknown.items(), _NAMED)]
        names = ", ".join([*named, "…"] if len(unknown) > _NAMED else named)
        return msg("snapshot.show.unknown", count=sum(unknown.values()), names=names)

    @property
    def at_peak(self) -> bool:
        """Whether `contents` are those of the peak; without events there is none."""
        peak = self.requested_peak_event if self.peak_event is None else self.peak_event
        return len(self.device.events) > 0 and self.event == peak

    @property
    def content_measure(self) -> str:
        """What the bytes of `contents` are: of the allocator or as asked for, at the peak or at another moment."""
        return f"{'used' if self.replay.is_exact else 'requested'}-{'peak' if self.at_peak else 'then'}"

    @property
    def content_bytes(self) -> int:
        """What `contents` add up to."""
        return sum(place.bytes for place in self.contents)

    @property
    def refused_because(self) -> Message | None:
        """Why nothing is taken from the replay; None if it is exact."""
        if not len(self.device.events):
            return msg("snapshot.no-history")
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


def choose_device(snapshot: TorchSnapshot, number: int | None) -> DeviceTrace:
    """The device that is asked for, or the one with the most events."""
    if not snapshot.devices:
        raise TraceError(msg("snapshot.empty"), msg("snapshot.hint"), path=snapshot.path)
    if number is None:
        return max(snapshot.devices, key=lambda device: (len(device.events), len(device.segments), -device.number))
    by_number = {device.number: device for device in snapshot.devices}
    if number not in by_number:
        raise UsageError(msg("snapshot.no-device", device=number, devices=", ".join(map(str, by_number))))
    return by_number[number]


def analyse_snapshot(
    path: Path, device: int | None, at: int | None, on_progress: Callable[[Message, float], None]
) -> TorchReport:
    """Read a snapshot, replay one device, take its peak apart."""
    on_progress(msg("snapshot.progress.read"), 0.0)
    with no_collection():
        snapshot = read_torch_snapshot(path)
        chosen = choose_device(snapshot, device)
        if at is not None and at >= len(chosen.events):
            raise UsageError(msg("snapshot.no-event", event=at, events=len(chosen.events)))
        told = TorchSettings(max_split=snapshot.max_split, roundup=snapshot.roundup)
        replayed = replay_recording(chosen, told, lambda share: on_progress(msg("snapshot.progress.replay"), share))
        return _make_report(snapshot, chosen, replayed, at)


def _make_report(snapshot: TorchSnapshot, device: DeviceTrace, replayed: TorchReplay, at: int | None) -> TorchReport:
    exact, recorded = replayed.is_exact, len(device.events) > 0
    asked = sum_requested(device)
    used = sum_used(device, replayed)
    reserved = sum_held(device, exact=exact)
    event = int(used.argmax()) - 1 if at is None else at
    lines = [find_script_location(stack) for stack in snapshot.stacks]
    blocks = list_blocks(device, replayed)
    ends = find_step_ends(device, snapshot.stacks)
    cached = None
    if exact and reserved is not None:
        cached = int(replayed.reserved[event] if event >= 0 else reserved[0]) - int(used[event + 1])
    return TorchReport(
        snapshot=snapshot,
        device=device,
        replay=replayed,
        peak_bytes=int(used.max()) if exact and recorded else None,
        peak_event=int(used.argmax()) - 1 if exact and recorded else None,
        requested_peak_bytes=int(asked.max()),
        requested_peak_event=int(asked.argmax()) - 1,
        reserved_peak_bytes=int(reserved.max()) if reserved is not None and recorded else None,
        reserved_peak_event=int(reserved.argmax()) - 1 if reserved is not None and recorded else None,
        event=event,
        contents=_contents_by_line(device, blocks, lines, event),
        cached_bytes=cached,
        survivors=_find_survivors(device, blocks, lines),
        causes=_growth_causes(replayed) if exact else (),
        shortages=_oom_reports(device, replayed),
        step_ends=ends,
        step_growth=find_step_growth(blocks, lines, ends),
    )


def _growth_causes(replayed: TorchReplay) -> tuple[GrowthCause, ...]:
    found: dict[int, GrowthCause] = {}
    for growth in replayed.growths:
        event = growth.request
        if event is None:
            continue
        if event in found:
            found[event] = replace(found[event], taken_bytes=found[event].taken_bytes + growth.unit_bytes)
        else:
            sizes = (growth.unit_bytes, growth.request_bytes, growth.free_bytes, growth.largest_hole)
            found[event] = GrowthCause(event, *sizes)
    return tuple(found.values())


def _contents_by_line(
    device: DeviceTrace, blocks: TorchBlocks, lines: Sequence[str], last: int
) -> tuple[CodeLocation, ...]:
    live = np.flatnonzero(blocks.live_after(last))
    kinds = np.stack([blocks.stack[live], blocks.start[live] < 0, blocks.category[live]])
    unique, kind = np.unique(kinds, axis=1, return_inverse=True)
    sizes = np.zeros(unique.shape[1], np.int64)
    np.add.at(sizes, kind.reshape(-1), blocks.size[live])
    size, count = sizes.tolist(), np.bincount(kind.reshape(-1), minlength=len(sizes)).tolist()
    found: dict[tuple[str, bool, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for (stack, before, category), more, blocks_more in zip(unique.T.tolist(), size, count, strict=True):
        key = (lines[stack], bool(before) and not lines[stack], device.events.categories[category])
        total, number = found[key]
        found[key] = (total + more, number + blocks_more)
    places = [CodeLocation(where, before, *held, category) for (where, before, category), held in found.items()]
    return tuple(sorted(places, key=lambda place: (-place.bytes, place.where, place.category)))


def _find_survivors(device: DeviceTrace, blocks: TorchBlocks, lines: Sequence[str]) -> tuple[Survivors, ...]:
    by_stack: dict[tuple[int, int], list[int]] = defaultdict(list)
    for block in np.flatnonzero((blocks.start >= 0) & (blocks.end == NEVER_FREED)).tolist():
        event = int(blocks.start[block])
        by_stack[int(blocks.stack[block]), int(device.events.size[event])].append(block)
    found = []
    for (stack, _), members in by_stack.items():
        total, places = int(blocks.size[members].sum()), blocks.start[members].tolist()
        spread = (places[-1] - places[0]) / len(device.events)
        leak = stack > 0 and len(places) >= _SURVIVORS and spread >= _SPREAD and total >= _LEAST_LEAK
        found.append(Survivors(lines[stack], total, len(places), tuple(places), leak))
    return tuple(sorted(found, key=lambda each: (not each.leak, -each.bytes, each.where)))


def _oom_reports(device: DeviceTrace, replayed: TorchReplay) -> tuple[OomReport, ...]:
    found = []
    for place, _, free, size, _ in device.events.iterate_rows(device.events.places_with(Action.OOM)):
        exact = (int(replayed.reserved[place]), int(replayed.used[place])) if replayed.is_exact else (None, None)
        found.append(OomReport(place, size, free, *exact))
    return tuple(found)


class PlaceChange(Record):
    """What one line of the script holds at the moments that two reports are about."""

    where: str
    before_recording: bool
    before_bytes: int
    after_bytes: int

    @property
    def change_bytes(self) -> int:
        """How much more it is."""
        return self.after_bytes - self.before_bytes


def compare_snapshots(before: TorchReport, after: TorchReport) -> tuple[PlaceChange, ...]:
    """What the lines of the script hold, the largest change first; the changes add up to that of `content_bytes`."""
    totals: dict[tuple[str, bool], list[int]] = defaultdict(lambda: [0, 0])
    for number, report in enumerate((before, after)):
        for place in report.contents:
            totals[place.where, place.before_recording][number] += place.bytes
    found = [PlaceChange(*key, *sizes) for key, sizes in totals.items() if sizes[0] != sizes[1]]
    return tuple(sorted(found, key=lambda change: (-abs(change.change_bytes), change.where)))


class TorchRemedy(Record):
    """A way to need less."""

    name: str
    of: str  # which peak it lowers: `reserved`, what is held of the device, or `used`, that of live blocks
    bytes_freed: int  # by how much
    peak_after_bytes: int  # the peak that is left, wherever it is then
    title: Message
    price: Message  # what it costs
    how: str  # how it is written


def torch_remedies(report: TorchReport) -> tuple[TorchRemedy, ...]:
    """What lowers a peak, what frees most first; nothing where the replay is not exact."""
    peaks = {"used": report.peak_bytes, "reserved": report.reserved_peak_bytes}
    if None in peaks.values():
        return ()
    found = [*_remedy_leaks(report), *_remedy_segments(report)]
    found = [remedy for remedy in found if remedy.bytes_freed * _LEAST >= (peaks[remedy.of] or 0)]
    return tuple(sorted(found, key=lambda remedy: (-remedy.bytes_freed, remedy.title.params.get("where", ""))))


def _remedy_leaks(report: TorchReport) -> Iterator[TorchRemedy]:
    # All blocks of a line but the newest are gone once the next one is made.
    used, peak = report.replay.used, report.peak_bytes or 0
    for each in report.survivors:
        if each.leak:
            gone = np.zeros(len(used), np.int64)
            gone[list(each.events[1:])] = report.replay.sizes[list(each.events[:-1])]
            after = int((used - np.cumsum(gone)).max())
            title, price = msg("snapshot.remedy.leak", where=each.where), msg("snapshot.remedy.leak.price")
            how = f"del, detach(): {each.where}"
            yield TorchRemedy("release-leak", "used", peak - after, after, title, price, how)


def _remedy_segments(report: TorchReport) -> Iterator[TorchRemedy]:
    recorded, held = report.replay.settings, report.reserved_peak_bytes or 0
    if recorded.expandable or not any(cause.fragments for cause in report.causes):
        return
    settings = change_segments(recorded, expandable=True)
    after = replay_setting(report.recording, settings, Cache.AS_RECORDED, recorded=False).reserved_peak_bytes
    title, price = msg("snapshot.remedy.expandable"), msg("snapshot.remedy.expandable.price")
    how = f"PYTORCH_{'NPU' if recorded.padding else 'CUDA'}_ALLOC_CONF=expandable_segments:True"
    yield TorchRemedy("expandable-segments", "reserved", held - after, after, title, price, how)


MOST_LINES = 7  # of the script that are told apart; the others are one
OTHER_LINES, NO_FRAMES, BEFORE = "other-lines", "no-frames", "before"


@dataclass(frozen=True, slots=True, eq=False)
class TorchLives(TorchBlocks):
    """The blocks of the device that a report is about; a category is a place in `categories`."""

    report: TorchReport  # what they are from
    # `file:line` of the script by stack of the snapshot; empty where there is no frame of Python.
    lines: tuple[str, ...]
    categories: tuple[str, ...]  # those that there are
    content: NDArray[np.int64]  # what allocated each, as a place in `contents`
    # `file:line` of the lines that hold most at the moment that the report is about, then those of `OTHER_LINES`,
    # `NO_FRAMES` and `BEFORE` that there are.
    contents: tuple[str, ...]
    curve: Curve  # bytes in use and bytes held of the device (as its footprint)


def trace_lives(report: TorchReport) -> TorchLives:
    """The blocks of the device that a report is about."""
    blocks = list_blocks(report.device, report.replay)
    names = report.device.events.categories
    used = list(dict.fromkeys(blocks.category.tolist()))  # by the first block of each
    lines = tuple(find_script_location(each) for each in report.snapshot.stacks)
    contents, content = _list_contents(report, lines, blocks.start, blocks.stack)
    used_bytes = sum_used(report.device, report.replay)
    held_bytes = sum_held(report.device, exact=report.replay.is_exact)
    footprint = np.zeros(len(used_bytes), np.int64) if held_bytes is None else held_bytes
    none, ticks = np.zeros(0, np.int64), np.arange(-1, len(used_bytes) - 1, dtype=np.int64)
    return TorchLives(
        *(blocks.start, blocks.end, blocks.size, blocks.address, blocks.stack),
        _renumber(blocks.category, used, len(names)),
        report=report,
        lines=lines,
        categories=tuple(names[code] for code in used),
        content=content,
        contents=contents,
        curve=Curve(ticks, used_bytes, footprint, none, none),
    )


def _list_contents(
    report: TorchReport, wheres: Sequence[str], start: NDArray[np.int64], stack: NDArray[np.int64]
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    held: dict[str, int] = defaultdict(int)
    for place in report.contents:
        held[place.where] += place.bytes
    lines = sorted((where for where in held if where), key=lambda where: (-held[where], where))[:MOST_LINES]
    names = [*lines, OTHER_LINES, NO_FRAMES, BEFORE]
    code = {name: place for place, name in enumerate(names)}
    by_stack = np.array(
        [code.get(where, code[OTHER_LINES]) if where else code[NO_FRAMES] for where in wheres], np.int64
    )
    found = by_stack[stack] if len(stack) else np.zeros(0, np.int64)
    found[(start < 0) & (found == code[NO_FRAMES])] = code[BEFORE]
    used = sorted(set(found.tolist()))
    return tuple(names[place] for place in used), _renumber(found, used, len(names))


def _renumber(codes: NDArray[np.int64], used: Sequence[int], count: int) -> NDArray[np.int64]:
    again = np.zeros(count, np.int64)
    again[used] = np.arange(len(used))
    return again[codes]
