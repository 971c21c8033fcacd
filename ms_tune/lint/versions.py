"""Which framework versions a check is about."""

from __future__ import annotations

import re
from itertools import zip_longest
from operator import eq, ge, gt, le, lt, ne

_OPERATORS = {">=": ge, "<=": le, "==": eq, "!=": ne, ">": gt, "<": lt}
_TERM = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)\s*")


def matches(version: str, versions: str | None) -> bool:
    """Whether a version such as ``1.9`` lies in a range such as ``>=1.7,<2``.

    Raises:
        ValueError: The range is not one.
    """
    if versions is None:
        return True
    terms = [_TERM.fullmatch(term) for term in versions.split(",")]
    if not all(terms):
        raise ValueError(versions)
    return all(_OPERATORS[term[1]](_compare(version, term[2]), 0) for term in terms if term)


def _compare(one: str, other: str) -> int:
    pairs = zip_longest(map(int, one.split(".")), map(int, other.split(".")), fillvalue=0)
    return next((-1 if left < right else 1 for left, right in pairs if left != right), 0)
