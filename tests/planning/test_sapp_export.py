"""A table written as SAPP's layers is the same table when it is read again; what has no place there is told."""

from __future__ import annotations

import json

import pytest

from ms_tune.enums import RecomputeMode
from ms_tune.planning.costs import costs_of
from ms_tune.planning.sapp import export_sapp, read_sapp
from ms_tune.planning.search import even_state
from ms_tune.planning.table import CostTable, LayerCost, UpdateCost
from tests.planning.tables import CASE_A, CASE_E, random_table


def again(table: CostTable) -> tuple[CostTable, list[str]]:
    """The table read back, and what was told."""
    content, pipeline, left = export_sapp(table, "model")
    return read_sapp(json.dumps(content), "s.json", pipeline), [message.id for message in left]


def plain(table: CostTable) -> CostTable:
    """Without what SAPP's form has no place for."""
    layers = tuple(
        layer._replace(
            recompute={
                kind: LayerCost(max(kept.activation_bytes, 1), round(kept.backward_extra, 6))
                for kind, kept in layer.recompute.items()
                if kind is not RecomputeMode.SWAP
            },
        )
        for layer in table.layers
    )
    return table._replace(
        layers=layers,
        tail=table.tail._replace(transient_bytes=0),
        stage_bytes=(),
        update=None,
        again=None,
        present=None,
    )


@pytest.mark.parametrize("table", [CASE_A, CASE_E, *(plain(random_table(seed)) for seed in range(40))])
def test_what_it_has_a_place_for_comes_back(table: CostTable) -> None:
    other, left = again(table)
    assert left == []
    order = tuple(layer._replace(recompute=dict(sorted(layer.recompute.items(), key=str))) for layer in table.layers)
    assert other._replace(layers=table.layers, head=table.head, tail=table.tail) == table
    assert tuple(one._replace(recompute=dict(sorted(one.recompute.items(), key=str))) for one in other.layers) == order
    for name in ("head", "tail"):
        assert getattr(other, name).bytes == getattr(table, name).bytes
        assert getattr(other, name).forward == pytest.approx(getattr(table, name).forward, rel=1e-12)


def test_swap_has_no_place_there() -> None:
    (layer,) = CASE_E.layers
    kept = LayerCost(5, swapped_bytes=layer.recompute[RecomputeMode.NONE].activation_bytes - 5)
    table = CASE_E._replace(layers=(layer._replace(recompute={**layer.recompute, RecomputeMode.SWAP: kept}),))
    other, left = again(table)
    assert left == ["planning.sapp.left.swap"]
    assert other.layers == CASE_E.layers


def test_what_stages_hold_on_top_goes_with_the_ends() -> None:
    table = CASE_E._replace(stage_bytes=(700, 50, 50, 900))
    other, left = again(table)
    assert left == []
    one, two = costs_of(table), costs_of(other)
    state = even_state(one)
    assert (one.peak_bytes(state[None]) == two.peak_bytes(state[None])).all()


@pytest.mark.parametrize("own", [(700, 50, 60, 900), (10, 50, 50, 900), (700, 50, 50, 20)])
def test_nothing_is_made_smaller(own: tuple[int, ...]) -> None:
    table = CASE_E._replace(stage_bytes=own)
    other, left = again(table)
    assert left == ["planning.sapp.left.stages"]
    state = even_state(costs_of(table))[None]
    assert (costs_of(table).peak_bytes(state) <= costs_of(other).peak_bytes(state)).all()


def test_what_has_no_place_is_told() -> None:
    (layer,) = CASE_E.layers
    kinds = {
        RecomputeMode.NONE: LayerCost(100, 0, 0, 5),
        RecomputeMode.SELECT: LayerCost(0, 0.04),
        RecomputeMode.FULL: LayerCost(7, 0.5, 30),
    }
    table = CASE_E._replace(layers=(layer._replace(recompute=kinds),), update=UpdateCost((1,) * 4, (2,) * 4))
    other, left = again(table)
    assert left == [f"planning.sapp.left.{name}" for name in ("kind", "transient", "once", "update")]
    assert set(other.kinds) == {RecomputeMode.NONE, RecomputeMode.FULL}
