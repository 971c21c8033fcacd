"""Expand a script's words as bash does: variables, arithmetic, then splitting into arguments of a program.

The rules are those of "Shell Expansions" in bash's manual: unquoted text is split at blanks. File name patterns and
``~`` depend on the machine and become unknown pieces.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from ms_tune.source.shell.calculate import calculate, read_pattern, trim_text
from ms_tune.source.shell.syntax import Arithmetic, Parameter, Part, QuotedText, ScriptPlace, Substitution, Word
from ms_tune.source.shell.values import (
    FROM_OUTSIDE,
    Argument,
    Piece,
    Pieces,
    Reason,
    ShellState,
    Unknown,
    Value,
    plain_value,
    text_of,
    unknown_piece,
)

MAX_SIZE = 40_000  # characters and pieces per value
MAX_WORK = 400_000  # characters and pieces of all values of a script together
MAX_INDEX = 1_000_000
_BLANKS = re.compile(r"([ \t\n]+)|[^ \t\n]+")
_ASSIGNMENT = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)(.*)", re.DOTALL)
_ASSIGNED = re.compile(
    r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)?(?:=(?!=)|[-+*/%&|^]=|<<=|>>=|\+\+|--)|(?:\+\+|--)\s*([A-Za-z_]\w*)"
)
_FILE_PATTERN = re.compile(r"[*?]|\A[^\[]*\[[^\]]*\]")
_HOME = re.compile(r"(?:^|(?<=[=:]))~[\w.+-]*")
_DEFAULTS = frozenset((":-", "-", ":=", "="))
_ALTERNATIVES = frozenset((":-", "-", ":=", "=", ":+", "+", ":?", "?"))

# A sequence of expanded pieces; None separates words even inside quotes.
Items: TypeAlias = "list[Piece | None]"


class Expander(ABC):
    """Base class that expands words; assignments inside words (``${A:=1}``) change its state."""

    assumes_defaults = False  # whether a missing sourced file is assumed not to set variables with a default

    def __init__(self) -> None:
        self.state = ShellState()
        self._work = 0

    @abstractmethod
    def printed_by(self, part: Substitution) -> Pieces | None:
        """Return the output of the command in ``$(...)``; None if it is unknown."""

    @property
    def exhausted(self) -> bool:
        """Return whether the values exceed the work limit; later ones are then unknown."""
        return self._work > MAX_WORK

    def value(self, word: Word) -> Pieces:
        """Return a word as one value, as in an assignment: without splitting, several words joined by blanks."""
        apart = Piece(" ", word.place, quoted=True)
        return self.bound_value(tuple(item or apart for item in self._items(word.parts)), word.place)

    def bound_value(self, pieces: Pieces, place: ScriptPlace) -> Pieces:
        """Return a value, or an unknown piece if it is too large."""
        size = sum(len(piece.text) + 1 for piece in pieces)
        self._work += size
        if size > MAX_SIZE or self.exhausted:
            return (unknown_piece(Reason.BOUND, "", place, quoted=True),)
        return pieces

    def arguments(self, words: Iterable[Word]) -> list[Argument]:
        """Return the arguments that words expand to."""
        found: list[Argument] = []
        for word in words:
            arguments = self._fields(expand_braces(word))
            found += arguments
            self._work += sum(len(piece.text) + 1 for one in arguments for piece in one.pieces)
            if self.exhausted:
                return [Argument((unknown_piece(Reason.BOUND, "", word.place),), open=True)]
        return found

    def _fields(self, word: Word) -> list[Argument]:
        """Return the arguments of one word, split at blanks of unquoted expansions."""
        parts = word.parts
        if len(parts) == 2 and parts[0].place.start == parts[0].place.end and isinstance(parts[1], Parameter):  # noqa: PLR2004
            parts = parts[parts[1].spread == "@" and parts[1].quoted :]  # an empty "$@" gives no word
        fields: list[list[Piece]] = []
        ended = True
        for item in self._items(parts):
            for piece in _split_at_blanks(item) if item else (None,):
                if piece is None:
                    ended = True
                elif ended:
                    fields.append([piece])
                    ended = False
                else:
                    fields[-1].append(piece)
        return [_make_argument(tuple(one), word.place) for one in fields]

    def _items(self, parts: Sequence[Part]) -> Items:
        found: Items = []
        for number, part in enumerate(parts):
            if isinstance(part, QuotedText):
                found += _text_pieces(part, first=number == 0)
                continue
            items = self._put_in(part)
            separators = self.state.variables.get("IFS")
            if not part.quoted and separators is not None and separators.elements:
                # IFS is set, so words are split at characters other than blanks.
                items = [unknown_piece(Reason.EXPANSION, "IFS", part.place)] * bool(items)
            uncounted = next((item for item in items if item and item.several), None)
            # The number of elements is unknown (possibly 0), so the text next to each is unknown too.
            found += [uncounted] if uncounted and len(parts) > 1 else items
        return found

    def _put_in(self, part: Parameter | Arithmetic | Substitution) -> Items:
        if isinstance(part, Parameter):
            return self._parameter(part)
        if isinstance(part, Arithmetic):
            number = self.number(part.parts, part.place)
            if number is None:
                return [unknown_piece(Reason.ARITHMETIC, part.place.text, part.place, quoted=part.quoted)]
            return [Piece(str(number), part.place, quoted=part.quoted)]
        printed = self.printed_by(part)
        if printed is None:
            return [unknown_piece(Reason.COMMAND, part.place.text, part.place, quoted=part.quoted)]
        return [replace(piece, quoted=part.quoted) for piece in printed]

    def number(self, parts: Sequence[Part], place: ScriptPlace) -> int | None:
        """Return the value of an arithmetic expression, or None if it is unknown; carry out its assignments."""
        text = "".join("\0" if item is None or item.unknown else item.text for item in self._items(parts))
        names = {one for pair in _ASSIGNED.findall(text) for one in pair if one}
        match = _ASSIGNMENT.fullmatch(text)
        one_name = match is not None and names == {match[1]} and not names & self.state.odd
        known = one_name or not names
        number = calculate(match[2] if match and one_name else text, self.state.variables) if known else None
        for name in names:
            piece = unknown_piece(Reason.ARITHMETIC, name, place) if number is None else Piece(str(number), place)
            self.state.variables[name] = plain_value(piece)
        return number

    # variables

    def _parameter(self, part: Parameter) -> Items:
        # Quotes do not join forms that expand to several words: "${@:2}", "${list[@]%.py}", "${!names@}".
        text, place = part.place.text, part.place
        unread = unknown_piece(Reason.EXPANSION, text, place, quoted=part.quoted and "@" not in text)
        if part.operator == "unread" or (part.operator in _ALTERNATIVES and part.spread):
            return [unread]
        found = self._look_up(part)
        if part.operator in _ALTERNATIVES:
            return self._alternative(part, found)
        if found is None and (not part.operator or part.name == "@"):
            reason = Reason.ARGUMENT if part.name == "@" or part.name.isdigit() else Reason.ENVIRONMENT
            spreads = part.spread != "" and part.operator != "length"
            quoted = part.quoted and not (spreads and part.spread == "@")
            return [unknown_piece(reason, part.name, place, quoted=quoted, several=spreads and not quoted)]
        made = found if found is None or not part.operator else self._apply_operator(part, found)
        if part.operator == "length" and made is not None:
            return [replace(piece, quoted=part.quoted) for piece in made.pieces]
        return [unread] if made is None else _spread_values(part, made)

    def _look_up(self, part: Parameter) -> Value | None:
        """Return a name's elements; None if the script never sets it, an empty value if it is unset."""
        if part.name in ("?", "$", "!", "-", "0"):
            reason = Reason.ARGUMENT if part.name == "0" else Reason.COMMAND
            return plain_value(unknown_piece(reason, part.name, part.place))
        value = self.state.variables.get("@" if part.name.isdigit() else part.name)
        if value is None and part.name in FROM_OUTSIDE:
            return plain_value(unknown_piece(Reason.ENVIRONMENT, part.name, part.place))
        if value is None or part.spread:
            return value
        number = int(part.name[:9]) if part.name.isdigit() else self.index(part.index, part.place, value)
        uncounted = value.between(0, MAX_INDEX if number is None else number).uncounted
        if uncounted is not None and not part.name.isdigit():
            return plain_value(replace(uncounted, several=False))
        if uncounted is not None or number is None:
            reason = Reason.EXPANSION if number is None else Reason.ARGUMENT
            return plain_value(unknown_piece(reason, part.name, part.place))
        return value.between(number, number)

    def index(self, parts: Sequence[Part] | None, place: ScriptPlace, value: Value) -> int | None:
        """Return the number of an index expression; None if it is unknown."""
        number = 0 if parts is None else self.number(parts, place)
        if number is not None and number < 0:
            number += value.end
        return number if number is not None and 0 <= number < MAX_INDEX else None

    def _alternative(self, part: Parameter, found: Value | None) -> Items:  # noqa: PLR0911 - a case a line
        """Expand ``${name:-value}`` and similar forms."""
        unknown = self.state.all_unknown if found is None else None
        is_assumed = self.assumes_defaults and part.operator in _DEFAULTS
        if unknown is not None and not (is_assumed and unknown.reason is Reason.FILE):
            return [Piece("", part.place, quoted=part.quoted, unknown=unknown)]
        pieces = found.elements[0][1] if found is not None and found.elements else ()
        if any(piece.unknown for piece in pieces) and not any(piece.text for piece in pieces):
            if "=" in part.operator:
                self.state.variables[part.name] = plain_value(*pieces)
            return _spread_values(part, plain_value(*pieces))
        has_text, operator = any(piece.text for piece in pieces), part.operator[-1]
        is_set = found is not None and found.elements != () and (part.operator[0] != ":" or has_text)
        if operator == "+" and not is_set:
            return []
        if is_set and operator != "+":
            return _spread_values(part, plain_value(*pieces))
        if operator == "?":
            return [unknown_piece(Reason.ENVIRONMENT, part.name, part.place, quoted=part.quoted)]
        if operator != "=":
            return self._items(part.operand)
        whole = self.value(Word(part.operand, part.place))
        self.state.variables[part.name] = plain_value(*whole)
        return [piece.through(part.name, quoted=part.quoted) for piece in whole]

    def _apply_operator(self, part: Parameter, found: Value) -> Value | None:
        """Apply an operator (``${#name}``, ``${!name[@]}``, ``${name%pattern}``); None for others and for unknown values."""
        texts = [text_of(pieces) for _, pieces in found.elements]
        if part.operator[0] in "#%":
            items = self._items(part.operand)
            pattern = read_pattern([item for item in items if item]) if None not in items else None
            if pattern is None or None in texts:
                return None
            made = [trim_text(text or "", part.operator, pattern) for text in texts]
            return None if None in made else Value(tuple(enumerate((Piece(text or "", part.place),) for text in made)))
        if found.uncounted is not None:
            return None
        if part.operator == "length":
            text = (texts or [""])[0]
            length = len(texts) if part.spread else len(text) if text is not None and text.isascii() else None
            return None if length is None else plain_value(Piece(str(length), part.place))
        numbers = [(number, (Piece(str(number), part.place),)) for number, _ in found.elements]
        return Value(tuple(numbers)) if part.operator == "indices" and found.array else None


