"""Find the programs that a launch script starts, with their launchers and arguments, without running anything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from math import prod
from pathlib import Path

from ms_tune.errors import ConfigError, closest
from ms_tune.facts.launchers import Launcher, find_launcher, is_wrapper, launcher_of_module
from ms_tune.source.shell.commands import Started
from ms_tune.source.shell.follow import Follower
from ms_tune.source.shell.parse import parse
from ms_tune.source.shell.syntax import (
    Assign,
    Command,
    CommandKind,
    File,
    Parameter,
    Part,
    QuotedText,
    ScriptPlace,
    ShellSyntaxError,
    Word,
)
from ms_tune.source.shell.values import Argument, Pieces, Reason, Unknown
from ms_tune.source.yaml import read_text

MAX_BYTES = 1024**2
MAX_FILES = 32
_PARENTS = 6  # parent folders in which a file named in a script is searched
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=")
_DEFAULT = re.compile(r"\$\{\w+:?[-=]")
_SIMILAR = 0.8  # similarity of two names that differ by one letter or a word ending


@dataclass(frozen=True, slots=True)
class Launch:
    """One program that a script starts."""

    launcher: Launcher  # the command that starts it
    options: Mapping[str, Argument | None]  # the launcher's options with their values; the last value of each
    # The program, or the module after `-m`; None if it is unknown which word that is.
    program: Argument | None
    arguments: tuple[Argument, ...]  # the program's arguments
    environment: Mapping[str, Pieces]  # the script's variables that the program sees
    conditional: bool  # whether unknown values determine if, or how often, it is started
    place: ScriptPlace  # position of the command

    @property
    def name(self) -> str:
        """Return the program's name without folders; empty if unknown."""
        return self.program.pieces[-1].text.rpartition("/")[2] if self.program and self.program.pieces else ""

    @property
    def processes(self) -> int | None:
        """Return the total number of processes on all machines; None if unknown."""
        numbers = [self._number(option) for option in self.launcher.counts]
        return None if None in numbers or not numbers else prod(number or 0 for number in numbers)

    def find_option(self, name: str) -> str | None:
        """Return the launcher's option for a name; like argparse, accept an unambiguous prefix."""
        known = self._known_options()
        begun = [name] if name in known else [one for one in known if one.startswith(name)]
        return begun[0] if len(begun) == 1 else None

    def unknown_options(self) -> Iterator[tuple[Argument | None, str, str]]:
        """Yield options that the launcher does not have: the value, the name as written, and the most similar option."""
        for name, word in self.options.items():
            if self.find_option(name):
                continue
            similar = closest(name.lstrip("-"), sorted(self._known_options()), _SIMILAR)
            yield word, name if name.startswith("-") else f"--{name}", f"--{similar}" if similar else ""

    def _known_options(self) -> set[str]:
        return {*self.launcher.values, *self.launcher.switches, "h", "help"}

    def _number(self, option: str) -> int | None:
        """Return an option's integer value (``2:2`` gives 2); None for a range or another value."""
        if option in self.options:
            given = self.options[option]
            text = given.text if given is not None else None
        else:
            text = self.launcher.values[option]
        low, _, high = (text or "").partition(":")
        return int(low) if low.isascii() and low.isdigit() and len(low) < 7 and high in ("", low) else None  # noqa: PLR2004


@dataclass(frozen=True, slots=True, eq=False)
class Launches:
    """The programs that a script starts."""

    file: File  # the script
    launches: tuple[Launch, ...]  # in order
    unknown: tuple[Unknown, ...]  # reasons why it cannot be followed completely: unreadable files, `eval`
    problems: tuple[ShellSyntaxError, ...]  # its syntax errors
    read_from: tuple[Path, ...]  # the files that it sources
    # Other commands that it starts, whose words a wrapper script may run as a program.
    others: tuple[Started, ...] = ()
    # The same programs if sourced files that are not here do not set variables with a default (``${name:-value}``); empty if
    # the programs then differ, or without such files.
    assumed: tuple[Launch, ...] = ()


def read_launches(path: Path, text: str | None = None) -> Launches:
    """Return the programs that a script starts; Windows line ends are handled as by :func:`to_unix_lines`."""
    file = File(path, to_unix_lines(read_text(path) if text is None else text))
    script = parse(file)
    reader = _Sourced(path)
    follower = Follower(reader.read)
    follower.follow(script.body)
    found = [(one, tuple(_launches(one))) for one in follower.started]
    launches = tuple(launch for _, several in found for launch in several)
    others = tuple(one for one, several in found if not several)
    assumed: tuple[Launch, ...] = ()
    if any(one.reason is Reason.FILE for one in follower.unknown) and _DEFAULT.search(file.text):
        again = Follower(_Sourced(path).read, assumes_defaults=True)
        again.follow(script.body)
        assumed = tuple(launch for one in again.started for launch in _launches(one))
        if [one.name for one in assumed] != [one.name for one in launches]:
            assumed = ()
    return Launches(file, launches, tuple(follower.unknown), script.problems, tuple(reader.read_from), others, assumed)


