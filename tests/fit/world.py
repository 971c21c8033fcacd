"""Define an invented job whose memory follows from a few numbers, instead of dryruns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ms_tune.dialects.stage import StageLayerKind
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.fit.measure import Probe, RunFigures

if TYPE_CHECKING:
    from ms_tune.fit.job import PlannedJob
    from ms_tune.planning.table import PlanLists

MIB = 2**20


@dataclass(frozen=True, slots=True)
class World:
    """The true memory of an invented job, in MiB.

    Attributes:
        lasting: Persistent, per layer.
        activations: Per layer and micro-batch, by recompute mode.
        once: Per layer, independent of micro-batches.
        transient: While a layer is recomputed.
        late: On the last stage at the end of its forward pass.
        anyhow: Fixed, on the first, the middle, and the last stages.
        received: On every stage per micro-batch in flight.
        update: Per layer during the update of weights; 0 for no more than its persistent memory.
        fragments: Fragmentation on every stage.
        first: On the first stage as soon as one of its layers is fully recomputed.
        left: Per recomputed layer until its cell's backward pass ends.
        fetched: On every stage during the backward pass of a layer with swap.
        swapped: Per layer and micro-batch that is moved to the host.
        alone: Like ``transient``, for the first chunk's layers; None for the same value.
    """

    lasting: int = 1000
    activations: Mapping[RecomputeMode, int] = field(
        default_factory=lambda: {
            RecomputeMode.NONE: 300,
            RecomputeMode.SELECT: 300,
            RecomputeMode.COMM: 250,
            RecomputeMode.BOTH: 250,
            RecomputeMode.FULL: 30,
            RecomputeMode.SWAP: 40,
        }
    )
    once: Mapping[RecomputeMode, int] = field(default_factory=lambda: {RecomputeMode.FULL: -15})
    transient: int = 390
    late: int = 500
    anyhow: tuple[int, int, int] = (1500, 200, 1800)
    received: int = 32
    update: int = 0
    fragments: int = 300
    first: int = 0
    left: int = 0
    fetched: int = 280
    swapped: int = 230
    alone: int | None = None

    def figures(self, job: PlannedJob, probe: Probe) -> RunFigures:
        """Return the figures of a probe."""
        counts = _spread(probe.layers, job.chunks)
        return self._figures_of(job, probe, [{probe.recompute: count} for count in counts])

    def some(self, job: PlannedJob, probe: Probe) -> RunFigures:
        """Return the figures of a probe that fully recomputes some layers of each cell, or all of the first chunk."""
        _, _, number = probe.name.partition("some ")
        counts = _spread(probe.layers, job.chunks)
        number, _, chunk = number.partition(" of chunk ")
        full = [int(number)] * job.chunks if number else [counts[0], *[0] * (job.chunks - 1)]
        full = [count * (not chunk or int(chunk) == index) for index, count in enumerate(full)]
        cells = [
            {RecomputeMode.FULL: some, RecomputeMode.NONE: count - some}
            for some, count in zip(full, counts, strict=True)
        ]
        return self._figures_of(job, probe, cells)

    def _figures_of(self, job: PlannedJob, probe: Probe, cells: list[dict[RecomputeMode, int]]) -> RunFigures:
        peaks = self.peaks(job, probe.stage, cells)
        lasting = dict.fromkeys(peaks, self.lasting * probe.layers * MIB)
        if self.update:
            lasting["update"] = self.update * probe.layers * MIB
        kinds = {
            StageLayerKind(LayerKind.DENSE, kind, chunk=chunk if job.chunks > 1 else None): count
            for chunk, cell in enumerate(cells)
            for kind, count in cell.items()
            if count
        }
        held = job.first.pipeline.in_flight(probe.stage)
        footprint = max(peaks.values()) + self.fragments * MIB
        swapped = sum(cell.get(RecomputeMode.SWAP, 0) for cell in cells) * self.swapped * MIB
        return RunFigures(probe.stage, kinds, held, peaks, lasting, footprint, swapped)

    def peaks(self, job: PlannedJob, stage: int, cells: list[dict[RecomputeMode, int]]) -> dict[str, int]:
        """Return the peak of each phase of a stage with these layers, in bytes."""
        held = job.first.pipeline.in_flight(stage) or (1,)
        layers = sum(sum(cell.values()) for cell in cells)
        base = self.anyhow[0 if stage == 0 else 2 if stage == job.stages - 1 else 1]
        base += self.received * sum(held) // len(held) if 0 < stage < job.stages - 1 else 0
        kept = sum(
            count * (held[chunk] * self.activations[kind] + self.once.get(kind, 0))
            for chunk, cell in enumerate(cells)
            for kind, count in cell.items()
        )
        full = [chunk for chunk, cell in enumerate(cells) if cell.get(RecomputeMode.FULL, 0)]
        behind = min(
            (
                sum(n * self.activations[k] for k, n in cells[chunk].items() if k is not RecomputeMode.FULL)
                for chunk in full
            ),
            default=0,
        )
        piled = max((cells[chunk][RecomputeMode.FULL] - 1 for chunk in full), default=0)
        piled *= max(self.left - self.activations[RecomputeMode.FULL], 0)
        again = max(self.transient + self.left + piled - behind, 0) if full else 0
        if self.alone is not None:
            again = max((self._of_chunk(chunk, cells[chunk]) for chunk in full), default=0)
        swaps = [cell.get(RecomputeMode.NONE, 0) for cell in cells if cell.get(RecomputeMode.SWAP, 0)]
        again = max(again, self.fetched - min(swaps) * self.activations[RecomputeMode.NONE]) if swaps else again
        kept += self.first if full and stage == 0 else 0
        backward = base + layers * self.lasting + kept + again
        last = stage == job.stages - 1
        forward = base + layers * self.lasting + kept + (self.late if last else -1)
        update = base // 2 + layers * (self.update or self.lasting)
        return {"forward": forward * MIB, "backward": backward * MIB, "update": update * MIB}

    def _of_chunk(self, chunk: int, cell: dict[RecomputeMode, int]) -> int:
        behind = sum(count * self.activations[kind] for kind, count in cell.items() if kind is not RecomputeMode.FULL)
        return max((self.transient if chunk else self.alone or 0) - behind, 0)

    def peak(self, job: PlannedJob, plan: PlanLists, stage: int) -> int:
        """Return the peak of a stage of a plan, in bytes."""
        base = job.layers // (job.stages * job.chunks)
        cells = []
        for chunk in range(job.chunks):
            full = plan.recompute[chunk][stage]
            comm = plan.select_comm_recompute[chunk][stage] - full
            swap = plan.swap[chunk][stage] if plan.swap else 0
            none = base + plan.offset[chunk][stage] - full - comm - swap
            cells.append(
                {RecomputeMode.FULL: full, RecomputeMode.COMM: comm, RecomputeMode.SWAP: swap, RecomputeMode.NONE: none}
            )
        return max(self.peaks(job, stage, cells).values())


def _spread(layers: int, chunks: int) -> list[int]:
    share, rest = divmod(layers, chunks)
    return [share + (chunk < rest) for chunk in range(chunks)]
