"""The verdict's view of the peak: :mod:`ms_tune.memory.contents` in six categories, and the largest holders."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ms_tune.memory.contents import CONTENTS, Content, Contents
from ms_tune.memory.places import operator_at, where_at, without_layer
from ms_tune.trace.table import table_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.memory.timeline import Peak
    from ms_tune.trace.memory_block import BlockTrace
    from ms_tune.trace.tensor_list import TensorList

LARGEST = 5  # how many holders are told


class Category(str, Enum):
    """What a block holds. The order is that of every table, the values are the names in JSON."""

    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer_state"
    ACTIVATIONS = "activations"
    WORKSPACE = "workspace"
    OTHER = "other"


# The categories of contents; what is not named is "other".
GROUPS = {
    **dict.fromkeys(Content, Category.OTHER),
    Content.WEIGHTS: Category.WEIGHTS,
    Content.GRADIENTS: Category.GRADIENTS,
    Content.OPTIMIZER_STATE: Category.OPTIMIZER_STATE,
    Content.ACTIVATIONS: Category.ACTIVATIONS,
    Content.WORKSPACE: Category.WORKSPACE,
}


@dataclass(frozen=True, slots=True)
class Holder:
    """Blocks of one category that one operator at one place allocated.

    Attributes:
        bytes: The sum of their sizes.
        count: How many they are.
        operator: The operator, such as ``MatMulExt``; ``Parameter`` for a parameter of a graph; empty if unknown.
        category: What they hold.
        where: ``file:line`` of the script; in graph mode the scope path or the parameter's name, with ``*`` for the
            number of the layer; empty if unknown.
        name: The parameter's name, with ``*`` for the number of the layer, if all of them share it.
    """

    bytes: int
    count: int
    operator: str
    category: Category
    where: str
    name: str | None


@dataclass(frozen=True, slots=True)
class Attribution:
    """What the peak is made of.

    Attributes:
        categories: Bytes of every category, in the order of :class:`Category`; they add up to the peak.
        largest: The :data:`LARGEST` largest holders, the largest first.
        stacks_useful: False if most blocks of the dynamic graph have no stack of the script, so that activations and
            unlisted gradients cannot be told and are in ``other``. The run lacked ``MS_DEV_LAUNCH_BLOCKING=1``.
        tensors_missing: How many listed tensors no block of the trace holds. Where it is more than half of them, the
            list is of another run and was not used.
    """

    categories: Mapping[Category, int]
    largest: tuple[Holder, ...]
    stacks_useful: bool
    tensors_missing: int


def attribute(peak: Peak, trace: BlockTrace, tensors: TensorList | None) -> Attribution:
    """Tell what the blocks that are alive at the peak hold.

    Args:
        peak: The peak of the trace.
        trace: The whole trace: what follows a block tells what it was for.
        tensors: The tensors that the script held after the last step, if known.
    """
    table = table_of(trace)
    contents = Contents(table, tensors)
    rows = {id(block): row for row, block in enumerate(trace.blocks)}
    categories = dict.fromkeys(Category, 0)
    holders: dict[tuple[Category, str, str], list[int]] = {}
    for block in peak.live:
        row = rows[id(block)]
        category = GROUPS[CONTENTS[contents.codes[row]]]
        categories[category] += block.size
        holders.setdefault((category, operator_at(table, row), where_at(table, row)), []).append(row)
    found = []
    for (category, operator, where), members in holders.items():
        names = {without_layer(contents.names[row]) if row in contents.names else None for row in members}
        size = int(table.size[members].sum())
        name = names.pop() if len(names) == 1 else None
        found.append(Holder(size, len(members), operator, category, where, name))
    found.sort(key=lambda holder: (-holder.bytes, holder.category, holder.operator, holder.where))
    return Attribution(categories, tuple(found[:LARGEST]), contents.stacks_useful, contents.tensors_missing)
