"""Load YAML with PyYAML's safe loader (the C one if available) and keep the text position of every node."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import chain
from pathlib import Path
from weakref import WeakValueDictionary

import yaml

from ms_tune.diagnostics import Location
from ms_tune.errors import ConfigError
from ms_tune.records import Any, NoReturn, Record
from ms_tune.text import Message, msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar, TypeAlias


# A node, event or loader of PyYAML; its type stubs do not cover both parsers.
Parsed: TypeAlias = "Any"

# The C parser is ten times as fast, but not part of every build of PyYAML.
_PARSER: Parsed = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SHORT, _MOST = 24, 5000  # longest word whose tag is cached, and the number of cached words


class Loader(_PARSER):  # type: ignore[misc]  # whichever there is
    """Safe loader that caches the tags of short unquoted words, because files of one folder repeat them."""

    _tags: ClassVar[dict[str, str]] = {}

    def resolve(self, kind: Parsed, value: Parsed, implicit: Parsed) -> Parsed:
        """Return the tag of a node (``BaseResolver.resolve`` of PyYAML 6, ``yaml/resolver.py``)."""
        if kind is not yaml.ScalarNode or not implicit[0]:
            return super().resolve(kind, value, implicit)
        tag = self._tags.get(value)
        if tag is None:
            tag = super().resolve(kind, value, implicit)
            if len(value) <= _SHORT and len(self._tags) < _MOST:
                self._tags[value] = tag
        return tag


# The end offset of the node before an alias, and the number of other aliases between them.
Alias: TypeAlias = tuple[int, int]

MAX_DEPTH = 100
MAX_VALUES = 200_000  # with every alias expanded

_TAG = "tag:yaml.org,2002:"
_TEXT, _MERGE = f"{_TAG}str", f"{_TAG}merge"
_COLLECTIONS = {f"{_TAG}map": yaml.MappingNode, f"{_TAG}seq": yaml.SequenceNode}
# PyYAML's constructors for scalars that are not strings; calling them directly takes half the time.
_MAKERS = {
    f"{_TAG}{kind}": yaml.SafeLoader.yaml_constructors[f"{_TAG}{kind}"] for kind in ("int", "float", "bool", "null")
}
_LINE_BREAK = re.compile("\r\n|\r|\n")
# Text that can precede a value: anchors, tags, and the blanks and comments after them.
_PROPERTIES = re.compile(r"(?:[&!][^\s,\[\]{}]*(?:\s+(?:#[^\r\n]*\s*)*)?)*")
# A second document, or hundreds of nested blocks (each needs a column): checked before composing.
_UNUSUAL = re.compile(r"^(?:---|\.\.\.|[ \t?:-]{200})", re.MULTILINE)
_FLOWS = 500


class Plain(Record):
    """An unquoted scalar: its text, and its YAML 1.1 type (``str``, ``int``, ``null``)."""

    raw: str
    kind: str


class NodeEntry(Record):
    """A value in a collection, with its key (None in a list) and the alias that refers to it, if any."""

    key: Location | None
    node: Node
    alias: Location | None


class Node:
    """A value in a text: its span, its entries and, for an unquoted scalar, its text."""

    plain: Plain | None = None

    def __init__(self, span: Location, entries: Mapping[str | int, NodeEntry] | None = None) -> None:
        self.span = span
        self.start = span.start  # including an anchor and a tag
        self._entries = entries or {}

    def entry(self, key: str | int) -> NodeEntry | None:
        """Return the entry at a key or list index."""
        return self._entries.get(key)

    def entries(self) -> Iterator[tuple[str | int, NodeEntry]]:
        """Yield all entries with their key or list index."""
        yield from self._entries.items()

    def duplicates(self) -> Iterator[tuple[str | int, Location, Location]]:
        """Yield keys that appear more than once: the key, the earlier location and the later one."""
        yield from ()

    def scalar_at(self, offset: int) -> tuple[tuple[str | int, ...], Plain] | None:  # noqa: ARG002 - as in a WrittenNode
        """Return the unquoted scalar value that starts at an offset, with its key path; keys are ignored."""
        return None


class Document:
    """A text in which offsets can be converted to lines and columns."""

    def __init__(self, text: str, path: Path) -> None:
        self.text = text
        self.path = path

    @cached_property
    def starts(self) -> list[int]:
        """Return the start offset of each line."""
        return [0, *(match.end() for match in _LINE_BREAK.finditer(self.text))]

    def place(self, offset: int) -> tuple[int, int]:
        """Return the line and column of an offset."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    def span(self, start: int, end: int) -> Location:
        """Return the location between two offsets."""
        line, column = self.place(start)
        if line == len(self.starts) or start <= end < self.starts[line]:  # on one line, as nearly always
            return Location(start, end, line, column, line, column + end - start)
        return Location(start, end, line, column, *self.place(end))

    def fail(self, message: Message, offset: int | None = None, hint: Message | None = None) -> NoReturn:
        """Raise a ConfigError at an offset."""
        line, column = self.place(offset) if offset is not None else (None, None)
        raise ConfigError(message, hint, path=self.path, line=line, column=column)


