"""Compare stages with added recomputation with every variant of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ms_tune.enums import RecomputeMode
from ms_tune.planning.search import add_recompute
from tests.planning import naive
from tests.planning.tables import CASE_A, random_table

if TYPE_CHECKING:
    from ms_tune.planning.table import CostTable

Cells = list[dict[RecomputeMode, int]]


def lightest(table: CostTable) -> Cells:
    """Return cells with evenly distributed layers without recomputation."""
    share, rest = divmod(table.layer_count, table.cells)
    counts = [share + (cell >= table.cells - rest) for cell in range(table.cells)]
    return [{kind: count * (kind is RecomputeMode.NONE) for kind in table.kinds} for count in counts]


def variants(table: CostTable, cells: Cells, stage: int) -> Iterator[Cells]:
    """Yield every plan in which one stage's layers have any mode except swap, and that lists can express."""
    kinds = [kind for kind in table.kinds if kind is not RecomputeMode.SWAP]
    places = range(stage, table.cells, table.stages)
    of_cell = [
        [
            dict[RecomputeMode, int](zip(kinds, counts, strict=True))
            for counts in itertools.product(range(sum(cells[place].values()) + 1), repeat=len(kinds))
            if sum(counts) == sum(cells[place].values())
        ]
        for place in places
    ]
    for chosen in itertools.product(*of_cell):
        if any(cell.get(RecomputeMode.SELECT) and cell.get(RecomputeMode.COMM) for cell in chosen):
            continue
        found = list(cells)
        for place, cell in zip(places, chosen, strict=True):
            found[place] = cell
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_the_fastest_of_all_variants_that_keep_the_limit(seed: int) -> None:
    table = random_table(70_000 + seed, tiny=True)
    if RecomputeMode.NONE not in table.kinds or table.layer_count < table.cells:
        pytest.skip("no plan to begin with")
    cells, stage = lightest(table), seed % table.stages
    peaks = sorted({naive.peaks_of(table, one)[stage] for one in variants(table, cells, stage)})
    limit = peaks[len(peaks) // 2] if seed % 5 else peaks[0] - 1
    margin = 7
    found = add_recompute(table._replace(limit_bytes=limit + margin), cells, [stage], margin)
    fine = [one for one in variants(table, cells, stage) if naive.peaks_of(table, one)[stage] <= limit]
    if not fine:
        assert found is None
        return
    assert found is not None
    assert naive.peaks_of(table, found)[stage] <= limit
    assert naive.time_of(table, found) == min(naive.time_of(table, one) for one in fine)
    assert all(found[place] == cells[place] for place in range(table.cells) if place % table.stages != stage)


def test_large_stages_are_relieved_and_the_others_stay() -> None:
    cells = lightest(CASE_A)
    before = naive.peaks_of(CASE_A, cells)
    table = CASE_A._replace(limit_bytes=sorted(before)[-2])
    over = [stage for stage, peak in enumerate(before) if peak > table.limit_bytes]
    found = add_recompute(table, cells, over, 0)
    assert over == [0]
    assert found is not None
    assert found[1:] == cells[1:]
    assert naive.peaks_of(table, found)[0] <= table.limit_bytes
    full = found[0][RecomputeMode.FULL]
    fewer = [
        {**found[0], RecomputeMode.FULL: full - 1, RecomputeMode.NONE: found[0][RecomputeMode.NONE] + 1},
        *found[1:],
    ]
    assert naive.peaks_of(table, fewer)[0] > table.limit_bytes


def test_what_recomputing_cannot_free_is_said() -> None:
    assert add_recompute(CASE_A._replace(limit_bytes=1), lightest(CASE_A), [0, 3], 0) is None
