"""Checks of keys that nobody reads. What each dialect knows stands in :mod:`ms_tune.facts.keys`."""

from __future__ import annotations

import re
from itertools import islice

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.mindformers.read import passes_over
from ms_tune.errors import closest
from ms_tune.facts.keys import by_section, tables
from ms_tune.facts.models import facts_of
from ms_tune.facts.query import load
from ms_tune.lint.survey import find_oddities
from ms_tune.source.yaml import MISSING, find_values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext

_ALIKE, _MUCH_ALIKE = 0.8, 0.9
_GUESSES, _REPORTED = 200, 1000  # unknown keys that a likeness is looked for, and that are told at all
# What stands between a key and a value with an anchor: the colon, blanks, perhaps a tag or a comment.
_ANCHOR = re.compile(r"[\"']?\s*:\s*(?:#[^\n]*\s+)*(?:!\S*\s+)?&")
_OFF = (False, None, 0, "OFF", "")


def misspelt(context: CheckContext) -> Iterator[Violation]:
    """A key that its section does not know, and much like one that it knows, or among ``former`` names of one.

    ``except`` names keys that are no slip: other dialects have them in this place.
    """
    others = context.names("except")
    for path, known in islice(_unknown(context, anchored=True), _GUESSES):
        if len(path) > 1 or not isinstance(context.source.get(path), dict):
            continue
        similar = closest(str(path[-1]), known - _siblings(context, path), _MUCH_ALIKE)
        if similar and any(one.path == (similar,) and one.types == ("dict",) for one in tables(context.dialect)):
            yield Violation(path, params={"similar": similar, "section": ""}, at_key=True)
    for path, known in islice(_unknown(context), _GUESSES):
        similar = _meant(context, path, known) if path[-1] not in others else ""
        if similar:
            section = ".".join(map(str, path[:-1]))
            yield Violation(path, params={"similar": similar, "section": section}, at_key=True)


def misspelt_of_class(context: CheckContext) -> Iterator[Violation]:
    """A key much like one that the class of a legacy model reads; what else such a class is given, code of a model may read."""
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
    """A key that its section does not know, and not like one that it knows; ``former`` names as above."""
    for number, (path, known) in enumerate(_unknown(context)):
        if number == _REPORTED:
            return
        if number >= _GUESSES or not _meant(context, path, known):
            yield Violation(path, params={"section": ".".join(map(str, path[:-1]))}, at_key=True)


def unexpected(context: CheckContext) -> Iterator[Violation]:
    """An unknown key in a section that takes no other, or a section that is not a mapping at all.

    The option ``with`` names sections that are only looked at with a switch.
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
    """The same for the dynamic graph: every section but the open ones takes no other key."""
    free = load(f"keys_{context.dialect.value}")["open"]
    for section in sorted(by_section(context.dialect, context.version or None)):
        if list(section) not in free:
            yield from _unexpected(context, section)


def ignored_context(context: CheckContext) -> Iterator[Violation]:
    """A key of ``context`` that is not passed on. One that is set to "off" anyway does no harm."""
    known = by_section(context.dialect).get(("context",), {})
    for key, value in context.mapping("context").items():
        if key not in known and value not in _OFF:
            name = "deterministic" if key == "deterministic" else "default"
            yield Violation(("context", str(key)), name, at_key=True)


def dead(context: CheckContext) -> Iterator[Violation]:
    """A key that is stored and read by nothing, set to something else than its default. ``except`` leaves some out."""
    left_out = context.names("except")
    for key, path, _ in find_oddities(context.job).get("dead", ()):
        is_read = key.read_by and not (context.model.known and context.model.kind not in key.read_by)
        if ".".join(key.path) not in left_out and not is_read:  # of a model that nobody knows it may be read
            yield Violation(path, at_key=True)


def required(context: CheckContext) -> Iterator[Violation]:
    """One of the ``keys``, missing in a section that is there; ``empty`` tells that an empty section counts.

    ``most`` tells to be silent where fewer than half of the keys are there and one of the ``beside`` sections is not: that is
    a part of a config.
    """
    wanted = [tuple(str(one).split(".")) for one in context.options["keys"]]
    if context.options.get("most") is True:
        there = sum(context.source.get(path, MISSING) is not MISSING for path in wanted)
        if 2 * there < len(wanted) and not all(context.mapping(name) for name in context.names("beside")):
            return
    empty = context.options.get("empty") is True
    for path in wanted:
        outer = context.source.get(path[:-2]) if empty and len(path) > 2 else None  # noqa: PLR2004 - a section in one
        if isinstance(outer, dict) and path[-2] not in outer:
            yield Violation(path[:-1], params={"section": ".".join(path[:-2])}, at_key=True)
        for section, value in find_values(context.source.data, path[:-1]):
            if isinstance(value, dict) and (value or empty) and path[-1] not in value and section:
                yield Violation((*section, path[-1]), params={"section": ".".join(map(str, section))}, at_key=True)


def not_sections(context: CheckContext) -> Iterator[Violation]:
    """A section that is no mapping, or a list of sections that is no list; ``except`` leaves some out.

    An empty section (null) is one with nothing in it, unless ``nullable`` is false.
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
    """Two keys of a model's section that stand for one field."""
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
    """The sections that the checklist names: dotted, and an empty text for the top level."""
    return [tuple(str(one).split(".")) if one else () for one in context.options.get("sections", [""])]


def _unknown(context: CheckContext, *, anchored: bool = False) -> Iterator[tuple[KeyPath, frozenset[str]]]:
    """Keys that their section does not know; those with an anchor for other places may be their author's own."""
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


def _meant(context: CheckContext, path: KeyPath, known: frozenset[str]) -> str:
    """The key that an unknown one stands for, if that can be told and is not there already."""
    free = known - _siblings(context, path) - _of_other_content(context, path, known)
    now: str | None = context.options.get("former", {}).get(path[-1])
    return now if now in free else closest(str(path[-1]), free, _ALIKE)


def _of_other_content(context: CheckContext, path: KeyPath, known: frozenset[str]) -> frozenset[str]:
    """Sections of which an unknown one, whatever it is called, has not a single key: it is not one of them misspelt."""
    value = context.source.get(path)
    if not isinstance(value, dict) or not value:
        return frozenset()
    inside = {name: by_section(context.dialect).get((*map(str, path[:-1]), name), {}) for name in known}
    others = [name for name, inner in inside.items() if inner and inner.keys().isdisjoint(value)]
    surely = closest(str(path[-1]), others, _MUCH_ALIKE)  # a letter or two are a slip, whatever the section holds
    return frozenset(others) - {surely}


def _siblings(context: CheckContext, path: KeyPath) -> frozenset[str]:
    values = context.source.get(path[:-1]) if len(path) > 1 else context.source.data
    return frozenset(map(str, values)) if isinstance(values, dict) else frozenset()
