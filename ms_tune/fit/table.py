"""From what small dryruns held to the memory table that plans are made from."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from ms_tune.dialects.stage import make_name
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.fit.calibration_runs import middle_stage
from ms_tune.fit.costs import DENSE_UNITS, EXTRA
from ms_tune.fit.linear_fit import LayerBytes, interpolate
from ms_tune.fit.table_corrections import with_lingering
from ms_tune.planning.schedule import Schedule
from ms_tune.planning.table import CostTable, LayerCost, LayerGroup, RecomputeOverhead, StageEnd, UpdateCost

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ms_tune.fit.costs import RelativeCosts
    from ms_tune.fit.job import PlannedJob
    from ms_tune.fit.linear_fit import FreedByRecompute
    from ms_tune.fit.measured import StageMeasurements

_BACKWARD = "backward"
_TWO = 2  # runs that make a line; lines that tell what a layer keeps


def build_table(job: PlannedJob, measured: StageMeasurements, costs: RelativeCosts, limit_bytes: int) -> CostTable:
    """The table of a job."""
    model, main = measured.model, measured.model.main
    layers = {made: _layer_bytes_by_mode(measured, made) for made in model.counts if measured.line_stages(made)}
    pipeline = job.first.pipeline
    bases = _stage_bases(job, measured, layers)
    late = _loss_bytes(job, measured, bases)
    bases[-1] -= late
    whole = min(bases)
    again, left = _recompute_overhead(job, measured, layers, late)
    table = CostTable(
        stages=job.stages,
        chunks=job.chunks,
        micro_batches=pipeline.micro_batches,
        limit_bytes=limit_bytes,
        order=pipeline.schedule or Schedule.ONE_FORWARD_ONE_BACKWARD,
        layers=tuple(
            _with_swap(
                _layer_row(
                    *(made, count, round(DENSE_UNITS * costs.of_layer(made)), layers.get(made, layers[main])),
                    left if made == main else 0,
                ),
                measured,
                made if made in layers else main,
            )
            for made, count in model.counts.items()
        ),
        tail=StageEnd(forward=round(DENSE_UNITS * costs.head), transient_bytes=round(late)),
        constant_bytes=max(0, round(whole)),
        stage_bytes=tuple(round(base - whole) for base in bases),
        update=_update_costs(measured, job.stages),
        again=again,
    )
    return with_lingering(table, measured, in_flight_micro_batches(job, 0))


def _layer_bytes_by_mode(measured: StageMeasurements, make: LayerKind) -> dict[RecomputeMode, LayerBytes]:
    found = {}
    for kind in measured.measured_modes():
        kept = measured.layer_bytes(make, kind)
        if kept is not None:
            found[kind] = kept
    return found


def _layer_row(
    make: LayerKind, count: int, forward: int, layers: Mapping[RecomputeMode, LayerBytes], left: int
) -> LayerGroup:
    lasting = round(layers[RecomputeMode.NONE].persistent)
    most = layers[RecomputeMode.NONE].activations
    kept = {}
    for kind, layer in layers.items():
        activations = max(0, round(min(layer.activations, most)))
        stays = left if kind is RecomputeMode.FULL else 0
        kept[kind] = LayerCost(activations, EXTRA[kind], 0, round(layer.once_bytes), stays)
    return LayerGroup(make_name(make), count, forward, lasting, kept)


def _with_swap(layer: LayerGroup, measured: StageMeasurements, make: LayerKind) -> LayerGroup:
    # The row with what goes to the host, and is back while a layer is at its backward pass.
    kept = layer.recompute.get(RecomputeMode.SWAP)
    if kept is None:
        return layer
    kept = kept._replace(swapped_bytes=measured.swapped_bytes(make), transient_bytes=measured.fetched_bytes(make))
    return layer._replace(recompute={**layer.recompute, RecomputeMode.SWAP: kept})


def _loss_bytes(job: PlannedJob, measured: StageMeasurements, bases: Sequence[Fraction]) -> Fraction:
    # What the last stage holds on top when the last forward pass ends: logits and their loss. It is what the stage holds beside
    # its weights and beyond what those in the middle would with as little in flight.
    main, last = measured.model.main, job.stages - 1
    if not last:
        highest, lines = (
            measured.highest_line(main, RecomputeMode.NONE, 0),
            measured.usual_lines(main, RecomputeMode.NONE, 0),
        )
        late = highest.base - lines[_BACKWARD].base if highest is not None and _BACKWARD in lines else Fraction(0)
        return max(late, Fraction(0))
    other = middle_stage(last)
    here = measured.base_bytes(main, RecomputeMode.NONE, last) - measured.persistent_base(main, last)
    there = measured.base_bytes(main, RecomputeMode.NONE, other) - measured.persistent_base(main, other)
    fewer, more = (in_flight_micro_batches(job, stage) for stage in (last - 1, other))
    if fewer < more:
        there -= (bases[other] - bases[last - 1]) / (more - fewer) * (more - in_flight_micro_batches(job, last))
    return min(max(here - there, Fraction(0)), bases[last])


def _first_chunk_transient(
    job: PlannedJob,
    measured: StageMeasurements,
    layers: Mapping[LayerKind, Mapping[RecomputeMode, LayerBytes]],
    stage: int,
) -> int | None:
    # What comes on top while a layer of a stage's first chunk is computed once more; None where no run tells. It is another
    # amount than where all layers are recomputed: in a static graph the other chunks' backward passes come first, and when
    # those of the first chunk begin in the last round, what forward passes alone need is gone, such as a copy of the embedding.
    known = stage if stage in measured.line_stages(measured.model.main) else middle_stage(job.stages - 1)
    found = measured.first_chunk_transient(known, layers)
    return None if found is None else round(found)


def _recompute_overhead(
    job: PlannedJob,
    measured: StageMeasurements,
    layers: Mapping[LayerKind, Mapping[RecomputeMode, LayerBytes]],
    late: Fraction,
) -> tuple[RecomputeOverhead | None, int]:
    # What layers recomputed in full make each stage hold on top, and what one leaves until its backward pass ends.
    main, last = measured.model.main, job.stages - 1
    if RecomputeMode.FULL not in layers[main]:
        return None, 0
    if not measured.freed_by_stage:
        # No run tells of some layers that are recomputed: those in which all are must do.
        sizes = [
            _stage_base(job, measured, layers, RecomputeMode.FULL, stage)
            - _stage_base(job, measured, layers, RecomputeMode.NONE, stage)
            for stage in ([] if measured.peaks_at_reduction else measured.line_stages(main))
            if measured.usual_lines(main, RecomputeMode.FULL, stage)
        ]
        most, nothing = max(0, round(max(sizes, default=Fraction(0)))), (0,) * job.stages
        transients = tuple(most + (round(late) if stage == last and most > late else 0) for stage in range(job.stages))
        firsts = [_first_chunk_transient(job, measured, layers, stage) for stage in range(job.stages)]
        alone = [one if one is not None else every for one, every in zip(firsts, transients, strict=True)]
        # Where all layers of a stage are recomputed no less comes on top than where those of the first chunk are.
        others = tuple(map(max, alone, transients))
        return RecomputeOverhead(nothing, nothing * job.chunks, (*alone, *(others * (job.chunks - 1)))), 0
    on_top = {stage: measured.recompute_transient(stage) for stage in measured.freed_by_stage}
    rows, beside = [], list[int]()
    for stage in range(job.stages):
        known = stage if stage in measured.freed_by_stage else middle_stage(last)
        freed, transient = measured.freed_by_stage[known], on_top[known].transient
        if stage == last:
            there = transient > 0 or on_top[known].left > 0
            transient = transient + late if there else min(on_top[middle_stage(last)].transient, late)
        rows.append((round(freed.first), max(0, round(transient))))
        beside += _overhead_by_chunk(job, freed, layers[main], known)
    left = max(round(one.left) for one in on_top.values())
    first, transients = (tuple(column) for column in zip(*rows, strict=True))
    by_cell = tuple(beside[stage * job.chunks + chunk] for chunk in range(job.chunks) for stage in range(job.stages))
    return RecomputeOverhead(first, by_cell, transients * job.chunks), left


def _overhead_by_chunk(
    job: PlannedJob, freed: FreedByRecompute, layers: Mapping[RecomputeMode, LayerBytes], stage: int
) -> Iterator[int]:
    # What a layer that is recomputed in full holds beside its row, in each chunk of a stage: the first, and of the others the
    # mean.
    full, none = layers[RecomputeMode.FULL], layers[RecomputeMode.NONE]
    mean = first = freed.line.slope - full.total_bytes(in_flight_micro_batches(job, stage))
    if freed.in_first_chunk is not None:
        held = in_flight_micro_batches(job, stage, 0)
        first = none.total_bytes(held) - freed.in_first_chunk - full.total_bytes(held)
    yield round(first)
    for _ in range(1, job.chunks):
        yield round((mean * job.chunks - first) / (job.chunks - 1))


def _deciding_phase(measured: StageMeasurements, stage: int, last: int) -> str:
    # The phase that decides; of a stage that has one run only, that of the one beside it.
    known = stage if stage in measured.line_stages(measured.model.main) else middle_stage(last)
    return measured.deciding_phase(measured.model.main, known)


def _stage_bases(
    job: PlannedJob, measured: StageMeasurements, layers: Mapping[LayerKind, Mapping[RecomputeMode, LayerBytes]]
) -> list[Fraction]:
    # What each stage holds anyhow: as seen, or between what two others in the middle hold.
    every, none = range(job.stages), RecomputeMode.NONE
    runs = [stage for stage in every if measured.smallest_run(measured.model.main, none, stage) is not None]
    seen = {stage: _stage_base(job, measured, layers, none, stage) for stage in runs}
    middle = [(in_flight_micro_batches(job, stage), base) for stage, base in seen.items() if 0 < stage < job.stages - 1]
    return [
        seen[stage] if stage in seen else interpolate(middle, in_flight_micro_batches(job, stage)) for stage in every
    ]


def _stage_base(
    job: PlannedJob,
    measured: StageMeasurements,
    layers: Mapping[LayerKind, Mapping[RecomputeMode, LayerBytes]],
    kind: RecomputeMode,
    stage: int,
) -> Fraction:
    # What a stage holds beside its layers where all of them do the same, by its smallest run.
    main = measured.model.main
    few = measured.smallest_run(main, kind, stage)
    assert few is not None  # noqa: S101 - there are runs
    held = sum(
        (
            layers.get(made, layers[main])[kind].total_bytes(in_flight_micro_batches(job, stage, chunk)) * count
            for (chunk, made), count in few.cells.items()
        ),
        Fraction(0),
    )
    if kind is RecomputeMode.NONE:
        return few.phase_peaks.get(_deciding_phase(measured, stage, job.stages - 1), few.peak) - held
    return max(few.phase_peaks[phase] for phase in measured.usual_lines(main, kind, stage)) - held


def in_flight_micro_batches(job: PlannedJob, stage: int, chunk: int | None = None) -> Fraction:
    """Micro-batches in flight of a chunk, or the mean of all."""
    held = job.first.pipeline.in_flight(stage) or (1,)
    return Fraction(held[chunk]) if chunk is not None else Fraction(sum(held), len(held))


def _update_costs(measured: StageMeasurements, stages: int) -> UpdateCost | None:
    # What stages and layers hold while gradients are reduced and weights updated; None where that is nothing more.
    main, whole = measured.model.main, measured.model.whole
    lines = {}
    for stage in measured.line_stages(main):
        found = measured.update_lines(main, stage)
        if found:
            lines[stage] = max(found, key=lambda line: line.bytes_with(whole[stage]))
    if not lines:
        return None
    usual = lines.get(1) or max(lines.values(), key=lambda line: line.bytes_with(max(whole)))
    chosen = [lines.get(stage, usual) for stage in range(stages)]
    return UpdateCost(tuple(round(line.slope) for line in chosen), tuple(round(line.base) for line in chosen))
