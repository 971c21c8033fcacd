"""Find the training steps of a trace, the phases within them, and the launch that allocated each block."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from ms_tune.footprint.category import Contents
from ms_tune.footprint.curve import Curve
from ms_tune.footprint.phases import EAGER, ORDER, Phase
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.readers.table import NONE, Table
from ms_tune.readers.tracker_tables import Tasks
from ms_tune.records import Record

# Kinds of blocks that operators allocate; weights, constants, inputs and outputs of actors have no launch.
_LAUNCHED = frozenset({"Kernel", "Somas", "SomasOutput", "WorkSpace"})
_LAUNCHED_EAGERLY = frozenset({"PyNativeOutput", "WorkSpace"})
SOMAS = "SomasMemory"  # the arena is allocated before any launch
_OUTPUTS = frozenset({"Kernel", "PyNativeOutput", "SomasOutput"})


class StepEvidence(str, Enum):
    """Evidence by which steps are recognized."""

    ACTOR = "output-actor"  # the graph's OutputActor runs once per step
    REPETITION = "repetition"  # the graph's operators run again
    UPDATE = "weight-update"  # the optimizer runs once per step
    NONE = "none"


class Steps(Record):
    """The training steps of a trace."""

    ends: tuple[int, ...]  # the last tick of every step, ascending; blocks alive then outlive the step
    evidence: StepEvidence  # how the steps were recognized


class StepSpan(Record):
    """A range of ticks in which one phase allocates; None: unknown phase."""

    phase: Phase | None
    start: int
    end: int


def find_steps(table: Table, contents: Contents, tasks: Tasks | None) -> Steps:
    """Return the steps of a trace; none if they cannot be determined."""
    eager = table.task.rows_in([EAGER]) & table.kind.rows_in(["PyNativeOutput"])
    in_graph = ~table.task.rows_in([EAGER]) & table.kind.rows_in(_OUTPUTS)
    if _is_dynamic(table, contents, eager, in_graph):
        ends = _after_updates(table, contents, eager)
        if ends:
            return Steps(tuple(ends), StepEvidence.UPDATE)
    if tasks is not None:
        actors = [code for code, name in enumerate(tasks.name.values) if name.endswith("_OutputActor")]
        stamps: list[list[int]] = [tasks.stamp[tasks.name.codes == code].tolist() for code in actors]
        last = max(
            stamps, key=lambda each: each[-1], default=None
        )  # another graph's actor may run earlier in every step
        if last is not None:
            return Steps(tuple(last), StepEvidence.ACTOR)
    ends = _ends_of_rounds(table, np.flatnonzero(in_graph))
    return Steps(tuple(ends), StepEvidence.REPETITION) if ends else Steps((), StepEvidence.NONE)


def _is_dynamic(table: Table, contents: Contents, eager: NDArray[np.bool_], in_graph: NDArray[np.bool_]) -> bool:
    # A static graph may run with eager operators next to it, such as MindFormers' barriers. The mode depends on who
    # runs the forward and backward pass and, if a part of them is compiled, on who updates the weights.
    if not eager.any():
        return False
    compiled = in_graph & contents.phases.rows_of(Phase.FORWARD, Phase.BACKWARD)
    if not compiled.any():
        return True
    updates = eager & contents.phases.rows_of(Phase.UPDATE)
    return bool((table.start[updates] > table.start[compiled].min()).any())


def _after_updates(table: Table, contents: Contents, eager: NDArray[np.bool_]) -> list[int]:
    # An in-place optimizer allocates nothing once its state exists, but it uses that state.
    passes = contents.phases.rows_of(Phase.FORWARD, Phase.BACKWARD)
    other = passes | (eager & (contents.phases.own_codes == 0))
    others = table.start[other & (table.start >= 0)]
    ticks = np.concatenate([contents.updates, others])
    order = np.argsort(ticks, kind="stable")
    is_update = (np.arange(len(ticks)) < len(contents.updates))[order]
    if not is_update.any() or is_update.all():
        return []
    last = np.flatnonzero(is_update & ~np.append(is_update[1:], False))
    # Eager code may run in the middle of an update; a step needs a real forward pass.
    between = np.diff(np.cumsum(~is_update)[last], prepend=0)
    most = int(between.max())
    ends = ticks[order[last]].tolist()
    return [end for end, count in zip(ends, between.tolist(), strict=True) if 4 * count > most]


def _ends_of_rounds(table: Table, rows: NDArray[np.int64]) -> list[int]:
    # Outputs of one launch have the same time stamp, so each launch counts once.
    if not len(rows):
        return []
    order = np.lexsort((table.start[rows], table.producer[rows], table.task.codes[rows]))
    name, producer = table.task.codes[rows][order], table.producer[rows][order]
    new_name = np.append([True], name[1:] != name[:-1])
    launch = np.cumsum(new_name | np.append([True], producer[1:] != producer[:-1]))
    first = np.flatnonzero(new_name)
    counts = np.append(launch[first[1:] - 1], launch[-1]) - launch[first] + 1
    rounds = Counter(counts.tolist()).most_common(1)[0][0]
    length = np.diff(np.append(first, len(name)))
    turn = launch - np.repeat(launch[first], length)
    regular = np.repeat(counts == rounds, length)
    ends = np.zeros(rounds, np.int64)
    np.maximum.at(ends, turn[regular], table.start[rows][order][regular])
    return [int(end) for end in ends] if (np.diff(ends) > 0).all() else []


def find_phase(table: Table, phase: NDArray[np.int8], tick: int) -> Phase | None:
    """Return the phase of the last block that was allocated up to a tick; None if unknown."""
    started = np.flatnonzero((table.start >= 0) & (table.start <= tick))
    if not len(started):
        return None
    start = table.start[started]
    latest = int(phase[started[np.flatnonzero(start == start.max())[-1]]])
    return ORDER[latest - 1] if latest else None


def find_phase_peaks(curve: Curve, table: Table, phase: NDArray[np.int8]) -> dict[Phase | None, tuple[int, int]]:
    """Return the most bytes in use while each phase allocates, and their first tick; None is the unknown phase.

    A release counts for the phase that allocated last.
    """
    rows = table.rows_by_start(table.start >= 0)
    place = np.searchsorted(table.start[rows], curve.tick, side="right") - 1
    current = np.where(place >= 0, phase[rows[np.maximum(place, 0)]], 0) if len(rows) else np.zeros(0, np.int8)
    found: dict[Phase | None, tuple[int, int]] = {}
    for code in np.unique(current).tolist():
        mine = np.flatnonzero(current == code)
        most = mine[int(curve.used[mine].argmax())]
        found[ORDER[code - 1] if code else None] = (int(curve.used[most]), int(curve.tick[most]))
    return found


def find_spans(table: Table, contents: Contents, most: int) -> tuple[StepSpan, ...]:
    """Return the phases over time for a picture, at most ``most``; shorter ones are merged into their neighbors."""
    codes = contents.phases.sure_codes
    rows = table.rows_by_start(table.start >= 0)
    if not (codes[rows] > 0).any():
        return ()
    phase, tick = codes[rows], table.start[rows]
    shortest = 0
    while True:
        first = np.flatnonzero(np.append([True], phase[1:] != phase[:-1]))
        if len(first) <= most:
            break
        length = np.diff(np.append(tick[first], tick[-1] + 1))
        shortest = max(2 * shortest, int(np.partition(length, len(length) - most)[len(length) - most]))
        keep = np.repeat(length >= shortest, np.diff(np.append(first, len(phase))))
        if keep.all() or not keep.any():
            first = first[:most]
            break
        phase, tick = phase[keep], tick[keep]
    finite = table.end[table.end != NEVER_FREED]
    end = max(int(table.start.max()), int(finite.max()) if len(finite) else 0)
    ends = [*tick[first[1:]].tolist(), end]
    return tuple(
        StepSpan(ORDER[phase[at] - 1] if phase[at] else None, int(tick[at]), int(stop))
        for at, stop in zip(first.tolist(), ends, strict=True)
    )


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """For each block, the launch that allocated it."""

    launch: NDArray[np.int64]  # index of each row's launch in the tasks, or `ms_tune.readers.table.NONE`
    joinable: NDArray[np.bool_]  # rows that should have a launch

    @property
    def joined_rows(self) -> int:
        """Return the number of rows that should have a launch and have one."""
        return int(((self.launch != NONE) & self.joinable).sum())

    @property
    def joinable_rows(self) -> int:
        """Return the number of rows that should have a launch."""
        return int(self.joinable.sum())


def join_tasks(table: Table, tasks: Tasks) -> Join:
    """Return the launch of every block: join ``memory_block.csv`` with ``task.csv``.

    In the dynamic graph ``producer_task`` is the launch's time stamp. In graph mode it is not: the allocating actor
    takes the counter's value without advancing it (``memory_manager_actor.cc``, ``AddTask(..., to_graph=false)``), so
    it usually belongs to an unrelated launch. The launch is the first one of the same task name from that number on.
    """
    eager = table.task.rows_in([EAGER])
    in_graph = ~eager & table.kind.rows_in(_LAUNCHED) & ~table.node.rows_in([SOMAS])
    launch = np.full(len(table), NONE, np.int64)
    launch[in_graph] = _join_by_name(table, tasks, np.flatnonzero(in_graph))
    wanted = table.producer[eager]
    place = np.searchsorted(tasks.stamp, wanted)
    hit = (place < len(tasks)) & (wanted != NONE)
    hit[hit] = tasks.stamp[place[hit]] == wanted[hit]
    launch[eager] = np.where(hit, place, NONE)
    return Join(launch, in_graph | (eager & table.kind.rows_in(_LAUNCHED_EAGERLY)))


def _join_by_name(table: Table, tasks: Tasks, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    known = {name: code for code, name in enumerate(tasks.name.values)}
    translate = np.array([known.get(name, NONE) for name in table.task.values] or [NONE], np.int64)
    name = translate[table.task.codes[rows]]
    # Stamps may use the whole 64 bits; ranks among all stamps are small enough to combine with the name in one integer.
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
