"""A log in blocks of whole lines, and the few of its lines that hold one of some words: at the speed of a search for bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

_BLOCK = 4 * 1024**2  # bytes read at once
_MAX_LINE = 1024**2  # bytes; what is beyond is a line of its own


def bodies(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """The file in blocks of whole lines, each with the number of its first line, from 1."""
    rest, number = b"", 1
    while chunk := file.read(_BLOCK):
        data = rest + chunk
        end = data.rfind(b"\n") + 1
        if not end and len(data) > _MAX_LINE:
            end = len(data)
        body, rest = data[:end], data[end:]
        if body:
            yield body, number
            number += body.count(b"\n")
    if rest:
        yield rest, number


def chosen(body: bytes, number: int, needles: Sequence[bytes]) -> Iterator[tuple[int, str, bool]]:
    """The lines with one of the words: their numbers, their texts, and whether they have an end.

    Args:
        body: Whole lines.
        number: The number of the first of them.
        needles: The words.
    """
    places: dict[int, int] = {}
    for needle in needles:
        at = body.find(needle)
        while at >= 0:
            end = body.find(b"\n", at)
            end = len(body) if end < 0 else end
            places[body.rfind(b"\n", 0, at) + 1] = end
            at = body.find(needle, end)
    done = 0
    for start in sorted(places):
        number += body.count(b"\n", done, start)
        done = start
        line = body[start : min(places[start], start + _MAX_LINE)]
        yield number, line.decode("utf-8", errors="replace").rstrip("\r"), places[start] < len(body)