class _Sourced:
    """Reader of sourced files: a file is read if the candidate folders contain exactly one of that name."""

    def __init__(self, script: Path) -> None:
        self._script = script
        self.read_from: list[Path] = []

    def read(self, name: str) -> File | None:
        if len(self.read_from) >= MAX_FILES:
            return None
        try:
            found = {
                one.resolve()
                for one in _candidates(self._script, name)
                if one.is_file() and one.stat().st_size <= MAX_BYTES
            }
            if len(found) != 1:
                return None
            path = found.pop()
            file = File(path, to_unix_lines(read_text(path)))
        except (OSError, ValueError, ConfigError):
            return None
        if path not in self.read_from:
            self.read_from.append(path)
        return file


def _launches(one: Started) -> Iterator[Launch]:
    """Yield the programs that a command starts; nothing if none of its words is a launcher."""
    first = one.words[0].text if one.words else None
    wrapped = first is None or is_wrapper(first)
    for number, word in enumerate(one.words[: len(one.words) if wrapped else 1]):
        launcher = find_launcher(word.text) if word.text else None
        if launcher is not None:
            yield _launch(launcher, one.words[number + 1 :], one)
            return


def _launch(launcher: Launcher, words: Sequence[Argument], one: Started) -> Launch:
    options, at = _options(launcher, words)
    module = "m" in options or "module" in options
    if launcher.name == "python" and module and at < len(words):
        inner = launcher_of_module(words[at].text or "")
        if inner is not None:
            return _launch(inner, words[at + 1 :], one)
    program_at = at if module or _is_mistaken(launcher, words[at : at + 1]) else _after_placeholder(words, at)
    if program_at != at:  # launcher options after the placeholder were not read
        options, at = {**dict.fromkeys(launcher.values), **options}, program_at
    program = words[at] if at < len(words) else None
    return Launch(launcher, options, program, tuple(words[at + 1 :]), one.environment, one.conditional, one.place)


def _options(launcher: Launcher, words: Sequence[Argument]) -> tuple[dict[str, Argument | None], int]:
    """Return the options before the program, and the program's index."""
    found: dict[str, Argument | None] = {}
    at = 0
    while at < len(words):
        text = words[at].text or _text_of_option(words[at])
        if text is None and launcher.known and _is_program(words[at]):
            return found, at  # ``$BASE/pretrain_gpt.py``: all options before it are known
        if text is None or not launcher.known:
            # Any number of options may be in it: the program is the next word that looks like one.
            ahead = (number for number in range(at, len(words)) if _is_program(words[number]))
            found.update(dict.fromkeys(launcher.values))
            return found, next(ahead, len(words))
        if not text.startswith("-") or text == "-":
            return found, at
        name, equals, _ = text.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if launcher.counts and len(name) > 1 and text[1] != "-" and name[0] not in launcher.values:
            name = f"-{name}"  # single dash: another option, since the launcher only has one-letter ones
        at += 1
        if launcher.name == "python" and name in ("c", "m"):
            found[name] = None
            return found, at if name == "m" else len(words)
        if equals:
            found[name] = words[at - 1].part(text.index("=") + 1, sum(len(one.text) for one in words[at - 1].pieces))
        elif name in launcher.switches or (launcher.name == "python" and name not in launcher.values):
            found[name] = None
        elif at < len(words):
            found[name] = words[at]
            at += 1
    return found, at


def _text_of_option(word: Argument) -> str | None:
    # ``--nproc_per_node=$N`` is one option, whatever its value.
    first = word.pieces[0].text if word.pieces else ""
    return first if first.startswith("--") and "=" in first else word.text


def _after_placeholder(words: Sequence[Argument], at: int) -> int:
    """Return the index of the program, after the words of an unfilled placeholder such as ``"your master node ip"``.

    Taken literally, the second word would be the program; in use, the placeholder is replaced by one word.
    """
    if at >= len(words) or _is_program(words[at]) or not words[at].via:
        return at
    sentence = words[at].via
    ahead = next((number for number in range(at, len(words)) if words[number].via[: len(sentence)] != sentence), at)
    later = (number for number in range(ahead, len(words)) if _is_program(words[number]))
    return next(later, at)


def _is_mistaken(launcher: Launcher, words: Sequence[Argument]) -> bool:
    """Return whether a word cannot be the program: quoted options, an option without dashes, ``#``."""
    text = (words[0].text or "").lstrip() if words else ""
    return launcher.known and (text.startswith(("#", "--")) or text.replace("-", "_") in launcher.values)


def _is_program(word: Argument) -> bool:
    """Return whether a word ends in ``.py``, such as ``$BASE/pretrain_gpt.py``, regardless of the part before it."""
    last = word.pieces[-1] if word.pieces else None
    return last is not None and last.text.endswith(".py")


def is_to_be_filled_in(text: str) -> bool:
    """Return whether a path is a placeholder: ``/path/to/config.yaml``, ``your_model.json``."""
    return any(mark in text.lower() for mark in ("your", "xxx", "<", "path/to", "path to", " "))


