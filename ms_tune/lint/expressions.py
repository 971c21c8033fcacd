"""Evaluate the expressions in a checklist's tests, which describe the settings to report.

An expression is nested lists, made by :func:`ms_tune.lint.rows.parse_expression`; Python never runs it as code.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module

from ms_tune.diagnostics import KeyPath
from ms_tune.dialects.check_context import CheckContext, CodeSource, Violation
from ms_tune.facts.models import UNKNOWN
from ms_tune.records import Any
from ms_tune.source.yaml import find_values, is_same
from ms_tune.units import is_number as is_numeral
from ms_tune.units import parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jsonschema import ValidationError

_MOST = 10**12  # real products of settings are far smaller; a config must not make the linter compute huge numbers
# Prefixes of names that are not parameters of messages.
_WITHOUT_VALUE = ("raw", "startup", "plan", "registered", "mindspore")

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
_EQUALITY = {"==": operator.eq, "!=": operator.ne}
_ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_OPERATORS = {**_ARITHMETIC, **_ORDER, **_EQUALITY}
_SIGNS = (*_OPERATORS, "in", "not in", "is", "is not")


def find_refused(context: CheckContext, test: Mapping[str, Any]) -> Iterator[Violation]:
    """Yield the violations that a test of a checklist finds: in settings as a whole, or in each value that matches a pattern.

    Nothing is reported if a value that matters is unknown.
    """
    data = context.source.data
    found = (one for pattern in test.get("each", ()) for one in find_values(data, pattern))
    for path, value in found if "each" in test else ((None, None),):
        scope = Scope(context, test, {})
        if path is not None:
            own = {"value": value, "key": path[-1] if path else "", "within": context.source.get(path[:-1])}
            scope = Scope(context, test, own)
        if "given" in test and not is_true(evaluate(test["given"], scope)):
            continue
        for message, refused in test["cases"]:
            if is_true(evaluate(refused, scope)):
                yield _violation(context, test, scope, path, message)
                break


def _violation(
    context: CheckContext, test: Mapping[str, Any], scope: Scope, path: KeyPath | None, message: str
) -> Violation:
    """Return the violation at the place of a case: the network's own setting, or else its section."""
    names, at = test.get("names", ()), test.get("at", ())
    places = {name: place for name in (*at, *names) if (place := context.find_setting(name))}
    first = None
    if at:
        of_network = at[0].startswith("network.")
        first = next((name for name in (at if of_network else places) if name in places), None)
        unwritten = context.section if of_network else () if at[0].startswith("argument.") else tuple(at[0].split("."))
        path = places[first] if first else unwritten
    named = test.get("place", {})
    place = tuple(named.get(message, named.get("default", path)))
    text, others = test.get("related", (None, ()))
    related = [places[name] for name in others if name in places and name != first]
    values = {name.rpartition(".")[2]: scope[name] for name in names if name.partition(".")[0] not in _WITHOUT_VALUE}
    values |= {name: scope[name] for name in test.get("let", ())}
    return Violation(
        (*(path or ()), *place[1:]) if place[:1] == ("",) else place,
        message,
        {name: "" if value is UNKNOWN else value for name, value in values.items()},
        at_key=test.get("at-key", False),
        span=context.source.find_span(first) if first and isinstance(context.source, CodeSource) else None,
        related=tuple((one, str(text)) for one in related if one != place),
    )


def is_true(value: object) -> bool:
    """Return whether an expression is known to be true."""
    return value is not UNKNOWN and bool(value)


