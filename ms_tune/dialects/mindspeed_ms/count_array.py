"""The little of NumPy that MindSpeed-Core-MS does with its lists of counts: ``numpy.array(value)`` and what comes of it.

It puts every list of a config through NumPy without naming a type, so that what a list holds decides about the
exception. This follows NumPy 1.26 (MindSpore of that time pins NumPy below 2). ms-tune does without NumPy itself.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

from ms_tune.dialects.arrays import array_text, leaves, shape_of
from ms_tune.dialects.plan_result import stop

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
    shape = shape_of(value)
    items = leaves(value)
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
