"""Where the training steps of a snapshot end, and what the lines of the script hold more after each of them.

A step is a backward pass and the optimizer after it: blocks that the backward pass makes have no frame of Python, those of
the optimizer have its ``step`` in their stacks. The step ends before the first block that neither of them makes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.readers.torch_events import Action

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.footprint.torch_blocks import TorchBlocks
    from ms_tune.readers.memory_block import Frame
    from ms_tune.readers.torch_snapshot import DeviceTrace

_OPTIMIZER = re.compile(r"/optim(?:izer|izers)?/|optimizer\w*\.py$")
_LEAST_ENDS = 3  # in the first step the optimizer makes its state


@dataclass(frozen=True, slots=True)
class StepGrowth:
    """A line of the script that holds more after each step."""

    where: str  # `file:line`; empty for blocks without a frame of Python
    bytes_per_step: int  # what it holds more after a step, on average, from the second step to the last
    held: tuple[int, ...]  # what it holds of the blocks made while it was recorded, after each step


def step_ends(device: DeviceTrace, stacks: Sequence[tuple[Frame, ...]]) -> tuple[int, ...]:
    """The last event of each step; empty where nothing tells.

    Args:
        device: The device.
        stacks: The snapshot's stacks.
    """
    kinds = np.array(
        [2 * _is_optimizer(stack) + (not any(frame.file.endswith(".py") for frame in stack)) for stack in stacks]
    )
    places = device.events.places(Action.ALLOC)
    kind = kinds[device.events.stack[places]]
    telling = np.ones(len(places), np.bool_)  # the third of a row of blocks of one kind tells nothing new
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


def _is_optimizer(stack: tuple[Frame, ...]) -> bool:
    return any("step" in frame.function and _OPTIMIZER.search(frame.file) for frame in stack)


def grown_by_step(blocks: TorchBlocks, lines: Sequence[str], ends: Sequence[int]) -> tuple[StepGrowth, ...]:
    """The lines that hold more after each step than after the one before, from the second step on; most first.

    Args:
        blocks: The blocks of the device.
        lines: ``file:line`` by stack of the snapshot.
        ends: The last event of each step.
    """
    if len(ends) < _LEAST_ENDS:
        return ()
    known = {line: number for number, line in enumerate(dict.fromkeys(lines))}
    counted = np.flatnonzero((blocks.start >= 0) & (blocks.start <= ends[-1]))
    line = np.array([known[each] for each in lines])[blocks.stack[counted]]
    # What holds more after each step makes a block in each.
    often = np.flatnonzero(np.bincount(line, minlength=len(known)) >= len(ends) - 2)
    row = np.full(len(known), -1)
    row[often] = np.arange(len(often))
    counted, line = counted[row[line] >= 0], row[line[row[line] >= 0]]
    change = np.zeros((len(often), len(ends) + 1), np.int64)
    for place, sign in ((blocks.start[counted], 1), (blocks.end[counted], -1)):
        np.add.at(change, (line, np.searchsorted(ends, place)), sign * blocks.size[counted])
    names = list(known)
    found = []
    for number, held in zip(often.tolist(), np.cumsum(change, axis=1)[:, :-1].tolist(), strict=True):
        if all(after > before for before, after in pairwise(held[1:])):
            found.append(StepGrowth(names[number], (held[-1] - held[1]) // (len(held) - 2), tuple(held)))
    return tuple(sorted(found, key=lambda growth: (-growth.bytes_per_step, growth.where)))
