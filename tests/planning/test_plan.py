"""Read the lists of a plan back by the framework's rules, layer by layer, and by the package itself."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError
from ms_tune.normalize.sapp_lists import KEYS, SappLists, Sizes
from ms_tune.normalize.sapp_lists import plan_sapp as framework_plan
from ms_tune.planning.fit import _changed_tables
from ms_tune.planning.schedule import Schedule
from ms_tune.planning.table import IN_CELL, CostTable, PlanLists, cells_of, plan_of
from tests.planning.tables import CASE_A, CASE_E, random_table

if TYPE_CHECKING:
    from ms_tune.dialects import LayerSpec


def kind_of(layer: LayerSpec) -> RecomputeMode:
    """Return the recompute mode of one layer by the framework's rules."""
    if layer.recompute is RecomputeMode.FULL:
        return RecomputeMode.FULL
    switched = (bool(layer.select_patterns), bool(layer.comm_patterns))
    return {
        (False, False): RecomputeMode.NONE,
        (True, False): RecomputeMode.SELECT,
        (False, True): RecomputeMode.COMM,
        (True, True): RecomputeMode.BOTH,
    }[switched]


def expressible(table: CostTable, draw: random.Random) -> list[dict[RecomputeMode, int]]:
    """Draw a random plan without empty cells in the middle, and without select and comm alone in one cell."""
    counts = [1] * table.cells
    for _ in range(table.layer_count - table.cells):
        counts[draw.randrange(table.cells)] += 1
    cells = []
    for count in counts:
        left_out = draw.choice((RecomputeMode.SELECT, RecomputeMode.COMM))
        kinds = [kind for kind in table.kinds if kind is not left_out]
        cell = dict.fromkeys(IN_CELL, 0)
        for _ in range(count):
            cell[draw.choice(kinds)] += 1
        cells.append(cell)
    return cells


@pytest.mark.parametrize("seed", range(40))
def test_the_framework_reads_what_was_meant(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - test data
    table = random_table(seed)
    if table.layer_count < table.cells:
        return
    cells = expressible(table, draw)
    plan = plan_of(table, cells)
    assert cells_of(table, plan, "here") == cells
    lists: list[Any] = [[list(row) for row in getattr(plan, name)] for name in KEYS]
    sizes = Sizes(table.layer_count, table.stages, table.chunks)
    read = framework_plan(SappLists(*lists), sizes, legacy=False)
    assert read.failure is None
    assert read.placement is not None
    assert [count for row in read.placement for count in row] == [sum(cell.values()) for cell in cells]
    wanted = [kind for cell in cells for kind in IN_CELL for _ in range(cell[kind])]
    # Layers with swap recompute nothing, and are in no recompute list.
    assert [kind_of(layer) for layer in read.layers] == [
        RecomputeMode.NONE if kind is RecomputeMode.SWAP else kind for kind in wanted
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"offset": ((0,) * 15,)}, "must be 1 x 16"),
        ({"offset": ((1,) * 16,)}, "do not place all 96 layers"),
        ({"recompute": ((7,) * 16,)}, "negative number of layers"),
        ({"select_recompute": ((3,) * 16,)}, "use recompute kind 'select', which is not in the table"),
    ],
)
def test_lists_that_do_not_fit_the_table_are_refused(
    change: dict[str, tuple[tuple[int, ...], ...]], words: str
) -> None:
    zeros = ((0,) * 16,)
    plan = PlanLists(zeros, zeros, zeros, zeros)._replace(**change)
    with pytest.raises(ConfigError, match=words):
        cells_of(CASE_A, plan, "here")


def test_only_chunks_that_take_turns_can_take_them_with_less_memory() -> None:
    several = CASE_E._replace(chunks=2)
    names = {order: [name for name, _ in _changed_tables(several._replace(order=order))] for order in Schedule}
    assert next(name for name, _ in _changed_tables(CASE_E)) == "micro-batch"
    assert {order for order, found in names.items() if found[0] == "less-memory"} == {
        Schedule.INTERLEAVED,
        Schedule.INTERLEAVED_FULL_WARM_UP,
    }
    assert all("one-chunk" in found for found in names.values())
