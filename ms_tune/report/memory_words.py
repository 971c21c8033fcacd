"""Sizes, places and tables of the commands of ``memory`` as a person reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.units import GIB, KIB, MIB, gib, mib

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ms_tune.enums import MemoryCategory
    from ms_tune.report.console import Console

_NUMBERS = {  # columns that hold nothing else
    *("size", "share", "count", "peak", "footprint", "change", "before", "after", "rank"),
    *("stage", "theory", "ratio", "frees", "leaves", "start", "end"),
}
_PARTS, _PLACE = 3, 44  # of a place: its last parts, its last characters


def show_table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table; numbers are on the right and never cut, however narrow the terminal is."""
    right = {place for place, name in enumerate(columns) if name in _NUMBERS}
    console.write_table([console.text(f"memory.column.{name}") for name in columns], rows, right=right)


def by_name(contents: Mapping[MemoryCategory, int]) -> dict[str, int]:
    """Bytes by the contents' names, as JSON has them."""
    return {content.value: amount for content, amount in contents.items()}


def largest_contents(contents: Mapping[MemoryCategory, int], most: int, console: Console) -> str:
    """What takes most, with its bytes."""
    found = sorted(contents.items(), key=lambda item: -item[1])[:most]
    return console.listed(
        f"{console.text(f'memory.content.{content.value}')} {size_text(amount)}" for content, amount in found
    )


def number_or_dash(value: int | None) -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else str(value)


def size_text(amount: int) -> str:
    """Bytes as a person reads them."""
    if 0 < amount < MIB // 10:
        return f"{amount / KIB:,.1f} KiB"
    return gib(amount) if amount >= GIB else mib(amount)


def signed_text(amount: int) -> str:
    """A difference of bytes with its sign."""
    return ("+" if amount > 0 else "−" if amount < 0 else "") + size_text(abs(amount))


def shorten_place(where: str) -> str:
    """A long place by its last parts: ``…/27-TransformerLayer/mlp-MLP``; its end, with the line, is what tells."""
    parts = where.split("/")
    short = where if len(parts) <= _PARTS else "…/" + "/".join(parts[-_PARTS:])
    return short if len(short) <= _PLACE else "…" + short[1 - _PLACE :]
