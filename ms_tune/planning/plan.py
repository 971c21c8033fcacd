"""A plan: how many layers each cell has and what they recompute, as numbers and as MindFormers' lists.

MindFormers takes ``offset`` against ``layers // (stages x chunks)``, and counts every kind of recompute from the first layer of
a cell on (:mod:`ms_tune.dialects.mindformers`): ``recompute`` layers are recomputed in full, ``select_recompute`` and
``select_comm_recompute`` hold those layers as well. So a cell has its layers in one order (``IN_CELL`` of
:mod:`ms_tune.planning.table`), and layers that recompute selected operators only and layers that recompute communication only
cannot stand in one cell. Layers that swap are named one by one in the framework's config; a plan has them behind those that
recompute anything.
"""

from __future__ import annotations

import itertools

from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError
from ms_tune.planning.table import IN_CELL, LISTS, SWAP_LIST, CostTable, PlanLists, Rows
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def plan_of(table: CostTable, cells: Sequence[Mapping[RecomputeMode, int]]) -> PlanLists:
    """The lists of a plan."""
    base = table.layer_count // table.cells

    def rows(kinds: tuple[RecomputeMode, ...], less: int = 0) -> Rows:
        flat = [sum(cell.get(kind, 0) for kind in kinds) - less for cell in cells]
        return tuple(tuple(flat[start : start + table.stages]) for start in range(0, table.cells, table.stages))

    swap = rows((RecomputeMode.SWAP,))
    return PlanLists(
        offset=rows(IN_CELL, base),
        recompute=rows((RecomputeMode.FULL,)),
        select_recompute=rows((RecomputeMode.FULL, RecomputeMode.BOTH, RecomputeMode.SELECT)),
        select_comm_recompute=rows((RecomputeMode.FULL, RecomputeMode.BOTH, RecomputeMode.COMM)),
        swap=swap if any(map(any, swap)) else (),
    )


def cells_of(table: CostTable, plan: PlanLists, source: str) -> list[dict[RecomputeMode, int]]:
    """How many layers of each kind of recompute every cell of a plan has."""
    names = (*LISTS, SWAP_LIST) if plan.swap else LISTS
    for name in names:
        shape = [len(row) for row in getattr(plan, name)]
        if shape != [table.stages] * table.chunks:
            wanted = f"{table.chunks} x {table.stages}"
            raise ConfigError(msg("planning.plan.shape", name=name, wanted=wanted), path=source)
    base = table.layer_count // table.cells
    rows = zip(*(itertools.chain.from_iterable(getattr(plan, name)) for name in LISTS), strict=True)
    swaps = list(itertools.chain.from_iterable(plan.swap)) or [0] * table.cells
    found = [
        _cell_of_lists(base + offset, full, select, comm, swap)
        for (offset, full, select, comm), swap in zip(rows, swaps, strict=True)
    ]
    if sum(sum(cell.values()) for cell in found) != table.layer_count or _is_impossible(table, found):
        raise ConfigError(msg("planning.plan.layers", layers=table.layer_count), path=source)
    known = set(table.layers[0].recompute)
    for kind in RecomputeMode:
        if kind not in known and any(cell[kind] for cell in found):
            raise ConfigError(msg("planning.plan.unknown-kind", kind=kind.value), path=source)
    return found


def _cell_of_lists(layers: int, full: int, select: int, comm: int, swap: int) -> dict[RecomputeMode, int]:
    # What the prefix rule makes of the numbers of one cell; what reaches less far than the full layers is nothing.
    select, comm = max(select - full, 0), max(comm - full, 0)
    both = min(select, comm)
    return {
        RecomputeMode.FULL: full,
        RecomputeMode.BOTH: both,
        RecomputeMode.SELECT: select - both,
        RecomputeMode.COMM: comm - both,
        RecomputeMode.SWAP: swap,
        RecomputeMode.NONE: layers - full - max(select, comm) - swap,
    }


def _is_impossible(table: CostTable, cells: Sequence[Mapping[RecomputeMode, int]]) -> bool:
    # Whether a cell has less than nothing of a kind, or one that must not be empty has no layer.
    return any(count < 0 for cell in cells for count in cell.values()) or not all(
        any(cell.values()) for cell in cells[table.filled_cells]
    )
