"""What a script has set so far, and how what two branches have set comes together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from ms_tune.facts.query import load
from ms_tune.source.shell.values import Argument, Piece, Pieces, Reason, Unknown, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ms_tune.source.shell.syntax import Command
    from ms_tune.source.shell.values import File, ScriptPlace

# What bash sets itself, or hands on from whoever starts it: a default behind one of these is no more than a guess.
FROM_OUTSIDE = frozenset(load("bash")["from_outside"])


@dataclass(frozen=True, slots=True)
class Array:
    """The elements of an array, by their numbers, in order."""

    elements: tuple[tuple[int, Pieces], ...]

    def get(self, index: int) -> Pieces | None:
        """The element with a number; what is unknown if nobody knows how many come before it."""
        for number, pieces in self.elements:
            if number == index or any(piece.several for piece in pieces):
                return pieces
        return None


@dataclass(frozen=True, slots=True)
class Unset:
    """A variable that ``unset`` has taken away."""


Value: TypeAlias = "Pieces | Array | Unset"


@dataclass(slots=True)
class ShellState:
    """What holds at one point of the script.

    Args:
        variables: What the script has set.
        functions: The functions that it has defined, each with the file that it stands in; None for one of several.
        exported: The variables that programs see.
        positional: ``$1`` and so on; None if they are those that the script was started with.
        all_unknown: Why every variable may have been set to anything since; None if none was.
        splits_oddly: Why words may be split at other marks than blanks (``IFS`` was set); None if not.
        odd: Variables that are declared to calculate, change letters, stand for others or stay as they are.
        stops_at_failure: Whether the script ends where a command fails (``set -e``).
    """

    variables: dict[str, Value] = field(default_factory=dict)
    functions: dict[str, tuple[Command, File] | None] = field(default_factory=dict)
    exported: frozenset[str] = frozenset()
    positional: tuple[Argument, ...] | None = None
    all_unknown: Unknown | None = None
    splits_oddly: Unknown | None = None
    odd: frozenset[str] = frozenset()
    stops_at_failure: bool = False

    def copy(self) -> ShellState:
        """The same, to go on with on its own."""
        return ShellState(
            dict(self.variables),
            dict(self.functions),
            self.exported,
            self.positional,
            self.all_unknown,
            self.splits_oddly,
            self.odd,
            self.stops_at_failure,
        )

    def take(self, other: ShellState) -> None:
        """Become what another one is."""
        self.variables, self.functions = other.variables, other.functions
        self.exported, self.positional = other.exported, other.positional
        self.all_unknown, self.splits_oddly, self.odd = other.all_unknown, other.splits_oddly, other.odd
        self.stops_at_failure = other.stops_at_failure

    def forget(self, unknown: Unknown) -> None:
        """Know nothing more about any variable."""
        self.variables = {
            name: (Piece("", unknown.place, unknown=unknown, several=_is_list(value)),)
            for name, value in self.variables.items()
        }
        self.functions = dict.fromkeys(self.functions)
        self.all_unknown = unknown


def merged(states: list[ShellState], place: ScriptPlace) -> ShellState:
    """What holds behind branches of which one was taken, nobody knows which."""
    first, *others = states
    result = first.copy()
    for other in others:
        for name in {*result.variables, *other.variables}:
            mine, its = result.variables.get(name), other.variables.get(name)
            if mine is None or its is None or not _same(mine, its):
                several = _is_list(mine) or _is_list(its)
                unknown = Unknown(Reason.CONDITION, name, place)
                result.variables[name] = (Piece("", place, unknown=unknown, several=several),)
        for name in {*result.functions, *other.functions}:
            if result.functions.get(name) != other.functions.get(name):
                result.functions[name] = None
        result.exported |= other.exported
        result.odd |= other.odd
        result.stops_at_failure &= other.stops_at_failure
        if result.positional != other.positional:
            result.positional = unknown_words(Reason.CONDITION, "@", place)
        result.all_unknown = result.all_unknown or other.all_unknown
        result.splits_oddly = result.splits_oddly or other.splits_oddly
    return result


def _is_list(value: Value | None) -> bool:
    return isinstance(value, Array) or (isinstance(value, tuple) and any(piece.several for piece in value))


def _same(one: Value, other: Value) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        text = text_of(one)
        return one == other or (text is not None and text == text_of(other))
    if isinstance(one, Array) and isinstance(other, Array):
        return [index for index, _ in one.elements] == [index for index, _ in other.elements] and all(
            _same(mine, its) for (_, mine), (_, its) in zip(one.elements, other.elements, strict=True)
        )
    return isinstance(one, Unset) and isinstance(other, Unset)


def unknown_piece(reason: Reason, name: str, place: ScriptPlace, *, quoted: bool = False) -> Piece:
    """A piece that cannot be known."""
    return Piece("", place, (), quoted, Unknown(reason, name, place))


def unknown_words(reason: Reason, name: str, place: ScriptPlace) -> tuple[Argument, ...]:
    """Any number of words that cannot be known."""
    return (Argument((unknown_piece(reason, name, place),), open=True),)


def size_of(values: Iterable[Pieces]) -> int:
    """How much text and how many pieces there are."""
    return sum(len(piece.text) + 1 for pieces in values for piece in pieces)
