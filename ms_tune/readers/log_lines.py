"""A log in blocks of whole lines, and the few of its lines that hold one of some words: at the speed of a search for bytes."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from itertools import chain, count, repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import BinaryIO

_BLOCK = 1024**2  # bytes read at once; more do not stay in a processor's cache
_SAMPLE = 64 * 1024  # bytes at the beginning of a block, that tell whether lines with a word are many
_MANY = 1024  # bytes a line with a word, below which all lines are looked at one by one
_FOUR, _FACTOR = 4, 2654435761  # Knuth's multiplicative hashing
_MAX_LINE = 1024**2  # bytes; what is beyond is a line of its own


def bodies(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """The file in blocks of whole lines, each with the number of its first line, from 1."""
    number = 1
    while body := file.read(_BLOCK):
        if not body.endswith(b"\n"):
            body += file.readline(_MAX_LINE)
        yield body, number
        number += body.count(b"\n")


def chosen(body: bytes, number: int, needles: Sequence[bytes]) -> Iterator[tuple[int, str, bool]]:
    """The lines with one of the words, of seven bytes or more: their numbers, their texts, and whether they have an end."""
    for line_number, line, whole in perhaps(body, number, needles):
        if any(needle in line for needle in needles):
            yield line_number, text_of(line), whole


def perhaps(body: bytes, number: int, needles: Sequence[bytes]) -> Iterable[tuple[int, bytes, bool]]:
    """As for :func:`chosen`, the lines as they are, and perhaps others: all of them where those with a word are many."""
    most = len(body) // _MANY
    search = _found_fast if len(body) >= _BLOCK // 2 and _numpy_is_here() else _found
    found = search(body[:_SAMPLE], tuple(needles), _SAMPLE // _MANY)
    if found is not None and len(body) > _SAMPLE:
        found = search(body, tuple(needles), most)
    return _all(body, number) if found is None else _around(body, number, found)


def _around(body: bytes, number: int, found: Sequence[int]) -> Iterator[tuple[int, bytes, bool]]:
    done = end = 0
    for at in found:
        if at < end:
            continue
        start = body.rfind(b"\n", 0, at) + 1
        number += body.count(b"\n", done, start)
        done, end = start, body.find(b"\n", at)
        end = len(body) if end < 0 else end
        yield number, body[start : min(end, start + _MAX_LINE)], end < len(body)


def _all(body: bytes, number: int) -> Iterable[tuple[int, bytes, bool]]:
    lines = body.split(b"\n")
    last = lines.pop()
    if max(map(len, lines), default=0) > _MAX_LINE:
        lines = [line[:_MAX_LINE] for line in lines]
    ends = [(number + len(lines), last[:_MAX_LINE], False)] if last else []
    return chain(zip(count(number), lines, repeat(object=True)), ends)


def _found(body: bytes, needles: tuple[bytes, ...], most: int) -> list[int] | None:
    """Where the words are, in order, one of a line at least; None if there are more of one than that."""
    found: list[int] = []
    for needle in needles:
        more, at = 0, body.find(needle)
        while at >= 0:
            found.append(at)
            more += 1
            if more > most:
                return None
            end = body.find(b"\n", at)
            at = body.find(needle, end) if end >= 0 else -1
    return sorted(found)


def _found_fast(body: bytes, needles: tuple[bytes, ...], most: int) -> list[int] | None:
    """The same with numpy, several times as fast: one look at each four bytes that begin at a multiple of four.

    Wherever it is, a word of seven bytes or more covers such four bytes. Their product's upper half says whether they can be of a word.
    """
    import numpy as np  # noqa: PLC0415 - takes longer than a short log, and a base install has none

    factor, shift = np.uint32(_FACTOR), np.uint32(16)
    known = _fours(needles)
    wanted = np.zeros(2**16, np.bool_)
    wanted[(np.fromiter(known, np.uint32) * factor) >> shift] = True
    fours = np.frombuffer(body, np.uint32, len(body) // _FOUR)
    maybe = wanted.take((fours * factor) >> shift).nonzero()[0]
    found = []
    for place, four in zip(maybe.tolist(), fours[maybe].tolist(), strict=True):
        for word, offset in known.get(four, ()):
            at = place * _FOUR - offset
            if at >= 0 and body.startswith(word, at):
                found.append(at)
        if len(found) > most:
            return None
    return sorted(found)


@cache
def _fours(words: tuple[bytes, ...]) -> dict[int, list[tuple[bytes, int]]]:
    """Four bytes, as a number, to the words that they may be part of, with their offsets: one for each place modulo four."""
    known: dict[int, list[tuple[bytes, int]]] = {}
    for word in words:
        for first in range(_FOUR):
            offsets = range(first, len(word) - _FOUR + 1, _FOUR)
            _, offset = max((_rare(word[at : at + _FOUR]), at) for at in offsets)
            known.setdefault(int.from_bytes(word[offset : offset + _FOUR], sys.byteorder), []).append((word, offset))
    return known


def _rare(four: bytes) -> int:
    """How unlike other text it is, by its marks: ``time`` is in many words, ``tep_`` is not."""
    return sum(0 if mark.isalpha() else 1 if mark.isspace() else 2 for mark in four.decode("latin-1"))


@cache
def _numpy_is_here() -> bool:
    return find_spec("numpy") is not None


def text_of(line: bytes) -> str:
    """A line as text, whatever its bytes are."""
    return line.decode("utf-8", errors="replace").rstrip("\r")
