"""Follows a script from its first command to its last, and collects what it starts. Nothing is run.

Where a condition is unknown every branch is followed, and what the branches set differently is unknown behind them. A loop whose
rounds are known is followed round by round; what another sets is unknown in it and behind it. So a value that is told is the one
that bash has, whichever way the script takes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ms_tune.source.shell.builtins import set_to
from ms_tune.source.shell.commands import CommandFollower
from ms_tune.source.shell.conditions import Tests, both
from ms_tune.source.shell.outcome import DONE, UNCLEAR, CommandOutcome, Flow, place_of
from ms_tune.source.shell.patterns import expression_of, fits
from ms_tune.source.shell.state import ShellState, merged
from ms_tune.source.shell.streams import Input
from ms_tune.source.shell.syntax import (
    AndOr,
    Calculation,
    Case,
    CommandGroup,
    CommandPipeline,
    ConditionCommand,
    FunctionDefinition,
    If,
    Loop,
    QuotedText,
    Redirected,
    Sequence,
    Simple,
    Word,
)
from ms_tune.source.shell.touched import Touched
from ms_tune.source.shell.values import Reason, ScriptPlace, Unknown, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ms_tune.source.shell.commands import Trap
    from ms_tune.source.shell.syntax import Command, Part
    from ms_tune.source.shell.values import File, Piece, Pieces

MAX_STEPS = 20_000  # commands that are followed
MAX_DEPTH = 80  # commands inside of each other
MAX_ROUNDS = 64  # of one loop
MAX_ALL_ROUNDS = 1_000  # of all loops


class Follower(CommandFollower):
    """Follows the commands of a script and of the files that it sources.

    Args:
        source: Reads a file that is named in a file; None if it cannot be read.
    """

    def __init__(self, source: Callable[[str, File], File | None]) -> None:
        super().__init__(source)
        self._rounds = 0
        self._tested = 0

    def follow(self, script: Command, file: File) -> None:
        """Follow a script from its beginning, and what it has asked for at its end."""
        state = ShellState()
        self.run(script, state, file)
        trap, place = self._at_exit, ScriptPlace(file, 0, 0)
        if trap is not None:
            if self._exits:
                state.forget(Unknown(Reason.CONDITION, "EXIT", trap.place))
            self._conditions += trap.conditional
            self._eval([trap.word], state, trap.place)
        if self._expander.exhausted:
            self.unknown.append(Unknown(Reason.BOUND, "", place))

    def run(self, command: Command, state: ShellState, file: File) -> CommandOutcome:
        """Follow one command; the state becomes what holds behind it."""
        self._steps += 1
        if self._steps > MAX_STEPS or self._depth >= MAX_DEPTH:
            unknown = Unknown(Reason.BOUND, "", ScriptPlace(file, 0, 0))
            if self._steps <= MAX_STEPS + 1:
                self.unknown.append(unknown)
            state.forget(unknown)
            return UNCLEAR if self._steps <= MAX_STEPS else CommandOutcome(Flow.EXIT)
        self._depth += 1
        outcome = self._one(command, state, file)
        self._depth -= 1
        return outcome

    def _one(self, command: Command, state: ShellState, file: File) -> CommandOutcome:
        if isinstance(command, Simple):
            return self._simple(command, state, file)
        if isinstance(command, Sequence):
            return self._sequence(command, state, file)
        if isinstance(command, AndOr):
            return self._and_or(command, state, file)
        if isinstance(command, If):
            return self._if(command, state, file)
        return self._further(command, state, file)

    def _further(self, command: Command, state: ShellState, file: File) -> CommandOutcome:  # noqa: PLR0911 - a kind a line
        if isinstance(command, CommandPipeline):
            return self._pipeline(command, state, file)
        if isinstance(command, Redirected):
            with self._redirected(command.redirections, state, place_of(command.body, file)):
                return self.run(command.body, state, file)
        if isinstance(command, Loop):
            return self._loop(command, state, file)
        if isinstance(command, Case):
            return self._case(command, state, file)
        if isinstance(command, FunctionDefinition):
            state.functions[command.name] = (command.body, file)
            self._defined.setdefault(command.name, []).append((command.body, file))
            return DONE
        if isinstance(command, CommandGroup):
            return self._apart(command.body, state, file) if command.subshell else self.run(command.body, state, file)
        if isinstance(command, Calculation):
            place = ScriptPlace(file, command.start, command.end)
            number = self._expander.number(command.parts, state, file, place)
            return CommandOutcome(Flow.NEXT, None if number is None else number != 0)
        return CommandOutcome(
            Flow.NEXT, self._condition(command, state, file) if isinstance(command, ConditionCommand) else None
        )

    # one after another

    def _sequence(self, command: Sequence, state: ShellState, file: File) -> CommandOutcome:
        outcome = DONE
        for one, background in command.commands:
            outcome = self._apart(one, state, file) if background else self.run(one, state, file)
            if background:
                outcome = DONE
            fails = outcome.success is False and isinstance(one, Simple | ConditionCommand | Calculation | CommandGroup)
            if fails and state.stops_at_failure and not self._tested:
                return CommandOutcome(Flow.EXIT)
            if outcome.flow is not Flow.NEXT:
                return outcome
        return outcome

    def _pipeline(self, command: CommandPipeline, state: ShellState, file: File) -> CommandOutcome:
        if len(command.commands) == 1:  # a negated one
            outcome = self._asked(command.commands[0], state, file)
        else:
            given, last = self._input, command.commands[-1]
            for one in command.commands[:-1]:
                printed: list[Piece] = []
                with self._connected(given, printed):
                    self._apart(one, state, file)
                given = Input(tuple(printed))
            output, sure = self._output, self._sure
            with self._connected(given, output):
                self._sure = sure
                outcome = self._apart(last, state, file)
        success = outcome.success
        return CommandOutcome(outcome.flow, not success if command.negated and success is not None else success)

    # branches

    def _maybe(self, command: Command, state: ShellState, file: File, ways: list[ShellState]) -> CommandOutcome:
        """Follow what is only done perhaps, on a copy, which is added to the ways if things go on behind it."""
        copy = state.copy()
        read = self._input.at if self._input is not None else 0
        self._conditions += 1
        outcome = self.run(command, copy, file)
        self._conditions -= 1
        if outcome.flow is Flow.NEXT:
            ways.append(copy)
        if self._input is not None and self._input.at != read:
            self._input.lost = True
        # From here on it is done perhaps: to the end of the function, or of the shell.
        self._conditions += outcome.flow.leaves
        self._exits += outcome.flow is Flow.EXIT
        self._unclear_rounds |= outcome.flow in (Flow.BREAK, Flow.CONTINUE)
        return outcome

    def _asked(self, command: Command, state: ShellState, file: File) -> CommandOutcome:
        """Follow what may fail without ending the script."""
        self._tested += 1
        outcome = self.run(command, state, file)
        self._tested -= 1
        return outcome

    def _and_or(self, command: AndOr, state: ShellState, file: File) -> CommandOutcome:
        outcome = self._asked(command.first, state, file)
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
            outcome = CommandOutcome(Flow.NEXT, both(operator, None, other.success))
        return outcome

    def _if(self, command: If, state: ShellState, file: File) -> CommandOutcome:
        conditions = [condition for condition, _ in command.branches]
        bodies = [body for _, body in command.branches]
        answers = [partial(self._asked, one, state, file) for one in conditions]
        return self._choose(answers, bodies, command.otherwise or Sequence(), state, file)

    def _case(self, command: Case, state: ShellState, file: File) -> CommandOutcome:
        subject = text_of(self._expander.value(command.word, state, file))

        def answered(patterns: tuple[Word, ...]) -> CommandOutcome:
            found: bool | None = False
            for pattern in patterns:
                if found is not True:
                    found = both("||", found, self._fits(subject, pattern, state, file))
            return CommandOutcome(Flow.NEXT, found)

        answers = [partial(answered, patterns) for patterns, _, _ in command.arms]
        return self._choose(answers, _bodies(command), Sequence(), state, file)

    def _fits(self, subject: str | None, pattern: Word, state: ShellState, file: File) -> bool | None:
        if pattern.literal == "*":
            return True
        expression = expression_of(self._expander.value(pattern, state, file))
        return None if subject is None else fits(subject, expression)

    def _choose(
        self,
        answers: Iterable[Callable[[], CommandOutcome]],
        bodies: list[Sequence],
        otherwise: Sequence,
        state: ShellState,
        file: File,
    ) -> CommandOutcome:
        """The first body whose answer is yes; of those behind unknown answers every one is followed."""
        ways: list[ShellState] = []
        flows: list[CommandOutcome] = []
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
            return CommandOutcome(next((one.flow for one in flows if one.flow.leaves), Flow.EXIT))
        state.take(merged(ways, place_of(chosen, file)))
        return UNCLEAR

    def _loop(self, command: Loop, state: ShellState, file: File) -> CommandOutcome:
        unclear, self._unclear_rounds = self._unclear_rounds, False
        kept = self._kept(state)
        outcome = self._round_by_round(command, state, file)
        far = self._unclear_rounds
        self._unclear_rounds = unclear
        if outcome is not None and not far:
            return outcome
        self._put_back(kept, state)
        touched = Touched(state.functions).add(command)
        place = place_of(command.body, file)
        touched.forget(state, place)
        conditions = self._conditions
        self._maybe(Sequence(((command.condition, False), (command.body, False))), state, file, [])
        self._conditions = conditions + bool(self._returned and touched.returns)
        self._unclear_rounds = unclear
        return UNCLEAR

    def _lists(self) -> list[list[Any]]:
        return [self.started, self.unknown, *self._returned]

    def _kept(self, state: ShellState) -> _Kept:
        lengths = [len(one) for one in self._lists()]
        given = (self._input.at, self._input.lost) if self._input is not None else (0, False)
        printed = len(self._output) if self._output is not None else 0
        counts = (self._steps, self._conditions, self._exits)
        return _Kept(state.copy(), lengths, given, printed, counts, dict(self._files), self._at_exit)

    def _put_back(self, kept: _Kept, state: ShellState) -> None:
        """Forget what the rounds of a loop did."""
        state.take(kept.state)
        for several, length in zip(self._lists(), kept.lengths, strict=True):
            del several[length:]
        if self._input is not None:
            self._input.at, self._input.lost = kept.given
        if self._output is not None:
            del self._output[kept.printed :]
        self._steps, self._conditions, self._exits = kept.counts
        self._files, self._at_exit = kept.files, kept.at_exit

    def _round_by_round(self, command: Loop, state: ShellState, file: File) -> CommandOutcome | None:
        """Follow a loop of which it is known how often it goes round; None if that is not known."""
        for rounds, begun in enumerate(self._begun(command, state, file), 1):
            self._rounds += 1
            most = rounds > MAX_ROUNDS or self._rounds > MAX_ALL_ROUNDS or self._steps > MAX_STEPS // 2
            if begun.success is None or most:
                return None
            outcome = begun if begun.flow is not Flow.NEXT else self.run(command.body, state, file)
            if self._unclear_rounds:
                return None
            if outcome.flow in (Flow.RETURN, Flow.EXIT):
                return outcome
            if outcome.flow is Flow.BREAK:
                break
        return UNCLEAR

    def _begun(self, command: Loop, state: ShellState, file: File) -> Iterator[CommandOutcome]:
        """What comes before each round: a success for each, and a failure to tell where it is not known whether there is another."""
        place = place_of(command.body, file)
        if command.kind == "((" and len(command.steps) == 3:  # noqa: PLR2004 - the three expressions
            yield from self._counted(command.steps, state, place)
        elif command.kind == "for" and command.name is not None:
            words = (
                state.positional if command.words is None else tuple(self._expander.fields(command.words, state, file))
            )
            if words is None or command.name in state.odd or any(word.open for word in words):
                yield UNCLEAR
                return
            for word in words:
                set_to(state, command.name, word.pieces, place)
                yield DONE
        elif command.kind in ("while", "until"):
            while True:
                outcome = self._asked(command.condition, state, file)
                if outcome.flow is Flow.NEXT and outcome.success is (command.kind == "until"):
                    return
                yield outcome
        else:
            yield UNCLEAR

    def _counted(
        self, steps: tuple[tuple[Part, ...], ...], state: ShellState, place: ScriptPlace
    ) -> Iterator[CommandOutcome]:
        """The same for ``for ((first; test; last))``."""
        first, test, last = steps
        known = self._expander.number(first, state, place.file, place)
        while known is not None:
            going = self._expander.number(test, state, place.file, place) if _is_written(test) else 1
            if going is None:
                break
            if not going:
                return
            yield DONE
            known = self._expander.number(last, state, place.file, place)
        yield UNCLEAR

    def _condition(self, command: ConditionCommand, state: ShellState, file: File) -> bool | None:
        values = [self._expander.value(word, state, file) for word in command.words]
        reader = Tests([word.literal for word in command.words], values)
        answer_ = reader.either()
        return answer_ if reader.at == len(values) else None


class _Kept(NamedTuple):
    """What there was before a loop."""

    state: ShellState
    lengths: list[int]
    given: tuple[int, bool]
    printed: int
    counts: tuple[int, int, int]
    files: dict[str, Pieces]
    at_exit: Trap | None


def _is_written(parts: Iterable[Part]) -> bool:
    return any(not isinstance(part, QuotedText) or part.text.strip() for part in parts)


def _bodies(command: Case) -> list[Sequence]:
    """The body of each arm, with those that its end goes on to."""
    found: list[Sequence] = []
    for number in range(len(command.arms) - 1, -1, -1):
        _, body, end = command.arms[number]
        if end == ";&" and found:
            body = Sequence((*body.commands, *found[0].commands))
        elif end == ";;&":
            body = Sequence((*body.commands, (Case(command.word, command.arms[number + 1 :]), False)))
        found.insert(0, body)
    return found
