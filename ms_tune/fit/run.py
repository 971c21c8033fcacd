"""Find the cheapest plan of a config that fits: build the table, search, verify by a dryrun, and correct the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import compress

from ms_tune.dryrun.prepare import LoadedConfig, limit_before, prepare_run
from ms_tune.dryrun.task import Observer
from ms_tune.enums import Dialect, RecomputeMode
from ms_tune.errors import ConfigError, MsTuneError
from ms_tune.estimate.flops import widths_of
from ms_tune.estimate.memory import RankShare, layer_activations
from ms_tune.fit.calibration_runs import (
    JobLayers,
    count_job_layers,
    middle_stage,
    plan_probes,
    probes_of_first_chunk,
    probes_with_some_of_first_chunk,
    probes_with_some_recomputed,
)
from ms_tune.fit.costs import DENSE_UNITS, RelativeCosts, present_cells, relative_costs, table_without_sizes
from ms_tune.fit.job import PlannedJob, check_plannable, check_writable, lists_of_plan, read_job, read_present_plan
from ms_tune.fit.layouts import graph_of_layout, is_sequence_parallel, layout_keys, read_layout
from ms_tune.fit.measure import Probe, RunFigures, measure_probes
from ms_tune.fit.measured import StageMeasurements
from ms_tune.fit.predict import calibrate, cluster_of, predict_plan
from ms_tune.fit.result import ConfigFit, ConfigFitRequest
from ms_tune.fit.table import build_table, choose_first_chunk_stage, in_flight_micro_batches
from ms_tune.fit.table_cache import CachedTable, write_cached_table
from ms_tune.fit.verify_loop import VerifyLoop, mark_refuted, with_rounds
from ms_tune.normalize.sapp import merge_sapp
from ms_tune.planning.fit import FitReport, PlanRemedy, linked_by
from ms_tune.planning.search import SearchProgress, without_kinds
from ms_tune.planning.table import CostTable, LayerGroup, check_table
from ms_tune.planning.time_scale import can_swap, with_layers, with_times
from ms_tune.text import Message, msg


def fit_config(
    request: ConfigFitRequest,
    observer: Observer | None = None,
    on_progress: Callable[[SearchProgress], None] = lambda _progress: None,
    loaded: LoadedConfig | None = None,
) -> ConfigFit:
    """Find the cheapest plan of a config that fits, and simulate it before returning it; the file is unchanged.

    Args:
        request: The job, its device, and how to plan.
        observer: Receives messages about the simulation.
        on_progress: Receives the search's progress. An interrupt, also one raised here, ends the search with the best plan so far.
        loaded: The config; None for the one that the request names.

    Raises:
        ConfigError: The config is invalid.
        UnsupportedError: This machine, the model or its schedule is not supported.
        MissingExtraError: The extra ``fit`` or ``dryrun`` is not installed.
        RunError: A simulated process failed.

    Example::

        fit = ms_tune.fit_config(ConfigFitRequest(DryrunRequest(Path("train.yaml"))))
        if fit.chosen is not None:
            Path("fits.yaml").write_text(fit.text)
    """
    observer = observer or Observer()
    job = read_job(request.dryrun, loaded)
    check_plannable(job)
    costs, source = relative_costs(job), str(job.loaded.source.path)
    sizeless = table_without_sizes(job, costs)
    request = replace(request, clock=with_layers(request.clock, sizeless))
    check_writable(job, [kind.value for kind in request.kinds])
    begin = time.monotonic()
    limit, reserve = limit_before(job.request, job.first)
    measured, notes = _run_calibration(job, request, observer)
    notes += [note for note in job.first.not_included if note in job.first.unproved]
    table = raw = build_table(job, measured, costs, limit.bytes - reserve)
    table, idle = _without_idle(table._replace(present=read_present_plan(job, table)))
    table, messages = _with_swap_time(with_times(table, request.clock.times), request, costs, source)
    notes += messages
    table = check_table(table, source)
    fragments = measured.fragment_bytes(job.stages)
    kept = CachedTable(without_kinds(raw, [RecomputeMode.SWAP]), fragments)
    write_cached_table(job, kept)
    made = time.monotonic()
    rounds, chosen, lacking, lost = VerifyLoop(job, request, observer, on_progress, reserve).run(table, fragments)
    kept = with_rounds(kept, rounds, chosen)
    write_cached_table(job, kept)
    if chosen is not None and chosen.verified and not request.allow_tight:
        chosen = mark_refuted(chosen, kept, limit.bytes - reserve)
    if lacking is not None:
        lacking = with_remedies(lacking, job, lost)
    elif chosen is None:
        rounds = (*rounds[:-1], replace(rounds[-1], report=with_remedies(rounds[-1].report, job)))
    text, changed = job.loaded.source.text, 0
    if chosen is not None and chosen.report.planned is not None:
        merged = merge_sapp(job.loaded.job, lists_of_plan(job, chosen.report.planned.plan))
        text, changed = merged.text, merged.count
    step = None
    if chosen is not None and chosen.report.planned is not None:
        cluster = request.cluster or cluster_of(request.dryrun.chip)
        cluster = calibrate(job, present_cells(job), cluster, request.clock.step_seconds)
        step = predict_plan(job, chosen.report.planned.cells, cluster)
    return ConfigFit(
        source=job.loaded.source,
        table=table,
        limit=limit,
        reserve_bytes=reserve,
        fragment_bytes=fragments,
        costs=costs,
        idle=idle,
        rounds=rounds,
        chosen=chosen,
        lacking=lacking,
        least_fragment_bytes=lost,
        text=text,
        changed=changed,
        notes=tuple(notes),
        seconds=(made - begin, time.monotonic() - made),
        predicted=step,
    )


def _with_swap_time(
    table: CostTable, request: ConfigFitRequest, costs: RelativeCosts, source: str
) -> tuple[CostTable, list[Message]]:
    # Add the time of copies to the host if a bandwidth is given; if it is far too low, return a message and drop swap.
    if request.swap_bandwidth is None or not can_swap(table):
        return table, []
    shortest = None if costs.shortest is None else costs.shortest / DENSE_UNITS
    try:
        return linked_by(table, request.swap_bandwidth, request.clock, shortest, source), []
    except ConfigError as error:  # the measurements are still worth a plan without swap
        kept = table.present if table.present is None or not table.present.swap else None
        failed = msg("fitting.kind-fails", kind=RecomputeMode.SWAP.value, reason=error.message)
        return without_kinds(table, [RecomputeMode.SWAP])._replace(present=kept), [failed]


def _run_calibration(
    job: PlannedJob, request: ConfigFitRequest, observer: Observer
) -> tuple[StageMeasurements, list[Message]]:
    # Run the small dryruns. Return the measurements, and notes about modes that cannot run.
    model = count_job_layers(job)
    probes, notes = plan_probes(job, model, request.kinds)
    probes, late = _communication_last(job, model, probes)
    further = _plan_further_probes(job, model, full=any(one.recompute is RecomputeMode.FULL for one in probes))
    observer.say(msg("fitting.table", count=len(probes) + sum(map(len, further.values()))))
    groups = [probes, *further.values()]
    every = iter(measure_probes(job.request, [probe for group in groups for probe in group], observer))
    found = [next(every) for _ in probes]
    runs = {name: [next(every) for _ in group] for name, group in further.items()}
    if late:
        notes += _with_communication(job, probes, found, late, observer)
    seen, failed = _pair_results(probes, found)
    notes += [msg("fitting.kind-fails", kind=kind.value, reason=error.message) for kind, error in failed.items()]
    lost = [one for group in runs.values() for one in group if isinstance(one, MsTuneError)]
    if lost and RecomputeMode.FULL not in failed:
        notes.append(msg("fitting.runs-fail", count=len(lost), reason=lost[0].message))
    there = {name: [one for one in group if not isinstance(one, MsTuneError)] for name, group in runs.items()}
    measured = StageMeasurements(seen, model, there["some"], there["first"])
    alone = there["alone"]
    stages = None if measured.peaks_at_reduction else (choose_first_chunk_stage(job.stages),)
    more = probes_of_first_chunk(job, model, stages) if measured.peaks_at_reduction or measured.freed_by_stage else []
    if more:
        alone = [one for one in measure_probes(job.request, more, observer) if not isinstance(one, MsTuneError)]
    measured.only_first_chunk = {figures.stage: figures for figures in alone}
    return measured, notes


def _plan_further_probes(job: PlannedJob, model: JobLayers, *, full: bool) -> dict[str, list[Probe]]:
    # Return the runs that do not measure a single recompute mode, by purpose; ``full``: layers may be fully recomputed.
    middle = [middle_stage(job.stages - 1)] if model.alike else None
    return {
        "some": probes_with_some_recomputed(job) if full else [],
        "first": probes_with_some_of_first_chunk(job) if full else [],
        "alone": probes_of_first_chunk(job, model, middle) if full and job.compiled else [],
    }


def _pair_results(
    probes: Sequence[Probe], found: Sequence[RunFigures | MsTuneError]
) -> tuple[list[tuple[Probe, RunFigures]], dict[RecomputeMode, MsTuneError]]:
    # Pair probes with their figures, without modes that failed in any run; also return these modes' errors.
    pairs = tuple(zip(probes, found, strict=True))
    failed: dict[RecomputeMode, MsTuneError] = {}
    for one, figures in pairs:
        if isinstance(figures, MsTuneError):
            if one.recompute is RecomputeMode.NONE:
                raise figures
            failed.setdefault(one.recompute, figures)
    return [
        (one, figures) for one, figures in pairs if not isinstance(figures, MsTuneError) and one.recompute not in failed
    ], failed


def _communication_last(job: PlannedJob, model: JobLayers, probes: list[Probe]) -> tuple[list[Probe], list[Probe]]:
    # Separate the probes of recomputed communication, which may turn out to be unnecessary.
    kinds = {one.recompute for one in probes}
    used = any(layer.comm_patterns for layer in job.now.layers)
    if not model.alike or used or not {RecomputeMode.SELECT, RecomputeMode.BOTH} <= kinds:
        return probes, []
    late = [one for one in probes if one.recompute is RecomputeMode.COMM]
    return [one for one in probes if one.recompute is not RecomputeMode.COMM], late


def _with_communication(
    job: PlannedJob, probes: list[Probe], found: list[RunFigures | MsTuneError], late: list[Probe], observer: Observer
) -> list[Message]:
    # Run the probes of recomputed communication, unless recomputing it together with selected operators uses the same memory as
    # the operators alone. Then communication alone frees no more than these operators, and takes longer
    # (:data:`ms_tune.fit.costs.EXTRA`): drop both modes and return a note.
    seen = {one.recompute: figures for one, figures in zip(probes, found, strict=True)}
    select, both = seen[RecomputeMode.SELECT], seen[RecomputeMode.BOTH]
    if isinstance(select, MsTuneError) or isinstance(both, MsTuneError) or both.phase_peaks != select.phase_peaks:
        probes += late
        found += measure_probes(job.request, late, observer)
        return []
    kept = [one.recompute is not RecomputeMode.BOTH for one in probes]
    probes[:], found[:] = compress(probes, kept), compress(found, kept)
    return [msg("fitting.comm-no-more")]


def _without_idle(table: CostTable) -> tuple[CostTable, tuple[RecomputeMode, ...]]:
    # Drop recompute modes that free nothing and only cost time, and return them too. Modes of the present plan stay.
    used = {
        kind
        for kind, rows in ((RecomputeMode.SELECT, "select_recompute"), (RecomputeMode.COMM, "select_comm_recompute"))
        if table.present is not None and any(map(any, getattr(table.present, rows)))
    }
    if len(used) > 1:
        used.add(RecomputeMode.BOTH)
    idle = tuple(
        kind
        for kind in table.kinds
        if kind is not RecomputeMode.NONE
        and kind not in used
        and all(_bytes_of(layer, kind) >= _bytes_of(layer, RecomputeMode.NONE) for layer in table.layers)
    )
    return table.map_costs(lambda kind, cost: None if kind in idle else cost), idle


def _bytes_of(layer: LayerGroup, kind: RecomputeMode) -> int:
    return layer.recompute[kind].activation_bytes + layer.recompute[kind].once_bytes


def with_remedies(report: FitReport, job: PlannedJob, fragments: Sequence[int] = ()) -> FitReport:
    """Add other remedies of the job's config to a report of a plan that does not fit; those without recomputation first.

    The table cannot estimate them: it does not model the optimizer, sequence parallelism or swap.
    """
    if report.shortage is None or report.nearest is None:
        return report
    over = report.shortage.over_bytes
    found = [
        PlanRemedy(name, size, size >= over) for name, size in _estimate_remedies(report, job, fragments) if size > 0
    ]
    free = [one for one in found if one.name != "swap"]
    rest = [one for one in found if one.name == "swap"]
    return replace(report, remedies=(*free, *report.remedies, *rest))


def _estimate_remedies(report: FitReport, job: PlannedJob, fragments: Sequence[int]) -> Iterator[tuple[str, int]]:
    # Yield each remedy with an upper bound of the bytes it frees on the stage that exceeds the limit most.
    assert report.shortage is not None  # noqa: S101 - the caller has looked
    assert report.nearest is not None  # noqa: S101 - as above
    stage = report.shortage.stage
    run = prepare_run(job.request._replace(stage=stage, layers=None), job.loaded)
    if fragments:
        yield "vmm", fragments[stage]
    dialect, ranks = job.loaded.dialect, run.split.data * run.split.context
    key = layout_keys(dialect).sharded
    if key is not None and ranks > 1 and job.loaded.source.get(key) is not True:
        yield "optimizer", run.theory.get("optimizer_state", 0) * (ranks - 1) // ranks
    cells = report.nearest.cells[stage :: job.stages]
    in_flight = [in_flight_micro_batches(job, stage, chunk) for chunk in range(job.chunks)]
    kinds = {
        kind: sum(cell.get(kind, 0) * count for cell, count in zip(cells, in_flight, strict=True))
        for kind in RecomputeMode
    }
    if run.split.tensor > 1 and not is_sequence_parallel(job.loaded):
        full = float(kinds[RecomputeMode.FULL])
        yield "sequence", _freed_by_sequence(job, full, float(sum(kinds.values())) - full)
    # The dynamic graph supports swap only without pipeline stages.
    swaps = dialect is Dialect.MINDFORMERS or (dialect is Dialect.MINDFORMERS_PYNATIVE and job.stages == 1)
    if swaps and RecomputeMode.SWAP not in report.table.kinds:
        # Activations of micro-batches that are not in their backward pass can be moved to the host.
        layer = max(report.table.layers, key=lambda one: one.layer_count)
        each = [
            count * (flying - 1) * layer.recompute[kind].activation_bytes
            for cell, flying in zip(cells, in_flight, strict=True)
            for kind, count in cell.items()
            if count
        ]
        yield "swap", round(sum(each))


def _freed_by_sequence(job: PlannedJob, full: float, others: float) -> int:
    # Estimate the memory freed by splitting activations between layers over the TP ranks.
    widths = widths_of(job.loaded.job.model)
    if widths is None:
        return 0
    layout = read_layout(job.loaded, job.first)
    tokens = widths.tokens * layout.size // layout.context
    graph = graph_of_layout(job.loaded, layout)
    before, after = (
        layer_activations(widths, RankShare(tokens, layout.tensor, sequence, layout.context), graph, experts=False)
        for sequence in (False, True)
    )
    return round(full * (before.full - after.full) + others * (before.none - after.none))
