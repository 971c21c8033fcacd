"""The parts of a shell script, as :mod:`ms_tune.source.shell.parse` reads them: offsets point into the script's text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class QuotedText:
    """Characters that mean themselves. ``quoted`` ones are neither split nor taken as a pattern."""

    text: str
    start: int
    end: int
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """``$name`` or ``${name...}``.

    Args:
        name: The variable, ``1`` or ``@``; empty for a form that is not read.
        start: Where it begins.
        end: Where it ends.
        quoted: Whether it stands in double quotes.
        operator: What is done with it, as it is written behind the name; ``length`` for ``${#name}``, ``indirect`` for ``${!name}``,
            ``unread`` for what is not read; empty for nothing.
        operand: What stands behind the operator.
        second: What stands behind the ``/`` or ``:`` in the operand.
        index: What stands in brackets: a number, ``@``, ``*``.
        index_parts: The same, as words to be calculated.
    """

    name: str
    start: int
    end: int
    quoted: bool
    operator: str = ""
    operand: tuple[Part, ...] = ()
    second: tuple[Part, ...] | None = None
    index: str | None = None
    index_parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``$((...))``: its words, still with what is to be put in."""

    parts: tuple[Part, ...]
    start: int
    end: int
    quoted: bool


@dataclass(frozen=True, slots=True)
class Substitution:
    """What only a shell could tell: ``$(...)``, backticks, ``<(...)``."""

    text: str
    start: int
    end: int
    quoted: bool


Part: TypeAlias = "QuotedText | Parameter | Arithmetic | Substitution"


@dataclass(frozen=True, slots=True)
class Word:
    """One word before anything is put in."""

    parts: tuple[Part, ...]
    start: int
    end: int

    @property
    def literal(self) -> str | None:
        """The word, if it is plain characters without quotes."""
        if all(isinstance(part, QuotedText) and not part.quoted for part in self.parts):
            return "".join(part.text for part in self.parts if isinstance(part, QuotedText))
        return None


@dataclass(frozen=True, slots=True)
class Assign:
    """``name=value``, ``name+=value``, ``name[index]=value`` or ``name=(values)``.

    Args:
        name: The variable.
        start: Where the name begins.
        value: The value; several for an array.
        value_start: Where the value begins, quotes included.
        end: Where it ends.
        append: Whether it is added to what is there (``+=``).
        index: The words in brackets behind the name.
        index_parts: The same, as words to be calculated.
    """

    name: str
    start: int
    value: Word | tuple[Word, ...]
    value_start: int
    end: int
    append: bool = False
    index: str | None = None
    index_parts: tuple[Part, ...] = ()


@dataclass(slots=True, eq=False)
class HereDocument:
    """What ``<<WORD`` gives a command to read; its text is known as soon as the line that it is named in has ended.

    Args:
        word: The word that it ends at.
        indented: Whether tabs in front of its lines do not count (``<<-``).
        literal: Whether it is taken as it stands, because part of the word is quoted; variables in it count otherwise.
        text: Its text, to the end of the script if its word never comes; None where the script ends before it begins.
    """

    word: str
    indented: bool
    literal: bool
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Redirection:
    """``2>file``: the number in front, the operator, and the word or document behind it."""

    number: str
    operator: str
    to: Word | HereDocument | None


@dataclass(frozen=True, slots=True)
class Simple:
    """A command: assignments before it, its words (assignments among them behind ``export`` and its like), where it reads and writes."""

    assigns: tuple[Assign, ...]
    words: tuple[Word | Assign, ...]
    start: int
    end: int
    redirections: tuple[Redirection, ...] = ()


@dataclass(frozen=True, slots=True)
class Redirected:
    """A command of several that reads or writes elsewhere: ``while ...; done < file``."""

    body: Command
    redirections: tuple[Redirection, ...]


@dataclass(frozen=True, slots=True)
class CommandPipeline:
    """``[!] one | two``."""

    commands: tuple[Command, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class AndOr:
    """``one && two || three``; ``rest`` has the operator before each further one."""

    first: Command
    rest: tuple[tuple[str, Command], ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """Commands one after another, each with whether it goes to the background."""

    commands: tuple[tuple[Command, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class If:
    """``if``: conditions with bodies, and what is done otherwise."""

    branches: tuple[tuple[Sequence, Sequence], ...]
    otherwise: Sequence | None


@dataclass(frozen=True, slots=True)
class Loop:
    """``for``, ``select``, ``while`` and ``until``.

    Args:
        name: The variable, if there is one.
        condition: What is asked before each round.
        body: What is done in each.
        kind: The word that it begins with; ``((`` for ``for ((;;))``.
        words: What the variable runs over; None for the positional parameters.
        steps: The three expressions of ``for ((;;))``.
    """

    name: str | None
    condition: Sequence
    body: Sequence
    kind: str = "while"
    words: tuple[Word, ...] | None = ()
    steps: tuple[tuple[Part, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """``case``: patterns with bodies, and what each ends with: ``;;``, ``;&`` (the next body too), ``;;&`` (the next patterns too)."""

    word: Word
    arms: tuple[tuple[tuple[Word, ...], Sequence, str], ...]


@dataclass(frozen=True, slots=True)
class FunctionDefinition:
    """A function, where it is defined."""

    name: str
    body: Command


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """``{ ...; }``, or in a shell of its own ``( ... )``."""

    body: Sequence
    subshell: bool


@dataclass(frozen=True, slots=True)
class Calculation:
    """``(( ... ))``."""

    parts: tuple[Part, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ConditionCommand:
    """``[[ ... ]]``: its words, ``&&``, ``||``, ``(`` and ``)`` among them."""

    words: tuple[Word, ...]


Command: TypeAlias = "Simple | CommandPipeline | AndOr | Sequence | If | Loop | Case | FunctionDefinition | CommandGroup | Calculation | ConditionCommand | Redirected"


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    """What could not be read, and where; reading goes on in the next line."""

    reason: str
    offset: int


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text and its commands."""

    text: str = field(repr=False)
    body: Sequence
    problems: tuple[SyntaxProblem, ...] = ()


def children(command: Command) -> Iterator[tuple[Command, bool]]:
    """The commands inside of one, each with whether it is a block of its own."""
    if isinstance(command, CommandPipeline):
        yield from ((one, False) for one in command.commands)
    elif isinstance(command, AndOr):
        yield from ((one, False) for one in (command.first, *(one for _, one in command.rest)))
    elif isinstance(command, Sequence):
        yield from ((one, False) for one, _ in command.commands)
    elif isinstance(command, If):
        for condition, body in command.branches:
            yield condition, True
            yield body, True
        if command.otherwise:
            yield command.otherwise, True
    elif isinstance(command, Loop):
        yield command.condition, True
        yield command.body, True
    elif isinstance(command, Case):
        yield from ((body, True) for _, body, _ in command.arms)
    elif isinstance(command, FunctionDefinition | CommandGroup | Redirected):
        yield command.body, isinstance(command, CommandGroup)


def substitutes(one: Assign) -> bool:
    """Whether what is assigned is what a command prints."""
    words = (one.value,) if isinstance(one.value, Word) else one.value
    return any(isinstance(part, Substitution) for word in words for part in word.parts)