def _spread_values(part: Parameter, value: Value) -> Items:
    """Return the pieces of a variable's value: elements become separate words, unless ``"$*"`` joins them."""
    found: Items = []
    joined = part.quoted and part.spread == "*"
    if joined and value.uncounted is not None:
        return [replace(value.uncounted, quoted=True, several=False)]  # the number of blanks is unknown too
    for at, (_, pieces) in enumerate(value.elements):
        if at:
            found.append(Piece(" ", part.place, quoted=True) if joined else None)
        found += [piece.through(part.name, quoted=part.quoted) for piece in pieces]
        if part.quoted and not pieces and part.spread == "@":
            found.append(Piece("", part.place, quoted=True))
    return found


def _text_pieces(part: QuotedText, *, first: bool) -> Iterator[Piece]:
    """Yield a text's pieces; an unquoted ``~`` at the beginning or after ``=`` or ``:`` is an unknown folder."""
    whole, at = Piece(part.text, part.place, quoted=part.quoted), 0
    for match in _HOME.finditer(part.text) if not part.quoted else ():
        if match.start() or first:
            if match.start() > at:
                yield whole.part(at, match.start())
            home = whole.part(*match.span()).place
            yield unknown_piece(Reason.ENVIRONMENT, "HOME", home, quoted=True)
            at = match.end()
    if at < len(part.text) or not at:
        yield whole.part(at, len(part.text)) if at else whole


