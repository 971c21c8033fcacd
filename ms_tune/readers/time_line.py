"""What is kept of a profile's time line: intervals and moments as columns, for millions of them."""

from __future__ import annotations

import itertools
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Intervals:
    """Starts and lengths in microseconds since the trace's base, in order of their starts."""

    start: array[float] = field(default_factory=lambda: array("d"))
    length: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.start)

    def in_order(self) -> Intervals:
        """By their starts, as exporters write them most of the time."""
        if all(sooner < later for sooner, later in itertools.pairwise(self.start)):
            return self
        return intervals_of(sorted(zip(self.start, self.length, strict=True)))

    @property
    def total(self) -> float:
        """The sum of the lengths."""
        return sum(self.length)


@dataclass(frozen=True, slots=True)
class Moments(Generic[_T]):
    """What is known of some moments on the device."""

    at: array[int]  # the moments, in nanoseconds since the trace's base, rising
    told: Sequence[_T]  # what is known of each

    def __len__(self) -> int:
        return len(self.at)


@dataclass(frozen=True, slots=True)
class ProfileEvents:
    """What was kept of a trace."""

    base: int  # microseconds that all times count from: a whole number, as a float has too few digits for a time stamp
    # Intervals by what the device did: `compute`, `exposed` (communication alone), `free`, `comm`.
    overlap: dict[str, Intervals]
    collectives: list[tuple[float, float, str]]  # collectives and sends, by their names
    # Where something starts on the device, when it was launched on the host, in microseconds since the base.
    launches: Moments[float]
    host: Intervals  # long events of the host; of equal length with `host_names`
    host_names: list[str]
    names: Moments[str]  # names of what starts on the device
    events: int  # how many events were read
    dropped: int  # events beyond the most that are kept
    truncated: bool  # the file ends within an event


def intervals_of(rows: Iterable[tuple[float, float]]) -> Intervals:
    """Columns of starts and lengths."""
    kept = [*rows]
    return Intervals(array("d", [start for start, _ in kept]), array("d", [length for _, length in kept]))


def moments_of(at: array[int], told: Sequence[_T]) -> Moments[_T]:
    """In order of time; of several at one moment the last one counts."""
    if all(sooner < later for sooner, later in itertools.pairwise(at)):
        return Moments(at, told)
    order = sorted(range(len(at)), key=at.__getitem__)
    order = [place for place, after in zip(order, [*order[1:], -1], strict=True) if after < 0 or at[after] != at[place]]
    return Moments(array("q", [at[place] for place in order]), [told[place] for place in order])
