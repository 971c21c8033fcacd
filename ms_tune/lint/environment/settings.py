"""Environment settings as data: what is assigned where, and the view of it that checks are given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ms_tune.config.source import Duplicate, SourceFile
from ms_tune.config.yaml_nodes import Document, Entry, Node

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.config.source import Span


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
    key: Span
    span: Span
    block: tuple[int, ...] = ()
    extends: bool = False


@dataclass(frozen=True, slots=True)
class Environment:
    """The settings of one file, in order."""

    path: Path
    text: str = field(repr=False)
    assignments: tuple[Assignment, ...]

    def source(self) -> SourceFile:
        """The settings in the form that checks look at: a mapping of variables, each with its last value."""
        lines = Document(self.text, self.path)
        entries: dict[str | int, Entry] = {}
        data: dict[str, str] = {}
        for one in self.assignments:
            if one.value is None:
                entries.pop(one.name, None)
                data.pop(one.name, None)
            else:
                entries[one.name] = Entry(one.key, Node(one.span, {}, None, 1, 1, []), None)
                data[one.name] = one.value
        root = Node(lines.span(0, len(self.text)), entries, None, 1 + len(entries), 2, [])
        return SourceFile(self.path, self.text, data, tuple(self._replaced()), root)

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
