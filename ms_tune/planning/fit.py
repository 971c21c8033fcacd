"""Find the cheapest plan of a table that fits, and explain it: bottleneck, alternatives, and remedies if nothing fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError, UsageError
from ms_tune.planning.anneal import BestState, PlanSpace, anneal_plans, is_within_limit
from ms_tune.planning.bound import least_limit, relaxation_of
from ms_tune.planning.costs import Costs, IntArray, costs_of
from ms_tune.planning.schedule import Schedule, why_refused
from ms_tune.planning.search import (
    Effort,
    PlanSearch,
    SearchProgress,
    annealing_steps,
    even_state,
    number_of_stop,
    search_plans,
    without_kinds,
)
from ms_tune.planning.table import MOST_ALL_PASSES, CostTable, LayerGroup, PlanLists, cells_of, check_table, plan_of
from ms_tune.planning.table_file import SappPipeline, read_sapp, read_table, table_json
from ms_tune.planning.time_scale import Clock, can_swap, with_layers, with_swap_time, with_times
from ms_tune.text import msg
from ms_tune.units import GIB

_MOST_DRAWN = 20_000  # maximum number of passes in a picture


@dataclass(frozen=True, slots=True)
class EvaluatedPlan:
    """A plan with its predicted time and memory."""

    plan: PlanLists  # the lists
    cells: tuple[Mapping[RecomputeMode, int], ...]  # number of layers by recompute mode, for each cell
    time: float  # step time, in the table's unit
    peak_bytes: tuple[int, ...]  # per stage
    bubble: float  # fraction of the step in which stages wait, over all stages
    passes: tuple[DrawnPass, ...] = ()  # the passes of a step, for a picture; empty if there are too many


@dataclass(frozen=True, slots=True)
class DrawnPass:
    """A pass in the picture of a schedule; times are fractions of the step."""

    stage: int
    chunk: int
    forward: bool
    start: float
    length: float


@dataclass(frozen=True, slots=True)
class Shortage:
    """The amount by which no plan fits."""

    stage: int  # in the nearest plan, the stage that exceeds the limit most
    over_bytes: int  # its excess
    at_least_bytes: int  # lower bound of every plan's excess on some stage; 0 if not proved


@dataclass(frozen=True, slots=True)
class FitReport:
    """Result of ``fit`` for a table.

    Args:
        table: The table.
        planned: The best plan; None if none was found within the limit.
        nearest: Without a plan, the one that exceeds the limit least.
        reference: The plan with relative time 100: the present one, or the even split with all layers recomputed.
        has_present: Whether the reference is the present plan.
        lower_bound: A lower bound of every plan's time, in the table's unit.
        optimal: Whether the plan is proved optimal.
        effort: How long to search.
        seed: Seed of the random numbers.
        stopped: The number of the signal with which the user stopped the search; 0 if it went to its end.
        shortage: Without a plan, the missing memory.
        binding_stage: The stage with the least headroom.
        critical: Cells on the longest path with their fraction of the step, the largest first.
        one_gib_more: Step time if that stage could use one GiB more, from a short search.
        alternatives: Other plans and their times.
        remedies: Without a plan, possible remedies.
        clock: The user's measurements.
    """

    table: CostTable
    planned: EvaluatedPlan | None
    nearest: EvaluatedPlan | None
    reference: EvaluatedPlan
    has_present: bool
    lower_bound: float
    optimal: bool
    effort: Effort
    seed: int
    stopped: int
    shortage: Shortage | None = None
    binding_stage: int = 0
    critical: tuple[tuple[int, float], ...] = ()
    one_gib_more: float | None = None
    alternatives: tuple[Alternative, ...] = ()
    remedies: tuple[PlanRemedy, ...] = ()
    clock: Clock = field(default_factory=Clock)

    @property
    def table_data(self) -> dict[str, object]:
        """Return the table as JSON with the plan in it, as input for another run."""
        table = self.table if self.planned is None else self.table._replace(present=self.planned.plan)
        return table_json(table)

    @property
    def gap(self) -> float | None:
        """Return the plan's step time relative to the lower bound, minus 1; None without a plan or a bound."""
        if self.planned is None or not self.lower_bound:
            return None
        return self.planned.time / self.lower_bound - 1

    def relative_time(self, time: float) -> float:
        """Return a time relative to the reference, which is 100."""
        return 100 * time / self.reference.time

    def seconds(self, time: float) -> float | None:
        """Return a time in seconds; None without a measurement."""
        return self.clock.seconds(time, self.reference.time)


