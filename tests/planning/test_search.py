"""Plans and their proofs: beside every plan of tiny tables, the public cases, and rules that no plan may break."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ms_tune.enums import RecomputeMode
from ms_tune.planning import fit as planning_fit
from ms_tune.planning.anneal import is_allowed
from ms_tune.planning.bound import _from_duals, relaxation_of
from ms_tune.planning.costs import costs_of
from ms_tune.planning.fit import FitReport, fit_table
from ms_tune.planning.schedule import Schedule
from ms_tune.planning.search import Effort
from ms_tune.planning.table import LayerCost, cells_of
from ms_tune.units import MIB
from tests.planning import naive
from tests.planning.tables import CASE_A, CASE_E, mb, random_table

if TYPE_CHECKING:
    from ms_tune.planning.table import CostTable

# Random tables, and half as many tiny ones beside their every plan: 1,000 and 500 are a quarter of an hour of an idle core.
CASES = int(os.environ.get("MS_TUNE_PLANNING_CASES", "14"))
SEED = int(os.environ.get("MS_TUNE_PLANNING_SEED", "1"))
FIRST = SEED * 100_000

pytestmark = pytest.mark.slow  # searches, a second each


@pytest.fixture(autouse=True)
def short_explanations(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other plans would take is asked by short searches; here the plan itself is asked."""
    monkeypatch.setattr(planning_fit, "_WORK", 50_000)


def sound(table: CostTable, report: FitReport) -> None:
    """What every report promises, asked of a pipeline that is played through."""
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


@pytest.mark.slow
def test_the_same_seed_gives_the_same_plan() -> None:
    table = CASE_E._replace(chunks=2, order=Schedule.INTERLEAVED, limit_bytes=60_000 * MIB)
    one, other = fit_table(table, effort=Effort.QUICK, seed=5), fit_table(table, effort=Effort.QUICK, seed=5)
    assert one.planned == other.planned


def test_a_plan_that_is_there_is_what_100_is() -> None:
    first = fit_table(CASE_E, effort=Effort.QUICK)
    assert first.planned is not None
    again = fit_table(CASE_E._replace(present=first.planned.plan), effort=Effort.QUICK)
    assert again.has_present
    assert again.reference.time == first.planned.time
    assert again.planned is not None
    assert again.relative_time(again.planned.time) == 100


def test_a_limit_that_nothing_keeps_is_proved_and_remedies_are_told() -> None:
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


def test_no_cell_recomputes_operators_and_communication_apart() -> None:
    """MindFormers' lists have no way to say it of one cell; of two cells they have."""
    kinds = {kind: LayerCost(mb(700)) for kind in (RecomputeMode.SELECT, RecomputeMode.COMM)}
    layer = CASE_E.layers[0]._replace(recompute={**CASE_E.layers[0].recompute, **kinds})
    costs = costs_of(CASE_E._replace(layers=(layer,)))
    select, comm = costs.table.kinds.index(RecomputeMode.SELECT), costs.table.kinds.index(RecomputeMode.COMM)
    state = np.zeros((1, 4, len(costs.table.kinds)), np.int64)
    state[0, :, 0] = 20
    states = np.repeat(state, 3, axis=0)
    states[0, 0, select] = states[0, 1, comm] = 1
    states[1, :, comm] = 1
    states[2, 2, [select, comm]] = 1
    assert is_allowed(costs, states).tolist() == [True, True, False]


@pytest.mark.parametrize("seed", range(5))
def test_a_bound_from_prices_does_not_hang_on_their_scale(seed: int) -> None:
    """Prices that prove a bound prove the same one when all are multiplied: that of the step's time is always 1."""
    relaxation = relaxation_of(costs_of(CASE_E))
    cells, runs, _ = relaxation.shape
    even = np.zeros(relaxation.shape)
    even[:, :, -1] = relaxation.counts / cells
    relaxation.add_cuts(even.ravel())
    rows, limits = relaxation.limit_rows()
    draw = np.random.default_rng(seed)
    prices, equal = -draw.random(len(limits)), draw.random(runs)
    bounds = [_from_duals(relaxation, rows, limits, prices * by, equal * by) for by in (1.0, 3.0, 0.01)]
    assert bounds == pytest.approx([bounds[0]] * 3)
