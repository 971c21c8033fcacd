"""Compare the memory of two traces: blocks are matched by category, operator and place, or by size, never by number."""

from __future__ import annotations

from collections.abc import Mapping

from ms_tune.enums import MemoryCategory
from ms_tune.footprint.breakdown import Holder
from ms_tune.footprint.category import CONTENTS
from ms_tune.footprint.result import MemoryReport, RankReport
from ms_tune.records import Record


class SizeChange(Record):
    """Blocks of one category, operator and place in both traces; zero if a trace has none."""

    operator: str
    where: str
    category: MemoryCategory
    before_bytes: int  # bytes at the peak of the first trace
    after_bytes: int  # bytes at the peak of the second trace
    before_count: int  # blocks of the first
    after_count: int  # blocks of the second

    @property
    def change_bytes(self) -> int:
        """Return the increase from the first trace to the second."""
        return self.after_bytes - self.before_bytes


class RankComparison(Record):
    """One rank of both runs, each at the peak of that run."""

    before: RankReport  # the rank in the first run
    after: RankReport  # the same rank in the second
    # The increase of each category; adds up to the difference of the peaks.
    contents: Mapping[MemoryCategory, int]
    changes: tuple[SizeChange, ...]  # the differences, the largest first; they add up to it, too

    @property
    def change_bytes(self) -> int:
        """Return the increase of the peak."""
        return self.after.curve.peak_bytes - self.before.curve.peak_bytes


class Comparison(Record):
    """The comparison of two runs."""

    ranks: tuple[RankComparison, ...]  # the ranks that both have
    only_before: tuple[int | None, ...]  # ranks of the first run only
    only_after: tuple[int | None, ...]  # ranks of the second run only


def compare_reports(before: MemoryReport, after: MemoryReport) -> Comparison:
    """Compare two runs, rank by rank; single ranks are compared regardless of their numbers."""
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
    """Compare two ranks, each at its own peak."""
    first, second = _index_holders(before), _index_holders(after)
    changes = []
    for key in {**first, **second}:
        operator, where, content = key
        one, other = first.get(key), second.get(key)
        sizes = (one.bytes if one else 0, other.bytes if other else 0)
        counts = (one.count if one else 0, other.count if other else 0)
        if sizes[0] != sizes[1]:
            changes.append(SizeChange(operator, where, content, *sizes, *counts))
    changes.sort(key=lambda change: (-abs(change.change_bytes), change.operator, change.where))
    contents = {content: after.peak.contents[content] - before.peak.contents[content] for content in CONTENTS}
    return RankComparison(before, after, contents, tuple(changes))


def _index_holders(rank: RankReport) -> dict[tuple[str, str, MemoryCategory], Holder]:
    return {(holder.operator, holder.where, holder.category): holder for holder in rank.peak.holders}
