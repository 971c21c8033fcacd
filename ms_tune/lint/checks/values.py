"""Checks of values against the key tables: types, bounds and choices that the framework itself insists on.

Which types go where differs: MindSpeed-Core-MS takes no int for a float, MindFormers' dynamic graph does, and a bool
is an int for neither.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.enums import Dialect
from ms_tune.errors import closest
from ms_tune.facts.keys import known_in, tables
from ms_tune.source.yaml import MISSING, find_values, is_same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.facts.keys import Key

_PYTHON = {"int": int, "float": float, "str": str, "bool": bool, "list": list, "dict": dict}


def types(context: CheckContext) -> Iterator[Violation]:
    """A value of a type that the framework refuses."""
    for key, path, value in _strict(context):
        if key.types and not _fits(value, key.types, context.dialect):
            wanted = " | ".join(key.types)
            name = (
                "int-for-float"
                if isinstance(value, int) and not isinstance(value, bool) and "float" in key.types
                else "default"
            )
            shown = "null" if value is None else type(value).__name__
            yield Violation(path, name, {"wanted": wanted, "found": shown, "as_float": f"{value}.0"})


def bounds(context: CheckContext) -> Iterator[Violation]:
    """A number that the framework finds too small or too large."""
    for key, path, value in _strict(context):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        if key.above is not None and value <= key.above:
            yield Violation(path, params={"bound": f"> {key.above:g}"})
        elif key.least is not None and value < key.least:
            yield Violation(path, params={"bound": f">= {key.least:g}"})
        elif key.most is not None and value > key.most:
            yield Violation(path, params={"bound": f"<= {key.most:g}"})


def choices(context: CheckContext) -> Iterator[Violation]:
    """A value that is none of those that the framework takes."""
    for key, path, value in _strict(context):
        if not key.choices or value is None or isinstance(value, (list, dict)) or _is_number_beside_names(key, value):
            continue
        if not any(is_same(value, one) for one in key.choices):
            similar = _similar(value, key)
            name = "similar" if similar else "default"
            listed = ", ".join(map(str, key.choices))
            yield Violation(path, name, {"choices": listed, "similar": similar})


def _is_number_beside_names(key: Key, value: object) -> bool:
    """Whether a key takes names or a number, and this is a number."""
    return not isinstance(value, str) and "str" in key.types and type(value).__name__ in key.types


def _strict(context: CheckContext) -> Iterator[tuple[Key, KeyPath, object]]:
    """The strict keys that are written, with their values: below the option ``below``, if it is given."""
    below = context.options.get("below")
    left_out = context.options.get("except", ())
    for key in _strict_keys(context.dialect, context.version):
        if isinstance(left_out, list) and ".".join(key.path) in left_out:
            continue
        if isinstance(below, list) and key.path[0] not in below:
            continue
        for path, value in find_values(context.source.data, key.path):
            if _is_looked_at(context, path, value):
                yield key, path, value


@cache
def _strict_keys(dialect: Dialect, version: str) -> tuple[Key, ...]:
    """The keys that the framework looks at; some later release looks at others, too."""
    return tuple(key for key in tables(dialect) if key.strict and (not version or known_in(key, version)))


def _is_looked_at(context: CheckContext, path: KeyPath, value: object) -> bool:
    """Whether the framework looks at a value at all.

    The option ``with`` names sections that count with a switch only; ``forced`` names settings of which every value that
    means yes becomes False without their switch, before its type is checked; ``or-default`` those whose default stands in
    for every value that means no.
    """
    dotted = ".".join(map(str, path))
    sections, forced = context.options.get("with"), context.options.get("forced")
    for section, switch in sections.items() if isinstance(sections, dict) else ():
        inside = dotted == section or (dotted.startswith(f"{section}.") and dotted != switch)
        if inside and not context.get(str(switch)):
            return False
    switch = forced.get(dotted) if isinstance(forced, dict) else None
    if switch is not None and value and not context.get(str(switch)):
        return False
    optional = context.options.get("or-default", ())
    return bool(value) or not isinstance(optional, list) or dotted not in optional


def _fits(value: object, wanted: tuple[str, ...], dialect: Dialect) -> bool:
    return "null" in wanted if value is None else any(_is(value, one, dialect) for one in wanted)


def _is(value: object, wanted: str, dialect: Dialect) -> bool:
    if wanted.startswith("list["):
        return isinstance(value, list) and all(_is(item, wanted[5:-1], dialect) for item in value)
    if isinstance(value, bool):
        return wanted == "bool"
    if wanted == "float" and dialect is Dialect.MINDFORMERS_PYNATIVE:
        return isinstance(value, (int, float))
    return wanted != "null" and isinstance(value, _PYTHON[wanted])


def _similar(value: object, key: Key) -> str:
    return closest(str(value), map(str, key.choices))


def kind(context: CheckContext) -> Iterator[Violation]:
    """A value at one of the ``keys`` that is not of the ``type``; a null is fine, unless ``nullable`` is false."""
    listed, wanted = context.options["keys"], str(context.options["type"])
    for name in listed if isinstance(listed, list) else ():
        path = tuple(str(name).split("."))
        value = context.source.get(path, MISSING)
        fine = value is MISSING or (value is None and context.options.get("nullable") is not False)
        if not fine and not isinstance(value, _PYTHON[wanted]):
            yield Violation(path)


def switched_on(context: CheckContext) -> Iterator[Violation]:
    """A switch at ``key`` that has to be on and is off, or not there although the section ``within`` (if any) is."""
    path = tuple(str(context.options["key"]).split("."))
    value = context.source.get(path, MISSING)
    if value is MISSING and "within" in context.options and not context.mapping(str(context.options["within"])):
        return
    if value is MISSING or not value:
        yield Violation(path, at_key=value is MISSING)
