"""Follows a script from its first command to its last, and collects what it starts. Nothing is run.

Where a condition is unknown every branch is followed, and what the branches set differently is unknown behind them; what a
loop sets is unknown in it and behind it. So a value that is told is the one that bash has, whichever way the script takes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ms_tune.launch.commands import CommandFollower
from ms_tune.launch.conditions import both, holds
from ms_tune.launch.outcome import DONE, UNCLEAR, Flow, Outcome, place_of
from ms_tune.launch.state import State, merged
from ms_tune.launch.syntax import (
    AndOr,
    Calculation,
    Case,
    Condition,
    Function,
    Group,
    If,
    Loop,
    Pipeline,
    Sequence,
    Simple,
    Word,
    unquoted,
)
from ms_tune.launch.touched import Touched
from ms_tune.launch.values import Place, Reason, Unknown, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ms_tune.launch.syntax import Command
    from ms_tune.launch.values import File

MAX_STEPS = 20_000  # commands that are followed
MAX_DEPTH = 80  # commands inside of each other
_PATTERN = frozenset("*?[\\+@!(")


class Follower(CommandFollower):
    """Follows the commands of a script and of the files that it sources.

    Args:
        source: Reads a file that is named in a file; None if it cannot be read.
    """

    def follow(self, script: Command, file: File) -> None:
        """Follow a script from its beginning."""
        self.run(script, State(), file)
        if self._expander.exhausted:
            self.unknown.append(Unknown(Reason.BOUND, "", Place(file, 0, 0)))

    def run(self, command: Command, state: State, file: File) -> Outcome:
        """Follow one command; the state becomes what holds behind it."""
        self._steps += 1
        if self._steps > MAX_STEPS or self._depth >= MAX_DEPTH:
            unknown = Unknown(Reason.BOUND, "", Place(file, 0, 0))
            if self._steps <= MAX_STEPS + 1:
                self.unknown.append(unknown)
            state.forget(unknown)
            return UNCLEAR if self._steps <= MAX_STEPS else Outcome(Flow.EXIT)
        self._depth += 1
        outcome = self._one(command, state, file)
        self._depth -= 1
        return outcome

    def _one(self, command: Command, state: State, file: File) -> Outcome:
        if isinstance(command, Simple):
            return self._simple(command, state, file)
        if isinstance(command, Sequence):
            return self._sequence(command, state, file)
        if isinstance(command, AndOr):
            return self._and_or(command, state, file)
        if isinstance(command, If):
            return self._if(command, state, file)
        return self._further(command, state, file)

    def _further(self, command: Command, state: State, file: File) -> Outcome:  # noqa: PLR0911 - a kind a line
        if isinstance(command, Pipeline):
            return self._pipeline(command, state, file)
        if isinstance(command, Loop):
            return self._loop(command, state, file)
        if isinstance(command, Case):
            return self._case(command, state, file)
        if isinstance(command, Function):
            state.functions[command.name] = (command.body, file)
            self._defined.setdefault(command.name, []).append((command.body, file))
            return DONE
        if isinstance(command, Group):
            return self._apart(command.body, state, file) if command.subshell else self.run(command.body, state, file)
        if isinstance(command, Calculation):
            place = Place(file, command.start, command.end)
            number = self._expander.number(command.parts, state, file, place)
            return Outcome(Flow.NEXT, None if number is None else number != 0)
        return Outcome(Flow.NEXT, self._condition(command, state, file) if isinstance(command, Condition) else None)

    # one after another

    def _sequence(self, command: Sequence, state: State, file: File) -> Outcome:
        outcome = DONE
        for one, background in command.commands:
            outcome = self._apart(one, state, file) if background else self.run(one, state, file)
            if background:
                outcome = DONE
            if outcome.flow is not Flow.NEXT:
                return outcome
        return outcome

    def _apart(self, command: Command, state: State, file: File) -> Outcome:
        """In a shell of its own: what is set there is lost."""
        exits = self._exits
        outcome = self.run(command, state.copy(), file)
        self._exits = exits
        return Outcome(Flow.NEXT, outcome.success if outcome.flow is Flow.NEXT else None)

    def _pipeline(self, command: Pipeline, state: State, file: File) -> Outcome:
        if len(command.commands) == 1:
            outcome = self.run(command.commands[0], state, file)
        else:
            outcome = [self._apart(one, state, file) for one in command.commands][-1]
        success = outcome.success
        return Outcome(outcome.flow, not success if command.negated and success is not None else success)

    # branches

    def _maybe(self, command: Command, state: State, file: File, ways: list[State]) -> Outcome:
        """Follow what is only done perhaps, on a copy, which is added to the ways if things go on behind it."""
        copy = state.copy()
        self._conditions += 1
        outcome = self.run(command, copy, file)
        self._conditions -= 1
        if outcome.flow is Flow.NEXT:
            ways.append(copy)
        # From here on it is done perhaps: to the end of the function, or of the shell.
        self._conditions += outcome.flow is Flow.STOP
        self._exits += outcome.flow is Flow.EXIT
        return outcome

    def _and_or(self, command: AndOr, state: State, file: File) -> Outcome:
        outcome = self.run(command.first, state, file)
        for operator, one in command.rest:
            if outcome.flow is not Flow.NEXT:
                return outcome
            if outcome.success is not None:
                if outcome.success == (operator == "&&"):
                    outcome = self.run(one, state, file)
                continue
            ways = [state.copy()]
            other = self._maybe(one, state, file, ways)
            state.take(merged(ways, place_of(one, file)))
            outcome = Outcome(Flow.NEXT, both(operator, None, other.success))
        return outcome

    def _if(self, command: If, state: State, file: File) -> Outcome:
        conditions = [condition for condition, _ in command.branches]
        bodies = [body for _, body in command.branches]
        answers = [partial(self.run, one, state, file) for one in conditions]
        return self._choose(answers, bodies, command.otherwise or Sequence(), state, file)

    def _case(self, command: Case, state: State, file: File) -> Outcome:
        subject = text_of(self._expander.value(command.word, state, file))

        def answered(patterns: tuple[Word, ...]) -> Outcome:
            found: bool | None = False
            for pattern in patterns:
                found = both("||", found, self._fits(subject, pattern, state, file))
            return Outcome(Flow.NEXT, found)

        answers = [partial(answered, patterns) for patterns, _ in command.arms]
        return self._choose(answers, [body for _, body in command.arms], Sequence(), state, file)

    def _fits(self, subject: str | None, pattern: Word, state: State, file: File) -> bool | None:
        if pattern.literal == "*":
            return True
        text = text_of(self._expander.value(pattern, state, file))
        if subject is None or text is None or (unquoted(pattern) and set(text) & _PATTERN):
            return None
        return subject == text

    def _choose(
        self,
        answers: Iterable[Callable[[], Outcome]],
        bodies: list[Sequence],
        otherwise: Sequence,
        state: State,
        file: File,
    ) -> Outcome:
        """The first body whose answer is yes; of those behind unknown answers every one is followed."""
        ways: list[State] = []
        flows: list[Outcome] = []
        chosen = otherwise
        for ask, body in zip(answers, bodies, strict=True):
            outcome = ask()
            if outcome.flow is not Flow.NEXT:
                return outcome
            if outcome.success:
                chosen = body
                break
            if outcome.success is None:
                flows.append(self._maybe(body, state, file, ways))
        if not flows:
            return self.run(chosen, state, file)
        flows.append(self._maybe(chosen, state, file, ways))
        if not ways:
            stops = any(one.flow is Flow.STOP for one in flows)
            return Outcome(Flow.STOP if stops else Flow.EXIT)
        state.take(merged(ways, place_of(chosen, file)))
        return UNCLEAR

    def _loop(self, command: Loop, state: State, file: File) -> Outcome:
        touched = Touched(state.functions).add(command)
        place = place_of(command.body, file)
        touched.forget(state, place)
        conditions = self._conditions
        self._maybe(Sequence(((command.condition, False), (command.body, False))), state, file, [])
        self._conditions = conditions + bool(self._returned and touched.returns)
        return UNCLEAR

    def _condition(self, command: Condition, state: State, file: File) -> bool | None:
        texts = [text_of(self._expander.value(word, state, file)) for word in command.words]
        literals = [word.literal for word in command.words]
        if "(" in literals or ")" in literals:
            return None
        answer_: bool | None = None
        operator, start = "", 0
        for number, literal in enumerate([*literals, "||"]):
            if literal in ("&&", "||"):
                if "||" in literals and "&&" in literals:
                    return None  # which binds tighter is not followed
                patterns = [unquoted(word) for word in command.words[start:number]]
                found = holds(texts[start:number], patterns=patterns)
                answer_ = both(operator, answer_, found) if operator else found
                operator, start = literal or "", number + 1
        return answer_
