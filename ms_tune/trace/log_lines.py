"""A log in blocks of whole lines, and the few of its lines that hold one of some words: at the speed of a search for bytes."""

from __future__ import annotations

from functools import cache
from itertools import chain, count, repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import BinaryIO

_BLOCK = 1024**2  # bytes read at once; more do not stay in a processor's cache
_SAMPLE = 64 * 1024  # bytes at the beginning of a block, that tell whether lines with a word are many
_MANY = 1024  # bytes a line with a word, below which all lines are looked at one by one
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
    """The lines with one of the words: their numbers, their texts, and whether they have an end.

    Args:
        body: Whole lines.
        number: The number of the first of them.
        needles: The words, of seven bytes or more.
    """
    for line_number, line, whole in perhaps(body, number, needles):
        if any(needle in line for needle in needles):
            yield line_number, text_of(line), whole


def perhaps(body: bytes, number: int, needles: Sequence[bytes]) -> Iterable[tuple[int, bytes, bool]]:
    """As for :func:`chosen`, the lines as they are, and perhaps others: all of them where those with a word are many."""
    most = len(body) // _MANY
    search = (_fast() if len(body) >= _BLOCK // 2 else None) or _found
    found = search(body[:_SAMPLE], tuple(needles), _SAMPLE // _MANY)
    if found is not None and len(body) > _SAMPLE:
        found = search(body, tuple(needles), most)
    return _all(body, number) if found is None else _around(body, number, found)


def _around(body: bytes, number: int, found: Sequence[int]) -> Iterator[tuple[int, bytes, bool]]:
    """The lines in which these places are."""
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


@cache
def _fast() -> Callable[[bytes, tuple[bytes, ...], int], list[int] | None] | None:
    """The same with numpy; None in a base install, which has none."""
    try:
        from ms_tune.trace.log_words import places_of  # noqa: PLC0415 - numpy takes longer than a short log
    except ImportError:
        return None
    return places_of


def text_of(line: bytes) -> str:
    """A line as text, whatever its bytes are."""
    return line.decode("utf-8", errors="replace").rstrip("\r")
