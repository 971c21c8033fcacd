"""Follows one simple command: what it declares, calls, sources or starts."""

from __future__ import annotations

from abc import ABC
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.source import SCRIPTS
from ms_tune.source.shell.braces import without_braces
from ms_tune.source.shell.builtins import (
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
from ms_tune.source.shell.given_text import TextInside, evaluated, given_to_shell, shell_word, starts_unseen, text_given
from ms_tune.source.shell.outcome import DONE, UNCLEAR, CommandOutcome, Flow, Started
from ms_tune.source.shell.parse import DECLARING, parse
from ms_tune.source.shell.plumbing import Plumbing
from ms_tune.source.shell.state import Array, ShellState, merged, unknown_piece
from ms_tune.source.shell.streams import Input, read_into, reads_nothing
from ms_tune.source.shell.syntax import Assign, Simple, Word, substitutes
from ms_tune.source.shell.values import Reason, ScriptPlace, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ms_tune.source.shell.given_text import InlineScript
    from ms_tune.source.shell.syntax import Command
    from ms_tune.source.shell.values import Argument, File

MAX_CALLS = 16  # functions and files inside of each other
_IN_FRONT = ("command", "builtin", "coproc")
_CONTROL = frozenset(("break", "continue", "return", "exit", "exec", "eval", "source", "."))


class _Locals(NamedTuple):
    """What a function has declared as its own."""

    values: dict[str, object]  # what was there before, by the variable
    perhaps: set[str]  # those that it has only declared perhaps
    conditions: int  # how many unknown conditions lay around the call


class Trap(NamedTuple):
    """What a script asks for at its end (``trap ... EXIT``), where, and whether it does so for sure."""

    word: Argument
    place: ScriptPlace
    conditional: bool


class CommandFollower(Plumbing, ABC):
    """Follows simple commands; what is made of several, :class:`~ms_tune.source.shell.evaluate.Follower` does."""

    def __init__(self, source: Callable[[str, File], File | None]) -> None:
        super().__init__()
        self.unknown: list[Unknown] = []
        self._source = source
        self._steps = 0
        self._calls = 0
        self._depth = 0
        self._unclear_rounds = False
        self._aliases: set[str] = set()
        self._at_exit: Trap | None = None
        self._locals: list[_Locals] = []
        self._returned: list[list[ShellState]] = []
        self._defined: dict[str, list[tuple[Command, File]]] = {}

    def _simple(self, command: Simple, state: ShellState, file: File) -> CommandOutcome:
        place = ScriptPlace(file, command.start, command.end)
        words: list[Argument | Assign] = []
        for word in command.words:
            if isinstance(word, Assign):
                values = without_braces(word.value) if isinstance(word.value, Word) else (word.value,)
                words += [replace(word, value=value) for value in values]
            else:
                words += self._expander.fields([word], state, file)
        if not words:
            for one in command.assigns:
                store(one, given_to(one, self._expander, state, file), self._expander, state, file)
            unclear = command.words or command.redirections or any(substitutes(one) for one in command.assigns)
            return UNCLEAR if unclear else DONE
        outer = {one.name: state.variables.get(one.name) for one in command.assigns}
        exported, splits_oddly = state.exported, state.splits_oddly
        for one in command.assigns:
            store(one, given_to(one, self._expander, state, file), self._expander, state, file)
            state.exported |= {one.name}
        with self._redirected(command.redirections, state, place):
            outcome = self._command(words, state, file, place)
        for name, value in outer.items():
            _put_back(state, name, value)
        if outer:
            state.exported = exported
        if "IFS" in outer:
            state.splits_oddly = splits_oddly
        return outcome

    def _command(
        self, words: list[Argument | Assign], state: ShellState, file: File, place: ScriptPlace
    ) -> CommandOutcome:
        arguments = [word for word in words if not isinstance(word, Assign)]
        name = arguments[0].text if arguments and not isinstance(words[0], Assign) else None
        while name in _IN_FRONT and len(arguments) > 1 and not (arguments[1].text or "-").startswith("-"):
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
                return CommandOutcome(Flow.NEXT, answer(name, arguments))
            return self._further_command(name, arguments, state, place)
        self._start(arguments, state, place)
        return UNCLEAR

    def _further_command(
        self, name: str, arguments: list[Argument], state: ShellState, place: ScriptPlace
    ) -> CommandOutcome:
        if name == "read" and self._input is not None and not any(word.open for word in arguments):
            whole = read_into([word.text for word in arguments[1:]], self._input, state, place)
            if whole is not None:
                return CommandOutcome(Flow.NEXT, whole)
            self._input.lost = True
        if name in ("alias", "trap"):
            self._set_aside(arguments, place)
        if change(name, arguments, state, place) or name in QUIET:
            self._printed_by(arguments, place)
        elif name == "xargs":
            self._xargs(arguments[1:], state, place)
        else:
            self._start(arguments, state, place)
        return UNCLEAR

    def _set_aside(self, arguments: list[Argument], place: ScriptPlace) -> None:
        """``alias`` and ``trap``: commands that are kept for later."""
        texts = [word.text for word in arguments[1:]]
        if arguments[0].text == "alias":
            self._aliases.update(text.partition("=")[0] for text in texts if text)
        elif len(texts) > 1 and {"EXIT", "0", None} & set(texts[1:]):
            self._at_exit = None if texts[0] == "-" else Trap(arguments[1], place, self._conditions + self._exits > 0)
        elif starts_unseen(arguments):
            self.unknown.append(Unknown(Reason.COMMAND, "trap", place))

    def _start(self, arguments: list[Argument], state: ShellState, place: ScriptPlace) -> None:
        """A program: what it is given is followed where it is a shell."""
        name = arguments[0].text if arguments else None
        given = self._file_of(name or "") if arguments and not arguments[0].open else None
        shell = given_to_shell(arguments, state, self._input.pieces if self._input is not None else None)
        environment = {}
        for one in state.exported:
            value = state.variables.get(one)
            if isinstance(value, tuple):
                environment[one] = value
        self.started.append(Started(tuple(arguments), environment, self._conditions + self._exits > 0, place))
        self._printed_by(arguments, place)
        self._writes(arguments, place)
        if self._input is not None and not reads_nothing(name or ""):
            self._input.lost = True
        if given is not None or (name or "").endswith(SCRIPTS):
            shell = given_to_shell([shell_word(place), *arguments], state, None)
        if shell is not None:
            self._follow(shell, name or "", place)
        elif name in self._aliases or starts_unseen(arguments):
            self.unknown.append(Unknown(Reason.COMMAND, name or "", place))

    def _in_quotes(self, state: ShellState, place: ScriptPlace, text: str) -> Argument | None:
        """A text as it is in double quotes; None where it does not end in them."""
        inside = TextInside(place, f'_ "{text}"')
        script = parse(inside.text)
        parts = script.body.commands if not script.problems else ()
        command = parts[0][0] if len(parts) == 1 else None
        if not isinstance(command, Simple):
            return None
        found = self._expander.fields([word for word in command.words[1:] if isinstance(word, Word)], state, inside)
        return found[0] if len(found) == 1 else None

    def _follow(self, given: InlineScript, name: str, place: ScriptPlace) -> None:
        """Follow a script in a shell of its own."""
        text, found = given.text, None
        if text is None and given.path is not None and self._calls < MAX_CALLS:
            written = self._file_of(given.path)
            if written is not None:
                text = text_given(written, given.state)
            else:
                found = self._source(given.path, place.file)
                text = found.text if found is not None else None
        if text is None or self._calls >= MAX_CALLS:
            reason = Reason.FILE if given.path is not None else Reason.COMMAND
            self.unknown.append(Unknown(reason, given.path or name, place))
            return
        script, exits = parse(text), self._exits
        if script.problems:
            self.unknown.append(Unknown(Reason.COMMAND, name, place))
            return
        with self._standing_at(place):
            self._called(script.body, given.state, found or TextInside(place, text), place)
        self._exits = exits

    def _eval(self, arguments: list[Argument], state: ShellState, place: ScriptPlace) -> CommandOutcome:
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
    def _standing_at(self, place: ScriptPlace) -> Iterator[None]:
        """What comes of a text that was put together stands where that was done."""
        started, unknown = len(self.started), len(self.unknown)
        yield
        self.started[started:] = [replace(one, place=place) for one in self.started[started:]]
        self.unknown[unknown:] = [replace(one, place=place) for one in self.unknown[unknown:]]

    def _declare(self, words: list[Argument | Assign], state: ShellState, file: File) -> None:
        own = self._locals[-1] if self._locals else None
        before = set(own.values) if own else set()
        declare(words, self._expander, state, file, own.values if own else None)
        if own and self._conditions > own.conditions:
            own.perhaps.update(set(own.values) - before)

    def _control(  # noqa: PLR0911 - a command a line
        self, name: str, arguments: list[Argument], state: ShellState, file: File, place: ScriptPlace
    ) -> CommandOutcome:
        if name in ("break", "continue"):
            self._unclear_rounds |= len(arguments) > 1  # of which loop is not followed
            return CommandOutcome(Flow.BREAK if name == "break" else Flow.CONTINUE)
        if name == "return":
            if self._returned:
                self._returned[-1].append(state.copy())
            status = arguments[1].text if len(arguments) == 2 else None  # noqa: PLR2004 - and what it returns
            success = None if status is None or not status.isdigit() else int(status) % 256 == 0
            return CommandOutcome(Flow.RETURN if self._returned else Flow.EXIT, success)
        if name == "exit":
            return CommandOutcome(Flow.EXIT)
        if name == "exec":
            if not arguments[1:]:  # only where it reads and writes from here on
                self._input = Input((), lost=True) if self._input is not None else None
                self._print(None, place)
                return UNCLEAR
            self._start(arguments[1:], state, place)
            return CommandOutcome(Flow.EXIT)
        if name == "eval":
            return self._eval(arguments[1:], state, place)
        return self._sourced(arguments, state, file, place)

    def _sourced(self, arguments: list[Argument], state: ShellState, file: File, place: ScriptPlace) -> CommandOutcome:
        path = arguments[1].text if len(arguments) > 1 else None
        around = self._calls >= MAX_CALLS and not self._conditions + self._exits
        unknown = Unknown(Reason.BOUND if around else Reason.FILE if path else Reason.COMMAND, path or "source", place)
        last = arguments[1].pieces[-1] if len(arguments) > 1 and arguments[1].pieces else None
        if last is not None and not last.unknown and loads_environment(path or last.text):
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

    def _called(self, body: Command, state: ShellState, file: File, place: ScriptPlace) -> CommandOutcome:
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
            return CommandOutcome(Flow.EXIT)
        state.take(merged(ways, place))
        return CommandOutcome(Flow.NEXT, outcome.success if len(ways) == 1 else None)

    def _function(self, name: str, arguments: list[Argument], state: ShellState, place: ScriptPlace) -> CommandOutcome:
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

    def _call(
        self, body: Command, arguments: list[Argument], state: ShellState, file: File, place: ScriptPlace
    ) -> CommandOutcome:
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


def _put_back(state: ShellState, name: str, value: object) -> None:
    """The value that a variable had before, or none."""
    if isinstance(value, tuple | Array):
        set_to(state, name, value)
    elif value is None:
        state.variables.pop(name, None)
    else:
        state.variables[name] = value  # type: ignore[assignment]  # what is left is Unset
