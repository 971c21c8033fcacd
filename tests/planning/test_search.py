"""Test plans and their proofs, times and peaks: every plan of tiny tables, the public cases, and a pipeline played pass by pass."""

from __future__ import annotations

import os
import random
import threading
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ms_tune.planning import fit as planning_fit
from ms_tune.planning.costs import costs_of
from ms_tune.planning.fit import FitReport, fit_table, with_plan
from ms_tune.planning.schedule import Schedule
from ms_tune.planning.search import Effort, search_plans
from ms_tune.planning.table import CostTable, cells_of, check_table
from ms_tune.units import MIB
from tests.planning import naive
from tests.planning.tables import CASE_A, CASE_E, random_table

if TYPE_CHECKING:
    from ms_tune.enums import RecomputeMode


# Random tables, and half as many tiny ones compared with every plan of theirs: 1,000 and 500 take a quarter of an hour
# on an idle core.
CASES = int(os.environ.get("MS_TUNE_PLANNING_CASES", "14"))
SEED = int(os.environ.get("MS_TUNE_PLANNING_SEED", "1"))
FIRST = SEED * 100_000

pytestmark = pytest.mark.slow  # searches, a second each


@pytest.fixture(autouse=True)
def short_explanations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the searches that explain alternatives: these tests examine the plan itself."""
    monkeypatch.setattr(planning_fit, "_WORK", 50_000)


def sound(table: CostTable, report: FitReport) -> None:
    """Check the guarantees of every report with a simulated pipeline."""
    if report.planned is None:
        assert report.shortage is not None
        assert report.shortage.at_least_bytes <= report.shortage.over_bytes
        return
    cells = cells_of(table, report.planned.plan, "")
    assert cells == [{kind: cell.get(kind, 0) for kind in cells[0]} for cell in report.planned.cells]
    assert naive.peaks_of(table, cells) == list(report.planned.peak_bytes)
    assert max(report.planned.peak_bytes) <= table.limit_bytes
    assert float(naive.time_of(table, cells)) == report.planned.time
    assert report.lower_bound <= report.planned.time
    assert report.optimal == (report.lower_bound == report.planned.time)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + CASES // 2))
def test_nothing_is_better_than_the_best_of_every_plan(seed: int) -> None:
    table = random_table(seed, tiny=True)
    within = [
        naive.time_of(table, cells)
        for cells in naive.every_plan(table)
        if max(naive.peaks_of(table, cells)) <= table.limit_bytes
    ]
    report = fit_table(table, effort=Effort.QUICK)
    sound(table, report)
    if not within:
        assert report.planned is None
    else:
        assert report.planned is not None
        assert report.planned.time == float(min(within))
        assert report.lower_bound <= float(min(within))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST + CASES, FIRST + 2 * CASES))
def test_no_bound_is_above_a_plan(seed: int) -> None:
    table = random_table(seed)
    sound(table, fit_table(table, effort=Effort.QUICK))


@pytest.mark.slow
@pytest.mark.parametrize(("table", "best"), [(CASE_A, 107_460.0), (CASE_E, 705.0)])
def test_the_public_cases_are_solved_to_the_end(table: CostTable, best: float) -> None:
    report = fit_table(table)
    sound(table, report)
    assert report.planned is not None
    assert (report.planned.time, report.lower_bound, report.optimal) == (best, best, True)


def test_a_plan_is_not_proved_optimal_by_the_bound_of_a_tighter_table() -> None:
    tight = fit_table(CASE_E._replace(limit_bytes=CASE_E.limit_bytes // 2), effort=Effort.QUICK)
    assert tight.planned is not None
    roomier = CASE_E
    best = fit_table(roomier, effort=Effort.QUICK)
    assert best.planned is not None
    assert best.planned.time < tight.lower_bound
    kept = with_plan(tight, roomier, tight.planned.cells)
    sound(roomier, kept)
    assert kept.lower_bound <= best.planned.time
    assert not kept.optimal


def test_a_plan_that_is_there_is_what_100_is() -> None:
    first = fit_table(CASE_E, effort=Effort.QUICK)
    assert first.planned is not None
    again = fit_table(CASE_E._replace(present=first.planned.plan), effort=Effort.QUICK)
    assert again.has_present
    assert again.reference.time == first.planned.time
    assert again.planned is not None
    assert again.relative_time(again.planned.time) == 100


def test_a_limit_that_nothing_keeps_is_proved_and_remedies_are_reported() -> None:
    table = CASE_A._replace(limit_bytes=12_000 * MIB)
    report = fit_table(table, effort=Effort.QUICK)
    assert report.planned is None
    assert report.nearest is not None
    assert report.shortage is not None
    over = max(report.nearest.peak_bytes) - table.limit_bytes
    assert 0 < report.shortage.at_least_bytes <= report.shortage.over_bytes == over
    assert [remedy.name for remedy in report.remedies] == ["micro-batch", "stages", "tensor"]
    assert all(remedy.freed_bytes > 0 for remedy in report.remedies)
    roomier = table._replace(limit_bytes=table.limit_bytes + over)
    assert fit_table(roomier, effort=Effort.QUICK).planned is not None


def test_an_interrupt_keeps_the_best_so_far() -> None:
    calls = 0

    def interrupt(_progress: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    report = fit_table(CASE_A, on_progress=interrupt)
    assert report.stopped
    assert report.planned is not None
    assert not report.optimal
    sound(CASE_A, report)


def test_the_same_table_gives_the_same_plan_under_load() -> None:
    table = CASE_E._replace(chunks=2, order=Schedule.INTERLEAVED, limit_bytes=CASE_E.limit_bytes * 9 // 10)
    done = threading.Event()

    def spin() -> None:
        while not done.is_set():
            pass

    load = threading.Thread(target=spin)
    found = [search_plans(table, Effort.QUICK, 1, lambda _progress: None)]
    load.start()
    found.append(search_plans(table, Effort.QUICK, 1, lambda _progress: None))
    done.set()
    load.join()
    assert len({(one.best.score, one.best.state.tobytes(), one.bound) for one in found}) == 1
    assert found[0].found


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
    layer, odd, count, micro_batches = CASE_E.layers[0], (0.123456789012345, 98.7654321098765), 500_000, 500
    layers = tuple(layer._replace(name=f"{time}", layer_count=count, forward=time, bytes=1) for time in odd)
    costs = costs_of(CostTable(2, 1, micro_batches, 2**50, CASE_E.order, layers))
    assert costs.unit == 3 * Fraction("98.7654321098765") / 10**9  # of the longest: a backward pass that recomputes
    assert abs(float(costs.forward[0, -1] * costs.unit) / (count * sum(odd)) - 1) < 1e-8
    assert int(costs.forward[0, -1]) * 6 * micro_batches < 2**62
