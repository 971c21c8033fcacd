"""Damage the bytes of a real file like killed processes, full disks, copy errors and attackers do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

_NUMBERS = (
    b"0",
    b"-1",
    b"1",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551615",
    b"9" * 400,
    b"9" * 4400,
)
_PIECES = (
    *(
        b"",
        b",",
        b",,",
        b'"',
        b'","',
        b"\\",
        b"\n",
        b"\r\n",
        b"\x00",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xc3",
        b"{",
        b"}",
    ),
    *(
        b"{0-0-7}",
        b"{-}",
        b"(",
        b")",
        b"%",
        b"%7",
        b"[",
        b"]",
        b"|",
        b";Line:",
        b"File:",
        b"0x",
        b"nan",
        b"1e309",
        b"-",
    ),
    *("﷐".encode(), "１２".encode(), b" ", b"\t", b"\x1b[31m", b"\x0b", b"\x1f", b"PyNative", b"Weight", b"Gradients/"),
    *(b"R", b"c", b"\x93", b"r\xff\xff\xff\x7f", b"\x8e" + b"\xff" * 6, b"Q", b"2"),  # of pickles
    *(b"null", b"true", b"[]", b"{}", b'{"a":' * 50, b"/" * 300, b"A" * 5000, b"(" * 3000, b"Out of Memory!!! "),
)


def mutated(data: bytes, chance: Random, others: Sequence[bytes] = ()) -> bytes:
    """Return the data with one to eight kinds of damage.

    Args:
        data: A file's bytes.
        chance: The random source.
        others: Other files of this kind, whose lines may be inserted.
    """
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4, 8))):
        data = chance.choice(_KINDS)(data, chance)
        if others and chance.random() < 0.05:
            data = _spliced(data, chance.choice(others), chance)
    return data


def _place(data: bytes, chance: Random) -> int:
    return chance.randint(0, len(data))


def _flip(data: bytes, chance: Random) -> bytes:
    if not data:
        return data
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]


def _insert(data: bytes, chance: Random) -> bytes:
    at = _place(data, chance)
    return data[:at] + chance.choice(_PIECES) + data[at:]


def _cut_out(data: bytes, chance: Random) -> bytes:
    at = _place(data, chance)
    return data[:at] + data[at + chance.choice((1, 1, 5, 50, 2000)) :]


def _cut_off(data: bytes, chance: Random) -> bytes:
    return data[: _place(data, chance)]


def _double(data: bytes, chance: Random) -> bytes:
    at = _place(data, chance)
    return data[:at] + data[max(0, at - chance.choice((1, 20, 500))) :]


def _number(data: bytes, chance: Random) -> bytes:
    """Replace a number with another one."""
    at = _place(data, chance)
    begin = next((place for place in range(at, min(len(data), at + 400)) if data[place : place + 1].isdigit()), None)
    if begin is None:
        return data
    end = begin
    while data[end : end + 1].isdigit():
        end += 1
    return data[:begin] + chance.choice((*_NUMBERS, b"%d" % chance.getrandbits(chance.randint(1, 66)))) + data[end:]


def _lines(data: bytes, chance: Random) -> bytes:
    """Swap, drop or repeat lines, as when two processes write one file."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    kind = chance.randrange(4)
    if kind == 0:
        lines[one], lines[other] = lines[other], lines[one]
    elif kind == 1:
        del lines[one]
    elif kind == 2:
        lines.insert(other, lines[one])
    else:
        at = chance.randrange(len(lines[one]))
        lines[one] = lines[one][:at] + lines[other] + lines[one][at:]
    return b"".join(lines)


def _cells(data: bytes, chance: Random) -> bytes:
    """Swap two cells of one line, drop one, or empty one."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    at = chance.randrange(len(lines))
    cells = lines[at].split(b",")
    one, other = chance.randrange(len(cells)), chance.randrange(len(cells))
    kind = chance.randrange(3)
    if kind == 0:
        cells[one], cells[other] = cells[other], cells[one]
    elif kind == 1:
        del cells[one]
    else:
        cells[one] = chance.choice((*_PIECES, *_NUMBERS))
    lines[at] = b",".join(cells)
    return b"".join(lines)


def _spliced(data: bytes, other: bytes, chance: Random) -> bytes:
    return data[: _place(data, chance)] + other[_place(other, chance) :]


_KINDS: tuple[Callable[[bytes, Random], bytes], ...] = (
    *(_flip, _insert, _insert, _cut_out, _cut_off, _double, _number, _number, _number, _lines, _lines, _cells, _cells),
)
