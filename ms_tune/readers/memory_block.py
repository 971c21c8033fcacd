"""Read ``memory_block.csv``, which MindSpore's memory tracker writes when the process exits.

Three layouts are known: 16 columns (MindSpore 2.3, 2.4), 17 (2.5 to 2.7) and 20 (2.10). They differ by columns added in
the middle, so columns are found by name. The writer (``mem_tracker.cc``) quotes nothing and ends every line, including
the first, with a comma; so commas inside a path look like surplus fields. hyper-parallel's emulator of the file
(``torch/memory_report.py``) quotes properly and writes no trailing comma. Both are supported.

A row is kept if all its numbers are valid and the place of surplus commas is certain; else it is rejected and reported.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ms_tune.errors import TraceError
from ms_tune.readers.lines import LONGEST_LINE
from ms_tune.records import Record
from ms_tune.text import Message, msg

_TEXTS = ("file_name", "type", "task_name", "node_name", "user_tasks", "python_stack")  # used to place surplus commas
_KINDS = frozenset(
    {
        *("Weight", "ConstantValue", "PyNativeInput", "PyNativeOutput", "WorkSpace", "Kernel", "GraphOutput", "Other"),
        *("Somas", "SomasOutput", "InSideSomas", "GeConst", "GeFixed", "GeFeatureMemory"),
        *("BatchMemory", "ContinuousMemory"),
    }
)
NEVER_FREED = 2**63 - 1  # INT64_MAX in end_time_stamp
STATIC = -1  # both time stamps of MindSpore 2.3's and 2.4's InSideSomas rows
MAX_DESCRIBED = 20  # number of rejected rows that are described; all are counted
_PACKED = "\x1f\ufffd"  # start of a gzip file when decoded as UTF-8
_REQUIRED = ("start_time_stamp", "end_time_stamp", "device_addr", "size", "type")
_MAX_DIGITS = 19  # of INT64_MAX
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{1,16}|0")
_USERS = re.compile(r"(?:\{[0-9-]*\})?")


def repair_row(cells: list[str], names: tuple[str, ...], index: Mapping[str, int]) -> list[str] | None:
    """Return the cells of a row after joining those that its surplus commas split; None if their place is uncertain.

    The stack is the usual place for commas (a path may contain any character). Otherwise they are in the C++ file name
    or in the names; the type and the user tasks have known formats and show how many commas are before them.
    """
    surplus = len(cells) - len(names)
    if any(name not in index for name in _TEXTS):
        return None
    kind, users, stack = index["type"], index["user_tasks"], index["python_stack"]
    kinds = [i for i in range(kind, kind + surplus + 1) if cells[i] in _KINDS and cells[i - 1].isdigit()]
    lists = [i for i in range(users, users + surplus + 1) if cells[i].startswith("{") and _USERS.fullmatch(cells[i])]
    if not kinds and not lists and cells[kind] == "" and cells[users] == "":
        kinds, lists = [kind], [users]  # never bound: both are empty, and only the stack can contain commas
    if len(kinds) != 1 or (not lists and cells[users]):
        return None
    in_file, up_to_users = kinds[0] - kind, (lists[0] if lists else users) - users
    in_names = up_to_users - in_file
    if in_names < 0 or len(lists) > 1:
        return None
    if in_file:
        cells = _join_cells(cells, index["file_name"], in_file)
    if in_names:
        rejoined = _rejoin_names(cells, index, in_names)
        if rejoined is None:
            return None
        cells = rejoined
    return _join_cells(cells, stack, len(cells) - len(names))


def _rejoin_names(cells: list[str], index: Mapping[str, int], surplus: int) -> list[str] | None:
    # Either only the node name has commas, or both names have the same end.
    task, node = index["task_name"], index["node_name"]
    if cells[task] == "PyNative":
        return _join_cells(cells, node, surplus)
    half = surplus // 2
    task_name = ",".join(cells[task : task + half + 1])
    node_name = ",".join(cells[task + half + 1 : task + 2 * half + 2])
    if surplus % 2 or node != task + 1 or not task_name.endswith(node_name):
        return None
    return _join_cells(_join_cells(cells, task, half), node, half)


def _join_cells(cells: list[str], at: int, surplus: int) -> list[str]:
    return [*cells[:at], ",".join(cells[at : at + surplus + 1]), *cells[at + surplus + 1 :]]


class Frame(NamedTuple):
    """One frame of a Python stack."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Block:
    """One allocation. Ticks are the tracker's logical counter; the block lives in ``[start, end)``."""

    line: int  # its line in the file, from 1
    start: int  # tick of the allocation, or `STATIC`
    end: int | None  # tick of the release, None if it was never freed, or `STATIC`
    address: int  # device address; 0 in some rows of the GE back end
    stream: int | None  # stream index
    pool: str  # name of the memory pool
    size: int  # bytes, after the pool's alignment
    used_after: int | None  # bytes in use in the pool directly after this allocation (MindSpore 2.10)
    # Bytes between the lowest and the highest address used so far, summed over the pool's units.
    footprint_after: int | None
    kind: str  # the tracker's `type`; empty if the block was never bound to a tensor
    producer_task: int | None  # time stamp of the requesting task; in graph mode often that of an unrelated task
    task_name: str  # `PyNative` in the dynamic graph; in graph mode number and scope path of the operator
    node_name: str  # operator in the dynamic graph; in graph mode its scope path, or the name of the parameter
    graph_name: str  # graph or operator, often empty
    last_user_task: int | None  # time stamp of the last task that used it
    user_text: str  # time stamps of all tasks that used it as written, such as `{0-0-112}`; see `user_tasks`
    stack: tuple[Frame, ...]  # the Python stack, outermost frame first; equal stacks are one object
    persistent: bool  # whether it is in the pool's part for weights and constants (MindSpore 2.10)
    small: bool  # whether it is in the pool's part for small blocks (MindSpore 2.10)

    @property
    def user_tasks(self) -> tuple[int, ...]:
        """Return the time stamps of all tasks that used the block, in order, with repetitions."""
        return parse_users(self.user_text)


