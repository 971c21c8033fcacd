"""What a script's words come to: pieces of text that know where they stand, and what cannot be known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from ms_tune.source.yaml_nodes import Document

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.diagnostics import Location


class Reason(str, Enum):
    """Why a value cannot be known without running the script."""

    COMMAND = "command"  # what another command prints: $(date)
    ARGUMENT = "argument"  # what the script is started with: $1
    ENVIRONMENT = "environment"  # a variable that the script does not set: $HOME
    LOOP = "loop"  # set in a loop, or by what a loop runs over
    CONDITION = "condition"  # set differently, depending on what is not known
    FILE = "file"  # a file that could not be read may set it
    EXPANSION = "expansion"  # a form that is not read: ${name//a/b}, {1..8}
    PATTERN = "pattern"  # names of files that fit: *.json
    ARITHMETIC = "arithmetic"  # calculated from what is not known, or not calculable
    INPUT = "input"  # read from a file or a terminal
    BOUND = "bound"  # too much to be followed


class File:
    """A file that was read: its text, and lines and columns for offsets, once they are asked for."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text

    @cached_property
    def _lines(self) -> Document:
        return Document(self.text, self.path)

    def span(self, start: int, end: int) -> Location:
        """The span between two offsets."""
        return self._lines.span(start, end)


@dataclass(frozen=True, slots=True)
class ScriptPlace:
    """Where something stands."""

    file: File
    start: int
    end: int

    @property
    def span(self) -> Location:
        """With lines and columns."""
        return self.file.span(self.start, self.end)


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
        return self.place.file.text[self.place.start : self.place.end] == self.text and self.unknown is None

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
