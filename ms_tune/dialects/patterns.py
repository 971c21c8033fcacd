r"""Patterns of operators: their segments, what a segment matches, and which patterns an exclude list takes out.

A pattern is split at the two characters ``\.``; each segment must match a whole name (``LayerSetting``, MindFormers
1.6 to 2.1). MindFormers matches with the module ``regex`` and gives each match one second (before 1.7: with ``re``, for
as long as it takes); ms-tune does without ``regex`` and does not start a match that could take long.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

from ms_tune.dialects.layer_plan import stop
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

_MOST_STEPS = 1_000_000  # of a match: below a tenth of a second
_LONGEST = 500  # characters of a segment
# Repeats of open length; and what makes backtracking explode: a repeated group, or a reference to one.
_OPEN_REPEAT = re.compile(r"(?<!\\)(?:\\\\)*[*+]|\{\d*,\d*\}")
_EXPLOSIVE = re.compile(r"\)[*+{]|\\[1-9]|\(\?P=")


def split_pattern(pattern: object) -> list[str]:
    r"""The segments of a pattern; ``\.`` parts them, a plain dot does not."""
    if not isinstance(pattern, str):
        stop("AttributeError", f"'{type(pattern).__name__}' object has no attribute 'split'")
    return pattern.split(r"\.")


def check_applied(pattern: object, *, timed: bool) -> None:
    """What happens in any case when a pattern is looked up in a layer.

    Its first segment is matched against the layer's own names, and every layer has some.

    Raises:
        FrameworkStop: The pattern is not text, or its first segment no regular expression.
    """
    first = split_pattern(pattern)[0]
    try:
        compile_segment(first)
    except re.error as error:
        stop_at(first, error, timed=timed)


def stop_at(segment: str, error: re.error, *, timed: bool) -> NoReturn:
    """The framework raises because a segment is no regular expression."""
    why = msg("layers.why.not-a-pattern", pattern=segment)
    # The words of the module regex are its own, and ms-tune does without it.
    stop(*(("regex.error", "") if timed else ("re.error", str(error))), why)


@lru_cache(maxsize=4096)
def compile_segment(segment: str) -> re.Pattern[str]:
    """A segment of a pattern as a regular expression, without Python's advice about its style.

    Raises:
        re.error: It is none.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(segment)


@lru_cache(maxsize=4096)
def is_risky(segment: str, length: int = 40) -> bool:
    """Whether a match against a name of some length might take long; such a match counts as none."""
    if len(segment) > _LONGEST or _EXPLOSIVE.search(segment):
        return True
    steps: int = (length + 1) ** len(_OPEN_REPEAT.findall(segment))
    return steps > _MOST_STEPS


def full_match(segment: str, name: str) -> bool:
    """Whether a segment, taken as a regular expression, matches a whole name.

    Raises:
        re.error: It is none.
    """
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
    """Take out the patterns that an exclude pattern says the same as.

    Each exclude pattern takes out the first such pattern only, and it does so even if it excludes no layer.

    Args:
        key: The key of the patterns.
        patterns: The patterns; the ones taken out are deleted.
        excludes: The exclude patterns.
        dropped: Gets a (key, pattern) for each one taken out.
        timed: Whether the release matches with ``regex``.

    Raises:
        FrameworkStop: A pattern is not text, or no regular expression.
    """
    for exclude in excludes:
        segments = split_pattern(exclude)
        for pattern in patterns:
            if _says_the_same(segments, split_pattern(pattern), timed=timed):
                # The framework asks whether the pattern found is true: an empty one is not.
                if pattern:
                    del patterns[pattern]
                    dropped.append((key, str(pattern)))
                break


def _says_the_same(one: list[str], other: list[str], *, timed: bool) -> bool:
    """Whether each segment of one, taken as a regular expression, matches that of the other, or the other way round."""
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
