"""What one run holds at its peak that a run of another program does not.

:mod:`ms_tune.memory.comparison` matches blocks by operator and place, which two runs of one program share. Two programs for one
model, such as a static graph and a dynamic one, share neither: what they keep of the same tensor comes from other operators at other
places. What they do share are sizes: a weight, a gradient, an activation has as many bytes on both sides if it has the same
format. So blocks of a kind that are as large as one of the other side cancel out, and what is left is told by who holds it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ms_tune.enums import MemoryCategory
from ms_tune.footprint.attribution import operator_at, where_at, without_layer
from ms_tune.footprint.category import CONTENTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ms_tune.footprint.result import RankReport


class BlockKind(str, Enum):
    """Contents between which two programs draw the line differently, taken together. The values are the names in JSON."""

    KEPT = "kept"  # weights and optimizer state: float32 masters are the one here, the other there
    GRADIENTS = "gradients"
    PASSING = "passing"  # what the passes keep or need for a while
    OTHER = "other"


_KINDS = {
    MemoryCategory.WEIGHTS: BlockKind.KEPT,
    MemoryCategory.OPTIMIZER_STATE: BlockKind.KEPT,
    MemoryCategory.GRADIENTS: BlockKind.GRADIENTS,
    MemoryCategory.ACTIVATIONS: BlockKind.PASSING,
    MemoryCategory.TEMPORARIES: BlockKind.PASSING,
}


@dataclass(frozen=True, slots=True)
class Surplus:
    """Blocks at one run's peak for which the other's has none of their kind and size."""

    kind: BlockKind  # what they hold
    in_new: bool  # whether the second run holds them
    operator: str  # the operator that allocated them; of parameters the parameter's name without its layer's number
    where: str  # the line or the scope that did; empty if nothing tells
    bytes: int  # the sum of their sizes
    count: int  # how many they are

    @property
    def signed(self) -> int:
        """What they add to the second run's peak, less than zero for blocks of the first."""
        return self.bytes if self.in_new else -self.bytes


@dataclass(frozen=True, slots=True)
class _Block:
    kind: BlockKind
    size: int
    operator: str
    where: str

    @property
    def partner(self) -> str:
        """What its like on the other side shares: the end of a parameter's name, or the operator."""
        return ".".join(self.operator.split(".")[-2:])


def surpluses(old: RankReport, new: RankReport) -> tuple[Surplus, ...]:
    """What each of two runs of one model holds at its own peak for which the other has no block of that kind and size.

    Their signed bytes add up to the difference of the peaks. Of several blocks of one size, those of the same parameter
    (by the last two parts of its name) or operator cancel first.

    Args:
        old: A rank of the first run.
        new: The same rank of the second.

    Returns:
        By kind, the largest first.
    """
    left = defaultdict(list)
    for is_new, report in ((False, old), (True, new)):
        for block in _blocks(report):
            left[block.kind, block.size].append((is_new, block))
    found: Counter[tuple[BlockKind, bool, str, str]] = Counter()
    counts: Counter[tuple[BlockKind, bool, str, str]] = Counter()
    for members in left.values():
        olds = [block for is_new, block in members if not is_new]
        news = [block for is_new, block in members if is_new]
        in_new = len(news) > len(olds)
        more, fewer = (news, olds) if in_new else (olds, news)
        for block in _beyond(more, fewer):
            key = (block.kind, in_new, block.operator, block.where)
            found[key] += block.size
            counts[key] += 1
    rows = [Surplus(*key, size, counts[key]) for key, size in found.items()]
    order = tuple(BlockKind)
    return tuple(sorted(rows, key=lambda one: (order.index(one.kind), -one.bytes, one.operator, one.where)))


def _blocks(report: RankReport) -> Iterable[_Block]:
    table, contents = report.table, report.contents
    for row in report.peak.rows.tolist():
        kind = _KINDS.get(CONTENTS[contents.codes[row]], BlockKind.OTHER)
        name = contents.names.get(row)
        operator = operator_at(table, row) if name is None else without_layer(name)
        yield _Block(kind, int(table.size[row]), operator, where_at(table, row))


def _beyond(more: list[_Block], fewer: list[_Block]) -> list[_Block]:
    """Blocks of the longer list that have no partner in the shorter one."""
    partners = Counter(block.partner for block in fewer)
    alone, excess = [], len(more) - len(fewer)
    for block in more:
        if partners[block.partner]:
            partners[block.partner] -= 1
        else:
            alone.append(block)
    return alone[len(alone) - excess :]
