"""Checks of what YAML makes of the text: keys that vanish, numbers that are none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.facts.keys import by_section

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.source.yaml import Plain

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
