"""What a part of a script may set, whichever way it goes: what a loop leaves unknown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.source.shell.arithmetic import assigned
from ms_tune.source.shell.builtins import READING
from ms_tune.source.shell.parse import DECLARING
from ms_tune.source.shell.state import unknown_words
from ms_tune.source.shell.syntax import (
    Arithmetic,
    Assign,
    Calculation,
    Case,
    ConditionCommand,
    FunctionDefinition,
    Loop,
    Parameter,
    QuotedText,
    Simple,
    Word,
    children,
)
from ms_tune.source.shell.values import Piece, Reason, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ms_tune.source.shell.state import ShellState
    from ms_tune.source.shell.syntax import Command, Part
    from ms_tune.source.shell.values import File, ScriptPlace


class Touched:
    """What a part of a script may set, whichever way it goes."""

    def __init__(self, functions: Mapping[str, tuple[Command, File] | None]) -> None:
        self.names: set[str] = set()
        self.arrays: set[str] = set()
        self.functions: set[str] = set()
        self.everything = False
        self.positional = False
        self.returns = False
        self._known = functions
        self._seen: set[str] = set()

    def add(self, command: Command) -> Touched:
        """Look through a command and what it calls."""
        for one in _inside(command):
            if isinstance(one, Loop):
                self.names |= {one.name} if one.name else set()
                self._words(one.words or ())
                for parts in one.steps:
                    self._calculated(parts)
            elif isinstance(one, FunctionDefinition):
                self.functions.add(one.name)
            elif isinstance(one, Calculation):
                self._calculated(one.parts)
            elif isinstance(one, Case):
                self._words([one.word, *(word for patterns, _, _ in one.arms for word in patterns)])
            elif isinstance(one, ConditionCommand):
                self._words(one.words)
            elif isinstance(one, Simple):
                self._simple(one)
        return self

    def forget(self, state: ShellState, place: ScriptPlace) -> None:
        """Know nothing of it any more in a state."""
        if self.everything:
            state.forget(Unknown(Reason.LOOP, "", place))
        for name in self.names:
            unknown = Unknown(Reason.LOOP, name, place)
            state.variables[name] = (Piece("", place, unknown=unknown, several=name in self.arrays),)
            if name == "IFS":
                state.splits_oddly = unknown
        for name in self.functions:
            state.functions[name] = None
        if self.positional:
            state.positional = unknown_words(Reason.LOOP, "@", place)

    def _simple(self, one: Simple) -> None:
        assigns = (*one.assigns, *(word for word in one.words if isinstance(word, Assign)))
        self.names |= {assign.name for assign in assigns}
        self.arrays |= {assign.name for assign in assigns if isinstance(assign.value, tuple) or assign.index}
        self._words(_words(one))
        literals = [word.literal if isinstance(word, Word) else None for word in one.words]
        while literals and literals[0] in ("command", "builtin"):
            literals.pop(0)
        if not literals:
            return
        first, behind = literals[0], literals[1:]
        if first in ("eval", "source", "."):
            self.everything = True
        elif first in ("shift", "set"):
            self.positional = True
        elif first == "return":
            self.returns = True
        elif first in DECLARING or first in READING:
            pieced = any(isinstance(word, Word) and word.literal is None for word in one.words[1:])
            self.everything |= pieced and first not in ("printf", "wait")
            named = {name for text in behind if text for name in re.findall(r"[A-Za-z_]\w*", text)}
            self.names |= named
            self.arrays |= named if first in ("read", "mapfile", "readarray", "unset") else set()
        elif first is not None and first not in self._seen:
            self._seen.add(first)
            found = self._known.get(first)
            if found is not None:
                self.add(found[0])
            elif first in self._known:
                self.everything = True

    def _words(self, words: Iterable[Word]) -> None:
        for word in words:
            self._parts(word.parts)

    def _parts(self, parts: Iterable[Part]) -> None:
        for part in parts:
            if isinstance(part, Parameter):
                if "=" in part.operator:
                    self.names.add(part.name)
                self._parts(part.operand)
            elif isinstance(part, Arithmetic):
                self._calculated(part.parts)

    def _calculated(self, parts: Iterable[Part]) -> None:
        self._parts(parts)
        text = "".join(part.text if isinstance(part, QuotedText) else " x " for part in parts)
        self.names |= assigned(text)


def _inside(command: Command) -> Iterator[Command]:
    """A command and all commands in it; not those of functions that it defines."""
    todo: list[Command] = [command]
    while todo:
        one = todo.pop()
        yield one
        todo += [] if isinstance(one, FunctionDefinition) else [inside for inside, _ in children(one)]


def _words(one: Simple) -> Iterator[Word]:
    for word in (*one.assigns, *one.words):
        if isinstance(word, Word):
            yield word
        elif isinstance(word.value, Word):
            yield word.value
        else:
            yield from word.value
