"""Test the time lost in a plan, layouts of ranks, and the constraints of the integer search."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ms_tune.enums import RecomputeMode
from ms_tune.errors import UsageError
from ms_tune.planning.anneal import BestState, PlanSpace, _chains_in_c, _chains_in_numpy, is_allowed, is_within_limit
from ms_tune.planning.bound import _exclusive_rows, relaxation_of
from ms_tune.planning.costs import break_down_step, costs_of
from ms_tune.planning.layouts import DIMENSIONS, Layout, LayoutSpace, list_layouts
from ms_tune.planning.schedule import Schedule
from ms_tune.planning.search import PlanSearch, even_state
from ms_tune.planning.table import CostTable, LayerCost, LayerGroup
from tests.planning import naive
from tests.planning.tables import CASE_E, random_table


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


NOW = Layout(tensor=2, pipeline=4, chunks=2, context=1, expert=1, size=1, data=2, micro_batches=16)
SPACE = LayoutSpace(NOW, 16, 40, 40, 40, 1, 8, tuple(DIMENSIONS), {}, NOW.samples, 65_536)


def test_all_of_them_against_every_combination() -> None:
    """Brute force over all numbers, with independently written rules."""
    space = SPACE._replace(
        layers=6, heads=4, groups=2, experts=4, now=NOW._replace(micro_batches=4, chunks=1), node=4, samples=8
    )
    samples, expected = space.samples, set()
    one_to = range(1, 17)
    for tensor, pipeline, context, data in itertools.product(one_to, repeat=4):
        if (
            tensor * pipeline * context * data != space.devices
            or tensor > 4
            or 4 % tensor
            or 2 % tensor
            or pipeline > 6
        ):
            continue
        for size, micro_batches, chunks, expert in itertools.product((1, 2, 4, 8), one_to, range(1, 7), (1, 2, 4)):
            even = chunks == 1 or (pipeline > 1 and 6 % (pipeline * chunks) == 0)
            full = pipeline == 1 or micro_batches >= pipeline
            if data * size * micro_batches == samples and even and full and expert <= data * context * tensor:
                expected.add(Layout(tensor, pipeline, chunks, context, expert, size, data, micro_batches))
    found = list_layouts(space)
    assert set(found.found) == expected | ({space.now} & set(found.found))
    assert len(found.found) == len(set(found.found)) > 20
    assert all(one.devices == space.devices and one.samples == samples for one in found.found)
    assert sum(found.refused.values()) > 0


def test_what_is_not_searched_stays() -> None:
    found = list_layouts(SPACE._replace(free=("pp", "dp"))).found
    assert {(one.tensor, one.chunks, one.size, one.context) for one in found} == {(2, 2, 1, 1)}
    assert {one.pipeline for one in found} == {2, 4}  # 40 layers fill two chunks of these evenly
    assert all(one.data * one.pipeline == 8 for one in found)


def test_data_parallelism_stays_unless_it_is_searched() -> None:
    found = list_layouts(SPACE._replace(free=("tp", "pp"))).found
    assert {one.data for one in found} == {2}
    assert NOW in found


def test_context_parallelism_is_for_long_sequences() -> None:
    for tokens, most in ((65_536, 8), (8192, 2), (4096, 1)):
        found = list_layouts(SPACE._replace(tokens=tokens, now=NOW._replace(data=16), devices=128, samples=256)).found
        assert max(one.context for one in found) <= max(tokens // 4096, 1)
        assert max(one.context for one in found) >= most
    assert {one.context for one in list_layouts(SPACE._replace(tokens=4096, keep={"cp": 2})).found} == {2}


def test_what_is_kept_is_kept() -> None:
    found = list_layouts(SPACE._replace(keep={"tp": 4, "dp": 4})).found
    assert {(one.tensor, one.data) for one in found} == {(4, 4)}
    assert list_layouts(SPACE._replace(keep={"tp": 3})).found == ()


@pytest.mark.slow
@pytest.mark.parametrize("devices", [131_072, 65_536])
def test_too_many_are_refused_at_once(devices: int) -> None:
    huge = NOW._replace(data=devices // 8, micro_batches=2**20)
    space = SPACE._replace(now=huge, devices=devices, layers=10_000, heads=1024, groups=None, experts=1024, node=1024)
    space = space._replace(samples=huge.samples)
    with pytest.raises(UsageError, match="more than 10000"):
        list_layouts(space)


def test_more_devices_than_there_are() -> None:
    with pytest.raises(UsageError, match="exceed the maximum of 131072"):
        list_layouts(SPACE._replace(devices=10**18))


@pytest.mark.parametrize(("known", "kept"), [(1, True), (0, False), (-1, False)])
def test_a_plan_is_kept_only_if_it_is_faster(known: int, *, kept: bool) -> None:
    costs = costs_of(CASE_E)
    state = costs.state_of([{RecomputeMode.NONE: 0, RecomputeMode.FULL: 20}] * 4)
    score = int(PlanSpace(costs).scores(state[None])[0])
    search = PlanSearch(CASE_E, costs, BestState(score + known, state))
    assert search.keep_if_better(state) is kept
    assert search.best.score == min(score, score + known)


def test_the_integer_search_and_the_other_one_allow_the_same_cells() -> None:
    modes = dict.fromkeys((RecomputeMode.NONE, RecomputeMode.SELECT, RecomputeMode.COMM), LayerCost(1))
    layers = (CASE_E.layers[0]._replace(layer_count=3, recompute=modes),)
    costs = costs_of(CASE_E._replace(stages=2, layers=layers))
    (rows, limits), binaries = _exclusive_rows(relaxation_of(costs))
    assert binaries == 2
    for counts in itertools.product(range(4), repeat=6):
        if sum(counts) == 3:
            choices = (np.array([*counts, 0, *chosen]) for chosen in itertools.product((0, 1), repeat=2))
            possible = any((rows @ choice <= limits).all() for choice in choices)
            assert possible == is_allowed(costs, np.array(counts).reshape(1, 2, 3))[0], counts


@pytest.mark.drawn(15)
@pytest.mark.parametrize("seed", range(60))
def test_chains_in_c_have_the_times_and_the_excess_of_their_plans(seed: int) -> None:
    table = random_table(seed)
    space = PlanSpace(costs_of(table), fixed_layers=seed % 7 == 0)
    states = np.stack([even_state(space.costs)] * 8)
    if not is_allowed(space.costs, states).all():
        return
    for start in (_chains_in_c, _chains_in_numpy):
        own, scores = states.copy(), space.scores(states)
        best, advance = BestState(int(scores[0]), states[0]), start(space, seed)
        assert advance is not None, "a C compiler is needed"
        for _ in range(2):
            heat = int(best.score) // 50 if is_within_limit(best.score) else 0
            best = advance(own, scores, best, heat, 1)
            assert space.scores(own).tolist() == scores.tolist()
            assert space.scores(best.state[None])[0] == best.score
            assert type(best.score) is int  # it is written as JSON
            assert is_allowed(space.costs, own).all()
            assert (own.sum(axis=(1, 2)) == table.layer_count).all()
