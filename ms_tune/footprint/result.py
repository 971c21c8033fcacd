"""Define the results of :mod:`ms_tune.footprint.report`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ms_tune.diagnostics import Diagnostic
from ms_tune.enums import MemoryCategory
from ms_tune.errors import TraceError
from ms_tune.footprint.breakdown import LayerActivations, PeakBreakdown, Theory, break_down_memory, group_alike_layers
from ms_tune.footprint.category import CONTENTS, Contents
from ms_tune.footprint.curve import AddressMap, Curve, map_addresses
from ms_tune.footprint.dry_run import PlacedTensors
from ms_tune.footprint.layers import find_layer, find_location, find_operator
from ms_tune.footprint.lifetimes import Lifetimes
from ms_tune.footprint.phases import Phase
from ms_tune.footprint.remedies import ContentBytes, MemoryRemedy
from ms_tune.footprint.savings import RecomputeSaving
from ms_tune.footprint.steps import Join, Steps, StepSpan, find_phase, find_phase_peaks
from ms_tune.readers.dry_run import DryRunReport
from ms_tune.readers.folder import RankFiles
from ms_tune.readers.memory_block import DroppedRow
from ms_tune.readers.runtime_log import CommunicationOrder, RuntimeLog
from ms_tune.readers.table import Table
from ms_tune.readers.tensors import SizeOverflow, TensorType, TrackerGraph
from ms_tune.readers.tracker_tables import Tasks
from ms_tune.verdict.outcome import Verdict


@dataclass(frozen=True, slots=True, eq=False)
class RankReport:
    """The analysis of one rank."""

    files: RankFiles  # the files that it was read from
    rank: int | None  # its number; None if unknown
    table: Table  # the blocks on the device
    contents: Contents  # their categories
    curve: Curve  # memory over time
    tasks: Tasks | None  # the launches, if there is a `task.csv`
    graph: TrackerGraph | None  # the tensors, if there is a `tracker_graph.ir`
    collectives: CommunicationOrder | None  # the collective operations, if there is a `comm_execute_order.csv`
    log: RuntimeLog | None  # the log, if there is one
    join: Join | None  # blocks and launches
    steps: Steps  # the training steps
    spans: tuple[StepSpan, ...]  # the phases over time, few enough for a picture
    lifetimes: Lifetimes  # how long blocks live
    map: AddressMap  # the address space at the peak
    peak: PeakBreakdown  # the memory at the peak by layer, category and other groups
    activations: tuple[LayerActivations, ...]  # activations of the layers at the peak
    recompute: RecomputeSaving  # the saving of full recomputation of all layers
    theory: Theory  # expected memory of weights, gradients and optimizer state
    verdict: Verdict  # whether it fits
    overflow: SizeOverflow | None = None  # a tensor that is larger than its block
    sample: tuple[int, int] | None = None  # layers that the sample ran and that its stage has; None for a whole stage
    # Layers of the stage and of the runs that all figures are extrapolated from; None if the trace was recorded.
    extrapolation: tuple[int, tuple[int, ...]] | None = None
    # The same if the trace is a sample and only the savings of `remedies` are scaled, linearly, to the stage.
    scaled_from: tuple[int, tuple[int, ...]] | None = None
    host_rows: int = 0  # blocks in the pool of host memory; no other figure includes them
    host_bytes: int = 0  # their peak
    host_moved_bytes: int = 0  # bytes moved to the host during the whole trace
    # Errors of optional files that are unreadable.
    unread: tuple[TraceError, ...] = ()
    dry_run: DryRunReport | None = None  # the JSON file of a HyperParallel dry-run
    placed: PlacedTensors | None = None  # its tensors in PyTorch's allocator
    held_at_peak: tuple[ContentBytes, ...] = ()  # the memory at the peak by phase and content
    remedies: tuple[MemoryRemedy, ...] = ()  # ways to reduce the peak, the largest saving first
    findings: tuple[Diagnostic, ...] = ()  # findings of this rank

    @property
    def limit_bytes(self) -> int | None:
        """Return the memory that MindSpore can use of the device; None if unknown."""
        return self.verdict.limit.bytes if self.verdict.limit is not None else None

    def tensor_of(self, row: int) -> str:
        """Return the number format and shape of the tensor in a row; empty if unknown."""
        return describe_tensor(self.table, self.graph, row)

    def layer_of(self, row: int) -> str:
        """Return the layer of the model that a row belongs to; empty if unknown."""
        return find_layer(self.table, row, self.contents.names.get(row))

    def operator_of(self, row: int) -> str:
        """Return the operator that allocated a row."""
        return find_operator(self.table, row)

    def location_of(self, row: int) -> str:
        """Return the place in the script or model where a row was allocated."""
        return find_location(self.table, row)

    def content_of(self, row: int) -> MemoryCategory:
        """Return the category of a row."""
        return CONTENTS[int(self.contents.codes[row])]

    def final_map(self) -> AddressMap:
        """Return the address space after the last tick."""
        last = int(self.curve.tick[-1]) if len(self.curve.tick) else 0
        return map_addresses(self.table, self.curve, last)

    def refused_rows(self) -> dict[str, tuple[int, Sequence[DroppedRow]]]:
        """Return the number of rejected rows of each file, and some of them; files without any are omitted."""
        read = (
            (self.files.tasks, self.tasks),
            (self.files.graph, self.graph),
            (self.files.collectives, self.collectives),
        )
        counts = {self.files.blocks.name: (self.table.dropped_count, self.table.dropped)}
        counts |= {path.name: (content.dropped_count, content.dropped) for path, content in read if path and content}
        return {name: (count, rows) for name, (count, rows) in counts.items() if count}

    def breakdown_at(self, tick: int) -> PeakBreakdown:
        """Return the breakdown of the memory at a tick."""
        return break_down_memory(self.table, self.contents, self.curve, tick, self.tensor_of)

    def alike_layers(self) -> tuple[tuple[LayerActivations, ...], ...]:
        """Return the layers that keep activations; neighbors that keep as much are grouped."""
        return group_alike_layers(self.activations)

    def phase_at_peak(self) -> Phase | None:
        """Return the phase that allocates at the peak; None if unknown."""
        return find_phase(self.table, self.contents.phases.sure_codes, self.curve.peak_tick)

    def peak_by_phase(self) -> dict[Phase | None, int]:
        """Return the most bytes in use while each phase of a training step allocates; None is the unknown phase."""
        found = find_phase_peaks(self.curve, self.table, self.contents.phases.sure_codes)
        return {phase: used for phase, (used, _) in found.items()}

    def padding_at_peak(self) -> int | None:
        """Return the alignment padding at the peak; None without a graph file."""
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
    """The analysis of a run.

    Attributes:
        source: The path that the user named.
        ranks: The ranks, by number.
        stages: The pipeline stage of each rank, if the layers of its parameters determine it.
        findings: Findings that compare ranks.
    """

    source: Path
    ranks: tuple[RankReport, ...]
    stages: tuple[int | None, ...]
    findings: tuple[Diagnostic, ...]

    @property
    def worst(self) -> RankReport:
        """Return the rank with the worst verdict and the highest peak."""
        return max(self.ranks, key=lambda rank: (rank.verdict.severity, rank.curve.peak_bytes))

    @property
    def all_findings(self) -> tuple[Diagnostic, ...]:
        """Return the findings that compare ranks, then those of every rank."""
        return (*self.findings, *(finding for rank in self.ranks for finding in rank.findings))


def find_tensor(table: Table, graph: TrackerGraph | None, row: int) -> TensorType | None:
    """Return the tensor in a row; None if unknown."""
    return graph.tensors.get(int(table.start[row])) if graph is not None else None


def describe_tensor(table: Table, graph: TrackerGraph | None, row: int) -> str:
    """Return the number format and shape of the tensor in a row; empty if unknown."""
    tensor = find_tensor(table, graph, row)
    return str(tensor) if tensor is not None else ""
