from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.lint.checklist import Expectation, built_in
from ms_tune.lint.quick_schema import UnknownKeywordError, is_valid

SCALARS: st.SearchStrategy[Any] = st.sampled_from([None, True, False, 0, 1, 2, -1, 1.0, 1.5, "", "a", "1f1b", "O0"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner), max_leaves=5
)
LEAVES = st.one_of(
    st.builds(lambda names: {"type": names}, st.sampled_from(["integer", "number", "string", ["null", "boolean"]])),
    st.builds(lambda names: {"type": names}, st.sampled_from(["array", "object", "boolean", ["integer", "array"]])),
    st.builds(lambda choices: {"enum": choices}, st.lists(VALUES, min_size=1, max_size=3)),
    st.builds(lambda value: {"const": value}, VALUES),
    st.builds(
        lambda name, bound: {name: bound},
        st.sampled_from(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
        st.integers(-1, 2),
    ),
    st.builds(
        lambda name, bound: {name: bound},
        st.sampled_from(["minLength", "maxLength", "minItems", "maxItems"]),
        st.integers(0, 3),
    ),
    st.sampled_from([{"pattern": "^a"}, {"pattern": "1"}, {"required": ["a"]}, {"required": []}, True, False, {}]),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda schema: {"not": schema}, inner),
        st.builds(lambda schema: {"items": schema}, inner),
        st.builds(lambda one, other: {"properties": {"a": one}, "additionalProperties": other}, inner, inner),
        st.builds(
            lambda name, schemas: {name: schemas},
            st.sampled_from(["anyOf", "allOf", "oneOf"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
    ),
    max_leaves=5,
)


@given(value=VALUES, schema=SCHEMAS)
def test_it_judges_as_jsonschema_does(value: object, schema: Any) -> None:  # noqa: ANN401 - a schema
    assert is_valid(value, schema) == jsonschema.Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize("schema", [{"format": "uri"}, {"not": {"$ref": "#"}}, {"anyOf": [False, {"if": {}}]}])
def test_what_it_does_not_know_is_left_to_jsonschema(schema: object) -> None:
    with pytest.raises(UnknownKeywordError):
        is_valid(1, schema)


def test_it_is_enough_for_the_built_in_checklists() -> None:
    for check in built_in():
        conditions = [when.condition for when in check.when]
        if isinstance(check.test, Expectation):
            conditions.append(check.test.condition)
        for condition in conditions:
            if condition.kind == "schema":
                full = jsonschema.Draft202012Validator(condition.operand)
                for value in (None, 1, "a", [1], {"a": 1}):
                    assert is_valid(value, condition.operand) == full.is_valid(value), check.id
