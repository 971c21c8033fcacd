"""The part of JSON Schema that checklists use, without the tenth of a second that importing jsonschema takes.

A test compares it with jsonschema. Whatever it does not know is left to jsonschema.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class UnknownKeywordError(Exception):
    """A schema uses what this module does not know."""


def is_valid(value: object, schema: Any) -> bool:  # noqa: ANN401 - a schema is a mapping or a bool
    """Whether a value meets a schema (draft 2020-12).

    Raises:
        UnknownKeywordError: This module does not know a keyword in it.
    """
    if isinstance(schema, bool):
        return schema
    for keyword in schema:
        if keyword not in _KEYWORDS:
            raise UnknownKeywordError(keyword)
    return all(_KEYWORDS[keyword](value, operand, schema) for keyword, operand in schema.items())


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
    "number": _is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def _type(value: object, names: Any, _: object) -> bool:  # noqa: ANN401 - a name or several
    return any(_TYPES[name](value) for name in ([names] if isinstance(names, str) else names))


def _same(one: object, other: object) -> bool:
    """Equality of JSON: ``1`` is ``1.0`` and not ``true``."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def _items(value: Any, schema: Any, _: object) -> bool:  # noqa: ANN401 - JSON
    return not isinstance(value, list) or all(is_valid(item, schema) for item in value)


def _properties(value: Any, schemas: Any, _: object) -> bool:  # noqa: ANN401 - JSON
    return not isinstance(value, dict) or all(
        is_valid(value[name], schema) for name, schema in schemas.items() if name in value
    )


def _additional(value: Any, schema: Any, parent: Any) -> bool:  # noqa: ANN401 - JSON
    known = parent.get("properties", {})
    return not isinstance(value, dict) or all(is_valid(value[name], schema) for name in value if name not in known)


_KEYWORDS: Mapping[str, Callable[[Any, Any, Any], bool]] = {
    "type": _type,
    "enum": lambda value, choices, _: any(_same(value, choice) for choice in choices),
    "const": lambda value, other, _: _same(value, other),
    "minimum": lambda value, bound, _: not _is_number(value) or value >= bound,
    "maximum": lambda value, bound, _: not _is_number(value) or value <= bound,
    "exclusiveMinimum": lambda value, bound, _: not _is_number(value) or value > bound,
    "exclusiveMaximum": lambda value, bound, _: not _is_number(value) or value < bound,
    "pattern": lambda value, pattern, _: not isinstance(value, str) or bool(re.search(pattern, value)),
    "minLength": lambda value, bound, _: not isinstance(value, str) or len(value) >= bound,
    "maxLength": lambda value, bound, _: not isinstance(value, str) or len(value) <= bound,
    "minItems": lambda value, bound, _: not isinstance(value, list) or len(value) >= bound,
    "maxItems": lambda value, bound, _: not isinstance(value, list) or len(value) <= bound,
    "required": lambda value, names, _: not isinstance(value, dict) or all(name in value for name in names),
    "items": _items,
    "properties": _properties,
    "additionalProperties": _additional,
    "not": lambda value, schema, _: not is_valid(value, schema),
    "anyOf": lambda value, schemas, _: any(is_valid(value, schema) for schema in schemas),
    "allOf": lambda value, schemas, _: all(is_valid(value, schema) for schema in schemas),
    "oneOf": lambda value, schemas, _: sum(is_valid(value, schema) for schema in schemas) == 1,
}
