"""Read ``memory_block.csv`` and ``task.csv``, the tables of MindSpore's memory tracker, into columns; fast with polars.

``memory_block.csv`` gives the same rows as :mod:`ms_tune.readers.memory_block`, several times as fast: valid rows are
read as columns; all others go to the reader of single rows, which decides. A file is read in parts to limit memory.

``task.csv`` has every operator that was launched, with its time stamp. Columns (MindSpore 2.3, 2.4):
``time_stamp,task_name,node_name,graph_name,file_name,line_num,``; from 2.5 on also ``python_stack,``. Its rows are not
sorted: launches of communication operators are written later than they happened.

The files differ from usual CSV: nothing is quoted, names may contain commas, and every line ends with a comma. So
polars splits a part of a file only if every line in it has exactly one comma per column. The readers of single rows
read the rest, more slowly, and everything if polars is not installed.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ms_tune.errors import TraceError
from ms_tune.readers.dry_run import open_rows
from ms_tune.readers.lines import FilePart, Progress, iterate_lines, iterate_parts, no_progress, reading
from ms_tune.readers.memory_block import NEVER_FREED, ColumnLayout, DroppedRow, RefusedRow, RowReader, read_layout
from ms_tune.readers.table import NONE, NUMBERS, Coded, Codes, Table, TableBuilder
from ms_tune.records import Record
from ms_tune.source.files import open_bytes
from ms_tune.text import msg

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Below this number of lines, reading one by one is faster than importing polars: 7,200 lines take 0.33 s of processor
# time with all that dryrun then does with them, and 0.50 s with polars (0.2 s of it the import).
_FEW = 10_000
_NO_MARKS = bytes(set(range(256)) - set(b",\n"))
NATURAL = r"^[0-9]{1,18}$"  # fits into a 64-bit integer without checking its value
NATURAL_OR_NONE = r"^[0-9]{0,18}$"
_HEXADECIMAL = 16


class TableCell(Record):
    """Where a line contains a number: its column, the pattern in the cell, and the base."""

    column: str  # its column
    pattern: str | None = None  # a pattern with one group, which is the number; None for the whole cell
    base: int = 10  # 10, or 16 for a number after `0x`


@cache
def load_polars() -> Any:  # noqa: ANN401 - polars is optional
    """Return the polars module, or None if it is not installed."""
    try:
        return import_module("polars")
    except ImportError:
        return None


class Columns:
    """Cells of lines, by column. Each method computes all requested columns together, on all processors."""

    def __init__(self, frame: Any) -> None:  # noqa: ANN401 - a polars.DataFrame: polars is optional
        self._frame = frame
        self.height: int = frame.height  # number of lines

    def rows_matching(self, patterns: Mapping[str, str]) -> NDArray[np.bool_]:
        """Return which lines match the patterns of all these columns; an empty cell is an empty text."""
        pl = load_polars()
        tests = [pl.col(column).fill_null("").str.contains(pattern) for column, pattern in patterns.items()]
        return np.asarray(self._frame.select(pl.all_horizontal(tests)).to_series().to_numpy(), np.bool_)

    def read_numbers(self, wanted: Mapping[str, TableCell], none: int) -> dict[str, NDArray[np.int64]]:
        """Return the numbers in cells, by name; ``none`` for cells without a number."""
        pl = load_polars()
        expressions = []
        for name, cell in wanted.items():
            text = pl.col(cell.column)
            if cell.pattern is not None:
                text = text.str.extract(cell.pattern)
            if cell.base == _HEXADECIMAL:
                number = text.str.slice(2).str.to_integer(base=cell.base, strict=False)
            else:
                number = text.cast(pl.Int64, strict=False)
            expressions.append(number.fill_null(none).alias(name))
        found = self._frame.select(expressions)
        return {name: np.asarray(found[name].to_numpy(), np.int64) for name in wanted}

    def read_codes(self, code: Mapping[str, Callable[[str], int]]) -> dict[str, NDArray[np.int32]]:
        """Return the cells as codes, by column; each column's function is called once per distinct text."""
        pl = load_polars()
        cells = self._frame.select([pl.col(column).fill_null("") for column in code])
        uniques = cells.select([pl.col(column).unique(maintain_order=True).implode() for column in code])
        expressions = []
        for column, number in code.items():
            different = uniques[column][0]
            numbers = pl.Series([number(text) for text in different.to_list()], dtype=pl.Int32)
            expressions.append(pl.col(column).replace_strict(different, numbers, return_dtype=pl.Int32))
        found = cells.select(expressions)
        return {column: np.asarray(found[column].to_numpy(), np.int32) for column in code}

    def read_texts(self, column: str, rows: NDArray[np.int64]) -> list[str]:
        """Return the cells of a column in some rows."""
        found: list[str] = self._frame[column].gather(rows).fill_null("").to_list()
        return found

    def keep_rows(self, good: NDArray[np.bool_]) -> Columns:
        """Return only the lines that are good."""
        pl = load_polars()
        return self if good.all() else Columns(self._frame.filter(pl.Series(good)))


