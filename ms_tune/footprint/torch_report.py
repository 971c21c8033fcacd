"""Analyse an allocator snapshot of PyTorch or torch_npu: the peak, its contents, surviving blocks, why the pool grew.

If the replay is exact, sizes are the allocator's (blocks with padding and rounding); if not, only requested sizes are
known, and the allocator's figures are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ms_tune.errors import TraceError, UsageError
from ms_tune.footprint.curve import Curve
from ms_tune.footprint.dry_run import place_tensors, record_placement
from ms_tune.footprint.torch_blocks import (
    StepGrowth,
    TorchBlocks,
    find_script_location,
    find_step_ends,
    find_step_growth,
    list_blocks,
    sum_live_bytes,
    sum_requested,
    sum_reserved_bytes,
)
from ms_tune.pools.torch_replay import (
    Cache,
    Recording,
    TorchReplay,
    change_segments,
    replay_recording,
    replay_setting,
    replay_with,
)
from ms_tune.pools.torch_space import TorchSettings
from ms_tune.readers.dry_run import read_dry_run_report
from ms_tune.readers.folder import find_trace, is_dry_run
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.readers.plain_pickle import no_collection
from ms_tune.readers.torch_snapshot import Action, DeviceTrace, TorchSnapshot, read_torch_snapshot
from ms_tune.readers.tracker_tables import read_block_table
from ms_tune.records import Record
from ms_tune.text import Message, msg
from ms_tune.units import MIB

_SURVIVORS, _SPREAD = 3, 0.5  # a leak: at least 3 blocks of one stack, over at least half of the trace
_LEAST_LEAK = MIB
_MAX_NAMED = 5  # unknown actions that are named
_LEAST = 1000  # a remedy must free at least this part (1/1000) of the peak


@dataclass(frozen=True, slots=True)
class CodeLocation:
    """Blocks that one line of the script allocated."""

    where: str  # `file:line` of the innermost user frame; empty if no Python frame was recorded
    # whether they are older than the recording, so their stack is unknown
    before_recording: bool
    bytes: int  # total size
    count: int  # number of blocks
    category: str  # PyTorch's category of their data; empty if unknown


@dataclass(frozen=True, slots=True)
class GrowthCause:
    """A request that made the allocator take memory from the device, and the free memory at that moment."""

    event: int  # the event of the request
    taken_bytes: int  # bytes taken from the device
    wanted_bytes: int  # bytes requested, rounded
    free_bytes: int  # free bytes of the same pool
    largest_free_bytes: int  # the largest free block in it

    @property
    def fragments(self) -> bool:
        """Return whether enough memory was free, but no hole was large enough."""
        return self.free_bytes >= self.wanted_bytes


@dataclass(frozen=True, slots=True)
class Survivors:
    """Blocks of one Python stack that were allocated during the recording and are alive at its end."""

    where: str  # `file:line`
    bytes: int  # total size
    count: int  # number of blocks
    events: tuple[int, ...]  # the events that allocated them
    leak: bool  # whether they are allocated repeatedly, like a leak


class OomReport(Record):
    """An OOM error that the allocator recorded."""

    event: int  # its index
    wanted_bytes: int  # bytes requested from the device
    device_free_bytes: int  # free device memory; 0 if the file does not record it
    reserved_bytes: int | None  # bytes reserved by the allocator; None if the replay is not exact
    used_bytes: int | None  # bytes of it in use; None if the replay is not exact


class TorchReport(Record):
    """The analysis of one device of a snapshot."""

    snapshot: TorchSnapshot  # the file's content
    device: DeviceTrace
    replay: TorchReplay
    # Peak bytes of live blocks by the allocator's sizes, and the event after which they are in use (-1: before the
    # first); None if the replay is not exact, or no event was recorded.
    peak_bytes: int | None
    peak_event: int | None
    # The same by requested sizes; if no event was recorded, the blocks alive in the snapshot.
    requested_peak_bytes: int
    requested_peak_event: int
    # Peak bytes reserved from the device; None if unknown.
    reserved_peak_bytes: int | None
    reserved_peak_event: int | None
    event: int  # the event that `contents` refers to
    # The blocks alive after it by line, the largest first; by the allocator's sizes if the replay is exact.
    contents: tuple[CodeLocation, ...]
    cached_bytes: int | None  # reserved bytes that were not in use then; None if the replay is not exact
    survivors: tuple[Survivors, ...]  # blocks from the recording that are alive at the end
    causes: tuple[GrowthCause, ...]  # why memory was taken from the device; empty if the replay is not exact
    shortages: tuple[OomReport, ...]  # OOM errors
    step_ends: tuple[int, ...]  # the last event of each training step; empty if unknown
    step_growth: tuple[StepGrowth, ...]  # script lines that allocate more memory with each step
    simulated: bool = False  # whether it is the placement of a dry-run's tensors, not the recording of a run

    @property
    def recording(self) -> Recording:
        """Return the recording, which can be replayed under other settings."""
        return Recording(self.device.events, self.replay.start, self.step_ends)

    @property
    def passed_over(self) -> Message | None:
        """Return a message about skipped events, whose actions are unknown; None without any."""
        unknown = self.device.events.unknown
        if not unknown:
            return None
        named = [f"{name!r} ({count:,})" for name, count in islice(unknown.items(), _MAX_NAMED)]
        names = ", ".join([*named, "…"] if len(unknown) > _MAX_NAMED else named)
        return msg("snapshot.show.unknown", count=sum(unknown.values()), names=names)

    @property
    def at_peak(self) -> bool:
        """Return whether `contents` is that of the peak; False without events."""
        peak = self.requested_peak_event if self.peak_event is None else self.peak_event
        return len(self.device.events) > 0 and self.event == peak

    @property
    def content_measure(self) -> str:
        """Return the bytes that `contents` counts: used or requested bytes, at the peak or at another moment."""
        return f"{'used' if self.replay.is_exact else 'requested'}-{'peak' if self.at_peak else 'then'}"

    @property
    def content_bytes(self) -> int:
        """Return the total bytes of `contents`."""
        return sum(place.bytes for place in self.contents)

    @property
    def refused_because(self) -> Message | None:
        """Return why the replay is not used; None if it is exact."""
        if not len(self.device.events):
            return msg("snapshot.no-history")
        first = self.replay.first
        if first is None:
            return None
        as_text = hex if first.what in ("address", "foreign") else str
        params = {"event": first.event, "recorded": as_text(first.recorded), "replayed": as_text(first.replayed)}
        return msg(f"snapshot.differs.{first.what}", **params)


def choose_device(snapshot: TorchSnapshot, number: int | None) -> DeviceTrace:
    """Return the requested device, or the one with the most events."""
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
    """Read a snapshot, replay one device and break down its peak."""
    on_progress(msg("snapshot.progress.read"), 0.0)
    if is_dry_run(path):
        return _place_dry_run(path, device, at)
    with no_collection():
        snapshot = read_torch_snapshot(path)
        chosen = choose_device(snapshot, device)
        if at is not None and at >= len(chosen.events):
            raise UsageError(msg("snapshot.no-event", event=at, events=len(chosen.events)))
        settings = TorchSettings(max_split=snapshot.max_split, roundup=snapshot.roundup)
        replayed = replay_recording(chosen, settings, lambda share: on_progress(msg("snapshot.progress.replay"), share))
        return _make_report(snapshot, chosen, replayed, at)


def _place_dry_run(path: Path, rank: int | None, at: int | None) -> TorchReport:
    # The allocator's own recording of the placement, which the replay then has to reproduce.
    found = find_trace(path)
    chosen = [files for files in found.ranks if rank in (None, files.rank)]
    if not chosen:
        raise TraceError(
            msg("memory.no-such-rank", ranks=", ".join(str(files.rank) for files in found.ranks)), path=path
        )
    table, report = read_block_table(chosen[0].blocks), chosen[0].report
    placed = place_tensors(table.select_rows(table.on_device()), read_dry_run_report(report) if report else None)
    snapshot = record_placement(path, placed)
    replayed = replay_with(snapshot.devices[0], placed.settings)
    return _make_report(snapshot, snapshot.devices[0], replayed, at)._replace(simulated=True)


def _make_report(snapshot: TorchSnapshot, device: DeviceTrace, replayed: TorchReplay, at: int | None) -> TorchReport:
    exact, recorded = replayed.is_exact, len(device.events) > 0
    asked = sum_requested(device)
    used = sum_live_bytes(device, replayed)
    reserved = sum_reserved_bytes(device)
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
    places = [CodeLocation(where, before, *amounts, category) for (where, before, category), amounts in found.items()]
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
        # Blocks without a line of a script are mostly gradients, which stay until the next step.
        leak = bool(lines[stack]) and len(places) >= _SURVIVORS and spread >= _SPREAD and total >= _LEAST_LEAK
        found.append(Survivors(lines[stack], total, len(places), tuple(places), leak))
    return tuple(sorted(found, key=lambda each: (not each.leak, -each.bytes, each.where)))


def _oom_reports(device: DeviceTrace, replayed: TorchReplay) -> tuple[OomReport, ...]:
    found = []
    for place, _, free, size, _ in device.events.iterate_rows(device.events.places_with(Action.OOM)):
        exact = (int(replayed.reserved[place]), int(replayed.used[place])) if replayed.is_exact else (None, None)
        found.append(OomReport(place, size, free, *exact))
    return tuple(found)


class LineChange(Record):
    """Memory of one line of the script at the moments of two reports."""

    where: str
    before_recording: bool
    before_bytes: int
    after_bytes: int

    @property
    def change_bytes(self) -> int:
        """Return the increase in bytes."""
        return self.after_bytes - self.before_bytes


def compare_snapshots(before: TorchReport, after: TorchReport) -> tuple[LineChange, ...]:
    """Return the changes by script line, the largest first; they add up to the change of `content_bytes`."""
    totals: dict[tuple[str, bool], list[int]] = defaultdict(lambda: [0, 0])
    for number, report in enumerate((before, after)):
        for place in report.contents:
            totals[place.where, place.before_recording][number] += place.bytes
    found = [LineChange(*key, *sizes) for key, sizes in totals.items() if sizes[0] != sizes[1]]
    return tuple(sorted(found, key=lambda change: (-abs(change.change_bytes), change.where)))


class TorchRemedy(Record):
    """A way to reduce a peak of PyTorch's allocator."""

    name: str
    of: str  # the peak that it reduces: `reserved` (device memory) or `used` (live blocks)
    bytes_freed: int  # reduction of the peak
    peak_after_bytes: int  # the remaining peak, perhaps at another moment
    title: Message
    price: Message  # its cost
    how: str  # how to write it


