"""Checks of single values: their types, bounds and choices, and how they are spelled in YAML."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.enums import Dialect
from ms_tune.errors import closest
from ms_tune.facts.keys import by_section
from ms_tune.source.yaml import MISSING, find_values, is_same
from ms_tune.units import GIB, is_number, parse_size

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


# `_MEMORY_PATTERN` of mindspore/runtime/memory.py (2.9), which is matched from the start and may be followed by more.
_MEMORY = re.compile(r"[1-9][0-9]*(\.)?[0-9]*GB|0\.[0-9]*GB", re.ASCII)


def memory_size(context: CheckContext) -> Iterator[Violation]:
    """A size that MindSpore refuses: it wants ``58GB``, in capitals, as a text."""
    for name in sorted(context.names("keys")):
        value = context.get(name)
        if value and not (isinstance(value, str) and _MEMORY.match(value) and value not in ("0GB", "0.0GB")):
            yield Violation(tuple(name.split(".")))


def memory_limit(context: CheckContext) -> Iterator[Violation]:
    """A limit on the memory pool that leaves nothing of the card for others."""
    name, most = context.options["key"], context.options["most"]
    value = context.get(str(name))
    if isinstance(value, str) and _MEMORY.fullmatch(value) and parse_size(value) >= parse_size(str(most)):
        yield Violation(tuple(str(name).split(".")), params={"most": parse_size(str(most)) // GIB})


def above(context: CheckContext) -> Iterator[Violation]:
    """A number above the most that works."""
    name, most = str(context.options["key"]), context.options["most"]
    value = context.integer(name)
    if value is not None and isinstance(most, int) and value > most:
        yield Violation(tuple(name.split(".")))


def dropout(context: CheckContext) -> Iterator[Violation]:
    """Mcore models want a float from 0 up and below 1 (``TransformerConfig.__post_init__``, 1.6 to 2.1)."""
    for name in ("hidden_dropout", "attention_dropout"):
        value = context.get(f"model.model_config.{name}")
        if value is not None and not (isinstance(value, float) and 0 <= value < 1):
            yield Violation(("model", "model_config", name))


def beyond(context: CheckContext) -> Iterator[Violation]:
    """A whole number above ``most`` or below ``least`` at any of the ``keys``; ``strict`` refuses all other values, too."""
    keys, least, most = (context.options.get(name) for name in ("keys", "least", "most"))
    for name in keys if isinstance(keys, list) else ():
        value = context.get(str(name))
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            wrong = context.options.get("strict") is True
        else:
            wrong = (isinstance(most, int) and value > most) or (isinstance(least, int) and value < least)
        if wrong and value not in _listed(context.options.get("except")):
            yield Violation(tuple(str(name).split(".")))


def negative_number(context: CheckContext) -> Iterator[Violation]:
    """A number below zero at any of the ``keys``, or one that is not above zero at those among ``positive``.

    The fused AdamW takes an eps of zero (MindFormers, ``optim/fused_adamw.py``).
    """
    positive = context.names("positive") if context.get("optimizer.use_fused") is not True else frozenset[str]()
    for name in sorted(context.names("keys") | context.names("positive")):
        value = context.get(name)
        if (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and (value < 0 or (value == 0 and name in positive))
        ):
            yield Violation(tuple(name.split(".")), "positive" if name in positive else "default")


def floats(context: CheckContext) -> Iterator[Violation]:
    """A whole number or a switch at any of the ``keys``, where AdamW takes only what Python reads as a float.

    In the dynamic graph (``dynamic``) switches are refused before, and no check of its own tells numbers below zero.
    """
    dynamic = context.options.get("dynamic") is True
    for name in sorted(context.names("keys")):
        path, value = tuple(name.split(".")), context.get(name)
        if isinstance(value, bool):
            if not dynamic:
                yield Violation(path, "switch")
        elif isinstance(value, int):
            yield Violation(path)
        elif isinstance(value, float) and value < 0 and dynamic:
            yield Violation(path, "negative")


def betas(context: CheckContext) -> Iterator[Violation]:
    """Betas that AdamW refuses (MindFormers, ``optim/adamw.py``, ``optim/fused_adamw.py``, ``pynative/optimizer/adamw.py``).

    The fused one and the dynamic graph's (``dynamic``) take 0.0; the latter's config refuses what is no number before.
    """
    value, dynamic = context.get("optimizer.betas"), context.options.get("dynamic") is True
    zero = dynamic or context.get("optimizer.use_fused") is True
    items = value if isinstance(value, list) else []
    if value is None or (dynamic and not all(type(item) in (int, float) for item in items)):
        return
    if [isinstance(item, float) and 0 <= item < 1 and (zero or item > 0) for item in items] != [True, True]:
        yield Violation(("optimizer", "betas"))


def words(context: CheckContext) -> Iterator[Violation]:
    """A list, or a text that means no number, at any of the ``keys``; what only looks like a text to YAML (``1e-5``) is another check's."""
    keys = context.options.get("keys")
    for name in keys if isinstance(keys, list) else ():
        value = context.get(str(name))
        if isinstance(value, list) or (isinstance(value, str) and not is_number(value)):
            yield Violation(tuple(str(name).split(".")))


def jit_config(context: CheckContext) -> Iterator[Violation]:
    """What ``set_context(jit_config=...)`` refuses (MindSpore 2.9, ``mindspore/context.py``)."""
    value = context.get("context.jit_config")
    known = {"jit_level": ("O0", "O1", "O2"), "infer_boost": ("on", "off")}
    if value is not None and not isinstance(value, dict):
        yield Violation(("context", "jit_config"))
        return
    for key, item in context.mapping("context.jit_config").items():
        if str(key) not in known or item not in known[str(key)]:
            yield Violation(("context", "jit_config", str(key)))


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


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
