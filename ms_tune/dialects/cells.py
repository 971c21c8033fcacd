"""A plan cut into cells, and cells told as counts: what a conversion between dialects works with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.layer_plan import MINDFORMERS
from ms_tune.enums import RecomputeMode
from ms_tune.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ms_tune.dialects.layer_plan import LayerPlan, LayerSpec


class Cells(Record):
    """A plan by cell."""

    rows: tuple[tuple[tuple[LayerSpec, ...], ...], ...]  # the layers of each (chunk, stage), in order
    behind: tuple[LayerSpec, ...]  # layers of multi-token prediction, behind all others
    # Whether the layers run through chunk 0 from the first stage to the last, then through chunk 1, and so on, and
    # every layer is there once.
    straight: bool

    @property
    def stages(self) -> int:
        """Pipeline stages."""
        return len(self.rows[0])

    @property
    def chunks(self) -> int:
        """Chunks of each stage."""
        return len(self.rows)

    @property
    def layers(self) -> tuple[LayerSpec, ...]:
        """The layers of all cells."""
        return tuple(layer for row in self.rows for cell in row for layer in cell)

    @property
    def counts(self) -> list[list[int]]:
        """Layers of each cell."""
        return [[len(cell) for cell in row] for row in self.rows]

    def merged(self) -> Cells:
        """The same layers in one chunk."""
        columns = zip(*self.rows, strict=True)
        row = tuple(tuple(layer for cell in column for layer in cell) for column in columns)
        return Cells((row,), self.behind, self.straight)


def cut(plan: LayerPlan, ahead: int = 0) -> Cells:
    """The cells of a plan that has a placement and layers.

    Args:
        plan: The plan.
        ahead: How many of its last layers predict further tokens, if it is one of the static graph.
    """
    placement = plan.placement or ((0,),)
    stages, chunks = len(placement[0]), len(placement)
    known = len(plan.layers)
    # The cells of a static-graph plan may have more room than there are layers.
    placed = known - ahead if plan.dialect == MINDFORMERS else min(known, sum(map(sum, placement)))
    rows: list[list[list[LayerSpec]]] = [[[] for _ in range(stages)] for _ in range(chunks)]
    straight = True
    for layer in plan.layers[:placed]:
        if layer.stage >= stages or layer.chunk >= chunks:
            straight = False
            continue
        rows[layer.chunk][layer.stage].append(layer)
    cells = tuple(tuple(tuple(cell) for cell in row) for row in rows)
    numbers = [layer.layer for row in cells for cell in row for layer in cell]
    straight = straight and numbers == list(range(placed)) == [layer.layer for layer in plan.layers[:placed]]
    return Cells(cells, plan.layers[placed:], straight)


def is_full(layer: LayerSpec) -> bool:
    """Whether the layer is recomputed as a whole."""
    return layer.recompute is RecomputeMode.FULL


def run_length(
    cell: Sequence[LayerSpec],
    start: int,
    wanted: Callable[[LayerSpec], bool],
    idle: Callable[[LayerSpec], bool] | None = None,
) -> int | None:
    """How many layers of a cell, from a place on, reach the last one that is wanted.

    Returns:
        None if others lie before or between them, but for those that it makes no difference for.
    """
    flags = [wanted(layer) for layer in cell]
    length = max(len(cell) - flags[::-1].index(True) - start, 0) if any(flags) else 0
    between = cell[start : start + length]
    early = any(flags[:start])
    return None if early or not all(wanted(one) or (idle is not None and idle(one)) for one in between) else length
