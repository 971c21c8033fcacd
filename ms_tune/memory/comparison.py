"""What two traces have, one more than the other: matched by content, operator and place, never by number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.memory.contents import CONTENTS, Content

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.memory.groups import Holder
    from ms_tune.memory.result import MemoryReport, RankReport


@dataclass(frozen=True, slots=True)
class Change:
    """Blocks of one content, operator and place in both traces; zero where a trace has none.

    Attributes:
        before: Bytes at the peak of the first trace.
        after: Bytes at the peak of the second trace.
        count_before: Blocks of the first.
        count_after: Blocks of the second.
    """

    operator: str
    where: str
    content: Content
    before: int
    after: int
    count_before: int
    count_after: int

    @property
    def bytes(self) -> int:
        """What the second trace has more."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class RankComparison:
    """One rank of both runs, each at its own peak.

    Attributes:
        before: The rank in the first run.
        after: The same rank in the second.
        contents: What the second has more of each content; adds up to the difference of the peaks.
        changes: What differs, the largest difference first; adds up, too.
    """

    before: RankReport
    after: RankReport
    contents: Mapping[Content, int]
    changes: tuple[Change, ...]

    @property
    def bytes(self) -> int:
        """How much higher the second peak is."""
        return self.after.curve.peak_bytes - self.before.curve.peak_bytes


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs.

    Attributes:
        ranks: The ranks that both have.
        only_before: Ranks of the first run only.
        only_after: Ranks of the second run only.
    """

    ranks: tuple[RankComparison, ...]
    only_before: tuple[int | None, ...]
    only_after: tuple[int | None, ...]


def compare(before: MemoryReport, after: MemoryReport) -> Comparison:
    """Two runs, rank by rank; single ranks are compared whatever their numbers are."""
    if len(before.ranks) == len(after.ranks) == 1:
        return Comparison((compare_ranks(before.ranks[0], after.ranks[0]),), (), ())
    first = {rank.rank: rank for rank in before.ranks}
    second = {rank.rank: rank for rank in after.ranks}
    both = [number for number in first if number in second]
    return Comparison(
        tuple(compare_ranks(first[number], second[number]) for number in both),
        tuple(number for number in first if number not in second),
        tuple(number for number in second if number not in first),
    )


def compare_ranks(before: RankReport, after: RankReport) -> RankComparison:
    """Two ranks, each at its own peak."""
    first, second = _by_key(before), _by_key(after)
    changes = []
    for key in {**first, **second}:
        operator, where, content = key
        one, other = first.get(key), second.get(key)
        sizes = (one.bytes if one else 0, other.bytes if other else 0)
        counts = (one.count if one else 0, other.count if other else 0)
        if sizes[0] != sizes[1]:
            changes.append(Change(operator, where, content, *sizes, *counts))
    changes.sort(key=lambda change: (-abs(change.bytes), change.operator, change.where))
    contents = {content: after.peak.contents[content] - before.peak.contents[content] for content in CONTENTS}
    return RankComparison(before, after, contents, tuple(changes))


def _by_key(rank: RankReport) -> dict[tuple[str, str, Content], Holder]:
    return {(holder.operator, holder.where, holder.content): holder for holder in rank.peak.holders}
