"""The blocks alive at a tick as a CSV file for a spreadsheet."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from ms_tune.readers.memory_block import NEVER_FREED

if TYPE_CHECKING:
    from typing import TextIO

    from ms_tune.footprint.breakdown import PeakBreakdown
    from ms_tune.footprint.result import RankReport

COLUMNS = (
    *("rank", "category", "bytes", "start", "end", "last_use", "operator", "where", "layer", "parameter", "tensor"),
    *("address", "stream", "type", "stack"),
)


def write_blocks(file: TextIO, rank: RankReport, parts: PeakBreakdown, *, header: bool) -> None:
    """Write one line a block, the largest holders first. An end or last use that does not exist is left empty."""
    writer = csv.writer(file, lineterminator="\n")
    if header:
        writer.writerow(COLUMNS)
    table = rank.table
    for holder in parts.holders:
        for row in holder.rows:
            end, last = int(table.end[row]), int(table.last_user[row])
            stack = ";".join(f"{frame.file}:{frame.line}:{frame.function}" for frame in table.stack.at(row))
            cells = (
                *("" if rank.rank is None else rank.rank, holder.content.value, int(table.size[row])),
                *(int(table.start[row]), "" if end == NEVER_FREED else end, last if last >= 0 else ""),
                *(holder.operator, holder.where, rank.layer_of(row), rank.contents.names.get(row, "")),
                *(rank.tensor_of(row), f"0x{int(table.address[row]):x}", int(table.stream[row])),
                *(table.kind.at(row), stack),
            )
            writer.writerow(_harmless(cell) for cell in cells)


def _harmless(cell: object) -> object:
    """A text that a spreadsheet would take for a formula gets a leading apostrophe."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell
