"""A trace from its files to everything that is said about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from ms_tune.errors import TraceError
from ms_tune.memory.contents import CONTENTS, Content, Contents
from ms_tune.memory.curve import curve_of
from ms_tune.memory.findings import findings_between, findings_of
from ms_tune.memory.fragments import address_map
from ms_tune.memory.groups import activations_by_layer, breakdown
from ms_tune.memory.joining import join
from ms_tune.memory.lifetimes import lifetimes_of
from ms_tune.memory.places import layer_at, operator_at, where_at
from ms_tune.memory.recompute import recompute_of
from ms_tune.memory.stages import stages_of
from ms_tune.memory.steps import peaks_by_phase, spans_of, steps_of
from ms_tune.memory.theory import theory_of
from ms_tune.texts import msg
from ms_tune.trace.block_table import read_block_table
from ms_tune.trace.comm_order import read_communication_order
from ms_tune.trace.folder import find_trace
from ms_tune.trace.runtime_log import read_runtime_log
from ms_tune.trace.task import read_tasks
from ms_tune.trace.tensor_list import read_tensor_list
from ms_tune.trace.tracker_graph import read_tracker_graph
from ms_tune.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ms_tune.memory.curve import Curve
    from ms_tune.memory.findings import MemoryFinding
    from ms_tune.memory.fragments import AddressMap
    from ms_tune.memory.groups import Breakdown, LayerActivations
    from ms_tune.memory.joining import Join
    from ms_tune.memory.lifetimes import Lifetimes
    from ms_tune.memory.phases import Phase
    from ms_tune.memory.recompute import Recompute
    from ms_tune.memory.steps import Span, Steps
    from ms_tune.memory.theory import Theory
    from ms_tune.trace.comm_order import CommunicationOrder
    from ms_tune.trace.folder import RankFiles
    from ms_tune.trace.memory_block import DroppedRow
    from ms_tune.trace.runtime_log import RuntimeLog
    from ms_tune.trace.table import Table
    from ms_tune.trace.task import Tasks
    from ms_tune.trace.tracker_graph import TensorType, TrackerGraph

Held = TypeVar("Held")

_MOST_SPANS = 400  # more phases than that nobody can see


@dataclass(frozen=True, slots=True, eq=False)
class RankReport:
    """What is known about one rank.

    Attributes:
        files: Where it comes from.
        rank: Its number; None if nothing tells.
        table: The blocks on the device.
        contents: What they hold.
        curve: Memory over time.
        tasks: The launches, if there is a ``task.csv``.
        graph: The tensors, if there is a ``tracker_graph.ir``.
        collectives: The collective operations, if there is a ``comm_execute_order.csv``.
        log: What the log says, if there is one.
        join: Blocks and launches.
        steps: The training steps.
        spans: The phases over time.
        lifetimes: How long blocks live.
        map: The address space at the peak.
        peak: The memory at the peak, taken apart.
        activations: What the layers keep for the backward pass at the peak.
        recompute: What full recompute of all layers would save of them.
        theory: What weights, gradients and optimizer state should need.
        limit_bytes: What MindSpore may use of the device, if the log or the user says.
        host_rows: Blocks in the pool of host memory, which no other figure counts.
        host_bytes: The most bytes that they take at once.
        unread: Why files that help the analysis, but that it can do without, could not be read.
        findings: What is worth saying.
    """

    files: RankFiles
    rank: int | None
    table: Table
    contents: Contents
    curve: Curve
    tasks: Tasks | None
    graph: TrackerGraph | None
    collectives: CommunicationOrder | None
    log: RuntimeLog | None
    join: Join | None
    steps: Steps
    spans: tuple[Span, ...]
    lifetimes: Lifetimes
    map: AddressMap
    peak: Breakdown
    activations: tuple[LayerActivations, ...]
    recompute: Recompute
    theory: Theory
    limit_bytes: int | None
    host_rows: int = 0
    host_bytes: int = 0
    unread: tuple[TraceError, ...] = ()
    findings: tuple[MemoryFinding, ...] = ()

    def tensor_of(self, row: int) -> str:
        """Number format and shape of the tensor in a row; empty if unknown."""
        return _tensor_of(self.table, self.graph, row)

    def layer_of(self, row: int) -> str:
        """The layer of the model that a row belongs to; empty if unknown."""
        return layer_at(self.table, row, self.contents.names.get(row))

    def operator_of(self, row: int) -> str:
        """The operator that allocated a row."""
        return operator_at(self.table, row)

    def where_of(self, row: int) -> str:
        """Where in the script or the model a row was allocated."""
        return where_at(self.table, row)

    def content_of(self, row: int) -> Content:
        """What a row holds."""
        return CONTENTS[int(self.contents.codes[row])]

    def final_map(self) -> AddressMap:
        """The address space after the last tick."""
        last = int(self.curve.tick[-1]) if len(self.curve.tick) else 0
        return address_map(self.table, self.curve, last)

    def refused(self) -> dict[str, tuple[int, Sequence[DroppedRow]]]:
        """How many rows of each file were refused, and some of them; without the files of which none was."""
        read = (
            (self.files.tasks, self.tasks),
            (self.files.graph, self.graph),
            (self.files.collectives, self.collectives),
        )
        counts = {self.files.blocks.name: (self.table.dropped_count, self.table.dropped)}
        counts |= {path.name: (held.dropped_count, held.dropped) for path, held in read if path and held}
        return {name: (count, rows) for name, (count, rows) in counts.items() if count}

    def at(self, tick: int) -> Breakdown:
        """The memory at a tick, taken apart."""
        return breakdown(self.table, self.contents, self.curve, tick, self.tensor_of)

    def peak_by_phase(self) -> dict[Phase, int]:
        """The most bytes in use while each phase of a training step allocates."""
        return peaks_by_phase(self.curve, self.spans)

    def padding_at_peak(self) -> int | None:
        """Bytes at the peak that are alignment only; None if no graph file tells the tensors' sizes."""
        if self.graph is None:
            return None
        padding = 0
        for row in self.peak.rows.tolist():
            tensor = self.graph.tensors.get(int(self.table.start[row]))
            if tensor is not None and tensor.bytes is not None and tensor.bytes <= self.table.size[row]:
                padding += int(self.table.size[row]) - tensor.bytes
        return padding


