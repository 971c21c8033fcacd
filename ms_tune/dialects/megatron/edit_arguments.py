"""One argument of a program changed in the text of its script, with the proof that nothing else that the script starts changes.

An argument may stand in a variable, in an array, in a function, on a line of its own or among others: the words are edited
where they stand, in every form that comes into question until one is proved. The proof is to read the script again: every
launch must be what it was (launcher, options, program, arguments, environment) but for the change itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.diagnostics import TextEdit
from ms_tune.dialects.megatron.arguments import command_of
from ms_tune.source.edit import EditRefusedError, apply_edits
from ms_tune.source.shell.read import read_launches
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ms_tune.dialects.megatron.arguments import GivenArgument
    from ms_tune.source.shell.read import Launch, Launches
    from ms_tune.source.shell.values import Argument

_GAP = re.compile(r"(?:[ \t\r\n]|\\\r?\n)+")
_INSIDE = r"\\.|\$\{[^}]*\}|\$\(\([^()]*\)\)|\$\([^()]*\)|\$\w+|\$."
# One word as it is written: outside of double quotes, and inside of them.
_BARE = re.compile(rf"(?:[^\s\"'\\$`();|&]|{_INSIDE}|\"(?:[^\"\\]|\\.)*\"|'[^']*')+", re.DOTALL)
_IN_QUOTES = re.compile(rf"(?:[^\s\"\\$`]|{_INSIDE})+", re.DOTALL)
_BACKSLASH_BEFORE = re.compile(r"[ \t]*\\\r?\n\Z")
_BLANKS_BEFORE = re.compile(r"[ \t]*\Z")
_BLANKS = re.compile(r"[ \t]*")
_QUOTES = ("'", '"')


@dataclass(frozen=True, slots=True)
class ArgumentChange:
    """A change of one argument of a program."""

    at: int  # the how many-eth of the program's arguments it is, counted from 0
    name: str  # `--recompute-num-layers`
    values: tuple[str, ...] | None  # what is to stand behind it; None to leave it out
    new: bool = False  # whether it is put in front of that argument, which stays

    @property
    def words(self) -> str:
        """What is to be written; the name alone for what is left out."""
        return " ".join((self.name, *(self.values or ())))


def with_change(script: Launches, release: str, number: int, change: ArgumentChange) -> Launches:
    """The script with an argument changed, as it is read then; programs that take the same words get the change, too. No file is written."""
    command = command_of(script.launches[number], release)
    if command is None:
        raise EditRefusedError(msg("edits.not-here"))
    given = command.given[change.at]
    expected = _expected(_given(script.launches[number], release), change)
    reason = _untouchable(script, given, change)
    for edits in () if reason else _forms(script.file.text, given, change):
        try:
            again = read_launches(script.file.path, apply_edits(script.file.text, edits))
        except ValueError:
            continue
        if _proved(script, again, release, number, change, expected):
            return again
    is_value = change.values and not change.new and given.values
    place = given.values[0].place if is_value else given.word.place
    raise EditRefusedError(msg(f"edits.script.{reason or 'shared'}", file=place.file.path.name, line=place.span.line))


def _untouchable(script: Launches, given: GivenArgument, change: ArgumentChange) -> str:
    words = [given.word]
    if change.values and not change.new and len(change.values) == len(given.values):
        words = list(given.values)
    for piece in (piece for word in words for piece in word.pieces):
        if piece.place.file is not script.file:
            return "other-file"
        if not piece.exact:
            return "calculated"
    return ""


def _forms(text: str, given: GivenArgument, change: ArgumentChange) -> Iterator[Sequence[TextEdit]]:
    if change.new:
        yield from _added(text, given, change.words)
    elif change.values is None:
        for start, end in _regions(text, given):
            yield from ([edit] for edit in _taken_out(text, start, end))
    elif len(change.values) == len(given.values):
        for quote in ("", '"'):
            pairs = zip(given.values, change.values, strict=True)
            yield [edit for value, new in pairs if value.text != new for edit in _put(value, f"{quote}{new}{quote}")]
    else:
        yield from ([TextEdit(start, end, change.words)] for start, end in _regions(text, given))


def _put(value: Argument, new: str) -> Iterator[TextEdit]:
    pieces = [piece for piece in value.pieces if piece.text]
    for number, piece in enumerate(pieces):
        yield TextEdit(piece.place.start, piece.place.end, "" if number else new)


def _regions(text: str, given: GivenArgument) -> Iterator[tuple[int, int]]:
    start, end = given.word.place.start, given.word.place.end
    if start and text[start - 1] in _QUOTES and text[end : end + 1] == text[start - 1]:
        start, end = start - 1, end + 1
    for word in (_BARE, _IN_QUOTES):
        # What is written behind "=" is part of the word.
        at = end if not given.joined else _behind(word.match(text, start), end)
        for _ in given.values[given.joined :]:
            gap = _GAP.match(text, at)
            found = word.match(text, gap.end()) if gap else None
            if found is None:
                break
            at = found.end()
        else:
            yield start, at


def _behind(found: re.Match[str] | None, otherwise: int) -> int:
    return found.end() if found else otherwise


def _taken_out(text: str, start: int, end: int) -> Iterator[TextEdit]:
    """A stretch of text taken out: with its lines if nothing else stands there, with the blanks around it otherwise."""
    line, stop = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    rest = text[end:stop].strip()
    if not text[line:start].strip() and rest in ("", "\\"):
        before = _BACKSLASH_BEFORE.search(text, 0, line)
        if rest or before is None:
            yield TextEdit(line, min(stop + 1, len(text)), "")
        else:
            yield TextEdit(before.start(), end, "")
    blanks = _BLANKS_BEFORE.search(text, line, start)
    if blanks and line < blanks.start() < start:
        yield TextEdit(blanks.start(), end, "")
    yield TextEdit(start, _behind(_BLANKS.match(text, end), end), "")


def _added(text: str, given: GivenArgument, words: str) -> Iterator[Sequence[TextEdit]]:
    """New words in front of an argument, on a line of their own if it begins one."""
    start, end = given.word.place.start, given.word.place.end
    if start and text[start - 1] in _QUOTES and text[end : end + 1] == text[start - 1]:
        start -= 1
    line, stop = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    indent = text[line:start]
    if not indent.strip():
        ending = "\r\n" if text[:stop].endswith("\r") else "\n"
        backslash = text[:stop].rstrip("\r").endswith("\\") or _BACKSLASH_BEFORE.search(text, 0, line)
        ways = (f" \\{ending}{indent}", f"{ending}{indent}")
        yield from ([TextEdit(start, start, words + way)] for way in (ways if backslash else reversed(ways)))
    yield [TextEdit(start, start, f"{words} ")]


# What a program is given: names, each with its values; a value that is not known by what it comes from.
_Given = tuple[tuple[str, tuple[str, ...]], ...]


def _text(word: Argument | None) -> str:
    if word is None:
        return ""
    return "".join(f"\0{piece.unknown.name}\0" if piece.unknown else piece.text for piece in word.pieces)


def _texts(words: Iterable[Argument]) -> tuple[str, ...]:
    return tuple(map(_text, words))


def _given(launch: Launch, release: str) -> _Given:
    command = command_of(launch, release)
    if command is None:
        return (("", _texts(launch.arguments)),)
    return (("", _texts(command.strays)), *((one.name, _texts(one.values)) for one in command.given))


def _expected(before: _Given, change: ArgumentChange) -> _Given:
    at = change.at + 1  # in front of them all are the words that belong to none
    wanted = ((change.name, change.values),) if change.values is not None else ()
    return (*before[:at], *wanted, *before[at + (not change.new) :])


def _frame(launch: Launch) -> tuple[object, ...]:
    options = {name: _text(value) for name, value in launch.options.items()}
    environment = {name: "".join(piece.text for piece in value) for name, value in launch.environment.items()}
    return launch.launcher.name, options, _text(launch.program), environment, launch.conditional


def _proved(  # noqa: PLR0913, PLR0917 - before, after, and what lies between
    before: Launches, after: Launches, release: str, number: int, change: ArgumentChange, expected: _Given
) -> bool:
    """Whether the script starts what it started, but for the change."""
    if len(before.launches) != len(after.launches) or before.read_from != after.read_from:
        return False
    if (len(before.problems), len(before.unknown)) != (len(after.problems), len(after.unknown)):
        return False
    mine = _given(before.launches[number], release)
    for index, (old, new) in enumerate(zip(before.launches, after.launches, strict=True)):
        given, found = _given(old, release), _given(new, release)
        if _frame(old) != _frame(new):
            return False
        if index == number and found != expected:
            return False
        if found != given and not _same_change(mine[change.at + 1], given, found, change):
            return False
    return True


def _same_change(was: tuple[str, tuple[str, ...]], before: _Given, after: _Given, change: ArgumentChange) -> bool:
    """Whether another program, which takes the same words, has got the very same change."""
    places = [at for at, one in enumerate(before[1:]) if one == was]
    ways = (ArgumentChange(at, change.name, change.values, change.new) for at in places)
    return any(_expected(before, way) == after for way in ways)
