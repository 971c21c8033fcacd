"""Sizes, places and tables of the commands of ``memory`` as a person reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.render.columns import text_width
from ms_tune.units import GIB, KIB, MIB, gib, mib

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.render.console import Console

_PARTS, _PLACE = 3, 44  # of a place: its last parts, its last characters


def show_table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table; numbers are on the right and never cut, however narrow the terminal is."""
    from rich import box  # noqa: PLC0415 - imported late: start-up time
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    right = {
        "size",
        "share",
        "count",
        "peak",
        "footprint",
        "change",
        "before",
        "after",
        "rank",
        "stage",
        "theory",
        "ratio",
        "frees",
        "leaves",
        "start",
        "end",
    }
    folding = {"layer", "parameter", "content", "operator", "tensor", "remedy", "price", "setting"}
    for index, name in enumerate(columns):
        title = console.text(f"memory.column.{name}")
        if name in right:
            whole = max(text_width(text) for text in (title, *(row[index] for row in rows)))
            table.add_column(title, justify="right", no_wrap=True, min_width=whole)
        else:
            table.add_column(title, no_wrap=name not in folding, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.rich.print(table)


def size(amount: int) -> str:
    """Bytes as a person reads them."""
    if 0 < amount < MIB // 10:
        return f"{amount / KIB:,.1f} KiB"
    return gib(amount) if amount >= GIB else mib(amount)


def signed(amount: int) -> str:
    """A difference of bytes with its sign."""
    return ("+" if amount > 0 else "−" if amount < 0 else "") + size(abs(amount))


def near(where: str) -> str:
    """A long place by its last parts: ``…/27-TransformerLayer/mlp-MLP``; its end, with the line, is what tells."""
    parts = where.split("/")
    short = where if len(parts) <= _PARTS else "…/" + "/".join(parts[-_PARTS:])
    return short if len(short) <= _PLACE else "…" + short[1 - _PLACE :]


def pad(text: str, width: int) -> str:
    """Pad to a width in terminal cells; a Chinese character takes two."""
    from rich.cells import cell_len  # noqa: PLC0415 - imported late: start-up time

    return text + " " * max(width - cell_len(text), 1)
