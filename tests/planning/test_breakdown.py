"""Where the time of a step goes: beside a pipeline played through pass by pass, and where a formula tells."""

from __future__ import annotations

import pytest

from ms_tune.enums import RecomputeMode
from ms_tune.planning.costs import break_down_step, costs_of
from ms_tune.planning.schedule import Schedule
from ms_tune.planning.search import even_state
from ms_tune.planning.table import CostTable, LayerCost, LayerGroup
from tests.planning import naive
from tests.planning.tables import random_table


def even(stages: int, micro_batches: int, chunks: int = 1) -> CostTable:
    kept = {RecomputeMode.NONE: LayerCost(0), RecomputeMode.FULL: LayerCost(0, 0.5)}
    order = Schedule.INTERLEAVED if chunks > 1 else Schedule.ONE_FORWARD_ONE_BACKWARD
    layers = (LayerGroup("dense", 2 * stages * chunks, 1.0, 0, kept),)
    return CostTable(stages, chunks, micro_batches, 1, order, layers)


@pytest.mark.parametrize(
    ("stages", "micro_batches", "chunks"), [(1, 4, 1), (2, 8, 1), (4, 8, 1), (8, 32, 1), (4, 16, 2)]
)
def test_equal_stages_wait_while_the_pipeline_fills(stages: int, micro_batches: int, chunks: int) -> None:
    table = even(stages, micro_batches, chunks)
    parts = break_down_step(table, [{RecomputeMode.NONE: 2}] * table.cells)
    bubble = (stages - 1) / (chunks * micro_batches + stages - 1)
    assert parts.fill == pytest.approx(bubble)
    assert parts.work == pytest.approx(1 - bubble)
    assert parts.recompute == 0
    assert parts.imbalance == pytest.approx(0)
    assert parts.busy == pytest.approx((1 - bubble,) * stages)


def test_recomputation_is_a_quarter_of_the_work_at_most() -> None:
    table = even(4, 8)
    parts = break_down_step(table, [{RecomputeMode.FULL: 2}] * 4)
    # Forward 1, backward 2, once more 1: a quarter of what is computed.
    assert parts.recompute / (parts.work + parts.recompute) == pytest.approx(1 / 4)


def test_one_slow_stage_makes_the_others_wait() -> None:
    parts = break_down_step(
        even(4, 8), [{RecomputeMode.NONE: 1}, {RecomputeMode.NONE: 5}, {RecomputeMode.NONE: 1}, {RecomputeMode.NONE: 1}]
    )
    assert parts.imbalance > 0.4
    assert parts.busy[1] > 0.8
    assert max(parts.busy[0], *parts.busy[2:]) < 0.2


@pytest.mark.parametrize("seed", range(30))
def test_it_adds_up(seed: int) -> None:
    table = random_table(seed)
    costs = costs_of(table)
    cells = costs.cells_of(even_state(costs))
    parts = break_down_step(table, cells)
    assert parts.work + parts.recompute + parts.fill + parts.imbalance == pytest.approx(1)
    assert min(parts.work, parts.recompute, parts.fill, parts.imbalance) >= 0
    # Busy stages: all that they compute, beside the time that the pipeline played through takes.
    busy = sum(parts.busy) / table.stages
    assert busy == pytest.approx(parts.work + parts.recompute)
    assert float(costs.step_ticks(costs.state_of(cells)[None])[0] * costs.unit) == pytest.approx(
        float(naive.time_of(table, cells))
    )