def split_lines(part: FilePart, names: Sequence[str], wanted: Sequence[str]) -> Columns | None:
    """Return the wanted columns of lines that end with a comma; None if any line is irregular, or there are few."""
    if part.height < _FEW and "polars" not in sys.modules:
        return None
    pl, data = load_polars(), part.data
    if pl is None or data is None or not part.complete or b"\r" in data:
        return None
    # polars accepts lines that are too short, and checks only the columns that it reads.
    if data.translate(None, _NO_MARKS) != (b"," * len(names) + b"\n") * part.height:
        return None
    if not data.isascii():
        data = data.decode("utf-8", errors="replace").encode()
    columns = [*names, "_"]
    places = [columns.index(name) for name in (*wanted, "_")]
    schema = dict.fromkeys(columns, pl.String)
    try:
        frame = pl.read_csv(data, has_header=False, quote_char=None, schema=schema, columns=places)
    except (pl.exceptions.PolarsError, UnicodeError):
        return None
    if frame.height != part.height or frame["_"].null_count() != part.height:
        return None
    return Columns(frame)


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
    """Read a ``memory_block.csv``. Raises TraceError: the file is unreadable, or not the tracker's."""
    builder, truncated = TableBuilder(), False
    with reading(path), open_rows(path) as file:
        number, text, _ = next(iterate_lines(file), (0, None, True))
        if not number:
            raise TraceError(msg("trace.empty"), msg("trace.not-tracker.hint"), path=path)
        layout = read_layout(text, path, number)
        reader = RowReader(layout)
        wanted = [name for name in (*_OPTIONAL, *_TEXTS, *_FLAGS, *_OTHER) if name in layout.index]

        def read_row(number: int, text: str) -> None:
            block = reader.read(number, text, complete=True)
            if block is not None:
                builder.add_blocks([block])

        for part in iterate_parts(file, number + 1, on_bytes):
            truncated = not part.complete
            # The emulator's files are quoted; a quotation mark elsewhere has no meaning.
            quoted = part.data is not None and b'"' in part.data and b',"File:' in part.data
            columns = split_lines(part, layout.names, wanted) if layout.trailing_comma and not quoted else None
            if columns is None:
                blocks = (reader.read(number, text, complete=complete) for number, text, complete in part.lines())
                builder.add_blocks([block for block in blocks if block is not None])
            else:
                columns, line = _keep_plain(part, columns, _plain_rows(columns, layout), read_row)
                _add_columns(columns, line, layout, reader, builder)
    table = builder.build_table(
        dropped=tuple(sorted(reader.refused.rows, key=lambda row: row.line)),
        dropped_count=reader.refused.count,
        columns=layout.names,
        truncated=truncated,
    )
    return table if table.is_logical else end_reused_blocks(table)


