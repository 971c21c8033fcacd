"""Replay a snapshot of PyTorch's or torch_npu's allocator: exactly, or not at all.

The state before the first event is derived backwards from the state at the end; then every event is executed and
compared: the address of each block, the memory taken from the device for it, the memory returned, and the layout at the
end. If a recording differs anywhere, it is of another allocator or other settings, and no figure of its replay is used.

An allocator is a state machine: the same events from the same state lead to the same state and results. Training steps
that repeat exactly are executed once, and their results are copied.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_tune.pools.initial_state import RecordingError, Start, rewind_recording
from ms_tune.pools.pool import ALIGNMENT, PoolGrowth
from ms_tune.pools.torch_pool import TorchPool
from ms_tune.pools.torch_space import NPU_BASE_ALIGNMENT, NPU_PADDING, PoolBlock, SeedError, TorchSettings
from ms_tune.readers.torch_snapshot import Action, DeviceTrace, Events
from ms_tune.units import MIB

_LEAST_EVENTS, _LEAST_TIMES = 4096, 4  # below these numbers, copying saves nothing
_MAX_CANDIDATES = 64  # candidates tried as the beginning of the next step: later occurrences of the event in the middle
_TURNS = 8  # the allocator reaches a stable state within so many steps, or never
_BETWEEN = (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP, Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)


class Repeats(NamedTuple):
    """Repeated events: ``times`` stretches of ``length`` events from ``begin`` on."""

    begin: int
    length: int
    times: int


class RecordingRun:
    """The execution of a recording's events in an allocator; it can copy the results of repeated stretches."""

    def __init__(self, events: Events, telling: NDArray[np.bool_], pool: TorchPool) -> None:
        self.pool = pool
        self._events = events
        self._places = np.flatnonzero(telling)  # the events to execute
        self._done = 0  # how many of them are done
        self._live: dict[int, PoolBlock] = {}  # the live blocks by recorded address

    def carry_out(self, end: int) -> bool:
        """Execute the events up to ``end``; return whether to continue."""
        raise NotImplementedError

    def state_key(self) -> object:
        """Return the state that determines all further results; None if the results so far must not be copied."""
        return self.pool.state_key(), {address: block.address for address, block in self._live.items()}

    def repeat_results(self, begin: int, end: int, times: int) -> None:
        """Repeat the results of the events between ``begin`` and ``end``, the last ones executed, ``times`` times."""
        first, last = np.searchsorted(self._places, [begin, end]).tolist()
        self._done += (last - first) * times


def find_repeats(events: Events) -> Repeats | None:
    """Return the repeated events around the middle of a recording; None if nothing repeats."""
    count = len(events)
    if count < _LEAST_EVENTS:
        return None
    columns = (events.action, events.address, events.size, events.stream)
    middle = count // 2
    same = events.address[middle:] == events.address[middle]
    for column in columns:
        same &= column[middle:] == column[middle]
    for length in np.flatnonzero(same)[1 : _MAX_CANDIDATES + 1].tolist():
        if middle + 2 * length > count:
            break
        if all((one[middle : middle + length] == one[middle + length : middle + 2 * length]).all() for one in columns):
            return _extend_repeats(events, middle, length)
    return None


def _extend_repeats(events: Events, middle: int, length: int) -> Repeats | None:
    alike = np.ones(len(events) - length, np.bool_)
    for column in (events.action, events.address, events.size, events.stream):
        alike &= column[:-length] == column[length:]
    other = np.flatnonzero(~alike)
    place = int(np.searchsorted(other, middle))
    begin = int(other[place - 1]) + 1 if place else 0
    end = (int(other[place]) if place < len(other) else len(alike)) + length
    half = events.rows_with(*_BETWEEN)[begin : begin + length]
    clean = np.flatnonzero(~half[:-1] & ~half[1:])
    if not len(clean):
        return None
    begin += int(clean[0]) + 1
    times = (end - begin) // length
    return Repeats(begin, length, times) if times >= _LEAST_TIMES else None


