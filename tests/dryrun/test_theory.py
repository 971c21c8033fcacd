"""What a stage holds beside what it should hold."""

from __future__ import annotations

import pytest

from ms_tune.dryrun.result import beside_theory, unlike_theory
from ms_tune.enums import MemoryCategory
from ms_tune.units import GIB, MIB


@pytest.mark.parametrize(
    ("measured", "agrees"),
    [(GIB, True), (GIB + MIB, True), (GIB + 2 * MIB, False), (GIB - 2 * MIB, False)],
)
def test_they_agree_within_what_the_allocator_rounds(measured: int, *, agrees: bool) -> None:
    pairs = beside_theory({"weights": GIB}, {MemoryCategory.WEIGHTS: measured, MemoryCategory.GRADIENTS: 5})
    assert [pair.agrees for pair in pairs] == [agrees]
    assert [message.id for message in unlike_theory(pairs)] == ([] if agrees else ["reference.unlike-theory"])
    assert pairs[0].difference == pytest.approx((measured - GIB) / GIB)


def test_one_part_in_a_thousand_of_much_is_little() -> None:
    (pair,) = beside_theory({"gradients": 40 * GIB}, {MemoryCategory.GRADIENTS: 40 * GIB + 40 * MIB})
    assert pair.agrees


def test_what_is_not_there_is_none_and_of_nothing_there_is_no_part() -> None:
    missing, nothing = beside_theory({"weights": GIB, "optimizer_state": 0}, {})
    assert (missing.measured, missing.agrees) == (0, False)
    assert (nothing.difference, nothing.agrees) == (None, True)
