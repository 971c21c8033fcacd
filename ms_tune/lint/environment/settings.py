"""Read environment settings from .env files, exports of shell scripts, and this process's variables; nothing is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from ms_tune.diagnostics import Fix, KeyPath, Location, TextEdit
from ms_tune.dialects.check_context import CodeSource, FixRule, Violation
from ms_tune.enums import ChangeKind
from ms_tune.errors import ConfigError
from ms_tune.facts.launchers import variables
from ms_tune.facts.models import UNKNOWN
from ms_tune.facts.query import load
from ms_tune.job.script import ScriptJob
from ms_tune.lint.fix import title_of
from ms_tune.source import SCRIPTS
from ms_tune.source.edit import EditRefusedError, ValueChange, apply_edits
from ms_tune.source.shell.read import assignments
from ms_tune.source.yaml import Duplicate, SourceFile
from ms_tune.source.yaml_nodes import Document, Node, NodeEntry
from ms_tune.text import msg

Source = TypeVar("Source", bound="EnvironmentSource")

# The characters that a new value may add to those of the old: none has a meaning in a shell, quoted or not.
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:,/+-")
# Those that show that a file is for MindSpore; and those of torch_npu, which MindSpore 2.9 does not use, with MindSpore's
# counterpart, if any.
MS_NAMES = frozenset(name for name, one in variables().items() if one.mindspore)
FOREIGN = {name: one.instead for name, one in variables().items() if one.instead is not None}

_ALLOCATOR = "MS_ALLOC_CONF"
# By variable, the keys of its value: which are switches, their further values, and the releases that know a key if 2.9 does
# not. Switches are read with ``IsEnableRuntimeConfig`` and ``IsDisableRuntimeConfig`` (``runtime_env.h``): True, true, False or false.
KEYS: Mapping[str, Mapping[str, Mapping[str, Any]]] = load("variables")["keys"]


@dataclass(frozen=True, slots=True)
class Assignment:
    """One assignment of a variable."""

    name: str  # the variable
    value: str | None  # its value, or None if only the shell can compute it
    key: Location  # the location of the name
    span: Location  # the location of the value, including quotes
    # The branches and bodies around it, outermost first; empty at the top level of the file.
    block: tuple[int, ...] = ()
    extends: bool = False  # whether the value includes the variable's old value


@dataclass(frozen=True, slots=True)
class Environment:
    """The settings of one file, in order."""

    path: Path  # the file
    text: str = field(repr=False)  # its text
    assignments: tuple[Assignment, ...]  # the assignments in it
    # Reads the settings from another text of this file; None without a file that could be fixed.
    reader: Callable[[str, Path], Environment] | None = None

    def source(self) -> EnvironmentSource:
        """Return the settings in the form for checks: a mapping of variables to their last values."""
        return self.source_as(EnvironmentSource)

    def source_as(self, kind: type[Source]) -> Source:
        """Return the same settings as a subclass, which defines other fixes."""
        lines = Document(self.text, self.path)
        entries: dict[str | int, NodeEntry] = {}
        data: dict[str, str] = {}
        for one in self.assignments:
            if one.value is None:
                entries.pop(one.name, None)
                data.pop(one.name, None)
            else:
                entries[one.name] = NodeEntry(one.key, Node(one.span), None)
                data[one.name] = one.value
        root = Node(lines.span(0, len(self.text)), entries)
        return kind(self.path, self.text, data, tuple(self._replaced()), root, self)

    def _replaced(self) -> list[Duplicate]:
        """Return the assignments that a later one in the same or an enclosing block surely overwrites."""
        found = []
        last: dict[str, Assignment] = {}
        for one in self.assignments:
            before = last.get(one.name)
            if (
                before is not None
                and not one.extends
                and before.value not in (None, one.value)
                and before.block[: len(one.block)] == one.block
            ):
                found.append(Duplicate((one.name,), before.key, one.key))
            last[one.name] = one
        return found


class EnvironmentSource(CodeSource):
    """Environment settings with checks and fixes. Fixes only change a variable's last value."""

    def __init__(  # noqa: PLR0913, PLR0917 - one a field
        self,
        path: Path,
        text: str,
        data: dict[Any, Any],
        duplicates: tuple[Duplicate, ...],
        root: Node,
        environment: Environment,
    ) -> None:
        super().__init__(path, text, data, duplicates, root)
        self.environment = environment
        self.script = ScriptJob(path, text) if path.suffix in SCRIPTS else None
        self.lines = Document(text, path)

    def with_text(self, text: str) -> EnvironmentSource:
        """Return the settings of another text of the file."""
        if self.environment.reader is None:
            raise ConfigError(msg("edits.process"), path=self.path)
        return self.environment.reader(text, self.path).source()

    def body(self, name: str) -> tuple[int, int]:
        """Return the range of the last value of a variable, without the quotes around it."""
        value = self.data.get(name)
        position = self.position((name,))
        if self.environment.reader is None:
            raise EditRefusedError(msg("edits.process"))
        if position is None or not isinstance(value, str):
            raise EditRefusedError(msg("edits.no-such-place"))
        start, end = position.value.start, position.value.end
        words = self.text[start:end]
        if len(words) > 1 and words[0] in "'\"" and words[-1] == words[0]:
            start, end = start + 1, end - 1
        if self.text[start:end] != value:
            raise EditRefusedError(msg("edits.pieced"))
        return start, end

    def fix(self, rule: FixRule, violation: Violation) -> Fix:
        """Return a fix that sets the checklist's value, or a rewrite of the old value."""
        if rule.rewrite in _REWRITES:
            start, end = self.body(str(violation.path[0]))
            value = _rewrite(rule.rewrite, self.text[start:end], start, violation)
        elif rule.kind is ChangeKind.SET_VALUE and rule.path is None and isinstance(rule.value, str):
            value = rule.value
        else:
            raise EditRefusedError(msg("edits.not-here"))
        change = ValueChange(ChangeKind.SET_VALUE, violation.path, value, value)
        return Fix(rule.safe, title_of(change), (change,), (self._edit(str(violation.path[0]), value),))

    def proves(self, fixes: Sequence[Fix]) -> bool:
        """Return whether the fixed text sets the same variables in the same order, and only changes the intended values.

        A change of an argument in a script was verified when it was made, on its own: the argument may come from a variable.
        """
        if any(not isinstance(change, ValueChange) for fix in fixes for change in fix.changes):
            return len(fixes) == 1
        expected = [(one.name, one.value, one.block, one.extends) for one in self.environment.assignments]
        for change in (change for fix in fixes for change in fix.changes):
            last = max(index for index, one in enumerate(expected) if one[0] == change.path[0])
            if expected[last][1] not in (self.data[change.path[0]], change.value):
                return False  # another fix sets another value for the variable
            expected[last] = (expected[last][0], str(change.value), *expected[last][2:])
        try:
            fixed = self.with_text(apply_edits(self.text, (edit for fix in fixes for edit in fix.edits)))
        except (ConfigError, ValueError):
            return False
        return [(one.name, one.value, one.block, one.extends) for one in fixed.environment.assignments] == expected

    def quoted(self) -> list[tuple[int, int]]:
        """Return the ranges of all values."""
        return [(one.span.start, one.span.end) for one in self.environment.assignments]

    def look_up(self, name: str) -> tuple[object, KeyPath | None]:
        """Return the value of the item ``allocator.x`` of ``MS_ALLOC_CONF``, and the path of that variable."""
        found = self._find_item(name)
        return (UNKNOWN, None) if found is None else (found.value, (_ALLOCATOR,))

    def find_span(self, name: str) -> Location | None:
        """Return the location of the item ``allocator.x``; None for other names."""
        found = self._find_item(name)
        return None if found is None else span_of(self, _ALLOCATOR, found)

    def _find_item(self, name: str) -> Item | None:
        room, _, key = name.partition(".")
        every = items_of(self, _ALLOCATOR) if room == "allocator" else []
        return next((one for one in reversed(every) if one.key == key), None)  # the last one wins

    def _edit(self, name: str, value: str) -> TextEdit:
        start, end = self.body(name)
        if not set(value) <= _PLAIN | set(self.text[start:end]):
            raise EditRefusedError(msg("edits.pieced"))
        return TextEdit(start, end, value)


