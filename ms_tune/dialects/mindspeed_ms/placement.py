"""What decides about the layers in MindSpeed-Core-MS r0.1.0, and what becomes of one cell of them."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from ms_tune.dialects.layer_plan import stop
from ms_tune.dialects.values import array_text, read_array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class MindSpeedInputs:
    """What decides about placement and recompute, as it is after the config has been loaded."""

    layers: int  # layers of the model
    tensor: int = 1  # Tensor-parallel size
    stages: int = 1  # pipeline stages
    chunks: int | None = None  # Virtual-pipeline chunks. The training entry hands None and 1 over as "none".
    standalone: bool = False  # `standalone_embedding_stage`: the first stage holds the embedding and no layer
    other_layers: bool = False  # whether layers of encoder or decoder are counted apart
    num_layer_list: Sequence[object] | None = None  # layers of each cell as given, or nothing
    # Lists of counts by kind, or None if there is no such setting at all.
    recompute_config: Mapping[str, object] | None = None
    granularity: str | None = None  # `model_config.recompute_granularity`
    method: str | None = None  # `model_config.recompute_method`
    full_layers: int | None = None  # how many layers the method is for
    select: bool = False  # `model_config.select_recompute`: every layer
    comm: bool = False  # `model_config.select_comm_recompute`: every layer
    flash_attention: bool = False  # `model_config.use_flash_attention`
    activation: str = "gelu"  # `model_config.hidden_act`
    experts: int = 1  # `moe_config.num_experts`
    sequence_parallel: bool = False  # `parallel_config.sequence_parallel`

    @property
    def rows(self) -> int:
        """Chunks, at least one."""
        return self.chunks or 1

    @property
    def select_operator(self) -> str:
        """What selective recompute repeats in a layer."""
        return "mlp.act_func" if self.flash_attention else "attention.core_attention"


@dataclass(frozen=True, slots=True)
class CellPlan:
    """One cell: how many layers, which one is the first, and how many do what.

    The first ``full`` layers recompute everything. ``select`` and ``comm`` count the layers behind those, both from
    the same place on.
    """

    count: int
    first: int
    full: int
    select: int
    comm: int


# A scalar of such an array: bool stands for numpy.bool_, int for an integer, float for numpy.float64.
Number: TypeAlias = bool | int | float

_STR = "<class 'numpy.dtypes.StrDType'>"
_INT = "<class 'numpy.dtypes.Int64DType'>"
_BOOL = "<class 'numpy.dtypes.BoolDType'>"
_INT64 = 2**63
_DIGITS = {bool: 5, int: 21, float: 32}  # characters that a number takes in an array of text
_NO_BOOL_SUBTRACT = "numpy boolean subtract, the `-` operator, is not supported, use the bitwise_xor, the `^` operator, or the logical_xor function instead."


@dataclass(frozen=True, slots=True)
class CountArray:
    """An array: its shape, its elements row by row, and what they are: bool, int, float, str or object."""

    shape: tuple[int, ...]
    items: tuple[Any, ...]
    kind: type

    def total(self) -> Any:  # noqa: ANN401 - a number, or whatever a list of objects adds up to
        """The sum of all elements.

        Raises:
            FrameworkStop: NumPy raises.
        """
        if self.kind is str:
            width = max(1, *(_width(item) for item in self.items))  # NumPy has no shorter text
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
        """Whether every element is at least (or more than) a number.

        Raises:
            FrameworkStop: NumPy raises.
        """
        if self.kind is str:
            name = "greater" if strictly else "greater_equal"
            stop(
                "UFuncTypeError",
                f"ufunc '{name}' did not contain a loop with signature matching types ({_STR}, {_INT}) -> {_BOOL}",
            )
        compare = operator.gt if strictly else operator.ge
        try:
            # NumPy compares every element, also behind one that has decided the matter.
            return all([compare(item, minimum) for item in self.items])  # noqa: C419
        except TypeError as error:
            stop("TypeError", str(error))

    def text(self) -> str:
        """``str`` of the array."""
        return array_text(self.shape, self.items if self.kind is int else _words(self.items))


def _words(items: tuple[Any, ...]) -> list[str]:
    """The elements as NumPy writes them: decimal points below each other, no zero behind one."""
    words = [str(item).removesuffix("0") if str(item).endswith(".0") else str(item) for item in items]
    behind = max(len(word.partition(".")[2]) for word in words)
    return [word + " " * (behind - len(word.partition(".")[2])) if "." in word else word for word in words]


def _width(item: object) -> int:
    return len(item) if isinstance(item, str) else _DIGITS[type(item)]


def count_array(value: object) -> CountArray:
    """``numpy.array(value)`` of a list.

    Raises:
        FrameworkStop: NumPy raises, because the list is ragged.
    """
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
        # Neither of the two integer types holds them all.
        kinds.add(float)
    for kind in (str, float, int):
        if kind in kinds:
            return kind
    return bool


def add(one: Number, other: Number) -> Number:
    """``one + other``: two bools stay a bool, so that True and True make True."""
    if isinstance(one, bool) and isinstance(other, bool):
        return one or other
    return one + other


def subtract(one: Number, other: Number) -> Number:
    """``one - other``.

    Raises:
        FrameworkStop: Both are bools, which NumPy does not subtract.
    """
    if isinstance(one, bool) and isinstance(other, bool):
        stop("TypeError", _NO_BOOL_SUBTRACT)
    return one - other


def as_count(number: Number) -> int:
    """How often ``range(number)`` goes round.

    Raises:
        FrameworkStop: The number is no whole one.
    """
    if isinstance(number, float):
        stop("TypeError", "'numpy.float64' object cannot be interpreted as an integer")
    return max(int(number), 0)
