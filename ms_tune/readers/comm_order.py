r"""Reads ``comm_execute_order.csv``, which MindSpore writes in simulation.

``std::quoted`` writes them: every cell in quotation marks, with ``\"`` and ``\\`` inside, and no trailing comma
(``execute_order_tracker.cc``). A defect of MindSpore's puts a control character into ``stream_id`` of the dynamic graph.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.errors import TraceError
from ms_tune.readers.memory_block import DroppedRow, RefusedRow, lines_of
from ms_tune.readers.reading import reading
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_COMMUNICATION = ("index", "group", "comm_rank", "primitive", "input_size", "output_size")
_DIGITS = 18


@dataclass(frozen=True, slots=True)
class CollectiveLaunch:
    """One collective operation."""

    group: str  # name of the communication group
    ranks: tuple[int, ...]
    primitive: str  # such as `AllReduce` or, in the dynamic graph, `DistCommAllReduce`


@dataclass(frozen=True, slots=True)
class CommunicationOrder:
    """The collective operations in the order in which they are launched, and the rows that were refused."""

    collectives: tuple[CollectiveLaunch, ...]
    dropped: tuple[DroppedRow, ...]
    dropped_count: int


def read_communication_order(path: Path) -> CommunicationOrder:
    """Read a ``comm_execute_order.csv``.

    Raises:
        TraceError: The file cannot be read, or is another one.
    """
    found, refused = [], RefusedRow()
    for number, cells in _rows(path, _COMMUNICATION, refused):
        ranks = [_number(rank) for rank in cells["comm_rank"].split()]
        if None in (_number(cells["input_size"]), _number(cells["output_size"]), *ranks):
            refused.add(number, msg("trace.row.order"))
        else:
            known = tuple(rank for rank in ranks if rank is not None)
            found.append(CollectiveLaunch(cells["group"], known, cells["primitive"]))
    return CommunicationOrder(tuple(found), tuple(refused.rows), refused.count)


def _rows(path: Path, required: tuple[str, ...], refused: RefusedRow) -> Iterator[tuple[int, dict[str, str]]]:
    """Line and cells of every row that has one cell for each column."""
    with reading(path), path.open("rb") as file:
        names: list[str] = []
        for number, text, _ in lines_of(file):
            if not names:
                names = (text or "").split(",")
                if any(name not in names for name in required):
                    raise TraceError(msg("trace.not-order", expected=", ".join(required)), path=path, line=number)
                continue
            cells = _cells(text)
            if cells is None or len(cells) != len(names):
                refused.add(number, msg("trace.row.order"))
            else:
                yield number, dict(zip(names, cells, strict=True))


def _cells(text: str | None) -> list[str] | None:
    if text is None:
        return None
    try:
        return next(csv.reader(io.StringIO(text), escapechar="\\", doublequote=False, strict=True), None)
    except csv.Error:
        return None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None
