"""Values of a config replaced in its text, each as little as can be: items of a list of the same form one by one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from ms_tune.config.spans import COMMENT, Edit, EditRefusedError, apply_edits, pull_up, same_data, spell
from ms_tune.errors import ConfigError
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ms_tune.config.source import KeyPath, SourceFile

_ON_LINE = re.compile(r"[ \t]*:[ \t]+(?:&[^\s,\[\]{}]+[ \t]+)?(?P<tag>![^\s,\[\]{}]*[ \t]+)?")
_QUOTE = re.compile(r"['\"]")


def with_values(source: SourceFile, wanted: Mapping[KeyPath, object]) -> str:
    """The config's text with new values.

    Raises:
        ConfigError: A value stands where it cannot be changed alone.
    """
    edits = [edit for path, value in wanted.items() for edit in _edits(source, path, source.get(path), value)]
    return apply_edits(source.text, edits)


def loses_comments(source: SourceFile, path: KeyPath, value: object) -> bool:
    """Whether a value cannot be changed because there are comments inside the old one."""
    try:
        list(_edits(source, path, source.get(path), value))
    except ConfigError as error:
        return error.message.id == "normalize.write-comment"
    return False


def _edits(source: SourceFile, path: KeyPath, old: object, new: object) -> Iterator[Edit]:
    """The edits that turn one value into another; where both are lists of one form, only what differs is touched."""
    position = source.position(path)
    if position is None or position.uses or position.value != position.definition:
        refuse_shared(source, path)
    if isinstance(old, list) and isinstance(new, list) and _same_form(old, new):
        for index, (item, wanted) in enumerate(zip(old, new, strict=True)):
            if not same_data(item, wanted):
                yield from _edits(source, (*path, index), item, wanted)
        return
    span = position.value
    if span.line != span.end_line and COMMENT.search(source.text, span.start, span.end):
        _refuse(source, path, "comment")
    quotes = _QUOTE.search(source.text, span.start, span.end)
    text = spell_value(new, quotes[0] if quotes else "")
    beside = _ON_LINE.fullmatch(source.text, position.key.end, span.start) if position.key else None
    if position.key is None or beside:
        # A tag (`!!bool`) is for the old value only.
        start = beside.start("tag") if beside and beside["tag"] else span.start
        yield Edit(start, span.end, text)
        return
    try:
        yield from pull_up(source.text, position, text)
    except EditRefusedError as error:
        _refuse(source, path, "comment" if error.message.id == "edits.several-lines" else "shared")


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
    """A list or a mapping on one line, its keys in single quotes, its texts in the quotes that are given."""
    if isinstance(value, list):
        return f"[{', '.join(spell_value(item, quote) for item in value)}]"
    if isinstance(value, dict):
        pairs = (f"{spell(str(key), chr(39))}: {spell_value(item, quote)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    return spell(value, quote) if isinstance(value, str) else spell(value)


def refuse_shared(source: SourceFile, path: KeyPath) -> NoReturn:
    """The value cannot be changed alone, because other places of the config use it.

    Raises:
        ConfigError: Always.
    """
    _refuse(source, path, "shared")


def _refuse(source: SourceFile, path: KeyPath, reason: str) -> NoReturn:
    span = source.nearest(path).value
    name = ".".join(map(str, path))
    raise ConfigError(msg(f"normalize.write-{reason}", name=name), path=source.path, line=span.line, column=span.column)
