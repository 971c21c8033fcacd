"""Derive a full stage from runs with fewer layers, judge it, and compute the memory that recomputing one layer would free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from ms_tune.dialects.stage import StageLayerKind
from ms_tune.dryrun.extrapolate import combine_figures
from ms_tune.dryrun.plan import StagePlan
from ms_tune.dryrun.request import DryrunRequest, PreparedRun, untraced_needs
from ms_tune.dryrun.result import Extrapolation, Reading
from ms_tune.enums import MemoryCategory, RecomputeMode
from ms_tune.footprint.breakdown import PeakBreakdown
from ms_tune.footprint.category import CONTENTS
from ms_tune.footprint.judgement import list_communicators, list_doubts
from ms_tune.footprint.phases import Phase
from ms_tune.footprint.result import RankReport
from ms_tune.footprint.whole_stage import ALIKE, replay_stage
from ms_tune.text import msg
from ms_tune.units import gib
from ms_tune.verdict.limit import device_of, limit_of
from ms_tune.verdict.outcome import Need, Verdict, judge
from ms_tune.verdict.run_record import RankRecord, StageRun

_KEPT = MemoryCategory.ACTIVATIONS


def extrapolate_stage(plan: StagePlan, readings: Sequence[Reading]) -> Extrapolation | None:
    """Return the full stage; None if it was not requested or the runs cannot determine it."""
    if not plan.factors or plan.full_layers is None:
        return None
    runs = [(run.layers, run.layer_counts) for run in plan.runs]
    return derive_stage(plan.full_layers, runs, plan.factors, readings)


def derive_stage(
    layers: int,
    runs: Sequence[tuple[int, Mapping[StageLayerKind, int]]],
    factors: Sequence[Fraction],
    readings: Sequence[Reading],
) -> Extrapolation:
    """Return a stage with ``layers`` layers, derived from runs with fewer, the smallest first.

    Each phase of the step has its own peak, which grows with the layers at its own rate; the largest of them in the
    full stage is its peak, even if another phase is the largest in the runs.
    """
    moments = [(phase, combine_figures(sizes, factors), parts) for phase, sizes, parts in _common_moments(readings)]
    _, peak, parts = max(moments, key=lambda moment: moment[1])
    sizes = [sum(part.contents.values()) for part in parts]
    (fewest, first), (most, last) = runs[0], runs[-1]
    footprints = _replay_footprints(peak, readings, factors, fewest)
    return Extrapolation(
        layers=layers,
        from_layers=tuple(count for count, _ in runs),
        peak_bytes=peak,
        need=_need_of(peak, readings, footprints),
        contents={
            content: combine_figures([part.contents[content] for part in parts], factors) for content in CONTENTS
        },
        layer_bytes=(sizes[-1] - sizes[0]) // (most - fewest),
        phases={phase: size for phase, size, _ in moments if phase is not None},
        layer_activations=_layer_activations(parts[0], parts[-1])
        // max(1, _count_not_recomputed(last) - _count_not_recomputed(first)),
        weights=tuple(factors),
        replayed=bool(footprints),
        traces=tuple(reading.trace for reading in readings),
    )


def record_stage(record: RankRecord, whole: Extrapolation, folder: Path) -> RankRecord:
    """Return the record of a rank of a run folder with its derived stage."""
    folders = [trace.parent.relative_to(folder).as_posix() for trace in whole.traces]
    runs = zip(whole.from_layers, whole.weights, folders, strict=True)
    return replace(
        record,
        run_layers=whole.from_layers[0],
        stage_layers=whole.layers,
        stage_need=whole.need,
        stage_runs=tuple(StageRun(*run) for run in runs),
        replayed=whole.replayed,
    )


def judge_stage(
    request: DryrunRequest, plan: StagePlan, reading: Reading, whole: Extrapolation | None, folder: Path
) -> tuple[RankRecord, Verdict]:
    """Return the record of a stage for other commands, and the verdict about it."""
    run, report = plan.run, reading.report
    groups = list_communicators(report.collectives, report.log, run.rank)
    outside = untraced_needs(request).with_groups(groups)
    if not outside.communicators and run.world_size > 1:
        outside = outside._replace(communicators=run.split.communicators, counted=False)
    limit = limit_of(device_of(request.chip, request.device_bytes), run.max_device_memory, run.limited_by)
    need = Need.of_trace(reading.peak_bytes, reading.footprint_bytes)
    card = limit.device.card_bytes
    doubts = list(list_doubts(report.table, report.curve, report.log, report.overflow, card))
    record = RankRecord(run.max_device_memory, run.limited_by, outside)
    if whole is not None:
        need = whole.need
        record = record_stage(record, whole, folder)
    elif plan.reason is not None:
        doubts.append(plan.reason)
        record = replace(record, run_layers=run.layers, stage_layers=plan.full_layers or run.layers)
    return record, judge(need, limit, outside, doubts)


def _common_moments(readings: Sequence[Reading]) -> list[tuple[Phase | None, list[int], list[PeakBreakdown]]]:
    phases = list(readings[0].phase_peaks)
    if any(set(reading.phase_peaks) != set(phases) for reading in readings):
        return [(None, [reading.peak_bytes for reading in readings], [reading.report.peak for reading in readings])]
    return [
        (
            phase,
            [reading.phase_peaks[phase].bytes for reading in readings],
            [reading.report.breakdown_at(reading.phase_peaks[phase].tick) for reading in readings],
        )
        for phase in phases
    ]


def _count_not_recomputed(kinds: Mapping[StageLayerKind, int]) -> int:
    return sum(count for kind, count in kinds.items() if kind.recompute is not RecomputeMode.FULL)


def _layer_activations(first: PeakBreakdown, last: PeakBreakdown) -> int:
    # Return the activations that the second run has in addition to the first; 0 if they are only the inputs of
    # recomputed layers. A recomputed layer keeps one tensor per micro-batch in flight, its input, so only the blocks of
    # one operator at one place increase in number. Other layers keep blocks of many.
    before = {(one.operator, one.where): one.bytes for one in first.holders if one.category is _KEPT}
    grown = [
        one.bytes - before.get((one.operator, one.where), 0)
        for one in last.holders
        if one.category is _KEPT and one.bytes > before.get((one.operator, one.where), 0)
    ]
    return sum(grown) if len(grown) > 1 else 0


def layer_activations(run: PreparedRun, reading: Reading, whole: Extrapolation | None) -> int | None:
    """Return the activations of one layer without recomputation: 0 if every layer is recomputed, None if unknown."""
    found = _largest_layer(reading.report) or (whole.layer_activations if whole else 0)
    recomputed = bool(run.kinds) and _count_not_recomputed(run.kinds) == 0
    return found or (0 if recomputed else None)


def _largest_layer(report: RankReport) -> int:
    # Return the activations, at the peak, of the layer that keeps most of them and is not recomputed; 0 if there is
    # none. Only known for graphs, whose operators have the path of their layer.
    rows: dict[str, list[int]] = {}
    for row in report.peak.rows.tolist():
        layer = report.layer_of(row) if report.content_of(row) is _KEPT else ""
        if layer.rpartition(".")[2].isdigit():
            rows.setdefault(layer, []).append(row)
    several = (
        own for own in rows.values() if len({(report.operator_of(one), report.location_of(one)) for one in own}) > 1
    )
    return max((int(report.table.size[own].sum()) for own in several), default=0)


_NEAR = 0.005  # maximum deviation of the replay's peak, as a share of the derived peak
_PAIR = 2


def _need_of(peak: int, readings: Sequence[Reading], footprints: Sequence[int]) -> Need:
    # Return the memory that a derived stage needs: a range (:meth:`ms_tune.verdict.outcome.Need.of_derived_stage`) if it was
    # not replayed.
    if not footprints:
        return Need.of_derived_stage(peak, [(reading.peak_bytes, reading.footprint_bytes) for reading in readings])
    least, most = min(footprints), max(footprints)
    if most - least <= ALIKE * most:
        return Need(peak, footprints[0], footprints[0], msg("verdict.footprint.replayed"))
    return Need(peak, most, least, msg("verdict.footprint.replayed-orders", low=gib(least), high=gib(most)))


def _replay_footprints(peak: int, readings: Sequence[Reading], factors: Sequence[Fraction], layers: int) -> list[int]:
    # Return the footprints of the requests of the runs, repeated and replayed in the run's own pool, in several orders if the
    # order of the runs differs. Empty if the settings do not reproduce every row of the run, or the peak is not the derived one.
    if len(readings) != _PAIR or factors[0].denominator != 1 or factors[0] >= 0:
        return []
    small, large = ((reading.report.table, reading.report.contents) for reading in readings)
    found = replay_stage(small, large, layers, -int(factors[0]))
    near = found is not None and abs(found.replay.used_peak - peak) <= _NEAR * peak
    return [max(footprint, peak) for footprint in found.footprints] if found is not None and near else []