def _keep_plain(
    part: FilePart, columns: Columns, good: NDArray[np.bool_], read_line: Callable[[int, str], object]
) -> tuple[Columns, NDArray[np.int64]]:
    # Return the good lines as columns, and their numbers; read the others one by one.
    line = np.arange(part.first, part.first + columns.height, dtype=np.int64)
    if good.all() or part.data is None:
        return columns, line
    lines = part.data.split(b"\n")
    for row in np.flatnonzero(~good).tolist():
        read_line(part.first + row, lines[row].decode("utf-8", errors="replace"))
    return columns.keep_rows(good), line[good]


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
    whole: dict[str, NDArray[Any]] = {name: found.get(name, absent) for name in NUMBERS} | {"line": line}
    if "user_tasks" in index:
        whole["last_user"] = np.where(whole["last_user"] == NONE, found["final_user"], whole["last_user"])
    known: dict[str, Callable[[str], int]] = {
        name: builder.texts[column].__getitem__ for name, column in _TEXTS.items() if name in index
    }
    if "python_stack" in index:
        known["python_stack"] = lambda text: builder.stacks[reader.parse_stack(text)]
    codes = columns.read_codes(known)
    for name, column in _TEXTS.items():
        whole[column] = codes[name] if name in index else np.full(height, builder.texts[column][""], np.int32)
    whole["stack"] = codes.get("python_stack", np.full(height, builder.stacks[()], np.int32))
    whole |= {column: found.get(column, absent) == 1 for column in _FLAGS.values()}
    # The cell "0" has no prefix: removing two characters leaves nothing.
    whole["address"] = np.maximum(found["address"], 0).astype(np.uint64)
    users: dict[int, str] = {}
    if "user_tasks" in index:
        lasting = (whole["end"] == NEVER_FREED) | columns.rows_matching({"type": "^Weight$"})
        rows = np.flatnonzero(lasting & columns.rows_matching({"user_tasks": r"^\{"}))
        users = dict(zip(rows.tolist(), columns.read_texts("user_tasks", rows), strict=True))
    builder.add_part(whole, users)


_FIRST = ("time_stamp", "task_name", "node_name", "graph_name", "file_name", "line_num")
_DIGITS = 18


@dataclass(frozen=True, slots=True, eq=False)
class Tasks:
    """The launches of a trace, ordered by time stamp."""

    stamp: NDArray[np.int64]  # time stamps
    name: Coded[str]  # task names: `PyNative`, or number and scope path of an operator, or an actor
    node: Coded[str]  # operators or their scope paths
    line: NDArray[np.int64]  # lines in the file
    dropped: tuple[DroppedRow, ...]  # some of the rejected rows
    dropped_count: int  # number of rejected rows

    def __len__(self) -> int:
        return len(self.stamp)


def read_tasks(path: Path, on_bytes: Progress = no_progress) -> Tasks:
    """Read a ``task.csv``. Raises TraceError: the file is unreadable, or not the tracker's."""
    builder = _Builder()
    with reading(path), open_bytes(path) as file:
        number, text, _ = next(iterate_lines(file), (0, None, True))
        names = tuple(name for name in (text or "").removeprefix("\ufeff").split(",") if name)
        if names[: len(_FIRST)] != _FIRST or len(set(names)) != len(names):
            raise TraceError(msg("trace.not-tasks", expected=",".join(_FIRST)), path=path, line=number or None)
        for part in iterate_parts(file, number + 1, on_bytes):
            columns = split_lines(part, names, ("time_stamp", "task_name", "node_name", "line_num"))
            if columns is None:
                for at, line, complete in part.lines():
                    _take_row(at, line, names, builder, complete=complete)
            else:
                _take_columns(part, columns, names, builder)
    return builder.build_tasks()


class _Builder:
    def __init__(self) -> None:
        # Stamps, codes of names and nodes, and lines, by part.
        self.parts = [(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64))]
        self.names, self.nodes = Codes[str](), Codes[str]()
        self.refused = RefusedRow()

    def build_tasks(self) -> Tasks:
        stamp, name, node, line = (np.concatenate(column) for column in zip(*self.parts, strict=True))
        order = np.lexsort((line, stamp))
        names, nodes = Coded(name[order], tuple(self.names)), Coded(node[order], tuple(self.nodes))
        return Tasks(stamp[order], names, nodes, line[order], tuple(self.refused.rows), self.refused.count)


def _take_columns(part: FilePart, columns: Columns, names: tuple[str, ...], builder: _Builder) -> None:
    good = columns.rows_matching({"time_stamp": NATURAL, "line_num": NATURAL_OR_NONE})
    columns, line = _keep_plain(
        part, columns, good, lambda number, text: _take_row(number, text, names, builder, complete=True)
    )
    stamps = columns.read_numbers({"stamp": TableCell("time_stamp")}, NONE)["stamp"]
    codes = columns.read_codes({"task_name": builder.names.__getitem__, "node_name": builder.nodes.__getitem__})
    builder.parts.append((stamps, codes["task_name"], codes["node_name"], line))