def parse_users(text: str) -> tuple[int, ...]:
    """Return the time stamps in a ``user_tasks`` text such as ``{0-0-112}``; invalid ones are left out."""
    stamps = (int(part) for part in text[1:-1].split("-") if 0 < len(part) <= _MAX_DIGITS)
    return tuple(stamp for stamp in stamps if stamp <= NEVER_FREED)


class DroppedRow(Record):
    """A row that was rejected."""

    line: int
    reason: Message


class RefusedRow:
    """The rows that a reader has rejected so far: the first :data:`MAX_DESCRIBED`, and the total number."""

    def __init__(self) -> None:
        self.rows: list[DroppedRow] = []
        self.count = 0

    def add(self, line: int, reason: Message) -> None:
        """Add a rejected row."""
        self.count += 1
        if len(self.rows) < MAX_DESCRIBED:
            self.rows.append(DroppedRow(line, reason))


class _BadRowError(Exception):
    def __init__(self, reason: Message) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """The columns of a file."""

    names: tuple[str, ...]
    trailing_comma: bool
    index: dict[str, int]


def read_layout(text: str | None, path: Path, number: int) -> ColumnLayout:
    """Return the columns that the first line of a file names."""
    cells = (text or "").removeprefix("\ufeff").split(",")
    trailing_comma = cells[-1] == ""
    while cells and not cells[-1]:
        cells.pop()
    names = tuple(cells)
    missing = [name for name in _REQUIRED if name not in names]
    if missing:
        message = msg("trace.not-tracker", missing=", ".join(missing))
        packed = (text or "").startswith(_PACKED)
        hint = msg("trace.packed.hint", path=path) if packed else msg("trace.not-tracker.hint")
        raise TraceError(message, hint, path=path, line=number)
    index = {name: position for position, name in enumerate(names)}
    if len(index) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TraceError(msg("trace.column-twice", column=twice), path=path, line=number)
    return ColumnLayout(names, trailing_comma, index)


def _parse_lifetime(first: str, last: str) -> tuple[int, int | None]:
    if first == last == "-1":
        return STATIC, STATIC
    start, end = _parse_number(first, "start_time_stamp"), _parse_number(last, "end_time_stamp")
    if end <= start:
        raise _BadRowError(msg("trace.row.lifetime", start=start, end=end))
    return start, None if end == NEVER_FREED else end


def _parse_number(cell: str, column: str) -> int:
    if not (cell.isascii() and cell.isdigit() and len(cell) <= _MAX_DIGITS) or (number := int(cell)) > NEVER_FREED:
        raise _BadRowError(msg("trace.row.number", value=_shorten_cell(cell), column=column))
    return number


def _shorten_cell(cell: str) -> str:
    # Return the cell in printable form: no control characters, limited length.
    shown = "".join(character if character.isprintable() else "\ufffd" for character in cell[:40])
    return shown + "…" if len(cell) > len(shown) else shown


