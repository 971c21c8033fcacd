"""Checks of single values: their types, bounds and choices, and how they are spelled in YAML."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.enums import Dialect
from ms_tune.errors import closest
from ms_tune.facts.keys import by_section
from ms_tune.source.yaml import find_values, is_same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.facts.keys import Key
    from ms_tune.source.yaml import Plain

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
    sections = by_section(dialect, version or None).values()
    return tuple(key for section in sections for key in section.values() if key.strict)


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


_REPORTED = 200  # duplicates; a file with more of them is no config
_SCIENTIFIC = re.compile(r"(?P<sign>[-+]?)(?P<digits>\d+\.?\d*|\.\d+)[eE](?P<exponent_sign>[-+]?)(?P<exponent>\d+)")
_OCTAL = re.compile(r"[-+]?0[0-7_]+")
_SEXAGESIMAL = re.compile(r"[-+]?\d[\d_]*(:[0-5]?\d)+(\.\d*)?")
# Where the text may have such a number, or a None.
_LIKE_SCIENTIFIC = re.compile(r"[-+.\d](?<![\w.].)(?:\d*[eE][-+]?\d|[\d.]*[eE]\d|(?<=[-+])\.\d+[eE])")
_LIKE_OTHER_BASE = re.compile(r"[-+\d](?<![\w.].)(?:(?<=0)[0-7_]|(?<=[-+])0[0-7_]|[\d_]*:[0-5]?\d)")
_LIKE_NONE = re.compile(r"None(?<![\w.]None)\b")


def duplicate_key(context: CheckContext) -> Iterator[Violation]:
    """A key that stands twice: PyYAML keeps the last value and says nothing."""
    for duplicate in context.source.duplicates[:_REPORTED]:
        yield Violation(duplicate.path, span=duplicate.again, related_spans=((duplicate.first, "first"),))


def number_as_text(context: CheckContext) -> Iterator[Violation]:
    """``1e-5``: a float of YAML 1.1 needs a point and a signed exponent (PyYAML 6, ``yaml/resolver.py``)."""
    for path, plain in _scalars(context, _LIKE_SCIENTIFIC):
        match = _SCIENTIFIC.fullmatch(plain.raw) if plain.kind == "str" else None
        if match and not _is_text(context, path):
            digits = match["digits"] if "." in match["digits"] else f"{match['digits']}."
            number = f"{match['sign']}{digits}e{match['exponent_sign'] or '+'}{match['exponent']}"
            yield Violation(path, params={"number": number})


def _scalars(context: CheckContext, like: re.Pattern[str]) -> Iterator[tuple[KeyPath, Plain]]:
    """Scalars without quotes that start like this."""
    source = context.source
    return filter(None, (source.scalar_at(match.start()) for match in like.finditer(source.text)))


def _is_text(context: CheckContext, path: KeyPath) -> bool:
    """Whether a key is one that takes texts and no numbers, such as ``max_device_memory``."""
    key = by_section(context.dialect).get(tuple(map(str, path[:-1])), {}).get(str(path[-1]))
    return key is not None and "str" in key.types and not {"int", "float"} & set(key.types)


def number_in_other_base(context: CheckContext) -> Iterator[Violation]:
    """``010`` is 8 and ``12:30`` is 750 (PyYAML 6, ``construct_yaml_int`` in ``yaml/constructor.py``)."""
    for path, plain in _scalars(context, _LIKE_OTHER_BASE):
        if plain.kind not in ("int", "float"):
            continue
        octal = _OCTAL.fullmatch(plain.raw) and int(plain.raw, 8) != int(plain.raw)
        if octal or _SEXAGESIMAL.fullmatch(plain.raw):
            yield Violation(path, params={"number": context.source.get(path)})


def none_as_text(context: CheckContext) -> Iterator[Violation]:
    """``None``: null is spelled ``null`` or ``~`` in YAML. Some keys do take the word None; the checklist names them."""
    words = context.names("except")
    for path, plain in _scalars(context, _LIKE_NONE):
        if plain.kind == "str" and plain.raw == "None" and str(path[-1]) not in words:
            yield Violation(path)


def nesting(context: CheckContext) -> Iterator[Violation]:
    """Mappings in mappings; what is inside a list is not counted (``get_yaml_ast_depth`` of MindFormers)."""
    limit = context.options["limit"]
    path = _deepest(context.source.data, ())
    if isinstance(limit, int) and len(path) > limit:
        yield Violation(path, params={"depth": len(path), "limit": limit}, at_key=True)


def _deepest(value: object, path: KeyPath) -> KeyPath:
    if not isinstance(value, dict):
        return path
    return max((_deepest(inner, (*path, key)) for key, inner in value.items()), key=len, default=path)
