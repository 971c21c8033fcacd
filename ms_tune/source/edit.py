"""Change a config by replacing ranges of its text; all other bytes stay the same.

A :class:`ValueChange` can be applied both to the text and to the parsed values. :func:`prove` compares the two results before
anything is written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import yaml

from ms_tune.diagnostics import KeyPath, TextEdit
from ms_tune.enums import ChangeKind
from ms_tune.records import Any, NoReturn, Record
from ms_tune.source.yaml_nodes import Loader
from ms_tune.text import Message, msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.source.yaml import Position, SourceFile

# Possible text between a key and its value: the colon, anchors, tags, blanks and comments.
_BETWEEN = r"[ \t]*:(?:\s+|#[^\r\n]*|[&!][^\s,\[\]{}]*)*"
_HEAD = r"[ \t]*:(?:[ \t]+[&!][^\s,\[\]{}]*)*"
_REST_OF_LINE = r"[ \t]*(?:(?<=[ \t])#[^\r\n]*)?(?:\r\n|\r|\n|\Z)"
_COMMA = r"\s*,[ \t]*"
_COMMA_BEFORE = r"\s*,\s*\Z"
_LINE_BREAK = "\r\n|\r|\n"
# Text between a key and a value that starts on a later line: the colon, then comment lines and empty lines.
_TO_NEXT_LINE = r"[ \t]*:(?=[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n))(?P<rest>(?:[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n))*)[ \t]*"
_END_OF_LINE = r"[ \t]*(?:\r\n|\r|\n|\Z)"
_ANCHOR = r"(?:^|[\s,\[{])&[^\s,\[\]{}]"
COMMENT = r"(?:^|\s)#"
_PLAIN_TEXT = r"[A-Za-z_][A-Za-z0-9_./\\-]*"


class EditRefusedError(Exception):
    """Error raised when a change cannot be made by replacing text; the message gives the reason."""

    def __init__(self, message: Message) -> None:
        super().__init__(message.id)
        self.message = message


class MoreOnLinesError(EditRefusedError):
    """Error raised when the lines of a value contain other text as well."""


class ValueChange(Record):
    """One change of a config's values."""

    kind: ChangeKind  # the kind of change
    path: KeyPath  # the key path to remove, set, rename or add
    value: object = None  # the new value (`set-value`, `add-key`) or the new key (`rename-key`)
    raw: str | None = None  # the new value as YAML text, if its spelling matters (`1.e-5`)

    def edits(self, source: SourceFile) -> tuple[TextEdit, ...]:
        """Return the text edits that make this change."""
        if self.kind is ChangeKind.REMOVE_KEY:
            return _remove_key(source, self.path)
        if self.kind is ChangeKind.RENAME_KEY:
            return _rename_key(source, self.path, str(self.value))
        if self.kind is ChangeKind.ADD_KEY:
            return _add_key(source, self.path, self.raw or spell(self.value))
        return _set_value(source, self.path, self.raw or spell(self.value, _old_words(source, self.path)))

    def applied(self, data: object) -> object:
        """Return the values after the change. Other uses of an aliased value keep the old value."""
        value = self.value
        if self.raw is not None and self.kind in (ChangeKind.SET_VALUE, ChangeKind.ADD_KEY):
            value = yaml.load(self.raw, Loader=Loader)  # noqa: S506 - it is a safe loader
        return _replace_at(data, self.path, self.kind, value)


def apply_edits(text: str, edits: Iterable[TextEdit]) -> str:
    """Return the text after all edits."""
    parts: list[str] = []
    end = 0
    for edit in sorted(edits, key=lambda one: (one.start, one.end)):
        if edit.start < end:
            raise ValueError(edit)
        parts += (text[end : edit.start], edit.text)
        end = edit.end
    return "".join((*parts, text[end:]))


def overlap(one: Sequence[TextEdit], other: Sequence[TextEdit]) -> bool:
    """Return whether two groups of edits overlap or are adjacent (then their order would matter)."""
    return any(a.start <= b.end and b.start <= a.end for a in one for b in other)


