"""Test messages that name some of many items: the exact number, and an ellipsis only if there are more."""

from __future__ import annotations

import pytest

from ms_tune.dialects.draft import name_ranges
from ms_tune.dialects.mindformers.placement import RecomputeInputs, RecomputeValues, SwapValues
from ms_tune.dialects.mindformers.recompute import normalize

FEW = [(4, "2 > 1, 3 > 1, 4 > 1, 5 > 1"), (5, "2 > 1, 3 > 1, 4 > 1, 5 > 1, …")]
MANY = [(8, "0, 1, 2, 3, 4, 5, 6, 7"), (9, "0, 1, 2, 3, 4, 5, 6, 7, …")]


def parameters(inputs: RecomputeInputs, problem: str) -> dict[str, object]:
    (found,) = [one for one in normalize(inputs).problems if one.id == problem]
    return dict(found.message.params)


@pytest.mark.parametrize(("count", "ranges"), [(8, "0, 2, 4, 6, 8, 10, 12, 14"), (9, "0, 2, 4, 6, 8, 10, 12, 14, …")])
def test_ranges_of_layers(count: int, ranges: str) -> None:
    assert name_ranges(range(0, 2 * count, 2)) == ranges


@pytest.mark.parametrize(("count", "layers"), MANY)
def test_layers_that_swap_what_they_recompute(count: int, layers: str) -> None:
    swap = SwapValues(swap=True, layer_swap=[{"backward_prefetch": 1, "layers": True}])
    inputs = RecomputeInputs(layers=count, values=RecomputeValues(recompute=True), swap=swap)
    assert parameters(inputs, "swap-recomputed") == {"layers": layers}


@pytest.mark.parametrize(("count", "numbers"), FEW)
def test_counts_above_those_of_the_cells(count: int, numbers: str) -> None:
    """Stage 0 has one layer and two are requested, three for stage 1, and so on."""
    inputs = RecomputeInputs(layers=count, stages=count, values=RecomputeValues(recompute=list(range(2, count + 2))))
    assert parameters(inputs, "count-clamped") == {"name": "recompute", "counts": numbers}
