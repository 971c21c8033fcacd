"""List the blocks of a PyTorch allocator snapshot, its curves, and the script lines that grow with every step.

Ticks are indices of events; blocks that are older than the recording are allocated at -1. Sizes are the allocator's if
the replay is exact, else the requested ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ms_tune.footprint.phases import FrameOrigin, classify_frame
from ms_tune.pools.torch_replay import TorchReplay
from ms_tune.readers.memory_block import NEVER_FREED, Frame
from ms_tune.readers.torch_snapshot import Action, DeviceTrace
from ms_tune.records import Record

_TORCH = re.compile(
    r"(?:site|dist)-packages/(?:torch|torch_npu|apex|megatron|mindspeed)/|/(?:torch|torch_npu|megatron)/"
)
_OPTIMIZER = re.compile(r"/optim(?:izer|izers)?/|optimizer\w*\.py$")
_LEAST_ENDS = 3  # the first step creates the optimizer state


@dataclass(frozen=True, slots=True, eq=False)
class TorchBlocks:
    """Blocks in the order of the events that allocate them, after the older ones, which are ordered by address."""

    start: NDArray[np.int64]  # the event that allocates it; -1 if it is older than the recording
    end: NDArray[np.int64]  # the event after which it is free, or `ms_tune.readers.memory_block.NEVER_FREED`
    size: NDArray[np.int64]  # bytes: the allocator's if the replay is exact, else the requested ones
    address: NDArray[np.int64]
    stack: NDArray[np.int64]  # index of its Python stack in the snapshot's stacks
    category: NDArray[np.int64]  # PyTorch's category of its data, as an index into the events' categories

    def live_after(self, event: int) -> NDArray[np.bool_]:
        """Return which blocks are in use after an event."""
        return (self.start <= event) & (event < self.end)


def list_blocks(device: DeviceTrace, replayed: TorchReplay) -> TorchBlocks:
    """Return the blocks of a device."""
    events = device.events
    before = replayed.start.live if replayed.is_exact else find_earlier_blocks(device)
    old = sorted(before)
    first = {address: place for address, place, _ in events.first_turns()}
    final = {block.address: block.stack for segment in device.segments for block in segment.blocks if block.active}
    new = events.places_with(Action.ALLOC)
    sizes = replayed.sizes if replayed.is_exact else events.size
    return TorchBlocks(
        start=_concatenate([-1] * len(old), new),
        end=_concatenate([first.get(address, NEVER_FREED) for address in old], events.release_events()[new]),
        size=_concatenate([before[address] for address in old], sizes[new]),
        address=_concatenate(old, events.address[new]),
        # If the first block at an address was released, the block there at the end is another one.
        stack=_concatenate([0 if address in first else final.get(address, 0) for address in old], events.stack[new]),
        category=_concatenate([0] * len(old), events.category[new]),
    )


def _concatenate(old: list[int], new: NDArray[np.int64] | NDArray[np.int32]) -> NDArray[np.int64]:
    return np.concatenate([np.array(old, np.int64), new.astype(np.int64)])


def find_earlier_blocks(device: DeviceTrace) -> Mapping[int, int]:
    """Return the requested sizes, by address, of the blocks that were alive before the first event."""
    live = {block.address: block.requested for segment in device.segments for block in segment.blocks if block.active}
    for address, place, allocates in device.events.first_turns():
        if allocates:
            live.pop(address, None)
        else:
            live[address] = int(device.events.size[place])
    return live


def sum_requested(device: DeviceTrace) -> NDArray[np.int64]:
    """Return the requested bytes of live blocks: before the first event, and after each event."""
    events, turns, live = device.events, device.events.turns_by_address, find_earlier_blocks(device)
    size = np.where(turns.allocates, events.size[turns.place], 0)
    previous = np.append(np.zeros(1, np.int64), size[:-1])[: len(size)]
    previous[turns.first] = [live.get(address, 0) for address in turns.address[turns.first].tolist()]
    change = np.zeros(len(events) + 1, np.int64)
    change[0] = sum(live.values())
    change[turns.place + 1] = size - previous
    return np.cumsum(change)


def sum_live_bytes(device: DeviceTrace, replayed: TorchReplay) -> NDArray[np.int64]:
    """Return the bytes of live blocks before the first event and after each, by the sizes of :class:`TorchBlocks`."""
    if not replayed.is_exact:
        return sum_requested(device)
    return np.append([sum(replayed.start.live.values())], replayed.used)


def sum_reserved_bytes(device: DeviceTrace) -> NDArray[np.int64] | None:
    """Return the reserved bytes before the first event and after each; None if the file records no segments."""
    events = device.events
    more = events.rows_with(Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)
    less = events.rows_with(Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)
    change = np.where(more, events.size, 0) - np.where(less, events.size, 0)
    total = sum(segment.size for segment in device.segments)
    curve = np.cumsum(np.append([total - int(change.sum())], change))
    return curve if curve.min() >= 0 and curve.any() else None


@lru_cache(maxsize=65536)
def find_script_location(stack: tuple[Frame, ...]) -> str:
    """Return ``file:line`` of the innermost frame of user code, else of a library except PyTorch, else of Python."""
    python = [frame for frame in reversed(stack) if frame.file.endswith(".py")]
    own = (frame for frame in python if classify_frame(frame) is FrameOrigin.USER and not _TORCH.search(frame.file))
    libraries = (
        frame for frame in python if not _TORCH.search(frame.file) and classify_frame(frame) is not FrameOrigin.NOISE
    )
    frame = next(own, None) or next(libraries, None) or next(iter(python), None)
    return f"{frame.file}:{frame.line}" if frame is not None else ""


class StepGrowth(Record):
    """A line of the script that allocates more memory with each step."""

    where: str  # `file:line`; empty for blocks without a frame of Python
    bytes_per_step: int  # average growth per step, from the second step to the last
    bytes: tuple[int, ...]  # bytes of its blocks from the recording, after each step


def find_step_ends(device: DeviceTrace, stacks: Sequence[tuple[Frame, ...]]) -> tuple[int, ...]:
    """Return the last event of each step; empty if the steps cannot be determined.

    A step is a backward pass and the optimizer after it: blocks of the backward pass have no Python frame, those of the
    optimizer have its ``step`` in their stacks. The step ends before the first block that neither of them allocates.
    """
    kinds = np.array(
        [
            2 * any("step" in frame.function and _OPTIMIZER.search(frame.file) for frame in stack)
            + (not any(frame.file.endswith(".py") for frame in stack))
            for stack in stacks
        ]
    )
    places = device.events.places_with(Action.ALLOC)
    kind = kinds[device.events.stack[places]]
    telling = np.ones(len(places), np.bool_)  # the third and later of successive blocks of one kind add no information
    telling[2:] = (kind[2:] != kind[1:-1]) | (kind[1:-1] != kind[:-2])
    ends, backward, optimizer = [], False, False
    for place, what in zip(places[telling].tolist(), kind[telling].tolist(), strict=True):
        if what & 2:
            optimizer = backward
        elif optimizer:
            ends.append(place - 1)
            backward = optimizer = False
        backward |= bool(what & 1)
    return (*ends, len(device.events) - 1) if optimizer else tuple(ends)


def find_step_growth(blocks: TorchBlocks, lines: Sequence[str], ends: Sequence[int]) -> tuple[StepGrowth, ...]:
    """Return the lines, by stack, whose memory grows after each step from the second on; the largest growth first."""
    if len(ends) < _LEAST_ENDS:
        return ()
    known = {line: number for number, line in enumerate(dict.fromkeys(lines))}
    counted = np.flatnonzero((blocks.start >= 0) & (blocks.start <= ends[-1]))
    line = np.array([known[each] for each in lines])[blocks.stack[counted]]
    # A line that grows with each step allocates a block in each.
    often = np.flatnonzero(np.bincount(line, minlength=len(known)) >= len(ends) - 2)
    row = np.full(len(known), -1)
    row[often] = np.arange(len(often))
    counted, line = counted[row[line] >= 0], row[line[row[line] >= 0]]
    change = np.zeros((len(often), len(ends) + 1), np.int64)
    for place, sign in ((blocks.start[counted], 1), (blocks.end[counted], -1)):
        np.add.at(change, (line, np.searchsorted(ends, place)), sign * blocks.size[counted])
    names = list(known)
    found = []
    for number, totals in zip(often.tolist(), np.cumsum(change, axis=1)[:, :-1].tolist(), strict=True):
        if all(after > before for before, after in pairwise(totals[1:])):
            found.append(StepGrowth(names[number], (totals[-1] - totals[1]) // (len(totals) - 2), tuple(totals)))
    return tuple(sorted(found, key=lambda growth: (-growth.bytes_per_step, growth.where)))
