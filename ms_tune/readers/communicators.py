"""Which communication groups a simulated process made, as MindSpore's log tells, and what it ran through them.

MindSpore 2.7 to 2.10 log each one as a warning (``collective_manager.cc``, ``InitializeDummyCommLib`` and
``CreateSimulationGroup``), whether or not anything ever runs through it and whoever asks for it: the program, its framework, or
the compiler that splits a graph over ranks. Other ranks' groups are logged, too.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ms_tune.errors import TraceError
from ms_tune.readers.memory_block import DroppedRow, RefusedRow, lines_of
from ms_tune.readers.reading import reading
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORLD = "hccl_world_group"
_SAYS = "dummy co"
_PROCESS = re.compile(r"\((?P<pid>\d{1,10})[,:]")
_WORLD_MADE = re.compile(r"Initializing dummy collective communication with rank size: (\d{1,9}), rank id: (\d{1,9})\b")
# Ranks are written "{0, 2}", more than about ten "{[0]:{0}, [1]:{2}}"; a line of some thousands is cut.
_GROUP_MADE = re.compile(
    r"Create dummy communication group with group name: (?P<name>.{1,500}?), group ranks: [^{]{0,40}\{(?P<ranks>[^.]*)(?P<end>\.)?"
)
_RANK = re.compile(r"(?<!\[)\b\d{1,9}\b(?!\])")
_ON_HOST = "mccl_"  # how groups of the backend "mccl", which is the CPU's, are named (mint.distributed.new_group)
_MOST_GROUPS = 10_000  # of all processes of a log
_COMMUNICATION = ("index", "group", "comm_rank", "primitive", "input_size", "output_size")
_DIGITS = 18


@dataclass(slots=True)
class ProcessGroups:
    """The groups of one process."""

    rank: int  # the rank that it runs as
    # Those on the device in which it exchanges something with others, the world's included: how many ranks each has, at
    # least, by its name.
    ranks_by_group: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class GroupLines:
    """The processes met so far, by their ids: several may write to one log."""

    processes: dict[str, ProcessGroups] = field(default_factory=dict)
    count: int = 0

    def take(self, line: str) -> None:
        """Read a line."""
        if _SAYS not in line or self.count == _MOST_GROUPS:
            return
        process = _PROCESS.search(line)
        pid = process["pid"] if process else ""
        if match := _WORLD_MADE.search(line):
            self.count += 1
            size, rank = int(match[1]), int(match[2])
            self.processes[pid] = ProcessGroups(rank, {WORLD: size} if size > 1 else {})
        elif pid in self.processes and (match := _GROUP_MADE.search(line)) and not match["name"].startswith(_ON_HOST):
            self.count += 1
            ranks, one = set(map(int, _RANK.findall(match["ranks"]))), self.processes[pid]
            is_in = one.rank in ranks or not match["end"]
            if is_in and len(ranks) > 1:
                one.ranks_by_group[match["name"]] = len(ranks)


@dataclass(frozen=True, slots=True)
class CollectiveLaunch:
    """One collective operation."""

    group: str  # name of the communication group
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CommunicationOrder:
    """The collective operations in the order in which they are launched, and the rows that were refused."""

    collectives: tuple[CollectiveLaunch, ...]
    dropped: tuple[DroppedRow, ...]
    dropped_count: int


def read_communication_order(path: Path) -> CommunicationOrder:
    r"""Read a ``comm_execute_order.csv``, which MindSpore writes in simulation.

    ``std::quoted`` writes them: every cell in quotation marks, with ``\"`` and ``\\`` inside, and no trailing comma
    (``execute_order_tracker.cc``). A defect of MindSpore's puts a control character into ``stream_id`` of the dynamic graph.

    Raises:
        TraceError: The file cannot be read, or is another one.
    """
    found, refused = [], RefusedRow()
    for number, cells in _read_rows(path, _COMMUNICATION, refused):
        ranks = [_parse_number(rank) for rank in cells["comm_rank"].split()]
        if None in (_parse_number(cells["input_size"]), _parse_number(cells["output_size"]), *ranks):
            refused.add(number, msg("trace.row.order"))
        else:
            known = tuple(rank for rank in ranks if rank is not None)
            found.append(CollectiveLaunch(cells["group"], known))
    return CommunicationOrder(tuple(found), tuple(refused.rows), refused.count)


def _read_rows(path: Path, required: tuple[str, ...], refused: RefusedRow) -> Iterator[tuple[int, dict[str, str]]]:
    with reading(path), path.open("rb") as file:
        names: list[str] = []
        for number, text, _ in lines_of(file):
            if not names:
                names = (text or "").split(",")
                if any(name not in names for name in required):
                    raise TraceError(msg("trace.not-order", expected=", ".join(required)), path=path, line=number)
                continue
            cells = _split_cells(text)
            if cells is None or len(cells) != len(names):
                refused.add(number, msg("trace.row.order"))
            else:
                yield number, dict(zip(names, cells, strict=True))


def _split_cells(text: str | None) -> list[str] | None:
    if text is None:
        return None
    try:
        return next(csv.reader(io.StringIO(text), escapechar="\\", doublequote=False, strict=True), None)
    except csv.Error:
        return None


def _parse_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None
