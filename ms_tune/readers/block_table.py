"""Reads a ``memory_block.csv`` into columns: the same rows as :mod:`ms_tune.readers.memory_block`, several times as fast.

Rows that are plainly right are taken as columns; each other row goes to the reader of single rows, whose word on it is
final. A million rows are read part by part, so that memory holds the result and one part.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.errors import TraceError
from ms_tune.readers.columns import NATURAL, NATURAL_OR_NONE, Columns, TableCell, split_lines
from ms_tune.readers.memory_block import NEVER_FREED, Block, ColumnLayout, RowReader, layout_of, lines_of
from ms_tune.readers.reading import FilePart, Progress, no_progress, parts_of, reading
from ms_tune.readers.table import NONE, NUMBERS, Table, TableBuilder
from ms_tune.text import msg

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray


_OPTIONAL = {
    "stream_id": "stream",
    "actual_used_memory": "used_after",
    "actual_peak_memory": "footprint_after",
    "producer_task": "producer",
    "last_user_task": "last_user",
}
_TEXTS = {"pool_type": "pool", "type": "kind", "task_name": "task", "node_name": "node", "graph_name": "graph"}
_FLAGS = {"is_persistent": "persistent", "is_small": "small"}
_OTHER = ("start_time_stamp", "end_time_stamp", "device_addr", "size", "line_num", "user_tasks", "python_stack")

_END = rf"{NATURAL}|^{NEVER_FREED}$"
_ADDRESS = r"^(?:0x[0-9a-fA-F]{1,15}|0)$"
_USERS = r"^(?:\{(?:[0-9]{1,18}-)*(?:[0-9]{1,18})?\})?$"
_FLAG = r"^[01]?$"


def read_block_table(path: Path, on_bytes: Progress = no_progress) -> Table:
    """Read a ``memory_block.csv``. Raises TraceError: the file cannot be read, or is not the tracker's."""
    with reading(path), path.open("rb") as file:
        return _read_table(file, path, on_bytes)


def _read_table(file: BinaryIO, path: Path, on_bytes: Progress) -> Table:
    number, text, _ = next(lines_of(file), (0, None, True))
    if not number:
        raise TraceError(msg("trace.empty"), msg("trace.not-tracker.hint"), path=path)
    layout = layout_of(text, path, number)
    reader, builder, truncated = RowReader(layout), TableBuilder(), False
    for part in parts_of(file, number + 1, on_bytes):
        truncated = not part.complete
        columns = _split_columns(part, layout)
        if columns is None:
            builder.add_blocks(_read_singly(part, reader))
        else:
            _add_part(part, columns, layout, reader, builder)
    return builder.build_table(
        dropped=tuple(sorted(reader.refused.rows, key=lambda row: row.line)),
        dropped_count=reader.refused.count,
        columns=layout.names,
        truncated=truncated,
    )


def _read_singly(part: FilePart, reader: RowReader) -> list[Block]:
    blocks = (reader.read(number, text, complete=complete) for number, text, complete in part.lines())
    return [block for block in blocks if block is not None]


def _split_columns(part: FilePart, layout: ColumnLayout) -> Columns | None:
    # The emulator's files are quoted; a quotation mark elsewhere means nothing.
    if part.data is None or not layout.trailing_comma or (b'"' in part.data and b',"File:' in part.data):
        return None
    known = (*_OPTIONAL, *_TEXTS, *_FLAGS, *_OTHER)
    return split_lines(part, layout.names, [name for name in known if name in layout.index])


def _add_part(part: FilePart, columns: Columns, layout: ColumnLayout, reader: RowReader, builder: TableBuilder) -> None:
    good = _plain_rows(columns, layout)
    line = np.arange(part.first, part.first + columns.height, dtype=np.int64)
    if not good.all():
        lines = part.data.split(b"\n") if part.data is not None else []
        for row in np.flatnonzero(~good).tolist():
            text = lines[row].decode("utf-8", errors="replace")
            block = reader.read(int(line[row]), text, complete=True)
            if block is not None:
                builder.add_blocks([block])
        columns, line = columns.keep_rows(good), line[good]
    _add_columns(columns, line, layout, reader, builder)


def _plain_rows(columns: Columns, layout: ColumnLayout) -> NDArray[np.bool_]:
    patterns = {
        "start_time_stamp": NATURAL,
        "end_time_stamp": _END,
        "size": NATURAL,
        "device_addr": _ADDRESS,
        "user_tasks": _USERS,
        "line_num": NATURAL_OR_NONE,
        **dict.fromkeys(_OPTIONAL, NATURAL_OR_NONE),
        **dict.fromkeys(_FLAGS, _FLAG),
    }
    ticks = columns.read_numbers({"end": TableCell("end_time_stamp"), "start": TableCell("start_time_stamp")}, NONE)
    later = ticks["end"] > ticks["start"]
    return later & columns.rows_matching({name: pattern for name, pattern in patterns.items() if name in layout.index})


def _add_columns(
    columns: Columns, line: NDArray[np.int64], layout: ColumnLayout, reader: RowReader, builder: TableBuilder
) -> None:
    height, index = columns.height, layout.index
    absent = np.full(height, NONE, np.int64)
    wanted = {column: TableCell(name) for name, column in (_OPTIONAL | _FLAGS).items() if name in index}
    wanted |= {"start": TableCell("start_time_stamp"), "end": TableCell("end_time_stamp"), "size": TableCell("size")}
    wanted["address"] = TableCell("device_addr", base=16)
    if "user_tasks" in index:
        wanted["first_user"] = TableCell("user_tasks", r"^\{([0-9]+)")
        wanted["final_user"] = TableCell("user_tasks", r"([0-9]+)-?\}$")
    found = columns.read_numbers(wanted, NONE)
    numbers = {name: found.get(name, absent) for name in NUMBERS} | {"line": line}
    if "user_tasks" in index:
        numbers["last_user"] = np.where(numbers["last_user"] == NONE, found["final_user"], numbers["last_user"])
    texts = {name: partial(builder.text_code, column) for name, column in _TEXTS.items() if name in index}
    codes = columns.read_codes(
        texts
        | (
            {"python_stack": lambda text: builder.stack_code(reader.parse_stack(text))}
            if "python_stack" in index
            else {}
        )
    )
    nothing = {column: np.full(height, builder.text_code(column, ""), np.int32) for column in _TEXTS.values()}
    named = nothing | {column: codes[name] for name, column in _TEXTS.items() if name in index}
    named["stack"] = codes.get("python_stack", np.full(height, builder.stack_code(()), np.int32))
    flags = {column: found.get(column, absent) == 1 for column in _FLAGS.values()}
    # The cell "0" has no prefix to cut off; nothing is left of it.
    address = np.maximum(found["address"], 0).astype(np.uint64)
    builder.add_part(numbers, address, flags, named, _user_texts(columns, numbers["end"], index))


def _user_texts(columns: Columns, end: NDArray[np.int64], index: dict[str, int]) -> dict[int, str]:
    if "user_tasks" not in index:
        return {}
    told = columns.rows_matching({"user_tasks": r"^\{"})
    rows = np.flatnonzero(told & ((end == NEVER_FREED) | columns.rows_matching({"type": "^Weight$"})))
    return dict(zip(rows.tolist(), columns.read_texts("user_tasks", rows), strict=True))
