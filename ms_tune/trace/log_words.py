"""Finds words in a block of a log with numpy: several times as fast as a search for one after the other.

Whatever its place, a word of seven bytes or more covers four bytes that begin at a multiple of four. One pass over these fours says where
a word may be.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WIDTH = 4
_FACTOR, _SHIFT = np.uint32(2654435761), np.uint32(16)  # Knuth's multiplicative hashing


def places_of(body: bytes, words: tuple[bytes, ...], most: int) -> list[int] | None:
    """Where the words are, in order; None if there are more than so many."""
    fours = np.frombuffer(body, np.uint32, len(body) // _WIDTH)
    wanted, known = _wanted(words)
    perhaps = wanted.take((fours * _FACTOR) >> _SHIFT).nonzero()[0]
    found = []
    for place, four in zip(perhaps.tolist(), fours[perhaps].tolist(), strict=True):
        for word, offset in known.get(four, ()):
            at = place * _WIDTH - offset
            if at >= 0 and body.startswith(word, at):
                found.append(at)
        if len(found) > most:
            return None
    return sorted(found)


@cache
def _wanted(words: tuple[bytes, ...]) -> tuple[NDArray[np.bool_], dict[int, list[tuple[bytes, int]]]]:
    """Which fours to look at, by the upper half of a product, and what each may be part of."""
    wanted = np.zeros(2**16, np.bool_)
    known: dict[int, list[tuple[bytes, int]]] = {}
    for word in words:
        for first in range(_WIDTH):
            offsets = range(first, len(word) - _WIDTH + 1, _WIDTH)
            _, offset = max((_rare(word[at : at + _WIDTH]), at) for at in offsets)
            four = np.frombuffer(word, np.uint32, 1, offset)
            known.setdefault(int(four[0]), []).append((word, offset))
            wanted[(four * _FACTOR) >> _SHIFT] = True
    return wanted, known


def _rare(four: bytes) -> int:
    """How unlike other text a four is, by its marks: ``time`` is in many words, ``tep_`` is not."""
    return sum(0 if mark.isalpha() else 1 if mark.isspace() else 2 for mark in four.decode("latin-1"))
