"""What two traces have, one more than the other: matched by content, operator and place, never by number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.footprint.category import CONTENTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.enums import MemoryCategory
    from ms_tune.footprint.groups import Holder
    from ms_tune.footprint.result import MemoryReport, RankReport


@dataclass(frozen=True, slots=True)
class SizeChange:
    """Blocks of one content, operator and place in both traces; zero where a trace has none."""

    operator: str
    where: str
    content: MemoryCategory
    before: int  # bytes at the peak of the first trace
    after: int  # bytes at the peak of the second trace
    count_before: int  # blocks of the first
    count_after: int  # blocks of the second

    @property
    def bytes(self) -> int:
        """What the second trace has more."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class RankComparison:
    """One rank of both runs, each at its own peak."""

    before: RankReport  # the rank in the first run
    after: RankReport  # the same rank in the second
    contents: Mapping[
        MemoryCategory, int
    ]  # what the second has more of each content; adds up to the difference of the peaks
    changes: tuple[SizeChange, ...]  # what differs, the largest difference first; adds up, too

    @property
    def bytes(self) -> int:
        """How much higher the second peak is."""
        return self.after.curve.peak_bytes - self.before.curve.peak_bytes


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs."""

    ranks: tuple[RankComparison, ...]  # the ranks that both have
    only_before: tuple[int | None, ...]  # ranks of the first run only
    only_after: tuple[int | None, ...]  # ranks of the second run only


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
            changes.append(SizeChange(operator, where, content, *sizes, *counts))
    changes.sort(key=lambda change: (-abs(change.bytes), change.operator, change.where))
    contents = {content: after.peak.contents[content] - before.peak.contents[content] for content in CONTENTS}
    return RankComparison(before, after, contents, tuple(changes))


def _by_key(rank: RankReport) -> dict[tuple[str, str, MemoryCategory], Holder]:
    return {(holder.operator, holder.where, holder.content): holder for holder in rank.peak.holders}
