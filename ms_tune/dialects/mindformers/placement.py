"""Layer -> (stage, chunk): how MindFormers spreads the layers over pipeline stages and interleave chunks.

The rules are those of ``LayerSetting`` (see :mod:`ms_tune.dialects.mindformers.inputs` for where it is), MindFormers 1.6 to 2.1.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

from ms_tune.dialects.layer_plan import LayerCell, Placement, stop
from ms_tune.dialects.values import array_text, to_int32

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.dialects.mindformers.inputs import RecomputeInputs


def place(inputs: RecomputeInputs) -> Placement:
    """The placement of all layers.

    Every cell gets ``layers // (stages x chunks)`` layers and its offset on top. Layers fill chunk 0 over all
    stages, then chunk 1, and so on.

    Raises:
        FrameworkStop: The framework refuses the offset.
    """
    shape, items = to_int32(inputs.offset)
    stages = inputs.placed_stages
    if not inputs.rules.checks_cells:
        _check_shape(shape, items, stages, inputs.interleave_num if inputs.interleave else 1)
    chunks = _chunks(inputs)
    cells = stages * chunks
    offset: tuple[tuple[int, ...], ...] = ((0,),)
    if cells > 1 or not inputs.rules.checks_cells:
        _check_shape(shape, items, stages, chunks)
        offset = _offset(shape, items, inputs, chunks)
    if chunks < 1:
        # The framework divides by the number of cells, then makes an array with that many rows.
        if chunks == 0:
            stop("ZeroDivisionError", "integer division or modulo by zero")
        stop("ValueError", "negative dimensions are not allowed")
    base = inputs.placed_layers // cells
    counts = [[base + extra for extra in row] for row in offset]
    if inputs.zero_bubble:
        if chunks == 1:
            stop("IndexError", "index 1 is out of bounds for axis 0 with size 1")
        counts[1].reverse()
    ends = list(accumulate(count for row in counts for count in row))
    return Placement(
        counts=tuple(map(tuple, counts)),
        ends=tuple(tuple(ends[start : start + stages]) for start in range(0, cells, stages)),
        cells=tuple(_cells(ends, inputs)),
        offset=offset,
    )


def _chunks(inputs: RecomputeInputs) -> int:
    if not inputs.interleave:
        return 1
    if inputs.interleave_num is None:
        stop("TypeError", "unsupported operand type(s) for *: 'int' and 'NoneType'")
    return inputs.interleave_num


def _check_shape(shape: tuple[int, ...], items: Sequence[int], stages: int, chunks: int | None) -> None:
    if shape and shape[-1] != stages:
        stop(
            "ValueError",
            f"offset.shape[-1] should equal to `pp` ({stages}), but got ({shape[-1]}). "
            f"`offset`: {array_text(shape, items)}",
        )
    if shape[1:] and shape[-2] != chunks:
        stop(
            "ValueError",
            f"offset.shape[-2] should equal to `pp_interleave_num` ({chunks}), but got ({shape[-2]}). "
            f"`offset`: {array_text(shape, items)}",
        )


def _offset(
    shape: tuple[int, ...], items: Sequence[int], inputs: RecomputeInputs, chunks: int
) -> tuple[tuple[int, ...], ...]:
    """The offset of every cell.

    The sum is compared before a number or a list is spread over the cells: that is the framework's order, and why a
    non-zero number, or a list with several chunks, is accepted and then counted more than once.
    """
    layers, stages = inputs.placed_layers, inputs.placed_stages
    cells = stages * chunks
    try:
        base, rest = divmod(layers, cells)
    except ZeroDivisionError:
        base, rest = 0, _rest_of_nothing(layers)
    if sum(items) != rest:
        stop(
            "ValueError",
            f"The sum of `offset` ({sum(items)}) should equal to remainder of `num_layers` ({layers}) % "
            f"(pp ({stages}) * pp_interleave_num ({chunks})) = {rest}",
        )
    if shape[2:]:
        stop("ValueError", "input operand has more dimensions than allowed by the axis remapping")
    if chunks < 1:
        stop("ValueError", "all elements of broadcast shape must be non-negative")
    flat = list(items) * (cells // len(items))
    if inputs.rules.checks_cells:
        _check_counts([base + extra for extra in flat], base)
    return tuple(tuple(flat[start : start + stages]) for start in range(0, cells, stages))


def _rest_of_nothing(layers: int) -> int:
    """The remainder of a division by no cells; its words are Python's and not the same in every release of it."""
    try:
        return layers % 0
    except ZeroDivisionError as error:
        stop("ZeroDivisionError", str(error))


def _check_counts(counts: Sequence[int], base: int) -> None:
    """The first and the last cell may be empty, none between them (since 1.8)."""
    if counts[0] < 0:
        stop("ValueError", f"Head stage has negative layers. Offset must be ≥ {-base}.")
    if counts[-1] < 0:
        stop("ValueError", f"Tail stage has negative layers. Offset must be ≥ {-base}.")
    if any(count < 1 for count in counts[1:-1]):
        stop("ValueError", f"Some middle stage has fewer than 1 layer. Offset must be ≥ {1 - base}.")


def _cells(ends: Sequence[int], inputs: RecomputeInputs) -> list[LayerCell]:
    """The place of every layer.

    The framework finds the column by bisection and the chunk by the first end behind the layer. Up to 1.7 an offset
    can leave a cell with less than nothing; then the ends do not rise, and the two need not agree.
    """
    stages = inputs.placed_stages
    tops = list(accumulate(ends, max))
    cells = []
    for layer in range(inputs.placed_layers):
        column = bisect_left(ends, layer + 1) % stages
        chunk = bisect_left(tops, layer + 1) // stages
        # What the framework subtracts: the end of the cell before, across chunks for the first column.
        before = chunk * stages + column - 1
        stage = column + inputs.start_stage
        if inputs.zero_bubble and chunk == 1:
            stage = stages - 1 - stage
        cells.append(LayerCell(chunk, column, layer - (ends[before] if before >= 0 else 0), stage))
    return cells
