"""Parse and format sizes: bytes internally, GiB and MiB (1024-based) for display.

MindSpore writes ``58GB`` for 58 x 1024^3 bytes (``max_device_memory: 58GB`` gives "MindSpore Used memory size: 59392M"
in its log), so every unit here is 1024-based, with or without the i.
"""

from __future__ import annotations

import re

KIB = 1024
MIB = 1024**2
GIB = 1024**3

_DIGITS = 18
_UNITS = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": 1024**4}
_SIZE = r"\s*(\d{1,18}(?:\.\d+)?)\s*([KMGT]?)I?(B?)\s*"


def parse_size(text: str) -> int:
    """Return the bytes of a text such as ``64GB``, ``64GiB``, ``58 G``, ``512MB`` or ``1024B``.

    A number without a unit is rejected: users write ``64`` for GiB, but it would mean bytes.
    """
    match = re.fullmatch(_SIZE, text, re.IGNORECASE)
    size = int(float(match[1]) * _UNITS[match[2].upper()]) if match and (match[2] or match[3]) else 0
    if size <= 0:
        message = f"not a size: {text!r}"
        raise ValueError(message)
    return size


def whole_number(text: str) -> int | None:
    """Return the number that a text of at most 18 digits (of any script) states; None for others, where ``int`` may raise."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else None


def gib(size: int) -> str:
    """Format bytes: ``1234567890`` as ``1.15 GiB``."""
    return f"{size / GIB:,.2f} GiB"


def short_gib(size: int) -> str:
    """Return a size of a verdict with at most three significant digits: ``28.9 GiB``, ``101 GiB``, ``0.05 GiB``."""
    digits = 0 if size >= 100 * GIB else 1 if size >= GIB else 2
    return f"{size / GIB:,.{digits}f} GiB"


def mib(size: int) -> str:
    """Format bytes: ``1234567890`` as ``1,177.4 MiB``."""
    return f"{size / MIB:,.1f} MiB"


def is_number(text: str) -> bool:
    """Return whether Python can parse a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
