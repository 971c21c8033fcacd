"""Read a config file with its text, its values and the position of each value.

The values are those of PyYAML's safe loader, which MindFormers uses (``yaml.safe_load`` in
``mindformers/tools/register/config.py``, MindFormers 1.9): YAML 1.1, merge keys, the last of two equal keys wins.
Nothing in a config is executed, and a file that would expand to excessive size is refused.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

import yaml

from ms_tune.diagnostics import KeyPath, Location
from ms_tune.errors import ConfigError, nearby, reason_of
from ms_tune.records import Any, NoReturn, Record
from ms_tune.source.files import read_bytes
from ms_tune.source.yaml_nodes import MAX_DEPTH, Document, Node, NodeEntry, Plain, YamlDocument
from ms_tune.text import Message, msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias


__all__ = [
    "MAX_BYTES",
    "MISSING",
    "Duplicate",
    "Plain",
    "Position",
    "SourceFile",
    "Values",
    "decode",
    "load_source",
    "parse_source",
    "read_text",
    "source_of",
    "yaml_text",
]

Values: TypeAlias = "Mapping[KeyPath, object]"  # keyed by key path

MAX_BYTES = 4 * 1024**2

MISSING = object()

_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # four times as fast; breaks long texts elsewhere

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LINE_BREAK = re.compile("\r\n|\r|\n")
# PyYAML errors that are reported in our own words, in both languages.
_PYTHON_LIST = re.compile(r"\[[\d\s,]*\]\s*[*+]\s*[\d\[(]")  # a list of numbers; `[a-z]+` is a pattern instead
_PROBLEMS = (
    ("undefined alias", "config.undefined-alias"),
    ("duplicate anchor", "config.duplicate-anchor"),
    ("could not determine a constructor", "config.unknown-tag"),
    ("mapping values are not allowed", "config.unexpected-colon"),
    ("could not find expected ':'", "config.missing-colon"),
    ("exceeded maximum nesting depth", "config.too-deep"),  # libyaml of PyYAML 6.0.4, at more than 1,000 levels
)


class Position(Record):
    """Position of one key path in the text."""

    key: Location | None  # the key, or None for a list item and for the whole document
    value: Location  # the value here; for an alias, the alias itself (`*dp`)
    definition: Location  # the value's full text; differs from `value` for an alias only
    # The aliases that lead here from outside, outermost first: a value inside an aliased mapping is written once and
    # used at each of them.
    uses: tuple[Location, ...]
    plain: Plain | None  # the scalar's text, if it is one without quotes


class Duplicate(Record):
    """A key that appears twice in one mapping; the value of ``first`` is lost."""

    path: KeyPath
    first: Location
    second: Location


class SourceFile:
    """One config: its path, its text (without a byte order mark), its values and their positions."""

    is_code = False  # whether this is a script, Python code or a file of variables instead of a config

    def __init__(  # noqa: PLR0913 - one a field
        self,
        path: Path,
        text: str,
        data: dict[Any, Any],
        duplicates: tuple[Duplicate, ...],
        root: Node,
        *,
        others: tuple[SourceFile, ...] = (),
        model_config: dict[str, Any] | None = None,
        read_from: tuple[Path, ...] = (),
    ) -> None:
        self.path, self.text, self.data, self.duplicates, self._root = path, text, data, duplicates, root
        self.others, self.model_config, self.read_from = others, model_config, read_from

    def replace(
        self,
        *,
        data: dict[Any, Any] | None = None,
        others: tuple[SourceFile, ...] | None = None,
        model_config: dict[str, Any] | None = None,
        read_from: tuple[Path, ...] | None = None,
    ) -> SourceFile:
        """Return a copy with the given fields replaced."""
        source = object.__new__(type(self))
        vars(source).update({name: value for name, value in vars(self).items() if name != "key_names"})
        source.data = self.data if data is None else data
        source.others = self.others if others is None else others
        source.model_config = self.model_config if model_config is None else model_config
        source.read_from = self.read_from if read_from is None else read_from
        return source

    def get(self, path: KeyPath, default: object = None) -> object:
        """Return the value at a key path."""
        value: Any = self.data
        for item in path:
            if isinstance(value, dict):
                if item not in value:
                    return default
            elif not (isinstance(value, list) and isinstance(item, int) and 0 <= item < len(value)):
                return default
            value = value[item]
        return value

    def position(self, path: KeyPath) -> Position | None:
        """Return the position of a key path, or None if the text does not contain it."""
        entry = NodeEntry(None, self._root, None)
        uses: list[Location] = []
        for item in path:
            if entry.alias is not None:
                uses.append(entry.alias)
            found = entry.node.entry(item)
            if found is None:
                return None
            entry = found
        return Position(entry.key, entry.alias or entry.node.span, entry.node.span, tuple(uses), entry.node.plain)

    def nearest(self, path: KeyPath) -> Position:
        """Return the position of a key path, or of its nearest parent that is in the text."""
        for length in range(len(path), 0, -1):
            position = self.position(path[:length])
            if position is not None:
                return position
        return Position(None, self._root.span, self._root.span, (), None)

    def wrong(
        self, path: KeyPath, message: Message, hint: Message | None = None, *, at_key: bool = False
    ) -> ConfigError:
        """Return an error located at a key path's value or key (``at_key``), or at its nearest parent."""
        position = self.nearest(path)
        span = (position.key if at_key else None) or position.value
        return ConfigError(message, hint, path=self.path, line=span.line, column=span.column)

    def find_file(self, path: KeyPath) -> SourceFile:
        """Return the file that sets a key path: this one, or one that it is based on."""
        return next((one for one in (self, *self.others) if one.position(path) is not None), self)

    def positions(self) -> Iterator[tuple[KeyPath, Position]]:
        """Yield every key path that is written in the text, in text order; aliases and merged keys are not followed."""
        return iter(self._places)

    def top_keys(self) -> Iterator[tuple[str | int, Location | None]]:
        """Yield the top-level keys with their positions."""
        return ((key, entry.key) for key, entry in self._root.entries())

    def scalar_at(self, offset: int) -> tuple[KeyPath, Plain] | None:
        """Return the unquoted scalar value that starts at a text offset, with its key path; keys are ignored."""
        return self._root.scalar_at(offset)

    @cached_property
    def _places(self) -> list[tuple[KeyPath, Position]]:
        found: list[tuple[KeyPath, Position]] = []
        _collect_positions(self._root, (), found)
        return found

    @cached_property
    def key_names(self) -> frozenset[str]:
        """Return the names of all mapping keys at any depth."""
        names: set[str] = set()
        seen: set[int] = set()
        todo: list[Any] = [self.data]
        while todo:
            value = todo.pop()
            if isinstance(value, (dict, list)) and id(value) not in seen:
                seen.add(id(value))
                if isinstance(value, dict):
                    names.update(map(str, value))
                todo += value.values() if isinstance(value, dict) else value
        return frozenset(names)

    def line(self, number: int) -> str:
        """Return the text of a line, without its line break."""
        return self._lines[number - 1]

    @cached_property
    def _lines(self) -> list[str]:
        return _LINE_BREAK.split(self.text)


