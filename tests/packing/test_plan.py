"""Compare offline placement with brute force, with problems of known optimum, and on real traces."""

from __future__ import annotations

import csv
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ms_tune.packing.engine import (
    CompiledEngine,
    GapFit,
    Items,
    NumpyEngine,
    PackedOrder,
    PackingTask,
    best_engine,
)
from ms_tune.packing.exact import luby_item
from ms_tune.packing.placement import Placed, compress_lives, find_faults, lower_bound
from ms_tune.packing.plan import PackingProgress, fold_steps, orders_to_try, plan_addresses
from tests.packing.problems import (
    Row,
    cut,
    faults,
    live_sum,
    optimum,
    problem,
    problems,
    small_problems,
    training,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


ALLOCATION = Path(__file__).parents[3] / "shared" / "fixtures" / "allocation"


@pytest.fixture(scope="module", params=["compiled", "numpy"])
def engine(request: pytest.FixtureRequest) -> NumpyEngine:
    if request.param == "numpy":
        return NumpyEngine()
    return compiled()


def compiled() -> CompiledEngine:
    found, _ = best_engine()
    if not isinstance(found, CompiledEngine):
        pytest.skip("no C compiler here")
    return found


def shared(name: str) -> list[Row]:
    if not ALLOCATION.is_dir():
        pytest.skip("data of another project, not on this machine; the test beside it has a problem of our own")
    with (ALLOCATION / name).open(encoding="utf-8", newline="") as file:
        return [(int(row["lower"]), int(row["upper"]), int(row["size"]), 1) for row in csv.DictReader(file)]


class _Slow(CompiledEngine):
    """An engine with equal results that is slow."""

    def __init__(self, engine: CompiledEngine) -> None:
        self._engine = engine

    def first_fit(self, items: Items, order: NDArray[np.int32], limit: int, work: int) -> GapFit:
        time.sleep(0.001)
        return self._engine.first_fit(items, order, limit, work)

    def search(
        self, tasks: Sequence[PackingTask], most_nodes: int, most_work: int, failures: NDArray[np.float64]
    ) -> list[PackedOrder]:
        time.sleep(0.001)
        return self._engine.search(tasks, most_nodes, most_work, failures)


class TestOptimal:
    @pytest.mark.slow
    @given(small_problems())
    def test_small_problems_are_planned_as_low_as_brute_force_does(self, rows: list[Row]) -> None:
        result = plan_addresses(problem(rows), compiled(), seconds=20)
        assert faults(result) == []
        assert result.height == optimum(rows)
        assert result.proven

    @pytest.mark.parametrize(("count", "seed"), [(20, 0), (40, 1), (60, 2), (80, 3)])
    def test_pieces_of_a_rectangle_fill_it_again(self, count: int, seed: int) -> None:
        rows = cut(count, 60, 1000, seed)
        result = plan_addresses(problem(rows), compiled(), seconds=60)
        assert (result.height, result.lower_bound, faults(result)) == (1000, 1000, [])

    def test_a_height_that_cannot_be_reached_is_proven_so(self) -> None:
        # A ring of three: each two overlap in time, so two of them are adjacent above or below the bar of the third.
        rows = [(0, 2, 2, 1), (1, 3, 2, 1), (2, 4, 2, 1), (3, 5, 2, 1), (0, 1, 1, 1), (4, 5, 1, 1), (0, 5, 1, 1)]
        result = plan_addresses(problem(rows), compiled(), seconds=20)
        assert result.height == optimum(rows)
        assert result.proven


class TestValid:
    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(rows=problems(), seconds=st.sampled_from([1e-9, 0.05]))  # no time even for the first order, or for some
    def test_every_plan_is_valid_and_not_below_the_bound(
        self, engine: NumpyEngine, rows: list[Row], seconds: float
    ) -> None:
        result = plan_addresses(problem(rows), engine, seconds)
        assert faults(result) == []
        assert result.lower_bound == live_sum(rows) <= result.height
        assert result.height == max(start + row[2] for row, start in zip(rows, result.address.tolist(), strict=True))

    @settings(max_examples=60)
    @given(problems(most=80), st.integers(0, 20))
    def test_both_engines_place_alike(self, rows: list[Row], which: int) -> None:
        from ms_tune.packing.engine import Items  # noqa: PLC0415 - only here

        blocks = problem(rows)
        lives = compress_lives(blocks)
        orders = [order for _, order in orders_to_try(blocks, lives)]
        order = orders[which % len(orders)]
        items = Items(lives, blocks.size, blocks.alignment)
        ours, theirs = (each.first_fit(items, order, 2**62, 2**62) for each in (compiled(), NumpyEngine()))
        assert ours.height == theirs.height
        assert ours.address.tolist() == theirs.address.tolist()

    def test_nothing_to_plan(self, engine: NumpyEngine) -> None:
        result = plan_addresses(problem([]), engine)
        assert (result.height, result.lower_bound, result.gap, result.utilisation) == (0, 0, 0.0, 1.0)

    @pytest.mark.slow
    @pytest.mark.parametrize(("count", "limit"), [(1500, 0.5), (300, 0.2)])
    def test_a_busy_machine_gets_the_same_plan(self, count: int, limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "process_time", lambda: 0.0)
        rows = cut(count, 400, 1_000_000, 5)
        first, slow = (plan_addresses(problem(rows), engine, limit) for engine in (compiled(), _Slow(compiled())))
        assert first.height == slow.height > first.lower_bound  # the limit ended both
        assert (first.address == slow.address).all()
        assert not first.late

    @pytest.mark.slow
    def test_the_processor_clock_ends_it_where_the_machine_is_too_slow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "process_time", itertools.count().__next__)  # a second for each look
        result = plan_addresses(problem(cut(1500, 400, 1_000_000, 5)), _Slow(compiled()), 5.0)
        assert result.late
        assert faults(result) == []

    def test_a_plan_near_the_bound_is_enough_unless_it_exceeds_the_capacity(self) -> None:
        rows = [(0, 60, 1_000_000, 1), *cut(60, 60, 500, 1)]
        near = plan_addresses(problem(rows), compiled(), 60.0)
        assert near.lower_bound == 1_000_500 < near.height < near.lower_bound * 1.001
        assert plan_addresses(problem(rows, capacity=1_000_500), compiled(), 60.0).height == 1_000_500

    @pytest.mark.slow
    def test_the_time_limit_is_kept(self) -> None:
        rows = cut(400, 300, 1 << 20, 7)
        begin = time.process_time()
        plan_addresses(problem(rows), compiled(), seconds=0.3)
        assert time.process_time() - begin < 3  # processor time of all threads

    def test_progress_never_rises(self) -> None:
        seen: list[PackingProgress] = []
        plan_addresses(problem(cut(100, 80, 5000, 3)), compiled(), 1.0, seen.append)
        heights = [progress.height for progress in seen if progress.height is not None]
        assert heights
        assert heights == sorted(heights, reverse=True)
        assert {progress.lower_bound for progress in seen} == {5000}


