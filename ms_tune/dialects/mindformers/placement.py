"""Placement of layers (layer -> stage, chunk) in MindFormers' static graph, and its inputs.

The rules are those of ``LayerSetting`` in MindFormers 1.6 to 2.1 (compared between releases). In 1.6 it is in
``mindformers/models/utils.py`` for legacy models and, in a reduced form, in
``mindformers/parallel_core/training_graph/transformer/utils.py`` for the others; since 1.7 the latter has one class for
both. The classes of 1.9, 2.0 and 2.1 are identical.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, chain

from ms_tune.dialects import stop
from ms_tune.dialects.values import array_text, to_int32
from ms_tune.facts.query import DEFAULT_VERSION
from ms_tune.records import Record

# The five recompute values, in the order in which the framework formats them.
KEYS = (
    "recompute",
    "select_recompute",
    "select_comm_recompute",
    "select_recompute_exclude",
    "select_comm_recompute_exclude",
)


class RecomputeValues(Record):
    """The five values as in the config: bool, list, list of lists, list of patterns, dict, or invalid.

    Values (or rows) that are one object, because of a YAML alias, stay one object: a change to one by the framework is
    visible in the other.
    """

    recompute: object = False
    select_recompute: object = False
    select_comm_recompute: object = False
    select_recompute_exclude: object = False
    select_comm_recompute_exclude: object = False


class SwapValues(Record):
    """The values of ``swap_config`` as in the config; a missing one is None, except for the two with defaults."""

    swap: object = False
    layer_swap: object = None
    op_swap: object = None
    default_prefetch: object = 1


NO_SWAP = SwapValues()  # for a config without swap settings


class RecomputeInputs(Record):
    """The inputs of placement, recompute plan and swap plan."""

    layers: int  # layers that the framework distributes (see `mtp_layers`)
    stages: int = 1  # pipeline stages (`parallel_config.pipeline_stage`)
    # Extra layers per stage, as written: a number, a list per stage, or lists per (chunk, stage).
    offset: object = 0
    # Whether `pipeline_interleave` is on; otherwise there is always one chunk.
    interleave: bool = False
    # Requested chunks (`pp_interleave_num`). None if an Mcore model lacks that key.
    interleave_num: int | None = 1
    scheduler: str = "1f1b"  # `pipeline_scheduler`
    legacy: bool = True  # whether the model is a legacy one (`use_legacy`)
    stage_num: int = 0  # if not 0, the stages of this part of a multi-modal model, used instead of `stages`
    start_stage: int = 0  # its first stage
    # Multi-token prediction layers, built after `layers` and not counted there. The reduced class of 1.6 distributes
    # them with the others.
    mtp_layers: int = 0
    micro_batches: int = 1  # `parallel_config.micro_batch_num`
    sequence_splits: int = 1  # `parallel_config.seq_split_num`
    slice_activation: bool = False  # `recompute_config.recompute_slice_activation`
    values: RecomputeValues = RecomputeValues()
    # The values that the framework's own checks use, if the model does not get all of them.
    checked: RecomputeValues | None = None
    # The section `swap_config`: only legacy models use it, but the framework's checks do for all.
    swap: SwapValues = NO_SWAP
    # The swap settings that other models use, from `model.model_config` (since 1.7).
    core_swap: SwapValues = NO_SWAP
    version: str = DEFAULT_VERSION  # the MindFormers release, one of `ms_tune.facts.query.VERSIONS`

    @property
    def reduced(self) -> bool:
        """Return whether the model uses the reduced class of 1.6, which supports neither swap nor exclude lists."""
        return not self.legacy and self.version == "1.6"

    @property
    def placed_layers(self) -> int:
        """Return the number of layers that are distributed over the stages."""
        return self.layers + self.mtp_layers if self.reduced else self.layers

    @property
    def zero_bubble(self) -> bool:
        """Return whether the second chunk runs backwards through the stages."""
        return self.scheduler == "zero_bubble_v" and self.version != "1.6"

    @property
    def swaps(self) -> SwapValues:
        """Return the swap values that apply to the layers."""
        return NO_SWAP if self.reduced else self.swap if self.legacy else self.core_swap


class LayerCell(Record):
    """The position of one layer: chunk and column in the framework's tables, rank inside that cell, and stage."""

    layer: int
    chunk: int
    column: int
    rank: int
    stage: int


