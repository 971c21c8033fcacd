"""Check for keys that are never read; :mod:`ms_tune.facts.keys` knows the keys of each dialect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from ms_tune.diagnostics import KeyPath
from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.dialects.mindformers.read import passes_over
from ms_tune.errors import closest
from ms_tune.facts.keys import by_section, tables
from ms_tune.facts.models import facts_of
from ms_tune.facts.query import load
from ms_tune.lint.survey import find_oddities
from ms_tune.source.yaml import MISSING, find_values

_ALIKE, _MUCH_ALIKE = 0.8, 0.9
_GUESSES, _REPORTED = 200, 1000  # the most unknown keys to compare with known ones, and to report
# The text between a key and a value with an anchor: the colon, spaces, perhaps a tag or a comment.
_ANCHOR = re.compile(r"[\"']?\s*:\s*(?:#[^\n]*\s+)*(?:!\S*\s+)?&")
_OFF = (False, None, 0, "OFF", "")


def misspelt(context: CheckContext) -> Iterator[Violation]:
    """Report an unknown key that is similar to a known one, or a former name of one (option ``former``).

    ``except`` names keys that are not misspelt: they belong to other dialects.
    """
    others = context.names("except")
    for path, known in islice(_unknown(context, anchored=True), _GUESSES):
        if len(path) > 1 or not isinstance(context.source.get(path), dict):
            continue
        similar = closest(str(path[-1]), known - _siblings(context, path), _MUCH_ALIKE)
        if similar and any(one.path == (similar,) and one.types == ("dict",) for one in tables(context.dialect)):
            yield Violation(path, params={"similar": similar, "section": ""}, at_key=True)
    for path, known in islice(_unknown(context), _GUESSES):
        similar = _guess_key(context, path, known) if path[-1] not in others else ""
        if similar:
            section = ".".join(map(str, path[:-1]))
            yield Violation(path, params={"similar": similar, "section": section}, at_key=True)


def misspelt_of_class(context: CheckContext) -> Iterator[Violation]:
    """Report a key similar to one that a legacy model class reads; other unknown keys may be read by the model's own code."""
    model, section = context.model, context.mapping("model.model_config")
    known = model.facts.defaults.keys() if model.known else frozenset()
    unread = [key for key in map(str, section) if key not in known]
    for key in unread[:_GUESSES]:
        similar = closest(key, known, _MUCH_ALIKE)
        if similar and similar not in section:
            yield Violation(
                ("model", "model_config", key), params={"similar": similar, "model": model.facts.name}, at_key=True
            )


def unused(context: CheckContext) -> Iterator[Violation]:
    """Report an unknown key that is not similar to a known one (option ``former`` as in :func:`misspelt`)."""
    for number, (path, known) in enumerate(_unknown(context)):
        if number == _REPORTED:
            return
        if number >= _GUESSES or not _guess_key(context, path, known):
            yield Violation(path, params={"section": ".".join(map(str, path[:-1]))}, at_key=True)


def unexpected(context: CheckContext) -> Iterator[Violation]:
    """Report an unknown key in a section that accepts no others, or a section that is not a mapping.

    The option ``with`` names sections that are only checked if a switch is on.
    """
    switches = context.options.get("with", {})
    for section in _sections(context):
        switch = switches.get(".".join(map(str, section)))
        if switch is not None and not context.get(switch):
            continue
        value = context.source.get(section)
        if isinstance(value, dict):
            yield from _unexpected(context, section)
        elif value is not None and (value or not passes_over(context.source, section)):
            yield Violation(section, "not-mapping")


def unexpected_anywhere(context: CheckContext) -> Iterator[Violation]:
    """Report unknown keys of the dynamic graph: its sections, except the open ones, accept no others."""
    free = load(f"keys_{context.dialect.value}")["open"]
    for section in sorted(by_section(context.dialect, context.version or None)):
        if list(section) not in free:
            yield from _unexpected(context, section)


def ignored_context(context: CheckContext) -> Iterator[Violation]:
    """Report a key of ``context`` that is not passed on, unless it is set to an "off" value, which is harmless."""
    known = by_section(context.dialect).get(("context",), {})
    for key, value in context.mapping("context").items():
        if key not in known and value not in _OFF:
            name = "deterministic" if key == "deterministic" else "default"
            yield Violation(("context", str(key)), name, at_key=True)


def dead(context: CheckContext) -> Iterator[Violation]:
    """Report a key that is stored but never read, set to a value other than its default; ``except`` excludes some."""
    left_out = context.names("except")
    for key, path, _ in find_oddities(context.job).get("dead", ()):
        is_read = key.read_by and not (context.model.known and context.model.kind not in key.read_by)
        if ".".join(key.path) not in left_out and not is_read:  # a model of unknown class may read it
            yield Violation(path, at_key=True)


