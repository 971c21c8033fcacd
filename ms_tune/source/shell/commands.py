"""Follow one simple command of a script without running it: assignments, calls, sourced files, output, programs."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple

from ms_tune.facts.launchers import find_launcher, is_wrapper
from ms_tune.facts.query import load
from ms_tune.source import SCRIPTS
from ms_tune.source.shell.calculate import evaluate_test, output_of
from ms_tune.source.shell.expand import expand_braces
from ms_tune.source.shell.parse import parse
from ms_tune.source.shell.settings import READING, Settings
from ms_tune.source.shell.syntax import (
    DECLARING,
    Assign,
    Command,
    CommandKind,
    File,
    Redirection,
    Script,
    ScriptPlace,
    Substitution,
    TextInside,
    Word,
)
from ms_tune.source.shell.values import (
    Argument,
    Piece,
    Pieces,
    Reason,
    ShellState,
    Unknown,
    array_of,
    join_script,
    merge_states,
    plain_value,
    text_of,
    unknown_piece,
)

MAX_CALLS = 16  # nested functions and files
MAX_SELF = 2  # files within themselves

_FACTS = load("bash")
_SHELLS = frozenset(_FACTS["shells"])
_QUIET = frozenset(_FACTS["quiet"])
_SMALL = re.compile(r"0|[1-9]\d{0,5}")
# Scripts that set up an environment rather than the script's own variables; they are not read.
_ENVIRONMENT_SCRIPTS = frozenset(_FACTS["environment_scripts"])
_OF_AN_ENVIRONMENT = re.compile(r"(ASCEND|ATB|ASDOPS|HCCL|LCCL|TOOLCHAIN|CONDA|VIRTUAL_ENV)\w*|\w*(PATH|HOME|PRELOAD)")
# A program started indirectly, which is not followed: `find -exec python a.py`, `ssh host "bash run.sh"`.
_STARTS = re.compile(
    r"\b(?:msrun|torchrun|deepspeed|accelerate|python[\d.]*)\b[^;|&]*\.py\b|\b(?:ba)?sh\b[^;|&]*\.sh\b"
)
_MAX_SEARCHED = 10_000


@dataclass(frozen=True, slots=True)
class Started:
    """A command outside the shell: a program that the script starts."""

    words: tuple[Argument, ...]  # the command and its arguments
    environment: Mapping[str, Pieces]  # the script's variables that the program sees
    conditional: bool  # whether unknown values determine if, or how often, it is started
    place: ScriptPlace  # position of the command


class Flow(Enum):
    """Where the script continues after a command."""

    NEXT = auto()
    LEAVE = auto()  # after the loop or the function
    EXIT = auto()  # nowhere: the script ends


class Outcome(NamedTuple):
    """Where the script continues after a command, and whether the command succeeded (None if unknown)."""

    flow: Flow = Flow.NEXT
    success: bool | None = None


DONE = Outcome(Flow.NEXT, success=True)
UNCLEAR = Outcome()


class Streams(NamedTuple):
    """Input and output of commands."""

    input: Pieces | None = None  # their input, if it is known
    piped: bool = False  # whether their input is unknown
    printed: list[Piece] | None = None  # the captured output; None if it is not captured
    conditions: int = 0  # number of unknown conditions around the code that captures the output


class CommandFollower(Settings):
    """Base class that follows simple commands; :class:`~ms_tune.source.shell.follow.Follower` adds compound commands."""

    def __init__(self, source: Callable[[str], File | None], *, assumes_defaults: bool = False) -> None:
        super().__init__()
        self.started: list[Started] = []
        self.unknown: list[Unknown] = []  # reasons why the script cannot be followed completely
        self.exits = 0  # number of earlier points at which the script may have ended
        self.streams = Streams()
        self.functions: dict[str, list[Command]] = {}  # all definitions of each function, by name
        self.loop_exits: list[list[ShellState]] = []  # the states at which each surrounding loop was left
        self.call_exits: list[list[ShellState]] = []  # the same for functions and sourced files
        self._source, self.assumes_defaults = source, assumes_defaults
        self._calls = 0
        self._following: tuple[str, ...] = ()  # the texts of the files being followed, the innermost last
        self._written: set[str] = set()  # files written by the script
        self._setting = {"set": self.set_options, "shift": self.shift_words, "unset": self.unset_variables}
        self._builtins: dict[str, Callable[[list[Argument], ScriptPlace], Outcome]] = {
            **dict.fromkeys(("break", "continue"), self._break),
            **dict.fromkeys(("source", "."), self._follow_sourced),
            **dict.fromkeys(("true", ":", "false", "[", "test"), self._test),
            **dict.fromkeys(("alias", "trap"), self._handle_alias_or_trap),
            **dict.fromkeys(("exit", "exec"), self._exit),
            "return": self._return,
            "eval": self._eval,
            "echo": self._echo,
        }

    @abstractmethod
    def run(self, command: Command) -> Outcome:
        """Follow one command and update the state."""

    @abstractmethod
    def run_in_subshell(self, command: Command) -> Outcome:
        """Follow a command in a subshell: its assignments are discarded."""

    def simple(self, command: Command) -> Outcome:
        """Follow a simple command."""
        written = command.words or ()
        count = next((at for at, word in enumerate(written) if isinstance(word, Word)), len(written))
        ahead = [word for word in written[:count] if isinstance(word, Assign)]
        words: list[Argument | Assign] = []
        for word in written[count:]:
            words += self.arguments([word]) if isinstance(word, Word) else _assigns(word)
        outer, exported = {one.name: self.state.variables.get(one.name) for one in ahead}, self.state.exported
        for one in ahead:
            self.store(one, self.value_assigned(one))
            self.state.exported |= {one.name} if words else set()
        if not words:
            unclear = written[count:] or command.redirections or any(map(_substitutes, ahead))
            return UNCLEAR if unclear else DONE
        with self.redirect(command.redirections, command.place):
            outcome = self._command(words, command.place)
        for name, value in outer.items():
            self.state.restore(name, value)
        self.state.exported = exported if outer else self.state.exported
        return outcome

    def _command(self, words: list[Argument | Assign], place: ScriptPlace) -> Outcome:
        arguments = [word for word in words if isinstance(word, Argument)]
        name = arguments[0].text
        while name in ("command", "builtin", "coproc") and len(arguments) > 1:
            if (arguments[1].text or "-").startswith("-"):
                break
            arguments, words = arguments[1:], words[1:]
            name = arguments[0].text
        if name is None or arguments[0].open:
            self._start(arguments, place)
        elif name in self.state.functions:
            return self._function(name, arguments, place)
        elif name in self._builtins:
            return self._builtins[name](arguments, place)
        elif name in DECLARING:
            self.declare(words)
            return DONE
        elif name in self._setting:
            self._setting[name](arguments, place)
        elif name in READING:
            self.read_variables(arguments, place, self.streams.input)
            self.print(None, place)
        elif name in _QUIET:
            self.print(None, place)
        else:
            self._start(arguments, place)
        return UNCLEAR

    def _start(self, words: list[Argument], place: ScriptPlace) -> None:
        """Record a program; follow a shell that runs a file or the text after ``-c``."""
        values = ((name, self.state.variables.get(name)) for name in self.state.exported)
        environment = {name: value.pieces for name, value in values if value and value.elements and not value.array}
        self.started.append(Started(tuple(words), environment, self.conditions + self.exits > 0, place))
        self.print(self._output_of(words), place)
        name, base = (words[0].text or "", _base(words[0])) if words else ("", "")
        if base in _FACTS["changing_files"]:
            self._written |= {word.text for word in words[1:] if word.text}
        carried = is_wrapper(name) or base in _FACTS["carriers"]
        shells = [at for at, word in enumerate(words) if _base(word) in _SHELLS]
        at = -1 if name.endswith(SCRIPTS) else shells[0] if shells and (carried or shells[0] == 0) else None
        if at is not None:
            self._follow_shell(words[at + 1 :], name, place)
        elif self._is_unseen(words):
            self.unknown.append(Unknown(Reason.COMMAND, name, place))

    def _output_of(self, words: list[Argument]) -> Pieces | None:
        """Return a program's output, if its words and its input determine it."""
        texts = [word.text for word in words if word.text is not None and not word.open]
        if texts == ["cat"] and len(words) == 1 and not self.streams.piped:
            return self.streams.input
        printed = output_of(texts) if len(texts) == len(words) else None
        return None if printed is None else (Piece(printed, words[1].place),)

    def _is_unseen(self, words: Sequence[Argument]) -> bool:
        """Return whether a command starts a program that cannot be followed: ``find -exec``, ``ssh``, ``xargs``."""
        texts = [word.text or "" for word in words]
        base = texts[0].rpartition("/")[2] if texts else ""
        if base == "xargs":  # the program also gets the input as words
            return any(text in _SHELLS or find_launcher(text) is not None for text in texts)
        launcher = find_launcher(base)
        if is_wrapper(base) or (launcher is not None and not launcher.known):
            # The program is among the words, unless one of them, or the input, is a script.
            return any(map(_starts_program, [*texts[1:], text_of(self.streams.input or ()) or ""]))
        if launcher is not None or not base or base in _FACTS["not_starting"]:
            return False
        return _starts_program(" ".join(texts[1:]))

    def _handle_alias_or_trap(self, words: list[Argument], place: ScriptPlace) -> Outcome:
        """Handle ``alias`` and ``trap``; the command of an EXIT trap is followed once, with all variables unknown."""
        text = words[1].text if len(words) > 1 else None
        if words[0].text == "trap" and text and {"EXIT", "0"} & {word.text for word in words[2:]}:
            now, self.state = self.state, self.state.copy()
            self.state.forget(Unknown(Reason.COMMAND, "trap", place))
            self.conditions += 1
            with self._at_position(place):
                self.run(parse(TextInside(place, text)).body)
            self.conditions -= 1
            self.state = now
        elif self._is_unseen(words):
            self.unknown.append(Unknown(Reason.COMMAND, words[0].text or "", place))
        self.print(None, place)
        return UNCLEAR

    def _test(self, words: list[Argument], place: ScriptPlace) -> Outcome:  # noqa: ARG002
        """Handle ``true``, ``false`` and ``[ ... ]``."""
        name = words[0].text
        if name in ("true", ":", "false"):
            return Outcome(Flow.NEXT, success=name != "false")
        if any(word.open for word in words) or (name == "[" and words[-1].text != "]"):
            return UNCLEAR
        return Outcome(Flow.NEXT, evaluate_test([word.text for word in words[1 : -1 if name == "[" else None]]))

    # other builtins

    def _break(self, words: list[Argument], place: ScriptPlace) -> Outcome:  # noqa: ARG002
        for left in self.loop_exits if len(words) > 1 else self.loop_exits[-1:]:
            left.append(self.state.copy())
        return Outcome(Flow.LEAVE if self.loop_exits else Flow.NEXT)

    def _return(self, words: list[Argument], place: ScriptPlace) -> Outcome:  # noqa: ARG002
        if not self.call_exits:
            return Outcome(Flow.EXIT)
        self.call_exits[-1].append(self.state.copy())
        status = words[1].text if len(words) == 2 else None  # noqa: PLR2004 - and its exit status
        return Outcome(Flow.LEAVE, int(status) % 256 == 0 if status and _SMALL.fullmatch(status) else None)

    def _exit(self, words: list[Argument], place: ScriptPlace) -> Outcome:
        """Handle ``exit`` and ``exec``; ``exec`` without a program redirects all following commands."""
        if words[0].text == "exec" and not words[1:]:
            self.print(None, place)
            return UNCLEAR
        if words[0].text == "exec":
            self._start(words[1:], place)
        return Outcome(Flow.EXIT)

    # functions, files and texts that are followed

    def _run_body(self, body: Command, place: ScriptPlace, *, is_file: bool = True) -> Outcome:
        """Follow a function body or a sourced file, from which ``return`` leaves."""
        conditions, loops, self.loop_exits = self.conditions, self.loop_exits, []
        self.call_exits.append([])
        self._calls += 1
        outer, self._following = (
            self._following,
            (*self._following, body.place.file.text) if is_file else self._following,
        )
        outcome = self.run(body)
        self._following = outer
        self._calls -= 1
        self.conditions, self.loop_exits = conditions, loops
        ways = self.call_exits.pop()
        if outcome.flow is Flow.NEXT:
            ways.append(self.state)
        if not ways:
            return Outcome(Flow.EXIT)
        self.state = merge_states(ways, place)
        return Outcome(Flow.NEXT, outcome.success if len(ways) == 1 else None)

    def _function(self, name: str, words: list[Argument], place: ScriptPlace) -> Outcome:
        found = self.state.functions[name]
        if found is not None and self._calls < MAX_CALLS:
            return self._call(found, words, place)
        now = self.state
        self.conditions += 1
        for one in self.functions[name] if self._calls < MAX_CALLS else ():
            self.state = now.copy()
            self._call(one, words, place)  # or an unknown one, of an unreadable file
        self.conditions -= 1
        self.state = now
        self.state.forget(Unknown(Reason.BOUND if found else Reason.CONDITION, name, place))
        return UNCLEAR

    def _call(self, body: Command, words: list[Argument], place: ScriptPlace) -> Outcome:
        positional = self.state.variables.get("@")
        self.state.variables["@"] = array_of(words[1:], 1)
        self.enter_function()
        outcome = self._run_body(body, place, is_file=False)
        self.leave_function(place)
        self.state.restore("@", positional)
        return outcome

    def _follow_sourced(self, words: list[Argument], place: ScriptPlace) -> Outcome:
        path = words[1].text if len(words) > 1 else None
        found = self._file(path) if path else None
        repeats = self._repeats(found)
        around = (repeats or self._calls >= MAX_CALLS) and not self.conditions + self.exits
        unknown = Unknown(Reason.BOUND if around else Reason.FILE if path else Reason.COMMAND, path or "source", place)
        last = words[1].pieces[-1] if len(words) > 1 and words[1].pieces else None
        if last is not None and not last.unknown and (path or last.text).rpartition("/")[2] in _ENVIRONMENT_SCRIPTS:
            for name in filter(_OF_AN_ENVIRONMENT.fullmatch, self.state.variables):
                self.state.variables[name] = plain_value(Piece("", place, unknown=unknown))
            return UNCLEAR
        if found is None or repeats:
            return self.give_up(unknown)
        positional = self.state.variables.get("@")
        if words[2:]:
            self.state.variables["@"] = array_of(words[2:], 1)
        outcome = self._run_body(parse(found).body, place)
        if words[2:]:
            self.state.restore("@", positional)
        return outcome

    def give_up(self, unknown: Unknown) -> Outcome:
        """Record why something is not followed, and make all variables unknown."""
        self.unknown.append(unknown)
        self.state.forget(unknown)
        return UNCLEAR

    def _file(self, path: str) -> File | None:
        """Return a file in its current form; None if it cannot be read, is nested too deeply, or was written by the script."""
        names = {path, path.removeprefix("./"), f"./{path}"}
        return None if names & self._written or self._calls >= MAX_CALLS else self._source(path)

    def _repeats(self, file: File | None) -> bool:
        """Return whether a file is already being followed and would start itself without end."""
        return file is not None and self._following.count(file.text) >= MAX_SELF

    def _parse_text(self, file: File | None) -> Script | None:
        """Return a parsed script; None if it has syntax errors or is nested too deeply."""
        script = parse(file) if file is not None and self._calls < MAX_CALLS else None
        return script if script is not None and not script.problems else None

    def _eval(self, words: list[Argument], place: ScriptPlace) -> Outcome:
        text = join_script(words[1:], self.state)
        script = self._parse_text(TextInside(place, text) if text is not None else None)
        if script is None:
            return self.give_up(Unknown(Reason.COMMAND, "eval", place))
        self._calls += 1
        with self._at_position(place):
            outcome = self.run(script.body)
        self._calls -= 1
        return outcome

    def _follow_shell(self, words: list[Argument], name: str, place: ScriptPlace) -> None:
        """Follow the arguments of a shell: options, then a file or (``-c``) a text with arguments; else it reads its input."""
        at = 0
        while at < len(words) and (words[at].text or "").startswith("-"):
            at += 1 + (words[at].text in ("-o", "-O"))
        letters, rest = "".join(word.text or "" for word in words[:at] if (word.text or "")[:2] != "--"), words[at:]
        is_text, reads = "c" in letters, "c" not in letters and (not rest or "s" in letters)
        given = [Argument(self.streams.input)] if self.streams.input is not None else []
        if reads and not given and not self.streams.piped:
            return
        outer, inner = self.state, self._environment()
        inner.variables["@"] = array_of(rest[0 if reads else 1 + is_text :], 1)  # -c has a name ($0) after its text
        path = rest[0].text if rest and not (is_text or reads) else None
        file = self._file(path) if path else None
        script_words = given if reads else rest[:1]
        if (is_text or reads) and any(piece.text for word in script_words for piece in word.pieces):
            text = join_script(script_words, inner)
            file = TextInside(place, text) if text is not None else None
        repeats = self._repeats(file)
        script = None if repeats else self._parse_text(file)
        if script is None:
            reason = Reason.BOUND if repeats else Reason.FILE
            self.unknown.append(Unknown(reason if path else Reason.COMMAND, path or name, place))
            return
        exits, streams, self.streams = self.exits, self.streams, Streams()
        self.state = inner
        with self._at_position(place):
            self._run_body(script.body, place)
        self.state, self.exits, self.streams = outer, exits, streams

    def _environment(self) -> ShellState:
        """Return the initial state of a child shell: exported variables and functions."""
        exported = self.state.exported
        variables = {name: value for name, value in self.state.variables.items() if name in exported}
        functions = {name: value for name, value in self.state.functions.items() if f"{name}()" in exported}
        return ShellState(variables, functions, exported, self.state.all_unknown)

    @contextmanager
    def _at_position(self, place: ScriptPlace) -> Iterator[None]:
        """Assign to everything found in a nested script the position of the command that runs it."""
        started, unknown = len(self.started), len(self.unknown)
        yield
        self.started[started:] = [replace(one, place=place) for one in self.started[started:]]
        self.unknown[unknown:] = [replace(one, place=place) for one in self.unknown[unknown:]]

    # input and output of commands

    @contextmanager
    def redirect(self, redirections: tuple[Redirection, ...], place: ScriptPlace) -> Iterator[None]:
        """Redirect input and output within a ``with`` block."""
        streams = self.streams
        for one in redirections:
            pieces = self.value(one.to) if one.to is not None and one.operator not in ("<", "<>", "<&") else None
            if one.operator.startswith("<") and one.number in ("", "0"):
                end = (Piece("\n", place),) if one.operator == "<<<" else ()
                given = None if pieces is None else (*pieces, *end)
                self.streams = self.streams._replace(input=given, piped=given is None)
            elif one.operator.startswith((">", "&>")) and one.number in ("", "1"):
                name = text_of(pieces) if pieces is not None else None
                if name == "1" and one.operator == ">&":
                    continue
                if (name or "/dev").startswith("/dev") and name != "/dev/null":
                    self.print(None, place)
                self._written |= {name} if name else set()
                self.streams = self.streams._replace(printed=None)
        yield
        self.streams = streams

    def print(self, pieces: Pieces | None, place: ScriptPlace) -> None:
        """Record output, if it is captured; None for unknown output."""
        if self.streams.printed is not None:
            if pieces is None or self.conditions + self.exits > self.streams.conditions:
                pieces = (unknown_piece(Reason.COMMAND, "", place),)
            self.streams.printed.extend(self.bound_value(pieces, place))

    def _echo(self, words: list[Argument], place: ScriptPlace) -> Outcome:
        without_end = len(words) > 1 and words[1].text == "-n"
        texts = words[1 + without_end :]
        option = texts[0].text if texts else ""
        if option is None or re.fullmatch(r"-[neE]+", option) or any(word.open for word in texts):
            self.print(None, place)
            return UNCLEAR
        pieces = [piece for word in texts for piece in (Piece(" ", place), *word.pieces)]
        self.print((*pieces[1:], *([] if without_end else [Piece("\n", place)])), place)
        return UNCLEAR

    def printed_by(self, part: Substitution) -> Pieces | None:
        """Return the text that replaces ``$(...)``; None if it is unknown."""
        text, place = part.place.text, part.place
        if not text.startswith(("$(", "`", "<(", ">(")) or (text[0] == "`" and "\\" in text):
            return None
        script = parse(place.file, place.start + (1 if text[0] == "`" else 2), place.end - 1)
        first = script.body.inner[0] if script.body.inner else script.body
        if script.problems or (first.kind is CommandKind.SIMPLE and not first.words):
            return None
        printed: list[Piece] = []
        streams = self.streams
        self.streams = Streams(streams.input, streams.piped, printed, self.conditions + self.exits)
        self.run_in_subshell(script.body)
        self.streams = streams
        while printed and not printed[-1].unknown and printed[-1].text.endswith("\n"):
            last = printed.pop()
            printed += [replace(last, text=last.text.rstrip("\n"))] * bool(last.text.rstrip("\n"))
        # The text `$(...)` is a better explanation than the unknown part inside it.
        unsaid = (piece.unknown and piece.unknown.reason in (Reason.FILE, Reason.COMMAND) for piece in printed)
        return None if text[0] in "<>" or any(unsaid) else tuple(printed)


def _starts_program(text: str) -> bool:
    return _STARTS.search(text[:_MAX_SEARCHED]) is not None


def _base(word: Argument) -> str:
    return (word.text or "").rpartition("/")[2]


def _assigns(one: Assign) -> list[Argument | Assign]:
    """Return an assignment's words: after ``export`` it undergoes brace expansion, so ``A={1,2}`` gives two."""
    words = expand_braces(one.value) if isinstance(one.value, Word) else [one.value]
    return [replace(one, value=word) for word in words]


def _substitutes(one: Assign) -> bool:
    """Return whether the assigned value uses a command's output."""
    words = (one.value,) if isinstance(one.value, Word) else one.value
    return any(isinstance(part, Substitution) for word in words for part in word.parts)
