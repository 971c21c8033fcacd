"""Layer -> (stage, chunk): how MindFormers spreads the layers over pipeline stages and interleave chunks.

The rules are those of ``LayerSetting`` in ``mindformers/parallel_core/training_graph/transformer/utils.py``, the same
in MindFormers 1.8, 1.9, 2.0 and 2.1.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from ms_tune.layers.arrays import array_text, to_int32
from ms_tune.layers.result import Cell, Placement, stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.layers.inputs import RecomputeInputs


def place(inputs: RecomputeInputs) -> Placement:
    """The placement of all layers.

    Every cell gets ``layers // (stages x chunks)`` layers and its offset on top. Layers fill chunk 0 over all
    stages, then chunk 1, and so on.

    Raises:
        FrameworkStop: The framework refuses the offset.
    """
    shape, items = to_int32(inputs.offset)
    chunks = _chunks(inputs)
    stages = inputs.placed_stages
    cells = stages * chunks
    offset = _offset(shape, items, inputs.layers, chunks, stages) if cells > 1 else ((0,),)
    if chunks < 1:
        # The framework divides by the number of cells, then makes an array with that many rows.
        if chunks == 0:
            stop("ZeroDivisionError", "integer division or modulo by zero")
        stop("ValueError", "negative dimensions are not allowed")
    base = inputs.layers // cells
    counts = [[base + extra for extra in row] for row in offset]
    if inputs.zero_bubble:
        if chunks == 1:
            stop("IndexError", "index 1 is out of bounds for axis 0 with size 1")
        counts[1].reverse()
    ends = list(accumulate(count for row in counts for count in row))
    return Placement(
        counts=tuple(map(tuple, counts)),
        ends=tuple(tuple(ends[start : start + stages]) for start in range(0, cells, stages)),
        cells=tuple(_cell(layer, ends, counts, inputs) for layer in range(inputs.layers)),
        offset=offset,
    )


def _chunks(inputs: RecomputeInputs) -> int:
    if not inputs.interleave:
        return 1
    if inputs.interleave_num is None:
        stop("TypeError", "unsupported operand type(s) for *: 'int' and 'NoneType'")
    return inputs.interleave_num


def _offset(
    shape: tuple[int, ...], items: Sequence[int], layers: int, chunks: int, stages: int
) -> tuple[tuple[int, ...], ...]:
    """The offset of every cell, checked in the framework's order.

    The sum is compared before a number or a list is spread over the cells: that is the framework's order too, and
    why a non-zero number, or a list with several chunks, is accepted and then counted more than once.
    """
    base, rest = divmod(layers, stages * chunks)
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
    if sum(items) != rest:
        stop(
            "ValueError",
            f"The sum of `offset` ({sum(items)}) should equal to remainder of `num_layers` ({layers}) % "
            f"(pp ({stages}) * pp_interleave_num ({chunks})) = {rest}",
        )
    if shape[2:]:
        stop("ValueError", "input operand has more dimensions than allowed by the axis remapping")
    cells = stages * chunks
    flat = list(items) * (cells // len(items))
    _check_counts([base + extra for extra in flat], base)
    return tuple(tuple(flat[start : start + stages]) for start in range(0, cells, stages))


def _check_counts(counts: Sequence[int], base: int) -> None:
    """The first and the last cell may be empty, none between them."""
    if counts[0] < 0:
        stop("ValueError", f"Head stage has negative layers. Offset must be ≥ {-base}.")
    if counts[-1] < 0:
        stop("ValueError", f"Tail stage has negative layers. Offset must be ≥ {-base}.")
    if any(count < 1 for count in counts[1:-1]):
        stop("ValueError", f"Some middle stage has fewer than 1 layer. Offset must be ≥ {1 - base}.")


def _cell(layer: int, ends: Sequence[int], counts: Sequence[Sequence[int]], inputs: RecomputeInputs) -> Cell:
    stages = inputs.placed_stages
    position = bisect_right(ends, layer)
    chunk, column = divmod(position, stages)
    start = ends[position] - counts[chunk][column]
    stage = column + inputs.start_stage
    if inputs.zero_bubble and chunk == 1:
        stage = stages - 1 - stage
    return Cell(chunk=chunk, column=column, rank=layer - start, stage=stage)
