"""Checks of sizes and amounts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.lint.context import Violation
from ms_tune.units import GIB, parse_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.lint.context import Context

# `_MEMORY_PATTERN` of mindspore/runtime/memory.py (2.9), which is matched from the start and may be followed by more.
_MEMORY = re.compile(r"[1-9][0-9]*(\.)?[0-9]*GB|0\.[0-9]*GB", re.ASCII)


def memory_size(context: Context) -> Iterator[Violation]:
    """A size that MindSpore refuses: it wants ``58GB``, in capitals, as a text."""
    for name in sorted(context.names("keys")):
        value = context.get(name)
        if value and not (isinstance(value, str) and _MEMORY.match(value) and value not in ("0GB", "0.0GB")):
            yield Violation(tuple(name.split(".")))


def memory_limit(context: Context) -> Iterator[Violation]:
    """A limit on the memory pool that leaves nothing of the card for others."""
    name, most = context.options["key"], context.options["most"]
    value = context.get(str(name))
    if isinstance(value, str) and _MEMORY.fullmatch(value) and parse_size(value) >= parse_size(str(most)):
        yield Violation(tuple(str(name).split(".")), params={"most": parse_size(str(most)) // GIB})


def above(context: Context) -> Iterator[Violation]:
    """A number above the most that works."""
    name, most = str(context.options["key"]), context.options["most"]
    value = context.integer(name)
    if value is not None and isinstance(most, int) and value > most:
        yield Violation(tuple(name.split(".")))
