"""What following a command comes to: programs that are started, how it ended, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.source.shell.syntax import (
    AndOr,
    Calculation,
    CommandGroup,
    CommandPipeline,
    ConditionCommand,
    If,
    Loop,
    Redirected,
    Sequence,
    Simple,
)
from ms_tune.source.shell.values import ScriptPlace

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
    place: ScriptPlace  # where the command stands


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


class CommandOutcome(NamedTuple):
    """How a command ended: how things go on, and whether it succeeded (None if that cannot be told)."""

    flow: Flow = Flow.NEXT
    success: bool | None = None


DONE = CommandOutcome(Flow.NEXT, success=True)
UNCLEAR = CommandOutcome()


def place_of(command: Command, file: File) -> ScriptPlace:
    """Roughly where a command stands: its first simple command."""
    todo: list[Command] = [command]
    while todo:
        one = todo.pop(0)
        if isinstance(one, Simple | Calculation):
            return ScriptPlace(file, one.start, one.end)
        if isinstance(one, Sequence):
            todo += [inner for inner, _ in one.commands]
        elif isinstance(one, AndOr):
            todo.append(one.first)
        elif isinstance(one, CommandPipeline):
            todo += one.commands
        elif isinstance(one, CommandGroup | Loop | Redirected):
            todo.append(one.body)
        elif isinstance(one, If):
            todo += [part for branch in one.branches for part in branch]
        elif isinstance(one, ConditionCommand) and one.words:
            return ScriptPlace(file, one.words[0].start, one.words[-1].end)
    return ScriptPlace(file, 0, 0)
