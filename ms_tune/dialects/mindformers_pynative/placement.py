"""Inputs of the plan in MindFormers' dynamic graph, the state of its evaluation, and the placement of layers."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence

from ms_tune.diagnostics import KeyPath
from ms_tune.dialects import FrameworkStop, stop_at_first
from ms_tune.enums import Dialect
from ms_tune.facts.query import default_release
from ms_tune.records import Any, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

# Paths in each layer, in the framework's order.
Modules: TypeAlias = "Mapping[int, Sequence[str]]"


class PynativeInputs(Record):
    """The inputs of the plan; the framework has checked their types when loading the config."""

    layers: int  # without multi-token prediction
    mtp_layers: int = 0  # multi-token prediction layers
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
    # The paths of modules and operators in each layer, or None for an unknown model; then the plan contains the
    # patterns themselves.
    modules: Modules | None = None
    # Whether `modules` includes communication operators, which exist only after the model is split. Otherwise a pattern
    # that may be for them is kept as is if it matches nothing else.
    comm_known: bool = True

    def copied(self) -> PynativeInputs:
        """Return a copy with its own lists: the framework changes the lists of its config in place."""
        lists = ("full_layers", "select_module", "exclude_op", "comm_module", "layer_swap", "op_swap")
        return self._replace(**{key: copy.deepcopy(getattr(self, key)) for key in lists})

    @property
    def total(self) -> int:
        """Return the number of layers, including multi-token prediction."""
        return self.layers + self.mtp_layers


class PynativeOutcome:
    """The framework's results so far."""

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
_ENDS = 2  # numbers in a range
UNEVEN_STAGES = "MST730"  # the check that reports these refusals

# The first and last layer of each cell: chunks x stages.
Ranges = tuple[tuple[tuple[int, int], ...], ...]


def check_stages(layers: int | None, stages: int, chunks: int, value: object) -> Iterator[FrameworkStop]:
    """Yield refusals of the layers per stage, in the framework's order; the number of layers may be unknown."""
    path: KeyPath = ("parallelism", _KEY)
    cells = stages * chunks
    if value == "auto":
        if layers is not None and cells == 0:
            yield FrameworkStop("ZeroDivisionError", "integer modulo by zero")
        elif layers is not None and layers % cells:
            at = ("parallelism", "pipeline_parallel")
            text = f"Number of layers ({layers}) is not divisible by total stages ({cells})."
            text += f"Please configure the model distribution via '{_KEY}'."
            yield _refuse(text, at, "auto", layers=layers, cells=cells)
    elif not isinstance(value, (list, str)):
        text = f"object of type '{type(value).__name__}' has no len()"
        yield FrameworkStop("TypeError", text, None, UNEVEN_STAGES if value is None else "", path, "nothing")
    elif len(value) != stages:
        given = len(value)
        text = f"The length of '{_KEY}' ({given}) must equal 'pipeline_parallel' ({stages}), "
        text += f"but got {given} entries for {stages} PP ranks."
        yield _refuse(text, path, "stages", given=given, stages=stages)
    else:
        for stage, text in enumerate(value):
            yield from _check_stage((*path, stage), stage, text, chunks)


def _check_stage(path: KeyPath, stage: int, text: object, chunks: int) -> Iterator[FrameworkStop]:
    if not isinstance(text, str):
        said = f"'{type(text).__name__}' object has no attribute 'split'"
        yield FrameworkStop("AttributeError", said, None, UNEVEN_STAGES, path, "text")
        return
    given = len(parts := text.split(","))
    if given != chunks:
        said = (
            f"PP rank {stage} has {given} chunk(s) in '{_KEY}' (got '{text}'), but 'pipeline_parallel_interleave_num' "
        )
        said += f"is {chunks}. Each PP rank must have exactly {chunks} comma-separated chunk(s)."
        yield _refuse(said, path, "chunks", given=given, chunks=chunks)
        return
    fault = next(filter(None, map(_range_fault, parts)), None)
    if fault is not None:
        yield _refuse(fault, path, "form")


def _range_fault(text: str) -> str | None:
    ends = text.strip().split("-")
    invalid = f"Invalid layer range format: {text}. "
    if len(ends) > _ENDS:
        return f"{invalid}Expected format is 'start-end' or 'single_layer'."
    try:
        first, last = _read_range(text)
    except ValueError:
        return f"{invalid}Layer IDs must be integers, got '{ends[0]}' and '{ends[-1]}'"
    return f"{invalid}layer_start must be less than or equal to layer_end." if first > last else None


def _read_range(text: str) -> tuple[int, int]:
    first, *others = text.strip().split("-")
    return int(first), int(others[-1] if others else first)


def _refuse(text: str, path: KeyPath, message: str, **params: object) -> FrameworkStop:
    return FrameworkStop("ValueError", text, None, UNEVEN_STAGES, path, message, **params)


def place_layers(layers: int, stages: int, chunks: int, value: Any) -> Ranges:  # noqa: ANN401 - the value as in the config
    """Return each cell's layers, from ``auto`` or from one text per stage with a range per chunk."""
    stop_at_first(check_stages(layers, stages, chunks, value))
    if value == "auto":
        share = layers // (stages * chunks)
        firsts = [[(chunk * stages + stage) * share for stage in range(stages)] for chunk in range(chunks)]
        return tuple(tuple((first, first + share - 1) for first in row) for row in firsts)
    columns = [[_read_range(part) for part in text.split(",")] for text in value]
    return tuple(tuple(column[chunk] for column in columns) for chunk in range(chunks))