def torch_remedies(report: TorchReport) -> tuple[TorchRemedy, ...]:
    """Return the ways to reduce a peak, the largest saving first; empty if the replay is not exact."""
    peaks = {"used": report.peak_bytes, "reserved": report.reserved_peak_bytes}
    if None in peaks.values():
        return ()
    found = [*_remedy_leaks(report), *_remedy_segments(report)]
    found = [remedy for remedy in found if remedy.bytes_freed * _LEAST >= (peaks[remedy.of] or 0)]
    return tuple(sorted(found, key=lambda remedy: (-remedy.bytes_freed, remedy.title.params.get("where", ""))))


def _remedy_leaks(report: TorchReport) -> Iterator[TorchRemedy]:
    # Assume that each new block of a leaking line frees the one before.
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
    recorded, peak = report.replay.settings, report.reserved_peak_bytes or 0
    if recorded.expandable or not any(cause.fragments for cause in report.causes):
        return
    settings = change_segments(recorded, expandable=True)
    after = replay_setting(report.recording, settings, Cache.AS_RECORDED, recorded=False).reserved_peak_bytes
    title, price = msg("snapshot.remedy.expandable"), msg("snapshot.remedy.expandable.price")
    how = f"{recorded.variable}=expandable_segments:True"
    yield TorchRemedy("expandable-segments", "reserved", peak - after, after, title, price, how)


