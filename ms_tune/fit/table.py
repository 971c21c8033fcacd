"""Build the memory table, from which plans are made, out of the measurements of small dryruns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction

from ms_tune.dialects.stage import make_name
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.errors import MsTuneError
from ms_tune.fit.calibration_runs import config_of_main_layers, middle_stage
from ms_tune.fit.costs import DENSE_UNITS, EXTRA, RelativeCosts
from ms_tune.fit.job import PlannedJob, uniform_lists
from ms_tune.fit.linear_fit import FreedByRecompute, LayerBytes, interpolate
from ms_tune.fit.measure import RunFigures
from ms_tune.fit.measured import StageMeasurements
from ms_tune.planning.costs import costs_of
from ms_tune.planning.schedule import Schedule
from ms_tune.planning.table import CostTable, LayerCost, LayerGroup, RecomputeOverhead, StageEnd, UpdateCost

LayersByMode = Mapping[LayerKind, Mapping[RecomputeMode, LayerBytes]]

_BACKWARD = "backward"
_TWO = 2  # runs that define a line; lines that determine a layer's activations


def build_table(job: PlannedJob, measured: StageMeasurements, costs: RelativeCosts, limit_bytes: int) -> CostTable:
    """Build the table of a job."""
    model, main = measured.model, measured.model.main
    layers: dict[LayerKind, dict[RecomputeMode, LayerBytes]] = {}
    for made in model.counts:
        if measured.line_stages(made):
            rows = ((kind, measured.layer_bytes(made, kind)) for kind in measured.measured_modes())
            layers[made] = {kind: kept for kind, kept in rows if kept is not None}
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
        head=StageEnd(filled=_must_have_layers(job, 0)),
        tail=StageEnd(round(DENSE_UNITS * costs.head), 0, round(late), filled=_must_have_layers(job, job.stages - 1)),
        constant_bytes=max(0, round(whole)),
        stage_bytes=tuple(round(base - whole) for base in bases),
        update=_update_costs(measured, job.stages),
        again=again,
    )
    return _with_lingering(table, measured, in_flight_micro_batches(job, 0))


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
    # Add the bytes copied to the host, and the bytes fetched back during a layer's backward pass.
    kept = layer.recompute.get(RecomputeMode.SWAP)
    if kept is None:
        return layer
    kept = kept._replace(swapped_bytes=measured.swapped_bytes(make), transient_bytes=measured.fetched_bytes(make))
    return layer._replace(recompute={**layer.recompute, RecomputeMode.SWAP: kept})


def _loss_bytes(job: PlannedJob, measured: StageMeasurements, bases: Sequence[Fraction]) -> Fraction:
    # Return the bytes of logits and loss that the last stage needs at the end of the last forward pass: its base without weights,
    # minus that of a middle stage with as few micro-batches in flight.
    main, last = measured.model.main, job.stages - 1
    if not last:
        highest = measured.highest_line(main, RecomputeMode.NONE, 0)
        lines = measured.usual_lines(main, RecomputeMode.NONE, 0)
        late = highest.base - lines[_BACKWARD].base if highest is not None and _BACKWARD in lines else Fraction(0)
        return max(late, Fraction(0))
    other = middle_stage(last)
    here = measured.base_bytes(main, RecomputeMode.NONE, last) - measured.persistent_base(main, last)
    there = measured.base_bytes(main, RecomputeMode.NONE, other) - measured.persistent_base(main, other)
    fewer, more = (in_flight_micro_batches(job, stage) for stage in (last - 1, other))
    if fewer < more:
        there -= (bases[other] - bases[last - 1]) / (more - fewer) * (more - in_flight_micro_batches(job, last))
    return min(max(here - there, Fraction(0)), bases[last])


def _recompute_overhead(
    job: PlannedJob, measured: StageMeasurements, layers: LayersByMode, late: Fraction
) -> tuple[RecomputeOverhead | None, int]:
    # Return the overhead of full recomputation per stage, and the bytes that each recomputed layer leaves until its backward pass
    # ends.
    main, last = measured.model.main, job.stages - 1
    if RecomputeMode.FULL not in layers[main]:
        return None, 0
    if not measured.freed_by_stage:
        # No run recomputes only some layers, so use those that recompute all of them.
        sizes = [
            _stage_base(job, measured, layers, RecomputeMode.FULL, stage)
            - _stage_base(job, measured, layers, RecomputeMode.NONE, stage)
            for stage in ([] if measured.peaks_at_reduction else measured.line_stages(main))
            if measured.usual_lines(main, RecomputeMode.FULL, stage)
        ]
        most, nothing = max(0, round(max(sizes, default=Fraction(0)))), (0,) * job.stages
        transients = tuple(most + (round(late) if stage == last and most > late else 0) for stage in range(job.stages))
        # The transient of the first chunk differs: in a static graph the other chunks' backward passes come first, and when those
        # of the first chunk begin in the last round, memory needed only by forward passes is already freed, such as a copy of the
        # embedding.
        telling = (_stage_with_lines(measured, stage, last) for stage in range(job.stages))
        firsts = [measured.first_chunk_transient(stage, layers) for stage in telling]
        alone = [every if one is None else round(one) for one, every in zip(firsts, transients, strict=True)]
        # Recomputing all layers of a stage needs at least as much on top as recomputing those of the first chunk.
        others = tuple(map(max, alone, transients))
        return RecomputeOverhead(nothing, nothing * job.chunks, (*alone, *(others * (job.chunks - 1)))), 0
    on_top = {stage: measured.recompute_transient(stage) for stage in measured.freed_by_stage}
    rows, by_stage = [], list[int]()
    for stage in range(job.stages):
        known = stage if stage in measured.freed_by_stage else middle_stage(last)
        freed, transient = measured.freed_by_stage[known], on_top[known].transient
        if stage == last:
            there = transient > 0 or on_top[known].per_layer > 0
            transient = transient + late if there else min(on_top[middle_stage(last)].transient, late)
        rows.append((round(freed.first), max(0, round(transient))))
        by_stage += _overhead_by_chunk(job, freed, layers[main], known)
    left = max(round(one.per_layer) for one in on_top.values())
    first, transients = (tuple(column) for column in zip(*rows, strict=True))
    by_cell = tuple(by_stage[stage * job.chunks + chunk] for chunk in range(job.chunks) for stage in range(job.stages))
    return RecomputeOverhead(first, by_cell, transients * job.chunks), left


def _overhead_by_chunk(
    job: PlannedJob, freed: FreedByRecompute, layers: Mapping[RecomputeMode, LayerBytes], stage: int
) -> Iterator[int]:
    # Yield, for each chunk of a stage, the bytes that a fully recomputed layer needs in addition to its table row: the value of
    # the first chunk, and the mean of the others.
    full, none = layers[RecomputeMode.FULL], layers[RecomputeMode.NONE]
    mean = first = freed.line.slope - full.total_bytes(in_flight_micro_batches(job, stage))
    if freed.in_first_chunk is not None:
        in_flight = in_flight_micro_batches(job, stage, 0)
        first = none.total_bytes(in_flight) - freed.in_first_chunk - full.total_bytes(in_flight)
    yield round(first)
    for _ in range(1, job.chunks):
        yield round((mean * job.chunks - first) / (job.chunks - 1))


def _stage_with_lines(measured: StageMeasurements, stage: int, last: int) -> int:
    # Return the stage itself, or the middle stage if this one has only one run.
    return stage if stage in measured.line_stages(measured.model.main) else middle_stage(last)


def _stage_bases(job: PlannedJob, measured: StageMeasurements, layers: LayersByMode) -> list[Fraction]:
    # Return the base memory of each stage: measured, or interpolated between measured middle stages.
    every, none = range(job.stages), RecomputeMode.NONE
    runs = [stage for stage in every if measured.smallest_run(measured.model.main, none, stage) is not None]
    seen = {stage: _stage_base(job, measured, layers, none, stage) for stage in runs}
    middle = [(in_flight_micro_batches(job, stage), base) for stage, base in seen.items() if 0 < stage < job.stages - 1]
    return [
        seen[stage] if stage in seen else interpolate(middle, in_flight_micro_batches(job, stage)) for stage in every
    ]


def _stage_base(
    job: PlannedJob, measured: StageMeasurements, layers: LayersByMode, kind: RecomputeMode, stage: int
) -> Fraction:
    # Return the memory of a stage without its layers, for one recompute mode, from its smallest run.
    main = measured.model.main
    few = measured.smallest_run(main, kind, stage)
    assert few is not None  # noqa: S101 - there are runs
    layer_bytes = sum(
        (
            layers.get(made, layers[main])[kind].total_bytes(in_flight_micro_batches(job, stage, chunk)) * count
            for (chunk, made), count in few.cells.items()
        ),
        Fraction(0),
    )
    if kind is RecomputeMode.NONE:
        phase = measured.deciding_phase(main, _stage_with_lines(measured, stage, job.stages - 1))
        return few.phase_peaks.get(phase, few.peak) - layer_bytes
    return max(few.phase_peaks[phase] for phase in measured.usual_lines(main, kind, stage)) - layer_bytes


def in_flight_micro_batches(job: PlannedJob, stage: int, chunk: int | None = None) -> Fraction:
    """Return the micro-batches in flight of a chunk, or their mean over all chunks."""
    in_flight = job.first.pipeline.in_flight(stage) or (1,)
    return Fraction(in_flight[chunk]) if chunk is not None else Fraction(sum(in_flight), len(in_flight))


def _update_costs(measured: StageMeasurements, stages: int) -> UpdateCost | None:
    # Return the memory of stages and layers while gradients are reduced and weights updated; None if it is not more than usual.
    main, whole = measured.model.main, measured.model.per_stage
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


_WORTH = Fraction(1, 20)  # of a layer's activations per micro-batch; a smaller difference is not a tensor that stays


def _with_lingering(table: CostTable, measured: StageMeasurements, in_flight: Fraction) -> CostTable:
    # Model tensors that linger after backward passes; return the table unchanged if no run shows any. A
    # recomputed layer keeps the tensors that its attention made until it runs again, forward or backward (MindSpore 2.9, latent
    # attention and experts, 4 stages x 2 chunks, in the reference transformer that imitates MindFormers' dynamic graph). The
    # overhead of a stage then depends on which chunks last ran backward, not on micro-batches in flight. In small runs, a layer
    # of the first chunk frees less than one of the others: at the stage's peak, the first chunk's last pass was a backward one.
    # In MindSpeed-Core-MS this has another cause; a run that recomputes only the first chunk distinguishes them.
    main, again, known = make_name(measured.model.main), table.again, choose_first_chunk_stage(table.stages)
    if again is None or table.chunks == 1 or known not in measured.freed_by_stage:
        return table
    first, *others = (again.layer_bytes[chunk * table.stages + known] for chunk in range(table.chunks))
    left = first - max(others)
    (row,) = (layer for layer in table.layers if layer.name == main)
    if left <= row.recompute[RecomputeMode.NONE].activation_bytes * _WORTH:
        return table
    full = row.recompute[RecomputeMode.FULL]
    row = _with_full(row, full._replace(once_bytes=full.once_bytes + max(others), again_bytes=left))
    nothing = (0,) * table.cells
    made = table._replace(
        layers=tuple(row if one.name == main else _correct_dense(one, row, in_flight) for one in table.layers),
        again=RecomputeOverhead((again.first_bytes[known],) * table.stages, nothing, nothing, lingers=True),
    )
    made = _matched_to_runs(made, measured)
    alone = measured.only_first_chunk.get(known)
    if alone is None:
        return table
    phases = measured.usual_lines(measured.model.main, RecomputeMode.NONE, known)
    peak = max((alone.phase_peaks[phase] for phase in phases if phase in alone.phase_peaks), default=0)
    nearer = abs(_predicted_peak(made, alone) - peak) < abs(_predicted_peak(table, alone) - peak)
    return made if peak and nearer else table


def choose_first_chunk_stage(stages: int) -> int:
    """Return the stage for the run that recomputes only the first chunk: a middle one, else the last; the first has other layers."""
    return middle_stage(stages - 1) if stages > 2 else stages - 1  # noqa: PLR2004 - the first, one between, the last


def _with_full(row: LayerGroup, full: LayerCost) -> LayerGroup:
    return row._replace(recompute={**row.recompute, RecomputeMode.FULL: full})


def _correct_dense(row: LayerGroup, main: LayerGroup, in_flight: Fraction) -> LayerGroup:
    # Correct the row of dense layers, which were run on one stage only, so that all their memory counted as activations.
    # Gradients and gathered copies have the same ratio to weights as in layers of the most frequent kind. A recomputed layer
    # keeps its input, as one of those does, and leaves the rest.
    kept, of_main = row.recompute, main.recompute
    once = round(Fraction(row.bytes * of_main[RecomputeMode.NONE].once_bytes, main.bytes)) if main.bytes else 0
    each = round(once / in_flight)
    found = {
        kind: one._replace(activation_bytes=max(0, one.activation_bytes - each), once_bytes=once)
        for kind, one in kept.items()
    }
    full, entering = found[RecomputeMode.FULL], of_main[RecomputeMode.FULL].activation_bytes
    left = round(max(Fraction(0), (full.activation_bytes - entering) * in_flight))
    most = found[RecomputeMode.NONE].activation_bytes
    again = max(0, most - entering - left)  # all of it exists while the layer is recomputed
    full = full._replace(activation_bytes=min(entering, most), again_bytes=left, transient_bytes=again)
    return _with_full(row._replace(recompute=found), full)


def _matched_to_runs(table: CostTable, measured: StageMeasurements) -> CostTable:
    # Adjust the base memory and the recompute transients of stages so that the table reproduces the small runs.
    main, last = measured.model.main, table.stages - 1

    def lacking(table: CostTable, kind: RecomputeMode, runs: Callable[[int], RunFigures | None]) -> tuple[int, ...]:
        found: dict[int, int] = {}
        for stage in measured.line_stages(main):
            figures, phases = runs(stage), measured.usual_lines(main, kind, stage)
            if figures is not None and phases:
                found[stage] = max(figures.phase_peaks[phase] for phase in phases) - _predicted_peak(table, figures)
        return tuple(found.get(stage, found.get(middle_stage(last), 0)) for stage in range(table.stages))

    anyhow = lacking(table, RecomputeMode.NONE, lambda stage: measured.smallest_run(main, RecomputeMode.NONE, stage))
    bases = [table.constant_bytes + size + more for size, more in zip(table.stage_bytes, anyhow, strict=True)]
    table = table._replace(constant_bytes=min(bases), stage_bytes=tuple(one - min(bases) for one in bases))
    again = table.again
    assert again is not None  # noqa: S101 - it lingers
    on_top = lacking(table, RecomputeMode.FULL, lambda stage: measured.largest_run(main, RecomputeMode.FULL, stage))
    transients = tuple(max(0, one) for one in on_top) * table.chunks
    layers = [
        _with_full(one, full._replace(transient_bytes=max(0, full.transient_bytes - transients[0])))
        if one.name == make_name(LayerKind.DENSE)
        else one
        for one in table.layers
        for full in (one.recompute[RecomputeMode.FULL],)
    ]
    return table._replace(layers=tuple(layers), again=again._replace(transient_bytes=transients))


def _predicted_peak(table: CostTable, figures: RunFigures) -> int:
    counts = dict.fromkeys((layer.name for layer in table.layers), 0)
    cells: list[dict[RecomputeMode, int]] = [{RecomputeMode.NONE: 0} for _ in range(table.cells)]
    for kind, count in figures.kinds.items():
        chunk, make = kind.cell
        counts[make_name(make)] += count
        cell = cells[chunk * table.stages + figures.stage]
        recompute = RecomputeMode.FULL if kind.recompute is RecomputeMode.FULL else RecomputeMode.NONE
        cell[recompute] = cell.get(recompute, 0) + count
    rows = tuple(layer._replace(layer_count=counts[layer.name]) for layer in table.layers if counts[layer.name])
    costs = costs_of(table._replace(layers=rows))
    return int(costs.peak_bytes(costs.state_of(cells)[None])[0, figures.stage])


def _must_have_layers(job: PlannedJob, stage: int) -> bool:
    # Return whether the framework refuses a cell without layers at this end of the pipeline. MindSpeed-Core-MS requires a layer in
    # every cell (``num_layer_list``); MindFormers' static graph does not. The layers move to the adjacent cell.
    if job.stages == 1:
        return True
    counts = [list(row) for row in job.placement]
    chunk, other = (0, 1) if stage == 0 else (job.chunks - 1, stage - 1)
    counts[chunk][other] += counts[chunk][stage]
    counts[chunk][stage] = 0
    try:
        config_of_main_layers(job, uniform_lists(counts, RecomputeMode.NONE.value))
    except MsTuneError:
        return True
    return False