def same_data(one: object, other: object) -> bool:
    """Return whether two YAML values are equal, including types and key order; NaN equals NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return list(map(_key_with_type, one)) == list(map(_key_with_type, other)) and all(
            same_data(one[key], other[key]) for key in one
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_data, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def spell(value: object, old: str = "") -> str:
    """Return a value as YAML 1.1 text in the style of the old text: ``False`` replaces ``True``, quotes stay quotes."""
    if isinstance(value, bool):
        word = str(value)
        return word if not old.isalpha() or old[:1].isupper() else word.lower()
    if value is None:
        return "null"
    if isinstance(value, str):
        return _spell_text(value, old)
    if isinstance(value, (int, float)):
        return yaml.safe_dump(value, default_flow_style=True).splitlines()[0]
    text = _dump_value(value, allow_unicode=True)
    if _same(value, text):
        return text
    # PyYAML leaves some control characters unescaped and then reads them as line breaks: escape all but ASCII.
    return _dump_value(value, allow_unicode=False)


class _EachForItself(yaml.SafeDumper):
    """A YAML dumper that writes a shared value at each place where it is used, instead of anchors."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def _dump_value(value: object, *, allow_unicode: bool) -> str:
    return yaml.dump(
        value,
        Dumper=_EachForItself,
        default_flow_style=True,
        width=math.inf,
        allow_unicode=allow_unicode,
        sort_keys=False,
    ).rstrip()


def _same(value: object, text: str) -> bool:
    try:
        return same_data(yaml.safe_load(text), value)
    except yaml.YAMLError:
        return False


def _spell_text(value: str, old: str) -> str:
    if old[:1] == "'":
        return "'" + value.replace("'", "''") + "'"
    if old[:1] != '"' and re.fullmatch(_PLAIN_TEXT, value) and yaml.safe_load(value) == value:
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _key_with_type(key: object) -> tuple[type, object]:
    return type(key), key


def _old_words(source: SourceFile, path: KeyPath) -> str:
    position = source.position(path)
    return source.text[position.value.start : position.value.end] if position else ""


def _replace_at(data: object, path: KeyPath, kind: ChangeKind, value: object) -> object:
    """Return the values with one place changed; only the collections on the path to it are copied."""
    head, rest = path[0], path[1:]
    if isinstance(data, list) and isinstance(head, int) and 0 <= head < len(data):
        if not rest and kind is not ChangeKind.SET_VALUE:
            _refuse("list-item")
        inner = _replace_at(data[head], rest, kind, value) if rest else value
        return [inner if index == head else item for index, item in enumerate(data)]
    if not isinstance(data, dict) or (head not in data and (rest or kind is not ChangeKind.ADD_KEY)):
        _refuse("no-such-place")
    if rest:
        return {**data, head: _replace_at(data[head], rest, kind, value)}
    return _with_key(data, head, kind, value)


def _with_key(data: dict[object, object], key: object, kind: ChangeKind, value: object) -> dict[object, object]:
    if kind is ChangeKind.REMOVE_KEY:
        return {name: item for name, item in data.items() if name != key}
    if kind is ChangeKind.SET_VALUE:
        return {**data, key: value}
    if (key if kind is ChangeKind.ADD_KEY else value) in data:
        _refuse("key-exists")
    if kind is ChangeKind.RENAME_KEY:
        return {value if name == key else name: item for name, item in data.items()}
    return {**data, key: value}


def _refuse(reason: str) -> NoReturn:
    raise EditRefusedError(msg(f"edits.{reason}"))


def _place(source: SourceFile, path: KeyPath) -> Position:
    """Return the position of a key path; raise EditRefusedError unless its key and value are next to each other."""
    position = source.position(path)
    if position is None:
        _refuse("no-such-place")
    if position.uses:
        _refuse("shared")
    key = position.key
    if key is not None and not re.compile(_BETWEEN).fullmatch(source.text, key.end, position.value.start):
        _refuse("shared")  # merged from another mapping, or a form such as `? key`
    return position


def _remove_key(source: SourceFile, path: KeyPath) -> tuple[TextEdit, ...]:
    position = _place(source, path)
    parent = source.position(path[:-1])
    if position.key is None or parent is None:
        _refuse("list-item")
    text = source.text
    start, end = position.key.start, position.value.end
    if text[parent.definition.start : parent.definition.start + 1] == "{":
        return (_remove_from_flow(text, start, end, parent.definition.start),)
    begin = _line_start(text, start)
    rest = re.compile(_REST_OF_LINE).match(text, end)
    if text[begin:start].strip(" ") or rest is None:
        _refuse("not-a-line")
    removal = TextEdit(begin, rest.end(), "")
    siblings = source.get(path[:-1])
    if isinstance(siblings, dict) and len(siblings) > 1:
        return (removal,)
    # The last key of its section: write `{}`, because an empty section would be null.
    if parent.key is None:
        _refuse("last-key")
    head = re.compile(_HEAD).match(text, parent.key.end)
    if head is None:
        _refuse("last-key")
    return TextEdit(head.end(), head.end(), " {}"), removal


