"""The blocks of a snapshot of PyTorch's allocator from allocation to release, in columns, with the lines that hold most of them.

Ticks are the places of events. What was there before the recording is allocated at -1. Sizes are the allocator's where
the replay is exact, else what was asked for.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.footprint.curve import Curve
from ms_tune.footprint.torch_blocks import blocks_of, held_curve, requested_curve, script_location

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ms_tune.footprint.torch_report import TorchReport

MOST_LINES = 7  # of the script that are told apart; the others are one
OTHER_LINES, NO_FRAMES, BEFORE = "other-lines", "no-frames", "before"


@dataclass(frozen=True, slots=True, eq=False)
class TorchLives:
    """The blocks of one device, ordered by the events that allocate them."""

    report: TorchReport  # what they are from
    # `file:line` of the script by stack of the snapshot; empty where there is no frame of Python.
    lines: tuple[str, ...]
    start: NDArray[np.int64]  # the event that allocates each; -1 if it was there before
    end: NDArray[np.int64]  # the event after which it is free, or `ms_tune.readers.memory_block.NEVER_FREED`
    size: NDArray[np.int64]  # bytes
    address: NDArray[np.uint64]
    stack: NDArray[np.int64]  # the place of its Python stack in the snapshot's stacks
    category: NDArray[np.int64]  # what PyTorch says it holds, as a place in `categories`
    categories: tuple[str, ...]  # those that there are
    content: NDArray[np.int64]  # what allocated it, as a place in `contents`
    # `file:line` of the lines that hold most at the moment that the report is about, then those of `OTHER_LINES`,
    # `NO_FRAMES` and `BEFORE` that there are.
    contents: tuple[str, ...]
    curve: Curve  # bytes in use and bytes held of the device (as its footprint)

    def live_after(self, event: int) -> NDArray[np.bool_]:
        """Which are in use after an event."""
        return (self.start <= event) & (event < self.end)


def lives_of_snapshot(report: TorchReport) -> TorchLives:
    """The blocks of the device that a report is about."""
    blocks = blocks_of(report.device, report.replay)
    names = report.device.events.categories
    used = list(dict.fromkeys(blocks.category.tolist()))  # by the first block of each
    again = np.zeros(len(names), np.int64)
    again[used] = np.arange(len(used))
    lines = tuple(script_location(each) for each in report.snapshot.stacks)
    contents, content = _list_contents(report, lines, blocks.start, blocks.stack)
    return TorchLives(
        report=report,
        lines=lines,
        start=blocks.start,
        end=blocks.end,
        size=blocks.size,
        address=blocks.address.astype(np.uint64),
        stack=blocks.stack,
        category=again[blocks.category],
        categories=tuple(names[code] for code in used),
        content=content,
        contents=contents,
        curve=_curve_of(report),
    )


def _list_contents(
    report: TorchReport, wheres: Sequence[str], start: NDArray[np.int64], stack: NDArray[np.int64]
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    held: dict[str, int] = defaultdict(int)
    for place in report.contents:
        held[place.location] += place.bytes
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


def _curve_of(report: TorchReport) -> Curve:
    exact = report.replay.is_exact
    used = requested_curve(report.device)
    if exact:
        used = np.append([sum(report.replay.start.live.values())], report.replay.used)
    held = held_curve(report.device, exact=exact)
    none = np.zeros(0, np.int64)
    ticks = np.arange(-1, len(used) - 1, dtype=np.int64)
    return Curve(ticks, used, np.zeros(len(used), np.int64) if held is None else held, none, none)
