"""Compare times and peaks of random plans with a pipeline that is simulated pass by pass."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ms_tune.planning.costs import costs_of
from ms_tune.planning.table import CostTable, check_table
from tests.planning import naive
from tests.planning.tables import CASE_E, random_table

if TYPE_CHECKING:
    from ms_tune.enums import RecomputeMode

pytestmark = pytest.mark.slow  # searches, a second each


def random_cells(table: CostTable, draw: random.Random) -> list[dict[RecomputeMode, int]]:
    edges = sorted(draw.randint(0, table.layer_count) for _ in range(table.cells - 1))
    counts = [stop - start for start, stop in zip([0, *edges], [*edges, table.layer_count], strict=True)]
    cells = []
    for count in counts:
        cell = dict.fromkeys(table.kinds, 0)
        for _ in range(count):
            cell[draw.choice(table.kinds)] += 1
        cells.append(cell)
    return cells


@pytest.mark.parametrize("seed", range(40))
def test_times_and_peaks_are_those_of_a_pipeline_played_through(seed: int) -> None:
    table, draw = check_table(random_table(seed), "random"), random.Random(seed)  # noqa: S311 - test data
    costs = costs_of(table)
    plans = [random_cells(table, draw) for _ in range(4)]
    states = np.stack([costs.state_of(cells) for cells in plans])
    times, peaks = costs.step_ticks(states), costs.peak_bytes(states)
    for number, cells in enumerate(plans):
        assert int(times[number]) * costs.unit == naive.time_of(table, cells)
        assert peaks[number].tolist() == naive.peaks_of(table, cells)
        assert costs.cells_of(states[number]) == cells


def test_times_without_a_common_unit_keep_nine_digits() -> None:
    layer = CASE_E.layers[0]
    odd = [0.123456789012345 * 10**power for power in (0, 3)]
    table = CostTable(
        2,
        1,
        50_000,
        2**50,
        CASE_E.order,
        tuple(type(layer)(f"{time}", 5_000, time, 1, layer.recompute) for time in odd),
    )
    costs = costs_of(table)
    assert abs(float(costs.forward[0, -1] * costs.unit) / (5_000 * sum(odd)) - 1) < 1e-8
    assert int(costs.forward[0, -1]) * 6 * table.micro_batches < 2**62
