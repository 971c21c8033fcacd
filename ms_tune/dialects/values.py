r"""List values in configs as the frameworks interpret them: nested lists as number arrays, texts as operator patterns.

Arrays emulate the small part of NumPy that shows in the frameworks' texts and conversions. MindFormers and
MindSpeed-Core-MS require NumPy below 2 (checked against 1.26). ms-tune does not use NumPy here, so that a config can be
normalised without it. Further array operations of MindSpeed-Core-MS are in
:mod:`ms_tune.dialects.mindspeed_ms.placement`.

A pattern is split at the two characters ``\.``; each segment must match a whole name (``LayerSetting``, MindFormers 1.6
to 2.1). MindFormers matches with the module ``regex`` and a timeout of one second (before 1.7: with ``re``, without
timeout); ms-tune does not use ``regex`` and skips matches that could take long.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, MutableMapping, Sequence
from functools import lru_cache

from ms_tune.dialects import stop
from ms_tune.records import NoReturn
from ms_tune.text import msg

_LINE_WIDTH = 75
_INT32 = 2**32
_INT64 = 2**63


class ArrayRow(list[int]):
    """A row that the framework keeps as an array, which is visible where it prints the containing list."""

    def __repr__(self) -> str:
        return array_repr(self)


class NumpyCount(int):
    """A count that the framework has written back into a config list as a NumPy integer.

    Its own type checks reject such a count as an integer when they see the list again.
    """

    __slots__ = ()


def is_counts(value: object) -> bool:
    """Return whether the value is a list of counts (one per stage, Booleans allowed, not written back by the framework), or empty."""
    return isinstance(value, (list, tuple)) and all(
        isinstance(item, int) and not isinstance(item, NumpyCount) for item in value
    )


def is_patterns(value: object) -> bool:
    """Return whether the value is a list of patterns only, or empty."""
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def are_numbers(value: object) -> bool:
    """Return whether the value is a list of whole numbers without Booleans, or empty."""
    return isinstance(value, (list, tuple)) and all(
        isinstance(item, int) and not isinstance(item, bool) for item in value
    )


def to_int32(value: object) -> tuple[tuple[int, ...], list[int]]:
    """Return the shape and elements, row by row, of ``numpy.array(value, numpy.int32)``.

    Floats are truncated and large numbers wrap around, both silently; a string counts if ``int`` accepts it.
    """
    shape, items = read_array(value)
    return shape, [_to_element(item) for item in items]


def read_array(value: object) -> tuple[tuple[int, ...], list[object]]:
    """Return the shape and elements, row by row, of the array that nested lists form."""
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
    """Return the elements of nested lists, row by row."""
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
        stop("TypeError", f"int() argument must be a string, a bytes-like object or a real number, not '{name}'")
    if not -_INT64 <= number < _INT64:
        stop("OverflowError", "Python int too large to convert to C long")
    return (number + _INT32 // 2) % _INT32 - _INT32 // 2


def array_text(shape: tuple[int, ...], items: Sequence[object]) -> str:
    """Return ``str`` of an array of integers or words (:func:`numpy.array2string` with default settings)."""
    return _text(shape, items, separator=" ", prefix="", suffix="")


def array_repr(items: Sequence[int]) -> str:
    """Return ``repr`` of a one-dimensional int32 array."""
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
    """Format one bracket level: wrap the innermost level into lines, and put the parts of outer levels on separate lines."""
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
        + _block(shape[1:], words[start : start + size], indent=indent + " ", width=width - 1, separator=separator)
        for start in range(0, len(words), size)
    ]
    return "[" + between.join(parts)[len(indent) :] + "]"


_MOST_STEPS = 1_000_000  # limit of backtracking steps per match: below a tenth of a second
_LONGEST = 500  # maximum characters per segment
# Repeats without fixed length; and causes of exponential backtracking: a repeated group or a reference to one.
_OPEN_REPEAT = r"(?<!\\)(?:\\\\)*[*+]|\{\d*,\d*\}"
_EXPLOSIVE = r"\)[*+{]|\\[1-9]|\(\?P="


def split_pattern(pattern: object) -> list[str]:
    r"""Return the segments of a pattern, split at ``\.`` (not at a plain dot)."""
    if not isinstance(pattern, str):
        stop("AttributeError", f"'{type(pattern).__name__}' object has no attribute 'split'")
    return pattern.split(r"\.")


def check_applied(pattern: object, *, timed: bool) -> None:
    """Raise the error that the framework raises for an invalid pattern on any layer.

    The first segment is matched against the layer's own names, and every layer has some.
    """
    first = split_pattern(pattern)[0]
    try:
        compile_segment(first)
    except re.error as error:
        stop_at(first, error, timed=timed)


def stop_at(segment: str, error: re.error, *, timed: bool) -> NoReturn:
    """Raise the framework's exception for a segment that is not a regular expression."""
    why = msg("layers.why.not-a-pattern", pattern=segment)
    # The module regex has its own message, which ms-tune cannot reproduce without it.
    stop(*(("regex.error", "") if timed else ("re.error", str(error))), why)


@lru_cache(maxsize=4096)
def compile_segment(segment: str) -> re.Pattern[str]:
    """Compile a segment of a pattern, without Python's warnings about style."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(segment)


def pattern_fault(segment: str) -> str:
    """Return the error of a segment that is not a regular expression; empty if it is one."""
    try:
        compile_segment(segment)
    except (re.error, RecursionError, OverflowError) as error:
        return str(error)
    return ""


@lru_cache(maxsize=4096)
def is_risky(segment: str, length: int = 40) -> bool:
    """Return whether matching a name of this length might take long; such a match counts as failed."""
    if len(segment) > _LONGEST or re.search(_EXPLOSIVE, segment):
        return True
    steps: int = (length + 1) ** len(re.findall(_OPEN_REPEAT, segment))
    return steps > _MOST_STEPS


def full_match(segment: str, name: str) -> bool:
    """Return whether a segment, as a regular expression, matches a whole name."""
    if segment == name and segment.isidentifier():
        return True
    expression = compile_segment(segment)
    return not is_risky(segment, len(name)) and expression.fullmatch(name) is not None


def drop_excluded(
    key: str,
    patterns: MutableMapping[object, object],
    excludes: Iterable[object],
    dropped: list[tuple[str, str]],
    *,
    timed: bool,
) -> None:
    """Remove the patterns that an exclude pattern duplicates.

    Each exclude pattern removes only the first such pattern, even if it excludes no layer.

    Removed ones are deleted in place and added to ``dropped``, with the key; ``timed`` releases match with ``regex``.
    """
    for exclude in excludes:
        segments = split_pattern(exclude)
        for pattern in patterns:
            if _matches_segments(segments, split_pattern(pattern), timed=timed):
                # The framework tests the found pattern for truth, so an empty one stays.
                if pattern:
                    del patterns[pattern]
                    dropped.append((key, str(pattern)))
                break


def _matches_segments(one: list[str], other: list[str], *, timed: bool) -> bool:
    """Return whether each segment of one matches the other's as a regular expression, in either direction."""
    if len(one) != len(other):
        return False
    return all(
        _matches(left, right, timed=timed) or _matches(right, left, timed=timed)
        for left, right in zip(one, other, strict=True)
    )


def _matches(pattern: str, text: str, *, timed: bool) -> bool:
    try:
        return full_match(pattern, text)
    except re.error as error:
        stop_at(pattern, error, timed=timed)
