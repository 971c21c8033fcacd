"""Every way to write a recompute value -> layers of each (chunk, stage): the framework's "Formative" lists.

The rules are those of ``LayerSetting`` (see :mod:`ms_tune.dialects.mindformers.inputs` for where it is), MindFormers 1.6 to 2.1,
with all that they let through and all that they trip over.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, cast

from ms_tune.dialects.layer_plan import ENDLESS_LOOP, Formative, LayerSpec, stop
from ms_tune.dialects.mindformers.inputs import (
    KEYS,
    RecomputeValues,
    WrittenCount,
    default_patterns,
    illegal,
    is_count,
    is_counts,
    is_patterns,
)
from ms_tune.dialects.mindformers.swap import swap_layer
from ms_tune.dialects.values import ArrayRow, check_applied
from ms_tune.enums import RecomputeMode
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ms_tune.dialects.layer_plan import ById, LayerCell, LayerIds, Placement, Rows
    from ms_tune.dialects.mindformers.inputs import RecomputeInputs

_ALL_LAYERS = 2**31 - 1  # what True in a list of counts stands for


def working_copy(values: RecomputeValues) -> RecomputeValues:
    """A copy to write into, in which lists that are one object still are one object."""
    return RecomputeValues(*copy.deepcopy(tuple(values.get(key) for key in KEYS)))


class Formatter:
    """Formats values for one placement. It writes into the values, as the framework does: see :func:`working_copy`."""

    def __init__(self, inputs: RecomputeInputs, placement: Placement) -> None:
        self._inputs = inputs
        self._placement = placement

    def format(self, values: RecomputeValues) -> Formative:
        """All five values, in the framework's order.

        Raises:
            FrameworkStop: The framework raises, or loops without end.
        """
        recompute = self.rows(values.recompute)
        select = self.patterns("select_recompute", values)
        comm = self.patterns("select_comm_recompute", values)
        if self._inputs.reduced:
            return Formative(recompute, select, comm, {}, {})
        return Formative(
            recompute,
            select,
            comm,
            self.patterns("select_recompute_exclude", values),
            self.patterns("select_comm_recompute_exclude", values),
        )

    def patterns(self, key: str, values: RecomputeValues) -> dict[object, Rows]:
        """A value that may name patterns. One that names none stands for the default patterns, if there are any."""
        value = values.get(key)
        if isinstance(value, dict):
            return {pattern: self.rows(item) for pattern, item in value.items()}
        if isinstance(value, (list, tuple)) and is_patterns(value):
            return {pattern: self.rows(value) for pattern in value}
        return {pattern: self.rows(value) for pattern in default_patterns(key, legacy=self._inputs.legacy)}

    def rows(self, value: object) -> Rows:
        """One value, as layers of each (chunk, stage).

        Raises:
            FrameworkStop: The framework raises, or loops without end.
        """
        if isinstance(value, bool):
            return self._everywhere() if value else [[0] * len(row) for row in self._placement.counts]
        if not isinstance(value, (list, tuple)):
            illegal(value)
        items = list(value) if self._inputs.rules.copies_lists else value
        if self._inputs.zero_bubble:
            _reverse_second(items)
        if is_counts(items):
            for index, item in enumerate(items):
                if isinstance(item, bool):
                    _write(items, index, _ALL_LAYERS if item else 0)
            return self._share_out(cast("Sequence[int]", items))
        if is_patterns(items):
            return self._everywhere()
        return self._nested(items)

    def _everywhere(self) -> Rows:
        return [list(row) for row in self._placement.counts]

    def _share_out(self, items: Sequence[int]) -> Rows:
        """One count a stage, shared out over its chunks: one layer at a time, round and round, past full chunks."""
        counts = self._placement.counts
        rows = [[0] * len(row) for row in counts]
        totals = [sum(column) for column in zip(*counts, strict=True)]
        for column, item in enumerate(items):
            if column >= len(counts[0]):
                stop("IndexError", f"index {column} is out of bounds for axis 0 with size {len(counts[0])}")
            left = min(item, totals[column])
            if left < 0:
                # The framework counts down to zero from here and never gets there.
                stop(ENDLESS_LOOP, "", msg("layers.why.endless-loop", item=left))
            while left:
                for row, limits in zip(rows, counts, strict=True):
                    if left and row[column] < limits[column]:
                        row[column] += 1
                        left -= 1
        return rows

    def _nested(self, items: list[object] | tuple[object, ...]) -> Rows:
        """A list with a row for each chunk. Rows are changed in place, so that a row may be met changed."""
        counts = self._placement.counts
        for chunk, row in enumerate(items):
            if isinstance(row, bool):
                _check_index(chunk, len(counts), 0)
                _write(items, chunk, ArrayRow(counts[chunk] if row else [0] * len(counts[chunk])))
            elif isinstance(row, (list, tuple)) and not isinstance(row, ArrayRow):
                for column, item in enumerate(row):
                    _write(row, column, self._clamp(item, chunk, column, items))
            else:
                illegal(items, row)
        return cast("Rows", items)

    def _clamp(self, item: object, chunk: int, column: int, items: Sequence[object]) -> int:
        counts = self._placement.counts
        if isinstance(item, bool):
            if not item:
                return 0
            _check_index(chunk, len(counts), 0)
            _check_index(column, len(counts[chunk]), 0)
            return WrittenCount(counts[chunk][column])
        if not is_count(item):
            illegal(items, item)
        _check_index(chunk, len(counts), 0)
        _check_index(column, len(counts[chunk]), 1)
        limit = counts[chunk][column]
        count = cast("int", item)
        return WrittenCount(limit) if limit < count else count


def _write(items: list[Any] | tuple[Any, ...], index: int, value: object) -> None:
    if isinstance(items, tuple):
        stop("TypeError", "'tuple' object does not support item assignment")
    items[index] = value


def _check_index(index: int, size: int, axis: int) -> None:
    if index >= size:
        stop("IndexError", f"index {index} is out of bounds for axis {axis} with size {size}")


def _reverse_second(items: list[Any] | tuple[Any, ...]) -> None:
    """``zero_bubble_v``: the second chunk's row counts from the last stage."""
    if len(items) < 2:  # noqa: PLR2004 - there is no second one
        stop("IndexError", "list index out of range")
    second = items[1]
    if isinstance(second, (list, tuple, str)):
        _write(items, 1, second[::-1])
    elif isinstance(second, dict):
        stop("TypeError", "unhashable type: 'slice'")
    else:
        stop("TypeError", f"'{type(second).__name__}' object is not subscriptable")


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
