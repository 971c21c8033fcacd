"""Check that the data files follow their schema, and that facts are in the data files only."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ms_tune.facts import query
from ms_tune.facts.query import load
from tests.sources import modules, nodes

FOLDER = query._FOLDER
FILES = sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != "schemas")
SCHEMAS = json.loads((FOLDER / "schemas.json").read_text(encoding="utf-8"))


def schema_of(name: str) -> dict[str, Any]:
    found = SCHEMAS["files"]["keys" if name.startswith("keys_") else name]
    return {"$schema": SCHEMAS["$schema"], "$defs": SCHEMAS["$defs"], **found}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_data_file_has_the_form_that_its_schema_says(name: str) -> None:
    Draft202012Validator.check_schema(schema_of(name))
    errors = [
        f"{list(error.path)}: {error.message[:200]}"
        for error in Draft202012Validator(schema_of(name)).iter_errors(load(name))
    ]
    assert errors == []


def names() -> frozenset[str]:
    """Return every model type and every network in the data."""
    found = set()
    for kind, one in load("models")["classes"].items():
        found.add(kind)
        for part in ("names", "architectures"):
            found |= {name for names_ in one[part].values() if isinstance(names_, list) for name in names_}
    return frozenset(found)


def tables(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Return the displays (dicts, sets, tuples, lists) that contain two models or more."""
    known = names()
    for node in ast.walk(tree):
        items: list[ast.expr] = []
        if isinstance(node, ast.Dict):
            items = [key for key in node.keys if key is not None]
        elif isinstance(node, (ast.Set, ast.Tuple, ast.List)):
            items = list(node.elts)
        texts = [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        models = sorted({text for text in texts if text in known})
        if len(models) > 1:
            yield getattr(node, "lineno", 0), models


@pytest.mark.slow
def test_no_table_of_models_is_outside_this_room() -> None:
    found = {module.name: list(tables(module.tree)) for module in modules() if not module.inside("facts")}
    assert {name: rows for name, rows in found.items() if rows} == {}


def one_field() -> dict[str, str]:
    """Map every key that is an alias of a model's field, and the field's own name, to the field."""
    aliases = load("models")["aliases"].items()
    fields = {key: rule[0] for key, history in aliases for rule in history.values() if isinstance(rule, list)}
    return {**{field: field for field in fields.values()}, **fields}


def constants_elsewhere() -> Iterator[tuple[str, list[Any]]]:
    """Yield lists of models in other folders, and the constants in them."""
    for module in modules():
        if module.inside("facts"):
            continue
        for node in nodes(module):
            if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
                constants = [item.value for item in node.elts if isinstance(item, ast.Constant)]
                yield f"{module.name}:{node.lineno}", constants


@pytest.mark.slow
def test_no_list_of_names_for_one_field_is_outside_this_room() -> None:
    fields, found = one_field(), []
    for place, texts in constants_elsewhere():
        named = [fields[text] for text in texts if text in fields]
        if len(texts) > 1 and len(named) == len(texts) and len(set(named)) == 1:
            found.append((place, texts))
    assert found == []


@pytest.mark.slow
def test_no_list_of_releases_is_outside_this_room() -> None:
    served = {release for one in load("releases").values() for release in one["served"]}
    found = [
        place
        for place, texts in constants_elsewhere()
        if len(texts) > 3 and served.issuperset(map(str, texts))  # fewer are where rules changed
    ]
    assert found == []
