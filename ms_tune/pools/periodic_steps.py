"""Training steps that are all alike: the events of a recording from which on they come again and again, one for one.

An allocator is a state machine. Where the same events meet the same state they lead to the same state and tell the same:
such steps are carried out once, and what they told is told again.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from ms_tune.readers.torch_events import Action, Events

_LEAST_EVENTS, _LEAST_TIMES = 4096, 4  # below, nothing is gained
_TRIED = 64  # places at which the event in the middle comes again that are tried as the beginning of the next step
_TURNS = 8  # steps within which the allocator comes to rest, or never
_BETWEEN = (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP, Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)


class Repeats(NamedTuple):
    """Events that come again: ``times`` stretches of ``length`` events from ``begin`` on."""

    begin: int
    length: int
    times: int


class Machine(Protocol):
    """What carries out events and can tell again what it told."""

    def carry_out(self, end: int) -> bool:
        """Carry out the events up to a place; whether to go on."""

    def state_key(self) -> object:
        """All that decides what comes next; None if the events so far must not be told again."""

    def tell_again(self, begin: int, end: int, times: int) -> None:
        """Tell so often again what the events between two places, which were the last ones, told."""


def repeats_of(events: Events) -> Repeats | None:
    """The events that come again around the middle of a recording; None if there are none."""
    count = len(events)
    if count < _LEAST_EVENTS:
        return None
    columns = (events.action, events.address, events.size, events.stream)
    middle = count // 2
    same = events.address[middle:] == events.address[middle]
    for column in columns:
        same &= column[middle:] == column[middle]
    for length in np.flatnonzero(same)[1 : _TRIED + 1].tolist():
        if middle + 2 * length > count:
            break
        if all((one[middle : middle + length] == one[middle + length : middle + 2 * length]).all() for one in columns):
            return _extend_repeats(events, middle, length)
    return None


def _extend_repeats(events: Events, middle: int, length: int) -> Repeats | None:
    """As far as it goes on, from an event on between which and the one before nothing is half done."""
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


def carry_out_all(events: Events, machine: Machine) -> None:
    """Carry out all events, steps that are all alike only until the machine is back in the state in which one began."""
    repeats = repeats_of(events)
    if repeats is not None and machine.carry_out(repeats.begin):
        before = machine.state_key()
        for turn in range(min(_TURNS, repeats.times)):
            end = repeats.begin + (turn + 1) * repeats.length
            if not machine.carry_out(end):
                return
            after = machine.state_key()
            if after is not None and after == before:
                machine.tell_again(end - repeats.length, end, repeats.times - turn - 1)
                break
            before = after
    machine.carry_out(len(events))