class RowReader:
    """Reader of single rows that records those it rejects."""

    def __init__(self, layout: ColumnLayout) -> None:
        self._layout = layout
        # Values shared by rows: a trace repeats some hundred texts and stacks a hundred thousand times.
        self._texts: dict[str, str] = {}
        self._frames: dict[str, Frame | None] = {}
        self._stacks: dict[str, tuple[Frame, ...]] = {}
        self.refused = RefusedRow()

    def read(self, number: int, text: str | None, *, complete: bool) -> Block | None:
        """Return the block of a line, or None if the row is rejected; a text of None is a line that is too long."""
        try:
            return self._make_block(number, self._split_row(text, complete=complete))
        except _BadRowError as error:
            self.refused.add(number, error.reason)
            return None

    def _split_row(self, text: str | None, *, complete: bool) -> list[str]:
        layout = self._layout
        if text is None:
            raise _BadRowError(msg("trace.row.long", limit=LONGEST_LINE))
        quoted = ',"File:' in text or ('"' in text and not layout.trailing_comma)
        if quoted:
            try:
                cells = next(csv.reader([text], strict=True))
            except (csv.Error, StopIteration):
                raise _BadRowError(msg("trace.row.quotes" if complete else "trace.row.cut")) from None
        else:
            cells = text.split(",")
        if layout.trailing_comma:
            if cells[-1]:
                # Every row of such a file ends with a comma. Without it the last cell may be half a number.
                raise _BadRowError(self._too_few(len(cells), complete=complete))
            cells.pop()
        expected = len(layout.names)
        if len(cells) < expected or (not complete and not layout.trailing_comma):
            raise _BadRowError(self._too_few(len(cells), complete=complete))
        if len(cells) > expected:
            placed = repair_row(cells, layout.names, layout.index)
            if placed is None:
                raise _BadRowError(msg("trace.row.commas"))
            return placed
        return cells

    def _too_few(self, found: int, *, complete: bool) -> Message:
        return (
            msg("trace.row.fields", found=found, expected=len(self._layout.names)) if complete else msg("trace.row.cut")
        )

    def _make_block(self, line: int, cells: list[str]) -> Block:
        index = self._layout.index

        def text(name: str) -> str:
            position = index.get(name)
            cell = "" if position is None else cells[position]
            return self._texts.setdefault(cell, cell)

        def number(name: str) -> int | None:
            position = index.get(name)
            return None if position is None or not cells[position] else _parse_number(cells[position], name)

        def flag(name: str) -> bool:
            value = number(name)
            if value not in (None, 0, 1):
                raise _BadRowError(msg("trace.row.number", value=value, column=name))
            return value == 1

        number("line_num")  # not kept, but another value than a number shows that cells are misplaced
        start, end = _parse_lifetime(cells[index["start_time_stamp"]], cells[index["end_time_stamp"]])
        address = cells[index["device_addr"]]
        if not _ADDRESS.fullmatch(address):
            raise _BadRowError(msg("trace.row.number", value=_shorten_cell(address), column="device_addr"))
        position = index.get("user_tasks")
        users = "" if position is None else cells[position]
        if not _USERS.fullmatch(users):
            raise _BadRowError(msg("trace.row.users", value=_shorten_cell(users)))
        return Block(
            line=line,
            start=start,
            end=end,
            address=int(address, 16),
            stream=number("stream_id"),
            pool=text("pool_type"),
            size=_parse_number(cells[index["size"]], "size"),
            used_after=number("actual_used_memory"),
            footprint_after=number("actual_peak_memory"),
            kind=text("type"),
            producer_task=number("producer_task"),
            task_name=text("task_name"),
            node_name=text("node_name"),
            graph_name=text("graph_name"),
            last_user_task=number("last_user_task"),
            user_text=users,
            stack=self.parse_stack(text("python_stack")),
            persistent=flag("is_persistent"),
            small=flag("is_small"),
        )

    def parse_stack(self, text: str) -> tuple[Frame, ...]:
        """Return the stack in a cell: ``File:<path>;Line:<n>;Function:<f>|`` repeated, outermost first."""
        stack = self._stacks.get(text)
        if stack is None:
            frames = (self._parse_frame(part) for part in text.split("|") if part)
            stack = self._stacks[text] = tuple(frame for frame in frames if frame is not None)
        return stack

    def _parse_frame(self, text: str) -> Frame | None:
        if text in self._frames:
            return self._frames[text]
        rest, _, function = text.rpartition(";Function:")
        file, _, line = rest.rpartition(";Line:")
        valid = file.startswith("File:") and line.isascii() and line.isdigit() and len(line) < _MAX_DIGITS
        frame = Frame(file[len("File:") :], int(line), function) if valid else None
        self._frames[text] = frame
        return frame
