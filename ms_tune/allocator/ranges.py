"""Sets of addresses."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Ranges:
    """A set of addresses as ascending ranges that do not touch."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Put a range in."""
        if end <= start:
            return
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]

    def remove(self, start: int, end: int) -> None:
        """Take a range out."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if first >= last or end <= start:
            return
        left = [(self._starts[first], start)] if self._starts[first] < start else []
        right = [(end, self._ends[last - 1])] if self._ends[last - 1] > end else []
        kept = left + right
        self._starts[first:last] = [one for one, _ in kept]
        self._ends[first:last] = [one for _, one in kept]

    def between(self, start: int, end: int) -> list[tuple[int, int]]:
        """What is in the set of a range."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        pairs = zip(self._starts[first:last], self._ends[first:last], strict=True)
        return [(max(low, start), min(high, end)) for low, high in pairs]

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """What is not in the set of a range."""
        found = []
        for low, high in self.between(start, end):
            if low > start:
                found.append((start, low))
            start = high
        return [*found, (start, end)] if start < end else found
