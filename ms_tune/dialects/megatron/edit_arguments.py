"""Change one argument of a program in its script's text, and prove that all other launches stay the same.

An argument may be in a variable, an array, a function, on its own line or among others. It is edited in place; possible
forms are tried until one is proved by reading the script again: launcher, options, program, arguments and environment
of every launch must be the same except for the change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ms_tune.diagnostics import TextEdit
from ms_tune.dialects.megatron.arguments import CliArgument, command_of
from ms_tune.source.edit import EditRefusedError, apply_edits
from ms_tune.source.shell.read import Launch, Launches, read_launches
from ms_tune.source.shell.values import Argument
from ms_tune.text import msg

_GAP = re.compile(r"(?:[ \t\r\n]|\\\r?\n)+")
_INSIDE = r"\\.|\$\{[^}]*\}|\$\(\([^()]*\)\)|\$\([^()]*\)|\$\w+|\$."
# One word as written: outside of double quotes, and inside of them.
_BARE = re.compile(rf"(?:[^\s\"'\\$`();|&]|{_INSIDE}|\"(?:[^\"\\]|\\.)*\"|'[^']*')+", re.DOTALL)
_IN_QUOTES = re.compile(rf"(?:[^\s\"\\$`]|{_INSIDE})+", re.DOTALL)
_BACKSLASH_BEFORE = re.compile(r"[ \t]*\\\r?\n\Z")
_BLANKS_BEFORE = re.compile(r"[ \t]*\Z")
_BLANKS = re.compile(r"[ \t]*")
_QUOTES = ("'", '"')


@dataclass(frozen=True, slots=True)
class ArgumentChange:
    """A change of one argument of a program."""

    at: int  # index among the program's arguments, from 0
    name: str  # `--recompute-num-layers`
    values: tuple[str, ...] | None  # its new values; None to remove it
    new: bool = False  # whether it is inserted before that argument, which stays

    @property
    def words(self) -> str:
        """Return the text to write; only the name for a removal."""
        return " ".join((self.name, *(self.values or ())))


def with_change(script: Launches, release: str, number: int, change: ArgumentChange) -> Launches:
    """Return the script with an argument changed, re-read; programs that share the words change too. No file is written."""
    command = command_of(script.launches[number], release)
    if command is None:
        raise EditRefusedError(msg("edits.not-here"))
    given = command.items[change.at]
    expected = _change_values(_argument_values(script.launches[number], release), change)
    reason = _untouchable(script, given, change)
    for edits in () if reason else _forms(script.file.text, given, change):
        try:
            again = read_launches(script.file.path, apply_edits(script.file.text, edits))
        except ValueError:
            continue
        if _is_proved(script, again, release, number, change, expected):
            return again
    is_value = change.values and not change.new and given.values
    place = given.values[0].place if is_value else given.word.place
    raise EditRefusedError(msg(f"edits.script.{reason or 'shared'}", file=place.file.path.name, line=place.span.line))


def _untouchable(script: Launches, given: CliArgument, change: ArgumentChange) -> str:
    words = [given.word]
    if change.values and not change.new and len(change.values) == len(given.values):
        words = list(given.values)
    for piece in (piece for word in words for piece in word.pieces):
        if piece.place.file is not script.file:
            return "other-file"
        if not piece.exact:
            return "calculated"
    return ""


def _forms(text: str, given: CliArgument, change: ArgumentChange) -> Iterator[Sequence[TextEdit]]:
    if change.new:
        yield from _insert_words(text, given, change.words)
    elif change.values is None:
        for start, end in _regions(text, given):
            yield from ([edit] for edit in _remove_span(text, start, end))
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


def _regions(text: str, given: CliArgument) -> Iterator[tuple[int, int]]:
    start, end = given.word.place.start, given.word.place.end
    if start and text[start - 1] in _QUOTES and text[end : end + 1] == text[start - 1]:
        start, end = start - 1, end + 1
    for word in (_BARE, _IN_QUOTES):
        # A value joined by "=" is part of the word.
        at = end if not given.joined else _end_of(word.match(text, start), end)
        for _ in given.values[given.joined :]:
            gap = _GAP.match(text, at)
            found = word.match(text, gap.end()) if gap else None
            if found is None:
                break
            at = found.end()
        else:
            yield start, at


def _end_of(found: re.Match[str] | None, otherwise: int) -> int:
    return found.end() if found else otherwise


def _remove_span(text: str, start: int, end: int) -> Iterator[TextEdit]:
    """Remove a span of text: with its whole lines if they contain nothing else, otherwise with the surrounding blanks."""
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
    yield TextEdit(start, _end_of(_BLANKS.match(text, end), end), "")


def _insert_words(text: str, given: CliArgument, words: str) -> Iterator[Sequence[TextEdit]]:
    """Insert words before an argument, on a separate line if the argument starts one."""
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


# A program's arguments: names, each with its values; an unknown value is represented by its origin.
_Values = tuple[tuple[str, tuple[str, ...]], ...]


def _text(word: Argument | None) -> str:
    if word is None:
        return ""
    return "".join(f"\0{piece.unknown.name}\0" if piece.unknown else piece.text for piece in word.pieces)


def _texts(words: Iterable[Argument]) -> tuple[str, ...]:
    return tuple(map(_text, words))


def _argument_values(launch: Launch, release: str) -> _Values:
    command = command_of(launch, release)
    if command is None:
        return (("", _texts(launch.arguments)),)
    return (("", _texts(command.strays)), *((one.name, _texts(one.values)) for one in command.items))


def _change_values(before: _Values, change: ArgumentChange) -> _Values:
    at = change.at + 1  # the first entry contains the words that belong to no argument
    wanted = ((change.name, change.values),) if change.values is not None else ()
    return (*before[:at], *wanted, *before[at + (not change.new) :])


def _frame(launch: Launch) -> tuple[object, ...]:
    options = {name: _text(value) for name, value in launch.options.items()}
    environment = {name: "".join(piece.text for piece in value) for name, value in launch.environment.items()}
    return launch.launcher.name, options, _text(launch.program), environment, launch.conditional


def _is_proved(  # noqa: PLR0913, PLR0917 - before, after and the change
    before: Launches, after: Launches, release: str, number: int, change: ArgumentChange, expected: _Values
) -> bool:
    if len(before.launches) != len(after.launches) or before.read_from != after.read_from:
        return False
    if (len(before.problems), len(before.unknown)) != (len(after.problems), len(after.unknown)):
        return False
    mine = _argument_values(before.launches[number], release)
    for index, (old, new) in enumerate(zip(before.launches, after.launches, strict=True)):
        given, found = _argument_values(old, release), _argument_values(new, release)
        if _frame(old) != _frame(new):
            return False
        if index == number and found != expected:
            return False
        if found != given and not _has_same_change(mine[change.at + 1], given, found, change):
            return False
    return True


def _has_same_change(was: tuple[str, tuple[str, ...]], before: _Values, after: _Values, change: ArgumentChange) -> bool:
    """Return whether another program whose command uses the same words has exactly the same change."""
    places = [at for at, one in enumerate(before[1:]) if one == was]
    ways = (ArgumentChange(at, change.name, change.values, change.new) for at in places)
    return any(_change_values(before, way) == after for way in ways)