def carry_out_all(events: Events, run: RecordingRun) -> None:
    """Execute all events; repeated steps only until one leaves the allocator in the state in which it began."""
    repeats = find_repeats(events)
    if repeats is not None and run.carry_out(repeats.begin):
        before = run.state_key()
        for turn in range(min(_TURNS, repeats.times)):
            end = repeats.begin + (turn + 1) * repeats.length
            if not run.carry_out(end):
                return
            after = run.state_key()
            if after is not None and after == before:
                run.repeat_results(end - repeats.length, end, repeats.times - turn - 1)
                break
            before = after
    run.carry_out(len(events))


_SPLITS = (32, 64, 128, 256, 512)  # common values of max_split_size_mb, in MiB
_CHUNK = 1 << 16  # events between two progress reports
_GROWS = (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)
_SHRINKS = (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)
_CHANGING = (Action.ALLOC, Action.FREE_COMPLETED, *_GROWS, *_SHRINKS)
_ALLOC, _FREE = int(Action.ALLOC), int(Action.FREE_COMPLETED)


def _no_events() -> NDArray[np.int64]:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """The first difference between a recording and its replay."""

    event: int  # its index in the trace; the number of events if the layout at the end differs
    what: str  # `address`, `growth`, `release`, `layout`, `foreign` or a contradiction in the recording
    recorded: int = 0  # the value in the file, 0 if it is not a number
    replayed: int = 0  # the value in the replay


@dataclass(slots=True)
class TorchReplay:
    """The comparison of a recording with its replay."""

    settings: TorchSettings  # the settings that reproduce all of the recording, or the largest part
    start: Start  # the state before the first event
    allocations: int = 0  # number of allocations
    differences: int = 0  # number of allocations, releases and final blocks that differ; 0 if the replay is exact
    first: ReplayDifference | None = None
    used: NDArray[np.int64] = field(default_factory=_no_events)  # bytes of live blocks after each event, in block sizes
    reserved: NDArray[np.int64] = field(default_factory=_no_events)  # bytes taken from the device after each event
    # For each event, the size of the block that it allocates; 0 for other events.
    sizes: NDArray[np.int64] = field(default_factory=_no_events)
    growths: tuple[PoolGrowth, ...] = ()  # when and why memory was taken; `request` is the index of the event

    @property
    def is_exact(self) -> bool:
        """Return whether nothing differs."""
        return self.first is None

    @property
    def uncertain_bytes(self) -> int:
        """Return by how much the real peak may exceed `used`: sizes of blocks from before the recording are uncertain."""
        used = np.append(sum(self.start.live.values()), self.used)
        ends = np.zeros(len(used) + 1, np.int64)  # possible bytes by the place in `used` from which they are freed
        for freed, possible in self.start.uncertain:
            ends[freed + 1] += possible
        return int((used + ends[:0:-1].cumsum()[::-1]).max() - used.max())

    def count_difference(self, difference: ReplayDifference, count: int = 1) -> None:
        """Count a difference, and keep the first one."""
        self.differences += count
        if self.first is None:
            self.first = difference


def replay_recording(
    device: DeviceTrace, told: TorchSettings, on_progress: Callable[[float], None] = lambda _: None
) -> TorchReplay:
    """Replay one device's events with settings of CUDA and of an NPU until one is exact; ``told`` are the settings in the snapshot."""
    foreign = _find_foreign_block(device)
    if foreign is not None:
        return _contradicted_replay(device, told, foreign)
    mapped = device.events.rows_with(Action.SEGMENT_MAP, Action.SEGMENT_UNMAP)
    expandable = bool(mapped.any()) or any(segment.expandable for segment in device.segments)
    plain = replace(told, expandable=expandable)
    npu = replace(plain, padding=NPU_PADDING, base_alignment=NPU_BASE_ALIGNMENT if expandable else 0)
    tried = [plain, npu, *([replace(npu, base_alignment=0)] if expandable else [])]
    if _is_padded(device):
        tried = [*tried[1:], plain]
    if told.max_split is None and not expandable:  # torch_npu's files do not contain the setting
        tried += [replace(settings, max_split=limit * MIB) for settings in tried for limit in _SPLITS]
    best, furthest = tried[0], -1
    for number, settings in enumerate(tried):
        on_progress(number / len(tried))
        found = _try_settings(device, settings, lambda _share: None, stop=True)
        if found.first is None:
            return found
        if found.first.event > furthest:
            best, furthest = settings, found.first.event
    return _try_settings(device, best, on_progress, stop=False)