def required(context: CheckContext) -> Iterator[Violation]:
    """Report each of the ``keys`` that is missing in an existing section; with ``empty`` also in an empty one.

    With ``most``, report nothing if fewer than half of the keys exist and one of the ``beside`` sections is missing: then the
    file is only a part of a config.
    """
    wanted = [tuple(str(one).split(".")) for one in context.options["keys"]]
    if context.options.get("most") is True:
        there = sum(context.source.get(path, MISSING) is not MISSING for path in wanted)
        if 2 * there < len(wanted) and not all(context.mapping(name) for name in context.names("beside")):
            return
    empty = context.options.get("empty") is True
    for path in wanted:
        outer = context.source.get(path[:-2]) if empty and len(path) > 2 else None  # noqa: PLR2004 - nested section
        if isinstance(outer, dict) and path[-2] not in outer:
            yield Violation(path[:-1], params={"section": ".".join(path[:-2])}, at_key=True)
        for section, value in find_values(context.source.data, path[:-1]):
            if isinstance(value, dict) and (value or empty) and path[-1] not in value and section:
                yield Violation((*section, path[-1]), params={"section": ".".join(map(str, section))}, at_key=True)


def not_sections(context: CheckContext) -> Iterator[Violation]:
    """Report a section that is not a mapping, or a list of sections that is not a list; ``except`` excludes some.

    Null counts as an empty section, unless ``nullable`` is false.
    """
    left_out = context.names("except")
    nullable = context.options.get("nullable") is not False
    for key, _, value in find_oddities(context.job).get("no-section", ()):
        if (nullable and value is None) or key.name in left_out:
            continue
        if isinstance(value, list) and key.types == ("list",):
            odd = [index for index, item in enumerate(value) if not isinstance(item, dict) or not item]
            yield from (Violation((key.name, index), "list") for index in odd)
        else:
            yield Violation(key.path, "default" if key.types == ("dict",) else "list")


def two_names(context: CheckContext) -> Iterator[Violation]:
    """Report two keys of a model's section that are names of the same field."""
    section = tuple(str(context.options["section"]).split("."))
    facts, fields = facts_of(context.model.release), dict[str, str]()
    values = context.source.get(section)
    for key, value in values.items() if isinstance(values, dict) else ():
        field = facts.field_names.get(key, key)
        first = fields.setdefault(field, key) if value is not None else key
        if first != key:
            related = (((*section, first), "first"),)
            yield Violation((*section, key), params={"first": first, "field": field}, at_key=True, related=related)


def _sections(context: CheckContext) -> list[KeyPath]:
    """Return the sections that the checklist names: dotted, with an empty text for the top level."""
    return [tuple(str(one).split(".")) if one else () for one in context.options.get("sections", [""])]


def _unknown(context: CheckContext, *, anchored: bool = False) -> Iterator[tuple[KeyPath, frozenset[str]]]:
    """Yield unknown keys with the known keys of their section; those with an anchor may be the author's own definitions."""
    for section in _sections(context):
        known = frozenset(by_section(context.dialect, None if section else context.version or None).get(section, ()))
        for key in _unknown_keys(context, section):
            if isinstance(key, str) and key not in known and (anchored or not key.startswith(("_", "x-"))):
                at = context.source.position((*section, key))
                if at and at.key and bool(_ANCHOR.match(context.source.text, at.key.end)) is anchored:
                    yield (*section, key), known


def _unknown_keys(context: CheckContext, section: KeyPath) -> list[object]:
    return [key for place, key in find_oddities(context.job).get("unknown", ()) if place == section]


def _unexpected(context: CheckContext, section: KeyPath) -> Iterator[Violation]:
    known = by_section(context.dialect, context.version or None).get(section, {})
    for number, key in enumerate(_unknown_keys(context, section)[:_REPORTED]):
        similar = closest(str(key), known, _ALIKE) if number < _GUESSES else ""
        params = {"section": ".".join(map(str, section)), "similar": similar}
        path = (*section, key if isinstance(key, int) else str(key))
        yield Violation(path, "similar" if similar else "default", params, at_key=True)


def _guess_key(context: CheckContext, path: KeyPath, known: frozenset[str]) -> str:
    """Return the known key that the author probably intended by an unknown one; empty if unclear or written as well."""
    free = known - _siblings(context, path) - _find_dissimilar_sections(context, path, known)
    now: str | None = context.options.get("former", {}).get(path[-1])
    return now if now in free else closest(str(path[-1]), free, _ALIKE)


def _find_dissimilar_sections(context: CheckContext, path: KeyPath, known: frozenset[str]) -> frozenset[str]:
    """Return the known sections that share no key with an unknown one, which is thus not a misspelling of them."""
    value = context.source.get(path)
    if not isinstance(value, dict) or not value:
        return frozenset()
    inside = {name: by_section(context.dialect).get((*map(str, path[:-1]), name), {}) for name in known}
    others = [name for name, inner in inside.items() if inner and inner.keys().isdisjoint(value)]
    surely = closest(str(path[-1]), others, _MUCH_ALIKE)  # such a key is misspelt, regardless of the section's content
    return frozenset(others) - {surely}


def _siblings(context: CheckContext, path: KeyPath) -> frozenset[str]:
    values = context.source.get(path[:-1]) if len(path) > 1 else context.source.data
    return frozenset(map(str, values)) if isinstance(values, dict) else frozenset()
