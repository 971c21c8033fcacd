"""PyYAML's safe loader, the quicker one of the two that there may be."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import cached_property
from itertools import chain
from weakref import WeakValueDictionary

import yaml

from ms_tune.diagnostics import Location
from ms_tune.errors import ConfigError
from ms_tune.records import Record
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Any, ClassVar, NoReturn, TypeAlias

    from ms_tune.text import Message

# A node, event or loader of PyYAML: its type stubs know too little of what the two parsers share.
Parsed: TypeAlias = "Any"

# The C parser is ten times as fast, and not in every build of PyYAML.
_PARSER: Parsed = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SHORT, _MOST = 24, 5000  # characters of a word whose tag is kept, and how many are


class Loader(_PARSER):  # type: ignore[misc]  # whichever there is
    """The safe loader, which works out once what a short word without quotes is: files of one folder have the same ones."""

    _tags: ClassVar[dict[str, str]] = {}

    def resolve(self, kind: Parsed, value: Parsed, implicit: Parsed) -> Parsed:
        """The tag of a node (``BaseResolver.resolve`` of PyYAML 6, ``yaml/resolver.py``)."""
        if kind is not yaml.ScalarNode or not implicit[0]:
            return super().resolve(kind, value, implicit)
        tag = self._tags.get(value)
        if tag is None:
            tag = super().resolve(kind, value, implicit)
            if len(value) <= _SHORT and len(self._tags) < _MOST:
                self._tags[value] = tag
        return tag


# The offset that an alias stands behind, and how many others stand between.
Alias: TypeAlias = tuple[int, int]

MAX_DEPTH = 100
MAX_VALUES = 200_000  # with every alias written out

_TAG = "tag:yaml.org,2002:"
_TEXT, _MERGE = f"{_TAG}str", f"{_TAG}merge"
_COLLECTIONS = (f"{_TAG}map", f"{_TAG}seq")
# What PyYAML makes of words that are no text; called without its books, in half the time.
_MAKERS = {
    f"{_TAG}{kind}": yaml.SafeLoader.yaml_constructors[f"{_TAG}{kind}"] for kind in ("int", "float", "bool", "null")
}
_LINE_BREAK = re.compile("\r\n|\r|\n")
# What may stand before a value: anchors, tags, and the blanks and comments behind them.
_PROPERTIES = re.compile(r"(?:[&!][^\s,\[\]{}]*(?:\s+(?:#[^\r\n]*\s*)*)?)*")
# A second document, or blocks in blocks by the hundred (each takes a column): only these are looked for before composing.
_UNUSUAL = re.compile(r"^(?:---|\.\.\.|[ \t?:-]{200})", re.MULTILINE)
_FLOWS = 500


class Plain(Record):
    """A scalar without quotes: the text as written, and what YAML 1.1 takes it for (``str``, ``int``, ``null``)."""

    raw: str
    kind: str


class NodeEntry(Record):
    """A value in a collection: its key (None in a list), and the alias that stands for it, if one does."""

    key: Location | None
    node: Node
    alias: Location | None


class Node:
    """A value in a text: its span, what is in it, and the words of a scalar without quotes."""

    plain: Plain | None = None

    def __init__(self, span: Location, entries: Mapping[str | int, NodeEntry] | None = None) -> None:
        self.span = span
        self.start = span.start  # of its anchor and tag, if it has some
        self._entries = entries or {}

    def entry(self, key: str | int) -> NodeEntry | None:
        """What stands at a key, or at a place of a list."""
        return self._entries.get(key)

    def entries(self) -> Iterator[tuple[str | int, NodeEntry]]:
        """Everything in it, with its key or place."""
        yield from self._entries.items()

    def duplicates(self) -> Iterator[tuple[str | int, Location, Location]]:
        """Keys that stand in it once more: the key, where it stood before, and where it stands again."""
        yield from ()

    def scalar_at(self, offset: int) -> tuple[tuple[str | int, ...], Plain] | None:  # noqa: ARG002 - as in a WrittenNode
        """The scalar without quotes that starts at an offset, with its path; a key is none."""
        return None


class Document:
    """The text, with offsets turned into lines and columns."""

    def __init__(self, text: str, path: Path) -> None:
        self.text = text
        self.path = path

    @cached_property
    def starts(self) -> list[int]:
        """Where its lines start."""
        return [0, *(match.end() for match in _LINE_BREAK.finditer(self.text))]

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    def span(self, start: int, end: int) -> Location:
        """The span between two offsets."""
        line, column = self.place(start)
        if line == len(self.starts) or start <= end < self.starts[line]:  # as nearly all of them: on one line
            return Location(start, end, line, column, line, column + end - start)
        return Location(start, end, line, column, *self.place(end))

    def fail(self, message: Message, offset: int | None = None, hint: Message | None = None) -> NoReturn:
        """Refuse the config."""
        line, column = self.place(offset) if offset is not None else (None, None)
        raise ConfigError(message, hint, path=self.path, line=line, column=column)


class YamlDocument(Document):
    """A text in YAML, composed by PyYAML within bounds.

    Raises (all its methods, and when it is made):
        ConfigError: It is nested too deeply, has several documents, refers to itself, or holds too many values.
        yaml.YAMLError: It is no YAML.
    """

    def __init__(self, text: str, path: Path) -> None:
        super().__init__(text, path)
        self._sizes: dict[int, tuple[int, int] | None] = {}
        # Not in use, a node goes: kept here, it would keep the document, too, until Python looks for rubbish.
        self._nodes: WeakValueDictionary[int, WrittenNode] = WeakValueDictionary()
        self._merging: dict[int, list[Parsed]] = {}  # what PyYAML perhaps writes anew: `<<`
        self.has_duplicates = False
        self._simple = True
        is_fast = issubclass(Loader, getattr(yaml, "CSafeLoader", ()))
        if not is_fast or _UNUSUAL.search(text) or text.count("[") + text.count("{") > _FLOWS:
            self._look_at_events()
        self.loader = Loader(text)
        try:
            self.top = self.loader.get_single_node()
        except yaml.composer.ComposerError:
            self._look_at_events()  # what the parser finds comes first
            raise
        finally:
            self.loader.dispose()
        if isinstance(self.top, yaml.MappingNode):
            self._size(self.top, self.top)
        else:
            self._look_at_events()

    def values(self) -> Any:  # noqa: ANN401 - whatever YAML holds
        """The values, as ``yaml.load`` makes them."""
        return self._value(self.top, {}) if self._simple else self.loader.construct_document(self.top)

    def _value(self, node: Parsed, made: dict[int, Any]) -> Any:  # noqa: ANN401 - as above
        tag = node.tag
        if tag == _TEXT:
            return node.value
        if tag in _MAKERS:
            return _MAKERS[tag](self.loader, node)
        if tag not in _COLLECTIONS:
            return self.loader.construct_object(node, deep=True)
        key = id(node)
        if key not in made:
            if tag == _COLLECTIONS[0]:
                made[key] = {name.value: self._value(one, made) for name, one in node.value}
            else:
                made[key] = [self._value(one, made) for one in node.value]
        return made[key]

    def _look_at_events(self) -> list[Location]:
        """The aliases in the order of the text; refuses what is nested too deeply to be composed safely.

        A composed node does not tell where its aliases stand, the events of the parser do.
        """
        depth = documents = 0
        found = []
        for event in yaml.parse(self.text, Loader=Loader):
            start, end = offsets(event)
            if isinstance(event, yaml.AliasEvent):
                found.append(self.span(start, end))
            elif isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    self.fail(msg("config.too-deep", limit=MAX_DEPTH), start)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self.fail(msg("config.documents"), start, msg("config.documents.hint"))
        return found

    @cached_property
    def aliases(self) -> list[Location]:
        """Where aliases stand, in the order of the text."""
        return self._look_at_events()

    def _size(self, node: Parsed, parent: Parsed) -> tuple[int, int]:
        """How many values a collection holds and how deep it is, with every alias written out."""
        key = id(node)
        if key in self._sizes:
            size = self._sizes[key]
            if size is None:
                alias = next(alias for child, alias in self.children(parent) if child is node and alias)
                self.fail(msg("config.recursive"), self.alias(alias).start)
            return size
        self._sizes[key] = None
        parts = node.value
        if isinstance(node, yaml.MappingNode):
            parts = list(chain.from_iterable(parts))
            names = [key.value for key, _ in node.value if key.tag == _TEXT]
            if len(names) < len(node.value):
                self._simple = False
                self._merging[id(node)] = list(node.value)
            # Or perhaps: `1` and `0x1` are one key.
            self.has_duplicates |= len(set(names)) < len(node.value)
        values, depth = 1 + len(parts), 1 if parts else 0
        for part in parts:
            if type(part) is not yaml.ScalarNode:
                more, deeper = self._size(part, node)
                values, depth = values + more - 1, max(depth, deeper)
        self._simple &= node.tag in _COLLECTIONS
        if values > MAX_VALUES or depth >= MAX_DEPTH:
            self._refuse_size(node, values)
        self._sizes[key] = values, depth + 1
        return values, depth + 1

    def _refuse_size(self, node: Parsed, values: int) -> NoReturn:
        aliased = bool(self.aliases) and self.aliases[0].start < node.end_mark.index
        start = self.node(node).span.start
        if values > MAX_VALUES:
            self.fail(msg("config.too-many" if aliased else "config.too-many-written", limit=MAX_VALUES), start)
        self.fail(msg("config.too-deep", limit=MAX_DEPTH), start)

    def children(self, node: Parsed) -> Iterator[tuple[Parsed, Alias | None]]:
        """The nodes in a collection (keys and values by turns), and which alias leads to one, if one does.

        What stands here starts behind what stood before it, and an alias leads to something that started before, with an
        anchor.
        """
        is_list = isinstance(node, yaml.SequenceNode)
        behind = node.start_mark.index
        last, number = behind - (not is_list and not node.flow_style), 0
        pairs = self._merging.get(id(node), node.value)
        for child in pairs if is_list else chain.from_iterable(pairs):
            start = child.start_mark.index
            if start <= last and self.text[start : start + 1] in ("&", "!"):
                yield child, (behind, number)
                number += 1
            else:
                last, behind, number = start, child.end_mark.index, 0
                yield child, None

    def alias(self, alias: Alias) -> Location:
        """Where an alias stands."""
        return self.aliases[bisect_left(self.aliases, (alias[0],)) + alias[1]]

    def node(self, source: Parsed) -> WrittenNode:
        """The node of one of PyYAML's."""
        found = self._nodes.get(id(source))
        if found is None:
            found = self._nodes[id(source)] = WrittenNode(self, source)
        return found