def replay_with(device: DeviceTrace, settings: TorchSettings) -> TorchReplay:
    """Replay one device's events with known settings."""
    return _try_settings(device, settings, lambda _share: None, stop=False)


def _try_settings(
    device: DeviceTrace, settings: TorchSettings, on_progress: Callable[[float], None], *, stop: bool
) -> TorchReplay:
    try:
        return _replay_events(device, settings, on_progress, stop=stop)
    except RecordingError as error:
        return _contradicted_replay(device, settings, ReplayDifference(error.event, error.reason))
    except (LookupError, AssertionError):  # a segment at addresses already in use, which no allocator does
        return _contradicted_replay(device, settings, ReplayDifference(0, "segment"))


def _is_padded(device: DeviceTrace) -> bool:
    return any(
        block.active
        and block.requested % 512 in (0, *range(481, 512))
        and block.size == -(-block.requested // 512) * 512 + 512
        for segment in device.segments
        for block in segment.blocks
    )


def _find_foreign_block(device: DeviceTrace) -> ReplayDifference | None:
    # These allocators align blocks to 512 bytes; find a block that is not.
    events = device.events
    found = np.flatnonzero((events.action == Action.ALLOC) & (events.address % ALIGNMENT != 0))
    return ReplayDifference(int(found[0]), "foreign", events[int(found[0])].address) if len(found) else None


def _contradicted_replay(device: DeviceTrace, settings: TorchSettings, difference: ReplayDifference) -> TorchReplay:
    count = len(device.events.places_with(Action.ALLOC))
    found = TorchReplay(settings, Start((), {}, {}), count)
    found.count_difference(difference, max(count, 1))
    return found


class _Bases(list[int]):
    """The recorded addresses of the segments for the block that is being allocated, the first one last."""

    def __iter__(self) -> _Bases:
        return self

    def __next__(self) -> int:
        if not self:
            raise StopIteration
        return self.pop()


def _replay_events(
    device: DeviceTrace, settings: TorchSettings, on_progress: Callable[[float], None], *, stop: bool
) -> TorchReplay:
    run = _Replay(device, TorchReplay(settings, rewind_recording(device, settings)), on_progress, stop=stop)
    begun = run.pool.state.used, run.pool.state.reserved
    carry_out_all(device.events, run)
    found = run.found
    if stop and found.first is not None:
        return found
    found.growths = tuple(run.growths)
    # Number of state-changing events up to each event: other events see the state that those left.
    change = np.cumsum(device.events.rows_with(*_CHANGING))
    found.used, found.reserved = (
        np.concatenate([np.array([first], np.int64), np.frombuffer(curve, np.int64)])[change]
        for first, curve in zip(begun, (run.used, run.reserved), strict=True)
    )
    found.sizes = np.zeros(len(device.events), np.int64)
    found.sizes[device.events.places_with(Action.ALLOC)] = np.frombuffer(run.sizes, np.int64)
    _compare_layout(found, device, run.pool)
    return found


class _Replay(RecordingRun):
    """A replay in progress; with ``stop`` it ends at the first difference."""

    def __init__(
        self, device: DeviceTrace, found: TorchReplay, on_progress: Callable[[float], None], *, stop: bool
    ) -> None:
        self.found, self._on_progress, self._stop = found, on_progress, stop
        self._bases = _Bases()
        super().__init__(device.events, device.events.rows_with(*_CHANGING), TorchPool(found.settings, self._bases))
        try:
            self.pool.set_initial_state(found.start.segments, found.start.live)
        except SeedError:
            raise RecordingError(reason="start", event=0) from None
        self._recorded = self.pool.state.reserved  # reserved bytes according to the events
        self._live = self.pool.live_blocks()
        self._new_memory: list[tuple[int, int]] = []  # memory taken from the device for the next block
        self.used, self.reserved, self.sizes = array("q"), array("q"), array("q")
        self._repeated_growths: list[PoolGrowth] = []

    @property
    def growths(self) -> list[PoolGrowth]:
        return sorted([*self.pool.state.growths, *self._repeated_growths], key=lambda growth: growth.request or 0)

    def carry_out(self, end: int) -> bool:
        last = int(np.searchsorted(self._places, end))
        while self._done < last:
            self._on_progress(self._done / len(self._places))
            part = self._places[self._done : min(last, self._done + _CHUNK)]
            self._done += len(part)
            self._carry_out(part)
            if self._stop and self.found.first is not None:
                return False
        return True

    def state_key(self) -> object:
        return None if self.found.first is not None or self._new_memory else super().state_key()

    def repeat_results(self, begin: int, end: int, times: int) -> None:
        super().repeat_results(begin, end, times)
        changing = int(np.searchsorted(self._places, end)) - int(np.searchsorted(self._places, begin))
        allocations = int((self._events.action[begin:end] == _ALLOC).sum())
        self.found.allocations += allocations * times
        for column, count in ((self.used, changing), (self.reserved, changing), (self.sizes, allocations)):
            column.extend(column[len(column) - count :] * times)
        grown = [growth for growth in self.pool.state.growths if begin <= (growth.request or 0) < end]
        for turn in range(1, times + 1) if grown else ():
            later = turn * (end - begin)
            self._repeated_growths += [replace(growth, request=(growth.request or 0) + later) for growth in grown]

    def _carry_out(self, places: NDArray[np.int64]) -> None:
        state, where, give, stop = self.pool.state, self._live, self.pool.give, self._stop
        used, reserved = self.used.append, self.reserved.append
        for place, action, address, size, stream in self._events.iterate_rows(places):
            if action == _ALLOC:
                self._allocate_block(place, address, size, stream)
            elif action == _FREE:
                block = where.pop(address, None)
                if block is None:
                    raise RecordingError(reason="free", event=place)
                give(block)
            elif action in _GROWS:
                self._new_memory.append((address, size))
                self._recorded += size
            else:
                self._give_segment(place, size)
            used(state.used)
            reserved(state.reserved)
            if stop and self.found.first is not None:
                return

    def _allocate_block(self, place: int, address: int, size: int, stream: int) -> None:
        if address in self._live:
            raise RecordingError(reason="alloc", event=place)
        found, state = self.found, self.pool.state
        found.allocations += 1
        wanted = sum(taken for _, taken in self._new_memory)
        if self._new_memory or self._bases:
            self._bases[:] = [base for base, _ in reversed(self._new_memory)]
            self._new_memory.clear()
        state.request = place
        reserved, before = state.reserved, len(state.growths)
        block = self._live[address] = self.pool.take(size, stream)
        self.sizes.append(block.size)
        if block.address != address:
            found.count_difference(ReplayDifference(place, "address", address, block.address))
        elif state.reserved - reserved != wanted:
            grown = sum(growth.unit_bytes for growth in state.growths[before:])
            found.count_difference(ReplayDifference(place, "growth", wanted, grown))

    def _give_segment(self, place: int, size: int) -> None:
        # A run of released segments is one call of `empty_cache`.
        self._recorded -= size
        actions = self._events.action
        if not place or actions[place - 1] not in _SHRINKS:
            self.pool.state.request = place
            self.pool.release()
        last = place + 1 == len(self._events) or actions[place + 1] not in _SHRINKS
        if last and self.pool.state.reserved != self._recorded:
            self.found.count_difference(ReplayDifference(place, "release", self._recorded, self.pool.state.reserved))


def _compare_layout(found: TorchReplay, device: DeviceTrace, pool: TorchPool) -> None:
    recorded = {block.address: (block.size, block.active) for segment in device.segments for block in segment.blocks}
    ours = pool.mapped_blocks()
    wrong = [address for address in {*recorded, *ours} if recorded.get(address) != ours.get(address)]
    if wrong:
        first = min(wrong)
        there, here = recorded.get(first, (0, False)), ours.get(first, (0, False))
        found.count_difference(ReplayDifference(len(device.events), "layout", there[0], here[0]), len(wrong))


class Recording(NamedTuple):
    """The input of a replay under other settings."""

    events: Events
    start: Start  # the state before the first event
    step_ends: tuple[int, ...]  # the last event of each training step; empty if unknown


class Cache(Enum):
    """The policy for calling ``empty_cache``."""

    AS_RECORDED = "as-recorded"
    KEPT = "kept"
    EMPTIED_EACH_STEP = "each-step"


@dataclass(frozen=True, slots=True)
class TorchOutcome:
    """The result of one setting for a recording."""

    settings: TorchSettings
    cache: Cache  # when the cache is emptied
    recorded: bool  # whether it is the recorded setting
    # reserved bytes once the blocks that were live before the recording have been allocated again
    reserved_start_bytes: int
    reserved_peak_bytes: int  # the largest number of reserved bytes
    reserved_end_bytes: int  # reserved bytes at the end
    over_limit: bool  # whether it needs more than the memory limit
    # Reserved bytes after an event (-1: before the first), after each change.
    reserved_curve: tuple[tuple[int, int], ...]


def change_segments(settings: TorchSettings, *, expandable: bool) -> TorchSettings:
    """Return the settings with expandable segments switched on or off."""
    alignment = NPU_BASE_ALIGNMENT if expandable and settings.padding else 0
    return replace(settings, expandable=expandable, base_alignment=alignment)


def replay_setting(recording: Recording, settings: TorchSettings, cache: Cache, *, recorded: bool) -> TorchOutcome:
    """Replay an exactly reproducible recording under other settings."""
    run = _SettingRun(recording, settings, cache)
    begun = run.pool.state.reserved
    carry_out_all(recording.events, run)
    return TorchOutcome(
        settings=settings,
        cache=cache,
        recorded=recorded,
        reserved_start_bytes=begun,
        reserved_peak_bytes=max(reserved for _, reserved in run.curve),
        reserved_end_bytes=run.pool.state.reserved,
        over_limit=run.pool.state.is_over,
        reserved_curve=tuple(run.curve),
    )


class _SettingRun(RecordingRun):
    def __init__(self, recording: Recording, settings: TorchSettings, cache: Cache) -> None:
        events, start, step_ends = recording
        self._cache = cache
        self._ages_matter = settings.collect_above is not None  # the result depends on how long blocks have been free
        self._gave = -2
        self._emptied = frozenset(step_ends) if cache is Cache.EMPTIED_EACH_STEP else frozenset[int]()
        telling = events.rows_with(Action.ALLOC, Action.FREE_COMPLETED, *_SHRINKS)
        telling[list(self._emptied)] = True
        super().__init__(events, telling, TorchPool(settings))
        for address in sorted(start.live):
            self._live[address] = self.pool.take(*start.requested[address])
        self.curve = [(-1, self.pool.state.reserved)]

    def carry_out(self, end: int) -> bool:
        last = int(np.searchsorted(self._places, end))
        pool, state, where, curve = self.pool, self.pool.state, self._live, self.curve
        for place, action, address, size, stream in self._events.iterate_rows(self._places[self._done : last]):
            if action == _ALLOC:
                where[address] = pool.take(size, stream)
            elif action == _FREE:
                pool.give(where.pop(address))
            elif action in _SHRINKS:
                if self._gave != place - 1 and self._cache is not Cache.KEPT:
                    pool.release()
                self._gave = place
            if place in self._emptied:
                pool.release()
            if state.reserved != curve[-1][1]:
                curve.append((place, state.reserved))
        self._done = last
        return True

    def state_key(self) -> object:
        return None if self._emptied or self._ages_matter else super().state_key()

    def repeat_results(self, begin: int, end: int, times: int) -> None:
        super().repeat_results(begin, end, times)
        changes = [(place, reserved) for place, reserved in self.curve if begin <= place < end]
        for turn in range(1, times + 1) if changes else ():
            self.curve += [(place + turn * (end - begin), reserved) for place, reserved in changes]