class Scope(dict[str, object]):
    """The values of names in a test, evaluated on demand: the test's own values, and those of the job."""

    def __init__(self, context: CheckContext, test: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        super().__init__(own)
        self.context, self.test, self.own = context, test, own

    def __missing__(self, name: str) -> object:
        first, *rest = name.split(".")
        if name in self.test.get("let", ()):
            value = evaluate(self.test["let"][name], self)
        elif first in self.own:
            value = self[first]
            for part in rest:
                value = value.get(part, UNKNOWN) if isinstance(value, dict) else UNKNOWN
        elif first == "startup":  # settings as the dialect resolves them
            found = getattr(self.context.job.startup, rest[0])
            value = UNKNOWN if found is None else found
        else:
            value = self.context.value(name)
            if value is UNKNOWN:
                value = self.test.get("defaults", {}).get(name, UNKNOWN)
        self[name] = value
        return value


def evaluate(tree: Sequence[Any], scope: Scope) -> Any:  # noqa: ANN401, C901, PLR0911, PLR0912 - of any type; one a form
    """Evaluate an expression (:func:`ms_tune.lint.rows.parse_expression`).

    A name without a value is :data:`UNKNOWN`, and so is any expression that depends on it. Arithmetic and order apply to
    numbers only (``True`` is not a number), equality to two numbers or two other values. ``or`` and ``and`` are known if one
    known side decides them.
    """
    kind, *parts = tree
    if kind == "value":
        return parts[0]
    if kind == "name":
        return scope[parts[0]]
    if kind == "path":
        value = scope.context.source.get(parts[0])
        return UNKNOWN if value is None else value
    if kind == "each":
        return _evaluate_each(parts, scope)
    if kind in ("and", "or"):
        found: object = kind == "and"
        for part in parts:
            value = scope[part[1]] if part[0] == "name" else evaluate(part, scope)  # keeps nested expressions shallow
            if value is UNKNOWN:
                found = UNKNOWN
            elif bool(value) is (kind == "or"):
                return kind == "or"
        return found
    values = []
    for part in parts:
        values.append(scope[part[1]] if part[0] == "name" else evaluate(part, scope))  # noqa: PERF401 - as above
    if kind in _SIGNS:
        return _combine(kind, *values)
    if kind not in _OF_UNKNOWN:
        for value in values:
            if value is UNKNOWN:
                return UNKNOWN
    return FUNCTIONS[kind][0](*values)


def _evaluate_each(parts: Sequence[Any], scope: Scope) -> list[object] | object:
    """Return one value for each item of a list or key of a mapping that meets a condition."""
    name, items, part, condition = parts
    listed = evaluate(items, scope)
    if not isinstance(listed, (list, tuple, dict)):
        return UNKNOWN
    inner = [Scope(scope.context, scope.test, {**scope.own, name: item}) for item in listed]
    return [evaluate(part, one) for one in inner if condition is None or is_true(evaluate(condition, one))]


def _combine(sign: str, one: Any, other: Any) -> Any:  # noqa: ANN401, PLR0911 - of any type; one a kind of sign
    """Apply an operator to two values; return :data:`UNKNOWN` if it does not apply."""
    if other is True and sign in ("is", "is not"):  # an unknown value is not known to be true
        return (one is True) is (sign == "is")
    if one is UNKNOWN or other is UNKNOWN:
        return UNKNOWN
    if sign in ("in", "not in"):
        for item in other if isinstance(other, (list, tuple, dict)) else ():
            if is_same(one, item):
                return sign == "in"
        return sign == "not in" if isinstance(other, (list, tuple, dict)) else UNKNOWN
    if sign in ("is", "is not"):
        return (one is other) is (sign == "is")
    numbers = [is_number(one), is_number(other)]
    if numbers[0] is not numbers[1] or not (numbers[0] or sign in _EQUALITY):
        return UNKNOWN
    if sign in _ARITHMETIC and max(abs(one), abs(other)) > _MOST:
        return UNKNOWN
    try:
        return _OPERATORS[sign](one, other)
    except ZeroDivisionError:
        return UNKNOWN


def is_number(value: object) -> bool:
    """Return whether a value is a number; a bool is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(value: object) -> object:
    """Return a number, also from a text that YAML does not read as a number, such as ``1e-5``."""
    is_text = isinstance(value, str) and is_numeral(value)
    return float(value) if is_text or is_number(value) else UNKNOWN  # type: ignore[arg-type]  # one of the two


def _largest(value: object) -> object:
    rows = value if isinstance(value, list) else []
    items = [item for row in rows for item in (row if isinstance(row, list) else [row])]
    return max(items) if items and all(map(is_number, items)) else UNKNOWN


def _any_of(values: object) -> object:
    """Return whether one of several values is true; UNKNOWN if none is known to be true, but one is unknown."""
    listed = values if isinstance(values, (list, tuple)) else [UNKNOWN]
    return any(map(is_true, listed)) or (UNKNOWN if any(value is UNKNOWN for value in listed) else False)


def _all_of(values: object) -> object:
    listed = values if isinstance(values, (list, tuple)) else [UNKNOWN]
    some_fails = any(value is not UNKNOWN and not value for value in listed)
    return not some_fails and (UNKNOWN if any(value is UNKNOWN for value in listed) else True)


def _item(value: object, index: object) -> object:
    if isinstance(value, dict):
        return value.get(index, UNKNOWN)
    is_there = isinstance(value, (list, tuple)) and isinstance(index, int) and -len(value) <= index < len(value)
    return value[index] if is_there else UNKNOWN  # type: ignore[index]  # mypy does not see what `is_there` says


def find_schema_error(value: object, schema: Any) -> ValidationError | None:  # noqa: ANN401 - a JSON Schema
    """Return the most relevant error of a value by a schema, if there is one."""
    jsonschema: Any = import_module("jsonschema")  # slow to import, and only used by users' own checklists
    validator = jsonschema.Draft202012Validator(schema)
    error: ValidationError | None = jsonschema.exceptions.best_match(validator.iter_errors(value))
    return error


# The functions that an expression may call, with their minimum and maximum number of arguments; 0 for those of conditions.
FUNCTIONS: dict[str, tuple[Callable[..., object], int, int]] = {
    "all": (_all_of, 1, 1),
    "any": (_any_of, 1, 1),
    "either": (lambda value, default: default if value is UNKNOWN else value, 2, 2),
    "integer": (lambda value, default=UNKNOWN: value if is_number(value) and isinstance(value, int) else default, 1, 2),
    "item": (_item, 0, 0),
    "kind": (lambda value: "null" if value is None else type(value).__name__, 1, 1),
    "known": (lambda value: value is not UNKNOWN, 1, 1),
    "largest": (_largest, 1, 1),
    "len": (lambda value: len(value) if isinstance(value, (str, list, tuple, dict)) else UNKNOWN, 1, 1),
    "lower": (lambda value: value.lower() if isinstance(value, str) else UNKNOWN, 1, 1),
    "matches": (lambda value, form: isinstance(value, str) and re.match(form, value) is not None, 2, 2),
    "not": (operator.not_, 0, 0),
    "number": (_number, 1, 1),
    "numeral": (lambda value: isinstance(value, str) and is_numeral(value), 1, 1),
    "on": (is_true, 1, 1),
    "schema": (lambda value, schema: value is UNKNOWN or find_schema_error(value, schema) is None, 0, 0),
    "size": (parse_size, 1, 1),
    "text": (lambda value: value if isinstance(value, str) else UNKNOWN, 1, 1),
    "tuple": (lambda *values: values, 0, 0),
    "whole": (lambda value: isinstance(value, int), 1, 1),
}
_OF_UNKNOWN = ("either", "integer", "known", "on", "schema", "tuple")