class TestCapacity:
    @pytest.mark.slow
    def test_once_it_is_reached_less_is_not_looked_for_long(self) -> None:
        """The search continues only for the requested time."""
        rows = cut(400, 300, 1 << 20, 7)
        used: dict[float | None, float] = {}
        for seconds in (None, 1.6):
            seen: list[PackingProgress] = []
            plan_addresses(problem(rows, capacity=2 << 20), compiled(), seconds, seen.append)
            used[seconds] = seen[-1].limit
        assert used[1.6] == 1.6
        assert used[None] < 1.5


class TestFacts:
    @given(problems())
    def test_lives_keep_who_meets_whom(self, rows: list[Row]) -> None:
        blocks = problem(rows)
        lives = compress_lives(blocks)
        lower, upper = lives.lower, lives.upper
        before = (blocks.lower[:, None] < blocks.upper) & (blocks.upper[:, None] > blocks.lower)
        after = (lower[:, None] < upper) & (upper[:, None] > lower)
        assert (before == after).all()
        assert lower_bound(blocks) == live_sum(rows)

    @given(problems())
    def test_an_order_weighs_sizes_by_neighbours_in_time(self, rows: list[Row]) -> None:
        blocks = problem(rows)
        lives = compress_lives(blocks)
        low, high = lives.lower, lives.upper
        area = [int(((low < high[at]) & (low[at] < high)).sum() * blocks.size[at]) for at in range(len(low))]
        order = dict(orders_to_try(blocks, lives))["neighbours-times-size"]
        found = [area[at] for at in order.tolist()]
        assert found == sorted(area, reverse=True)

    def test_luby(self) -> None:
        assert [luby_item(number) for number in range(1, 16)] == [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]


