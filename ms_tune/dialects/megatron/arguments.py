"""The arguments of a MindSpeed-LLM program as its parser reads them: which are given, with which values, and the result.

Follows ``argparse`` (CPython 3.10 to 3.14) without abbreviations, as ``parse_args`` of
``megatron/training/arguments.py`` uses it (core_r0.8.0, core_v0.12.1): the last argument for a destination wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from ms_tune.facts.megatron import UNREAD, Definition, definitions, names, names_by_dest, programs, unregistered
from ms_tune.facts.models import UNKNOWN
from ms_tune.source.shell.values import FROM_OUTSIDE, Argument, Reason, Unknown

if TYPE_CHECKING:
    from ms_tune.dialects import CheckoutView
    from ms_tune.source.shell.read import Launch

_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")  # argparse treats these as values


@dataclass(frozen=True, slots=True)
class CliArgument:
    """One argument as given on the command line."""

    name: str  # `--num-layers`
    word: Argument  # the word of the name
    values: tuple[Argument, ...]  # the words up to the next argument; a value joined by `=` comes first
    definitions: tuple[Definition, ...]  # the release's definitions of it
    joined: bool = False  # whether its value is joined by `=`

    @property
    def nargs(self) -> int | None:
        """Return how many values it takes; None for any number, or if its definitions differ."""
        counts = {0 if one.action else 1 if one.nargs is None else None for one in self.definitions}
        return counts.pop() if len(counts) == 1 else None


@dataclass(frozen=True, slots=True)
class ProgramArguments:
    """The arguments of one program."""

    launch: Launch  # the command that starts it
    release: str  # the release of MindSpeed-LLM whose parser applies
    items: tuple[CliArgument, ...]  # the arguments, in order
    strays: tuple[Argument, ...]  # words before the first argument
    # Unknown words that may contain further arguments, each with whether it is the value of the previous argument.
    hidden: tuple[tuple[Argument, bool], ...] = ()

    @property
    def open(self) -> bool:
        """Return whether words whose value is unknown may contain further arguments."""
        return bool(self.hidden)

    def last(self, dest: str) -> CliArgument | None:
        """Return the argument that determines a destination; None if it is not given."""
        return self.last_of(*names_by_dest(self.release).get(dest, ()))

    def last_of(self, *names: str) -> CliArgument | None:
        """Return the last given argument that has one of these names."""
        return next((one for one in reversed(self.items) if one.name in names), None)

    def value(self, dest: str) -> object:
        """Return the final value; :data:`UNKNOWN` if it is unknown, of a wrong type, or has several defaults."""
        names = names_by_dest(self.release).get(dest, ())
        found = self.last(dest)
        if found is not None:
            return value_of(found)
        if self.open:
            return UNKNOWN
        defaults = [one.default for name in names for one in definitions(name, self.release) if one.dest == dest]
        first = defaults[0] if defaults else UNKNOWN
        return UNKNOWN if any(one != first for one in defaults) or first == UNREAD else first

    def integer(self, dest: str) -> int | None:
        """Return a final whole number; None if it is unknown or something else."""
        found = self.value(dest)
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    def is_off(self, dest: str) -> bool:
        """Return whether something is certainly off or without a value; this includes what the release does not define."""
        return dest not in names_by_dest(self.release) or self.value(dest) in (False, None)


def command_of(launch: Launch, release: str) -> ProgramArguments | None:
    """Return the arguments of a MindSpeed-LLM program; None for another program."""
    return command_in(launch, release) if launch.name in programs() else None


def command_in(launch: Launch, release: str) -> ProgramArguments:
    """Return any program's arguments, split as a release's parser would."""
    given: list[CliArgument] = []
    strays: list[Argument] = []
    hidden: list[tuple[Argument, bool]] = []
    for word in launch.arguments:
        text = word.text
        if (
            text is not None
            and text.startswith("-")
            and not _NEGATIVE.fullmatch(text)
            and len(text) > 1
            and " " not in text
        ):
            name, equals, _ = text.partition("=")
            value = (word.part(len(name) + 1, len(text)),) if equals else ()
            given.append(CliArgument(name, word.part(0, len(name)), value, definitions(name, release), bool(equals)))
            continue
        last = given[-1] if given else None
        expected = last is not None and (last.nargs is None or len(last.values) < last.nargs)
        if word.open and (last is None or not expected or last.nargs is None):
            hidden.append(
                (word, last is not None and bool(last.definitions) and last.nargs is None and not last.values)
            )
        if last is None:
            strays.append(word)
        else:
            given[-1] = CliArgument(last.name, last.word, (*last.values, word), last.definitions, last.joined)
    return ProgramArguments(launch, release, tuple(given), tuple(strays), tuple(hidden))


def without_unset(command: ProgramArguments) -> tuple[ProgramArguments | None, tuple[str, ...]]:
    """Return the command without unset variables, and the names of these variables (``@``: the script's own arguments).

    In bash an unset variable is not a word at all. None without such words, or if they may contain arguments.
    """
    names: dict[str, None] = {}
    instead: dict[int, tuple[Argument, ...]] = {}
    for word, is_value in command.hidden:
        for piece in word.pieces:
            unknown = piece.unknown
            if unknown is None or not (
                _is_variable(unknown) or (unknown.reason is Reason.ARGUMENT and unknown.name in "@*")
            ):
                return None, ()
            names["@" if unknown.name == "*" else unknown.name] = None
        instead[id(word)] = (Argument(word.pieces),) if is_value else ()
    if not names:
        return None, ()
    words = tuple(new for word in command.launch.arguments for new in instead.get(id(word), (word,)))
    return command_in(replace(command.launch, arguments=words), command.release), tuple(names)


def _is_variable(unknown: Unknown) -> bool:
    own = unknown.reason is Reason.ENVIRONMENT and unknown.name.isidentifier()
    return own and unknown.name not in FROM_OUTSIDE


def value_of(one: CliArgument) -> object:
    """Return an argument's value; :data:`UNKNOWN` if it is unknown or its definitions differ."""
    kinds = {(definition.action, definition.type, definition.nargs) for definition in one.definitions}
    if len(kinds) != 1:
        return UNKNOWN
    action, kind, nargs = kinds.pop()
    if action:
        return action == "store_true"
    texts = [value.text for value in one.values]
    if None in texts or not texts:
        return UNKNOWN
    values = [read(text or "", kind) for text in (texts if nargs else texts[:1])]
    if UNKNOWN in values:
        return UNKNOWN
    return values if nargs else values[0]


def read(text: str, kind: str) -> object:
    """Convert a value to its type; :data:`UNKNOWN` if the type refuses it."""
    try:
        if kind == "int":
            return int(text) if len(text) < 40 else UNKNOWN  # noqa: PLR2004 - longer numbers are not plausible
        if kind == "float":
            return float(text)
    except ValueError:
        return UNKNOWN
    return bool(text) if kind == "bool" else text if kind == "str" else UNKNOWN


class ParserFault(Enum):
    """Reasons for which the parser refuses an argument."""

    UNKNOWN = "unknown"
    UNREGISTERED = "unregistered"
    FRAMEWORK = "framework"
    MISSING = "missing"
    EXTRA = "extra"
    NUMBER = "number"
    CHOICE = "choice"


OF_VALUES = (ParserFault.NUMBER, ParserFault.CHOICE)
_OF_FEATURES = (ParserFault.UNREGISTERED, ParserFault.FRAMEWORK)


@dataclass(frozen=True, slots=True)
class RefusedArgument:
    """An argument that the parser refuses."""

    fault: ParserFault  # the reason
    name: str  # the argument; empty for a word before all arguments
    word: Argument  # the word that causes it
    # The accepted choices, number types, or the framework with which it is accepted.
    allowed: tuple[str, ...] = ()


def refused(command: ProgramArguments, checkout: CheckoutView | None = None) -> Iterator[RefusedArgument]:
    """Yield everything that the parser refuses, by argument; the parser itself names only the first, and unknown ones last."""
    for one in _refused_by_release(command):
        is_own = checkout is not None and (
            (one.fault is ParserFault.UNKNOWN and one.name in checkout.arguments)
            or (one.fault in OF_VALUES and checkout.takes_value(one.name, one.word.text or ""))
            or (one.fault in _OF_FEATURES and checkout.registers_anew(one.name, command.release))
        )
        if not is_own:
            yield one


def _refused_by_release(command: ProgramArguments) -> Iterator[RefusedArgument]:
    for word in command.strays:
        if not word.open:
            yield RefusedArgument(ParserFault.EXTRA, "", word)
    missing = unregistered(command.release) if command.launch.name in _PROGRAMS else {}
    for one in command.items:
        if one.name in missing and (not missing[one.name] or _is_without(command, missing[one.name])):
            fault = ParserFault.FRAMEWORK if missing[one.name] else ParserFault.UNREGISTERED
            yield RefusedArgument(fault, one.name, one.word, (missing[one.name],) if missing[one.name] else ())
            continue
        if not one.definitions and one.name not in names(command.release) and _OPTION.match(one.name):
            yield RefusedArgument(ParserFault.UNKNOWN, one.name, one.word)
        yield from _check_count(one)
        if not one.definitions or one.nargs == 0:
            continue
        for value in one.values[: one.nargs]:
            if value.text is not None:
                yield from _number(one, value, value.text)
                yield from _choice(one, value, value.text)


_OPTION = re.compile(
    r"-[^\s\d.]"
)  # ``-split`` is not ``--split``; ``-1e-5`` is a number that argparse treats as an option
# The program whose parser was queried, and one with the same parser (``initialize_megatron`` without own arguments).
_PROGRAMS = ("pretrain_gpt.py", "posttrain_gpt.py")


def _is_without(command: ProgramArguments, framework: str) -> bool:
    given = command.last("ai_framework")
    if given is None:
        return not command.open
    return bool(given.values) and given.values[0].text not in (None, framework)


def _check_count(one: CliArgument) -> Iterator[RefusedArgument]:
    takes = one.nargs
    if takes is None or any(value.open for value in one.values):
        return
    if takes and not one.values:
        yield RefusedArgument(ParserFault.MISSING, one.name, one.word)
    elif len(one.values) > takes and not _placeholder(one):
        yield RefusedArgument(ParserFault.EXTRA, one.name, one.values[takes])


def _number(one: CliArgument, value: Argument, text: str) -> Iterator[RefusedArgument]:
    kinds = {definition.type for definition in one.definitions}
    if kinds <= {"int", "float"} and all(read(text, kind) is UNKNOWN for kind in kinds):
        yield RefusedArgument(ParserFault.NUMBER, one.name, value, tuple(sorted(kinds)))


def _choice(one: CliArgument, value: Argument, text: str) -> Iterator[RefusedArgument]:
    if any(definition.choices is None for definition in one.definitions):
        return
    allowed = [choice for definition in one.definitions for choice in definition.choices or ()]
    shown = tuple(dict.fromkeys(map(str, allowed)))
    if text not in shown and not any(read(text, definition.type) in allowed for definition in one.definitions):
        yield RefusedArgument(ParserFault.CHOICE, one.name, value, shown)


def _placeholder(one: CliArgument) -> bool:
    """Return whether the value is a sentence to be replaced by a path: several words that come from one variable."""
    if len(one.values) < 2 or one.values[0].via == one.word.via:  # noqa: PLR2004 - a sentence has several words
        return False
    first, second = one.values[:2]
    kinds = {definition.type for definition in one.definitions}
    if kinds and kinds <= {"int", "float"} and any(read(first.text or "", kind) is not UNKNOWN for kind in kinds):
        return False  # "2 4" is two numbers, not a sentence
    same_line = first.place.file is second.place.file and first.place.span.line == second.place.span.line
    return first.via == second.via and same_line
