"""Compare the breakdown of a step's time with a simulated pipeline, and with formulas."""

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


@pytest.mark.parametrize("seed", range(30))
def test_it_adds_up(seed: int) -> None:
    table = random_table(seed)
    costs = costs_of(table)
    cells = costs.cells_of(even_state(costs))
    parts = break_down_step(table, cells)
    assert parts.work + parts.recompute + parts.fill + parts.imbalance == pytest.approx(1)
    assert min(parts.work, parts.recompute, parts.fill, parts.imbalance) >= 0
    # The mean busy share of the stages is work and recomputation.
    busy = sum(parts.busy) / table.stages
    assert busy == pytest.approx(parts.work + parts.recompute)
    assert float(costs.step_ticks(costs.state_of(cells)[None])[0] * costs.unit) == pytest.approx(
        float(naive.time_of(table, cells))
    )
