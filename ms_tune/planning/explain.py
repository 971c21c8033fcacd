"""Why a plan is as it is, what else there is, and what helps where nothing fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.enums import RecomputeMode
from ms_tune.planning.anneal import BestState, PlanSpace, anneal_plans, is_within_limit
from ms_tune.planning.bound import least_limit, relaxation_of
from ms_tune.planning.costs import costs_of
from ms_tune.planning.schedule import Schedule, why_refused
from ms_tune.planning.search import annealing_steps, even_state, without_kinds
from ms_tune.planning.table import MOST_ALL_PASSES
from ms_tune.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.planning.costs import Costs, IntArray
    from ms_tune.planning.search import PlanSearch
    from ms_tune.planning.table import CostTable, LayerGroup

_WORK, _STEPS = 300_000, 1_000  # of each short search
_NODES = 500
_SIMPLE = (RecomputeMode.SELECT, RecomputeMode.COMM, RecomputeMode.BOTH)


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another plan, under a rule of its own."""

    name: str  # `even` (layers shared out evenly), `full-only` (no selective kinds) or `one-gib-to-spare`
    time: float | None  # of its step, in the table's unit; None if nothing was found that fits


@dataclass(frozen=True, slots=True)
class PlanRemedy:
    """What would help where nothing fits."""

    # `less-memory`, `micro-batch`, `one-chunk`, `stages` or `tensor`; of a config also `sequence`, `optimizer`, `swap`, `vmm`.
    name: str
    freed_bytes: int  # how much lower the smallest limit is that a plan could keep
    fits: bool  # whether it would be enough


def critical_cells(costs: Costs, state: IntArray) -> tuple[tuple[int, float], ...]:
    """Cells on the longest path and the part of the step that they take there, most first."""
    durations, graph = costs.pass_durations(state[None]), costs.graph
    ends = graph.end_ticks(durations)[:, 0]
    taken = np.zeros(graph.cells)
    for one in graph.path_to(int(ends[:-1].argmax()), ends):
        kind = int(graph.kind[one])
        taken[kind % graph.cells] += float(durations[kind, 0])
    parts = taken / max(float(ends.max()), 1.0)
    return tuple((cell, float(parts[cell])) for cell in np.argsort(-parts, kind="stable").tolist() if parts[cell] > 0)


def gain_of_one_gib(found: PlanSearch, stage: int, seed: int) -> float:
    """The step's time if one stage could hold a GiB more, by a short search from the plan that was found."""
    table = found.table
    own = table.stage_bytes or (0,) * table.stages
    others = tuple(size + (0 if index == stage else GIB) for index, size in enumerate(own))
    roomier = table._replace(limit_bytes=table.limit_bytes + GIB, stage_bytes=others)
    costs = costs_of(roomier)
    best = _search_briefly(PlanSpace(costs), found.best.state, seed)
    return float(min(best.score, found.best.score) * costs.unit)


def find_alternatives(found: PlanSearch, seed: int) -> tuple[Alternative, ...]:
    """Plans that are simpler or leave more room, and their time."""
    table, costs = found.table, found.costs

    def alternative(name: str, space: PlanSpace, start: IntArray) -> Alternative:
        best = _search_briefly(space, start, seed)
        return Alternative(name, float(best.score * space.costs.unit) if is_within_limit(best.score) else None)

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
    """What lowers the smallest limit that a plan could keep, by the table's own figures; the cheapest first."""
    found = []
    for name, other in _changed_tables(table):
        now, state = least_limit(relaxation_of(costs_of(other)), _NODES)
        if state is not None and now < least:
            found.append(PlanRemedy(name, least - now, now <= table.limit_bytes))
    return tuple(found)


def _changed_tables(table: CostTable) -> Iterator[tuple[str, CostTable]]:
    # The table after each change; what a change does to its figures is the most that it can do.
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
    # Twice as many stages: the ends hold what they do, those between them what the least of these does.
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