MOST_LINES = 7  # script lines that are shown separately; the others are merged
OTHER_LINES, NO_FRAMES, BEFORE = "other-lines", "no-frames", "before"


@dataclass(frozen=True, slots=True, eq=False)
class TorchLives(TorchBlocks):
    """The blocks of the device of a report; `category` is an index into `categories`."""

    report: TorchReport  # their report
    # `file:line` of the script for each stack of the snapshot; empty if it has no Python frame.
    lines: tuple[str, ...]
    categories: tuple[str, ...]  # the categories that occur
    content: NDArray[np.int64]  # index into `contents` for each block
    # `file:line` of the lines with the most memory, then those of `OTHER_LINES`, `NO_FRAMES`, `BEFORE` that occur.
    contents: tuple[str, ...]
    curve: Curve  # bytes in use, and bytes reserved from the device as its footprint


def trace_lives(report: TorchReport) -> TorchLives:
    """Return the blocks of the device of a report."""
    blocks = list_blocks(report.device, report.replay)
    names = report.device.events.categories
    used = list(dict.fromkeys(blocks.category.tolist()))  # in the order of their first blocks
    lines = tuple(find_script_location(each) for each in report.snapshot.stacks)
    contents, content = _list_contents(report, lines, blocks.start, blocks.stack)
    used_bytes = sum_live_bytes(report.device, report.replay)
    held_bytes = sum_reserved_bytes(report.device)
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
    totals: dict[str, int] = defaultdict(int)
    for place in report.contents:
        totals[place.where] += place.bytes
    lines = sorted((where for where in totals if where), key=lambda where: (-totals[where], where))[:MOST_LINES]
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
