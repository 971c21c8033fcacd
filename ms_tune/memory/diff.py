"""Compare the memory of two traces: blocks are matched by category, operator and place, or by size, never by number."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ms_tune.enums import BlockKind, MemoryCategory
from ms_tune.footprint.breakdown import Holder
from ms_tune.footprint.category import CONTENTS
from ms_tune.footprint.layers import find_location, find_operator
from ms_tune.footprint.result import MemoryReport, RankReport
from ms_tune.readers.scopes import mask_layer_number
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


_KINDS = {
    MemoryCategory.WEIGHTS: BlockKind.KEPT,
    MemoryCategory.OPTIMIZER_STATE: BlockKind.KEPT,
    MemoryCategory.GRADIENTS: BlockKind.GRADIENTS,
    MemoryCategory.ACTIVATIONS: BlockKind.PASSING,
    MemoryCategory.TEMPORARIES: BlockKind.PASSING,
}


@dataclass(frozen=True, slots=True)
class Surplus:
    """Blocks at one run's peak without a counterpart of the same kind and size in the other run."""

    kind: BlockKind  # the kind of their data
    in_new: bool  # whether they are in the second run
    operator: str  # their operator; for parameters the parameter's name with the layer number masked
    location: str  # their line or scope; empty if unknown
    bytes: int  # total size
    count: int  # number of blocks

    @property
    def signed_bytes(self) -> int:
        """Return their effect on the second run's peak; negative for blocks of the first run."""
        return self.bytes if self.in_new else -self.bytes


class _Block(Record):
    kind: BlockKind
    size: int
    operator: str
    location: str

    @property
    def partner_key(self) -> str:
        return ".".join(self.operator.split(".")[-2:])


def find_surpluses(old: RankReport, new: RankReport) -> tuple[Surplus, ...]:
    """Return the blocks of each of two runs of one model, at its own peak, without a counterpart in the other run.

    They are ordered by kind, then by size. Two programs for one model, such as a static graph and a dynamic one, share
    neither operators nor places, by which :func:`compare_reports` matches blocks, but they share sizes: a weight, a
    gradient or an activation has the same number of bytes in both if it has the same format. So blocks of one kind and
    size cancel each other out, and the rest is reported by operator and place.

    Their signed bytes add up to the difference of the peaks. Of several blocks of one size, those of the same parameter
    (by the last two parts of its name) or operator cancel first.
    """
    left = defaultdict(list)
    for is_new, report in ((False, old), (True, new)):
        for block in _blocks_at_peak(report):
            left[block.kind, block.size].append((is_new, block))
    found: Counter[tuple[BlockKind, bool, str, str]] = Counter()
    counts: Counter[tuple[BlockKind, bool, str, str]] = Counter()
    for members in left.values():
        olds = [block for is_new, block in members if not is_new]
        news = [block for is_new, block in members if is_new]
        in_new = len(news) > len(olds)
        more, fewer = (news, olds) if in_new else (olds, news)
        for block in _drop_partners(more, fewer):
            key = (block.kind, in_new, block.operator, block.location)
            found[key] += block.size
            counts[key] += 1
    rows = [Surplus(*key, size, counts[key]) for key, size in found.items()]
    order = tuple(BlockKind)
    return tuple(sorted(rows, key=lambda one: (order.index(one.kind), -one.bytes, one.operator, one.location)))


def _blocks_at_peak(report: RankReport) -> Iterable[_Block]:
    table, contents = report.table, report.contents
    for row in report.peak.rows.tolist():
        kind = _KINDS.get(CONTENTS[contents.codes[row]], BlockKind.OTHER)
        name = contents.names.get(row)
        operator = find_operator(table, row) if name is None else mask_layer_number(name)
        yield _Block(kind, int(table.size[row]), operator, find_location(table, row))


def _drop_partners(more: list[_Block], fewer: list[_Block]) -> list[_Block]:
    partners = Counter(block.partner_key for block in fewer)
    alone, excess = [], len(more) - len(fewer)
    for block in more:
        if partners[block.partner_key]:
            partners[block.partner_key] -= 1
        else:
            alone.append(block)
    return alone[len(alone) - excess :]
