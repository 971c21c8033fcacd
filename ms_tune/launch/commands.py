"""Follows one simple command: what it declares, calls, sources or starts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.launch.builtins import (
    ANSWERING,
    QUIET,
    answer,
    change,
    declare,
    environment_loaded,
    given_to,
    loads_environment,
    set_to,
    store,
)
from ms_tune.launch.expand import Expander
from ms_tune.launch.given_text import TextInside, evaluated, given_text, given_to_read
from ms_tune.launch.outcome import DONE, UNCLEAR, Flow, Outcome, Started
from ms_tune.launch.parse import DECLARING, parse
from ms_tune.launch.state import Array, State, merged, unknown_piece
from ms_tune.launch.syntax import Assign, Simple, Word, substitutes
from ms_tune.launch.values import Place, Reason, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ms_tune.launch.given_text import Given
    from ms_tune.launch.syntax import Command
    from ms_tune.launch.values import Argument, File

MAX_CALLS = 16  # functions and files inside of each other
_CONTROL = frozenset(("break", "continue", "return", "exit", "exec", "eval", "source", "."))


def _behind_exec(arguments: list[Argument]) -> list[Argument]:
    """The command that takes the shell's place where ``exec`` stands in front of it."""
    return arguments[1:] if arguments and arguments[0].text == "exec" else arguments


class _Locals(NamedTuple):
    """What a function has declared as its own."""

    values: dict[str, object]  # what was there before, by the variable
    perhaps: set[str]  # those that it has only declared perhaps
    conditions: int  # how many unknown conditions lay around the call