def load_source(path: Path) -> SourceFile:
    """Read a config file."""
    return parse_source(read_text(path), path)


def read_text(path: Path) -> str:
    """Return the text of a file. Raises ConfigError: it is absent, a folder, too large, not text or cannot be read."""
    if path.is_dir():
        raise ConfigError(msg("config.folder"), msg("config.folder.hint", path=path), path=path)
    try:
        return decode(read_bytes(path, MAX_BYTES), path)
    except FileNotFoundError:
        raise ConfigError(msg("config.not-found"), nearby(path), path=path) from None
    except OSError as error:
        raise ConfigError(msg("config.unreadable", reason=reason_of(error)), path=path) from error


_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def decode(content: bytes, path: Path) -> str:
    """Decode a file's bytes as UTF-8."""
    if len(content) > MAX_BYTES:
        raise ConfigError(msg("config.too-big", limit=MAX_BYTES // 1024**2), path=path)
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ConfigError(msg("config.utf16"), msg("config.not-utf8.hint"), path=path)
    if b"\0" in content:
        raise ConfigError(msg("config.binary"), msg("config.binary.hint"), path=path)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        if _CONTROL.search(content):  # never in text, in any encoding
            raise ConfigError(msg("config.binary"), msg("config.binary.hint"), path=path) from None
        lines = Document(content[: error.start].decode(), path)
        lines.fail(msg("config.not-utf8"), len(lines.text), msg("config.not-utf8.hint"))


def parse_source(text: str, path: Path) -> SourceFile:
    """Parse a config from its text; ``path`` is its name in errors and findings."""
    text = text.removeprefix("\ufeff")
    lines = Document(text, path)
    unprintable = _UNPRINTABLE.search(text)
    if unprintable:
        lines.fail(msg("config.unprintable", code=f"U+{ord(unprintable[0]):04X}"), unprintable.start())
    try:
        document = YamlDocument(text, path)
        top = document.top
        if not isinstance(top, yaml.MappingNode):
            if top is None:
                lines.fail(msg("config.empty"), None, msg("config.empty.hint"))
            lines.fail(msg("config.not-mapping"), top.start_mark.index, msg("config.not-mapping.hint"))
        try:
            data: dict[Any, Any] = document.values()
        except _NO_VALUE as error:
            _fail_value(error, document)
    except yaml.YAMLError as error:
        _fail_yaml(error, lines)
    root = document.node(top)
    return SourceFile(path, text, data, tuple(_duplicates(root, (), set())) if document.has_duplicates else (), root)


def yaml_text(data: dict[Any, Any]) -> str:
    """Return values as YAML text, in their order."""
    return yaml.dump(data, Dumper=_DUMPER, sort_keys=False, allow_unicode=True)


def source_of(data: dict[Any, Any], path: Path) -> SourceFile:
    """Return a config made of values alone, without text or positions; much cheaper than :func:`parse_source`.

    The values are copied; tuples become lists as in YAML.
    """
    nowhere = Location(0, 0, 1, 1, 1, 1)
    return SourceFile(path, "", _as_yaml(data), (), Node(nowhere))


def nest_values(values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Return nested sections made from values by key path; keys below a value that is not a section are dropped."""
    top: dict[str, Any] = {}
    for path, value in values.items():
        section = top
        for name in path[:-1]:
            inner = section.setdefault(name, {})
            section = inner if isinstance(inner, dict) else section
        section[path[-1]] = value
    return top


def _as_yaml(value: Any) -> Any:  # noqa: ANN401 - YAML values have any type
    if isinstance(value, dict):
        return {key: _as_yaml(item) for key, item in value.items()}
    return [_as_yaml(item) for item in value] if isinstance(value, (list, tuple)) else value


# Errors of int(), float() or date() that PyYAML passes on without a position: `2024-13-01`, `!!int x`.
_NO_VALUE = (ValueError, OverflowError, IndexError, KeyError, TypeError, AttributeError)


def _fail_value(error: Exception, document: YamlDocument) -> NoReturn:
    """Raise an error at the value that PyYAML cannot convert."""
    bad = next((node for node in _scalars(document.top, set()) if not _constructible(node)), None)
    if bad is not None:
        document.fail(msg("config.bad-value", value=str(bad.value)[:40]), bad.start_mark.index)
    document.fail(msg("config.syntax", problem=str(error)))


def _constructible(node: yaml.ScalarNode) -> bool:
    try:
        yaml.SafeLoader("").construct_object(node)
    except _NO_VALUE:
        return False
    return True


def _scalars(node: yaml.Node, seen: set[int]) -> Iterator[yaml.ScalarNode]:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.MappingNode):
        for pair in node.value:
            for part in pair:
                yield from _scalars(part, seen)
    else:
        for child in node.value:
            yield from _scalars(child, seen)


def _duplicates(node: Node, path: KeyPath, seen: set[int]) -> Iterator[Duplicate]:
    if id(node) in seen:
        return
    seen.add(id(node))
    for key, first, again in node.duplicates():
        yield Duplicate((*path, key), first, again)
    for key, entry in node.entries():
        yield from _duplicates(entry.node, (*path, key), seen)


def _collect_positions(node: Node, path: KeyPath, found: list[tuple[KeyPath, Position]]) -> None:
    for key, entry in node.entries():
        if entry.alias is None:
            here = (*path, key)
            found.append((here, Position(entry.key, entry.node.span, entry.node.span, (), entry.node.plain)))
            _collect_positions(entry.node, here, found)


def _fail_yaml(error: yaml.YAMLError, lines: Document) -> NoReturn:
    """Raise a ConfigError for PyYAML's error, in our own words where there are some."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    offset = min(mark.index, len(lines.text)) if mark else None
    problem = " ".join(str(part) for part in (getattr(error, "context", None), getattr(error, "problem", None)) if part)
    if offset is not None and ("\t" in lines.text[offset : offset + 1] or " tab " in problem):
        lines.fail(msg("config.tab"), offset, msg("config.tab.hint"))
    if offset is not None and _PYTHON_LIST.search(
        lines.text[lines.text.rfind("\n", 0, offset) + 1 :].partition("\n")[0]
    ):
        lines.fail(msg("config.python-list"), offset, msg("config.python-list.hint"))
    for words, text_id in _PROBLEMS:
        if words in problem:
            name = (
                lines.text[offset:].split(None, 1)[0][:60] if offset is not None and lines.text[offset:].strip() else ""
            )
            lines.fail(msg(text_id, name=name, limit=MAX_DEPTH), offset)
    lines.fail(msg("config.syntax", problem=problem or str(error)), offset, msg("config.syntax.hint"))


ANY = "*"  # matches every key or index in a path pattern


def is_same(one: object, other: object) -> bool:
    """Return whether two values are equal; unlike ``==``, distinguish ``true`` from ``1``."""
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def find_values(data: object, pattern: KeyPath, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every key path that matches a pattern, with its value."""
    value: Any = data
    for at, head in enumerate(pattern):
        if head == ANY:
            for item, inner in _children(value):
                yield from find_values(inner, pattern[at + 1 :], (*path, *pattern[:at], item))
            return
        if isinstance(value, dict):
            if head not in value:
                return
        elif not (isinstance(value, list) and isinstance(head, int) and 0 <= head < len(value)):
            return
        value = value[head]
    yield (*path, *pattern), value


def _children(data: object) -> Iterator[tuple[str | int, object]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield (key if isinstance(key, (str, int)) else str(key)), value
    elif isinstance(data, list):
        yield from enumerate(data)
