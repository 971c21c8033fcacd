"""Where commands read and write: pipes, redirections, ``$(...)``, files that the script writes, ``xargs``."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from ms_tune.facts.query import load
from ms_tune.source.shell.expand import Expander
from ms_tune.source.shell.given_text import document_pieces
from ms_tune.source.shell.outcome import CommandOutcome, Flow
from ms_tune.source.shell.parse import parse
from ms_tune.source.shell.state import unknown_piece
from ms_tune.source.shell.streams import Input, file_piece, printed_by
from ms_tune.source.shell.syntax import HereDocument, Redirection, Simple, Substitution, Word
from ms_tune.source.shell.values import Argument, Piece, Reason, ScriptPlace, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ms_tune.source.shell.outcome import Started
    from ms_tune.source.shell.state import ShellState
    from ms_tune.source.shell.syntax import Command
    from ms_tune.source.shell.values import File, Pieces

_OUT = frozenset((">", ">>", ">|", "&>", "&>>", ">&"))
_ITSELF = frozenset(("/dev/stdout", "/dev/fd/1", "1"))
_MOST_FILES = 64
_CHANGING = frozenset(load("bash")["changing_files"])


class Plumbing(ABC):
    """What follows commands knows of their input and output."""

    def __init__(self) -> None:
        self.started: list[Started] = []
        self._expander = Expander(self._substituted)
        self._conditions = 0
        self._exits = 0
        self._input: Input | None = None
        self._output: list[Piece] | None = None
        self._sure = 0  # how many unknown conditions lie around what is printed
        self._files: dict[str, Pieces] = {}

    @abstractmethod
    def run(self, command: Command, state: ShellState, file: File) -> CommandOutcome:
        """Follow one command; the state becomes what holds behind it."""

    @abstractmethod
    def _in_quotes(self, state: ShellState, place: ScriptPlace, text: str) -> Argument | None: ...

    @abstractmethod
    def _start(self, arguments: list[Argument], state: ShellState, place: ScriptPlace) -> None: ...

    @contextmanager
    def _connected(self, given: Input | None, printed: list[Piece] | None) -> Iterator[None]:
        before = self._input, self._output, self._sure
        self._input, self._output, self._sure = given, printed, self._conditions + self._exits
        yield
        self._input, self._output, self._sure = before

    def _apart(self, command: Command, state: ShellState, file: File) -> CommandOutcome:
        """In a shell of its own: what is set there is lost."""
        exits = self._exits
        outcome = self.run(command, state.copy(), file)
        self._exits = exits
        return CommandOutcome(Flow.NEXT, outcome.success if outcome.flow is Flow.NEXT else None)

    # output

    def _print(self, pieces: Pieces | None, place: ScriptPlace) -> None:
        if self._output is None:
            return
        if pieces is None or self._conditions + self._exits > self._sure:
            pieces = (unknown_piece(Reason.COMMAND, "", place),)
        self._output += self._expander.bounded(pieces, place)

    def _printed_by(self, arguments: list[Argument], place: ScriptPlace) -> None:
        """Print what a command prints, if anybody asks."""
        name = arguments[0].text if arguments else None
        if self._output is not None and (name not in _SILENT or any(word.text == "-" for word in arguments)):
            self._print(printed_by(arguments, self._input, place) if arguments else None, place)

    def _substituted(self, part: Substitution, state: ShellState, file: File) -> Pieces | None:
        """What stands in the place of ``$(...)``; None where only a run could tell."""
        start, end = part.start + (2 if part.text.startswith("$(") else 1), part.end - 1
        if not part.text.startswith(("$(", "`", "<(")) or file.text[part.start : part.end] != part.text:
            return None
        if part.text.startswith("`") and "\\" in part.text:
            return None
        script = parse(file.text[:end], start)
        first = script.body.commands[0][0] if script.body.commands else None
        if script.problems or (isinstance(first, Simple) and not first.words and first.redirections):
            return None
        printed: list[Piece] = []
        with self._connected(self._input, printed):
            self._apart(script.body, state, file)
        if part.text.startswith("<("):
            return None
        while printed and not printed[-1].unknown and printed[-1].text.endswith("\n"):
            text = printed.pop().text.rstrip("\n")
            printed += [Piece(text, ScriptPlace(file, part.start, part.end))] * bool(text)
        if any(piece.unknown and piece.unknown.reason in (Reason.FILE, Reason.COMMAND) for piece in printed):
            return None  # what $(...) says tells more than what is in it
        return tuple(printed)

    # redirections

    @contextmanager
    def _redirected(
        self, redirections: tuple[Redirection, ...], state: ShellState, place: ScriptPlace
    ) -> Iterator[None]:
        given, printed = self._input, self._output
        target: tuple[str, bool] | None = None
        for one in redirections:
            if one.operator.startswith("<") and one.number in ("", "0"):
                given = Input(self._read_from(one, state, place))
            elif one.operator in _OUT and one.number in ("", "1"):
                name = text_of(self._expander.value(one.to, state, place.file)) if isinstance(one.to, Word) else None
                if name not in _ITSELF:
                    printed, target = None, (name, ">>" in one.operator) if name and one.operator != ">&" else None
        if target is not None:
            printed = []
        if given is self._input and printed is self._output:
            yield
            return
        with self._connected(given, printed):
            yield
        if target is not None and printed is not None:
            self._written(*target, tuple(printed))

    def _written(self, name: str, more: bool, pieces: Pieces) -> None:  # noqa: FBT001 - whether it is added to what is there
        before = self._files.get(name, (file_piece(name, pieces[0].place),) if pieces else ()) if more else ()
        if self._conditions + self._exits:
            before, pieces = (), tuple(unknown_piece(Reason.COMMAND, name, piece.place) for piece in pieces[:1])
        if len(self._files) < _MOST_FILES and name != "/dev/null":
            self._files[name] = (*before, *pieces)

    def _writes(self, arguments: list[Argument], place: ScriptPlace) -> None:
        """Note the files that ``tee`` and its like write: what lies there when the script is read is not what is run."""
        name = (arguments[0].text or "").rpartition("/")[2]
        files = [word.text for word in arguments[1:] if word.text and not word.text.startswith("-")]
        if name == "tee":
            given = self._input.pieces if self._input is not None and not (self._input.at or self._input.lost) else None
            for file in files:
                pieces = given if given is not None else (unknown_piece(Reason.COMMAND, file, place),)
                self._written(file, any(word.text == "-a" for word in arguments), pieces)
        elif name in _CHANGING and (name != "sed" or any((word.text or "").startswith("-i") for word in arguments)):
            for file in files:
                self._files[file] = (unknown_piece(Reason.COMMAND, file, place),)

    def _file_of(self, name: str) -> Pieces | None:
        """What the script has written into a file; None where it has not."""
        for one in (name, name.removeprefix("./"), f"./{name}"):
            if one in self._files:
                return self._files[one]
        return None

    def _read_from(self, one: Redirection, state: ShellState, place: ScriptPlace) -> Pieces:
        if isinstance(one.to, HereDocument):
            return document_pieces(one.to, partial(self._in_quotes, state, place), place)
        if one.to is None:
            return (unknown_piece(Reason.INPUT, "<", place),)
        if one.operator == "<<<":
            value = self._expander.value(one.to, state, place.file)
            return (*(piece if piece.unknown else Piece(piece.text, place) for piece in value), Piece("\n", place))
        part = one.to.parts[0] if len(one.to.parts) == 1 else None
        if isinstance(part, Substitution) and part.text.startswith("<("):
            script = parse(place.file.text[: part.end - 1], part.start + 2)
            printed: list[Piece] = []
            if not script.problems and place.file.text[part.start : part.end] == part.text:
                with self._connected(self._input, printed):
                    self._apart(script.body, state, place.file)
                return tuple(printed)
        name = text_of(self._expander.value(one.to, state, place.file))
        if one.operator != "<" or name is None:
            return (unknown_piece(Reason.INPUT, "<", place),)
        return self._file_of(name) or (file_piece(name, place),)

    # xargs

    def _xargs(self, words: list[Argument], state: ShellState, place: ScriptPlace) -> None:
        """The commands that ``xargs`` makes of what it reads (``xargs(1)`` of the GNU findutils)."""
        options, command = _options(words)
        command = command or [Argument((Piece("echo", place),))]
        given = Input((file_piece(options["a"], place),)) if "a" in options else self._input
        text = given.text if given is not None else None
        if given is not None and len(given.pieces) == 1 and text is None:
            unknown = given.pieces[0].unknown
            written = self._file_of(unknown.name) if unknown and unknown.reason is Reason.FILE else None
            text = text_of(written) if written is not None else None
        items = _items(text, options)
        if items is None:
            self._maybe_start(
                [*command, Argument((unknown_piece(Reason.COMMAND, "xargs", place),), open=True)], options, state, place
            )
            return
        for several in items:
            if "I" in options:
                made = [_replaced(word, options["I"], several[0], place) for word in command]
            else:
                made = [*command, *(Argument((Piece(one, place, quoted=True),)) for one in several)]
            self._start(made, state, place)

    def _maybe_start(
        self, words: list[Argument], options: dict[str, str], state: ShellState, place: ScriptPlace
    ) -> None:
        """A command of which the last words are not known; with options that part them nobody knows how many there are."""
        several = bool(options.keys() & {"n", "L", "I", "?", "r"})
        if "I" in options:
            words = [
                Argument((unknown_piece(Reason.COMMAND, "xargs", place),))
                if options["I"] in (word.text or options["I"])
                else word
                for word in words[:-1]
            ]
        self._conditions += several
        self._start(words, state, place)
        self._conditions -= several


_SILENT = frozenset(
    (
        "cd",
        "wait",
        "shopt",
        "umask",
        "kill",
        "hash",
        "read",
        "unset",
        "shift",
        "let",
        "mapfile",
        "readarray",
        "getopts",
        "trap",
    )
)


def _options(words: list[Argument]) -> tuple[dict[str, str], list[Argument]]:
    """The options of ``xargs`` and the command behind them; ``?`` for one that is not read."""
    found: dict[str, str] = {}
    at = 0
    while at < len(words) and (text := words[at].text or "").startswith("-"):
        at += 1
        letter, value = text[1:2], text[2:]
        if letter in ("n", "L", "I", "P", "a", "d", "s", "E"):
            if not value:
                value, at = words[at].text or "" if at < len(words) else "", at + 1
            found[letter] = value
        elif text == "--":
            break
        elif text == "-i":
            found["I"] = "{}"
        elif set(text[1:]) <= set("rt0xp"):
            found |= dict.fromkeys(text[1:], "")
        else:
            found["?"] = text
    return found, words[at:]


def _items(text: str | None, options: dict[str, str]) -> Iterable[list[str]] | None:  # noqa: PLR0911 - a form a line
    """The words of each command; None where they are not known."""
    if text is None or "\\" in text or options.keys() & {"?", "L", "s", "E", "x", "p"}:
        return None
    if "d" in options or "0" in options:
        mark = options.get("d", "\0").replace("\\n", "\n").replace("\\t", "\t").replace("\\0", "\0")
        if len(mark) != 1:
            return None
        words = text.split(mark)
        words = words[: -1 if not words[-1] else None]
    else:
        try:
            words = shlex.split(text) if "I" not in options else [line.lstrip(" \t") for line in text.split("\n")]
        except ValueError:
            return None
        if "I" in options:
            words = [word for word in words if word]
            if set(text) & set("\"'\t") or any(word.endswith(" ") for word in words):
                return None
    if "I" in options:
        return [[word] for word in words]
    count = options.get("n", "")
    if "n" in options:
        if not count.isdigit() or not int(count):
            return None
        return [words[at : at + int(count)] for at in range(0, len(words), int(count))]
    return [words] if words or "r" not in options else []


def _replaced(word: Argument, mark: str, text: str, place: ScriptPlace) -> Argument:
    if word.text is None or mark not in word.text:
        return word
    return Argument((Piece(word.text.replace(mark, text), place, quoted=True),))
