"""Environment settings of a file, and how they are read: .env files, exports of shell scripts, the variables of this process. Nothing is run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ms_tune.diagnostics import Fix, TextEdit
from ms_tune.dialects.check_context import CodeSource
from ms_tune.enums import ChangeKind
from ms_tune.errors import ConfigError
from ms_tune.job.script import ScriptJob
from ms_tune.lint.environment.rewrites import REWRITES, Body
from ms_tune.lint.environment.variables import FOREIGN, KNOWN
from ms_tune.lint.fix import title_of
from ms_tune.source import SCRIPTS
from ms_tune.source.edit import EditRefusedError, ValueChange, apply_edits
from ms_tune.source.shell.read import assignments, content
from ms_tune.source.yaml import Duplicate
from ms_tune.source.yaml_nodes import Document, Node, NodeEntry
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ms_tune.diagnostics import Location
    from ms_tune.dialects.check_context import FixRule, Violation

Source = TypeVar("Source", bound="EnvironmentSource")

# What a new value may hold beside what the old one held: nothing of it means anything to a shell, in quotes or not.
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:,/+-")


@dataclass(frozen=True, slots=True)
class Assignment:
    """One variable that is set.

    Args:
        name: The variable.
        value: Its value, or None if only a shell could tell.
        key: Where the name stands.
        span: Where the value stands, quotes included.
        block: The branches and bodies around it, outermost first; nothing at the top of the file.
        extends: Whether the value is made from the variable's own old value.
    """

    name: str
    value: str | None
    key: Location
    span: Location
    block: tuple[int, ...] = ()
    extends: bool = False


@dataclass(frozen=True, slots=True)
class Environment:
    """The settings of one file, in order.

    Args:
        path: The file.
        text: Its text.
        assignments: What it sets.
        reader: Reads the settings of another text of this file; None for what is no file and cannot be fixed.
    """

    path: Path
    text: str = field(repr=False)
    assignments: tuple[Assignment, ...]
    reader: Callable[[str, Path], Environment] | None = None

    def source(self) -> EnvironmentSource:
        """The settings in the form that checks look at: a mapping of variables, each with its last value."""
        return self.source_as(EnvironmentSource)

    def source_as(self, kind: type[Source]) -> Source:
        """The same, in front of fixes of another kind."""
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
        """Assignments that a later one undoes for sure: one in the same block or in one around it."""
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
    """Environment settings in front of checks and fixes. Fixes set a variable's last value, and nothing else."""

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

    def again(self, text: str) -> EnvironmentSource:
        """The settings of another text of the file."""
        if self.environment.reader is None:
            raise ConfigError(msg("edits.process"), path=self.path)
        return self.environment.reader(text, self.path).source()

    def body(self, name: str) -> tuple[int, int]:
        """Where the last value of a variable stands, without the quotes around it.

        Raises:
            EditRefusedError: There is none, or the text is not the value, to the letter.
        """
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
        """A new value for the variable: the one of the checklist, or the one that a rewrite makes of the old."""
        if rule.rewrite in REWRITES:
            start, end = self.body(str(violation.path[0]))
            value = REWRITES[rule.rewrite](Body(self.text[start:end], start), violation)
        elif rule.kind is ChangeKind.SET_VALUE and rule.path is None and isinstance(rule.value, str):
            value = rule.value
        else:
            raise EditRefusedError(msg("edits.not-here"))
        change = ValueChange(ChangeKind.SET_VALUE, violation.path, value, value)
        return Fix(rule.safe, title_of(change), (change,), (self._edit(str(violation.path[0]), value),))

    def proves(self, fixes: Sequence[Fix]) -> bool:
        """Whether the fixed text sets the same variables in the same order, all but the meant ones to the same values.

        A change of an argument of what the script starts was proved when it was made, by itself: what it goes through may
        be a variable.
        """
        if any(not isinstance(change, ValueChange) for fix in fixes for change in fix.changes):
            return len(fixes) == 1
        expected = [(one.name, one.value, one.block, one.extends) for one in self.environment.assignments]
        for change in (change for fix in fixes for change in fix.changes):
            last = max(index for index, one in enumerate(expected) if one[0] == change.path[0])
            if expected[last][1] not in (self.data[change.path[0]], change.value):
                return False  # another fix gives the variable another value
            expected[last] = (expected[last][0], str(change.value), *expected[last][2:])
        try:
            fixed = self.again(apply_edits(self.text, (edit for fix in fixes for edit in fix.edits)))
        except (ConfigError, ValueError):
            return False
        return [(one.name, one.value, one.block, one.extends) for one in fixed.environment.assignments] == expected

    def quoted(self) -> list[tuple[int, int]]:
        """Where values stand."""
        return [(one.span.start, one.span.end) for one in self.environment.assignments]

    def _edit(self, name: str, value: str) -> TextEdit:
        start, end = self.body(name)
        if not set(value) <= _PLAIN | set(self.text[start:end]):
            raise EditRefusedError(msg("edits.pieced"))
        return TextEdit(start, end, value)


_ENV_LINE = re.compile(
    r"^[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(?P<value>[^\r\n]*)", re.MULTILINE
)
_LINE_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")


def read_env_file(path: Path) -> Environment:
    """The settings of a ``.env`` file.

    Raises:
        ConfigError: The file cannot be read.
    """
    return parse_env(content(path), path)


def read_shell(path: Path) -> Environment:
    """The settings of a shell script: exports, plain assignments, and those in front of a command.

    Raises:
        ConfigError: The file cannot be read.
    """
    return parse_shell(content(path), path)


def from_process(variables: Mapping[str, str]) -> Environment:
    """The settings of a process, such as ``os.environ``; variables that say nothing about MindSpore are left alone."""
    text = "".join(f"{name}={variables[name]}\n" for name in sorted((KNOWN | FOREIGN.keys()) & set(variables)))
    return parse_env(text, Path("environment"), raw=True)


def parse_env(text: str, path: Path, *, raw: bool = False) -> Environment:
    """The settings of a text of lines ``NAME=value``; ``raw`` takes quotes and ``#`` as they stand."""
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
    """The settings of a shell script's text."""
    text = text.removeprefix("\ufeff")
    lines = Document(text, path)
    found = [
        Assignment(
            one.one.name,
            one.text,
            lines.span(one.one.place.start, one.one.place.start + len(one.one.name)),
            lines.span(one.one.value_start, one.one.place.end),
            one.block,
            one.extends,
        )
        for one in assignments(text)
    ]
    return Environment(path, text, tuple(found), parse_shell)


def _unquoted(words: str) -> str:
    """What a shell makes of quotes and backslashes."""
    parts = re.findall(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|\\(.)|([^'\"\\]+)|(.)", words, re.DOTALL)
    return "".join(
        single or re.sub(r"\\([\"\\$`])", r"\1", double) or escaped or plain
        for single, double, escaped, plain, _ in parts
    )
