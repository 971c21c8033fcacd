"""What a recorded sequence of allocations would have taken of the device under other settings of PyTorch's allocator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ms_tune.pools.torch_pool import TorchPool
from ms_tune.pools.torch_replay import RecordingRun, carry_out_all
from ms_tune.pools.torch_space import NPU_BASE_ALIGNMENT, TorchSettings
from ms_tune.readers.torch_snapshot import Action, Events

if TYPE_CHECKING:
    from ms_tune.pools.initial_state import Start

_GIVES = (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)
_ALLOC, _FREE = int(Action.ALLOC), int(Action.FREE_COMPLETED)


class Recording(NamedTuple):
    """What is replayed."""

    events: Events
    start: Start  # what is held before the first event
    step_ends: tuple[int, ...]  # the last event of each training step; empty where nothing tells


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
    reserved_start_bytes: (
        int  # what is held once the blocks that were there before the recording have been allocated again
    )
    reserved_peak_bytes: int  # the most that is held
    reserved_end_bytes: int  # what is held at the end
    over_limit: bool  # whether it needs more than the limit
    reserved_curve: tuple[
        tuple[int, int], ...
    ]  # what is held after an event (-1: before the first), wherever that changes


def change_segments(settings: TorchSettings, *, expandable: bool) -> TorchSettings:
    """The settings with the other kind of segments."""
    alignment = NPU_BASE_ALIGNMENT if expandable and settings.padding else 0
    return replace(settings, expandable=expandable, base_alignment=alignment)


def replay_setting(recording: Recording, settings: TorchSettings, cache: Cache, *, recorded: bool) -> TorchOutcome:
    """What a setting makes of a recording that is replayed exactly."""
    run = _SettingRun(recording, settings, cache)
    begun = run.pool.state.reserved
    carry_out_all(recording.events, run)
    return TorchOutcome(
        settings=settings,
        cache=cache,
        recorded=recorded,
        reserved_start_bytes=begun,
        reserved_peak_bytes=max(held for _, held in run.curve),
        reserved_end_bytes=run.pool.state.reserved,
        over_limit=run.pool.state.is_over,
        reserved_curve=tuple(run.curve),
    )


class _SettingRun(RecordingRun):
    def __init__(self, recording: Recording, settings: TorchSettings, cache: Cache) -> None:
        events, start, step_ends = recording
        self._cache = cache
        self._gave = -2
        self._emptied = frozenset(step_ends) if cache is Cache.EMPTIED_EACH_STEP else frozenset[int]()
        telling = events.rows_with(Action.ALLOC, Action.FREE_COMPLETED, *_GIVES)
        telling[list(self._emptied)] = True
        super().__init__(events, telling, TorchPool(settings))
        for address in sorted(start.live):
            self._where[address] = self.pool.take(start.requested[address], start.streams[address])
        self.curve = [(-1, self.pool.state.reserved)]

    def carry_out(self, end: int) -> bool:
        """Carry out the events up to a place; there is no reason not to go on."""
        last = int(np.searchsorted(self._places, end))
        pool, state, where, curve = self.pool, self.pool.state, self._where, self.curve
        for place, action, address, size, stream in self._events.iterate_rows(self._places[self._done : last]):
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

    def state_key(self) -> object:
        """As of any run; None where more than that decides."""
        return None if self._emptied or self.pool.counts_ages else super().state_key()

    def tell_again(self, begin: int, end: int, times: int) -> None:
        """Take over what some events told for those that are like them."""
        super().tell_again(begin, end, times)
        told = [(place, held) for place, held in self.curve if begin <= place < end]
        for turn in range(1, times + 1) if told else ():
            self.curve += [(place + turn * (end - begin), held) for place, held in told]