def find_above(script: Path, name: str) -> Path | None:
    """Return a file named in a script, searched in the script's folder and those above; None if not found."""
    return next((path for path in _candidates(script, name) if path.is_file()), None)


def has_folder_above(script: Path, name: str) -> bool:
    """Return whether the folder of such a file exists; if not, the script was copied alone and nothing is missing."""
    return any(path.parent.is_dir() for path in _candidates(script, name))


def _candidates(script: Path, name: str) -> list[Path]:
    folder = script.absolute().parent
    return [above / name for above in [folder, *folder.parents][:_PARENTS]]  # one path if the name begins with "/"


# all assignments written in a script, whether or not they are carried out

Block = tuple[int, ...]
_BLOCKS = (
    *(CommandKind.IF, CommandKind.FOR, CommandKind.WHILE, CommandKind.CASE),
    *(CommandKind.FUNCTION, CommandKind.SUBSHELL),
)


@dataclass(frozen=True, slots=True)
class Assignment:
    """An assignment as written in a script."""

    assignment: Assign  # the assignment and its position
    text: str | None  # the value; None if it contains an expansion or is an array
    block: Block  # the branches and bodies around it, outermost first; empty at the top level
    extends: bool  # whether the value uses the variable's old value


def comments(text: str) -> list[tuple[int, str]]:
    """Return the comments of a script's text with their line numbers, except ``#!``."""
    found = (
        (text.count("\n", 0, start) + 1, said) for start, said in sorted(parse(File(Path(), text)).comments.items())
    )
    return [(line, said) for line, said in found if line > 1 or not said.startswith("#!")]


def assignments(text: str) -> list[Assignment]:
    """Return the assignments of a script's text, in order."""
    count = iter(range(1, len(text) + 2))
    found: list[Assignment] = []
    todo: list[tuple[Command, Block]] = [(parse(File(Path(), to_unix_lines(text))).body, ())]
    while todo:
        command, block = todo.pop()
        words = command.words or ()
        these = (*(word for word in words if isinstance(word, Assign)), *_through_env(words))
        found += [Assignment(one, _plain(one), block, one.append or _uses(one.name, _parts(one))) for one in these]
        own = command.kind in _BLOCKS
        todo += [(inner, (*block, next(count)) if own else block) for inner in reversed(command.inner)]
    return sorted(found, key=lambda one: one.assignment.place.start)


def _through_env(written: Sequence[Word | Assign]) -> Iterator[Assign]:
    """Yield the assignments after ``env``, which are plain words for the shell."""
    words = [word for word in written if isinstance(word, Word)]
    for word in words[1:] if words and words[0].literal == "env" else ():
        first = word.parts[0] if word.parts else None
        if not isinstance(first, QuotedText) or first.quoted or not (match := _ASSIGNED.match(first.text)):
            return
        start = word.place.start + match.end()
        rest = QuotedText(first.text[match.end() :], replace(first.place, start=start))
        parts: tuple[Part, ...] = (*((rest,) if rest.text else ()), *word.parts[1:])
        yield Assign(match[1], word.place, Word(parts, replace(word.place, start=start)), start)


def _plain(one: Assign) -> str | None:
    if not isinstance(one.value, Word) or not all(isinstance(part, QuotedText) for part in one.value.parts):
        return None
    return "".join(part.text for part in one.value.parts if isinstance(part, QuotedText))


def _parts(one: Assign) -> Iterator[Part]:
    for word in (one.value,) if isinstance(one.value, Word) else one.value:
        yield from word.parts


def _uses(name: str, parts: Iterable[Part]) -> bool:
    return any(isinstance(part, Parameter) and (part.name == name or _uses(name, part.operand)) for part in parts)


# Windows line ends

RETURN = "\r\n"


def to_unix_lines(text: str) -> str:
    """Return a script with Unix line ends; blanks replace the carriage returns, so that offsets stay the same."""
    return text.replace("\\\r\n", " \\\n").replace(RETURN, " \n") if RETURN in text else text


def restore_line_ends(written: str, text: str) -> str:
    """Return an edited script with its original line ends."""
    if RETURN not in written:
        return text
    unix = to_unix_lines(written)
    before, old, new = (_lines(one) for one in (written, unix, text))
    found: list[str] = []
    for kind, start, stop, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        found += before[start:stop] if kind == "equal" else map(_as_in_windows, new[first:last])
    return "".join(found)


def _lines(text: str) -> list[str]:
    """Return the lines with their ends, split at line feeds only, unlike ``str.splitlines``."""
    *lines, last = text.split("\n")
    return [*(f"{line}\n" for line in lines), last]


def _as_in_windows(line: str) -> str:
    bare = line.removesuffix("\n")
    if bare == line:
        return line
    if bare.endswith("  \\"):
        return f"{bare[:-2]}\\{RETURN}"
    return f"{bare.removesuffix(' ')}{RETURN}"
