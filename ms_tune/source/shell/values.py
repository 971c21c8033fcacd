"""What a script's words come to: pieces of text that know where they stand, what cannot be known, and what is set at one point."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from ms_tune.facts.query import load
from ms_tune.source.shell.syntax import ScriptPlace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ms_tune.source.shell.syntax import Command

# What bash sets itself, or hands on from whoever starts it: a default behind one of these is no more than a guess.
FROM_OUTSIDE = frozenset(load("bash")["from_outside"])
_HIDDEN = "ms_tune_unknown_"  # and a number: no script has such a variable


class Reason(str, Enum):
    """Why a value cannot be known without running the script."""

    COMMAND = "command"  # what another command prints: $(date)
    ARGUMENT = "argument"  # what the script is started with: $1
    ENVIRONMENT = "environment"  # a variable that the script does not set: $HOME
    LOOP = "loop"  # set in a loop, or by what a loop runs over
    CONDITION = "condition"  # set differently, depending on what is not known
    FILE = "file"  # a file that could not be read may set it
    EXPANSION = "expansion"  # a form that is not read: ${name^^}, {a..Z}
    PATTERN = "pattern"  # names of files that fit: *.json
    ARITHMETIC = "arithmetic"  # calculated from what is not known, or not calculable
    INPUT = "input"  # read from a file or a terminal
    BOUND = "bound"  # too much to be followed


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that cannot be known."""

    reason: Reason  # why
    name: str  # the variable, the command or the words in question
    place: ScriptPlace  # where the value would come from


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a value."""

    text: str  # the characters; empty for what is unknown
    place: ScriptPlace  # where they are written; the letters there are these unless quotes or arithmetic stand between
    via: tuple[str, ...] = ()  # the variables through which they came, the innermost first
    quoted: bool = False  # whether they stand in quotes where they are used
    unknown: Unknown | None = None  # what it is instead, if it is unknown
    several: bool = False  # whether it stands for any number of elements of an array, which quotes do not hold together

    @property
    def exact(self) -> bool:
        """Whether the text is written like this where it stands, letter by letter."""
        return self.unknown is None and self.place.text == self.text

    def part(self, start: int, end: int) -> Piece:
        """The characters between two of its own offsets."""
        place = self.place
        if self.exact:
            place = ScriptPlace(place.file, place.start + start, place.start + end)
        return Piece(self.text[start:end], place, self.via, self.quoted)

    def through(self, name: str, *, quoted: bool) -> Piece:
        """The piece as it comes out of a variable."""
        via = (*self.via, name)
        return Piece(self.text, self.place, via, quoted and not self.several, self.unknown, self.several)


Pieces: TypeAlias = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Argument:
    """One word as a program gets it."""

    pieces: Pieces  # its parts
    open: bool = False  # whether it may be any number of words: what is unknown in it stands in no quotes

    @property
    def text(self) -> str | None:
        """The word; None if a part of it is unknown."""
        return text_of(self.pieces)

    @property
    def unknown(self) -> Unknown | None:
        """The first part of it that is unknown."""
        return next((piece.unknown for piece in self.pieces if piece.unknown), None)

    @property
    def place(self) -> ScriptPlace:
        """Where it is written: its longest part."""
        return max(self.pieces, key=lambda piece: (len(piece.text), piece.place.end - piece.place.start)).place

    @property
    def via(self) -> tuple[str, ...]:
        """The variables through which its longest part came, the innermost first."""
        return max(self.pieces, key=lambda piece: len(piece.text)).via

    def part(self, start: int, end: int) -> Argument:
        """The characters between two of its own offsets; what is unknown counts as none."""
        found, at = [], 0
        for piece in self.pieces:
            if piece.unknown:
                found += [piece] if start <= at <= end else []
                continue
            low, high = max(start - at, 0), min(end - at, len(piece.text))
            if low < high:
                found.append(piece.part(low, high))
            at += len(piece.text)
        if not found and self.pieces:
            piece = self.pieces[-1]
            place = ScriptPlace(piece.place.file, piece.place.end, piece.place.end)
            found.append(Piece("", place, piece.via, piece.quoted))
        return Argument(tuple(found), self.open)


def text_of(pieces: Pieces) -> str | None:
    """The pieces together; None if one is unknown."""
    return None if any(piece.unknown for piece in pieces) else "".join(piece.text for piece in pieces)


def unknown_piece(
    reason: Reason, name: str, place: ScriptPlace, *, quoted: bool = False, several: bool = False
) -> Piece:
    """A piece that cannot be known."""
    return Piece("", place, (), quoted, Unknown(reason, name, place), several)


@dataclass(frozen=True, slots=True)
class Value:
    """What a variable is set to: its elements by their numbers, in order. One that is no array has number 0 alone, or is unset."""

    elements: tuple[tuple[int, Pieces], ...] = ()
    array: bool = False

    @property
    def uncounted(self) -> Piece | None:
        """What stands for any number of its elements."""
        return next((piece for _, pieces in self.elements for piece in pieces if piece.several), None)

    @property
    def pieces(self) -> Pieces:
        """Its first element, which the name alone stands for."""
        return self.elements[0][1] if self.elements and not self.elements[0][0] else ()

    @property
    def end(self) -> int:
        """The number behind the last one."""
        return self.elements[-1][0] + 1 if self.elements else 0

    def between(self, low: int, high: int) -> Value:
        """Those of its elements with these numbers and those between."""
        return replace(self, elements=tuple(one for one in self.elements if low <= one[0] <= high))


def plain_value(*pieces: Piece) -> Value:
    """The value of a variable that is no array."""
    return Value(((0, pieces),))


def array_of(words: Iterable[Argument], first: int = 0) -> Value:
    """An array of words, numbered from one on; of what may be any number of words, several is said."""
    several = (
        tuple(replace(piece, several=word.open and piece.unknown is not None) for piece in word.pieces)
        for word in words
    )
    return Value(tuple(enumerate(several, first)), array=True)


@dataclass(slots=True)
class ShellState:
    """What holds at one point of the script."""

    variables: dict[str, Value] = field(default_factory=dict)  # what the script has set; "@": its positional parameters
    functions: dict[str, Command | None] = field(
        default_factory=dict
    )  # those that it has defined; None for one of several
    exported: frozenset[str] = frozenset()  # the variables (and functions: `name()`) that programs see
    all_unknown: Unknown | None = None  # why every variable may have been set to anything since
    odd: frozenset[str] = frozenset()  # variables that are declared to calculate, or to stay as they are
    stops_at_failure: bool = False  # `set -e`

    def copy(self) -> ShellState:
        """The same, to go on with on its own."""
        return replace(self, variables=dict(self.variables), functions=dict(self.functions))

    def restore(self, name: str, value: Value | None) -> None:
        """Give a variable the value that it had before, or none."""
        self.variables.pop(name, None)
        if value is not None:
            self.variables[name] = value

    def spoil(self, name: str, reason: Reason, place: ScriptPlace, *, several: bool = False) -> None:
        """Know nothing more about a variable."""
        self.variables[name] = plain_value(unknown_piece(reason, name, place, several=several))

    def forget(self, unknown: Unknown) -> None:
        """Know nothing more about any variable, but for the positional parameters."""
        for name, value in self.variables.items():
            if name != "@":
                self.variables[name] = plain_value(Piece("", unknown.place, unknown=unknown, several=_is_list(value)))
        self.functions = dict.fromkeys(self.functions)
        self.all_unknown = unknown


def merge_states(states: Sequence[ShellState], place: ScriptPlace, reason: Reason = Reason.CONDITION) -> ShellState:
    """What holds behind branches of which one was taken, nobody knows which."""
    result = states[0].copy()
    for other in states[1:]:
        for name in {*result.variables, *other.variables}:
            mine, its = result.variables.get(name), other.variables.get(name)
            if mine is None or its is None or not _is_same(mine, its):
                result.spoil(name, reason, place, several=_is_list(mine) or _is_list(its))
        for name in {*result.functions, *other.functions}:
            if result.functions.get(name) != other.functions.get(name):
                result.functions[name] = None
        result.exported |= other.exported
        result.odd |= other.odd
        result.stops_at_failure &= other.stops_at_failure
        result.all_unknown = result.all_unknown or other.all_unknown
    return result


def is_settled(before: ShellState, after: ShellState) -> bool:
    """Whether another round of a loop can change nothing: what is unknown stays so, whatever it is unknown by."""
    if before.variables.keys() != after.variables.keys():
        return False
    pairs = ((value, after.variables[name]) for name, value in before.variables.items())
    same = all(one == other or (_is_unknown(one) and _is_unknown(other)) for one, other in pairs)
    return same and replace(before, variables={}) == replace(after, variables={})


def _is_unknown(value: Value) -> bool:
    return len(value.pieces) == 1 and value.pieces[0].unknown is not None and not _is_list(value)


def _is_list(value: Value | None) -> bool:
    return value is not None and (value.array or value.uncounted is not None)


def _is_same(mine: Value, its: Value) -> bool:
    """Whether two values are equal letter by letter, wherever they stand."""
    texts = [[(number, text_of(pieces)) for number, pieces in value.elements] for value in (mine, its)]
    known = all(text is not None for _, text in texts[0])
    return mine == its or (known and mine.array == its.array and texts[0] == texts[1])


def join_script(words: Sequence[Argument], state: ShellState) -> str | None:
    """Words as one text; what is unknown becomes a variable of the state. None where that cannot be: in quotes, or for any number of words."""
    found: list[str] = []
    hidden: dict[str, Value] = {}
    for word in words:
        if word.open and not any(piece.text for piece in word.pieces):
            return None
        letters = ""
        for piece in word.pieces:
            name = f"{_HIDDEN}{len(hidden)}"
            if piece.unknown is not None:
                hidden[name] = plain_value(piece)
            letters += piece.text if piece.unknown is None else f"${{{name}}}"
        found.append(letters)
    text = " ".join(found)
    if hidden and ("'" in text or "\\" in text):
        return None
    state.variables.update(hidden)
    return text