def _take_row(number: int, text: str | None, names: tuple[str, ...], builder: _Builder, *, complete: bool) -> None:
    cells = [] if text is None else text.split(",")
    if len(cells) <= len(names) or cells.pop():
        too_few = msg("trace.row.fields", found=len(cells), expected=len(names))
        builder.refused.add(number, too_few if complete and text is not None else msg("trace.row.cut"))
        return
    if not (cells[0].isascii() and cells[0].isdigit() and len(cells[0]) <= _DIGITS):
        builder.refused.add(number, msg("trace.row.number", value=cells[0][:40], column="time_stamp"))
        return
    surplus = len(cells) - len(names)
    # The position of the line number shows whether the surplus commas are in the stack, the last cell, or in the names.
    before = next((n for n in range(surplus + 1) if cells[len(_FIRST) - 1 + n].isdigit() or not cells[5 + n]), None)
    half = (before or 0) // 2
    name, node = ",".join(cells[1 : 2 + half]), ",".join(cells[2 + half : 3 + 2 * half])
    # If they contain commas, the two names of a graph's operator have the same number of them and the same end.
    if before is None or before % 2 or (before and not name.endswith(node)):
        builder.refused.add(number, msg("trace.row.commas"))
        return
    values = (np.array([int(cells[0])], np.int64), np.array([builder.names[name]], np.int32))
    builder.parts.append((*values, np.array([builder.nodes[node]], np.int32), np.array([number], np.int64)))


def end_reused_blocks(table: Table) -> Table:
    """Return the trace with an end for every block whose release it lacks.

    A block has ended when its address is given out again. If the trace has the bytes in use (``actual_used_memory``), they
    show when: after the block's last use, as soon as more was released than the trace says.
    """
    end = table.end.copy()
    in_pool = (table.start >= 0) & (table.address > 0) & (table.size > 0)
    for pool in np.unique(table.pool.codes[in_pool]).tolist():
        rows = table.rows_by_start(in_pool & (table.pool.codes == pool))
        end[rows] = _end_at_reuse(table, rows)
        _end_at_silent_releases(table, rows, end)
    return replace(table, end=end, unreleased=int((end < table.end).sum()))


def _end_at_reuse(table: Table, rows: NDArray[np.int64]) -> list[int]:
    # A pool serves requests from the lowest address of a free range, so the first block that overlaps an earlier one
    # contains its first byte. (In a batch of the older pool, whose first row has the size of all, the others do not.)
    ends: list[int] = table.end[rows].tolist()
    live: list[int] = []  # first addresses, ascending
    holder: dict[int, int] = {}
    columns = (table.start[rows].tolist(), table.address[rows].tolist(), table.size[rows].tolist())
    for number, (start, address, size) in enumerate(zip(*columns, strict=True)):
        at = bisect_left(live, address)
        to = bisect_left(live, address + size, at)
        for before in live[at:to]:
            ends[holder[before]] = min(start, ends[holder[before]])
        live[at:to] = [address]
        holder[address] = number
    return ends


def _end_at_silent_releases(table: Table, rows: NDArray[np.int64], end: NDArray[np.int64]) -> None:
    # Blocks that no later task uses: all of them, or those allocated at the same places as the blocks whose address is given out
    # again, if they add up to the released bytes; else the latter alone.
    size, freed = table.size[rows], table.end[rows]
    order = np.argsort(freed, kind="stable")
    released = np.append(0, np.cumsum(size[order]))
    swept = np.cumsum(size) - released[np.searchsorted(freed[order], table.start[rows], side="right")]
    surplus = np.where(table.used_after[rows] == NONE, 0, swept - table.used_after[rows])
    # The rows of one continuous allocation all show the bytes after the last of them: a surplus below an earlier one.
    highest = np.maximum.accumulate(np.append(0, surplus))
    last_use = np.maximum(table.start[rows], table.last_user[rows])
    places = np.stack([table.stack.codes[rows], table.node.codes[rows], size], axis=1)
    place = np.unique(places, axis=0, return_inverse=True)[1].reshape(-1)
    reused = end[rows] < freed
    alike = np.isin(place, place[reused])
    for number in np.flatnonzero(surplus > highest[:-1]).tolist():
        tick = table.start[rows[number]]
        unused = (last_use < tick) & (end[rows] >= tick) & (freed == NEVER_FREED)
        for chosen in (unused, unused & alike, unused & reused):
            if size[chosen].sum() == surplus[number] - highest[number]:
                break
        end[rows[chosen]] = tick
