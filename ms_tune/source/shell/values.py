"""Represent expanded words: pieces of text with their positions, unknown values, and the shell's state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from ms_tune.facts.query import load
from ms_tune.source.shell.syntax import Command, ScriptPlace

# Variables set by bash or its caller: a default after one of these is only a guess.
FROM_OUTSIDE = frozenset(load("bash")["from_outside"])
_HIDDEN = "ms_tune_unknown_"  # plus a number; no script uses such a variable


class Reason(str, Enum):
    """Why a value cannot be known without running the script."""

    COMMAND = "command"  # output of another command: $(date)
    ARGUMENT = "argument"  # an argument of the script: $1
    ENVIRONMENT = "environment"  # a variable that the script does not set: $HOME
    LOOP = "loop"  # set in a loop, or the loop variable
    CONDITION = "condition"  # set differently, depending on an unknown condition
    FILE = "file"  # may be set by a file that could not be read
    EXPANSION = "expansion"  # an unsupported form: ${name^^}, {a..Z}
    PATTERN = "pattern"  # names of matching files: *.json
    ARITHMETIC = "arithmetic"  # calculated from unknown values, or an unsupported expression
    INPUT = "input"  # read from a file or a terminal
    BOUND = "bound"  # too large to be followed


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that cannot be known."""

    reason: Reason  # why
    name: str  # the variable, the command or the words in question
    place: ScriptPlace  # position that would provide the value


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a value."""

    text: str  # the characters; empty if unknown
    place: ScriptPlace  # position in the script; its text equals `text` unless quotes or arithmetic are involved
    via: tuple[str, ...] = ()  # the variables through which it was passed, innermost first
    quoted: bool = False  # whether it is quoted where it is used
    unknown: Unknown | None = None  # why it is unknown, if it is
    several: bool = False  # whether it represents any number of array elements, which quotes do not join

    @property
    def exact(self) -> bool:
        """Return whether the text at this position is exactly the piece's text."""
        return self.unknown is None and self.place.text == self.text

    def part(self, start: int, end: int) -> Piece:
        """Return the characters between two offsets within the piece."""
        place = self.place
        if self.exact:
            place = ScriptPlace(place.file, place.start + start, place.start + end)
        return Piece(self.text[start:end], place, self.via, self.quoted)

    def through(self, name: str, *, quoted: bool) -> Piece:
        """Return the piece with a variable added to those through which its value was passed."""
        via = (*self.via, name)
        return Piece(self.text, self.place, via, quoted and not self.several, self.unknown, self.several)


Pieces: TypeAlias = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Argument:
    """One word as a program receives it."""

    pieces: Pieces  # its parts
    open: bool = False  # whether it may be any number of words, because an unknown part is unquoted

    @property
    def text(self) -> str | None:
        """Return the word; None if a part of it is unknown."""
        return text_of(self.pieces)

    @property
    def unknown(self) -> Unknown | None:
        """Return the first unknown part."""
        return next((piece.unknown for piece in self.pieces if piece.unknown), None)

    @property
    def place(self) -> ScriptPlace:
        """Return the position of the longest part."""
        return max(self.pieces, key=lambda piece: (len(piece.text), piece.place.end - piece.place.start)).place

    @property
    def via(self) -> tuple[str, ...]:
        """Return the variables through which the value of the longest part was passed, innermost first."""
        return max(self.pieces, key=lambda piece: len(piece.text)).via

    def part(self, start: int, end: int) -> Argument:
        """Return the characters between two offsets within the word; unknown parts have length 0."""
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
    """Return the joined pieces; None if one is unknown."""
    return None if any(piece.unknown for piece in pieces) else "".join(piece.text for piece in pieces)


def unknown_piece(
    reason: Reason, name: str, place: ScriptPlace, *, quoted: bool = False, several: bool = False
) -> Piece:
    """Return an unknown piece."""
    return Piece("", place, (), quoted, Unknown(reason, name, place), several)


