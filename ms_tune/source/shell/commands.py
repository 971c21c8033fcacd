"""Follows one simple command of a script: what it sets, calls, sources, prints or starts. Nothing is run."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.facts.launchers import is_wrapper, launcher_named
from ms_tune.facts.query import load
from ms_tune.source import SCRIPTS
from ms_tune.source.shell.conditions import holds_test
from ms_tune.source.shell.expand import Expander, expand_braces
from ms_tune.source.shell.parse import parse
from ms_tune.source.shell.settings import (
    READING,
    Locals,
    declare_variables,
    output_of,
    read_variables,
    restore_variable,
    set_options,
    shift_words,
    store_value,
    unset_variables,
    value_assigned,
)
from ms_tune.source.shell.syntax import (
    DECLARING,
    Assign,
    Command,
    CommandKind,
    HereDocument,
    Substitution,
    Word,
)
from ms_tune.source.shell.values import (
    Argument,
    Piece,
    Reason,
    ScriptPlace,
    ShellState,
    TextInside,
    Unknown,
    join_script,
    merge_states,
    text_of,
    unknown_piece,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ms_tune.source.shell.syntax import Redirection
    from ms_tune.source.shell.values import File, Pieces

MAX_CALLS = 16  # functions and files inside of each other

_FACTS = load("bash")
_SHELLS = frozenset(_FACTS["shells"])
_SETTING = {"set": set_options, "shift": shift_words, "unset": unset_variables}
_QUIET = frozenset(_FACTS["quiet"])
_SMALL = re.compile(r"0|[1-9]\d{0,5}")
# What sets up an environment, and not the variables of a script; it is not read.
_ENVIRONMENT_SCRIPTS = frozenset(_FACTS["environment_scripts"])
_OF_AN_ENVIRONMENT = re.compile(r"(ASCEND|ATB|ASDOPS|HCCL|LCCL|TOOLCHAIN|CONDA|VIRTUAL_ENV)\w*|\w*(PATH|HOME|PRELOAD)")
# A program that a command starts which is not followed: `find -exec python a.py`, `ssh host "bash run.sh"`.
_STARTS = re.compile(
    r"\b(?:msrun|torchrun|deepspeed|accelerate|python[\d.]*)\b[^;|&]*\.py\b|\b(?:ba)?sh\b[^;|&]*\.sh\b"
)
_MAX_SEARCHED = 10_000


@dataclass(frozen=True, slots=True)
class Started:
    """A command that is no part of the shell: a program that the script starts."""

    words: tuple[Argument, ...]  # the command and its arguments
    environment: Mapping[str, Pieces]  # the variables that it sees of those that the script sets
    conditional: bool  # whether it depends on what is unknown that it is started at all, or how often
    place: ScriptPlace  # where the command stands


class Flow(Enum):
    """How things go on behind a command."""

    NEXT = auto()
    LEAVE = auto()  # behind the loop or the function
    EXIT = auto()  # nowhere: the script ends


class Outcome(NamedTuple):
    """How a command ended: how things go on, and whether it succeeded (None if that cannot be told)."""

    flow: Flow = Flow.NEXT
    success: bool | None = None


DONE = Outcome(Flow.NEXT, success=True)
UNCLEAR = Outcome()


class Streams(NamedTuple):
    """Where commands read and write."""

    given: Pieces | None = None  # what they read, where the script has it
    piped: bool = False  # whether they read what only a run could tell
    printed: list[Piece] | None = None  # what is printed, if anybody asks
    conditions: int = 0  # how many unknown conditions lie around the one who asks


class CommandFollower(ABC):
    """Follows simple commands; what is made of several, :class:`~ms_tune.source.shell.follow.Follower` does.

    Args:
        source: Reads a file that a script names; None if it cannot be read.
    """

    def __init__(self, source: Callable[[str], File | None]) -> None:
        self.started: list[Started] = []
        self.unknown: list[Unknown] = []  # what keeps the script from being followed as a whole
        self.conditions = 0  # unknown conditions around what is followed
        self.exits = 0  # places before it where the script has perhaps ended
        self.streams = Streams()
        self.expander = Expander(self._printed_by)
        self.functions: dict[str, list[tuple[Command, File]]] = {}  # every one that was defined, by its name
        self.left_loops: list[list[ShellState]] = []  # what held where each of the loops around was left
        self.left_calls: list[list[ShellState]] = []  # the same for functions and files
        self._source = source
        self._calls = 0
        self._written: set[str] = set()  # files that the script writes
        self._locals: list[Locals] = []
        self._builtins = {
            **dict.fromkeys(("break", "continue"), self._break),
            **dict.fromkeys(("source", "."), self._sourced),
            **dict.fromkeys(("true", ":", "false", "[", "test"), self._test),
            **dict.fromkeys(("alias", "trap"), self._set_aside),
            **dict.fromkeys(("exit", "exec"), self._exit),
            "return": self._return,
            "eval": self._eval,
            "echo": self._echo,
        }

    @abstractmethod
    def run(self, command: Command, state: ShellState, file: File) -> Outcome:
        """Follow one command; the state becomes what holds behind it."""

    @abstractmethod
    def run_in_subshell(self, command: Command, state: ShellState, file: File) -> Outcome:
        """Follow one in a shell of its own: what is set there is lost."""

    def simple(self, command: Command, state: ShellState, file: File) -> Outcome:
        """Follow a simple command."""
        place = ScriptPlace(file, command.start, command.end)
        written = command.words or ()
        count = next((at for at, word in enumerate(written) if isinstance(word, Word)), len(written))
        ahead = [word for word in written[:count] if isinstance(word, Assign)]
        words: list[Argument | Assign] = []
        for word in written[count:]:
            words += self.expander.arguments([word], state, file) if isinstance(word, Word) else _assigns(word)
        outer, exported = {one.name: state.variables.get(one.name) for one in ahead}, state.exported
        for one in ahead:
            store_value(one, value_assigned(one, self.expander, state, file), self.expander, state, file)
            state.exported |= {one.name} if words else set()
        if not words:
            unclear = written[count:] or command.redirections or any(_substitutes(one) for one in ahead)
            return UNCLEAR if unclear else DONE
        with self.redirect(command.redirections, state, place):
            outcome = self._command(words, state, file, place)
        for name, value in outer.items():
            restore_variable(state, name, value)
        state.exported = exported if outer else state.exported
        return outcome

    def _command(self, words: list[Argument | Assign], state: ShellState, file: File, place: ScriptPlace) -> Outcome:
        arguments = [word for word in words if isinstance(word, Argument)]
        name = arguments[0].text
        while name in ("command", "builtin", "coproc") and len(arguments) > 1:
            if (arguments[1].text or "-").startswith("-"):
                break
            arguments, words = arguments[1:], words[1:]
            name = arguments[0].text
        if name is not None and not arguments[0].open:
            if name in state.functions:
                return self._function(name, arguments, state, place)
            if name in DECLARING:
                own = self._locals[-1] if self._locals else None
                declare_variables(words, self.expander, state, file, own, self.conditions)
                return DONE
            if name in self._builtins:
                return self._builtins[name](arguments, state, place)
            if name in _SETTING:
                _SETTING[name](arguments, state, place)
                return UNCLEAR
            if name in READING:
                line = text_of(self.streams.given) if self.streams.given is not None else None
                read_variables(arguments, state, place, line.removesuffix("\n") if line is not None else None)
        if name in _QUIET or name in READING:
            self.print(None, place)
        else:
            self._start(arguments, state, place)
        return UNCLEAR

    def _start(self, words: list[Argument], state: ShellState, place: ScriptPlace) -> None:
        """A program; a shell is followed where it is given a file, or a text behind ``-c``."""
        values = ((name, state.variables.get(name)) for name in state.exported)
        environment = {name: value for name, value in values if isinstance(value, tuple)}
        self.started.append(Started(tuple(words), environment, self.conditions + self.exits > 0, place))
        name = words[0].text or "" if words else ""
        reads = name == "cat" and len(words) == 1 and not self.streams.piped
        self.print(self.streams.given if reads else output_of(words), place)
        base = _base(words[0]) if words else ""
        if base in _FACTS["changing_files"]:
            self._written |= {word.text for word in words[1:] if word.text}
        carried = is_wrapper(name) or base in _FACTS["carriers"]
        shells = [at for at, word in enumerate(words) if _base(word) in _SHELLS]
        at = -1 if name.endswith(SCRIPTS) else shells[0] if shells and (carried or shells[0] == 0) else None
        if at is not None:
            self._follow_shell(words[at + 1 :], state, name, place)
        elif self._is_unseen(words):
            self.unknown.append(Unknown(Reason.COMMAND, name, place))

    def _is_unseen(self, words: Sequence[Argument]) -> bool:
        """Whether a command starts a program that is not followed: ``find -exec``, ``ssh``, ``xargs``."""
        texts = [word.text or "" for word in words]
        base = texts[0].rpartition("/")[2] if texts else ""
        if base == "xargs":  # the program gets what is read, too
            return any(text in _SHELLS or launcher_named(text) is not None for text in texts)
        launcher = launcher_named(base)
        if is_wrapper(base) or (launcher is not None and not launcher.known):
            # The program is among the words, unless one of them, or what it reads, is a script.
            read = text_of(self.streams.given) if self.streams.given is not None else None
            return any(map(_starts_program, [*texts[1:], read or ""]))
        if launcher is not None or not base or base in _FACTS["not_starting"]:
            return False
        return _starts_program(" ".join(texts[1:]))

    def _set_aside(self, words: list[Argument], state: ShellState, place: ScriptPlace) -> Outcome:
        """``alias`` and ``trap``: commands that are kept for later. What is asked for at the end is followed, knowing nothing."""
        text = words[1].text if len(words) > 1 else None
        if words[0].text == "trap" and text and {"EXIT", "0"} & {word.text for word in words[2:]}:
            later = state.copy()
            later.forget(Unknown(Reason.COMMAND, "trap", place))
            self.conditions += 1
            with self._standing_at(place):
                self.run(parse(text).body, later, TextInside(place, text))
            self.conditions -= 1
        elif self._is_unseen(words):
            self.unknown.append(Unknown(Reason.COMMAND, words[0].text or "", place))
        self.print(None, place)
        return UNCLEAR

    def _test(self, words: list[Argument], state: ShellState, place: ScriptPlace) -> Outcome:  # noqa: ARG002
        """``true``, ``false``, ``[ ... ]``."""
        name = words[0].text
        if name in ("true", ":", "false"):
            return Outcome(Flow.NEXT, success=name != "false")
        if any(word.open for word in words) or (name == "[" and words[-1].text != "]"):
            return UNCLEAR
        return Outcome(Flow.NEXT, holds_test([word.text for word in words[1 : -1 if name == "[" else None]]))

    # what is left

    def _break(self, words: list[Argument], state: ShellState, place: ScriptPlace) -> Outcome:  # noqa: ARG002
        for left in self.left_loops if len(words) > 1 else self.left_loops[-1:]:
            left.append(state.copy())
        return Outcome(Flow.LEAVE if self.left_loops else Flow.NEXT)

    def _return(self, words: list[Argument], state: ShellState, place: ScriptPlace) -> Outcome:  # noqa: ARG002
        if not self.left_calls:
            return Outcome(Flow.EXIT)
        self.left_calls[-1].append(state.copy())
        status = words[1].text if len(words) == 2 else None  # noqa: PLR2004 - and what it returns
        return Outcome(Flow.LEAVE, int(status) % 256 == 0 if status and _SMALL.fullmatch(status) else None)

    def _exit(self, words: list[Argument], state: ShellState, place: ScriptPlace) -> Outcome:
        """``exit``, and ``exec`` of a program; without one it says where things are read and written from here on."""
        if words[0].text == "exec" and not words[1:]:
            self.print(None, place)
            return UNCLEAR
        if words[0].text == "exec":
            self._start(words[1:], state, place)
        return Outcome(Flow.EXIT)

    # functions, files and texts that are followed

    def _run_body(self, body: Command, state: ShellState, file: File, place: ScriptPlace) -> Outcome:
        """Follow a body that `return` leaves."""
        conditions, loops, self.left_loops = self.conditions, self.left_loops, []
        self.left_calls.append([])
        self._calls += 1
        outcome = self.run(body, state, file)
        self._calls -= 1
        self.conditions, self.left_loops = conditions, loops
        ways = self.left_calls.pop()
        if outcome.flow is Flow.NEXT:
            ways.append(state.copy())
        if not ways:
            return Outcome(Flow.EXIT)
        state.take(merge_states(ways, place))
        return Outcome(Flow.NEXT, outcome.success if len(ways) == 1 else None)

    def _function(self, name: str, words: list[Argument], state: ShellState, place: ScriptPlace) -> Outcome:
        found = state.functions[name]
        if found is not None and self._calls < MAX_CALLS:
            return self._call(found, words, state, place)
        self.conditions += 1
        for one in self.functions[name] if self._calls < MAX_CALLS else ():
            self._call(one, words, state.copy(), place)  # or one that a file defines which could not be read
        self.conditions -= 1
        state.forget(Unknown(Reason.BOUND if found else Reason.CONDITION, name, place))
        return UNCLEAR

    def _call(
        self, found: tuple[Command, File], words: list[Argument], state: ShellState, place: ScriptPlace
    ) -> Outcome:
        positional, state.positional = state.positional, tuple(words[1:])
        self._locals.append(Locals({}, set(), self.conditions))
        outcome = self._run_body(found[0], state, found[1], place)
        own = self._locals.pop()
        for one, value in own.values.items():
            restore_variable(state, one, value)
        for one in own.perhaps:
            state.variables[one] = (unknown_piece(Reason.CONDITION, one, place),)
        state.positional = positional
        return outcome

    def _sourced(self, words: list[Argument], state: ShellState, place: ScriptPlace) -> Outcome:
        path = words[1].text if len(words) > 1 else None
        around = self._calls >= MAX_CALLS and not self.conditions + self.exits
        unknown = Unknown(Reason.BOUND if around else Reason.FILE if path else Reason.COMMAND, path or "source", place)
        last = words[1].pieces[-1] if len(words) > 1 and words[1].pieces else None
        if last is not None and not last.unknown and (path or last.text).rpartition("/")[2] in _ENVIRONMENT_SCRIPTS:
            for name in filter(_OF_AN_ENVIRONMENT.fullmatch, state.variables):
                state.variables[name] = (Piece("", place, unknown=unknown),)
            return UNCLEAR
        found = self._file(path) if path else None
        if found is None:
            self.unknown.append(unknown)
            state.forget(unknown)
            return UNCLEAR
        positional = state.positional
        state.positional = tuple(words[2:]) or positional
        outcome = self._run_body(parse(found.text).body, state, found, place)
        state.positional = positional if words[2:] else state.positional
        return outcome

    def _file(self, path: str) -> File | None:
        """A file that is read as it lies there; None if it cannot be, or if the script writes it before."""
        names = {path, path.removeprefix("./"), f"./{path}"}
        return None if names & self._written or self._calls >= MAX_CALLS else self._source(path)

    def _eval(self, words: list[Argument], state: ShellState, place: ScriptPlace) -> Outcome:
        text = join_script(words[1:], state)
        script = parse(text) if text is not None and self._calls < MAX_CALLS else None
        if text is None or script is None or script.problems:
            unknown = Unknown(Reason.COMMAND, "eval", place)
            self.unknown.append(unknown)
            state.forget(unknown)
            return UNCLEAR
        self._calls += 1
        with self._standing_at(place):
            outcome = self.run(script.body, state, TextInside(place, text))
        self._calls -= 1
        return outcome

    def _follow_shell(self, words: list[Argument], state: ShellState, name: str, place: ScriptPlace) -> None:
        """What stands behind a shell: options, then a file or (``-c``) a text, and what that is given; without either it reads a script."""
        at = 0
        while at < len(words) and (words[at].text or "").startswith("-"):
            at += 1 + (words[at].text in ("-o", "-O"))
        letters, behind = "".join(word.text or "" for word in words[:at] if (word.text or "")[:2] != "--"), words[at:]
        is_text, reads = "c" in letters, "c" not in letters and (not behind or "s" in letters)
        given = [Argument(self.streams.given)] if self.streams.given is not None else []
        if reads and not given and not self.streams.piped:
            return
        inner = ShellState(exported=state.exported, all_unknown=state.all_unknown)
        inner.variables = {one: value for one, value in state.variables.items() if one in state.exported}
        inner.functions = {one: value for one, value in state.functions.items() if f"{one}()" in state.exported}
        inner.positional = tuple(behind[0 if reads else 1 + is_text :])  # behind a text stands its name
        path = behind[0].text if behind and not (is_text or reads) else None
        file = self._file(path) if path else None
        text, script_words = file.text if file is not None else None, given if reads else behind[:1]
        if (is_text or reads) and any(piece.text for word in script_words for piece in word.pieces):
            text = join_script(script_words, inner)
        script = parse(text) if text is not None and self._calls < MAX_CALLS else None
        if text is None or script is None or script.problems:
            self.unknown.append(Unknown(Reason.FILE if path else Reason.COMMAND, path or name, place))
            return
        exits, streams, self.streams = self.exits, self.streams, Streams()
        with self._standing_at(place):
            self._run_body(script.body, inner, file or TextInside(place, text), place)
        self.exits, self.streams = exits, streams

    @contextmanager
    def _standing_at(self, place: ScriptPlace) -> Iterator[None]:
        """What comes of a text that was put together, or of another script, stands where that was done."""
        started, unknown = len(self.started), len(self.unknown)
        yield
        self.started[started:] = [replace(one, place=place) for one in self.started[started:]]
        self.unknown[unknown:] = [replace(one, place=place) for one in self.unknown[unknown:]]

    # where commands read and write

    @contextmanager
    def redirect(self, redirections: tuple[Redirection, ...], state: ShellState, place: ScriptPlace) -> Iterator[None]:
        """Read and write elsewhere for a while."""
        streams = self.streams
        for one in redirections:
            to = one.to
            if one.operator.startswith("<") and one.number in ("", "0"):
                given: Pieces | None = None
                if isinstance(to, HereDocument) and to.parts is not None:
                    given = self.expander.join_parts(to.parts, state, place)
                elif isinstance(to, Word) and one.operator == "<<<":
                    given = (*self.expander.value(to, state, place.file), Piece("\n", place))
                self.streams = self.streams._replace(given=given, piped=given is None)
            elif one.operator.startswith((">", "&>")) and one.number in ("", "1"):
                name = text_of(self.expander.value(to, state, place.file)) if isinstance(to, Word) else None
                if name == "1" and one.operator == ">&":
                    continue
                if (name or "/dev").startswith("/dev") and name != "/dev/null":
                    self.print(None, place)
                self._written |= {name} if name else set()
                self.streams = self.streams._replace(printed=None)
        yield
        self.streams = streams

    def print(self, pieces: Pieces | None, place: ScriptPlace) -> None:
        """Note what is printed, if anybody asks; None for what only a run could tell."""
        if self.streams.printed is not None:
            if pieces is None or self.conditions + self.exits > self.streams.conditions:
                pieces = (unknown_piece(Reason.COMMAND, "", place),)
            self.streams.printed.extend(self.expander.bound_value(pieces, place))

    def _echo(self, words: list[Argument], state: ShellState, place: ScriptPlace) -> Outcome:  # noqa: ARG002
        without_end = len(words) > 1 and words[1].text == "-n"
        texts = words[1 + without_end :]
        option = texts[0].text if texts else ""
        if option is None or re.fullmatch(r"-[neE]+", option) or any(word.open for word in texts):
            self.print(None, place)
            return UNCLEAR
        pieces = [piece for word in texts for piece in (Piece(" ", place), *word.pieces)]
        self.print((*pieces[1:], *([] if without_end else [Piece("\n", place)])), place)
        return UNCLEAR

    def _printed_by(self, part: Substitution, state: ShellState, file: File) -> Pieces | None:
        """What stands in the place of ``$(...)``; None where only a run could tell."""
        text = file.text[part.start : part.end]
        if not text.startswith(("$(", "`", "<(", ">(")) or (text[0] == "`" and "\\" in text):
            return None
        script = parse(file.text[: part.end - 1], part.start + (1 if text[0] == "`" else 2))
        first = script.body.inner[0] if script.body.inner else script.body
        if script.problems or (first.kind is CommandKind.SIMPLE and not first.words):
            return None
        printed: list[Piece] = []
        streams = self.streams
        self.streams = Streams(streams.given, streams.piped, printed, self.conditions + self.exits)
        self.run_in_subshell(script.body, state, file)
        self.streams = streams
        while printed and not printed[-1].unknown and printed[-1].text.endswith("\n"):
            last = printed.pop()
            printed += [replace(last, text=last.text.rstrip("\n"))] * bool(last.text.rstrip("\n"))
        # What $(...) says tells more than what is in it.
        unsaid = (piece.unknown and piece.unknown.reason in (Reason.FILE, Reason.COMMAND) for piece in printed)
        return None if text[0] in "<>" or any(unsaid) else tuple(printed)


def _starts_program(text: str) -> bool:
    return _STARTS.search(text[:_MAX_SEARCHED]) is not None


def _base(word: Argument) -> str:
    """The name of a program without its folder."""
    return (word.text or "").rpartition("/")[2]


def _assigns(one: Assign) -> list[Argument | Assign]:
    """Behind ``export`` an assignment is a word, too: ``A={1,2}`` is two of them."""
    words = expand_braces(one.value) if isinstance(one.value, Word) else [one.value]
    return [replace(one, value=word) for word in words]


def _substitutes(one: Assign) -> bool:
    """Whether what is assigned is what a command prints."""
    words = (one.value,) if isinstance(one.value, Word) else one.value
    return any(isinstance(part, Substitution) for word in words for part in word.parts)