def _split_at_blanks(piece: Piece) -> Iterator[Piece | None]:
    """Yield the parts of a piece split at blanks, with None at each word end."""
    if piece.quoted or piece.unknown:
        yield piece
        return
    for match in _BLANKS.finditer(piece.text):
        yield None if match[1] else piece.part(*match.span())


def _make_argument(pieces: Pieces, place: ScriptPlace) -> Argument:
    """Return a field as an argument; one with a file name pattern is unknown."""
    plain = "".join("x" * len(piece.text) if piece.quoted else piece.text for piece in pieces)
    if _FILE_PATTERN.search(plain):
        unknown = Unknown(Reason.PATTERN, "".join(piece.text for piece in pieces), place)
        return Argument((Piece("", pieces[0].place, pieces[0].via, unknown=unknown),), open=True)
    return Argument(pieces, any(piece.unknown and not piece.quoted for piece in pieces))


def expand_braces(word: Word) -> Word:
    """Return a word, as one of unknown words if bash may expand braces in it (``{a,b}``, ``{1..8}``)."""
    plain = "".join(part.text if isinstance(part, QuotedText) and not part.quoted else "\0" for part in word.parts)
    inside = plain[plain.find("{") : plain.rfind("}") + 1] if "{" in plain else ""
    if "," in inside or ".." in inside:
        return replace(word, parts=(Parameter("", word.place, quoted=False, operator="unread"),))
    return word
