"""Test the editor's schema: it describes every key, and refuses exactly what the framework refuses."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import yaml

from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.facts.keys import Key, tables
from ms_tune.facts.query import REQUIRED, data_folder
from ms_tune.job.detect import recognise
from ms_tune.lint import schema as module
from ms_tune.lint.schema import schema
from tests.source.corpus import wheel_configs

CONFIGS = wheel_configs()


@pytest.mark.parametrize("dialect", YAML_DIALECTS)
def test_every_key_is_described_in_both_languages(dialect: Dialect) -> None:
    made = schema(dialect)
    for key in tables(dialect):
        here = made
        for part in key.path:
            here = here["items"] if part == "*" else here["properties"][part]
        assert key.en in here["description"]
        assert key.zh in here["description"]
        assert "deprecationMessage" not in here  # editors show it as an error
        if key.state != "live":
            assert {"dead": "read by nothing / ", "deprecated": "[deprecated / "}[key.state] in here["description"]


def valid(config: object, dialect: Dialect) -> list[str]:
    return [error.message for error in jsonschema.Draft7Validator(schema(dialect)).iter_errors(config)]


def test_templates_are_valid() -> None:
    for path in sorted(data_folder("yaml_templates").rglob("*.yaml")):
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        dialect = recognise(config).dialect
        assert dialect is not None
        assert valid(config, dialect) == [], path


@pytest.mark.slow
@pytest.mark.skipif(not CONFIGS, reason="mindformers is not installed")
def test_real_configs_are_valid() -> None:
    for path in CONFIGS:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        dialect = recognise(config).dialect
        if dialect is not None:
            assert valid(config, dialect) == [], path


def test_what_the_framework_refuses_is_refused_and_the_rest_is_not() -> None:
    dialect = Dialect.MINDFORMERS
    assert valid({"unknown": 1, "parallel_config": {"pipeline_stage": None, "more": 1}}, dialect) == []
    assert valid({"parallel_config": {"pipeline_stage": 0}}, dialect)
    assert valid({"parallel_config": {"pipeline_stage": "4"}}, dialect)


def key(path: str, **facts: Any) -> Key:  # noqa: ANN401 - any fact of a key
    *_, name = parts = path.split(".")
    return Key(**{"types": (), "en": "en", "zh": "zh", **facts}, path=tuple(parts), name=name)


def properties(monkeypatch: pytest.MonkeyPatch, *keys: Key) -> dict[str, Any]:
    monkeypatch.setattr(module, "tables", lambda *_: keys)
    found: dict[str, Any] = schema(Dialect.MINDFORMERS)["properties"]
    return found


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, {"description": "en\nzh"}),
        ({"since": "1.7"}, {"description": "en\nzh\n[>=1.7]"}),
        ({"until": "1.8"}, {"description": "en\nzh\n[<=1.8]"}),
        ({"since": "1.7", "until": "1.8"}, {"description": "en\nzh\n[1.7 - 1.8]"}),
        ({"default": REQUIRED}, {"description": "en\nzh"}),
        ({"default": (1, 2)}, {"description": "en\nzh", "default": [1, 2]}),
        ({"default": False}, {"description": "en\nzh", "default": False}),
        ({"choices": ("a", "b")}, {"description": "en\nzh", "anyOf": [{"enum": ["a", "b"]}, {}]}),
        # Values that the framework uses unchanged have no limits; a null is accepted everywhere.
        ({"types": ("int",), "least": 1}, {"description": "en\nzh"}),
        ({"types": ("int",), "strict": True}, {"description": "en\nzh", "type": ["integer", "null"]}),
        ({"types": ("int", "float"), "strict": True}, {"description": "en\nzh", "type": ["null", "number"]}),
        (
            {"types": ("list[int]",), "strict": True},
            {"description": "en\nzh", "type": ["array", "null"], "items": {"type": ["integer"]}},
        ),
        ({"types": ("list", "list[int]"), "strict": True}, {"description": "en\nzh", "type": ["array", "null"]}),
        (
            {"strict": True, "above": 0, "least": 1, "most": 9},
            {"description": "en\nzh", "exclusiveMinimum": 0, "minimum": 1, "maximum": 9},
        ),
    ],
)
def test_a_key(facts: dict[str, Any], expected: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    assert properties(monkeypatch, key("a", **facts)) == {"a": expected}


def test_keys_inside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found = properties(monkeypatch, key("a.*.b", types=("str",), strict=True), key("a.*.c"))
    assert list(found["a"]["items"]["properties"]) == ["b", "c"]
    assert found["a"]["items"]["properties"]["b"]["type"] == ["null", "string"]


def test_a_key_that_means_other_things_to_other_versions_has_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    limited = {"types": ("int",), "strict": True, "least": 1}
    found = properties(monkeypatch, key("a", until="1.8", **limited), key("a", since="1.9", **limited))
    assert found == {"a": {"description": "en\nzh\n[>=1.9]"}}
