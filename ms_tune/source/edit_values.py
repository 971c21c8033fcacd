"""Replace or add values in a config's text with the smallest possible edits, for instance single items of a list."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ms_tune.diagnostics import KeyPath, TextEdit
from ms_tune.enums import ChangeKind
from ms_tune.errors import ConfigError
from ms_tune.records import Any, NoReturn
from ms_tune.source.edit import (
    COMMENT,
    EditRefusedError,
    MoreOnLinesError,
    ValueChange,
    apply_edits,
    pull_up,
    same_data,
    spell,
)
from ms_tune.source.yaml import MISSING, SourceFile, parse_source
from ms_tune.text import msg

_ON_LINE = re.compile(r"[ \t]*:[ \t]+(?:&[^\s,\[\]{}]+[ \t]+)?(?P<tag>![^\s,\[\]{}]*[ \t]+)?")
_QUOTE = re.compile(r"['\"]")


def with_values(source: SourceFile, wanted: Mapping[KeyPath, object]) -> str:
    """Return the config's text with new values."""
    edits = [edit for path, value in wanted.items() for edit in _edits(source, path, source.get(path), value)]
    return apply_edits(source.text, edits)


def with_settings(source: SourceFile, wanted: Mapping[KeyPath, object]) -> tuple[str, int]:
    """Return the config's text with these values, and the number of values that were added.

    An existing value is replaced with the smallest possible edit; a missing one is added at the end of its section,
    which is created if necessary.
    """
    changed = {path: value for path, value in wanted.items() if not same_data(source.get(path, MISSING), value)}
    there = {path: value for path, value in changed.items() if source.position(path) is not None}
    added: dict[KeyPath, object] = {}
    for path in [path for path in changed if path not in there]:
        _nest(source, path, changed[path], added)
    path = next(iter(changed), ())
    expected: object = source.data
    changes = [ValueChange(ChangeKind.SET_VALUE, path, value) for path, value in there.items()]
    try:
        text = with_values(source, there)
        for place, value in added.items():
            kind = ChangeKind.SET_VALUE if source.position(place) is not None else ChangeKind.ADD_KEY
            current = parse_source(text, source.path)
            change = ValueChange(kind, place, value)
            text = apply_edits(text, change.edits(current))
            changes.append(change)
        for change in changes:
            expected = change.applied(expected)
    except EditRefusedError:
        refuse_shared(source, path)
    if not same_data(parse_source(text, source.path).data, expected):
        refuse_shared(source, next((path for path in there if _shows_elsewhere(source, path, there[path])), path))
    return text, len(changed)


def loses_comments(source: SourceFile, path: KeyPath, value: object) -> bool:
    """Return whether a value cannot be changed because the old one contains comments."""
    try:
        list(_edits(source, path, source.get(path), value))
    except CommentLossError:
        return True
    except ConfigError:
        pass
    return False


def _edits(source: SourceFile, path: KeyPath, old: object, new: object) -> Iterator[TextEdit]:
    """Yield the edits that turn one value into another; in lists of the same form, only items that differ."""
    position = source.position(path)
    if position is None or position.uses or position.value != position.definition:
        refuse_shared(source, path)
    if isinstance(old, list) and isinstance(new, list) and _same_form(old, new):
        for index, (item, wanted) in enumerate(zip(old, new, strict=True)):
            if not same_data(item, wanted):
                yield from _edits(source, (*path, index), item, wanted)
        return
    span = position.value
    if span.line != span.end_line and re.compile(COMMENT).search(source.text, span.start, span.end):
        _refuse_comment(source, path)
    quotes = _QUOTE.search(source.text, span.start, span.end)
    text = spell_value(new, quotes[0] if quotes else "")
    same_line = _ON_LINE.fullmatch(source.text, position.key.end, span.start) if position.key else None
    if position.key is None or same_line:
        # A tag (`!!bool`) applies to the old value only.
        start = same_line.start("tag") if same_line and same_line["tag"] else span.start
        yield TextEdit(start, span.end, text)
        return
    try:
        yield from pull_up(source.text, position, text)
    except EditRefusedError as error:
        if isinstance(error, MoreOnLinesError):
            _refuse_comment(source, path)
        refuse_shared(source, path)


def _same_form(old: list[object], new: list[object]) -> bool:
    if len(old) != len(new):
        return False
    return all(
        _same_form(one, other)
        if isinstance(one, list) and isinstance(other, list)
        else isinstance(one, list) == isinstance(other, list)
        for one, other in zip(old, new, strict=True)
    )


def spell_value(value: object, quote: str = "") -> str:
    """Return a list or mapping as text on one line: keys in single quotes, strings in the given quotes."""
    if isinstance(value, list):
        return f"[{', '.join(spell_value(item, quote) for item in value)}]"
    if isinstance(value, dict):
        pairs = (f"{spell(str(key), chr(39))}: {spell_value(item, quote)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    return spell(value, quote) if isinstance(value, str) else spell(value)


def refuse_shared(source: SourceFile, path: KeyPath) -> NoReturn:
    """Raise the error for a value that other places of the config share."""
    raise source.wrong(path, msg("normalize.write-shared", name=".".join(map(str, path))))


class CommentLossError(ConfigError):
    """Error raised when a value cannot be changed because the old one contains comments."""


def _refuse_comment(source: SourceFile, path: KeyPath) -> NoReturn:
    error = source.wrong(path, msg("normalize.write-comment", name=".".join(map(str, path))))
    raise CommentLossError(error.message, path=error.path, line=error.line, column=error.column)


def _shows_elsewhere(source: SourceFile, path: KeyPath, value: object) -> bool:
    """Return whether changing this value also changes other values."""
    result = parse_source(with_values(source, {path: value}), source.path)
    return not same_data(result.data, ValueChange(ChangeKind.SET_VALUE, path, value).applied(source.data))


def _nest(source: SourceFile, path: KeyPath, value: object, added: dict[KeyPath, object]) -> None:
    """Add a value to ``added``, nested in those of its sections that do not exist yet."""
    length = next(size for size in range(1, len(path) + 1) if not isinstance(source.get(path[:size]), dict))
    head, rest = path[:length], path[length:]
    if not rest:
        added[head] = value
        return
    section: Any = added.setdefault(head, {})
    for part in rest[:-1]:
        section = section.setdefault(part, {})
    section[rest[-1]] = value
