"""The little of NumPy that the frameworks' texts and conversions show: arrays from nested lists, and their print.

MindFormers and MindSpeed-Core-MS need NumPy below 2, and that is what this follows (checked against 1.26). ms-tune itself
does without NumPy, so that a config can be normalised without it. What MindSpeed-Core-MS does with arrays beyond that is in
:mod:`ms_tune.dialects.mindspeed_ms.placement`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ms_tune.dialects.layer_plan import stop

if TYPE_CHECKING:
    from collections.abc import Sequence

_LINE_WIDTH = 75
_INT32 = 2**32
_INT64 = 2**63


class ArrayRow(list[int]):
    """A row that the framework keeps as an array, which shows where it prints the list that holds it."""

    def __repr__(self) -> str:
        return array_repr(self)


def to_int32(value: object) -> tuple[tuple[int, ...], list[int]]:
    """Shape and elements, row by row, of ``numpy.array(value, numpy.int32)``.

    Floats lose their fraction and big numbers their upper bits, both without a word; a string counts if ``int``
    takes it.

    Raises:
        FrameworkStop: NumPy raises.
    """
    shape, items = read_array(value)
    return shape, [_to_element(item) for item in items]


def read_array(value: object) -> tuple[tuple[int, ...], list[object]]:
    """Shape and elements, row by row, of the array that nested lists make.

    Raises:
        FrameworkStop: NumPy raises, because the lists are ragged.
    """
    shape: tuple[int, ...] = ()
    items = [value]
    while lists := [item for item in items if isinstance(item, (list, tuple))]:
        size = len(lists[0])
        if len(lists) < len(items) or any(len(item) != size for item in lists):
            stop(
                "ValueError",
                "setting an array element with a sequence. The requested array has an inhomogeneous shape after "
                f"{len(shape)} dimensions. The detected shape was {shape} + inhomogeneous part.",
            )
        shape += (size,)
        items = [part for item in lists for part in item]
    return shape, items


def leaves(value: object) -> list[object]:
    """The elements of nested lists, row by row."""
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def _to_element(item: object) -> int:
    if isinstance(item, float) and math.isnan(item):
        stop("ValueError", "cannot convert float NaN to integer")
    if isinstance(item, float) and math.isinf(item):
        stop("OverflowError", "cannot convert float infinity to integer")
    if isinstance(item, (str, bytes)):
        try:
            number = int(item)
        except ValueError as error:
            stop("ValueError", str(error))
    elif isinstance(item, (int, float)):
        number = int(item)
    else:
        kind = type(item)
        name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        stop(
            "TypeError",
            f"int() argument must be a string, a bytes-like object or a real number, not '{name}'",
        )
    if not -_INT64 <= number < _INT64:
        stop("OverflowError", "Python int too large to convert to C long")
    return (number + _INT32 // 2) % _INT32 - _INT32 // 2


def array_text(shape: tuple[int, ...], items: Sequence[object]) -> str:
    """``str`` of an array of integers, or of words (:func:`numpy.array2string` with its default settings)."""
    return _text(shape, items, separator=" ", prefix="", suffix="")


def array_repr(items: Sequence[int]) -> str:
    """``repr`` of a one-dimensional int32 array."""
    text = "array(" + _text((len(items),), items, separator=", ", prefix="array(", suffix=",") + ","
    last_line = len(text) - (text.rfind("\n") + 1)
    kind = "dtype=int32)"
    space = " " if last_line + len(kind) + 1 <= _LINE_WIDTH else "\n" + " " * len("array(")
    return text + space + kind


def _text(shape: tuple[int, ...], items: Sequence[object], *, separator: str, prefix: str, suffix: str) -> str:
    if not items:
        return "[]"
    width = max(len(str(item)) for item in items)
    words = [str(item).rjust(width) for item in items]
    return _block(shape, words, indent=" " + " " * len(prefix), width=_LINE_WIDTH - len(suffix), separator=separator)


def _block(shape: tuple[int, ...], words: Sequence[str], *, indent: str, width: int, separator: str) -> str:
    """One bracket level. The innermost one is filled line by line, the others put each part on lines of its own."""
    if len(shape) == 1:
        limit = width - max(len(separator.rstrip()), 1)
        done, line = "", indent
        for position, word in enumerate(words):
            if len(line) + len(word) > limit and len(line) > len(indent):
                done += line.rstrip() + "\n"
                line = indent
            line += word + (separator if position < len(words) - 1 else "")
        return "[" + (done + line)[len(indent) :] + "]"
    size = len(words) // shape[0]
    between = separator.rstrip() + "\n" * (len(shape) - 1)
    parts = [
        indent
        + _block(
            shape[1:],
            words[start : start + size],
            indent=indent + " ",
            width=width - 1,
            separator=separator,
        )
        for start in range(0, len(words), size)
    ]
    return "[" + between.join(parts)[len(indent) :] + "]"