_YES = frozenset(("1", "true", "yes", "on", "y", "t", "enable", "enabled"))
_NO = frozenset(("0", "false", "no", "off", "n", "f", "disable", "disabled"))
_SIZE = re.compile(r"(\d{1,6})\s*(?:m|mb|mib)?", re.IGNORECASE)
# MindSpore's log levels by their names (mindspore/log.py, 2.9), and by those of Python's logging.
_LEVELS = {"debug": "0", "info": "1", "warning": "2", "warn": "2", "error": "3", "critical": "4", "fatal": "4"}
_DETERMINISTIC = ("true", "false", "strict")


def _rewrite(name: str, value: str, start: int, violation: Violation) -> str:
    """Apply a rewrite of ``checklists/code/environment.yaml`` to a variable's value, which starts at ``start`` in the file."""
    if name in _VALUE_REWRITES:
        return _VALUE_REWRITES[name](value)
    found, place = items(value), violation.span.start - start if violation.span is not None else None
    item = next((one for one in found if one.start == place), None) or _refuse_unclear()
    if name == "last-only":  # without the earlier item that this one, with the same key, overrides
        index = found.index(item)
        lost = next((number for number in range(index - 1, -1, -1) if found[number].key == item.key), None)
        return _refuse_unclear() if lost is None else value[: found[lost].start] + value[found[lost + 1].start :]
    if name == "similar-key" and any(other.key == violation.params["similar"] for other in found):
        _refuse_unclear()
    return value[: item.start] + _ITEM_REWRITES[name](item, violation) + value[item.start + len(item.text) :]


