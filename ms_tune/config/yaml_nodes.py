"""PyYAML's nodes, turned into ours: what stands where, with aliases and merge keys resolved and bounds kept."""

from __future__ import annotations

import re
from bisect import bisect_right
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

import yaml

from ms_tune.errors import ConfigError
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ms_tune.texts import Message

# A node, event or loader of PyYAML: its type stubs know too little of what the two parsers share.
Parsed: TypeAlias = Any

MAX_DEPTH = 100
MAX_VALUES = 200_000  # with every alias written out

# The C parser is ten times as fast, and not in every build of PyYAML.
LOADER: Parsed = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TAG = "tag:yaml.org,2002:"
_LINE_BREAK = re.compile("\r\n|\r|\n")
# What may stand before a value: anchors, tags, and the blanks and comments behind them.
_PROPERTIES = re.compile(r"(?:[&!][^\s,\[\]{}]*(?:\s+(?:#[^\r\n]*\s*)*)?)*")


class Span(NamedTuple):
    """A stretch of the text: offsets from 0, lines and columns from 1, the end exclusive. All count characters."""

    start: int
    end: int
    line: int
    column: int
    end_line: int
    end_column: int


class Plain(NamedTuple):
    """A scalar without quotes: the text as written, and what YAML 1.1 takes it for (``str``, ``int``, ``null``)."""

    raw: str
    kind: str


class Entry(NamedTuple):
    """A value in a collection: its key (None in a list), and the alias that stands for it, if one does."""

    key: Span | None
    node: Node
    alias: Span | None


class Node(NamedTuple):
    """A value: its span, its children, and how big it is with every alias written out."""

    span: Span
    entries: Mapping[str | int, Entry]
    plain: Plain | None
    values: int
    depth: int
    duplicates: Sequence[tuple[str | int, Span, Span]]


_NOTHING: Mapping[str | int, Entry] = MappingProxyType({})  # in a scalar


class Document:
    """The text, with offsets turned into lines and columns."""

    def __init__(self, text: str, path: Path) -> None:
        self.text = text
        self.path = path
        self._starts = [0, *(match.end() for match in _LINE_BREAK.finditer(text))]

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def span(self, start: int, end: int) -> Span:
        """The span between two offsets."""
        line, column = self.place(start)
        if line == len(self._starts) or start <= end < self._starts[line]:  # as nearly all of them: on one line
            return Span(start, end, line, column, line, column + end - start)
        return Span(start, end, line, column, *self.place(end))

    def fail(self, message: Message, offset: int | None = None, hint: Message | None = None) -> NoReturn:
        """Refuse the config."""
        line, column = self.place(offset) if offset is not None else (None, None)
        raise ConfigError(message, hint, path=self.path, line=line, column=column)


def find_aliases(lines: Document) -> Iterator[Span]:
    """The aliases in the order of the text; refuses what is nested too deeply to be composed safely.

    A composed node does not tell where its aliases stand, the events of the parser do.
    """
    depth = documents = 0
    found = []
    for event in yaml.parse(lines.text, Loader=LOADER):
        start, end = offsets(event)
        if isinstance(event, yaml.AliasEvent):
            found.append(lines.span(start, end))
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                lines.fail(msg("config.too-deep", limit=MAX_DEPTH), start)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                lines.fail(msg("config.documents"), start, msg("config.documents.hint"))
    return iter(found)


def offsets(event: Parsed) -> tuple[int, int]:
    """Where a node or an event starts and ends in the text."""
    return event.start_mark.index, event.end_mark.index


