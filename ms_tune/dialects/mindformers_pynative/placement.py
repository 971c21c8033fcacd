"""What decides about the layers of the dynamic graph of MindFormers, and what comes of it step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from ms_tune.dialects import stop
from ms_tune.enums import Dialect
from ms_tune.facts.query import default_release
from ms_tune.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Paths inside each layer, in the order in which the framework collects them.
Modules: TypeAlias = "Mapping[int, Sequence[str]]"


class PynativeInputs(Record):
    """What decides about the layers, with its types as the framework has checked them while it loaded the config."""

    layers: int  # layers without those of multi-token prediction
    mtp_layers: int = 0  # layers of multi-token prediction
    version: str = default_release(Dialect.MINDFORMERS_PYNATIVE)  # `2.0` or `2.1`
    stages: int = 1  # `parallelism.pipeline_parallel`
    chunks: int = 1  # `parallelism.pipeline_parallel_interleave_num`
    layers_per_stage: Any = "auto"  # `parallelism.pipeline_parallel_layers_per_stage`
    schedule: str = "1f1b"  # `parallelism.pipeline_parallel_schedule`
    mode: str = "None"  # `recompute.mode`
    full_layers: Any = None  # `recompute.full_recompute_layer`
    select_module: Any = None  # `recompute.select_module`
    exclude_op: Any = None  # `recompute.exclude_op`
    comm: bool = False  # `recompute_comm.enable`
    comm_module: Any = None  # `recompute_comm.select_module`
    swap: bool = False  # `swap.enable`
    prefetch: int = 1  # `swap.default_prefetch`
    layer_swap: Any = None  # `swap.layer_swap`
    op_swap: Any = None  # `swap.op_swap`
    # The paths of the modules and operators inside each layer, or None if the model is not known; then the plan names
    # the patterns themselves.
    modules: Modules | None = None
    # Whether `modules` has communication operators, too. They are there only once the model is split; without them a
    # pattern that may be meant for them stands for itself if it matches nothing else.
    comm_known: bool = True

    @property
    def total(self) -> int:
        """All layers that have a number."""
        return self.layers + self.mtp_layers


class PynativeOutcome:
    """What the framework has worked out so far."""

    def __init__(self) -> None:
        self.step = "parallel"
        self.ranges: Ranges | None = None
        self.places: Mapping[int, tuple[int, int]] = {}
        self.full: frozenset[int] = frozenset()
        self.select: Mapping[int, list[str]] = {}
        self.comm: Mapping[int, list[str]] = {}
        self.exclude: Mapping[int, list[str]] = {}
        self.overridden: dict[int, list[str]] = {}
        self.swapped: frozenset[int] = frozenset()
        self.op_swap: Mapping[int, list[str]] = {}
        self.reaches: list[tuple[str, str, Mapping[int, bool]]] = []


_KEY = "pipeline_parallel_layers_per_stage"
_ENDS = 2  # of a range

# The first and the last layer of each cell: chunks x stages.
Ranges = tuple[tuple[tuple[int, int], ...], ...]


def place_pynative(layers: int, stages: int, chunks: int, value: object) -> Ranges:
    """The layers of each cell, chunk 0 over all stages first: of ``auto``, or of a text a stage with a range a chunk."""
    if value == "auto":
        return _even(layers, stages, chunks)
    if not isinstance(value, (list, tuple, str)):
        stop("TypeError", f"object of type '{type(value).__name__}' has no len()")
    if len(value) != stages:
        stop(
            "ValueError",
            f"The length of '{_KEY}' ({len(value)}) must equal 'pipeline_parallel' ({stages}), "
            f"but got {len(value)} entries for {stages} PP ranks.",
        )
    # Each stage in turn is read to its end: the first fault in this order is the one that is raised.
    columns = [_stage(stage, text, chunks) for stage, text in enumerate(value)]
    return tuple(tuple(column[chunk] for column in columns) for chunk in range(chunks))


def _even(layers: int, stages: int, chunks: int) -> Ranges:
    cells = stages * chunks
    try:
        rest = layers % cells
    except ZeroDivisionError as error:
        stop("ZeroDivisionError", str(error))
    if rest:
        stop(
            "ValueError",
            f"Number of layers ({layers}) is not divisible by total stages ({cells})."
            f"Please configure the model distribution via '{_KEY}'.",
        )
    share = layers // cells
    firsts = [[(chunk * stages + stage) * share for stage in range(stages)] for chunk in range(chunks)]
    return tuple(tuple((first, first + share - 1) for first in row) for row in firsts)


def _stage(stage: int, text: object, chunks: int) -> Sequence[tuple[int, int]]:
    if not isinstance(text, str):
        stop("AttributeError", f"'{type(text).__name__}' object has no attribute 'split'")
    parts = text.split(",")
    if len(parts) != chunks:
        stop(
            "ValueError",
            f"PP rank {stage} has {len(parts)} chunk(s) in '{_KEY}' (got '{text}'), but "
            f"'pipeline_parallel_interleave_num' is {chunks}. Each PP rank must have exactly {chunks} "
            "comma-separated chunk(s).",
        )
    return [_range(part) for part in parts]


def _range(text: str) -> tuple[int, int]:
    ends = text.strip().split("-")
    if len(ends) > _ENDS:
        stop("ValueError", f"Invalid layer range format: {text}. Expected format is 'start-end' or 'single_layer'.")
    try:
        first, last = int(ends[0]), int(ends[-1])
    except ValueError:
        stop(
            "ValueError",
            f"Invalid layer range format: {text}. Layer IDs must be integers, got '{ends[0]}' and '{ends[-1]}'",
        )
    if first > last:
        stop(
            "ValueError",
            f"Invalid layer range format: {text}. layer_start must be less than or equal to layer_end.",
        )
    return first, last