def _with_colon(item: Item, _: Violation) -> str:
    key, equals, setting = item.text.partition("=")
    if "=" in setting or not (equals or "switch" in KEYS[_ALLOCATOR].get(key, {})):
        _refuse_unclear()
    return f"{key.strip()}:{setting.strip()}" if equals else f"{key}:True"


def _with_similar_key(item: Item, violation: Violation) -> str:
    return f"{violation.params['similar']}{item.text.removeprefix(item.key or _refuse_unclear())}"


def _even_size(item: Item, _: Violation) -> str:
    size = _SIZE.fullmatch(item.value) or _refuse_unclear()
    return f"{item.key}:{max(2, (int(size[1]) + 1) // 2 * 2)}MB"


def _with_tracker(value: str) -> str:
    """Turn on the memory tracker: change its item, or append one."""
    found = items(value)
    given = [item for item in found if item.key == "memory_tracker"]
    if len(given) > 1:
        _refuse_unclear()
    if given:
        end = given[0].start + len(given[0].text)
        return f"{value[: given[0].start]}memory_tracker:True{value[end:]}"
    end = found[-1].start + len(found[-1].text) if found else 0
    return f"{value[:end]},memory_tracker:True{value[end:]}" if found else "memory_tracker:True"


def _small_letters(value: str) -> str:
    word = value.strip().lower()
    return word if word in _DETERMINISTIC else _refuse_unclear()


def _is_yes(words: str) -> bool:
    word = words.strip().lower()
    return word in _YES or (word not in _NO and _refuse_unclear())


def _refuse_unclear() -> NoReturn:
    raise EditRefusedError(msg("edits.unclear"))


_ITEM_REWRITES: Mapping[str, Callable[[Item, Violation], str]] = {
    "colon": _with_colon,
    "similar-key": _with_similar_key,
    "boolean": lambda item, _: f"{item.key}:{_is_yes(item.value)}",
    "aligned": _even_size,
    "turn-off": lambda item, _: f"{item.key}:False",
    "turn-on": lambda item, _: f"{item.key}:True",
}
_VALUE_REWRITES: Mapping[str, Callable[[str], str]] = {
    "tracker-on": _with_tracker,
    "small-letters": _small_letters,
    "level": lambda value: _LEVELS.get(value.strip().lower()) or _refuse_unclear(),
    "one": lambda value: "1" if _is_yes(value) else _refuse_unclear(),
    "zero": lambda value: _refuse_unclear() if _is_yes(value) else "0",
}
_REWRITES = frozenset(("last-only", *_ITEM_REWRITES, *_VALUE_REWRITES))


