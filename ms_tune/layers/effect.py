"""Formative lists -> what each layer recomputes (``LayerSetting.set_recompute``, MindFormers 1.8 to 2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.layers.recompute import split_pattern
from ms_tune.layers.result import Effect, LayerPlan, stop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ms_tune.layers.result import Cell, Formative, Placement


def set_layer(layer: int, placement: Placement, formative: Formative, recompute: object) -> LayerPlan:
    """What one layer recomputes. Full recompute wins; excludes are applied to every layer.

    Args:
        layer: The layer.
        placement: Where it is.
        formative: The formatted values.
        recompute: The value of ``recompute`` as written: the framework asks it, not the formatted one, whether there
            is full recompute at all.

    Raises:
        FrameworkStop: The framework raises while it sets this layer.
    """
    cell = placement.cells[layer]
    full = bool(recompute) and (isinstance(recompute, bool) or _reaches(formative.layer_recompute, cell))
    select: tuple[str, ...] = ()
    comm: tuple[str, ...] = ()
    if not full:
        select = _active(formative.select_recompute, cell)
        comm = _active(formative.select_comm_recompute, cell)
    return LayerPlan(
        layer=layer,
        stage=cell.stage,
        chunk=cell.chunk,
        recompute=_strongest(full=full, select=select, comm=comm),
        select_patterns=select,
        comm_patterns=comm,
        select_excludes=_active(formative.select_recompute_exclude, cell),
        comm_excludes=_active(formative.select_comm_recompute_exclude, cell),
    )


def _strongest(*, full: bool, select: Sequence[str], comm: Sequence[str]) -> Effect:
    if full:
        return Effect.FULL
    if select:
        return Effect.SELECT
    return Effect.COMM if comm else Effect.NONE


def _active(patterns: Mapping[object, Sequence[Sequence[int]]], cell: Cell) -> tuple[str, ...]:
    """The patterns that reach the layer at this place."""
    active = []
    for pattern, rows in patterns.items():
        if _reaches(rows, cell):
            split_pattern(pattern)  # the framework does, and raises if it is not text
            active.append(str(pattern))
    return tuple(active)


def _reaches(rows: Sequence[Sequence[int]], cell: Cell) -> bool:
    """The first so many layers of a cell are reached."""
    if cell.chunk >= len(rows) or cell.column >= len(rows[cell.chunk]):
        stop("IndexError", "list index out of range")
    return cell.rank < rows[cell.chunk][cell.column]