def offsets(event: Parsed) -> tuple[int, int]:
    """Where a node or an event starts and ends in the text."""
    return event.start_mark.index, event.end_mark.index


class WrittenNode(Node):
    """A node of PyYAML's; its places are worked out when they are asked for."""

    def __init__(self, document: YamlDocument, source: Parsed) -> None:
        self._document = document
        self._source = source
        self.start = source.start_mark.index

    @cached_property
    def span(self) -> Location:  # type: ignore[override]  # as Node's, and read only
        """Where it stands, without its anchor and tag."""
        return self._document.span(*self._extent())

    @property
    def plain(self) -> Plain | None:  # type: ignore[override]  # as Node's, and read only
        """The words of a scalar without quotes."""
        if not isinstance(self._source, yaml.ScalarNode) or self._source.style:
            return None
        start, end = self._extent()
        return Plain(self._document.text[start:end], self._source.tag.removeprefix(_TAG))

    def _extent(self) -> tuple[int, int]:
        document, (start, end) = self._document, offsets(self._source)
        text = document.text
        if text[start : start + 1] in ("&", "!"):
            match = _PROPERTIES.match(text, start)
            start = match.end() if match else start
        if isinstance(self._source, yaml.ScalarNode):
            start = min(start, end)
            if self._source.style in ("|", ">"):  # ends behind its last line break
                end = start + len(text[start:end].rstrip())
        elif not self._source.flow_style and self._source.value:
            # PyYAML ends a block where the next token starts, behind blank lines and comments.
            *_, (child, alias) = document.children(self._source)
            end = (document.alias(alias) if alias else document.node(child).span).end
        return start, max(start, end)

    @cached_property
    def _parts(self) -> dict[str | int, tuple[Parsed, ...] | NodeEntry]:
        """What is in it: its nodes and the offsets of aliases, or what ``<<`` brings in."""
        return dict(self._all_parts())

    def _all_parts(self) -> Iterator[tuple[str | int, tuple[Parsed, ...] | NodeEntry]]:
        """The same, each key as often as it stands there."""
        if isinstance(self._source, yaml.ScalarNode):
            return
        parts = self._document.children(self._source)
        if isinstance(self._source, yaml.SequenceNode):
            yield from ((index, (None, None, *part)) for index, part in enumerate(parts))
            return
        pairs = [(*name, *next(parts)) for name in parts]
        for pair in pairs:
            if pair[0].tag == _MERGE:
                yield from _merged(self._made(pair), pair[2])
        yield from ((self._key(pair[0]), pair) for pair in pairs if pair[0].tag != _MERGE)

    def entry(self, key: str | int) -> NodeEntry | None:
        """What stands at a key, or at a place of a list."""
        found = self._parts.get(key)
        if found is None or isinstance(found, NodeEntry):
            return found
        made = self._parts[key] = self._made(found)
        return made

    def entries(self) -> Iterator[tuple[str | int, NodeEntry]]:
        """Everything in it, with its key or place."""
        for key in self._parts:
            yield key, self.entry(key)  # type: ignore[misc]  # it is there

    def duplicates(self) -> Iterator[tuple[str | int, Location, Location]]:
        """Keys that stand in it once more: the key, where it stood before, and where it stands again."""
        before: dict[str | int, Location] = {}
        for key, part in self._all_parts():
            span = None if isinstance(part, NodeEntry) else self._made(part).key
            if span is not None:
                if key in before:
                    yield key, before[key], span
                before[key] = span

    def scalar_at(self, offset: int) -> tuple[tuple[str | int, ...], Plain] | None:
        """The scalar without quotes that starts at an offset, with its path; a key is none."""
        best: tuple[int, str | int] | None = None
        for key, part in self._parts.items():
            if isinstance(part, NodeEntry):
                start, alias = part.node.start, part.alias
            else:
                start, alias = part[2].start_mark.index, part[3]
            if alias is None and start <= offset and (best is None or start > best[0]):
                best = start, key
        entry = None if best is None else self.entry(best[1])
        if best is None or entry is None:
            return None
        key, node = best[1], entry.node
        found = node.scalar_at(offset)
        if found is not None:
            return (key, *found[0]), found[1]
        plain = node.plain
        return ((key,), plain) if plain is not None and node.span.start == offset else None

    def _made(self, part: tuple[Parsed, ...]) -> NodeEntry:
        document, (name, name_alias, value, alias) = self._document, part
        key = None
        if name is not None:
            key = document.alias(name_alias) if name_alias else document.node(name).span
        return NodeEntry(key, document.node(value), document.alias(alias) if alias else None)

    def _key(self, source: Parsed) -> str | int:
        """The key as an item of a key path: keys that are neither text nor whole number go by their text."""
        if source.tag != _TEXT and isinstance(source, yaml.ScalarNode):
            try:
                key = self._document.loader.construct_object(source)
            except (yaml.YAMLError, ValueError, IndexError, OverflowError):
                return str(source.value)
            return key if isinstance(key, (str, int)) else str(source.value)
        return str(source.value)


def _merged(child: NodeEntry, source: Parsed) -> Iterator[tuple[str | int, NodeEntry]]:
    """What ``<<`` brings in, each with the alias that brings it; of several mappings the first wins."""
    parts = [child]
    if isinstance(source, yaml.SequenceNode):
        parts = [entry for _, entry in child.node.entries()][::-1]
    for part in parts:
        for key, entry in part.node.entries():
            yield key, NodeEntry(entry.key, entry.node, entry.alias or part.alias or child.alias)
