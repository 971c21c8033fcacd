"""What weights, gradients and optimizer state should need, beside what they do need.

Adam keeps two numbers for every parameter, in float32 (MindSpore's and MindFormers' AdamW), and a gradient has the size of
its parameter. A rank that holds less shares the rest with others; one that holds more has float32 copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.memory.contents import Content

if TYPE_CHECKING:
    from ms_tune.memory.contents import Contents
    from ms_tune.memory.groups import Breakdown
    from ms_tune.trace.table import Table


@dataclass(frozen=True, slots=True)
class Theory:
    """Bytes at the peak, measured, and as multiples of the weights.

    Attributes:
        weights: Bytes of weights.
        parameters: How many blocks hold them.
        gradients_ratio: Gradients divided by weights: 1 where all gradients of one step are held.
        optimizer_ratio: Optimizer state divided by weights: 2 for Adam with float32 weights, 4 with weights of two bytes
            and no float32 copy, 6 with one; less where the state is sharded.
    """

    weights: int
    parameters: int
    gradients_ratio: float | None
    optimizer_ratio: float | None


def theory_of(table: Table, contents: Contents, parts: Breakdown) -> Theory:
    """The ratios at the peak."""
    weights = parts.contents[Content.WEIGHTS]
    rows = [row for row in parts.rows.tolist() if contents.codes[row] == 0 and table.size[row] > 0]
    ratio = (lambda content: parts.contents[content] / weights) if weights else (lambda _: None)
    return Theory(weights, len(rows), ratio(Content.GRADIENTS), ratio(Content.OPTIMIZER_STATE))
