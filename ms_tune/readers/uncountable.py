"""Tensors with more bytes than a computer word counts, for which MindSpore makes a block of too few.

Bytes of a tensor are its elements times the bytes of one, and 2^64 of them are 0 again: ``mint.zeros((2**31, 2**31))`` takes 512
bytes in simulation (MindSpore 2.9, dynamic graph; a static graph refuses such a shape). The tracker writes the true shape beside
the block (:mod:`ms_tune.readers.tracker_graph`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ms_tune.readers.parts import parts_of
from ms_tune.readers.reading import reading
from ms_tune.readers.tracker_graph import ITEM_BYTES

if TYPE_CHECKING:
    from pathlib import Path

_COUNTED = (
    2**63
)  # bytes; MindSpore refuses what is between this and the next power (``The int64_t value ... is less than 0``)
_LARGEST_ITEM = max(ITEM_BYTES.values())
# Fewer characters hold no such number. What has strides behind it is a view, which takes no memory of its own. The pattern begins
# with plain characters, which are looked for fast.
_SHAPE = re.compile(rb":\[([0-9, ]{18,400})\](?!\{)")
_FORMAT = re.compile(rb"\w{1,40}$")
_OPERATOR = re.compile(rb"= (.{1,200}?)\([^()\n]{0,4000}\), task_info")
_READ = b" <- ("


@dataclass(frozen=True, slots=True)
class Uncountable:
    """A tensor of 2^63 bytes or more."""

    operator: str  # what makes it; empty if nothing tells
    tensor: str  # its number format and shape, as they are written


def find_uncountable(path: Path) -> Uncountable | None:
    """The first such tensor that an operator of a ``tracker_graph.ir`` makes; None if there is none.

    Raises:
        TraceError: The file cannot be read.
    """
    small: set[bytes] = set()  # the same few shapes stand in a file again and again
    with reading(path), path.open("rb") as file:
        for part in parts_of(file, 1, lambda _: None):
            data = part.data or b""
            for match in _SHAPE.finditer(data):
                if match[1] in small:
                    continue
                if _elements(match[1]) * _LARGEST_ITEM < _COUNTED:
                    small.add(match[1])
                elif (found := _made(data, match)) is not None:
                    return found
    return None


def _elements(shape: bytes) -> int:
    return prod(int(size) for size in shape.replace(b",", b" ").split())


def _made(data: bytes, match: re.Match[bytes]) -> Uncountable | None:
    """The tensor, if it stands among those that an operator makes: on the left of the arrow."""
    named = _FORMAT.search(data, max(match.start() - 40, 0), match.start())
    tensor = named[0].decode("ascii", "replace") if named else ""
    begin = data.rfind(b"\n", 0, match.start()) + 1
    end = data.find(b"\n", match.end())
    read = _READ in data[begin : match.start()] or _READ not in data[match.end() : end if end >= 0 else len(data)]
    if read or _elements(match[1]) * ITEM_BYTES.get(tensor, _LARGEST_ITEM) < _COUNTED:
        return None
    head = _OPERATOR.search(data, data.rfind(b"\n", 0, max(begin - 1, 0)) + 1, begin)
    operator = head[1].decode("utf-8", "replace") if head else ""
    return Uncountable(operator, f"{tensor}[{match[1].decode('ascii')}]")
