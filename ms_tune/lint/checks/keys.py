"""Checks of keys that nobody reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.lint.context import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ms_tune.lint.context import Context

_ALIKE = 0.8
_OFF = (False, None, 0, "OFF", "")


def misspelt(context: Context) -> Iterator[Violation]:
    """A top-level key that is not known and much like one that is."""
    known = context.names("known")
    for key in _unknown(context, known):
        similar = _similar(key, known - set(map(str, context.source.data)))
        if similar:
            yield Violation((key,), params={"similar": similar}, at_key=True)


def unused(context: Context) -> Iterator[Violation]:
    """A top-level key that is not known, and not like one that is."""
    known = context.names("known")
    for key in _unknown(context, known):
        if not _similar(key, known - set(map(str, context.source.data))):
            yield Violation((key,), at_key=True)


def unexpected(context: Context) -> Iterator[Violation]:
    """An unknown key in a section that takes no other, or a section that is not a mapping at all."""
    sections = context.options["sections"]
    if not isinstance(sections, dict):
        raise TypeError(sections)
    for section, names in sections.items():
        path = tuple(section.split("."))
        value = context.get(section)
        if value is not None and not isinstance(value, dict):
            yield Violation(path, "not-mapping")
            continue
        for key in context.mapping(section):
            if key not in names:
                similar = _similar(str(key), names)
                yield Violation(
                    (*path, key if isinstance(key, int) else str(key)),
                    "similar" if similar else "default",
                    {"section": section, "similar": similar},
                    at_key=True,
                )


def ignored_context(context: Context) -> Iterator[Violation]:
    """A key of ``context`` that is not passed on. One that is set to "off" anyway does no harm."""
    known = context.names("known")
    for key, value in context.mapping("context").items():
        if key not in known and value not in _OFF:
            name = "deterministic" if key == "deterministic" else "default"
            yield Violation(("context", str(key)), name, at_key=True)


def _unknown(context: Context, known: frozenset[str]) -> Iterator[str]:
    """Top-level keys that are not known. A key that only holds an anchor for other places is meant to be one's own."""
    source = context.source
    for key in source.data:
        position = source.position((key,)) if isinstance(key, str) else None
        if position is None or position.key is None or key in known or key.startswith(("_", "x-")):
            continue
        if "&" not in source.text[position.key.end : position.definition.end]:
            yield key


def _similar(key: str, names: Iterable[str]) -> str:
    import difflib  # noqa: PLC0415 - most configs have no unknown key

    return next(iter(difflib.get_close_matches(key, sorted(names), 1, _ALIKE)), "")
