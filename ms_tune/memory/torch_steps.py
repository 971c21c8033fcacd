"""Where the training steps of a snapshot end, and what the lines of the script hold more after each of them.

A step is a backward pass and the optimizer after it: blocks that the backward pass makes have no frame of Python, those of
the optimizer have its ``step`` in their stacks. The step ends before the first block that neither of them makes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ms_tune.trace.torch_snapshot import Action

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ms_tune.trace.memory_block import Frame
    from ms_tune.trace.torch_snapshot import DeviceTrace

_OPTIMIZER = re.compile(r"/optim(?:izer|izers)?/|optimizer\w*\.py$")
_LEAST_ENDS = 3  # in the first step the optimizer makes its state


@dataclass(frozen=True, slots=True)
class StepGrowth:
    """A line of the script that holds more after each step.

    Attributes:
        where: ``file:line``; empty for blocks without a frame of Python.
        bytes_per_step: What it holds more after a step, on average, from the second step to the last.
        held: What it holds of the blocks made while it was recorded, after each step.
    """

    where: str
    bytes_per_step: int
    held: tuple[int, ...]


def step_ends(device: DeviceTrace, stacks: Sequence[tuple[Frame, ...]]) -> tuple[int, ...]:
    """The last event of each step; empty where nothing tells.

    Args:
        device: The device.
        stacks: The snapshot's stacks.
    """
    steps = [_is_optimizer(stack) for stack in stacks]
    python = [any(frame.file.endswith(".py") for frame in stack) for stack in stacks]
    ends, backward, optimizer = [], False, False
    for place, event in enumerate(device.events):
        if event.action is not Action.ALLOC:
            continue
        if steps[event.stack]:
            optimizer = backward
        elif optimizer:
            ends.append(place - 1)
            backward = optimizer = False
        backward |= not python[event.stack]
    return (*ends, len(device.events) - 1) if optimizer else tuple(ends)


def _is_optimizer(stack: tuple[Frame, ...]) -> bool:
    return any("step" in frame.function and _OPTIMIZER.search(frame.file) for frame in stack)


def grown_by_step(
    device: DeviceTrace, lines: Sequence[str], sizes: Mapping[int, int], ends: Sequence[int]
) -> tuple[StepGrowth, ...]:
    """The lines that hold more after each step than after the one before, from the second step on; most first.

    Args:
        device: The device.
        lines: ``file:line`` by stack of the snapshot.
        sizes: What a block takes by the event that allocates it; what was asked for where this does not tell.
        ends: The last event of each step.
    """
    if len(ends) < _LEAST_ENDS:
        return ()
    live: dict[int, tuple[str, int]] = {}
    totals: dict[str, int] = defaultdict(int)
    held: list[dict[str, int]] = []
    places = set(ends)
    for place, event in enumerate(device.events):
        if event.action in (Action.ALLOC, Action.FREE_COMPLETED) and event.address in live:
            line, size = live.pop(event.address)
            totals[line] -= size
        if event.action is Action.ALLOC:
            live[event.address] = lines[event.stack], sizes.get(place, event.size)
            totals[lines[event.stack]] += live[event.address][1]
        if place in places:
            held.append(dict(totals))
    found = []
    for line in held[-1]:
        amounts = [each.get(line, 0) for each in held]
        if all(after > before for before, after in pairwise(amounts[1:])):
            found.append(StepGrowth(line, (amounts[-1] - amounts[1]) // (len(amounts) - 2), tuple(amounts)))
    return tuple(sorted(found, key=lambda growth: (-growth.bytes_per_step, growth.where)))
