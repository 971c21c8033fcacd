"""Prove that an edited text contains exactly the intended changes; call it before a changed config is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import yaml

from ms_tune.diagnostics import TextEdit
from ms_tune.records import Any, Record
from ms_tune.source.edit import EditRefusedError, ValueChange, apply_edits, same_data
from ms_tune.source.yaml_nodes import Loader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.source.yaml import SourceFile

_STARTS_DOCUMENT = r"(?m)^(?:\.\.\.|%)"
_SHARED = "[&*]"  # possibly an anchor or an alias
_BLOCK_TEXT = "[|>]"  # possibly the start of a block scalar
_NOTHING = r"(?:[ \t]*(?:\r\n|\r|\n)|#[^\r\n]*(?:\r\n|\r|\n|\Z))*[ \t]*"


def prove(source: SourceFile, changes: Iterable[ValueChange], edits: Sequence[TextEdit]) -> bool:
    """Return whether the edited text parses to the changed values with no other difference."""
    try:
        expected: object = source.data
        for change in changes:
            expected = change.applied(expected)
        if isinstance(expected, dict) and _proved_by_sections(source, expected, edits):
            return True
        text = apply_edits(source.text, edits)
        return same_data(yaml.load(text, Loader=Loader), expected)  # noqa: S506 - it is a safe loader
    except (EditRefusedError, yaml.YAMLError, ValueError, OverflowError, IndexError, KeyError, TypeError):
        return False


class _Section(Record):
    """A top-level key with its text (up to the next key) before and after the edits."""

    key: object
    text: str
    after: str
    edited: bool

    @property
    def shares(self) -> bool:
        return bool(re.search(_SHARED, self.text) or re.search(_SHARED, self.after))


def _proved_by_sections(source: SourceFile, expected: dict[Any, Any], edits: Sequence[TextEdit]) -> bool:
    """Return whether the edited sections, parsed alone, give the expected values; False if that proves too little.

    A block-style section starts with its key in the first column, ends before the next one and can be parsed on its
    own. If an edited section has an anchor or an alias, all sections that have one are parsed. A removed section must
    leave no text that would become part of the previous one.
    """
    sections = _sections(source, edits)
    if list(expected) != [one.key for one in sections if one.key in expected]:
        return False
    before = ""
    for one in sections:
        if one.key in expected and one.after[:1] == one.text[:1]:
            before = one.after
        elif one.key in expected or not re.fullmatch(_NOTHING, one.after) or re.search(_BLOCK_TEXT, before):
            return False
        if not one.edited and expected.get(one.key) is not source.data[one.key]:
            return False
    shared = any(one.edited and one.shares for one in sections)
    read = [one for one in sections if one.edited or (shared and one.shares)]
    values = yaml.load("".join(one.after for one in read), Loader=Loader)  # noqa: S506 - it is a safe loader
    wanted = {one.key: expected[one.key] for one in read if one.key in expected}
    return bool(read) and same_data({} if values is None else values, wanted)


def _sections(source: SourceFile, edits: Sequence[TextEdit]) -> list[_Section]:
    """Return the sections in text order; empty if the text cannot be split into sections or an edit crosses two of them."""
    text, data = source.text, source.data
    if source.others or source.duplicates or re.search(_STARTS_DOCUMENT, text):
        return []
    keys = sorted((span, key) for key, span in source.top_keys() if span is not None and span.column == 1)
    if len(keys) != len(data) or text[keys[0][0].start] in "{?":
        return []
    found, left = [], sorted(edits)
    for (span, key), end in zip(keys, [*(span.start for span, _ in keys[1:]), len(text)], strict=True):
        within = [one for one in left if one.end <= end]
        left = left[len(within) :]
        if within and within[0].start < span.start:
            return []
        before = after = text[span.start : end]
        if within:
            after = apply_edits(
                before, [TextEdit(one.start - span.start, one.end - span.start, one.text) for one in within]
            )
        found.append(_Section(key, before, after, bool(within)))
    return [] if left else found
