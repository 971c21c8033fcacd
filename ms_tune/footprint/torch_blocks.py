"""The blocks of a snapshot of PyTorch's allocator from allocation to release, and its curves, in columns.

Ticks are the places of events; what was there before the recording is allocated at -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.readers.torch_events import Action

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ms_tune.pools.torch_replay import TorchReplay
    from ms_tune.readers.torch_snapshot import DeviceTrace


@dataclass(frozen=True, slots=True, eq=False)
class TorchBlocks:
    """Blocks, ordered by the events that allocate them; those of before by address."""

    start: NDArray[np.int64]  # the event that allocates each; -1 if it was there before
    end: NDArray[np.int64]  # the event after which it is free, or `ms_tune.readers.memory_block.NEVER_FREED`
    size: NDArray[np.int64]  # bytes: the allocator's where the replay is exact, else what was asked for
    address: NDArray[np.int64]
    stack: NDArray[np.int64]  # the place of its Python stack in the snapshot's stacks
    category: NDArray[np.int64]  # what PyTorch says it holds, as a place in the events' categories

    def live(self, event: int) -> NDArray[np.bool_]:
        """Which are in use after an event."""
        return (self.start <= event) & (event < self.end)


def blocks_of(device: DeviceTrace, replayed: TorchReplay) -> TorchBlocks:
    """The blocks of a device.

    Args:
        device: The device.
        replayed: Its replay.
    """
    events = device.events
    before = replayed.start.live if replayed.exact else before_recording(device)
    old = sorted(before)
    first = {address: place for address, place, _ in events.first_turns()}
    final = {block.address: block.stack for segment in device.segments for block in segment.blocks if block.active}
    new = events.places(Action.ALLOC)
    sizes = replayed.sizes if replayed.exact else events.size
    return TorchBlocks(
        start=_joined([-1] * len(old), new),
        end=_joined([first.get(address, NEVER_FREED) for address in old], events.ends()[new]),
        size=_joined([before[address] for address in old], sizes[new]),
        address=_joined(old, events.address[new]),
        # What is there at the end at an address is another block where the first one was released.
        stack=_joined([0 if address in first else final.get(address, 0) for address in old], events.stack[new]),
        category=_joined([0] * len(old), events.category[new]),
    )


def _joined(old: list[int], new: NDArray[np.int64] | NDArray[np.int32]) -> NDArray[np.int64]:
    return np.concatenate([np.array(old, np.int64), new.astype(np.int64)])


def before_recording(device: DeviceTrace) -> Mapping[int, int]:
    """What was asked for of the blocks that were there before the first event."""
    live = {block.address: block.requested for segment in device.segments for block in segment.blocks if block.active}
    for address, place, allocates in device.events.first_turns():
        if allocates:
            live.pop(address, None)
        else:
            live[address] = int(device.events.size[place])
    return live


def requested_curve(device: DeviceTrace) -> NDArray[np.int64]:
    """Bytes that were asked for and are not free again: before the first event, and after each."""
    events, turns, live = device.events, device.events.turns, before_recording(device)
    size = np.where(turns.allocates, events.size[turns.place], 0)
    previous = np.append(np.zeros(1, np.int64), size[:-1])[: len(size)]
    previous[turns.first] = [live.get(address, 0) for address in turns.address[turns.first].tolist()]
    change = np.zeros(len(events) + 1, np.int64)
    change[0] = sum(live.values())
    change[turns.place + 1] = size - previous
    return np.cumsum(change)


def held_curve(device: DeviceTrace, *, exact: bool) -> NDArray[np.int64] | None:
    """Bytes taken from the device, likewise; None where the events tell of blocks and never of segments that hold them."""
    events = device.events
    more = events.are(Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)
    less = events.are(Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)
    change = np.where(more, events.size, 0) - np.where(less, events.size, 0)
    total = sum(segment.size for segment in device.segments)
    curve = np.cumsum(np.append([total - int(change.sum())], change))
    return curve if curve.min() >= 0 and (exact or change.any()) else None
