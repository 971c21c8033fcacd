"""Every way to write a recompute value -> layers of each (chunk, stage): the framework's "Formative" lists.

The rules are those of ``LayerSetting`` (see :mod:`ms_tune.dialects.mindformers.versions` for where it is), MindFormers 1.6 to 2.1,
with all that they let through and all that they trip over.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ms_tune.dialects.arrays import ArrayRow
from ms_tune.dialects.mindformers.inputs import KEYS, RecomputeValues
from ms_tune.dialects.plan_result import ENDLESS_LOOP, Formative, stop
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.dialects.mindformers.inputs import RecomputeInputs
    from ms_tune.dialects.plan_result import Placement, Rows

_ALL_LAYERS = 2**31 - 1  # what True in a list of counts stands for

_COMM_PATTERNS = (r".*\.norm",)
_LEGACY_PATTERNS = (r"feed_forward\.mul", r"feed_forward\.w1\.activation\.silu")
_CORE_PATTERNS = (
    r"mlp\.shared_experts\.mul",
    r"mlp\.shared_experts\.activation_func\.silu",
    r"mlp\.mul",
    r"mlp\.activation_func\.silu",
)


class _Written(int):
    """A count that the framework has written back into a list of the config, as a NumPy integer.

    Its own type checks do not take such a count for a whole number when they meet the list again.
    """

    __slots__ = ()


def default_patterns(key: str, *, legacy: bool) -> tuple[str, ...]:
    """The operators that a value without patterns of its own means."""
    if key == "select_recompute":
        return _LEGACY_PATTERNS if legacy else _CORE_PATTERNS
    return _COMM_PATTERNS if key == "select_comm_recompute" else ()


def working_copy(values: RecomputeValues) -> RecomputeValues:
    """A copy to write into, in which lists that are one object still are one object."""
    return RecomputeValues(*copy.deepcopy(tuple(values.get(key) for key in KEYS)))


def is_patterns(value: object) -> bool:
    """Whether the value is a list of patterns and nothing else. An empty list is."""
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def is_counts(value: object) -> bool:
    """Whether the value is a list of whole numbers, True and False: one entry a stage. An empty list is."""
    return isinstance(value, (list, tuple)) and all(_is_count(item) for item in value)


def _is_count(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, _Written)


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
            return _Written(counts[chunk][column])
        if not _is_count(item):
            illegal(items, item)
        _check_index(chunk, len(counts), 0)
        _check_index(column, len(counts[chunk]), 1)
        limit = counts[chunk][column]
        count = cast("int", item)
        return _Written(limit) if limit < count else count


def illegal(value: object, item: object = None) -> NoReturn:
    """The framework does not take this value."""
    # The framework names select_recompute here whichever value it is about.
    why = msg("layers.why.written-twice") if isinstance(item, (_Written, ArrayRow)) else None
    stop("ValueError", f"Illegal input list for select_recompute: {value}", why)


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