class TestKnownProblems:
    @pytest.mark.slow
    @pytest.mark.parametrize(("layers", "steps"), [(150, 2), (260, 3)])
    def test_a_training_run_is_planned_at_the_bound(self, engine: NumpyEngine, layers: int, steps: int) -> None:
        """1,052 and 2,602 blocks of 25 sizes, as in a static graph and a snapshot of an NPU."""
        rows, addresses = training(layers, steps, seed=layers)
        built = [Placed(*row, address) for row, address in zip(rows, addresses, strict=True)]
        assert find_faults(built) == []
        height = max(address + row[2] for row, address in zip(rows, addresses, strict=True))
        assert height == live_sum(rows)
        result = plan_addresses(problem(rows), engine, seconds=60)
        assert faults(result) == []
        assert result.height == result.lower_bound == height

    @pytest.mark.parametrize("count", [154, 215, 296])
    def test_blocks_without_a_gap_are_planned_within_their_capacity(self, count: int) -> None:
        rows = cut(count, 1 << 20, 1 << 20, seed=count)
        result = plan_addresses(problem(rows, capacity=1 << 20), compiled(), seconds=90)
        assert faults(result) == []
        assert result.height == 1 << 20

    def test_a_network_of_mindspore_is_planned_at_the_bound(self) -> None:
        result = plan_addresses(problem(shared("resnet50.csv")), compiled(), seconds=60)
        assert faults(result) == []
        assert result.lower_bound == 1515472556
        assert result.gap < 0.001

    def test_a_snapshot_of_an_npu_is_planned_at_the_bound(self, engine: NumpyEngine) -> None:
        result = plan_addresses(problem(shared("npu1.csv")), engine, seconds=60)
        assert faults(result) == []
        assert result.height == result.lower_bound == 471970304

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["A", "B", "C", pytest.param("D", marks=pytest.mark.more), "E", "F"])
    def test_hard_problems_are_solved_within_their_capacity(self, name: str) -> None:
        rows = shared(f"{name}.1048576.csv")
        limit = 90 if name != "D" else 10  # found in a second or two, and never proved optimal
        result = plan_addresses(problem(rows, capacity=1048576), compiled(), seconds=limit)
        assert faults(result) == []
        assert result.height <= 1048576


PLACED = st.builds(
    lambda low, life, size, address: Placed(low, low + life, size, 1, address),
    st.integers(0, 12),
    st.integers(0, 6),
    st.integers(0, 5),
    st.integers(0, 20),
)


def overlaps(a: Placed, b: Placed) -> bool:
    """Return overlaps byte by byte and tick by tick."""
    ticks = set(range(a.lower, a.upper)) & set(range(b.lower, b.upper))
    return bool(ticks and set(range(a.address, a.address + a.size)) & set(range(b.address, b.address + b.size)))


@given(st.lists(PLACED, max_size=12))
def test_it_agrees_with_looking_at_every_pair(blocks: list[Placed]) -> None:
    pairs = {(i, j) for i in range(len(blocks)) for j in range(i) if overlaps(blocks[i], blocks[j])}
    found = {
        (max(fault.block, fault.other_block), min(fault.block, fault.other_block))
        for fault in find_faults(blocks)
        if fault.other_block is not None
    }
    assert bool(found) == bool(pairs)
    assert found <= pairs


def test_alignment_and_addresses_below_zero() -> None:
    faults = find_faults([Placed(0, 5, 8, 512, 8), Placed(0, 5, 8, 1, -8)])
    assert [fault.kind for fault in faults] == ["negative", "alignment"]


def test_only_so_many_are_listed() -> None:
    assert len(find_faults([Placed(0, 9, 8, 1, 0)] * 150)) == 100


def repeating(steps: int, blocks: int, seed: int, *, residents: int = 20) -> list[Row]:
    """Return weights, and steps with equal allocations and releases."""
    random = np.random.default_rng(seed)
    length = 2 * blocks
    end = 100 + steps * length + 50
    rows = [(number, end, 512 * int(random.integers(1, 50)), 512) for number in range(residents)]
    low = np.sort(random.integers(0, length - 1, blocks))
    high = np.minimum(low + 1 + random.integers(1, length, blocks), length)
    size = 512 * random.integers(1, 100, blocks)
    for step in range(steps):
        begin = 100 + step * length
        rows += [(begin + int(a), begin + int(b), int(s), 512) for a, b, s in zip(low, high, size, strict=True)]
    return rows


def test_equal_steps_become_one() -> None:
    rows = repeating(8, 300, 1)
    blocks = problem(rows)
    folded = fold_steps(blocks)
    assert folded is not None
    assert folded.step.times >= 7
    assert len(folded.problem) <= len(rows) / 3
    assert lower_bound(folded.problem) == lower_bound(blocks)


@settings(max_examples=25)
@given(st.integers(2, 6), st.integers(70, 150), st.integers(0, 10_000), st.integers(0, 30), st.data())
def test_a_plan_of_one_step_holds_for_all(
    steps: int, blocks: int, seed: int, changes: int, data: st.DataObject
) -> None:
    rows = repeating(steps, blocks, seed)
    for _ in range(changes):  # blocks that differ, also ones that live across step boundaries
        at = data.draw(st.integers(0, len(rows) - 1))
        low, high, size, alignment = rows[at]
        rows[at] = (low, high + data.draw(st.integers(0, 400)), size, alignment)
    result = plan_addresses(problem(rows), NumpyEngine(), seconds=0.01)
    assert faults(result) == []
    assert result.height >= result.lower_bound == lower_bound(problem(rows))