@dataclass(frozen=True, slots=True)
class Value:
    """A variable's elements by index, in order; a variable that is not an array has only index 0, or is unset."""

    elements: tuple[tuple[int, Pieces], ...] = ()
    array: bool = False

    @property
    def uncounted(self) -> Piece | None:
        """Return the piece that represents an unknown number of elements, or None."""
        return next((piece for _, pieces in self.elements for piece in pieces if piece.several), None)

    @property
    def pieces(self) -> Pieces:
        """Return the first element, which is the value of the plain name."""
        return self.elements[0][1] if self.elements and not self.elements[0][0] else ()

    @property
    def end(self) -> int:
        """Return the index after the last element."""
        return self.elements[-1][0] + 1 if self.elements else 0

    def between(self, low: int, high: int) -> Value:
        """Return the value with only the elements from index ``low`` to ``high``, inclusive."""
        return replace(self, elements=tuple(one for one in self.elements if low <= one[0] <= high))


def plain_value(*pieces: Piece) -> Value:
    """Return the value of a variable that is not an array."""
    return Value(((0, pieces),))


def array_of(words: Iterable[Argument], first: int = 0) -> Value:
    """Return an array of words, indexed from ``first``; a word that may be several is marked ``several``."""
    several = (
        tuple(replace(piece, several=word.open and piece.unknown is not None) for piece in word.pieces)
        for word in words
    )
    return Value(tuple(enumerate(several, first)), array=True)


@dataclass(slots=True)
class ShellState:
    """The state of the shell at one point of the script."""

    variables: dict[str, Value] = field(default_factory=dict)  # set by the script; "@": its positional parameters
    functions: dict[str, Command | None] = field(
        default_factory=dict
    )  # functions that it has defined; None if it is unknown which definition applies
    exported: frozenset[str] = frozenset()  # the variables (and functions: `name()`) that programs see
    all_unknown: Unknown | None = None  # why every variable may have changed, if so
    odd: frozenset[str] = frozenset()  # variables declared as integer, read-only or similar
    stops_at_failure: bool = False  # `set -e`

    def copy(self) -> ShellState:
        """Return an independent copy."""
        return replace(self, variables=dict(self.variables), functions=dict(self.functions))

    def restore(self, name: str, value: Value | None) -> None:
        """Restore a variable's previous value, or unset it."""
        self.variables.pop(name, None)
        if value is not None:
            self.variables[name] = value

    def spoil(self, name: str, reason: Reason, place: ScriptPlace, *, several: bool = False) -> None:
        """Mark a variable as unknown."""
        self.variables[name] = plain_value(unknown_piece(reason, name, place, several=several))

    def forget(self, unknown: Unknown) -> None:
        """Make all variables unknown, except the positional parameters."""
        for name, value in self.variables.items():
            if name != "@":
                self.variables[name] = plain_value(Piece("", unknown.place, unknown=unknown, several=_is_list(value)))
        self.functions = dict.fromkeys(self.functions)
        self.all_unknown = unknown


def merge_states(states: Sequence[ShellState], place: ScriptPlace, reason: Reason = Reason.CONDITION) -> ShellState:
    """Return the state after several branches of which it is unknown which one ran."""
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


def is_stable(before: ShellState, after: ShellState) -> bool:
    """Return whether another round of a loop would change nothing; unknown values stay unknown for any reason."""
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
    """Return whether two values have the same text, regardless of their position."""
    texts = [[(number, text_of(pieces)) for number, pieces in value.elements] for value in (mine, its)]
    known = all(text is not None for _, text in texts[0])
    return mine == its or (known and mine.array == its.array and texts[0] == texts[1])


def join_script(words: Sequence[Argument], state: ShellState) -> str | None:
    """Join words into one text, with unknown parts as variables of the state; None if they are quoted or uncounted."""
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
