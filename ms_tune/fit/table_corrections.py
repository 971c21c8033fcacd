"""What straight lines through small runs do not tell of a table: what recomputed layers leave behind, and the ends without layers."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from ms_tune.dialects.stage import make_name
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.errors import MsTuneError
from ms_tune.fit.calibration_runs import config_of_main_layers, middle_stage, probe_sizes
from ms_tune.fit.job import uniform_lists
from ms_tune.fit.linear_fit import find_alike_phases
from ms_tune.fit.measure import Probe
from ms_tune.planning.costs import costs_of
from ms_tune.planning.table import RecomputeOverhead

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ms_tune.dryrun.prepare import LoadedConfig
    from ms_tune.fit.calibration_runs import JobLayers
    from ms_tune.fit.job import PlannedJob
    from ms_tune.fit.measure import RunFigures
    from ms_tune.fit.measured import StageMeasurements
    from ms_tune.planning.table import CostTable, LayerCost, LayerGroup

_WORTH = Fraction(1, 20)  # of what a layer keeps of a micro-batch; less is no tensor that stays


def with_lingering(table: CostTable, measured: StageMeasurements, in_flight: Fraction) -> CostTable:
    """The table with what stays behind backward passes told apart; as it is where nothing does, or no run tells.

    A layer that was computed once more keeps what its attention made until it runs again: its next forward pass, or its next
    backward pass, whose own tensors then take that place. It is so in the reference transformer that stands for MindFormers' dynamic
    graph; nobody has seen MindFormers' own, whose pipeline needs HyperParallel. What a stage holds on top therefore depends on which
    chunks went backward last, and not on how many micro-batches are in flight. Seen in traces of MindSpore 2.9 (latent attention and
    experts, 4 stages x 2 chunks): of the second stage with two recomputed layers in its first chunk their attention's tensors of
    micro-batch 2 lie there when micro-batch 3 is about to go backward through the chunk, and are freed one by one while it does.

    Small runs show it as a layer of the first chunk that frees less than one of the others (:func:`~ms_tune.fit.linear_fit.with_first_chunk`):
    when a stage holds most, the first chunk's last pass was a backward one and the others' was not. It may be so for another
    reason, too: there is twice what enters the first chunk in that of MindSpeed-Core-MS. A run that recomputes that chunk alone tells
    the two apart.
    """
    main, again, known = make_name(measured.model.main), table.again, choose_telling_stage(table.stages)
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
    alone = measured.first_chunk_run(known)
    if alone is None:
        return table
    phases = measured.usual_lines(measured.model.main, RecomputeMode.NONE, known)
    peak = max((alone.phase_peaks[phase] for phase in phases if phase in alone.phase_peaks), default=0)
    nearer = abs(_predicted_peak(made, alone) - peak) < abs(_predicted_peak(table, alone) - peak)
    return made if peak and nearer else table


def choose_telling_stage(stages: int) -> int:
    """The stage whose run with the first chunk recomputed alone tells: one in the middle, or the last; the first has other layers, too."""
    return middle_stage(stages - 1) if stages > 2 else stages - 1  # noqa: PLR2004 - the first, one between, the last


def _with_full(row: LayerGroup, full: LayerCost) -> LayerGroup:
    return row._replace(recompute={**row.recompute, RecomputeMode.FULL: full})


def _correct_dense(row: LayerGroup, main: LayerGroup, in_flight: Fraction) -> LayerGroup:
    # The row of layers that one stage alone was run with, so that all that they hold was taken for activations. Gradients and
    # gathered copies are to weights what they are in the layers that most are; a recomputed layer keeps what enters it, as one
    # of those does, and leaves the rest.
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
    again = max(0, most - entering - left)  # while it is computed once more it is all there
    full = full._replace(activation_bytes=min(entering, most), again_bytes=left, transient_bytes=again)
    return _with_full(row._replace(recompute=found), full)


def _matched_to_runs(table: CostTable, measured: StageMeasurements) -> CostTable:
    # The table with what stages hold anyhow, and on top while layers are computed once more, as the small runs have it.
    main, last = measured.model.main, table.stages - 1

    def lacking(table: CostTable, kind: RecomputeMode, runs: Callable[[int], RunFigures | None]) -> tuple[int, ...]:
        found: dict[int, int] = {}
        for stage in measured.line_stages(main):
            figures, phases = runs(stage), measured.usual_lines(main, kind, stage)
            if figures is not None and phases:
                found[stage] = max(figures.phase_peaks[phase] for phase in phases) - _predicted_peak(table, figures)
        return tuple(found.get(stage, found.get(middle_stage(last), 0)) for stage in range(table.stages))

    anyhow = lacking(table, RecomputeMode.NONE, lambda stage: measured.smallest_run(main, RecomputeMode.NONE, stage))
    held = [table.held_by(stage) - _end_bytes(table, stage) + more for stage, more in enumerate(anyhow)]
    table = table._replace(constant_bytes=min(held), stage_bytes=tuple(one - min(held) for one in held))
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


def _end_bytes(table: CostTable, stage: int) -> int:
    # What the head and the tail hold, which is no matter of the stage's own.
    return (table.head.bytes if stage == 0 else 0) + (table.tail.bytes if stage == table.stages - 1 else 0)


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


def emptied_probes(job: PlannedJob, model: JobLayers) -> list[Probe]:
    """Runs of the first stage without layers in its first chunk, and of the last one without any in its last; nothing is recomputed.

    None where stages have one chunk: a stage without layers is not run small.
    """
    found = []
    for stage in (0, job.stages - 1) if job.chunks > 1 else ():
        loaded = _with_empty_end(job, stage)
        if loaded is not None:
            # The other cells keep a layer each: with one in this stage's, too, there would be fewer layers than cells, which is refused.
            _, more = probe_sizes(job.chunks, model.whole[stage], model.least[stage])
            found.append(Probe("emptied", loaded, stage, more - more // job.chunks))
    return found


def _with_empty_end(job: PlannedJob, stage: int) -> LoadedConfig | None:
    # The config with an end of the pipeline emptied; None where the framework refuses that.
    if job.stages == 1:
        return None
    try:
        return config_of_main_layers(job, uniform_lists(_emptied_placement(job, stage), RecomputeMode.NONE.value))
    except MsTuneError:
        return None


def _emptied_placement(job: PlannedJob, stage: int) -> list[list[int]]:
    # The placement with the layers of an end of the pipeline in the cell beside it.
    counts = [list(row) for row in job.placement]
    chunk, other = (0, 1) if stage == 0 else (job.chunks - 1, stage - 1)
    counts[chunk][other] += counts[chunk][stage]
    counts[chunk][stage] = 0
    return counts


def with_ends(table: CostTable, job: PlannedJob, measured: StageMeasurements, runs: Sequence[RunFigures]) -> CostTable:
    """The table with what is known of its ends: whether the framework takes them without layers, and what the stage holds less then.

    MindSpeed-Core-MS wants a layer in every cell (``num_layer_list``); MindFormers' static graph does not. Layers of a chunk share
    what is there once however many they are: a mask, what kernels keep for themselves. Small runs have layers in every chunk, so
    that what their stages hold anyhow has all of it. Only the first and the last cell of a plan may be empty
    (:mod:`ms_tune.planning.plan`), and a run of each tells what is not there then. Seen with MindSpore 2.9 and MindFormers 1.9:
    84 MiB of a chunk of Qwen3's layers, whatever they recompute.
    """
    head, tail = (_with_empty_end(job, stage) is None for stage in (0, job.stages - 1))
    table = table._replace(head=table.head._replace(filled=head), tail=table.tail._replace(filled=tail))
    costs = costs_of(table._replace(update=None))
    for figures in runs:
        plain = measured.highest_line(measured.model.main, RecomputeMode.NONE, figures.stage)
        few = measured.smallest_run(measured.model.main, RecomputeMode.NONE, figures.stage)
        if plain is None or few is None:
            continue
        # While weights are updated other things are there; that moment has a row of its own.
        seen = [figures.phase_peaks[phase] for phase in find_alike_phases(figures, few, plain.persistent)]
        counts = _emptied_placement(job, figures.stage)
        there = dict.fromkeys(range(job.chunks), 0)
        for (chunk, _), count in figures.cells.items():
            there[chunk] += count
        beside = 1 if figures.stage == 0 else figures.stage - 1
        for chunk, count in there.items():  # the layers that the run does not have lie elsewhere
            counts[chunk][beside] += counts[chunk][figures.stage] - count
            counts[chunk][figures.stage] = count
        state = costs.state_of([{RecomputeMode.NONE: count} for row in counts for count in row])
        foretold = int(costs.peak_bytes(state[None])[0, figures.stage])
        less = max(foretold - max(seen, default=foretold), 0)
        if figures.stage == 0:
            table = table._replace(head=table.head._replace(empty_bytes=less))
        else:
            table = table._replace(tail=table.tail._replace(empty_bytes=less))
    return table
