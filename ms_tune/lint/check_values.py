"""Check single values: types, bounds and choices, and their spelling in YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ms_tune.diagnostics import KeyPath
from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.errors import closest
from ms_tune.facts.keys import Key, by_section
from ms_tune.lint.survey import NESTED, broken_bound, find_oddities


def types(context: CheckContext) -> Iterator[Violation]:
    """Report a value of a type that the framework refuses."""
    for key, path, value in _refused(context, "type"):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        name = "int-for-float" if is_whole and "float" in key.types else "default"
        shown = "null" if value is None else type(value).__name__
        yield Violation(path, name, {"wanted": " | ".join(key.types), "found": shown, "as_float": f"{value}.0"})


def bounds(context: CheckContext) -> Iterator[Violation]:
    """Report a number that is too small or too large for the framework."""
    for key, path, value in _refused(context, "bound"):
        yield Violation(path, params={"bound": broken_bound(key, value)})


def choices(context: CheckContext) -> Iterator[Violation]:
    """Report a value that is not one of the framework's choices."""
    for key, path, value in _refused(context, "choice"):
        similar = closest(str(value), map(str, key.choices))
        listed = ", ".join(map(str, key.choices))
        yield Violation(path, "similar" if similar else "default", {"choices": listed, "similar": similar})


def _refused(context: CheckContext, kind: str) -> Iterator[tuple[Key, KeyPath, Any]]:
    """Yield the strict keys with a refused value; only those below the option ``below``, if it is given."""
    below, left_out = context.names("below"), context.names("except")
    for key, path, value in find_oddities(context.job).get(kind, ()):
        is_elsewhere = below and key.path[0] not in below
        if ".".join(key.path) not in left_out and not is_elsewhere and _is_looked_at(context, path, value):
            yield key, path, value


def _is_looked_at(context: CheckContext, path: KeyPath, value: object) -> bool:
    """Return whether the framework checks a value at all.

    The option ``with`` names sections that only count if a switch is on; ``forced`` names settings whose true values become
    False without their switch before their type is checked; ``or-default`` those whose default replaces false values.
    """
    dotted = ".".join(map(str, path))
    for section, switch in context.options.get("with", {}).items():
        inside = dotted == section or (dotted.startswith(f"{section}.") and dotted != switch)
        if inside and not context.get(switch):
            return False
    switch = context.options.get("forced", {}).get(dotted)
    if switch is not None and value and not context.get(switch):
        return False
    return bool(value) or dotted not in context.names("or-default")


_REPORTED = 200  # a file with more duplicates is not a config
_SCIENTIFIC = re.compile(r"(?P<sign>[-+]?)(?P<digits>\d+\.?\d*|\.\d+)[eE](?P<exponent_sign>[-+]?)(?P<exponent>\d+)")
_OCTAL = re.compile(r"[-+]?0[0-7_]+")
_SEXAGESIMAL = re.compile(r"[-+]?\d[\d_]*(:[0-5]?\d)+(\.\d*)?")


def duplicate_key(context: CheckContext) -> Iterator[Violation]:
    """Report a key that appears twice: PyYAML silently keeps the last value."""
    for duplicate in context.source.duplicates[:_REPORTED]:
        yield Violation(duplicate.path, span=duplicate.second, related_spans=((duplicate.first, "first"),))


def number_as_text(context: CheckContext) -> Iterator[Violation]:
    """Report ``1e-5`` and the like: a YAML 1.1 float needs a point and a signed exponent (PyYAML 6, ``yaml/resolver.py``)."""
    for path, plain in find_oddities(context.job).get("scalar", ()):
        match = _SCIENTIFIC.fullmatch(plain.raw) if plain.kind == "str" else None
        if match and not _is_text(context, path):
            digits = match["digits"] if "." in match["digits"] else f"{match['digits']}."
            number = f"{match['sign']}{digits}e{match['exponent_sign'] or '+'}{match['exponent']}"
            yield Violation(path, params={"number": number})


def _is_text(context: CheckContext, path: KeyPath) -> bool:
    """Return whether a key accepts texts but not numbers, such as ``max_device_memory``."""
    key = by_section(context.dialect).get(tuple(map(str, path[:-1])), {}).get(str(path[-1]))
    return key is not None and "str" in key.types and not {"int", "float"} & set(key.types)


def number_in_other_base(context: CheckContext) -> Iterator[Violation]:
    """Report ``010``, which is 8, and ``12:30``, which is 750 (PyYAML 6, ``construct_yaml_int`` in ``yaml/constructor.py``)."""
    for path, plain in find_oddities(context.job).get("scalar", ()):
        if plain.kind not in ("int", "float"):
            continue
        octal = _OCTAL.fullmatch(plain.raw) and int(plain.raw, 8) != int(plain.raw)
        if octal or _SEXAGESIMAL.fullmatch(plain.raw):
            yield Violation(path, params={"number": context.source.get(path)})


def none_as_text(context: CheckContext) -> Iterator[Violation]:
    """Report ``None``, because YAML's null is ``null`` or ``~``; ``except`` names keys for which the word None is valid."""
    words = context.names("except")
    for path, plain in find_oddities(context.job).get("scalar", ()):
        if plain.kind == "str" and plain.raw == "None" and str(path[-1]) not in words:
            yield Violation(path)


def nesting(context: CheckContext) -> Iterator[Violation]:
    """Report mappings that are nested too deep, not counting those in lists (``get_yaml_ast_depth`` of MindFormers)."""
    path = _deepest(context.source.data, ())
    if len(path) > NESTED:
        yield Violation(path, params={"depth": len(path), "limit": NESTED}, at_key=True)


def _deepest(value: object, path: KeyPath) -> KeyPath:
    if not isinstance(value, dict):
        return path
    return max((_deepest(inner, (*path, key)) for key, inner in value.items()), key=len, default=path)
