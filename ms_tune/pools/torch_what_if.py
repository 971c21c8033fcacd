"""What a recorded sequence of allocations would have taken of the device under other settings of PyTorch's allocator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.errors import TraceError, UsageError
from ms_tune.footprint.torch_report import analyse_snapshot
from ms_tune.pools.torch_pool import TorchPool
from ms_tune.pools.torch_repeats import carry_out_all
from ms_tune.pools.torch_settings import NPU_BASE_ALIGNMENT
from ms_tune.readers.torch_events import Action
from ms_tune.text import msg
from ms_tune.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ms_tune.footprint.torch_report import TorchReport
    from ms_tune.pools.torch_settings import TorchSettings
    from ms_tune.text import Message

_SPLITS = (64 * MIB, 128 * MIB, 256 * MIB)  # tried where nobody names one
_COLLECT = 0.8  # the threshold of PyTorch's own notes
_GIVES = (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)
_ALLOC, _FREE = int(Action.ALLOC), int(Action.FREE_COMPLETED)


@dataclass(frozen=True, slots=True)
class TorchWhatIfRequest:
    """What to replay."""

    device: int | None = None  # the device's number; None for the one with the most events
    expandable: bool | None = None  # `expandable_segments`; None as recorded
    max_split: int | None = None  # `max_split_size_mb` in bytes; None as recorded
    roundup: int | None = None  # `roundup_power2_divisions`; None as recorded
    keep_cache: bool = False  # whether the script's calls of `empty_cache` are left out
    empty_each_step: bool = False  # whether it is called after each training step
    collect_above: float | None = None  # `garbage_collection_threshold`, a share of `limit`; None: not set
    limit: int | None = None  # bytes of the device that the allocator may take; None: no limit

    @property
    def names_settings(self) -> bool:
        """Whether a setting is asked for."""
        named = (self.expandable, self.max_split, self.roundup, self.collect_above)
        return self.keep_cache or self.empty_each_step or any(each is not None for each in named)


class Cache(Enum):
    """When ``empty_cache`` is called."""

    AS_RECORDED = "as-recorded"
    KEPT = "kept"
    EMPTIED_EACH_STEP = "each-step"


@dataclass(frozen=True, slots=True)
class TorchOutcome:
    """What a setting makes of a recording."""

    settings: TorchSettings
    cache: Cache  # what is done with the cache
    recorded: bool  # whether it is the recorded one
    start_bytes: int  # what is held once the blocks that were there before the recording have been allocated again
    peak_bytes: int  # the most that is held
    end_bytes: int  # what is held at the end
    over: bool  # whether it needs more than the limit
    curve: tuple[tuple[int, int], ...]  # what is held after an event (-1: before the first), wherever that changes


@dataclass(frozen=True, slots=True)
class TorchWhatIf:
    """A recording under several settings."""

    report: TorchReport  # the recording
    # The recorded setting first, replayed like the others, so that its distance from the recording shows the error of a
    # start that is allocated again.
    outcomes: tuple[TorchOutcome, ...]
    limit: int | None  # bytes that the allocator may take; None: no limit
    error_bytes: int  # how far the replay of the recorded setting, without a limit, is from the recording at the peak

    @property
    def fails(self) -> bool:
        """Whether what is asked for, or else the best of all, is over the limit."""
        asked = [one for one in self.outcomes if not one.recorded] or list(self.outcomes)
        return all(one.over for one in asked)


def torch_what_if(
    path: Path, request: TorchWhatIfRequest, on_progress: Callable[[Message, float], None]
) -> TorchWhatIf:
    """Replay a snapshot under other settings.

    Args:
        path: The file.
        request: Which ones; where it names none, those that people try.
        on_progress: Told what is being done, and how much of it.

    Raises:
        TraceError: The file cannot be read, or its recording cannot be replayed exactly.
        UsageError: There is no such device, no limit for a share of it, or nothing tells where steps end.
    """
    if request.collect_above is not None and request.limit is None:
        raise UsageError(msg("snapshot.no-limit"), msg("snapshot.no-limit.hint"))
    report = analyse_snapshot(path, request.device, None, on_progress)
    reason = report.refused_because
    if reason is not None:
        raise TraceError(msg("snapshot.refused", reason=reason), msg("snapshot.refused.hint"), path=path)
    if request.empty_each_step and not report.step_ends:
        raise UsageError(msg("snapshot.no-steps"), msg("snapshot.no-steps.hint"))
    recorded = report.replay.settings
    tried = [(recorded, Cache.AS_RECORDED), *_asked(request, recorded, steps=bool(report.step_ends))]
    outcomes = []
    for number, (settings, cache) in enumerate(tried):
        on_progress(msg("snapshot.progress.what-if"), number / len(tried))
        limited = replace(settings, total=request.limit)
        found = outcome_of(report, limited, cache, recorded=not number)
        outcomes.append(found)
    plain = outcomes[0]
    if request.limit is not None:
        plain = outcome_of(report, recorded, Cache.AS_RECORDED, recorded=True)
    error = plain.peak_bytes - (report.reserved_peak_bytes or 0)
    return TorchWhatIf(report, tuple(outcomes), request.limit, error)


def with_segments(settings: TorchSettings, *, expandable: bool) -> TorchSettings:
    """The settings with the other kind of segments."""
    alignment = NPU_BASE_ALIGNMENT if expandable and settings.padding else 0
    return replace(settings, expandable=expandable, base_alignment=alignment)


def _asked(request: TorchWhatIfRequest, recorded: TorchSettings, *, steps: bool) -> list[tuple[TorchSettings, Cache]]:
    if request.names_settings:
        settings = recorded
        if request.expandable is not None and request.expandable is not recorded.expandable:
            settings = with_segments(settings, expandable=request.expandable)
        if request.max_split is not None:
            settings = replace(settings, max_split=request.max_split)
        if request.roundup is not None:
            settings = replace(settings, roundup=(request.roundup,))
        settings = replace(settings, collect_above=request.collect_above)
        each_step = Cache.EMPTIED_EACH_STEP if request.empty_each_step else Cache.AS_RECORDED
        return [(settings, Cache.KEPT if request.keep_cache else each_step)]
    classic = with_segments(recorded, expandable=False)
    other = classic if recorded.expandable else with_segments(recorded, expandable=True)
    found = [(other, Cache.AS_RECORDED)]
    found += [(replace(classic, max_split=limit), Cache.AS_RECORDED) for limit in _SPLITS]
    if request.limit is not None:
        found.append((replace(recorded, collect_above=_COLLECT), Cache.AS_RECORDED))
    if steps:
        found.append((recorded, Cache.EMPTIED_EACH_STEP))
    return found


def outcome_of(report: TorchReport, settings: TorchSettings, cache: Cache, *, recorded: bool) -> TorchOutcome:
    """What a setting makes of a recording that is replayed exactly."""
    run = _SettingRun(report, settings, cache)
    begun = run.pool.state.reserved
    carry_out_all(report.device.events, run)
    return TorchOutcome(
        settings=settings,
        cache=cache,
        recorded=recorded,
        start_bytes=begun,
        peak_bytes=max(held for _, held in run.curve),
        end_bytes=run.pool.state.reserved,
        over=run.pool.state.over,
        curve=tuple(run.curve),
    )


class _SettingRun:
    """A recording under other settings as it goes on.

    Attributes:
        pool: The allocator.
        curve: What is held after an event, wherever that changes.
    """

    def __init__(self, report: TorchReport, settings: TorchSettings, cache: Cache) -> None:
        start, self._events, self._cache = report.replay.start, report.device.events, cache
        self.pool = TorchPool(settings)
        take = self.pool.take
        self._where = {
            address: take(start.requested[address], start.streams[address]) for address in sorted(start.live)
        }
        self.curve = [(-1, self.pool.state.reserved)]
        self._gave = -2
        self._emptied = frozenset(report.step_ends) if cache is Cache.EMPTIED_EACH_STEP else frozenset[int]()
        telling = self._events.are(Action.ALLOC, Action.FREE_COMPLETED, *_GIVES)
        telling[list(self._emptied)] = True
        self._places = np.flatnonzero(telling)
        self._done = 0  # how many of the places

    def carry_out(self, end: int) -> bool:
        """Carry out the events up to a place; there is no reason not to go on."""
        last = int(np.searchsorted(self._places, end))
        pool, state, where, curve = self.pool, self.pool.state, self._where, self.curve
        for place, action, address, size, stream in self._events.rows(self._places[self._done : last]):
            if action == _ALLOC:
                where[address] = pool.take(size, stream)
            elif action == _FREE:
                pool.give(where.pop(address))
            elif action in _GIVES:
                if self._gave != place - 1 and self._cache is not Cache.KEPT:
                    pool.release()
                self._gave = place
            if place in self._emptied:
                pool.release()
            if state.reserved != curve[-1][1]:
                curve.append((place, state.reserved))
        self._done = last
        return True

    def picture(self) -> object:
        """The allocator's state and where each recorded block lies; None where more than that decides."""
        if self._emptied or self.pool.ages:
            return None
        return self.pool.picture(), {address: block.address for address, block in self._where.items()}

    def tell_again(self, begin: int, end: int, times: int) -> None:
        """Take over what some events told for those that are like them."""
        first, last = np.searchsorted(self._places, [begin, end]).tolist()
        self._done += (last - first) * times
        told = [(place, held) for place, held in self.curve if begin <= place < end]
        for turn in range(1, times + 1) if told else ():
            self.curve += [(place + turn * (end - begin), held) for place, held in told]