class CommandFollower(ABC):
    """Follows simple commands; what is made of several, :class:`~ms_tune.launch.evaluate.Follower` does."""

    def __init__(self, source: Callable[[str, File], File | None]) -> None:
        self.started: list[Started] = []
        self.unknown: list[Unknown] = []
        self._source = source
        self._expander = Expander()
        self._steps = 0
        self._calls = 0
        self._conditions = 0
        self._exits = 0
        self._depth = 0
        self._locals: list[_Locals] = []
        self._returned: list[list[State]] = []
        self._defined: dict[str, list[tuple[Command, File]]] = {}

    @abstractmethod
    def run(self, command: Command, state: State, file: File) -> Outcome:
        """Follow one command; the state becomes what holds behind it."""

    def _simple(self, command: Simple, state: State, file: File) -> Outcome:
        place = Place(file, command.start, command.end)
        words: list[Argument | Assign] = []
        for word in command.words:
            words += [word] if isinstance(word, Assign) else self._expander.fields([word], state, file)
        if not words:
            for one in command.assigns:
                store(one, given_to(one, self._expander, state, file), self._expander, state, file)
            return UNCLEAR if any(substitutes(one) for one in command.assigns) or command.words else DONE
        outer = {one.name: state.variables.get(one.name) for one in command.assigns}
        exported = state.exported
        for one in command.assigns:
            store(one, given_to(one, self._expander, state, file), self._expander, state, file)
            state.exported |= {one.name}
        outcome = self._command(words, state, file, place)
        if command.document is not None:
            arguments = [word for word in words if not isinstance(word, Assign)]
            put_in = partial(self._in_quotes, state, place)
            self._follow(given_to_read(_behind_exec(arguments), state, command.document, put_in), place)
        for name, value in outer.items():
            _put_back(state, name, value)
        if outer:
            state.exported = exported
        return outcome

    def _command(self, words: list[Argument | Assign], state: State, file: File, place: Place) -> Outcome:
        arguments = [word for word in words if not isinstance(word, Assign)]
        name = arguments[0].text if arguments and not isinstance(words[0], Assign) else None
        while name in ("command", "builtin") and len(arguments) > 1 and not (arguments[1].text or "-").startswith("-"):
            arguments, words = arguments[1:], words[1:]
            name = arguments[0].text
        if name is not None and not arguments[0].open:
            if name in state.functions:
                return self._function(name, arguments, state, place)
            if name in _CONTROL:
                return self._control(name, arguments, state, file, place)
            if name in DECLARING:
                self._declare(words, state, file)
                return DONE
            if name in ANSWERING:
                return Outcome(Flow.NEXT, answer(name, arguments))
            if change(name, arguments, state, place) or name in QUIET:
                return UNCLEAR
        self._start(arguments, state, place)
        self._started_with(arguments, state, place)
        return UNCLEAR

    def _started_with(self, arguments: list[Argument], state: State, place: Place) -> None:
        """Follow the script that a shell, of this machine or of another, is given as a text."""
        self._follow(given_text(arguments, state), place)

    def _in_quotes(self, state: State, place: Place, text: str) -> Argument | None:
        """A text as it is in double quotes; None where it does not end in them."""
        inside = TextInside(place, f'_ "{text}"')
        script = parse(inside.text)
        parts = script.body.commands if not script.problems else ()
        command = parts[0][0] if len(parts) == 1 else None
        if not isinstance(command, Simple):
            return None
        found = self._expander.fields([word for word in command.words[1:] if isinstance(word, Word)], state, inside)
        return found[0] if len(found) == 1 else None

    def _follow(self, given: Given | None, place: Place) -> None:
        if given is None or self._calls >= MAX_CALLS:
            return
        if given.text is None:
            self.unknown.append(Unknown(Reason.COMMAND, "<<", place))
            return
        script, exits = parse(given.text), self._exits
        if not script.problems:
            with self._standing_at(place):
                self._called(script.body, given.state, TextInside(place, given.text), place)
        self._exits = exits

    def _eval(self, arguments: list[Argument], state: State, place: Place) -> Outcome:
        text = evaluated(arguments, state)
        script = parse(text) if text is not None else None
        if script is None or script.problems or self._calls >= MAX_CALLS:
            unknown = Unknown(Reason.COMMAND, "eval", place)
            self.unknown.append(unknown)
            state.forget(unknown)
            return UNCLEAR
        self._calls += 1
        with self._standing_at(place):
            outcome = self.run(script.body, state, TextInside(place, text or ""))
        self._calls -= 1
        return outcome

    @contextmanager
    def _standing_at(self, place: Place) -> Iterator[None]:
        """What comes of a text that was put together stands where that was done."""
        started, unknown = len(self.started), len(self.unknown)
        yield
        self.started[started:] = [replace(one, place=place) for one in self.started[started:]]
        self.unknown[unknown:] = [replace(one, place=place) for one in self.unknown[unknown:]]

    def _declare(self, words: list[Argument | Assign], state: State, file: File) -> None:
        own = self._locals[-1] if self._locals else None
        before = set(own.values) if own else set()
        declare(words, self._expander, state, file, own.values if own else None)
        if own and self._conditions > own.conditions:
            own.perhaps.update(set(own.values) - before)

    def _start(self, arguments: list[Argument], state: State, place: Place) -> None:
        environment = {}
        for name in state.exported:
            value = state.variables.get(name)
            if isinstance(value, tuple):
                environment[name] = value
        self.started.append(Started(tuple(arguments), environment, self._conditions + self._exits > 0, place))

    def _control(self, name: str, arguments: list[Argument], state: State, file: File, place: Place) -> Outcome:  # noqa: PLR0911 - a command a line
        if name in ("break", "continue"):
            return Outcome(Flow.STOP)
        if name == "return":
            if self._returned:
                self._returned[-1].append(state.copy())
            return Outcome(Flow.STOP if self._returned else Flow.EXIT)
        if name == "exit":
            return Outcome(Flow.EXIT)
        if name == "exec":
            behind = arguments[1:]
            if not behind:
                return UNCLEAR  # only where its output goes
            self._start(behind, state, place)
            self._started_with(behind, state, place)
            return Outcome(Flow.EXIT)
        if name == "eval":
            return self._eval(arguments[1:], state, place)
        return self._sourced(arguments, state, file, place)

    def _sourced(self, arguments: list[Argument], state: State, file: File, place: Place) -> Outcome:
        path = arguments[1].text if len(arguments) > 1 else None
        unknown = Unknown(Reason.FILE, path or "", place)
        if path and loads_environment(path):
            environment_loaded(state, unknown)
            return UNCLEAR
        found = self._source(path, file) if path and self._calls < MAX_CALLS else None
        if found is None:
            self.unknown.append(unknown)
            state.forget(unknown)
            return UNCLEAR
        positional = state.positional
        if arguments[2:]:
            state.positional = tuple(arguments[2:])
        outcome = self._called(parse(found.text).body, state, found, place)
        if arguments[2:]:
            state.positional = positional
        return outcome

    def _called(self, body: Command, state: State, file: File, place: Place) -> Outcome:
        """Follow a body that `return` leaves."""
        self._calls += 1
        self._returned.append([])
        conditions = self._conditions
        outcome = self.run(body, state, file)
        self._conditions = conditions
        self._calls -= 1
        ways = self._returned.pop()
        if outcome.flow is Flow.NEXT:
            ways.append(state.copy())
        if not ways:
            return Outcome(Flow.EXIT)
        state.take(merged(ways, place))
        return Outcome(Flow.NEXT, outcome.success if len(ways) == 1 and outcome.flow is Flow.NEXT else None)

    def _function(self, name: str, arguments: list[Argument], state: State, place: Place) -> Outcome:
        found = state.functions[name]
        if self._calls >= MAX_CALLS:
            state.forget(Unknown(Reason.BOUND, name, place))
            return UNCLEAR
        if found is None:
            self._conditions += 1
            for body, file in self._defined.get(name, ()):
                self._call(body, arguments, state.copy(), file, place)
            self._conditions -= 1
            state.forget(Unknown(Reason.CONDITION, name, place))
            return UNCLEAR
        return self._call(found[0], arguments, state, found[1], place)

    def _call(self, body: Command, arguments: list[Argument], state: State, file: File, place: Place) -> Outcome:
        positional, state.positional = state.positional, tuple(arguments[1:])
        self._locals.append(_Locals({}, set(), self._conditions))
        outcome = self._called(body, state, file, place)
        own = self._locals.pop()
        for one, value in own.values.items():
            _put_back(state, one, value)
        for one in own.perhaps:
            set_to(state, one, (unknown_piece(Reason.CONDITION, one, place),))
        state.positional = positional
        return outcome


def _put_back(state: State, name: str, value: object) -> None:
    """The value that a variable had before, or none."""
    if isinstance(value, tuple | Array):
        set_to(state, name, value)
    elif value is None:
        state.variables.pop(name, None)
    else:
        state.variables[name] = value  # type: ignore[assignment]  # what is left is Unset
