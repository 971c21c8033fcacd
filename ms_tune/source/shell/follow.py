"""Follows a script from its first command to its last, and collects what it starts. Nothing is run.

Where a condition is unknown every branch is followed, and what the branches set differently is unknown behind them. A loop over
known words is followed round by round; of any other what a round changes is unknown, in the loop and behind it. So a value that is
told is the one that bash has, whichever way the script takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ms_tune.source.shell.commands import DONE, UNCLEAR, CommandFollower, Flow, Outcome, Streams
from ms_tune.source.shell.conditions import Tests, combine_answers, matches_pattern, read_pattern
from ms_tune.source.shell.syntax import Command, CommandKind, Word
from ms_tune.source.shell.values import (
    Reason,
    ScriptPlace,
    ShellState,
    Unknown,
    is_settled,
    merge_states,
    text_of,
    unknown_piece,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ms_tune.source.shell.values import File

MAX_STEPS = 20_000  # commands that are followed
MAX_DEPTH = 80  # commands inside of each other
MAX_ROUNDS = 64  # of one loop
MAX_ALL_ROUNDS = 1_000  # of all loops
_MAX_CHANGES = 8  # rounds after which a loop may have changed everything
_FAILING = (CommandKind.SIMPLE, CommandKind.CONDITION, CommandKind.CALCULATION, CommandKind.GROUP, CommandKind.SUBSHELL)


class Follower(CommandFollower):
    """Follows the commands of a script and of the files that it sources.

    Args:
        source: Reads a file that a script names; None if it cannot be read.
    """

    def __init__(self, source: Callable[[str], File | None]) -> None:
        super().__init__(source)
        self._steps = self._depth = self._rounds = 0
        self._tested = 0  # commands around what is followed that may fail
        self._ways = {
            CommandKind.SIMPLE: self.simple,
            CommandKind.LIST: self._list,
            CommandKind.AND_OR: self._and_or,
            CommandKind.PIPELINE: self._pipeline,
            CommandKind.IF: self._if,
            CommandKind.FOR: self._for,
            CommandKind.COUNT: self._loop,
            CommandKind.WHILE: self._loop,
            CommandKind.CASE: self._case,
            CommandKind.FUNCTION: self._define,
            CommandKind.GROUP: self._group,
            CommandKind.SUBSHELL: self._group,
            CommandKind.CALCULATION: self._calculation,
            CommandKind.CONDITION: self._condition,
        }

    def follow(self, script: Command, file: File) -> None:
        """Follow a script from its beginning."""
        self.run(script, ShellState(), file)
        if self.expander.exhausted or self._steps > MAX_STEPS:
            self.unknown.append(Unknown(Reason.BOUND, "", ScriptPlace(file, 0, 0)))

    def run(self, command: Command, state: ShellState, file: File) -> Outcome:
        """Follow one command; the state becomes what holds behind it."""
        self._steps += 1
        if self._steps > MAX_STEPS or self._depth >= MAX_DEPTH:
            unknown = Unknown(Reason.BOUND, "", ScriptPlace(file, 0, 0))
            self.unknown += [unknown] if self._steps <= MAX_STEPS else []  # the script's end is told at its end
            state.forget(unknown)
            return UNCLEAR if self._steps <= MAX_STEPS else Outcome(Flow.EXIT)
        self._depth += 1
        if command.kind is CommandKind.SIMPLE or not command.redirections:
            outcome = self._ways[command.kind](command, state, file)
        else:
            with self.redirect(command.redirections, state, _place_of(command, file)):
                outcome = self._ways[command.kind](command, state, file)
        self._depth -= 1
        return outcome

    # one after another, and in shells of their own

    def _list(self, command: Command, state: ShellState, file: File) -> Outcome:
        outcome = DONE
        for one, mark in zip(command.inner, command.marks, strict=True):
            if mark == "&":
                self.run_in_subshell(one, state, file)
                outcome = DONE
                continue
            outcome = self.run(one, state, file)
            fails = outcome.success is False and one.kind in _FAILING
            if fails and state.stops_at_failure and not self._tested:
                return Outcome(Flow.EXIT)
            if outcome.flow is not Flow.NEXT:
                return outcome
        return outcome

    def run_in_subshell(self, command: Command, state: ShellState, file: File) -> Outcome:
        """Follow one in a shell of its own: what is set there is lost."""
        exits, loops, self.left_loops = self.exits, self.left_loops, []
        outcome = self.run(command, state.copy(), file)
        self.exits, self.left_loops = exits, loops
        return Outcome(Flow.NEXT, outcome.success if outcome.flow is Flow.NEXT else None)

    def _group(self, command: Command, state: ShellState, file: File) -> Outcome:
        if command.kind is CommandKind.SUBSHELL:
            return self.run_in_subshell(command.inner[0], state, file)
        return self.run(command.inner[0], state, file)

    def _pipeline(self, command: Command, state: ShellState, file: File) -> Outcome:
        if len(command.inner) == 1:  # a negated one
            outcome = self._run_tested(command.inner[0], state, file)
        else:
            streams = self.streams
            for number, one in enumerate(command.inner):
                self.streams = streams._replace(printed=None) if number == 0 else Streams(piped=True)
                outcome = self.run_in_subshell(one, state, file)
            self.streams = streams
            self.print(None, _place_of(command, file))
        negated = command.marks and outcome.success is not None
        return Outcome(outcome.flow, not outcome.success if negated else outcome.success)

    def _define(self, command: Command, state: ShellState, file: File) -> Outcome:
        function = (command.inner[0], file)
        state.functions[command.name] = function
        known = self.functions.setdefault(command.name, [])
        known += [] if function in known else [function]
        return DONE

    # branches

    def _run_tested(self, command: Command, state: ShellState, file: File) -> Outcome:
        """Follow what may fail without ending the script."""
        self._tested += 1
        outcome = self.run(command, state, file)
        self._tested -= 1
        return outcome

    def _run_perhaps(self, command: Command, state: ShellState, file: File, ways: list[ShellState]) -> Outcome:
        """Follow what is only done perhaps, on a copy, which is added to the ways if things go on behind it."""
        copy = state.copy()
        self.conditions += 1
        outcome = self.run(command, copy, file)
        self.conditions -= 1
        if outcome.flow is Flow.NEXT:
            ways.append(copy)
        # From here on it is done perhaps: to the end of the function, or of the shell.
        self.conditions += outcome.flow is Flow.LEAVE
        self.exits += outcome.flow is Flow.EXIT
        return outcome

    def _and_or(self, command: Command, state: ShellState, file: File) -> Outcome:
        outcome = self._run_tested(command.inner[0], state, file)
        for operator, one in zip(command.marks, command.inner[1:], strict=True):
            if outcome.flow is not Flow.NEXT:
                return outcome
            if outcome.success is not None:
                if outcome.success == (operator == "&&"):
                    outcome = self.run(one, state, file)
                continue
            ways = [state.copy()]
            other = self._run_perhaps(one, state, file, ways)
            state.take(merge_states(ways, _place_of(one, file)))
            outcome = Outcome(Flow.NEXT, combine_answers(operator, None, other.success))
        return outcome

    def _if(self, command: Command, state: ShellState, file: File) -> Outcome:
        *branches, otherwise = command.inner
        answers = (self._run_tested(one, state, file) for one in branches[::2])
        return self._choose(answers, branches[1::2], otherwise, state, file)

    def _case(self, command: Command, state: ShellState, file: File) -> Outcome:
        subject = next((text_of(self.expander.value(one, state, file)) for one in _words(command)), None)
        if {";&", ";;&"} & set(command.marks):  # a body goes on with the next, which is not followed
            state.forget(Unknown(Reason.CONDITION, "case", _place_of(command, file)))
            subject = None
        answers = (self._match_patterns(subject, several, state, file) for several in command.patterns)
        nothing = Command(CommandKind.LIST, command.end, command.end)
        return self._choose(answers, command.inner, nothing, state, file)

    def _match_patterns(
        self, subject: str | None, patterns: tuple[Word, ...], state: ShellState, file: File
    ) -> Outcome:
        found: bool | None = False
        for one in patterns:
            pattern = read_pattern(self.expander.value(one, state, file))
            found = combine_answers("||", found, None if subject is None else matches_pattern(subject, pattern))
        return Outcome(Flow.NEXT, success=True if patterns[-1].literal == "*" else found)

    def _choose(
        self,
        answers: Iterator[Outcome],
        bodies: Sequence[Command],
        otherwise: Command,
        state: ShellState,
        file: File,
    ) -> Outcome:
        """The first body whose answer is yes; of those behind unknown answers every one is followed."""
        ways: list[ShellState] = []
        flows: list[Flow] = []
        chosen = otherwise
        for answer, body in zip(answers, bodies, strict=False):
            if answer.flow is not Flow.NEXT:
                return answer
            if answer.success:
                chosen = body
                break
            if answer.success is None:
                flows.append(self._run_perhaps(body, state, file, ways).flow)
        if not flows:
            return self.run(chosen, state, file)
        flows.append(self._run_perhaps(chosen, state, file, ways).flow)
        if not ways:
            return Outcome(Flow.LEAVE if Flow.LEAVE in flows else Flow.EXIT)
        state.take(merge_states(ways, _place_of(chosen, file)))
        return UNCLEAR

    # loops

    def _for(self, command: Command, state: ShellState, file: File) -> Outcome:
        (body,) = command.inner
        words = state.positional
        if command.words is not None:
            words = tuple(self.expander.arguments(_words(command), state, file))
        unknown = words is None or command.name in state.odd or any(word.open for word in words)
        if unknown or words is None or len(words) > MAX_ROUNDS or self._rounds > MAX_ALL_ROUNDS or _leaves(body):
            return self._loop(command, state, file)
        for word in words:
            self._rounds += 1
            state.variables[command.name] = word.pieces
            outcome = self.run(body, state, file)
            if outcome.flow is not Flow.NEXT:
                return outcome
        return UNCLEAR

    def _loop(self, command: Command, state: ShellState, file: File) -> Outcome:
        """A loop of which nobody knows how often it goes round: what a round changes is unknown, until none changes more."""
        place = _place_of(command.inner[-1], file)
        conditions, exits = self.conditions, self.exits
        lists: list[list[Any]] = [self.started, self.unknown, *self.left_calls[-1:]]
        lists += [self.streams.printed] if self.streams.printed is not None else []
        lengths = [len(several) for several in lists]
        for parts in command.expressions[:1]:
            self.expander.number(parts, state, place)
        for changes in range(_MAX_CHANGES + 1):
            self.conditions, self.exits = conditions + 1, exits
            for several, length in zip(lists, lengths, strict=True):
                del several[length:]  # what another round has found
            if changes == _MAX_CHANGES:
                state.forget(Unknown(Reason.LOOP, "", place))
            joined = merge_states(self._round(command, state, file, place), place, Reason.LOOP)
            if is_settled(state, joined):
                break
            state.take(joined)
        # Behind a loop that a function is perhaps left in, the rest of it is done perhaps.
        returned = bool(self.left_calls) and len(self.left_calls[-1]) > lengths[2]
        self.conditions = conditions + returned
        return UNCLEAR

    def _round(self, command: Command, state: ShellState, file: File, place: ScriptPlace) -> list[ShellState]:
        """What may hold behind one round: what did before, what does where the loop is left, and at the end of it."""
        after = state.copy()
        if command.name:
            after.variables[command.name] = (unknown_piece(Reason.LOOP, command.name, place),)
        for parts in command.expressions[1:2]:
            self.expander.number(parts, after, place)
        self.left_loops.append([])
        flow = Flow.NEXT
        for one in command.inner:
            flow = self.run(one, after, file).flow if flow is Flow.NEXT else flow
        for parts in command.expressions[2:]:
            self.expander.number(parts, after, place)
        return [state, *self.left_loops.pop(), *([after] if flow is Flow.NEXT else [])]

    # conditions

    def _calculation(self, command: Command, state: ShellState, file: File) -> Outcome:
        number = self.expander.number(command.expressions[0], state, ScriptPlace(file, command.start, command.end))
        return Outcome(Flow.NEXT, None if number is None else number != 0)

    def _condition(self, command: Command, state: ShellState, file: File) -> Outcome:
        words = _words(command)
        values = [self.expander.value(word, state, file) for word in words]
        tests = Tests([word.literal for word in words], values)
        found = tests.either()
        return Outcome(Flow.NEXT, found if tests.at == len(values) else None)


def _words(command: Command) -> list[Word]:
    return [word for word in command.words or () if isinstance(word, Word)]


def _place_of(command: Command, file: File) -> ScriptPlace:
    """Roughly where a command stands: its first simple one."""
    todo = [command]
    for one in todo:
        if one.kind in (CommandKind.SIMPLE, CommandKind.CALCULATION):
            return ScriptPlace(file, one.start, one.end)
        if one.kind is CommandKind.CONDITION and one.words:
            return ScriptPlace(file, one.words[0].start, one.words[-1].end)
        todo += one.inner
    return ScriptPlace(file, command.start, command.start)


def _leaves(command: Command) -> bool:
    """Whether a loop's body may leave it, or go on with its next round."""
    first = command.words[0] if command.words else None
    leaves = isinstance(first, Word) and first.literal in ("break", "continue")
    return leaves or any(_leaves(one) for one in command.inner)
