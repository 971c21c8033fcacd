"""Formative lists -> what each layer recomputes (``LayerSetting``, MindFormers 1.6 to 2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.mindformers.swap import swap_layer
from ms_tune.dialects.patterns import check_applied
from ms_tune.dialects.plan_result import LayerSpec, stop
from ms_tune.enums import RecomputeMode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ms_tune.dialects.plan_result import ById, Formative, LayerCell, LayerIds, Placement


def set_layer(layer: int, placement: Placement, formative: Formative, recompute: object, *, timed: bool) -> LayerSpec:
    """What one layer recomputes. Full recompute wins; excludes are applied to every layer.

    Args:
        layer: The layer.
        placement: Where it is.
        formative: The formatted values.
        recompute: The value of ``recompute`` as written: the framework asks it, not the formatted one, whether there
            is full recompute at all.
        timed: Whether the release matches patterns with ``regex``.

    Raises:
        FrameworkStop: The framework raises while it sets this layer.
    """
    cell = placement.cells[layer]
    if formative.by_id is not None:
        return _set_by_id(layer, cell, formative.by_id, recompute, timed=timed)
    full = bool(recompute) and (isinstance(recompute, bool) or _reaches(formative.layer_recompute, cell))
    select = () if full else _active(formative.select_recompute, cell, timed=timed)
    comm = () if full else _active(formative.select_comm_recompute, cell, timed=timed)
    return LayerSpec(
        layer=layer,
        stage=cell.stage,
        chunk=cell.chunk,
        recompute=strongest(full=full, select=select, comm=comm),
        select_patterns=select,
        comm_patterns=comm,
        select_excludes=_active(formative.select_recompute_exclude, cell, timed=timed),
        comm_excludes=_active(formative.select_comm_recompute_exclude, cell, timed=timed),
        overridden=_hidden(formative, cell) if full else (),
    )


def _set_by_id(layer: int, cell: LayerCell, by_id: ById, recompute: object, *, timed: bool) -> LayerSpec:
    """The same when swap is on: values name layers. Excludes are without effect then."""
    full = bool(recompute) and _names(by_id.layer_recompute, layer)
    select = () if full else _named(by_id.select_recompute, layer, timed=timed)
    comm = () if full else _named(by_id.select_comm_recompute, layer, timed=timed)
    return LayerSpec(
        layer=layer,
        stage=cell.stage,
        chunk=cell.chunk,
        recompute=strongest(full=full, select=select, comm=comm),
        select_patterns=select,
        comm_patterns=comm,
        swap=swap_layer(layer, by_id, timed=timed),
        overridden=_hidden_by_id(by_id, layer) if full else (),
    )


def _hidden(formative: Formative, cell: LayerCell) -> tuple[str, ...]:
    """The patterns that full recompute makes needless; the framework does not look at them, so nothing can fail."""
    chunk, column = cell.chunk, cell.column
    return tuple(
        str(pattern)
        for patterns in (formative.select_recompute, formative.select_comm_recompute)
        for pattern, rows in patterns.items()
        if chunk < len(rows) and column < len(rows[chunk]) and 0 <= cell.rank < rows[chunk][column]
    )


def _hidden_by_id(by_id: ById, layer: int) -> tuple[str, ...]:
    return tuple(
        str(pattern)
        for patterns in (by_id.select_recompute, by_id.select_comm_recompute)
        for pattern, layers in patterns.items()
        if _names(layers, layer)
    )


def _named(patterns: Mapping[object, LayerIds], layer: int, *, timed: bool) -> tuple[str, ...]:
    """The patterns whose lists name the layer."""
    return _applied((pattern for pattern, layers in patterns.items() if _names(layers, layer)), timed=timed)


def _names(layers: LayerIds, layer: int) -> bool:
    return layers if isinstance(layers, bool) else layer in layers


def strongest(*, full: bool, select: Sequence[str], comm: Sequence[str]) -> RecomputeMode:
    """The strongest kind of recompute of a layer that does these."""
    if full:
        return RecomputeMode.FULL
    if select:
        return RecomputeMode.SELECT
    return RecomputeMode.COMM if comm else RecomputeMode.NONE


def _active(patterns: Mapping[object, Sequence[Sequence[int]]], cell: LayerCell, *, timed: bool) -> tuple[str, ...]:
    """The patterns that reach the layer at this place."""
    return _applied((pattern for pattern, rows in patterns.items() if _reaches(rows, cell)), timed=timed)


def _applied(patterns: Iterable[object], *, timed: bool) -> tuple[str, ...]:
    """The patterns as texts, once each has been applied."""
    applied = []
    for pattern in patterns:
        check_applied(pattern, timed=timed)
        applied.append(str(pattern))
    return tuple(applied)


def _reaches(rows: Sequence[Sequence[int]], cell: LayerCell) -> bool:
    """The first so many layers of a cell are reached."""
    try:
        count = rows[cell.chunk][cell.column]
    except IndexError as error:  # of a list or of a tuple, as the config has it
        stop("IndexError", str(error))
    return 0 <= cell.rank < count
