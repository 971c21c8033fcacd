"""Reads ``task.csv``: every operator that was launched, with its time stamp.

Columns (MindSpore 2.3, 2.4): ``time_stamp,task_name,node_name,graph_name,file_name,line_num,``; from 2.5 on also
``python_stack,``. As in ``memory_block.csv`` nothing is quoted and every line ends with a comma. The rows are not sorted:
launches of communication operators are written later than they happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.errors import TraceError
from ms_tune.readers.columns import NATURAL, NATURAL_OR_NONE, Columns, TableCell, split_lines
from ms_tune.readers.memory_block import DroppedRow, RefusedRow, lines_of
from ms_tune.readers.reading import FilePart, Progress, no_progress, parts_of, reading
from ms_tune.readers.table import NONE, Coded
from ms_tune.text import msg

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray


_FIRST = ("time_stamp", "task_name", "node_name", "graph_name", "file_name", "line_num")
_DIGITS = 18


@dataclass(frozen=True, slots=True, eq=False)
class Tasks:
    """The launches of a trace, ordered by time stamp."""

    stamp: NDArray[np.int64]  # time stamps
    name: Coded[str]  # task names: `PyNative`, or number and scope path of an operator, or an actor
    node: Coded[str]  # operators or their scope paths
    line: NDArray[np.int64]  # lines in the file
    dropped: tuple[DroppedRow, ...]  # some of the refused rows
    dropped_count: int  # how many rows were refused

    def __len__(self) -> int:
        return len(self.stamp)


def read_tasks(path: Path, on_bytes: Progress = no_progress) -> Tasks:
    """Read a ``task.csv``. Raises TraceError: the file cannot be read, or is not the tracker's."""
    with reading(path), path.open("rb") as file:
        return _read_rows(file, path, on_bytes)


class _Builder:
    """The rows so far."""

    def __init__(self) -> None:
        self.parts: list[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]] = []
        self.names: dict[str, int] = {}
        self.nodes: dict[str, int] = {}
        self.refused = RefusedRow()

    def name_code(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names))

    def node_code(self, text: str) -> int:
        return self.nodes.setdefault(text, len(self.nodes))

    def build_tasks(self) -> Tasks:
        empty = (np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64))
        parts = self.parts or [empty]
        stamp = np.concatenate([part[0] for part in parts])
        line = np.concatenate([part[3] for part in parts])
        order = np.lexsort((line, stamp))
        return Tasks(
            stamp=stamp[order],
            name=Coded(np.concatenate([part[1] for part in parts])[order], tuple(self.names)),
            node=Coded(np.concatenate([part[2] for part in parts])[order], tuple(self.nodes)),
            line=line[order],
            dropped=tuple(self.refused.rows),
            dropped_count=self.refused.count,
        )


def _read_rows(file: BinaryIO, path: Path, on_bytes: Progress) -> Tasks:
    number, text, _ = next(lines_of(file), (0, None, True))
    names = tuple(name for name in (text or "").removeprefix("\ufeff").split(",") if name)
    if names[: len(_FIRST)] != _FIRST or len(set(names)) != len(names):
        raise TraceError(msg("trace.not-tasks", expected=",".join(_FIRST)), path=path, line=number or None)
    builder = _Builder()
    for part in parts_of(file, number + 1, on_bytes):
        columns = split_lines(part, names, ("time_stamp", "task_name", "node_name", "line_num"))
        if columns is None:
            _take_singly(part, names, builder)
        else:
            _take_part(part, columns, names, builder)
    return builder.build_tasks()


def _take_part(part: FilePart, columns: Columns, names: tuple[str, ...], builder: _Builder) -> None:
    good = columns.rows_matching({"time_stamp": NATURAL, "line_num": NATURAL_OR_NONE})
    line = np.arange(part.first, part.first + columns.height, dtype=np.int64)
    if not good.all():
        lines = part.data.split(b"\n") if part.data is not None else []
        for row in np.flatnonzero(~good).tolist():
            _take_row(int(line[row]), lines[row].decode("utf-8", errors="replace"), names, builder, complete=True)
        columns, line = columns.keep_rows(good), line[good]
    stamps = columns.read_numbers({"stamp": TableCell("time_stamp")}, NONE)["stamp"]
    codes = columns.read_codes({"task_name": builder.name_code, "node_name": builder.node_code})
    builder.parts.append((stamps, codes["task_name"], codes["node_name"], line))


def _take_singly(part: FilePart, names: tuple[str, ...], builder: _Builder) -> None:
    for number, text, complete in part.lines():
        if text is None:
            builder.refused.add(number, msg("trace.row.cut"))
        else:
            _take_row(number, text, names, builder, complete=complete)


def _take_row(number: int, text: str, names: tuple[str, ...], builder: _Builder, *, complete: bool) -> None:
    cells = text.split(",")
    if len(cells) <= len(names) or cells.pop():
        builder.refused.add(
            number, msg("trace.row.fields", found=len(cells), expected=len(names)) if complete else msg("trace.row.cut")
        )
        return
    if not (cells[0].isascii() and cells[0].isdigit() and len(cells[0]) <= _DIGITS):
        builder.refused.add(number, msg("trace.row.number", value=cells[0][:40], column="time_stamp"))
        return
    surplus = len(cells) - len(names)
    # The line number tells whether the surplus commas are in the stack, which comes last, or in the names before it.
    before = next((n for n in range(surplus + 1) if cells[len(_FIRST) - 1 + n].isdigit() or not cells[5 + n]), None)
    if before is None or before % 2 or (before and not _names_are_alike(cells, before // 2)):
        builder.refused.add(number, msg("trace.row.commas"))
        return
    half = before // 2
    name, node = ",".join(cells[1 : 2 + half]), ",".join(cells[2 + half : 3 + 2 * half])
    values = (np.array([int(cells[0])], np.int64), np.array([builder.name_code(name)], np.int32))
    builder.parts.append((*values, np.array([builder.node_code(node)], np.int32), np.array([number], np.int64)))


def _names_are_alike(cells: list[str], half: int) -> bool:
    """Whether task and node name, with as many commas each, end alike, as those of a graph's operator do."""
    return ",".join(cells[1 : 2 + half]).endswith(",".join(cells[2 + half : 3 + 2 * half]))