class Placement(Record):
    """The number of layers in each cell, and the position of each layer."""

    # Layers of each cell: chunks x stages, in the framework's order. With `zero_bubble_v` the second chunk runs
    # backwards, so the first column of its row is the last stage.
    counts: tuple[tuple[int, ...], ...]
    totals: tuple[int, ...]  # layers per column over all chunks
    # Total of `counts`; exceeds the number of layers if the offset is applied twice.
    slots: int
    ends: list[list[int]]  # running sums of `counts`, same shape
    cells: tuple[LayerCell, ...]  # the position of every layer
    offset: list[list[int]]  # the applied offset, same shape as `counts`


def place_layers(inputs: RecomputeInputs) -> Placement:
    """Place all layers.

    Every cell gets ``layers / (stages x chunks)`` layers plus its offset. Layers fill chunk 0 over all stages, then chunk 1,
    and so on.
    """
    layers, stages = inputs.placed_layers, inputs.stage_num or inputs.stages
    chunks = inputs.interleave_num if inputs.interleave else 1
    offset = _spread_offset(inputs, layers, stages, chunks)
    if chunks is None or chunks < 1:
        # The framework divides by the number of cells and then creates an array with that many rows.
        if chunks == 0:
            stop("ZeroDivisionError", "integer division or modulo by zero")
        stop("ValueError", "negative dimensions are not allowed")
    base = layers // (stages * chunks)
    counts = [[base + extra for extra in row] for row in offset]
    if inputs.zero_bubble:
        if chunks == 1:
            stop("IndexError", "index 1 is out of bounds for axis 0 with size 1")
        counts[1].reverse()
    ends = list(accumulate(chain.from_iterable(counts)))
    return Placement(
        counts=tuple(map(tuple, counts)),
        totals=tuple(map(sum, zip(*counts, strict=True))),
        slots=ends[-1],
        ends=[ends[start : start + stages] for start in range(0, len(ends), stages)],
        cells=_find_cells(ends, layers, stages, inputs.start_stage, backwards=inputs.zero_bubble),
        offset=offset,
    )


def _spread_offset(  # noqa: C901 - the framework's checks one by one
    inputs: RecomputeInputs, layers: int, stages: int, chunks: int | None
) -> list[list[int]]:
    """Return the offset of every cell.

    Like the framework, check the sum before spreading a number or list over the cells. So a non-zero number, or a list
    with several chunks, is accepted and then counted more than once.
    """
    shape, items = to_int32(inputs.offset) if inputs.offset != 0 else ((), [0])
    since_1_8 = inputs.version not in ("1.6", "1.7")
    if since_1_8 and chunks is not None and stages * chunks <= 1:  # a single cell accepts any offset
        return [[0]]
    if shape and (chunks is not None or not since_1_8):
        _check_shape(shape, items, stages, chunks)
    if chunks is None:
        stop("TypeError", "unsupported operand type(s) for *: 'int' and 'NoneType'")
    cells = stages * chunks
    try:
        rest = layers % cells
    except ZeroDivisionError as error:  # its text is Python's and differs between versions
        stop("ZeroDivisionError", str(error))
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
    if since_1_8:  # the first and the last cell may be empty, the others may not
        least = -(layers // cells)
        if min(flat[0], flat[-1]) < least:
            end = "Head" if flat[0] < least else "Tail"
            stop("ValueError", f"{end} stage has negative layers. Offset must be ≥ {least}.")
        if min(flat[1:-1], default=1) <= least:
            stop("ValueError", f"Some middle stage has fewer than 1 layer. Offset must be ≥ {1 + least}.")
    return [flat[start : start + stages] for start in range(0, cells, stages)]


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


def _find_cells(
    ends: Sequence[int], layers: int, stages: int, start_stage: int, *, backwards: bool
) -> tuple[LayerCell, ...]:
    """Return the position of every layer.

    The framework finds the column by bisection and the chunk by the first end after the layer. Up to 1.7 an offset can
    make a cell's count negative; then the ends do not increase, and the two may disagree.
    """
    tops = list(accumulate(ends, max))
    cells = []
    for layer in range(layers):
        column = bisect_left(ends, layer + 1) % stages
        chunk = bisect_left(tops, layer + 1) // stages
        # The framework subtracts the end of the previous cell, across chunks for the first column.
        before = chunk * stages + column - 1
        rank = layer - (ends[before] if before >= 0 else 0)
        stage = column + start_stage
        if backwards and chunk == 1:
            stage = stages - 1 - stage
        cells.append(LayerCell(layer, chunk, column, rank, stage))
    return tuple(cells)
