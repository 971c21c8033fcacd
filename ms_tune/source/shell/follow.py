"""Follow a script from its first command to its last, without running it, and collect the programs that it starts.

Where a condition is unknown, every branch is followed; variables that the branches set differently are unknown
afterwards. A loop over known words is followed round by round; in any other loop, variables that change are unknown
inside and after it. Every known value is therefore the value in bash, regardless of the branches that run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ms_tune.source.shell.calculate import combine_answers, evaluate_test, matches_pattern, read_pattern
from ms_tune.source.shell.commands import DONE, UNCLEAR, CommandFollower, Flow, Outcome, Streams
from ms_tune.source.shell.syntax import Command, CommandKind, File, ScriptPlace, Word
from ms_tune.source.shell.values import (
    Reason,
    ShellState,
    Unknown,
    array_of,
    is_stable,
    merge_states,
    plain_value,
    text_of,
)

MAX_STEPS = 20_000  # commands that are followed
MAX_DEPTH = 80  # nested commands
MAX_ROUNDS = 64  # per loop
MAX_ALL_ROUNDS = 1_000  # of all loops together
_MAX_CHANGES = 8  # rounds after which all variables count as changed by the loop
_FAILING = (CommandKind.SIMPLE, CommandKind.CONDITION, CommandKind.SUBSHELL)


class Follower(CommandFollower):
    """Interpreter that follows the commands of a script and of the files that it sources."""

    def __init__(self, source: Callable[[str], File | None], *, assumes_defaults: bool = False) -> None:
        super().__init__(source, assumes_defaults=assumes_defaults)
        self._steps = self._depth = self._rounds = 0
        self._tested = 0  # number of surrounding commands whose failure does not end the script
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
        """Follow one command and update the state."""
        self._steps += 1
        if self._steps > MAX_STEPS or self._depth >= MAX_DEPTH:
            unknown = self._too_much(command)
            self.unknown += [unknown] if self._steps <= MAX_STEPS else []  # too many steps: reported at the end
            self.state.forget(unknown)
            return UNCLEAR if self._steps <= MAX_STEPS else Outcome(Flow.EXIT)
        self._depth += 1
        apart = command.redirections if command.kind is not CommandKind.SIMPLE else ()
        with self.redirect(apart, command.place):
            outcome = self._ways[command.kind](command)
        self._depth -= 1
        return outcome

    # lists, subshells and pipelines

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
        """Follow a command in a subshell: its assignments are discarded."""
        state, exits, loops = self.state, self.exits, self.loop_exits
        self.state, self.loop_exits = state.copy(), []
        outcome = self.run(command)
        self.state, self.exits, self.loop_exits = state, exits, loops
        return Outcome(Flow.NEXT, outcome.success if outcome.flow is Flow.NEXT else None)

    def _subshell(self, command: Command) -> Outcome:
        outcome = self.run_in_subshell(command.inner[0])
        return DONE if command.marks else outcome

    def _pipeline(self, command: Command) -> Outcome:
        if len(command.inner) == 1:  # a negated command
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
        """Follow a command whose failure does not end the script."""
        self._tested += 1
        outcome = self.run(command)
        self._tested -= 1
        return outcome

    def _run_perhaps(self, command: Command, ways: list[ShellState]) -> Outcome:
        """Follow a command that may not run on a copy of the state; append the copy to ``ways`` if the script goes on."""
        state, self.state = self.state, self.state.copy()
        self.conditions += 1
        outcome = self.run(command)
        self.conditions -= 1
        if outcome.flow is Flow.NEXT:
            ways.append(self.state)
        # From here to the end of the function or shell, it is unknown whether commands run.
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
        if {";&", ";;&"} & set(command.marks):  # bodies that fall through to the next are not followed
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
        """Follow the first body whose condition is true, and every body before it whose condition is unknown."""
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
        """Follow a loop with an unknown number of rounds, until no further variable becomes unknown."""
        place = command.inner[-1].place
        conditions, exits = self.conditions, self.exits
        lists: list[list[Any]] = [self.started, self.unknown, *self.call_exits[-1:]]
        lists += [self.streams.printed] if self.streams.printed is not None else []
        lengths = [len(several) for several in lists]
        for changes in range(_MAX_CHANGES + 1):
            self.conditions, self.exits = conditions + 1, exits
            for several, length in zip(lists, lengths, strict=True):
                del several[length:]  # found in the previous round
            if changes == _MAX_CHANGES:
                self.state.forget(Unknown(Reason.LOOP, "", place))
            before, ways = self.state, self._round(command, place)
            self.state = merge_states([before, *ways], place, Reason.LOOP)
            if is_stable(before, self.state):
                break
        # If the loop may return from the function, it is unknown whether the rest of the function runs.
        returned = bool(self.call_exits) and len(self.call_exits[-1]) > lengths[2]
        self.conditions = conditions + returned
        return UNCLEAR

    def _round(self, command: Command, place: ScriptPlace) -> list[ShellState]:
        """Return the possible states after one round: at each exit from the loop and at the end of the body."""
        self.state = self.state.copy()
        if command.name:
            self.state.spoil(command.name, Reason.LOOP, place)
        self.loop_exits.append([])
        flow = Flow.NEXT
        for one in command.inner:
            flow = self.run(one).flow if flow is Flow.NEXT else flow
        return [*self.loop_exits.pop(), *([self.state] if flow is Flow.NEXT else [])]

    # conditions

    def _calculation(self, command: Command) -> Outcome:
        (word,) = command.plain_words
        number = self.number(word.parts, word.place)
        return Outcome(Flow.NEXT, None if number is None else number != 0)

    def _single_test(self, command: Command) -> Outcome:
        """Follow one test of ``[[ ... ]]``; the last of three words is a pattern."""
        literals = [word.literal for word in command.plain_words]
        values = [self.value(word) for word in command.plain_words]
        if literals[1:2] in (["<"], [">"], ["=~"]):
            return UNCLEAR
        pattern = values[2] if len(values) == 3 else None  # noqa: PLR2004
        return Outcome(Flow.NEXT, evaluate_test([text_of(one) for one in values], pattern))


def _leaves(command: Command) -> bool:
    """Return whether a loop's body contains ``break`` or ``continue``."""
    first = command.words[0] if command.words else None
    leaves = isinstance(first, Word) and first.literal in ("break", "continue")
    return leaves or any(_leaves(one) for one in command.inner)