def fit_table(
    table: CostTable,
    *,
    effort: Effort = Effort.NORMAL,
    seed: int = 1,
    clock: Clock | None = None,
    on_progress: Callable[[SearchProgress], None] = lambda _progress: None,
) -> FitReport:
    """Find the cheapest plan of a table that fits.

    An interrupt, also one that ``on_progress`` raises, ends the search with the best result so far.
    """
    present = None if table.present is None else cells_of(table, table.present, "")
    clock = clock or Clock()
    if clock.step_seconds is not None:
        clock.check(has_present=present is not None, reference=0.0 if present is None else time_of(table, present))
    found = search_plans(table, effort, seed, on_progress, present)
    costs, unit = found.costs, found.costs.unit
    reference = costs.state_of(present) if present is not None else even_state(costs)
    report = FitReport(
        table=table,
        planned=_evaluate_state(costs, found.best.state, drawn=True) if found.found else None,
        nearest=None if found.found else _evaluate_state(costs, found.best.state),
        reference=_evaluate_state(costs, reference),
        has_present=present is not None,
        lower_bound=float(found.bound * unit),
        optimal=found.is_optimal(),
        effort=effort,
        seed=seed,
        stopped=found.stopped,
        clock=clock,
    )
    return _with_explanation(report, found, on_progress)


def with_plan(report: FitReport, table: CostTable, cells: Sequence[Mapping[RecomputeMode, int]]) -> FitReport:
    """Return a report about another plan and table than those found, with the lower bound of that table from a quick search."""
    found = search_plans(table, Effort.QUICK, report.seed, lambda _progress: None, cells)
    costs = found.costs
    state = costs.state_of(cells)
    planned = _evaluate_state(costs, state, drawn=True)
    stage, step = _find_fullest_stage(planned), int(costs.step_ticks(state[None])[0])
    return replace(
        report,
        table=table,
        planned=planned,
        nearest=None,
        lower_bound=float(found.bound * costs.unit),
        optimal=found.bound >= step,
        stopped=found.stopped,
        binding_stage=stage,
        critical=critical_cells(costs, state),
        one_gib_more=gain_of_one_gib(PlanSearch(table, costs, BestState(step, state)), stage, report.seed),
    )


def _find_fullest_stage(plan: EvaluatedPlan) -> int:
    return plan.peak_bytes.index(max(plan.peak_bytes))


def time_of(table: CostTable, cells: Sequence[Mapping[RecomputeMode, int]]) -> float:
    """Return the step time of a plan, in the table's unit."""
    costs = costs_of(table)
    return float(int(costs.step_ticks(costs.state_of(cells)[None])[0]) * costs.unit)


