"""Test the table of names: every name belongs to a module or operator of its family of models."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ms_tune.dialects.megatron.placement import MegatronInputs
from ms_tune.dialects.megatron.recompute import normalize_megatron
from ms_tune.dialects.megatron.write import DENSE_PARTS, EXPERT_PARTS
from ms_tune.dialects.mindspeed_ms.placement import MindSpeedInputs
from ms_tune.dialects.mindspeed_ms.recompute import normalize_mindspeed_ms
from ms_tune.dialects.operators import Tree, dynamic_model, layer_model
from ms_tune.facts.models import cells_of, models
from ms_tune.facts.query import VERSIONS, load

FAMILIES = ("legacy", "glm", "core", "dynamic")
ROWS: list[dict[str, list[str]]] = load("names")["rows"]


def trees(family: str) -> list[Tree]:
    """Yield every kind of layer of every model of a family, in every release that has it."""
    found: list[Tree] = []
    for name in models(family):
        for release in VERSIONS:
            model = dynamic_model(name, release) if family == "dynamic" else layer_model(name, release)
            found += model.every if model else ()
    return found


PATHS = {family: [frozenset(tree.paths()) for tree in trees(family)] for family in FAMILIES}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: next(iter(row.values()))[0])
def test_every_name_is_there(row: dict[str, list[str]]) -> None:
    assert len(row) > 1
    for family in row.keys() & set(FAMILIES):
        for name in row[family]:
            assert any(name in paths for paths in PATHS[family]), (family, name)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: next(iter(row.values()))[0])
def test_a_target_can_have_all_the_names_of_a_row(row: dict[str, list[str]]) -> None:
    for family in row.keys() & {"core", "dynamic"}:
        assert any(paths.issuperset(row[family]) for paths in PATHS[family]), (family, row[family])


def test_mindspeeds_names_are_those_that_it_logs() -> None:
    named = {name for row in ROWS for name in row.get("mindspeed", ())}
    met: set[str] = set()
    for flash in (True, False):
        lists = {"recompute": [0], "select_recompute": [1], "select_comm_recompute": [1]}
        plan = normalize_mindspeed_ms(MindSpeedInputs(layers=1, recompute_config=lists, flash_attention=flash))
        met |= {name for layer in plan.layers for name in (*layer.select_patterns, *layer.comm_patterns)}
    assert named == met


def test_megatrons_names_are_those_of_parts_that_its_layers_recompute() -> None:
    named = {name for row in ROWS for name in row.get("megatron", ())}
    met: set[str] = set()
    for experts in (None, 4):
        inputs = MegatronInputs("2.3", layers=1, experts=experts, grouped=bool(experts), latent=True, activation=True)
        every = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe")
        plan = normalize_megatron(replace(inputs, granularity="selective", modules=every))
        met |= {name for layer in plan.layers for name in layer.select_patterns}
    assert named == met == DENSE_PARTS | EXPERT_PARTS


@pytest.mark.parametrize("family", ["legacy", "glm", "core"])
def test_cells_of_a_family_are_in_every_layer_of_its_first_model(family: str) -> None:
    model = layer_model(models(family)[0], VERSIONS[-1])
    assert model is not None
    for layer in model.every:
        assert set(cells_of(family)) <= {name for name, _ in layer.cells}
