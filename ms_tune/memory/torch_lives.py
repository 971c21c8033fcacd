"""The blocks of a snapshot of PyTorch's allocator from allocation to release, in columns, with the lines that hold most of them.

Ticks are the places of events. What was there before the recording is allocated at -1. Sizes are the allocator's where
the replay is exact, else what was asked for.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.memory.curve import Curve
from ms_tune.memory.torch_report import before_recording, held_curve, requested_curve, where_of
from ms_tune.trace.memory_block import NEVER_FREED
from ms_tune.trace.torch_snapshot import Action

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ms_tune.memory.torch_report import TorchReport

MOST_LINES = 7  # of the script that are told apart; the others are one
OTHER_LINES, NO_FRAMES, BEFORE = "other-lines", "no-frames", "before"


@dataclass(frozen=True, slots=True, eq=False)
class TorchLives:
    """The blocks of one device, ordered by the events that allocate them.

    Attributes:
        report: What they are from.
        lines: ``file:line`` of the script by stack of the snapshot; empty where there is no frame of Python.
        start: The event that allocates each; -1 if it was there before.
        end: The event after which it is free, or :data:`~ms_tune.trace.memory_block.NEVER_FREED`.
        size: Bytes.
        address: Its address.
        stack: The place of its Python stack in the snapshot's stacks.
        category: What PyTorch says it holds, as a place in ``categories``.
        categories: Those that there are.
        content: What allocated it, as a place in ``contents``.
        contents: ``file:line`` of the lines that hold most at the moment that the report is about, then those of
            :data:`OTHER_LINES`, :data:`NO_FRAMES` and :data:`BEFORE` that there are.
        curve: Bytes in use and bytes held of the device (as its footprint).
    """

    report: TorchReport
    lines: tuple[str, ...]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    size: NDArray[np.int64]
    address: NDArray[np.uint64]
    stack: NDArray[np.int64]
    category: NDArray[np.int64]
    categories: tuple[str, ...]
    content: NDArray[np.int64]
    contents: tuple[str, ...]
    curve: Curve

    def live(self, event: int) -> NDArray[np.bool_]:
        """Which are in use after an event."""
        return (self.start <= event) & (event < self.end)


def lives_of_snapshot(report: TorchReport) -> TorchLives:
    """The blocks of the device that a report is about."""
    rows = sorted(_lives(report))
    columns = list(zip(*rows, strict=True)) or [()] * 6
    categories = tuple(dict.fromkeys(columns[5]))
    start, end, size, stack = (np.array(columns[place], np.int64) for place in (0, 2, 3, 4))
    lines = tuple(where_of(each) for each in report.snapshot.stacks)
    contents, content = _contents(report, lines, start, stack)
    known = {name: place for place, name in enumerate(categories)}
    return TorchLives(
        report=report,
        lines=lines,
        start=start,
        end=end,
        size=size,
        address=np.array(columns[1], np.uint64),
        stack=stack,
        category=np.array([known[name] for name in columns[5]], np.int64),
        categories=categories,
        content=content,
        contents=contents,
        curve=_curve(report),
    )


def _lives(report: TorchReport) -> Iterator[tuple[int, int, int, int, int, str]]:
    """Start, address, end, size, stack and category of each block."""
    device, exact = report.device, report.replay.exact
    final = {block.address: block.stack for segment in device.segments for block in segment.blocks if block.active}
    before = report.replay.start.live if exact else before_recording(device)
    alive = {address: (-1, size, final.get(address, 0), "") for address, size in before.items()}
    for place, event in enumerate(device.events):
        if event.action is Action.FREE_COMPLETED:
            freed = alive.pop(event.address, None)
            if freed is not None:
                yield freed[0], event.address, place, *freed[1:]
        elif event.action is Action.ALLOC:
            lost = alive.pop(event.address, None)  # in damaged files only
            if lost is not None:
                yield lost[0], event.address, place, *lost[1:]
            size = report.replay.sizes[place] if exact else event.size
            alive[event.address] = (place, size, event.stack, event.category)
    for address, kept in alive.items():
        yield kept[0], address, NEVER_FREED, *kept[1:]


def _contents(
    report: TorchReport, wheres: Sequence[str], start: NDArray[np.int64], stack: NDArray[np.int64]
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The contents, and by block its place among them."""
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
    again = np.zeros(len(names), np.int64)
    again[used] = np.arange(len(used))
    return tuple(names[place] for place in used), again[found]


def _curve(report: TorchReport) -> Curve:
    exact = report.replay.exact
    used = [sum(report.replay.start.live.values()), *report.replay.used] if exact else requested_curve(report.device)
    held = held_curve(report.device, exact=exact) or [0] * len(used)
    none = np.zeros(0, np.int64)
    ticks = np.arange(-1, len(used) - 1, dtype=np.int64)
    return Curve(ticks, np.array(used, np.int64), np.array(held, np.int64), none, none)
