"""Declared checks: path patterns, and what a value has to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ms_tune.dialects.check_context import Violation
from ms_tune.facts.legacy import is_legacy
from ms_tune.lint.quick_schema import UnknownKeywordError, is_valid
from ms_tune.source.yaml import MISSING, find_values, is_same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.lint.checklist import Condition, Expectation, When
    from ms_tune.source.yaml import SourceFile


def violations(source: SourceFile, test: Expectation) -> Iterator[Violation]:
    """The values that do not meet a declared check."""
    for pattern in test.paths:
        if test.condition.kind == "required":
            yield from _absent(source, pattern)
            continue
        for path, value in find_values(source.data, pattern):
            if not meets(value, test.condition):
                yield Violation(path, at_key=test.condition.kind == "forbidden")


def applies(source: SourceFile, when: When) -> bool:
    """Whether a precondition holds. A null is a missing value, as it is for the frameworks."""
    if when.condition.kind == "legacy":
        return is_legacy(source.data) is when.condition.operand
    value = source.get(when.path, MISSING)
    if value is None or value is MISSING:
        value = when.default
    return meets(value, when.condition)


def meets(value: object, condition: Condition) -> bool:
    """Whether a value (or :data:`MISSING`) is what it has to be."""
    kind, operand = condition.kind, condition.operand
    if kind in ("forbidden", "required"):
        return (value is MISSING) is (kind == "forbidden") or operand is False
    if kind == "equals":
        return is_same(value, operand)
    if kind == "one-of":
        return any(is_same(value, item) for item in operand)
    if kind == "not-one-of":
        return not any(is_same(value, item) for item in operand)
    return value is MISSING or _meets_schema(value, operand)


def _meets_schema(value: object, schema: Any) -> bool:  # noqa: ANN401 - a schema is a mapping or a bool
    try:
        return is_valid(value, schema)
    except UnknownKeywordError:
        import jsonschema  # noqa: PLC0415 - slow to import, and seldom needed

        return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def _absent(source: SourceFile, pattern: KeyPath) -> Iterator[Violation]:
    """Where a required key is missing; a mapping that is not there at all requires nothing."""
    for path, value in find_values(source.data, pattern[:-1]):
        if isinstance(value, dict) and pattern[-1] not in value:
            yield Violation((*path, pattern[-1]), at_key=True)
