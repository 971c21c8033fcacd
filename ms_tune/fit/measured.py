"""Derive memory per layer from small dryruns: lines per stage, and layers that are kept, recomputed or swapped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.fit.calibration_runs import JobLayers
from ms_tune.fit.linear_fit import (
    FreedByRecompute,
    LayerBytes,
    MemoryLine,
    RecomputeTransient,
    find_alike_phases,
    fit_first_chunk_transient,
    fit_freed,
    fit_layer_bytes,
    fit_lines,
    fit_mode_lines,
    fit_transient,
    fully_recomputed,
    persistent_slope,
    split_by_moment,
    with_first_chunk,
)
from ms_tune.fit.measure import Probe, RunFigures

_BACKWARD = "backward"
_TWO = 2  # runs that define a line; lines that determine a layer's activations


class StageMeasurements:
    """Measurements of a job's stages, with a line fitted for each phase."""

    def __init__(
        self,
        seen: Sequence[tuple[Probe, RunFigures]],
        model: JobLayers,
        some: Sequence[RunFigures] = (),
        first: Sequence[RunFigures] = (),
    ) -> None:
        self.model = model
        self._runs: dict[tuple[LayerKind, RecomputeMode, int], list[RunFigures]] = {}
        for probe, figures in seen:
            self._runs.setdefault((probe.make, probe.recompute, probe.stage), []).append(figures)
        for runs in self._runs.values():
            runs.sort(key=lambda figures: figures.layers)
        # Runs that fully recompute some layers of each cell and no others; some layers of only the first chunk; and all layers of
        # only the first chunk (set once they have run).
        self._some: dict[int, list[RunFigures]] = {}
        for figures in some:
            self._some.setdefault(figures.stage, []).append(figures)
        self._first = {figures.stage: figures for figures in first}
        self.only_first_chunk: dict[int, RunFigures] = {}
        self._lines = {key: fit_lines(*runs[:2]) for key, runs in self._runs.items() if len(runs) > 1}

    def line_stages(self, make: LayerKind) -> list[int]:
        """Return the stages that have lines."""
        return sorted(stage for made, kind, stage in self._lines if (made, kind) == (make, RecomputeMode.NONE))

    def measured_modes(self) -> list[RecomputeMode]:
        """Return the measured recompute modes."""
        return list(dict.fromkeys(kind for made, kind, _ in self._runs if made == self.model.main))

    def smallest_run(self, make: LayerKind, kind: RecomputeMode, stage: int) -> RunFigures | None:
        """Return the run with the fewest layers, or None."""
        runs = self._runs.get((make, kind, stage))
        return runs[0] if runs else None

    def largest_run(self, make: LayerKind, kind: RecomputeMode, stage: int) -> RunFigures | None:
        """Return the run with the most layers, or None."""
        runs = self._runs.get((make, kind, stage))
        return runs[-1] if runs else None

    def persistent_bytes(self, make: LayerKind) -> Fraction:
        """Return the persistent memory per layer."""
        stages = self.line_stages(make)
        return persistent_slope([line for stage in stages for line in self._lines[make, RecomputeMode.NONE, stage]])

    def usual_lines(self, make: LayerKind, kind: RecomputeMode, stage: int) -> dict[str, MemoryLine]:
        """Return, by phase, the memory lines of moments at which layers use only persistent memory and activations."""
        plain = self._lines[make, RecomputeMode.NONE, stage]
        lines = self._lines.get((make, kind, stage))
        if lines is None:
            few, one = self.smallest_run(make, RecomputeMode.NONE, stage), self.smallest_run(make, kind, stage)
            lines = () if few is None or one is None else tuple(fit_mode_lines(one, few, plain))
        found, _ = split_by_moment(lines, self.persistent_bytes(make))
        return {line.phase: line for line in found}

    def update_lines(self, make: LayerKind, stage: int) -> list[MemoryLine]:
        """Return the lines of the moments at which layers use more persistent memory than usual, in any recompute mode."""
        found: list[MemoryLine] = []
        for kind in (RecomputeMode.NONE, RecomputeMode.FULL, RecomputeMode.SWAP):
            usual, others = split_by_moment(self._lines.get((make, kind, stage), ()), self.persistent_bytes(make))
            found += others
            if kind is RecomputeMode.FULL and self.peaks_at_reduction:
                found += usual
        return found

    def highest_line(self, make: LayerKind, kind: RecomputeMode, stage: int) -> MemoryLine | None:
        """Return the line with the highest peak for all layers of the stage; None without lines."""
        lines = self.usual_lines(make, kind, stage).values()
        whole = self.model.per_stage[stage]
        return max(lines, key=lambda line: (line.bytes_with(whole), line.slope), default=None)

    def fragment_bytes(self, stages: int) -> tuple[int, ...]:
        """Return the fragmentation of each stage in small runs; more layers add almost none."""
        lost: dict[int, int] = {}
        for (_, _, stage), runs in self._runs.items():
            most = max(figures.footprint_bytes - figures.peak for figures in runs)
            lost[stage] = max(lost.get(stage, 0), most, 0)
        middle = max((size for stage, size in lost.items() if 0 < stage < stages - 1), default=max(lost.values()))
        return tuple(lost.get(stage, middle) for stage in range(stages))

    def deciding_phase(self, make: LayerKind, stage: int) -> str:
        """Return the phase with the highest peak for all layers of the stage, without recomputation."""
        highest = self.highest_line(make, RecomputeMode.NONE, stage)
        return highest.phase if highest is not None else _BACKWARD

    def deciding_lines(self, make: LayerKind, kind: RecomputeMode) -> list[MemoryLine]:
        """Return one memory line per stage: of the phase that peaks without recomputation, or else the highest of this mode."""
        stages = [stage for stage in self.line_stages(make) if (make, kind, stage) in self._runs]
        lines = [self.usual_lines(make, kind, stage).get(self.deciding_phase(make, stage)) for stage in stages]
        if None in lines:
            lines = [self.highest_line(make, kind, stage) for stage in stages]
        return [line for line in lines if line is not None]

    def layer_bytes(self, make: LayerKind, kind: RecomputeMode) -> LayerBytes | None:
        """Return the memory that a layer adds to any stage, or None if unknown."""
        runs = [stage for made, other, stage in self._runs if (made, other) == (make, kind)]
        drawn = any((make, kind, stage) in self._lines for stage in runs)
        if not drawn or len(runs) == 1 < len(self.line_stages(make)):
            return self._fit_savings(make, kind, runs)
        lines = self.deciding_lines(make, kind)
        if kind is RecomputeMode.FULL and make == self.model.main and self.freed_by_stage:
            lines = [freed.line for freed in self.freed_by_stage.values()]
            # Extra memory of the last stage is measured separately, and the other lines are exact.
            lines = lines[:-1] if len(lines) > _TWO else lines
        return fit_layer_bytes(lines) if lines else None

    def _fit_savings(self, make: LayerKind, kind: RecomputeMode, stages: Sequence[int]) -> LayerBytes | None:
        # Fit a layer of a mode that was run in one size, as savings relative to no recomputation, per micro-batch in flight. With
        # two stages, savings that do not depend on micro-batches in flight are distinguished.
        plain, freed = self.layer_bytes(make, RecomputeMode.NONE), []
        for stage in stages:
            usual = self.usual_lines(make, RecomputeMode.NONE, stage)
            phase = self.deciding_phase(make, stage)
            line = self.usual_lines(make, kind, stage).get(phase) or self.highest_line(make, kind, stage)
            if line is not None and line.phase in usual:
                freed.append(replace(line, slope=usual[line.phase].slope - line.slope, persistent=Fraction(0)))
        if plain is None or not freed:
            return None
        less = fit_layer_bytes(freed)
        return replace(
            plain, activations=plain.activations - less.activations, once_bytes=plain.once_bytes - less.once_bytes
        )

    @cached_property
    def peaks_at_reduction(self) -> bool:
        """Return whether fully recomputed stages peak while gradients are reduced, which needs a copy of each layer's gradients.

        Seen with a sharded optimizer and several chunks. Activations are not part of that peak.
        """
        lines = self.deciding_lines(self.model.main, RecomputeMode.FULL)
        return bool(lines) and not fit_layer_bytes(lines).plausible

    def swapped_bytes(self, make: LayerKind) -> int:
        """Return the bytes of a layer's activations copied to the host per micro-batch when layers swap."""
        for (made, kind, _), runs in self._runs.items():
            if (made, kind) == (make, RecomputeMode.SWAP) and len(runs) > 1:
                return max(0, (runs[1].swapped_bytes - runs[0].swapped_bytes) // (runs[1].layers - runs[0].layers))
        return 0

    def fetched_bytes(self, make: LayerKind) -> int:
        """Return the bytes that stages need on top while a swapped layer is in its backward pass."""
        more = [
            self.base_bytes(make, RecomputeMode.SWAP, stage) - self.base_bytes(make, RecomputeMode.NONE, stage)
            for stage in self.line_stages(make)
            if self.highest_line(make, RecomputeMode.SWAP, stage) is not None
        ]
        return max(0, round(max(more, default=Fraction(0))))

    @cached_property
    def freed_by_stage(self) -> dict[int, FreedByRecompute]:
        """Return the memory that full recomputation frees, for every stage with lines; empty if it is unknown for one of them."""
        main = self.model.main
        found: dict[int, FreedByRecompute] = {}
        for stage in self.line_stages(main) if RecomputeMode.FULL in self.measured_modes() else ():
            plain = self.highest_line(main, RecomputeMode.NONE, stage)
            if plain is None:
                return {}
            one = fit_freed(plain, self._some.get(stage, ()), main, self._freed_by_dense(stage))
            if one is None:
                return {}
            found[stage] = with_first_chunk(one, plain, self._first[stage], main) if stage in self._first else one
        return found

    def _freed_by_dense(self, stage: int) -> Fraction:
        # Return the memory freed by fully recomputing a dense layer of the first chunk, where most layers have experts.
        if self.model.main is LayerKind.DENSE:
            return Fraction(0)
        phase = self.deciding_phase(self.model.main, stage)
        plain, full = (
            next((line for line in self._lines.get((LayerKind.DENSE, kind, stage), ()) if line.phase == phase), None)
            for kind in (RecomputeMode.NONE, RecomputeMode.FULL)
        )
        few = self.smallest_run(LayerKind.DENSE, RecomputeMode.NONE, stage)
        if plain is None or full is None or few is None:
            return Fraction(0)
        return (plain.slope - full.slope) * (few.in_flight or (1,))[0] / plain.in_flight

    def recompute_transient(self, stage: int) -> RecomputeTransient:
        """Return the transient memory of a stage while its layers are recomputed."""
        main = self.model.main
        freed, plain = self.freed_by_stage.get(stage), self.highest_line(main, RecomputeMode.NONE, stage)
        runs = self._runs.get((main, RecomputeMode.FULL, stage), [])
        if freed is None or plain is None:
            return RecomputeTransient()
        if self.peaks_at_reduction:
            alone = self.only_first_chunk.get(stage)
            return RecomputeTransient() if alone is None else fit_first_chunk_transient(freed, plain, alone, main)
        full = self.layer_bytes(main, RecomputeMode.FULL)
        phases = self.usual_lines(main, RecomputeMode.FULL, stage)
        if len(runs) < _TWO or full is None or not phases:
            return RecomputeTransient()
        whole = []
        for figures in runs[:_TWO]:
            peaks = {phase: peak for phase, peak in figures.phase_peaks.items() if phase in phases}
            whole.append((replace(figures, phase_peaks=peaks), plain.bytes_with(figures.layers)))
        return fit_transient(freed, whole, main, max(full.activations, Fraction(0)))

    def first_chunk_transient(
        self, stage: int, layers: Mapping[LayerKind, Mapping[RecomputeMode, LayerBytes]]
    ) -> Fraction | None:
        """Return the transient memory when only the first chunk is fully recomputed; None if no run measures it."""
        main, figures = self.model.main, self.only_first_chunk.get(stage)
        plain = self.highest_line(main, RecomputeMode.NONE, stage)
        few = self.smallest_run(main, RecomputeMode.NONE, stage)
        if figures is None or plain is None or few is None:
            return None
        in_flight = Fraction((figures.in_flight or (1,))[0])
        freed = Fraction(0)
        for kind, count in fully_recomputed(figures):
            rows = layers.get(kind.make, layers[main])
            freed += count * (
                rows[RecomputeMode.NONE].total_bytes(in_flight) - rows[RecomputeMode.FULL].total_bytes(in_flight)
            )
        peaks = [figures.phase_peaks[phase] for phase in find_alike_phases(figures, few, plain.persistent)]
        return max(max(peaks) - plain.bytes_with(figures.layers) + freed, Fraction(0)) if peaks else None

    def base_bytes(self, make: LayerKind, kind: RecomputeMode, stage: int) -> Fraction:
        """Return the bytes that a stage needs without any layer, at the moment of its peak."""
        highest = self.highest_line(make, kind, stage)
        return highest.base if highest else Fraction(0)

    def persistent_base(self, make: LayerKind, stage: int) -> Fraction:
        """Return the bytes of weights, optimizer state and gradients that a stage needs without any layer."""
        few = self.smallest_run(make, RecomputeMode.NONE, stage)
        highest = self.highest_line(make, RecomputeMode.NONE, stage)
        if few is None or highest is None:
            return Fraction(0)
        return few.phase_persistent[highest.phase] - highest.persistent * few.layers