def _remove_from_flow(text: str, start: int, end: int, opened: int) -> TextEdit:
    after = re.compile(_COMMA).match(text, end)
    if after:
        return TextEdit(start, after.end(), "")
    before = re.compile(_COMMA_BEFORE).search(text, opened + 1, start)
    return TextEdit(before.start() if before else start, end, "")


def is_merged(source: SourceFile, path: KeyPath) -> bool:
    """Return whether a mapping gets this key only through ``<<``, from another mapping."""
    position, parent = source.position(path), source.position(path[:-1])
    if position is None or position.key is None or parent is None:
        return False
    return not parent.definition.start <= position.key.start < parent.definition.end


def _set_value(source: SourceFile, path: KeyPath, raw: str) -> tuple[TextEdit, ...]:
    if is_merged(source, path):
        return _add_key(source, path, raw)  # override the merged value
    position = _place(source, path)
    span = position.value
    text = source.text
    if span.start == span.end:
        blank = "" if text[span.start - 1 : span.start].isspace() else " "
        return (TextEdit(span.start, span.end, blank + raw),)
    below = position.key is not None and position.key.end_line != span.line
    if (below or span.line != span.end_line) and text[span.start] not in "{['\"":
        if re.compile(COMMENT).search(text, span.start, span.end):
            _refuse("several-lines")
        if re.compile(_ANCHOR).search(text, span.start, span.end):
            _refuse("shared")
        if position.key is not None:
            return pull_up(text, position, raw)
    return (TextEdit(span.start, span.end, raw),)


def pull_up(text: str, position: Position, raw: str) -> tuple[TextEdit, ...]:
    """Move a value that starts below its key onto the key's line, and remove the value's own lines."""
    assert position.key is not None  # noqa: S101 - checked by the caller
    between = re.compile(_TO_NEXT_LINE).fullmatch(text, position.key.end, position.value.start)
    rest = re.compile(_END_OF_LINE).match(text, position.value.end)
    if between is None or rest is None:
        if rest is None:
            raise MoreOnLinesError(msg("edits.several-lines"))
        _refuse("shared")
    start = between.start("rest")
    return TextEdit(start, start, f" {raw}"), TextEdit(between.end("rest"), rest.end(), "")


def _rename_key(source: SourceFile, path: KeyPath, name: str) -> tuple[TextEdit, ...]:
    key = _place(source, path).key
    if key is None:
        _refuse("list-item")
    return (TextEdit(key.start, key.end, spell(name, source.text[key.start : key.end])),)


def _add_key(source: SourceFile, path: KeyPath, raw: str) -> tuple[TextEdit, ...]:
    """Add the key after the last key of its section, in the section's style."""
    section = source.get(path[:-1])
    parent = source.position(path[:-1])
    if not isinstance(section, dict) or parent is None or parent.uses or parent.value != parent.definition:
        _refuse("no-such-place")
    text, span = source.text, parent.definition
    words = f"{spell(str(path[-1]))}: {raw}"
    places = [source.position((*path[:-1], key)) for key in section]
    inside = [place for place in places if place and place.key and span.start <= place.key.start < span.end]
    if not inside:
        if text[span.start : span.end] != "{}":
            _refuse("no-such-place")
        return (TextEdit(span.start + 1, span.start + 1, words),)
    last = max(inside, key=lambda place: place.value.end)
    if text[span.start] == "{":
        return (TextEdit(last.value.end, last.value.end, f", {words}"),)
    rest = re.compile(_REST_OF_LINE).match(text, last.value.end)
    if last.key is None or rest is None:
        _refuse("not-a-line")
    indent = " " * (last.key.start - _line_start(text, last.key.start))
    found = re.search(_LINE_BREAK, text)
    line_break = found[0] if found else "\n"
    if text[rest.start() : rest.end()].endswith(("\n", "\r")):
        return (TextEdit(rest.end(), rest.end(), f"{indent}{words}{line_break}"),)
    return (TextEdit(rest.end(), rest.end(), f"{line_break}{indent}{words}"),)


def _line_start(text: str, offset: int) -> int:
    return max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1


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
