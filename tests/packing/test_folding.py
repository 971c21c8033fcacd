"""Steps that repeat are planned once, and the plan holds for all of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ms_tune.packing.engine import NumpyEngine
from ms_tune.packing.placement import lower_bound
from ms_tune.packing.plan import fold_steps, plan_addresses
from tests.packing.problems import Row, faults, problem


def training(steps: int, blocks: int, seed: int, *, residents: int = 20) -> list[Row]:
    """Weights, and steps that allocate and release the same every time."""
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
    rows = training(8, 300, 1)
    blocks = problem(rows)
    folded = fold_steps(blocks)
    assert folded is not None
    assert folded.periods >= 7
    assert len(folded.problem) <= len(rows) / 3
    assert lower_bound(folded.problem) == lower_bound(blocks)


@settings(max_examples=25)
@given(st.integers(2, 6), st.integers(70, 150), st.integers(0, 10_000), st.integers(0, 30), st.data())
def test_a_plan_of_one_step_holds_for_all(
    steps: int, blocks: int, seed: int, changes: int, data: st.DataObject
) -> None:
    rows = training(steps, blocks, seed)
    for _ in range(changes):  # blocks that differ, also ones that live across borders of steps
        at = data.draw(st.integers(0, len(rows) - 1))
        low, high, size, alignment = rows[at]
        rows[at] = (low, high + data.draw(st.integers(0, 400)), size, alignment)
    result = plan_addresses(problem(rows), NumpyEngine(), seconds=0.01)
    assert faults(result) == []
    assert result.height >= result.lower_bound == lower_bound(problem(rows))