class YamlDocument(Document):
    """A YAML text composed by PyYAML within limits on depth and size.

    Raises (the constructor and all methods):
        ConfigError: It is nested too deeply, has several documents, refers to itself, or has too many values.
        yaml.YAMLError: It is not valid YAML.
    """

    def __init__(self, text: str, path: Path) -> None:
        super().__init__(text, path)
        self._sizes: dict[int, tuple[int, int] | None] = {}
        # Weak references: a strong one would form a cycle that keeps the document until garbage collection.
        self._nodes: WeakValueDictionary[int, LazyNode] = WeakValueDictionary()
        self._merging: dict[int, list[Parsed]] = {}  # pairs of mappings that may have `<<`, which PyYAML rewrites
        self.has_duplicates = False
        self._simple = True
        is_fast = issubclass(Loader, getattr(yaml, "CSafeLoader", ()))
        if not is_fast or _UNUSUAL.search(text) or text.count("[") + text.count("{") > _FLOWS:
            self._look_at_events()
        self.loader = Loader(text)
        try:
            self.top = self.loader.get_single_node()
        except yaml.composer.ComposerError:
            self._look_at_events()  # an error of the parser is reported first
            raise
        finally:
            self.loader.dispose()
        if isinstance(self.top, yaml.MappingNode):
            self._size(self.top, self.top)
        else:
            self._look_at_events()

    def values(self) -> Any:  # noqa: ANN401 - YAML values have any type
        """Return the values, as ``yaml.load`` does."""
        return self._value(self.top, {}) if self._simple else self.loader.construct_document(self.top)

    def _value(self, node: Parsed, made: dict[int, Any]) -> Any:  # noqa: ANN401 - as above
        tag = node.tag
        if tag == _TEXT:
            return node.value
        if tag in _MAKERS:
            return _MAKERS[tag](self.loader, node)
        if _COLLECTIONS.get(tag) is not type(node):  # another tag, or a wrong one, which PyYAML refuses: `!!seq 3`
            return self.loader.construct_object(node, deep=True)
        key = id(node)
        if key not in made:
            if isinstance(node, yaml.MappingNode):
                made[key] = {name.value: self._value(one, made) for name, one in node.value}
            else:
                made[key] = [self._value(one, made) for one in node.value]
        return made[key]

    def _look_at_events(self) -> list[Location]:
        """Return the aliases in text order; fail if the nesting is too deep to be composed safely.

        Parser events have the positions of aliases; composed nodes do not.
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
        """Return the locations of aliases in text order."""
        return self._look_at_events()

    def _size(self, node: Parsed, parent: Parsed) -> tuple[int, int]:
        """Return the number of values in a collection and its depth, with every alias expanded."""
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
            # Keys other than text count as possible duplicates: `1` and `0x1` are the same key.
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
        """Yield the nodes of a collection (keys and values alternating), each with the alias that refers to it, if any.

        A node written here starts after the previous one ends. An alias refers to a node that starts earlier, with an
        anchor.
        """
        is_list = isinstance(node, yaml.SequenceNode)
        previous_end = node.start_mark.index
        last, number = previous_end - (not is_list and not node.flow_style), 0
        pairs = self._merging.get(id(node), node.value)
        for child in pairs if is_list else chain.from_iterable(pairs):
            start = child.start_mark.index
            if start <= last and self.text[start : start + 1] in ("&", "!"):
                yield child, (previous_end, number)
                number += 1
            else:
                last, previous_end, number = start, child.end_mark.index, 0
                yield child, None

    def alias(self, alias: Alias) -> Location:
        """Return the location of an alias."""
        return self.aliases[bisect_left(self.aliases, (alias[0],)) + alias[1]]

    def node(self, source: Parsed) -> LazyNode:
        """Return the (cached) node that wraps a PyYAML node."""
        found = self._nodes.get(id(source))
        if found is None:
            found = self._nodes[id(source)] = LazyNode(self, source)
        return found


def offsets(event: Parsed) -> tuple[int, int]:
    """Return the start and end offset of a node or an event."""
    return event.start_mark.index, event.end_mark.index


class LazyNode(Node):
    """A wrapper of a PyYAML node that computes positions on demand."""

    def __init__(self, document: YamlDocument, source: Parsed) -> None:
        self._document = document
        self._source = source
        self.start = source.start_mark.index

    @cached_property
    def span(self) -> Location:  # type: ignore[override]  # as Node's, and read only
        """Return the location without anchor and tag."""
        return self._document.span(*self._extent())

    @property
    def plain(self) -> Plain | None:  # type: ignore[override]  # as Node's, and read only
        """Return the text and type of an unquoted scalar, or None for another node."""
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
            if self._source.style in ("|", ">"):  # PyYAML ends these after their last line break
                end = start + len(text[start:end].rstrip())
        elif not self._source.flow_style and self._source.value:
            # PyYAML ends a block at the next token, after blank lines and comments.
            *_, (child, alias) = document.children(self._source)
            end = (document.alias(alias) if alias else document.node(child).span).end
        return start, max(start, end)

    @cached_property
    def _parts(self) -> dict[str | int, tuple[Parsed, ...] | NodeEntry]:
        """Return the entries by key: PyYAML nodes with alias offsets, or entries merged through ``<<``."""
        return dict(self._all_parts())

    def _all_parts(self) -> Iterator[tuple[str | int, tuple[Parsed, ...] | NodeEntry]]:
        """Yield the same entries, with duplicate keys."""
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
        """Return the entry at a key or list index."""
        found = self._parts.get(key)
        if found is None or isinstance(found, NodeEntry):
            return found
        made = self._parts[key] = self._made(found)
        return made

    def entries(self) -> Iterator[tuple[str | int, NodeEntry]]:
        """Yield all entries with their key or list index."""
        for key in self._parts:
            yield key, self.entry(key)  # type: ignore[misc]  # the key exists

    def duplicates(self) -> Iterator[tuple[str | int, Location, Location]]:
        """Yield keys that appear more than once: the key, the earlier location and the later one."""
        before: dict[str | int, Location] = {}
        for key, part in self._all_parts():
            span = None if isinstance(part, NodeEntry) else self._made(part).key
            if span is not None:
                if key in before:
                    yield key, before[key], span
                before[key] = span

    def scalar_at(self, offset: int) -> tuple[tuple[str | int, ...], Plain] | None:
        """Return the unquoted scalar value that starts at an offset, with its key path; keys are ignored."""
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
        """Return a key as an item of a key path; a key that is neither text nor integer becomes text."""
        if source.tag != _TEXT and isinstance(source, yaml.ScalarNode):
            try:
                key = self._document.loader.construct_object(source)
            except (yaml.YAMLError, ValueError, IndexError, OverflowError):
                return str(source.value)
            return key if isinstance(key, (str, int)) else str(source.value)
        return str(source.value)


def _merged(child: NodeEntry, source: Parsed) -> Iterator[tuple[str | int, NodeEntry]]:
    """Yield the entries that ``<<`` merges, each with its alias; of several mappings the first wins."""
    parts = [child]
    if isinstance(source, yaml.SequenceNode):
        parts = [entry for _, entry in child.node.entries()][::-1]
    for part in parts:
        for key, entry in part.node.entries():
            yield key, NodeEntry(entry.key, entry.node, entry.alias or part.alias or child.alias)
