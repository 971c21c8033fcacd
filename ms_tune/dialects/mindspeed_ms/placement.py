"""Inputs of the plan in MindSpeed-Core-MS r0.1.0, and the placement of layers.

Sources: ``_get_num_layers`` and ``_get_custom_num_layers`` of ``mindspeed_ms/legacy/model/transformer.py``,
``initialize_model_parallel`` of ``mindspeed_ms/core/parallel_state.py``, branch r0.1.0.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import Any, TypeAlias

from ms_tune.dialects import FrameworkStop, stop
from ms_tune.dialects.values import array_text, read_array


@dataclass(frozen=True, slots=True)
class MindSpeedInputs:
    """The inputs of placement and recompute after the config has been loaded."""

    layers: int  # layers of the model
    tensor: int = 1  # tensor-parallel size
    stages: int = 1  # pipeline stages
    chunks: int | None = None  # virtual-pipeline chunks; the training entry passes None and 1 as "none"
    standalone: bool = False  # `standalone_embedding_stage`: the first stage has the embedding and no layers
    other_layers: bool = False  # whether encoder or decoder layers are counted separately
    num_layer_list: Sequence[object] | None = None  # layers of each cell as given, or None
    # Lists of counts by kind, or None without that setting.
    recompute_config: Mapping[str, object] | None = None
    granularity: str | None = None  # `model_config.recompute_granularity`
    method: str | None = None  # `model_config.recompute_method`
    full_layers: int | None = None  # number of layers for the method
    select: bool = False  # `model_config.select_recompute`: every layer
    comm: bool = False  # `model_config.select_comm_recompute`: every layer
    flash_attention: bool = False  # `model_config.use_flash_attention`
    activation: str = "gelu"  # `model_config.hidden_act`
    experts: int = 1  # `moe_config.num_experts`
    sequence_parallel: bool = False  # `parallel_config.sequence_parallel`

    @property
    def rows(self) -> int:
        """Return the number of chunks, at least one."""
        return self.chunks or 1

    @property
    def select_operator(self) -> str:
        """Return the operator that selective recompute recomputes in a layer."""
        return "mlp.act_func" if self.flash_attention else "attention.core_attention"


@dataclass(frozen=True, slots=True)
class CellPlan:
    """The number of layers in one cell, its first layer, and the numbers of recomputed layers.

    The first ``full`` layers are fully recomputed. ``select`` and ``comm`` count the layers after those, both from the
    same position.
    """

    count: int
    first: int
    full: int
    select: int
    comm: int


# A scalar of such an array: bool represents numpy.bool_, int an integer, float numpy.float64.
Number: TypeAlias = bool | int | float

_STR = "<class 'numpy.dtypes.StrDType'>"
_INT = "<class 'numpy.dtypes.Int64DType'>"
_BOOL = "<class 'numpy.dtypes.BoolDType'>"
_INT64 = 2**63
_DIGITS = {bool: 5, int: 21, float: 32}  # characters of a number in an array of text
_NO_BOOL_SUBTRACT = "numpy boolean subtract, the `-` operator, is not supported, use the bitwise_xor, the `^` operator, or the logical_xor function instead."


@dataclass(frozen=True, slots=True)
class CountArray:
    """An emulated NumPy array: its shape, its elements row by row, and their type: bool, int, float, str or object."""

    shape: tuple[int, ...]
    items: tuple[Any, ...]
    kind: type

    def total(self) -> Any:  # noqa: ANN401 - a number, or any sum of objects
        """Return the sum of all elements."""
        if self.kind is str:
            widths = [len(item) if isinstance(item, str) else _DIGITS[type(item)] for item in self.items]
            width = max(1, *widths)  # NumPy's shortest text
            stop(
                "UFuncTypeError",
                "ufunc 'add' did not contain a loop with signature matching types "
                f"(dtype('<U{width}'), dtype('<U{width}')) -> None",
            )
        if not self.items:
            return 0.0
        if self.kind is bool:
            return int(sum(self.items))
        try:
            return reduce(operator.add, self.items)
        except TypeError as error:
            stop("TypeError", str(error))

    def all_at_least(self, minimum: int, *, strictly: bool = False) -> bool:
        """Return whether every element is at least (or more than) ``minimum``."""
        if self.kind is str:
            name = "greater" if strictly else "greater_equal"
            stop(
                "UFuncTypeError",
                f"ufunc '{name}' did not contain a loop with signature matching types ({_STR}, {_INT}) -> {_BOOL}",
            )
        compare = operator.gt if strictly else operator.ge
        try:
            # NumPy compares every element, even after the result is known.
            return all([compare(item, minimum) for item in self.items])  # noqa: C419
        except TypeError as error:
            stop("TypeError", str(error))

    def text(self) -> str:
        """Return ``str`` of the array."""
        return array_text(self.shape, self.items if self.kind is int else _words(self.items))


def _words(items: tuple[Any, ...]) -> list[str]:
    """Format the elements like NumPy: decimal points aligned, no trailing zero."""
    words = [str(item).removesuffix("0") if str(item).endswith(".0") else str(item) for item in items]
    decimals = max(len(word.partition(".")[2]) for word in words)
    return [word + " " * (decimals - len(word.partition(".")[2])) if "." in word else word for word in words]


def count_array(value: object) -> CountArray:
    """Return ``numpy.array(value)`` of a list."""
    shape, items = read_array(value)
    kind = _kind(items)
    if kind is float:
        items = [float(item) if isinstance(item, (int, float)) else item for item in items]
    elif kind is int:
        items = [int(item) if isinstance(item, int) else item for item in items]
    return CountArray(shape, tuple(items), kind)


def _kind(items: list[object]) -> type:
    kinds = {type(item) for item in items}
    if not kinds:
        return float
    if not kinds <= {bool, int, float, str}:
        return object
    numbers = [item for item in items if isinstance(item, int)]
    if any(not -_INT64 <= number < 2 * _INT64 for number in numbers):
        return object
    if any(number >= _INT64 for number in numbers) and any(number < _INT64 for number in numbers):
        # Neither of the two integer types can represent them all.
        kinds.add(float)
    for kind in (str, float, int):
        if kind in kinds:
            return kind
    return bool


def add(one: Number, other: Number) -> Number:
    """Return ``one + other``: two bools stay a bool, so True + True is True."""
    if isinstance(one, bool) and isinstance(other, bool):
        return one or other
    return one + other


def subtract(one: Number, other: Number) -> Number:
    """Return ``one - other``."""
    if isinstance(one, bool) and isinstance(other, bool):
        stop("TypeError", _NO_BOOL_SUBTRACT)
    return one - other


def as_count(number: Number) -> int:
    """Return the number of iterations of ``range(number)``."""
    if isinstance(number, float):
        stop("TypeError", "'numpy.float64' object cannot be interpreted as an integer")
    return max(int(number), 0)


class LayerPlacer:
    """The framework's distribution of layers; results that are the same for all ranks are cached."""

    def __init__(self, inputs: MindSpeedInputs) -> None:
        self._inputs = inputs
        # With a separate embedding stage, the first stage has no layers.
        self.columns = inputs.stages - 1 if inputs.standalone and inputs.stages > 1 else inputs.stages
        self.layout = (
            (1,) if inputs.stages == 1 else (self.columns,) if inputs.chunks is None else (inputs.chunks, self.columns)
        )
        self._placed: tuple[list[Number], list[Number]] | FrameworkStop | None = None
        self._shown = ""
        # Checked first: a typing error in the number of stages must not create too many cells.
        self._cells = (
            [(0, 0)]
            if self._too_few()
            else [(chunk, stage) for chunk in range(inputs.rows) for stage in range(inputs.stages)]
        )

    def cells(self) -> Sequence[tuple[int, int]]:
        """Return every (chunk, stage) in the order of building; one is enough if all have the same result."""
        return self._cells

    def _too_few(self) -> bool:
        inputs = self._inputs
        return inputs.layers < inputs.stages * inputs.rows

    def check_parallel(self) -> None:
        """Apply the check of ``initialize_model_parallel`` (``core/parallel_state.py``)."""
        if self._inputs.chunks is not None and self._inputs.stages == 1:
            stop("RuntimeError", "pipeline-model-parallel size should be greater than 1 with interleaved schedule")

    def place_cell(self, chunk: int, stage: int, log: list[str]) -> tuple[Number, int]:
        """Return the number of layers of a cell and its first layer (``_get_num_layers``)."""
        inputs = self._inputs
        if self._too_few():
            stop(
                "RuntimeError",
                f"The number of model layers is {inputs.layers}, but using pipeline parallel requires at least "
                f"'pp({inputs.stages}) * vpp({inputs.rows}) = {inputs.stages * inputs.rows}' layers for splitting",
            )
        if inputs.other_layers:
            stop("NotImplementedError", "`encoder_num_layers` and `decoder_num_layers` are not supported for now.")
        if inputs.stages == 1:
            return inputs.layers, 0
        if inputs.standalone and stage == 0:
            return 0, 0
        column = stage - 1 if inputs.standalone else stage
        if self._placed is None:
            try:
                self._placed = self._place_all()
            except FrameworkStop as error:
                self._placed = error
        if isinstance(self._placed, FrameworkStop):
            stop(self._placed.exception, self._placed.text)
        counts, firsts = self._placed
        place = chunk * self.columns + column
        if self._shown:
            where = f"pp_rank:{column}" if inputs.chunks is None else f"vpp_rank:{chunk}, pp_rank:{column}"
            log.append(f"Custom num layer list is {self._shown}. Num_layers in {where} is {counts[place]}.")
        return counts[place], int(firsts[place])

    def _place_all(self) -> tuple[list[Number], list[Number]]:
        inputs = self._inputs
        if inputs.num_layer_list:
            array = self._custom(inputs.num_layer_list)
            counts: list[Number] = list(array.items)
            self._shown = array.text()
        else:
            counts = []
            for share in divide(inputs.layers, inputs.rows):
                counts += divide(share, self.columns)
        return counts, [0, *accumulate(counts)][:-1]

    def _custom(self, value: Sequence[object]) -> CountArray:
        layers = self._inputs.layers
        array = count_array(value)
        total = array.total()
        if total != layers:
            stop(
                "ValueError",
                f"The number of model layers is {layers}, but the sum of num_layer_list  {value} is {total}.",
            )
        if not array.all_at_least(0, strictly=True):
            stop("ValueError", f"All elements of num_layer_list should be larger than 0, but got {array.text()}.")
        if array.shape != self.layout:
            stop("ValueError", f"The shape of num_layer_list {array.shape} must equal to pp_layout {self.layout}")
        return array


def divide(layers: int, parts: int) -> list[int]:
    """Divide layers evenly; each of the parts just before the last gets one layer of the remainder."""
    share, rest = divmod(layers, parts)
    return [share + (parts - 1 - rest <= part < parts - 1) for part in range(parts)]