_ENV_LINE = re.compile(
    r"^[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(?P<value>[^\r\n]*)", re.MULTILINE
)
_LINE_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")


def from_process(variables: Mapping[str, str]) -> Environment:
    """Return the settings of a process, such as ``os.environ``, limited to variables relevant to MindSpore."""
    text = "".join(f"{name}={variables[name]}\n" for name in sorted((MS_NAMES | FOREIGN.keys()) & set(variables)))
    return parse_env(text, Path("environment"), raw=True)


def parse_env(text: str, path: Path, *, raw: bool = False) -> Environment:
    """Return the settings of a text of lines ``NAME=value``; with ``raw``, quotes and ``#`` are part of the value."""
    text = text.removeprefix("\ufeff")
    lines = Document(text, path)
    found = []
    for match in _ENV_LINE.finditer(text):
        start, end = match.span("value")
        words = text[start:end].rstrip()
        if not raw and not words.startswith(("'", '"')):
            words = _LINE_COMMENT.sub("", words).rstrip()
        elif not raw:
            words = words[: words.find(words[0], 1) + 1] or words
        value = words if raw else _unquoted(words)
        key = lines.span(*match.span("name"))
        found.append(Assignment(match["name"], value, key, lines.span(start, start + len(words))))
    return Environment(path, text, tuple(found), None if raw else parse_env)


def parse_shell(text: str, path: Path) -> Environment:
    """Return the settings of a shell script's text."""
    text = text.removeprefix("\ufeff")
    lines = Document(text, path)
    found = [
        Assignment(
            one.assignment.name,
            one.text,
            lines.span(one.assignment.place.start, one.assignment.place.start + len(one.assignment.name)),
            lines.span(one.assignment.value_start, one.assignment.place.end),
            one.block,
            one.extends,
        )
        for one in assignments(text)
    ]
    return Environment(path, text, tuple(found), parse_shell)


def _unquoted(words: str) -> str:
    """Resolve quotes and backslashes as a shell does."""
    parts = re.findall(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|\\(.)|([^'\"\\]+)|(.)", words, re.DOTALL)
    return "".join(
        single or re.sub(r"\\([\"\\$`])", r"\1", double) or escaped or plain
        for single, double, escaped, plain, _ in parts
    )


class Item(NamedTuple):
    """One item of a value such as ``enable_vmm:True,memory_tracker:False``."""

    text: str  # the item without surrounding spaces
    start: int  # its offset in the value
    key: str | None  # the text before the first colon; None without a colon (the item is dropped)
    value: str  # the text after the first colon


def items(value: str) -> list[Item]:
    """Split a value as MindSpore does: ``;`` equals ``,``, and the first ``:`` separates key and value."""
    found = []
    at = 0
    while len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value, at = value[1:-1], at + 1
    for part in value.replace(";", ",").split(","):
        words = part.strip()
        if words:
            key, colon, rest = words.partition(":")
            start = at + len(part) - len(part.lstrip())
            found.append(Item(words, start, key.strip() if colon else None, rest.strip()))
        at += len(part) + 1
    return found


def items_of(source: SourceFile, name: str) -> list[Item]:
    """Return the items of a variable's last value."""
    value = source.get((name,))
    return items(value) if isinstance(value, str) else []


def span_of(source: SourceFile, name: str, item: Item) -> Location | None:
    """Return the location of an item; the whole value if its quotes make the item's location unclear."""
    position = source.position((name,))
    if position is None:
        return None
    text, span = source.text, position.value
    start = text.find(item.text, span.start, span.end)
    if start < 0 or text.count(item.text, span.start, span.end) > 1:
        start = span.start + item.start + (text[span.start : span.start + 1] in ("'", '"'))
        if text[start : start + len(item.text)] != item.text:
            return span
    return Document(text, source.path).span(start, start + len(item.text))