def _evaluate_state(costs: Costs, state: IntArray, *, drawn: bool = False) -> EvaluatedPlan:
    durations = costs.pass_durations(state[None])
    ends = costs.graph.end_ticks(durations)[:-1, 0]
    step = int(ends.max())
    busy = int(durations.sum()) * costs.table.micro_batches
    cells = costs.cells_of(state)
    kind = costs.graph.kind
    passes = tuple(
        DrawnPass(
            stage=int(one % costs.table.stages),
            chunk=int(one % costs.graph.cells // costs.table.stages),
            forward=bool(one < costs.graph.cells),
            start=float(end - durations[one, 0]) / max(step, 1),
            length=float(durations[one, 0]) / max(step, 1),
        )
        for one, end in zip(kind, ends, strict=True)
        if drawn and len(kind) <= _MOST_DRAWN
    )
    return EvaluatedPlan(
        plan=plan_of(costs.table, cells),
        cells=tuple(cells),
        time=float(step * costs.unit),
        peak_bytes=tuple(map(int, costs.peak_bytes(state[None])[0])),
        bubble=1 - busy / (costs.table.stages * step) if step else 0.0,
        passes=passes,
    )


def _with_explanation(report: FitReport, found: PlanSearch, on_progress: Callable[[SearchProgress], None]) -> FitReport:
    # Add the explanation to the report; an interrupt skips the rest of it.
    table, costs = report.table, found.costs
    if report.nearest is not None:
        stage = _find_fullest_stage(report.nearest)
        over = report.nearest.peak_bytes[stage] - table.limit_bytes
        shortage = Shortage(stage, over, max(found.least_bytes - table.limit_bytes, 0))
        report = replace(report, shortage=shortage, binding_stage=stage)
    elif report.planned is not None:
        stage = _find_fullest_stage(report.planned)
        report = replace(report, binding_stage=stage, critical=critical_cells(costs, found.best.state))
    if report.stopped:
        return report
    try:
        if report.planned is None:
            return replace(report, remedies=find_remedies(table, found.least_bytes))
        on_progress(SearchProgress("explain", 0.0, report.planned.time, report.lower_bound))
        kinds = {kind for cell in report.planned.cells for kind, count in cell.items() if count}
        gained = None  # without recomputation, more memory does not save time
        if not report.optimal or kinds - {RecomputeMode.NONE}:
            gained = gain_of_one_gib(found, report.binding_stage, report.seed)
        return replace(report, one_gib_more=gained, alternatives=find_alternatives(found, report.seed))
    except KeyboardInterrupt as stop:
        return replace(report, stopped=number_of_stop(stop))


_WORK, _STEPS = 300_000, 1_000  # for each short search
_NODES = 500
_SIMPLE = (RecomputeMode.SELECT, RecomputeMode.COMM, RecomputeMode.BOTH)


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another plan, under an additional constraint."""

    name: str  # `even` (even split), `full-only` (no selective modes) or `one-gib-to-spare`
    time: float | None  # step time in the table's unit; None if no such plan fits
    plan: PlanLists | None = None
    refuted: bool = False  # it exceeds the limit with the memory that dryruns of other plans showed; only for configs


@dataclass(frozen=True, slots=True)
class PlanRemedy:
    """A change that would reduce memory when no plan fits."""

    # `less-memory`, `micro-batch`, `one-chunk`, `stages` or `tensor`; of a config also `sequence`, `optimizer`, `swap`, `vmm`.
    name: str
    freed_bytes: int  # reduction of the smallest limit that a plan can keep
    fits: bool  # whether it suffices


def critical_cells(costs: Costs, state: IntArray) -> tuple[tuple[int, float], ...]:
    """Return the cells on the longest path with their fraction of the step, the largest first."""
    durations, graph = costs.pass_durations(state[None]), costs.graph
    ends = graph.end_ticks(durations)[:, 0]
    taken = np.zeros(graph.cells)
    for one in graph.path_to(int(ends[:-1].argmax()), ends):
        kind = int(graph.kind[one])
        taken[kind % graph.cells] += float(durations[kind, 0])
    parts = taken / max(float(ends.max()), 1.0)
    return tuple((cell, float(parts[cell])) for cell in np.argsort(-parts, kind="stable").tolist() if parts[cell] > 0)


def gain_of_one_gib(found: PlanSearch, stage: int, seed: int) -> float:
    """Return the step time if one stage could use one GiB more, from a short search that starts at the plan found."""
    table = found.table
    own = table.stage_bytes or (0,) * table.stages
    others = tuple(size + (0 if index == stage else GIB) for index, size in enumerate(own))
    roomier = table._replace(limit_bytes=table.limit_bytes + GIB, stage_bytes=others)
    costs = costs_of(roomier)
    best = _search_briefly(PlanSpace(costs), found.best.state, seed)
    return float(min(best.score, found.best.score) * costs.unit)


def find_alternatives(found: PlanSearch, seed: int) -> tuple[Alternative, ...]:
    """Search for simpler plans and plans with more headroom, and return their times."""
    table, costs = found.table, found.costs

    def alternative(name: str, space: PlanSpace, start: IntArray) -> Alternative:
        best = _search_briefly(space, start, seed)
        if not is_within_limit(best.score):
            return Alternative(name, None)
        plan = plan_of(space.costs.table, space.costs.cells_of(best.state))
        return Alternative(name, float(best.score * space.costs.unit), plan)

    kept = [alternative("even", PlanSpace(costs, fixed_layers=True), even_state(costs))]
    selective = [kind for kind in _SIMPLE if kind in table.kinds]
    if selective and len(selective) < len(table.kinds):
        simple = costs_of(without_kinds(table, selective))
        kept.append(alternative("full-only", PlanSpace(simple), even_state(simple)))
    if table.limit_bytes > GIB:
        tighter = costs_of(table._replace(limit_bytes=table.limit_bytes - GIB))
        kept.append(alternative("one-gib-to-spare", PlanSpace(tighter), found.best.state))
    return tuple(kept)


def _search_briefly(space: PlanSpace, start: IntArray, seed: int) -> BestState:
    steps = annealing_steps(space.costs, _WORK, _STEPS)
    return anneal_plans(space, [start], steps, seed, lambda _step, _best: False)


def find_remedies(table: CostTable, least: int) -> tuple[PlanRemedy, ...]:
    """Return changes that lower the smallest limit that a plan can keep, according to the table; the cheapest first."""
    found = []
    for name, other in _changed_tables(table):
        now, state = least_limit(relaxation_of(costs_of(other)), _NODES)
        if state is not None and now < least:
            found.append(PlanRemedy(name, least - now, now <= table.limit_bytes))
    return tuple(found)


def _changed_tables(table: CostTable) -> Iterator[tuple[str, CostTable]]:
    # Yield the table after each change; each assumes the largest possible effect.
    table = table._replace(present=None)
    if table.chunks > 1 and table.order in (Schedule.INTERLEAVED, Schedule.INTERLEAVED_FULL_WARM_UP):
        yield "less-memory", table._replace(order=Schedule.INTERLEAVED_LESS_MEMORY)
    if table.chunks > 1:
        yield "one-chunk", table._replace(chunks=1, order=Schedule.ONE_FORWARD_ONE_BACKWARD, again=None)
    halved = table._replace(
        micro_batches=2 * table.micro_batches, layers=_scale_layers(table, activations=2), again=None
    )
    if 2 * halved.cells * halved.micro_batches <= MOST_ALL_PASSES:
        yield "micro-batch", halved
    if table.layer_count >= 2 * table.cells:
        more = _more_stages(table)
        if why_refused(more.order, more.stages, more.chunks, more.micro_batches) is None:
            yield "stages", more
    head, tail = (end._replace(bytes=end.bytes // 2) for end in (table.head, table.tail))
    update = table.update and table.update._replace(layer_bytes=tuple(size // 2 for size in table.update.layer_bytes))
    yield (
        "tensor",
        table._replace(
            layers=_scale_layers(table, activations=2, weights=2), update=update, again=None, head=head, tail=tail
        ),
    )


def _more_stages(table: CostTable) -> CostTable:
    # Double the stages: both ends keep their memory, and all others get the minimum of the middle stages.
    def spread(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return (sizes[0], *[min(sizes[1:-1] or sizes)] * (2 * table.stages - 2), sizes[-1]) if sizes else ()

    update = table.update
    if update is not None:
        update = update._replace(layer_bytes=spread(update.layer_bytes), stage_bytes=spread(update.stage_bytes))
    return table._replace(stages=2 * table.stages, stage_bytes=spread(table.stage_bytes), update=update, again=None)


def _scale_layers(table: CostTable, *, activations: int, weights: int = 1) -> tuple[LayerGroup, ...]:
    return tuple(
        layer._replace(
            bytes=layer.bytes // weights,
            recompute={
                kind: kept._replace(
                    activation_bytes=kept.activation_bytes // activations,
                    transient_bytes=kept.transient_bytes // activations,
                    once_bytes=kept.once_bytes // activations,
                    swapped_bytes=kept.swapped_bytes // activations,
                    again_bytes=kept.again_bytes // weights,
                )
                for kind, kept in layer.recompute.items()
            },
        )
        for layer in table.layers
    )


_MS = 1e-3
_ROUNDS = 20  # until the times of a present plan with swap and of its copies agree


@dataclass(frozen=True, slots=True)
class FitRequest:
    """Settings for planning.

    Args:
        effort: How long to search; independent of the clock.
        seed: Seed of the random numbers: the same table, effort and seed give the same plan on any machine.
        limit_bytes: Memory limit of a stage, instead of the table's.
        sapp: The pipeline of the layers, if the file has SAPP's layers.
        clock: The user's measurements.
        swap_bandwidth: Bytes per second to the host, and the same number back.
    """

    effort: Effort = Effort.NORMAL
    seed: int = 1
    limit_bytes: int | None = None
    sapp: SappPipeline | None = None
    clock: Clock = field(default_factory=Clock)
    swap_bandwidth: int | None = None

    def table_of(self, text: str, source: str) -> tuple[CostTable, Clock]:
        """Read a table from a file's text, and return it with the measurements of its layers."""
        linked = self.swap_bandwidth is not None
        table = read_table(text, source, linked=linked) if self.sapp is None else read_sapp(text, source, self.sapp)
        clock = with_layers(self.clock, table)
        table = with_times(table, clock.times)
        if self.swap_bandwidth is not None:
            if not can_swap(table):
                raise ConfigError(msg("planning.link.none"), msg("planning.link.none.hint"), path=source)
            table = check_table(linked_by(table, self.swap_bandwidth, clock, None, source), source)
        if self.limit_bytes is not None:
            table = table._replace(limit_bytes=self.limit_bytes)
        return table, clock


def linked_by(table: CostTable, bandwidth: int, clock: Clock, shortest: float | None, source: str) -> CostTable:
    """Add the time of swap over a link with this many bytes per second to the table.

    Without a measurement, the table's times have no unit: assume that a unit takes at least ``shortest`` seconds, if known.
    """
    if clock.times:
        return with_swap_time(table, bandwidth * _MS, source)
    if clock.step_seconds is None or table.present is None:
        if shortest is None:
            raise UsageError(msg("planning.link.no-seconds"), msg("planning.link.no-seconds.hint"))
        return with_swap_time(table, bandwidth * shortest, source)
    # The measured step belongs to the present plan, which may itself swap.
    present = cells_of(table, table.present, source)
    unit = clock.step_seconds / time_of(table, present)
    for _ in range(_ROUNDS):
        table = with_swap_time(table, bandwidth * unit, source)
        before, unit = unit, clock.step_seconds / time_of(table, present)
        if unit == before:
            break
    return table
