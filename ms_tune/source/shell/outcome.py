"""What following a command comes to: programs that are started, how it ended, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.source.shell.syntax import (
    AndOr,
    Calculation,
    Condition,
    Group,
    If,
    Loop,
    Pipeline,
    Redirected,
    Sequence,
    Simple,
)
from ms_tune.source.shell.values import Place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.source.shell.syntax import Command
    from ms_tune.source.shell.values import Argument, File, Pieces


@dataclass(frozen=True, slots=True)
class Started:
    """A command that is no part of the shell: a program that the script starts."""

    words: tuple[Argument, ...]  # the command and its arguments
    environment: Mapping[str, Pieces]  # the variables that it sees of those that the script sets
    conditional: bool  # whether it depends on what is unknown that it is started at all, or how often
    place: Place  # where the command stands


class Flow(Enum):
    """How things go on behind a command."""

    NEXT = auto()
    BREAK = auto()  # behind the loop
    CONTINUE = auto()  # in the loop's next round
    RETURN = auto()  # behind the function
    EXIT = auto()  # nowhere: the script ends

    @property
    def leaves(self) -> bool:
        """Whether a loop or a function is left."""
        return self in (Flow.BREAK, Flow.CONTINUE, Flow.RETURN)


class Outcome(NamedTuple):
    """How a command ended: how things go on, and whether it succeeded (None if that cannot be told)."""

    flow: Flow = Flow.NEXT
    success: bool | None = None


DONE = Outcome(Flow.NEXT, success=True)
UNCLEAR = Outcome()


def place_of(command: Command, file: File) -> Place:
    """Roughly where a command stands: its first simple command."""
    todo: list[Command] = [command]
    while todo:
        one = todo.pop(0)
        if isinstance(one, Simple | Calculation):
            return Place(file, one.start, one.end)
        if isinstance(one, Sequence):
            todo += [inner for inner, _ in one.commands]
        elif isinstance(one, AndOr):
            todo.append(one.first)
        elif isinstance(one, Pipeline):
            todo += one.commands
        elif isinstance(one, Group | Loop | Redirected):
            todo.append(one.body)
        elif isinstance(one, If):
            todo += [part for branch in one.branches for part in branch]
        elif isinstance(one, Condition) and one.words:
            return Place(file, one.words[0].start, one.words[-1].end)
    return Place(file, 0, 0)