class Builder:
    """Turns PyYAML's nodes into ours.

    The tree is walked in the order of the text, so a node met for the second time is an alias, and the next alias
    that the parser saw is the one that leads to it.
    """

    def __init__(self, lines: Document, aliases: Iterator[Span], loader: Parsed) -> None:
        self._lines = lines
        self._aliases = aliases
        self._loader = loader
        self._done: dict[int, Node | None] = {}
        self._aliased = False
        self.has_duplicates = False

    def build(self, source: Parsed, key: Span | None) -> Node:
        """The node of the whole document."""
        return self._entry(source, key).node

    def _entry(self, source: Parsed, key: Span | None) -> Entry:
        if id(source) in self._done:
            alias = next(self._aliases)
            node = self._done[id(source)]
            if node is None:
                self._lines.fail(msg("config.recursive"), alias.start)
            self._aliased = True
            return Entry(key, node, alias)
        if isinstance(source, yaml.ScalarNode):
            node = self._done[id(source)] = self._scalar(source)
            return Entry(key, node, None)
        self._done[id(source)] = None
        node = self._node(source)
        self._done[id(source)] = node
        if node.values > MAX_VALUES:
            self._lines.fail(
                msg("config.too-many" if self._aliased else "config.too-many-written", limit=MAX_VALUES),
                node.span.start,
            )
        if node.depth > MAX_DEPTH:
            self._lines.fail(msg("config.too-deep", limit=MAX_DEPTH), node.span.start)
        return Entry(key, node, None)

    def _node(self, source: Parsed) -> Node:
        if isinstance(source, yaml.MappingNode):
            return self._mapping(source)
        if isinstance(source, yaml.SequenceNode):
            children = [self._entry(child, None) for child in source.value]
            return self._collection(source, dict(enumerate(children)), children, [])
        raise TypeError(source)

    def _scalar(self, source: yaml.ScalarNode) -> Node:
        text, start, end = self._lines.text, *offsets(source)
        if text[start : start + 1] in ("&", "!"):
            start = min(self._skip_properties(source), end)
        if not source.style:
            plain = Plain(text[start:end], source.tag.removeprefix(_TAG))
            return Node(self._lines.span(start, end), _NOTHING, plain, 1, 1, ())
        if source.style in ("|", ">"):  # ends behind its last line break
            end = start + len(text[start:end].rstrip())
        return Node(self._lines.span(start, end), _NOTHING, None, 1, 1, ())

    def _mapping(self, source: yaml.MappingNode) -> Node:
        merged: dict[str | int, Entry] = {}
        own: dict[str | int, Entry] = {}
        children: list[Entry] = []
        duplicates = []
        for key_source, value_source in source.value:
            key_entry = self._entry(key_source, None)
            key_span = key_entry.alias or key_entry.node.span
            child = self._entry(value_source, key_span)
            children += (key_entry, child)
            if key_source.tag == f"{_TAG}merge":
                merged.update(_merged(child, value_source))
                continue
            key = self._key(key_source)
            if key in own:
                duplicates.append((key, own[key].key or key_span, key_span))
                self.has_duplicates = True
            own[key] = child
        return self._collection(source, merged | own, children, duplicates)

    def _collection(
        self,
        source: yaml.CollectionNode,
        entries: dict[str | int, Entry],
        children: list[Entry],
        duplicates: list[tuple[str | int, Span, Span]],
    ) -> Node:
        start = self._skip_properties(source)
        end = source.end_mark.index
        if not source.flow_style and children:
            # PyYAML ends a block where the next token starts, behind blank lines and comments.
            last = children[-1]
            end = (last.alias or last.node.span).end
        values = 1 + sum(child.node.values for child in children)
        depth = 1 + max((child.node.depth for child in children), default=0)
        return Node(self._lines.span(start, max(start, end)), entries, None, values, depth, duplicates)

    def _skip_properties(self, source: Parsed) -> int:
        start: int = source.start_mark.index
        match = _PROPERTIES.match(self._lines.text, start) if self._lines.text[start : start + 1] in "&!" else None
        return match.end() if match else start

    def _key(self, source: Parsed) -> str | int:
        """The key as an item of a key path: keys that are neither text nor whole number go by their text."""
        if source.tag != f"{_TAG}str" and isinstance(source, yaml.ScalarNode):
            try:
                key: Hashable = self._loader.construct_object(source)
            except (yaml.YAMLError, ValueError, IndexError, OverflowError):
                return str(source.value)
            return key if isinstance(key, (str, int)) else str(source.value)
        return str(source.value)


def _merged(child: Entry, source: Parsed) -> Mapping[str | int, Entry]:
    """What ``<<`` brings in, each with the alias that brings it; of several mappings the first wins."""
    parts = [child]
    if isinstance(source, yaml.SequenceNode):
        parts = [child.node.entries[index] for index in reversed(range(len(child.node.entries)))]
    found: dict[str | int, Entry] = {}
    for part in parts:
        for key, entry in part.node.entries.items():
            found[key] = Entry(entry.key, entry.node, entry.alias or part.alias or child.alias)
    return found
