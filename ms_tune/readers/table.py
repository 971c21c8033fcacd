"""Store a trace as columns, so that iterating over a hundred thousand rows takes milliseconds.

A :class:`Table` contains the rows of one ``memory_block.csv``, one array per column. Missing numbers are :data:`NONE`.
Texts and stacks are stored once: their columns are indices into a tuple of distinct values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ms_tune.errors import TraceError
from ms_tune.readers.dry_run import PHASES_OF_DRY_RUN
from ms_tune.readers.memory_block import NEVER_FREED, Block, DroppedRow, Frame
from ms_tune.text import msg

HOST_POOL = "Other"
NONE = -1  # a missing number
_MOST_BYTES = 2.0**62  # sums of sizes must stay below 2^63

Value = TypeVar("Value")
NUMBERS = (
    *("line", "start", "end", "stream", "size", "used_after", "footprint_after"),
    *("producer", "first_user", "last_user"),
)
TEXTS = ("pool", "kind", "task", "node", "graph")
_TYPES: dict[str, type[Any]] = {
    **dict.fromkeys(NUMBERS, np.int64),
    "address": np.uint64,
    "persistent": np.bool_,
    "small": np.bool_,
    **dict.fromkeys((*TEXTS, "stack"), np.int32),
}


@dataclass(frozen=True, slots=True, eq=False)
class Coded(Generic[Value]):
    """A column of repeating values: row ``i`` has ``values[codes[i]]``."""

    codes: NDArray[np.int32]
    values: tuple[Value, ...]

    def value_at(self, row: int) -> Value:
        """Return the value of a row."""
        return self.values[int(self.codes[row])]

    def rows_in(self, wanted: Iterable[Value]) -> NDArray[np.bool_]:
        """Return which rows have one of the wanted values."""
        return self.rows_matching(frozenset(wanted).__contains__)

    def rows_matching(self, holds: Callable[[Value], bool]) -> NDArray[np.bool_]:
        """Return which rows have a value that passes the test, which is called once per distinct value."""
        return np.array([holds(value) for value in self.values], np.bool_)[self.codes]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The rows of a trace, ordered as in the file; for columns see :class:`~ms_tune.readers.memory_block.Block`."""

    line: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]  # tick of the release, or `ms_tune.readers.memory_block.NEVER_FREED`
    address: NDArray[np.uint64]
    stream: NDArray[np.int64]
    size: NDArray[np.int64]
    used_after: NDArray[np.int64]
    footprint_after: NDArray[np.int64]
    producer: NDArray[np.int64]
    first_user: NDArray[np.int64]
    last_user: NDArray[np.int64]
    persistent: NDArray[np.bool_]
    small: NDArray[np.bool_]
    pool: Coded[str]
    kind: Coded[str]
    task: Coded[str]
    node: Coded[str]
    graph: Coded[str]
    stack: Coded[tuple[Frame, ...]]
    users: Mapping[int, str]  # the `user_tasks` text of weights and of blocks that were never freed, by row
    dropped: tuple[DroppedRow, ...]  # some of the rejected rows
    dropped_count: int  # number of rejected rows
    columns: tuple[str, ...]
    truncated: bool  # whether the file ends in the middle of a row
    # Blocks whose release the file lacks, although their address was given out again.
    unreleased: int = 0

    def __len__(self) -> int:
        return len(self.start)

    @property
    def is_logical(self) -> bool:
        """Return whether the rows are PyTorch's tensors of a dry-run, which no allocator placed."""
        tasks = {*self.task.values} - {""}
        return bool(tasks) and tasks <= PHASES_OF_DRY_RUN

    def on_device(self) -> NDArray[np.bool_]:
        """Return which rows use memory of the device.

        MindSpore names its pool of host memory, for offloading, :data:`HOST_POOL`; its log excludes it, too. A trace
        with no other pool is of a release, or a program, that does not name pools.
        """
        host = self.pool.rows_in({HOST_POOL})
        return np.ones(len(self), np.bool_) if host.all() else ~host

    def select_rows(self, wanted: NDArray[np.bool_]) -> Table:
        """Return a table of the wanted rows."""
        return self.take_rows(np.flatnonzero(wanted))

    def take_rows(self, rows: NDArray[np.int64]) -> Table:
        """Return a table of rows by their indices."""
        columns: dict[str, Any] = {
            name: value[rows] if isinstance(value, np.ndarray) else Coded(value.codes[rows], value.values)
            for name, value in ((name, getattr(self, name)) for name in _TYPES)
        }
        place = {int(row): new for new, row in enumerate(rows)}
        users = {place[row]: text for row, text in self.users.items() if row in place}
        return replace(self, users=users, **columns)

    def rows_by_start(self, wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the indices of the wanted rows, in the order of allocation."""
        rows = np.flatnonzero(wanted)
        return np.asarray(rows[np.argsort(self.start[rows], kind="stable")], np.int64)

    def live_at(self, tick: int) -> NDArray[np.bool_]:
        """Return which rows are alive at a tick."""
        return (self.start >= 0) & (self.start <= tick) & (tick < self.end)


class Codes(dict[Value, int]):
    """The codes of values, assigned in the order of their first use."""

    def __missing__(self, value: Value) -> int:
        code = self[value] = len(self)
        return code


class TableBuilder:
    """Builder of a table from parts; a part contains the rows of one stretch of a file."""

    def __init__(self) -> None:
        self._parts: dict[str, list[NDArray[Any]]] = {name: [] for name in _TYPES}
        self.texts = {name: Codes[str]() for name in TEXTS}
        self.stacks = Codes[tuple[Frame, ...]]()
        self._users: dict[int, str] = {}
        self.rows = 0

    def add_part(self, columns: Mapping[str, NDArray[Any]], users: Mapping[int, str]) -> None:
        """Add rows as columns, texts and stacks as codes; keys of ``users`` count from the part's first row."""
        for name, parts in self._parts.items():
            parts.append(columns[name])
        self._users.update({self.rows + row: text for row, text in users.items()})
        self.rows += len(columns["line"])

    def add_blocks(self, blocks: Sequence[Block]) -> None:
        """Add rows as blocks."""
        rows, users = [], dict[int, str]()
        for row, block in enumerate(blocks):
            touched, last = block.user_tasks, block.last_user_task
            names = (block.pool, block.kind, block.task_name, block.node_name, block.graph_name)
            rows.append(
                (
                    *(block.line, block.start, NEVER_FREED if block.end is None else block.end),
                    *(_or_none(block.stream), block.size, _or_none(block.used_after), _or_none(block.footprint_after)),
                    _or_none(block.producer_task),
                    touched[0] if touched else NONE,
                    last if last is not None else touched[-1] if touched else NONE,
                    *(block.address, block.persistent, block.small),
                    *(self.texts[name][text] for name, text in zip(TEXTS, names, strict=True)),
                    self.stacks[block.stack],
                )
            )
            if block.user_text and (block.end is None or block.kind == "Weight"):
                users[row] = block.user_text
        if rows:
            columns = zip(_TYPES.items(), zip(*rows, strict=True), strict=True)
            self.add_part({name: np.array(values, kind) for (name, kind), values in columns}, users)

    def build_table(
        self, *, dropped: tuple[DroppedRow, ...], dropped_count: int, columns: tuple[str, ...], truncated: bool
    ) -> Table:
        """Return the table of all parts."""
        whole: dict[str, Any] = {
            name: np.concatenate(self._parts.pop(name) or [np.empty(0, kind)]) for name, kind in _TYPES.items()
        }
        order = np.argsort(whole["line"], kind="stable")
        if float(whole["size"].sum(dtype=np.float64)) > _MOST_BYTES:
            raise TraceError(msg("trace.sizes"))
        whole = {name: column[order] for name, column in whole.items()}
        whole |= {name: Coded(whole[name], tuple(known)) for name, known in self.texts.items()}
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return Table(
            **{**whole, "stack": Coded(whole["stack"], tuple(self.stacks))},
            users={int(place[row]): text for row, text in self._users.items()},
            dropped=dropped,
            dropped_count=dropped_count,
            columns=columns,
            truncated=truncated,
        )


def _or_none(value: int | None) -> int:
    return NONE if value is None else value
