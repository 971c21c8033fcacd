"""Expand a script's words as bash does: braces, variables, arithmetic, then splitting into arguments of a program.

The rules are those of "Shell Expansions" in bash's manual: unquoted text is split at blanks. File name patterns and
``~`` depend on the machine and become unknown pieces.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias, TypeGuard

from ms_tune.source.shell.calculate import calculate, change_text, read_pattern
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
_BRACE = re.compile(r"[{},]")
_RANGE = re.compile(r"(?P<first>[-+]?\d+|[A-Za-z])\.\.(?P<last>[-+]?\d+|[A-Za-z])(?:\.\.(?P<step>[-+]?\d+))?", re.ASCII)
_LONGER_NAME = re.compile(r"\$\w")
_PADDED = re.compile(r"-?0\d")
_MAX_BRACES = 100
_MAX_WORDS = 1_000  # per expanded word
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
        for word in (one for several in words for one in expand_braces(several)):
            arguments = self._fields(word)
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
        """Apply an operator (``${#name}``, ``${name%pattern}``, ``${name:1:2}``) to values; None if the result is unknown."""
        texts = [text_of(pieces) for _, pieces in found.elements]
        if part.operator in ("length", "indices", ":") and found.uncounted is not None:
            return None
        if part.operator == "length":
            text = (texts or [""])[0]
            length = len(texts) if part.spread else len(text) if text is not None and text.isascii() else None
            return None if length is None else plain_value(Piece(str(length), part.place))
        if part.operator == "indices":
            numbers = [(number, (Piece(str(number), part.place),)) for number, _ in found.elements]
            return Value(tuple(numbers)) if found.array else None
        if part.operator == ":":
            return self._slice(part, found)
        items = self._items(part.operand)
        new = self.value(Word(part.second or (), part.place))
        pattern = read_pattern(item for item in items if item) if None not in items else None
        with_quotes = part.quoted and any("'" in piece.text for piece in new)
        if pattern is None or None in texts or text_of(new) is None or with_quotes:
            return None
        made = [change_text(part.operator, text or "", pattern, text_of(new) or "") for text in texts]
        return None if None in made else Value(tuple(enumerate((Piece(text or "", part.place),) for text in made)))

    def _slice(self, part: Parameter, found: Value) -> Value | None:
        """Return ``${name:start:length}`` of a text, the positional parameters or an array."""
        start = self.number(part.operand, part.place)
        length = self.number(part.second, part.place) if part.second is not None else MAX_INDEX
        text = text_of(found.elements[0][1]) if found.elements else ""
        if start is None or length is None or length < 0 or (text is None and not part.spread):
            return None
        start += (found.end if part.spread else len(text or "")) if start < 0 else 0
        if start < (part.name == "@"):  # element 0 is the script's own name, which is unknown
            return None
        if part.spread:
            return replace(found, elements=found.between(start, MAX_INDEX).elements[:length])
        return plain_value(Piece((text or "")[start : start + length], part.place))


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


# brace expansion: one word becomes several before any other expansion


def expand_braces(word: Word) -> list[Word]:
    """Return the words that ``{a,b}`` and ``{1..8}`` expand to; a word marked unread if there are too many."""
    plain = "".join(map(_as_plain, word.parts))
    if "{" not in plain or "}" not in plain:
        return [word]
    with suppress(ValueError):
        several = _alternatives(plain, 0, len(plain))
        texts = ["".join(one if isinstance(one, str) else plain[slice(*one)] for one in spans) for spans in several]
        if not any(map(_LONGER_NAME.search, texts)):
            return [replace(word, parts=tuple(part for one in spans for part in _cut(word, one))) for spans in several]
    return [replace(word, parts=(Parameter("", word.place, quoted=False, operator="unread"),))]


def _as_plain(part: Part) -> str:
    """Return a part's text for brace matching: ``$`` for a variable whose name may grow (``$A{1,2}`` is ``$A1 $A2``)."""
    if _is_plain(part):
        return part.text
    return "$" if isinstance(part, Parameter) and not part.quoted and part.place.text[1:] == part.name else "\0"


def _is_plain(part: Part) -> TypeGuard[QuotedText]:
    return isinstance(part, QuotedText) and not part.quoted


# Start and end offset in a word's text, or characters that are not in it.
_Span: TypeAlias = "tuple[int, int] | str"


def _cut(word: Word, span: _Span) -> Iterator[Part]:
    """Yield the parts of a word within a span; a part without plain text counts as one character."""
    if isinstance(span, str):
        yield QuotedText(span, word.place)
        return
    at = 0
    for part in word.parts:
        size = len(part.text) if _is_plain(part) else 1
        low, high = max(span[0] - at, 0), min(span[1] - at, size)
        if low < high and _is_plain(part):
            place = ScriptPlace(part.place.file, part.place.start + low, part.place.start + high)
            yield QuotedText(part.text[low:high], place)
        elif low < high:
            yield part
        at += size


def _alternatives(plain: str, low: int, high: int) -> list[list[_Span]]:
    """Return all words that the first pair of braces expands to, with the text before and after it."""
    if plain.count("{") > _MAX_BRACES or len(plain) > MAX_SIZE:
        raise ValueError(plain)
    for opened in (at for at in range(low, high) if plain[at] == "{"):
        closed, commas = _closing_brace(plain, opened, high)
        texts = _count(plain[opened + 1 : closed]) if closed and not commas else None
        if closed is None or not (commas or texts):
            continue
        bounds = pairwise((opened, *commas, closed)) if commas else ()
        choices = [one for start, end in bounds for one in _alternatives(plain, start + 1, end)]
        choices += [[text] for text in texts or ()]
        ends = _alternatives(plain, closed + 1, high)
        if len(choices) * len(ends) * len(plain) > MAX_SIZE:
            raise ValueError(plain)
        return [[(low, opened), *choice, *end] for choice in choices for end in ends]
    return [[(low, high)]]


def _closing_brace(plain: str, opened: int, end: int) -> tuple[int | None, list[int]]:
    """Return the offset of the matching closing brace, and the offsets of commas outside inner braces."""
    depth, commas = 0, list[int]()
    for match in _BRACE.finditer(plain, opened, end):
        depth += {"{": 1, "}": -1, ",": 0}[match[0]]
        commas += [match.start()] if match[0] == "," and depth == 1 else []
        if not depth:
            return match.start(), commas
    return None, []


def _count(text: str) -> list[str] | None:
    """Return the items of a range such as ``1..8``, ``a..e``, ``8..1``, ``01..10`` or ``0..8..2``; None for other text."""
    match = _RANGE.fullmatch(text)
    if match is None or match["first"].isalpha() != match["last"].isalpha():
        return None
    first, last = match["first"], match["last"]
    letters = first.isalpha()
    if letters and first.islower() != last.islower():
        raise ValueError(text)  # the range includes characters other than letters
    low, high = (ord(first), ord(last)) if letters else (int(first), int(last))
    step = (abs(int(match["step"] or 1)) or 1) * (1 if low <= high else -1)
    if (high - low) // step > _MAX_WORDS:
        raise ValueError(text)
    width = max(len(first), len(last)) if any(_PADDED.match(one) for one in (first, last)) else 0
    numbers = range(low, high + (1 if step > 0 else -1), step)
    return [chr(one) if letters else f"{one:0{width}}" for one in numbers]
