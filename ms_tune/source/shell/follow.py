"""Follows a script from its first command to its last, and collects what it starts. Nothing is run.

Where a condition is unknown every branch is followed, and what the branches set differently is unknown behind them. A loop over
known words is followed round by round; of any other what a round changes is unknown, in the loop and behind it. So a value that is
told is the one that bash has, whichever way the script takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ms_tune.source.shell.calculate import combine_answers, holds_test, matches_pattern, read_pattern
from ms_tune.source.shell.commands import DONE, UNCLEAR, CommandFollower, Flow, Outcome, Streams
from ms_tune.source.shell.syntax import Command, CommandKind, ScriptPlace, Word
from ms_tune.source.shell.values import (
    Reason,
    ShellState,
    Unknown,
    array_of,
    is_settled,
    merge_states,
    plain_value,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ms_tune.source.shell.syntax import File

MAX_STEPS = 20_000  # commands that are followed
MAX_DEPTH = 80  # commands inside of each other
MAX_ROUNDS = 64  # of one loop
MAX_ALL_ROUNDS = 1_000  # of all loops
_MAX_CHANGES = 8  # rounds after which a loop may have changed everything
_FAILING = (CommandKind.SIMPLE, CommandKind.CONDITION, CommandKind.SUBSHELL)


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
            CommandKind.WHILE: self._loop,
            CommandKind.CASE: self._case,
            CommandKind.FUNCTION: self._define,
            CommandKind.SUBSHELL: self._subshell,
            CommandKind.CALCULATION: self._calculation,
            CommandKind.CONDITION: lambda command: self.run(command.inner[0]),
            CommandKind.TEST: self._single_test,
        }

    def follow(self, script: Command) -> None:
        """Follow a script from its beginning."""
        self.run(script)
        if self.exhausted or self._steps > MAX_STEPS:
            self.unknown.append(self._too_much(script))

    @staticmethod
    def _too_much(command: Command) -> Unknown:
        return Unknown(Reason.BOUND, "", ScriptPlace(command.place.file, 0, 0))

    def run(self, command: Command) -> Outcome:
        """Follow one command; the state becomes what holds behind it."""
        self._steps += 1
        if self._steps > MAX_STEPS or self._depth >= MAX_DEPTH:
            unknown = self._too_much(command)
            self.unknown += [unknown] if self._steps <= MAX_STEPS else []  # the script's end is told at its end
            self.state.forget(unknown)
            return UNCLEAR if self._steps <= MAX_STEPS else Outcome(Flow.EXIT)
        self._depth += 1
        apart = command.redirections if command.kind is not CommandKind.SIMPLE else ()
        with self.redirect(apart, command.place):
            outcome = self._ways[command.kind](command)
        self._depth -= 1
        return outcome

    # one after another, and in shells of their own

    def _list(self, command: Command) -> Outcome:
        outcome = DONE
        for one in command.inner:
            outcome = self.run(one)
            fails = outcome.success is False and one.kind in _FAILING
            if fails and self.state.stops_at_failure and not self._tested:
                return Outcome(Flow.EXIT)
            if outcome.flow is not Flow.NEXT:
                return outcome
        return outcome

    def run_in_subshell(self, command: Command) -> Outcome:
        """Follow one in a shell of its own: what is set there is lost."""
        state, exits, loops = self.state, self.exits, self.left_loops
        self.state, self.left_loops = state.copy(), []
        outcome = self.run(command)
        self.state, self.exits, self.left_loops = state, exits, loops
        return Outcome(Flow.NEXT, outcome.success if outcome.flow is Flow.NEXT else None)

    def _subshell(self, command: Command) -> Outcome:
        outcome = self.run_in_subshell(command.inner[0])
        return DONE if command.marks else outcome

    def _pipeline(self, command: Command) -> Outcome:
        if len(command.inner) == 1:  # a negated one
            outcome = self._run_tested(command.inner[0])
        else:
            streams = self.streams
            for number, one in enumerate(command.inner):
                self.streams = streams._replace(printed=None) if number == 0 else Streams(piped=True)
                outcome = self.run_in_subshell(one)
            self.streams = streams
            self.print(None, command.place)
        negated = command.marks and outcome.success is not None
        return Outcome(outcome.flow, not outcome.success if negated else outcome.success)

    def _define(self, command: Command) -> Outcome:
        (body,) = command.inner
        self.state.functions[command.name] = body
        known = self.functions.setdefault(command.name, [])
        known += [] if body in known else [body]
        return DONE

    # branches

    def _run_tested(self, command: Command) -> Outcome:
        """Follow what may fail without ending the script."""
        self._tested += 1
        outcome = self.run(command)
        self._tested -= 1
        return outcome

    def _run_perhaps(self, command: Command, ways: list[ShellState]) -> Outcome:
        """Follow what is only done perhaps, on a copy, which is added to the ways if things go on behind it."""
        state, self.state = self.state, self.state.copy()
        self.conditions += 1
        outcome = self.run(command)
        self.conditions -= 1
        if outcome.flow is Flow.NEXT:
            ways.append(self.state)
        # From here on it is done perhaps: to the end of the function, or of the shell.
        self.conditions += outcome.flow is Flow.LEAVE
        self.exits += outcome.flow is Flow.EXIT
        self.state = state
        return outcome

    def _and_or(self, command: Command) -> Outcome:
        outcome = self._run_tested(command.inner[0])
        for operator, one in zip(command.marks, command.inner[1:], strict=True):
            if outcome.flow is not Flow.NEXT:
                return outcome
            if outcome.success is not None:
                if outcome.success == (operator == "&&"):
                    outcome = self.run(one)
                continue
            ways = [self.state]
            other = self._run_perhaps(one, ways)
            self.state = merge_states(ways, one.place)
            outcome = Outcome(Flow.NEXT, combine_answers(operator, None, other.success))
        return outcome

    def _if(self, command: Command) -> Outcome:
        *branches, otherwise = command.inner
        return self._choose(map(self._run_tested, branches[::2]), branches[1::2], otherwise)

    def _case(self, command: Command) -> Outcome:
        (word,) = command.plain_words
        subject = text_of(self.value(word))
        if {";&", ";;&"} & set(command.marks):  # a body goes on with the next, which is not followed
            self.give_up(Unknown(Reason.CONDITION, "case", command.place))
            subject = None
        answers = (self._match_patterns(subject, several) for several in command.patterns)
        return self._choose(answers, command.inner, Command(CommandKind.LIST, word.place))

    def _match_patterns(self, subject: str | None, patterns: tuple[Word, ...]) -> Outcome:
        found: bool | None = False
        for one in patterns:
            pattern = read_pattern(self.value(one))
            found = combine_answers("||", found, None if subject is None else matches_pattern(subject, pattern))
        return Outcome(Flow.NEXT, success=True if patterns[-1].literal == "*" else found)

    def _choose(self, answers: Iterator[Outcome], bodies: Sequence[Command], otherwise: Command) -> Outcome:
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
                flows.append(self._run_perhaps(body, ways).flow)
        if not flows:
            return self.run(chosen)
        flows.append(self._run_perhaps(chosen, ways).flow)
        if not ways:
            return Outcome(Flow.LEAVE if Flow.LEAVE in flows else Flow.EXIT)
        self.state = merge_states(ways, chosen.place)
        return UNCLEAR

    # loops

    def _for(self, command: Command) -> Outcome:
        (body,) = command.inner
        words = self.state.variables.get("@")
        if command.words is not None:
            words = array_of(self.arguments(command.plain_words))
        unknown = words is None or command.name in self.state.odd or words.uncounted is not None or _leaves(body)
        if unknown or words is None or len(words.elements) > MAX_ROUNDS or self._rounds > MAX_ALL_ROUNDS:
            return self._loop(command)
        for _, pieces in words.elements:
            self._rounds += 1
            self.state.variables[command.name] = plain_value(*pieces)
            outcome = self.run(body)
            if outcome.flow is not Flow.NEXT:
                return outcome
        return UNCLEAR

    def _loop(self, command: Command) -> Outcome:
        """A loop of which nobody knows how often it goes round: what a round changes is unknown, until none changes more."""
        place = command.inner[-1].place
        conditions, exits = self.conditions, self.exits
        lists: list[list[Any]] = [self.started, self.unknown, *self.left_calls[-1:]]
        lists += [self.streams.printed] if self.streams.printed is not None else []
        lengths = [len(several) for several in lists]
        for changes in range(_MAX_CHANGES + 1):
            self.conditions, self.exits = conditions + 1, exits
            for several, length in zip(lists, lengths, strict=True):
                del several[length:]  # what another round has found
            if changes == _MAX_CHANGES:
                self.state.forget(Unknown(Reason.LOOP, "", place))
            before, ways = self.state, self._round(command, place)
            self.state = merge_states([before, *ways], place, Reason.LOOP)
            if is_settled(before, self.state):
                break
        # Behind a loop that a function is perhaps left in, the rest of it is done perhaps.
        returned = bool(self.left_calls) and len(self.left_calls[-1]) > lengths[2]
        self.conditions = conditions + returned
        return UNCLEAR

    def _round(self, command: Command, place: ScriptPlace) -> list[ShellState]:
        """What may hold behind one round: where the loop is left, and at the end of it."""
        self.state = self.state.copy()
        if command.name:
            self.state.spoil(command.name, Reason.LOOP, place)
        self.left_loops.append([])
        flow = Flow.NEXT
        for one in command.inner:
            flow = self.run(one).flow if flow is Flow.NEXT else flow
        return [*self.left_loops.pop(), *([self.state] if flow is Flow.NEXT else [])]

    # conditions

    def _calculation(self, command: Command) -> Outcome:
        (word,) = command.plain_words
        number = self.number(word.parts, word.place)
        return Outcome(Flow.NEXT, None if number is None else number != 0)

    def _single_test(self, command: Command) -> Outcome:
        """One test of ``[[ ... ]]``; its last word is a pattern, if it has two others before."""
        literals = [word.literal for word in command.plain_words]
        values = [self.value(word) for word in command.plain_words]
        if literals[1:2] in (["<"], [">"], ["=~"]):
            return UNCLEAR
        pattern = values[2] if len(values) == 3 else None  # noqa: PLR2004
        return Outcome(Flow.NEXT, holds_test([text_of(one) for one in values], pattern))


def _leaves(command: Command) -> bool:
    """Whether a loop's body may leave it, or go on with its next round."""
    first = command.words[0] if command.words else None
    leaves = isinstance(first, Word) and first.literal in ("break", "continue")
    return leaves or any(_leaves(one) for one in command.inner)
