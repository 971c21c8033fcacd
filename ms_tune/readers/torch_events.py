"""The events of a snapshot of PyTorch's or torch_npu's allocator, in columns: a file of 500 MB has eleven million."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ms_tune.readers.memory_block import NEVER_FREED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

_CHUNK = 1 << 16


class Action(IntEnum):
    """What an event of the allocator is."""

    ALLOC = 0
    FREE_REQUESTED = 1
    FREE_COMPLETED = 2
    SEGMENT_ALLOC = 3
    SEGMENT_FREE = 4
    SEGMENT_MAP = 5
    SEGMENT_UNMAP = 6
    OOM = 7
    SNAPSHOT = 8
    OTHER = 9


class Event(NamedTuple):
    """One thing that the allocator did."""

    action: Action  # what
    address: int  # of the block or segment; of an OOM the free bytes of the device
    size: int  # bytes
    stream: int
    stack: int  # the place of its Python stack in the snapshot's stacks; 0 is the empty one
    category: str  # what PyTorch says it holds; empty if it does not say


class Turns(NamedTuple):
    """The allocations and releases of blocks by address, and at one address in the order in which they happened."""

    place: NDArray[np.int64]  # their places among all events
    address: NDArray[np.int64]  # their addresses, ascending
    allocates: NDArray[np.bool_]  # whether each is an allocation
    first: NDArray[np.bool_]  # whether each is the first one at its address
    last: NDArray[np.bool_]  # whether it is the last one there


@dataclass(frozen=True, eq=False)
class Events:
    """The events of one device in their order."""

    action: NDArray[np.int8]  # values of `Action`
    # As in `Event`.
    address: NDArray[np.int64]
    size: NDArray[np.int64]
    stream: NDArray[np.uint64]
    stack: NDArray[np.int32]
    category: NDArray[np.int32]  # places in `categories`
    categories: Sequence[str]  # the texts
    unknown: Mapping[str, int]  # how many events there are of each action that is not known here, the commonest first

    def __len__(self) -> int:
        return len(self.action)

    def __getitem__(self, place: int) -> Event:
        return Event(
            Action(int(self.action[place])),
            int(self.address[place]),
            int(self.size[place]),
            int(self.stream[place]),
            int(self.stack[place]),
            self.categories[int(self.category[place])],
        )

    def rows_with(self, *actions: Action) -> NDArray[np.bool_]:
        """Which are one of these actions."""
        return np.isin(self.action, actions)

    def places_with(self, *actions: Action) -> NDArray[np.int64]:
        """Where the events of these actions are."""
        return np.flatnonzero(self.rows_with(*actions))

    def iterate_rows(self, places: NDArray[np.int64]) -> Iterator[tuple[int, int, int, int, int]]:
        """Place, action, address, size and stream of some events, as plain numbers, in order."""
        for begin in range(0, len(places), _CHUNK):
            part = places[begin : begin + _CHUNK]
            columns = (self.action, self.address, self.size, self.stream)
            yield from zip(part.tolist(), *(column[part].tolist() for column in columns), strict=True)

    @cached_property
    def turns_by_address(self) -> Turns:
        """The allocations and releases of blocks by address."""
        places = self.places_with(Action.ALLOC, Action.FREE_COMPLETED)
        found = self.address[places]
        order = np.argsort(found, kind="stable")
        place, address = places[order], found[order]
        changes = np.flatnonzero(address[1:] != address[:-1])
        first, last = np.zeros(len(place), np.bool_), np.zeros(len(place), np.bool_)
        if len(place):
            first[0] = last[-1] = True
            first[changes + 1] = last[changes] = True
        return Turns(place, address, self.action[place] == Action.ALLOC, first, last)

    def first_turns(self) -> Iterable[tuple[int, int, bool]]:
        """Address, place and whether it is an allocation, of the first allocation or release at each address."""
        turns = self.turns_by_address
        return zip(
            turns.address[turns.first].tolist(),
            turns.place[turns.first].tolist(),
            turns.allocates[turns.first].tolist(),
            strict=True,
        )

    def release_events(self) -> NDArray[np.int64]:
        """By event that allocates a block the event that releases it, or reuses its address in damaged files.

        :data:`~ms_tune.readers.memory_block.NEVER_FREED` where there is none, and for all other events.
        """
        turns = self.turns_by_address
        following = np.append(turns.place[1:], NEVER_FREED)
        following[turns.last] = NEVER_FREED
        found = np.full(len(self), NEVER_FREED, np.int64)
        found[turns.place[turns.allocates]] = following[turns.allocates]
        return found
