"""Read a ``memory_block.csv`` row by row, as a comparison for the reader of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ms_tune.errors import TraceError
from ms_tune.readers.lines import iterate_lines, reading
from ms_tune.readers.memory_block import Block, ColumnLayout, DroppedRow, RowReader, read_layout
from ms_tune.readers.table import Table, TableBuilder
from ms_tune.text import msg


@dataclass(frozen=True, slots=True)
class BlockTrace:
    """The content of one ``memory_block.csv``.

    Attributes:
        blocks: The rows in the file's order.
        dropped: The first :data:`MAX_DESCRIBED` refused rows.
        dropped_count: The number of refused rows.
        columns: The column names.
        truncated: Whether the file ends in the middle of a row: the process was killed while it wrote.
    """

    blocks: tuple[Block, ...]
    dropped: tuple[DroppedRow, ...]
    dropped_count: int
    columns: tuple[str, ...]
    truncated: bool


def read_memory_block(path: Path) -> BlockTrace:
    """Read a ``memory_block.csv``.

    A file that holds only column names is valid: the tracker leaves the blocks of the CPU pool out.

    Raises:
        TraceError: The file cannot be read, or is not the tracker's.
    """
    with reading(path), path.open("rb") as file:
        return _read(file, path)


def _read(file: BinaryIO, path: Path) -> BlockTrace:
    reader: RowReader | None = None
    layout: ColumnLayout | None = None
    blocks: list[Block] = []
    truncated = False
    for number, text, complete in iterate_lines(file):
        if reader is None or layout is None:
            layout = read_layout(text, path, number)
            reader = RowReader(layout)
            continue
        truncated = not complete
        block = reader.read(number, text, complete=complete)
        if block is not None:
            blocks.append(block)
    if reader is None or layout is None:
        raise TraceError(msg("trace.empty"), msg("trace.not-tracker.hint"), path=path)
    return BlockTrace(tuple(blocks), tuple(reader.refused.rows), reader.refused.count, layout.names, truncated)


def table_of(trace: BlockTrace) -> Table:
    """Return the same trace as columns."""
    return table_from(
        trace.blocks,
        dropped=trace.dropped,
        dropped_count=trace.dropped_count,
        columns=trace.columns,
        truncated=trace.truncated,
    )


def table_from(
    blocks: Sequence[Block],
    *,
    dropped: tuple[DroppedRow, ...] = (),
    dropped_count: int = 0,
    columns: tuple[str, ...] = (),
    truncated: bool = False,
) -> Table:
    """Return blocks as columns."""
    builder = TableBuilder()
    builder.add_blocks(blocks)
    return builder.build_table(dropped=dropped, dropped_count=dropped_count, columns=columns, truncated=truncated)
