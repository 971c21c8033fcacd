"""Every way to write a recompute value -> layers of each (chunk, stage): the framework's "Formative" lists.

The rules are those of ``LayerSetting`` (see :mod:`ms_tune.dialects.mindformers.placement` for where it is), MindFormers 1.6 to 2.1,
with all that they let through and all that they trip over.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ms_tune.dialects.layer_plan import ENDLESS_LOOP, FrameworkStop, LayerSpec, stop
from ms_tune.dialects.mindformers.placement import KEYS
from ms_tune.dialects.values import ArrayRow, check_applied
from ms_tune.enums import RecomputeMode
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ms_tune.dialects.mindformers.placement import LayerCell, Placement, RecomputeInputs, RecomputeValues

_ALL_LAYERS = 2**31 - 1  # what True in a list of counts stands for
_LEGACY_PATTERNS = (r"feed_forward\.mul", r"feed_forward\.w1\.activation\.silu")
_CORE_PATTERNS = (
    r"mlp\.shared_experts\.mul",
    r"mlp\.shared_experts\.activation_func\.silu",
    r"mlp\.mul",
    r"mlp\.activation_func\.silu",
)

Rows = list[list[int]]


class LayerList(list[int]):
    """The numbers of layers, for each of which it is asked whether it has it: 10,000 numbers are asked 10,000 times."""

    __slots__ = ("_numbers",)

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        super().__init__(numbers)
        self._numbers = frozenset(self)

    def __contains__(self, number: object) -> bool:
        return number in self._numbers


class WrittenCount(int):
    """A count that the framework has written back into a list of the config, as a NumPy integer.

    Its own type checks do not take such a count for a whole number when they meet the list again.
    """

    __slots__ = ()


def default_patterns(key: str, *, legacy: bool) -> tuple[str, ...]:
    """The operators that a value without patterns of its own means."""
    if key == "select_recompute":
        return _LEGACY_PATTERNS if legacy else _CORE_PATTERNS
    return (r".*\.norm",) if key == "select_comm_recompute" else ()


def is_patterns(value: object) -> bool:
    """Whether the value is a list of patterns and nothing else. An empty list is."""
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def is_counts(value: object) -> bool:
    """Whether the value is a list of whole numbers that the framework has not written itself, True and False: one entry a stage. An empty list is."""
    return isinstance(value, (list, tuple)) and all(
        isinstance(item, int) and not isinstance(item, WrittenCount) for item in value
    )


def illegal(value: object, item: object = None) -> NoReturn:
    """The framework does not take this value."""
    # The framework names select_recompute here whichever value it is about.
    why = msg("layers.why.written-twice") if isinstance(item, (WrittenCount, ArrayRow)) else None
    stop("ValueError", f"Illegal input list for select_recompute: {value}", why)


def format_lists(inputs: RecomputeInputs, placement: Placement, values: RecomputeValues) -> dict[str, Any]:
    """The five values in the framework's own form and order, by the names that it logs them under.

    A value is layers of each (chunk, stage): rows may be shorter than there are stages, and rows may be missing, and
    the framework goes on until it sets a layer that needs them. With swap on, a value is the numbers of layers, or True
    for all of them; excludes are still read as rows. But for the first one, there is such a value for each pattern; what
    names none stands for the default patterns, if there are any.

    Args:
        inputs: What decides about the plan.
        placement: Where its layers are.
        values: A copy of the values: they are written into, as the framework does.

    Raises:
        FrameworkStop: The framework raises, or loops without end.
    """
    rows = partial(format_rows, inputs, placement)
    chosen = layer_ids if inputs.swaps.swap is True else rows
    lists: dict[str, Any] = {"layer_recompute": chosen(values.recompute)}
    for key in KEYS[1:]:
        excludes, value = key.endswith("_exclude"), getattr(values, key)
        form = rows if excludes else chosen
        if excludes and inputs.reduced:
            lists[key] = {}  # of which that class knows nothing
        elif isinstance(value, dict):
            lists[key] = {pattern: form(item) for pattern, item in value.items()}
        else:
            patterns = value if is_patterns(value) else default_patterns(key, legacy=inputs.legacy)
            lists[key] = {pattern: form(value) for pattern in patterns}
    return lists


def layer_ids(value: object) -> bool | LayerList:
    """What a value is when swap is on: a list holds the numbers of layers; True stands for all of them.

    Raises:
        FrameworkStop: It is neither.
    """
    if isinstance(value, bool):
        return value or LayerList()
    if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
        illegal(value)
    return LayerList(value)


def format_rows(inputs: RecomputeInputs, placement: Placement, value: object) -> Rows:
    """One value, as layers of each (chunk, stage)."""
    if isinstance(value, bool):
        return [list(row) if value else [0] * len(row) for row in placement.counts]
    if not isinstance(value, (list, tuple)):
        illegal(value)
    items = list(value) if inputs.since("1.7") else value  # since 1.7 the list is copied first; rows never are
    if inputs.zero_bubble:
        _reverse_second(items)
    if is_counts(items):
        for index, item in enumerate(items):
            if isinstance(item, bool):
                _write(items, index, _ALL_LAYERS if item else 0)
        return _share_out(cast("Sequence[int]", items), placement)
    if is_patterns(items):
        return [list(row) for row in placement.counts]
    return _cut_rows(items, placement.counts)


def _share_out(items: Sequence[int], placement: Placement) -> Rows:
    """One count a stage, shared out over its chunks: one layer at a time, round and round, past full chunks."""
    rows = [[0] * len(row) for row in placement.counts]
    for column, item in enumerate(items):
        _check_index(column, len(placement.totals), 0)
        left = min(item, placement.totals[column])
        if left < 0:
            # The framework counts down to zero from here and never gets there.
            stop(ENDLESS_LOOP, "", msg("layers.why.endless-loop", item=left))
        while left:
            for row, limits in zip(rows, placement.counts, strict=True):
                if left and row[column] < limits[column]:
                    row[column] += 1
                    left -= 1
    return rows


def _cut_rows(items: list[object] | tuple[object, ...], counts: Sequence[Sequence[int]]) -> Rows:
    """A list with a row for each chunk. Rows are changed in place, so that a row may be met changed."""
    for chunk, row in enumerate(items):
        if isinstance(row, bool):
            _check_index(chunk, len(counts), 0)
            _write(items, chunk, ArrayRow(counts[chunk] if row else [0] * len(counts[chunk])))
        elif isinstance(row, (list, tuple)) and not isinstance(row, ArrayRow):
            for column, item in enumerate(row):
                if not isinstance(item, int) or isinstance(item, WrittenCount):
                    illegal(items, item)
                _write(row, column, _clamp(item, counts, chunk, column))
        else:
            illegal(items, row)
    return cast("Rows", items)


def _clamp(item: int, counts: Sequence[Sequence[int]], chunk: int, column: int) -> int:
    if item is False:
        return 0
    _check_index(chunk, len(counts), 0)
    _check_index(column, len(counts[chunk]), 0 if item is True else 1)
    limit = counts[chunk][column]
    return WrittenCount(limit) if item is True or limit < item else item


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


def set_layer(inputs: RecomputeInputs, cell: LayerCell, lists: Mapping[str, Any]) -> LayerSpec:
    """What one layer recomputes. Full recompute wins; excludes are applied to every layer, but not when swap is on.

    Args:
        inputs: What decides about the plan. The value of ``recompute`` as written is what the framework asks, not the
            formatted one, whether there is full recompute at all.
        cell: Where the layer is.
        lists: The values of :func:`format_lists`.

    Raises:
        FrameworkStop: The framework raises while it sets this layer.
    """
    recompute = inputs.values.recompute
    full = bool(recompute) and (isinstance(recompute, bool) or _reaches(cell, lists["layer_recompute"]))
    select = () if full else _apply_patterns(inputs, cell, lists["select_recompute"])
    comm = () if full else _apply_patterns(inputs, cell, lists["select_comm_recompute"])
    by_id = inputs.swaps.swap is True
    return LayerSpec(
        layer=cell.layer,
        stage=cell.stage,
        chunk=cell.chunk,
        recompute=strongest(full=full, select=select, comm=comm),
        select_patterns=select,
        comm_patterns=comm,
        select_excludes=() if by_id else _apply_patterns(inputs, cell, lists["select_recompute_exclude"]),
        comm_excludes=() if by_id else _apply_patterns(inputs, cell, lists["select_comm_recompute_exclude"]),
        overridden=tuple(
            str(pattern)
            for key in KEYS[1:3]
            for pattern, layers in lists[key].items()
            if full and is_reached(cell, layers)
        ),
    )


def strongest(*, full: bool, select: Sequence[str], comm: Sequence[str]) -> RecomputeMode:
    """The strongest kind of recompute of a layer that does these."""
    if full:
        return RecomputeMode.FULL
    if select:
        return RecomputeMode.SELECT
    return RecomputeMode.COMM if comm else RecomputeMode.NONE


def _apply_patterns(inputs: RecomputeInputs, cell: LayerCell, patterns: Mapping[object, Any]) -> tuple[str, ...]:
    """The patterns that are for a layer, each of which the framework looks up in it."""
    applied = []
    for pattern, layers in patterns.items():
        if _reaches(cell, layers):
            check_applied(pattern, timed=inputs.since("1.7"))
            applied.append(str(pattern))
    return tuple(applied)


def _reaches(cell: LayerCell, layers: Any) -> bool:  # noqa: ANN401 - rows, numbers of layers, or True
    """Whether a formatted value is for a layer: it is one of the first so many of its cell, or its number is listed."""
    if isinstance(layers, bool):
        return layers
    if isinstance(layers, LayerList):
        return cell.layer in layers
    try:
        count: int = layers[cell.chunk][cell.column]
    except IndexError as error:  # of a list or of a tuple, as the config has it
        stop("IndexError", str(error))
    return 0 <= cell.rank < count


def is_reached(cell: LayerCell, layers: Any) -> bool:  # noqa: ANN401 - as above
    """The same where the framework does not look, so that nothing can fail."""
    try:
        return _reaches(cell, layers)
    except FrameworkStop:
        return False