@dataclass(frozen=True, slots=True, eq=False)
class MemoryReport:
    """What is known about a run.

    Attributes:
        source: What the user named.
        ranks: The ranks, by number.
        stages: The pipeline stage of each rank, as far as the layers of its parameters tell.
        findings: Findings that compare ranks.
    """

    source: Path
    ranks: tuple[RankReport, ...]
    stages: tuple[int | None, ...]
    findings: tuple[MemoryFinding, ...]

    @property
    def worst(self) -> RankReport:
        """The rank that needs most."""
        return max(self.ranks, key=lambda rank: rank.curve.peak_bytes)

    @property
    def all_findings(self) -> tuple[MemoryFinding, ...]:
        """The findings that compare ranks, then those of every rank."""
        return (*self.findings, *(finding for rank in self.ranks for finding in rank.findings))


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user asks for.

    Attributes:
        ranks: The ranks to look at; empty for all.
        limit_bytes: What MindSpore may use, where the log does not count.
        with_graph: Whether to read ``tracker_graph.ir``, which takes longest.
    """

    ranks: frozenset[int] = frozenset()
    limit_bytes: int | None = None
    with_graph: bool = True


def analyse(path: Path, wish: Wish, on_bytes: Callable[[int, int], None]) -> MemoryReport:
    """Everything about the trace at a place.

    Args:
        path: A ``memory_block.csv``, its folder, or a folder of ranks.
        wish: What the user asks for.
        on_bytes: Told the bytes read so far, and the bytes of all files.

    Raises:
        TraceError: There is no trace, or it cannot be read.
    """
    found = find_trace(path)
    chosen = [files for files in found.ranks if not wish.ranks or files.rank in wish.ranks]
    if not chosen:
        present = ", ".join(str(files.rank) for files in found.ranks if files.rank is not None)
        raise TraceError(msg("memory.no-such-rank", ranks=present or "–"), path=path)
    total = sum(_bytes(files, wish) for files in chosen)
    progress = _Counter(total, on_bytes)
    ranks = tuple(analyse_rank(files, wish, progress.add) for files in chosen)
    return MemoryReport(path, ranks, stages_of(ranks), findings_between(ranks, stale=found.stale))


def analyse_rank(files: RankFiles, wish: Wish, on_bytes: Callable[[int], None]) -> RankReport:
    """Everything about one rank."""
    everything = read_block_table(files.blocks, on_bytes)
    on_device = everything.on_device()
    table = everything if on_device.all() else everything.only(on_device)
    unread: list[TraceError] = []
    tasks = _optional(lambda path: read_tasks(path, on_bytes), files.tasks, unread)
    graph = _optional(lambda path: read_tracker_graph(path, on_bytes), files.graph if wish.with_graph else None, unread)
    log = _optional(read_runtime_log, files.log, unread)
    contents = Contents(table, _optional(read_tensor_list, files.tensors, unread))
    curve = curve_of(table)
    steps = steps_of(table, contents, tasks)
    parts = breakdown(table, contents, curve, curve.peak_tick, lambda row: _tensor_of(table, graph, row))
    activations = activations_by_layer(parts)
    limit = wish.limit_bytes
    if limit is None and log is not None and log.statistics is not None:
        limit = log.statistics.used_mib * MIB
    report = RankReport(
        files=files,
        rank=files.rank,
        table=table,
        contents=contents,
        curve=curve,
        tasks=tasks,
        graph=graph,
        collectives=_optional(read_communication_order, files.collectives, unread),
        log=log,
        join=join(table, tasks) if tasks is not None else None,
        steps=steps,
        spans=spans_of(table, contents, _MOST_SPANS),
        lifetimes=lifetimes_of(table, contents, curve, steps),
        map=address_map(table, curve, curve.peak_tick),
        peak=parts,
        activations=activations,
        recompute=recompute_of(table, contents, curve),
        theory=theory_of(table, contents, parts, lambda row: _type_of(table, graph, row)),
        limit_bytes=limit,
        host_rows=len(everything) - len(table),
        host_bytes=0 if table is everything else curve_of(everything.only(~on_device)).peak_bytes,
        unread=tuple(unread),
    )
    return replace(report, findings=findings_of(report))


def _optional(read: Callable[[Path], Held], path: Path | None, unread: list[TraceError]) -> Held | None:
    """What a file holds; None if there is none, or if it cannot be read: then that is told and the analysis goes on."""
    if path is None:
        return None
    try:
        return read(path)
    except TraceError as error:
        unread.append(error)
        return None


def _type_of(table: Table, graph: TrackerGraph | None, row: int) -> TensorType | None:
    return graph.tensors.get(int(table.start[row])) if graph is not None else None


def _tensor_of(table: Table, graph: TrackerGraph | None, row: int) -> str:
    tensor = _type_of(table, graph, row)
    return str(tensor) if tensor is not None else ""


def _bytes(files: RankFiles, wish: Wish) -> int:
    wanted: Sequence[Path | None] = (files.blocks, files.tasks, files.graph if wish.with_graph else None)
    return sum(path.stat().st_size for path in wanted if path is not None)


class _Counter:
    """Adds up the bytes that were read."""

    def __init__(self, total: int, on_bytes: Callable[[int, int], None]) -> None:
        self._done, self._total, self._on_bytes = 0, total, on_bytes

    def add(self, count: int) -> None:
        """Some more bytes."""
        self._done += count
        self._on_bytes(self._done, self._total)
