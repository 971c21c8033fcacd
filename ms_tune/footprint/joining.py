"""Which launch made each block: the join of ``memory_block.csv`` with ``task.csv``.

In the dynamic graph ``producer_task`` is the launch's time stamp. In graph mode it is not: the allocating actor takes the
counter's value without advancing it (``memory_manager_actor.cc``, ``AddTask(..., to_graph=false)``), so that the number
is usually that of an unrelated launch. The launch is the first one of the same task name at that number or later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.footprint.phases import EAGER
from ms_tune.readers.table import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ms_tune.readers.table import Table
    from ms_tune.readers.task import Tasks

# What operators allocate; weights, constants, inputs and outputs of actors have no launch.
_LAUNCHED = frozenset({"Kernel", "Somas", "SomasOutput", "WorkSpace"})
_LAUNCHED_EAGERLY = frozenset({"PyNativeOutput", "WorkSpace"})
SOMAS = "SomasMemory"  # the arena is allocated before any launch


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """The launches of the blocks."""

    launch: NDArray[np.int64]  # each row's place in the tasks, or `ms_tune.readers.table.NONE`
    joinable: NDArray[np.bool_]  # which rows should have one

    @property
    def joined_rows(self) -> int:
        """How many of the rows that should have a launch have one."""
        return int(((self.launch != NONE) & self.joinable).sum())

    @property
    def joinable_rows(self) -> int:
        """How many rows should have one."""
        return int(self.joinable.sum())


def join(table: Table, tasks: Tasks) -> Join:
    """The launch of every block."""
    eager = table.task.where([EAGER])
    in_graph = ~eager & table.kind.where(_LAUNCHED) & ~table.node.where([SOMAS])
    launch = np.full(len(table), NONE, np.int64)
    launch[in_graph] = _by_name(table, tasks, np.flatnonzero(in_graph))
    launch[eager] = _by_number(table, tasks, np.flatnonzero(eager))
    return Join(launch, in_graph | (eager & table.kind.where(_LAUNCHED_EAGERLY)))


def _by_number(table: Table, tasks: Tasks, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    wanted = table.producer[rows]
    place = np.searchsorted(tasks.stamp, wanted)
    hit = (place < len(tasks)) & (wanted != NONE)
    hit[hit] = tasks.stamp[place[hit]] == wanted[hit]
    return np.where(hit, place, NONE)


def _by_name(table: Table, tasks: Tasks, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    known = {name: code for code, name in enumerate(tasks.name.values)}
    translate = np.array([known.get(name, NONE) for name in table.task.values] or [NONE], np.int64)
    name = translate[table.task.codes[rows]]
    # Stamps may be as large as a word; ranks among all stamps are small enough to share one with the name.
    stamps = np.unique(np.concatenate([tasks.stamp, table.producer[rows]]))
    width = len(stamps) + 1
    keys = tasks.name.codes.astype(np.int64) * width + np.searchsorted(stamps, tasks.stamp)
    order = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys[order], name * width + np.searchsorted(stamps, table.producer[rows]))
    hit = (place < len(tasks)) & (name != NONE) & (table.producer[rows] != NONE)
    found = np.full(len(rows), NONE, np.int64)
    found[hit] = order[place[hit]]
    hit[hit] = tasks.name.codes[found[hit]] == name[hit]
    return np.where(hit, found, NONE)
