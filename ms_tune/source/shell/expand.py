"""What a word of a script comes to: variables and arithmetic put in, then split into the arguments that a program gets.

As bash does it ("Shell Expansions" of its manual): what stands in no quotes is split at blanks; patterns for names of files and
``~`` need a machine, and are named unknowns.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from ms_tune.source.shell.arithmetic import NotCalculableError, calculate
from ms_tune.source.shell.braces import without_braces
from ms_tune.source.shell.patterns import changed, expression_of
from ms_tune.source.shell.state import FROM_OUTSIDE, Array, Unset, size_of, unknown_piece
from ms_tune.source.shell.syntax import Arithmetic, Parameter, QuotedText, Word
from ms_tune.source.shell.values import Argument, Piece, Pieces, Reason, ScriptPlace, Unknown, text_of
from ms_tune.source.shell.words import NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ms_tune.source.shell.state import ShellState, Value
    from ms_tune.source.shell.syntax import Part, Substitution
    from ms_tune.source.shell.values import File

MAX_SIZE = 40_000  # characters and pieces of one value
MAX_WORK = 400_000  # of all values of a script together
_BLANKS = re.compile(r"[ \t\n]+")
_BRACES = re.compile(r"\{.*(?:,|\.\.).*\}", re.DOTALL)
_PATTERN = re.compile(r"[*?]|\[.*\]", re.DOTALL)
_HOME = re.compile(r"(?:^|(?<=[=:]))~[\w.+-]*")
_INDEX = re.compile(r"0|[1-9]\d*")
_ALTERNATIVES = frozenset((":-", "-", ":=", "=", ":+", "+", ":?", "?"))
_SEVERAL = ("@", "*")

# Several values one after another; None is where one word ends and the next begins, whatever stands around them.
Items: TypeAlias = "list[Piece | None]"


class Expander:
    """Puts values into words; assignments inside of words (``${A:=1}``) change the state.

    Args:
        printed: What a command in ``$(...)`` prints; None where only a run could tell.
    """

    def __init__(self, printed: Callable[[Substitution, ShellState, File], Pieces | None]) -> None:
        self._work = 0
        self._printed = printed

    @property
    def exhausted(self) -> bool:
        """Whether the script's values are too much together, so that what comes after is not known."""
        return self._work > MAX_WORK

    def value(self, word: Word, state: ShellState, file: File) -> Pieces:
        """A word as one value, as in an assignment: nothing is split."""
        place = ScriptPlace(file, word.start, word.end)
        apart = Piece(" ", place, quoted=True)
        return self.bounded(tuple(item or apart for item in self._items(word.parts, state, file)), place)

    def bounded(self, pieces: Pieces, place: ScriptPlace) -> Pieces:
        """A value, or an unknown one in place of one that is too large."""
        size = size_of((pieces,))
        self._work += size
        if size > MAX_SIZE or self.exhausted:
            return (unknown_piece(Reason.BOUND, "", place, quoted=True),)
        return pieces

    def fields(self, words: Iterable[Word], state: ShellState, file: File) -> list[Argument]:
        """The arguments that words come to."""
        found: list[Argument] = []
        for word in (one for several in words for one in without_braces(several)):
            fields = self._fields(word, state, file)
            found += fields
            self._work += size_of(one.pieces for one in fields)
            if self.exhausted:
                place = ScriptPlace(file, word.start, word.end)
                return [Argument((unknown_piece(Reason.BOUND, "", place),), open=True)]
        return found

    def _fields(self, word: Word, state: ShellState, file: File) -> list[Argument]:
        place = ScriptPlace(file, word.start, word.end)
        skeleton = "".join(
            part.text if isinstance(part, QuotedText) and not part.quoted else "x" for part in word.parts
        )
        if _BRACES.search(skeleton):
            return [Argument((unknown_piece(Reason.EXPANSION, file.text[word.start : word.end], place),), open=True)]
        parts = word.parts
        if len(parts) == 2 and parts[0].start == parts[0].end and isinstance(parts[1], Parameter):  # noqa: PLR2004
            parts = parts[_spreads(parts[1]) and parts[1].quoted :]  # "$@" of nothing is no word at all
        fields: list[list[Piece]] = []
        ended = True
        for item in self._items(parts, state, file):
            if item is None:
                ended = True
                continue
            for piece, apart in _split(item):
                if piece is None:
                    ended = True
                elif ended or apart:
                    fields.append([piece])
                    ended = False
                else:
                    fields[-1].append(piece)
        return [_finished(tuple(field), place) for field in fields]

    def _items(self, parts: Sequence[Part], state: ShellState, file: File) -> Items:
        found: Items = []
        for number, part in enumerate(parts):
            if isinstance(part, QuotedText):
                found += _text(part, file, first=number == 0)
                continue
            items = self._put_in(part, state, file)
            if state.splits_oddly and not part.quoted:
                items = [Piece("", ScriptPlace(file, part.start, part.end), unknown=state.splits_oddly)] * bool(items)
            uncounted = next((item for item in items if item and item.several), None)
            # Of elements that may be none, nobody knows which one comes next to what stands beside them.
            found += [uncounted] if uncounted and len(parts) > 1 else items
        return found

    def _put_in(self, part: Parameter | Arithmetic | Substitution, state: ShellState, file: File) -> Items:
        place = ScriptPlace(file, part.start, part.end)
        if isinstance(part, Parameter):
            return self._parameter(part, state, file)
        if isinstance(part, Arithmetic):
            return [self._arithmetic(part, state, file)]
        printed = self._printed(part, state, file)
        if printed is not None:
            return [replace(piece, quoted=part.quoted) for piece in printed]
        return [unknown_piece(Reason.COMMAND, part.text, place, quoted=part.quoted)]

    # arithmetic

    def _arithmetic(self, part: Arithmetic, state: ShellState, file: File) -> Piece:
        place = ScriptPlace(file, part.start, part.end)
        number = self.number(part.parts, state, file, place)
        if number is None:
            return unknown_piece(Reason.ARITHMETIC, file.text[part.start : part.end], place, quoted=part.quoted)
        return Piece(str(number), place, quoted=part.quoted)

    def number(self, parts: Sequence[Part], state: ShellState, file: File, place: ScriptPlace) -> int | None:
        """The value of an arithmetic expression; None if it cannot be known."""
        words = "".join(item.text if item and not item.unknown else "\0" for item in self._items(parts, state, file))

        def assign(name: str, value: str | None) -> None:
            piece = Piece(value or "", place)
            state.variables[name] = (piece if value is not None else unknown_piece(Reason.ARITHMETIC, name, place),)

        def value_of(name: str) -> str | None:
            value = state.variables.get(name)
            if isinstance(value, Array):
                value = value.get(0) or Unset()
            return "" if isinstance(value, Unset) else None if value is None else text_of(value)

        try:
            return calculate(words, value_of, assign)
        except NotCalculableError:
            return None

    # variables

    def _parameter(self, part: Parameter, state: ShellState, file: File) -> Items:  # noqa: PLR0911 - a form a line
        place = ScriptPlace(file, part.start, part.end)
        text = file.text[part.start : part.end]
        # Quotes do not hold together what spreads over words: "${@:2}", "${list[@]%.py}", "${!names@}".
        unread = unknown_piece(Reason.EXPANSION, text, place, quoted=part.quoted and "@" not in text)
        if part.operator == "unread" or (part.operator in _ALTERNATIVES and _is_list(part)):
            return [unread]
        part = self._with_number(part, state, file)
        found = _looked_up(part, state, place)
        if part.operator == "indirect":
            value = state.variables.get(part.name)
            if (
                _is_list(part)
                and isinstance(value, Array)
                and not any(one.several for _, pieces in value.elements for one in pieces)
            ):
                return _apart(part, [(Piece(str(number), place),) for number, _ in value.elements], place)
            name = text_of(found[0]) if found and not _is_list(part) and part.index is None else None
            if name is None or not NAME.fullmatch(name):
                return [unread]
            return self._parameter(replace(part, name=name, operator=""), state, file)
        if part.operator == "length":
            return [_length(part, found, place)]
        if part.operator in _ALTERNATIVES:
            return self._alternative(part, found, state, file)
        if part.operator:
            made = None if found is None else self._made(part, found, state, file)
            return [unread] if made is None else _apart(part, made, place)
        if found is None:
            reason = Reason.ARGUMENT if part.name.isdigit() else Reason.ENVIRONMENT
            return [unknown_piece(reason, part.name, place, quoted=part.quoted and not _spreads(part))]
        return _apart(part, found, place)

    def _alternative(self, part: Parameter, found: list[Pieces] | None, state: ShellState, file: File) -> Items:  # noqa: PLR0911 - a case a line
        """``${name:-value}`` and its like."""
        place = ScriptPlace(file, part.start, part.end)
        if found is None and state.all_unknown is not None:
            return [Piece("", place, quoted=part.quoted, unknown=state.all_unknown)]
        pieces = found[0] if found else ()
        if any(piece.unknown for piece in pieces) and not any(piece.text for piece in pieces):
            if "=" in part.operator:
                state.variables[part.name] = pieces
            return _apart(part, [pieces], place)
        given = bool(found) and (part.operator[0] != ":" or any(piece.text for piece in pieces))
        operator = part.operator[-1]
        if operator == "+":
            return self._items(part.operand, state, file) if given else []
        if given:
            return _apart(part, found or [], place)
        if operator == "?":
            return [unknown_piece(Reason.ENVIRONMENT, part.name, place, quoted=part.quoted)]
        operand = self._items(part.operand, state, file)
        if operator == "=":
            whole = tuple(item or Piece(" ", place, quoted=True) for item in operand)
            state.variables[part.name] = whole
            return [piece.through(part.name, quoted=part.quoted) for piece in whole]
        return operand

    def _with_number(self, part: Parameter, state: ShellState, file: File) -> Parameter:
        """The same with its index calculated, if it has one that is no plain number."""
        index = part.index
        if index is None or index in _SEVERAL or part.name in state.odd or _INDEX.fullmatch(index):
            return part
        number = self.number(part.index_parts, state, file, ScriptPlace(file, part.start, part.end))
        value = state.variables.get(part.name)
        if number is not None and number < 0 and isinstance(value, Array) and value.elements:
            number += value.elements[-1][0] + 1
        return part if number is None else replace(part, index=str(number))

    def _made(self, part: Parameter, found: list[Pieces], state: ShellState, file: File) -> list[Pieces] | None:
        """``${name%pattern}``, ``${name/pattern/text}``, ``${name^^}``, ``${name:1:2}`` of each value; None if one is not known."""
        place = ScriptPlace(file, part.start, part.end)
        texts = [text_of(pieces) for pieces in found]
        if part.operator == ":":
            return self._slice(part, found, state, file)
        new = "".join(
            item.text if item and not item.unknown else "\0" for item in self._items(part.second or (), state, file)
        )
        items = self._items(part.operand, state, file)
        if "\0" in new or ("'" in new and part.quoted) or None in items:
            return None
        expression = expression_of(item for item in items if item)
        made = [None if text is None else changed(part.operator, text, expression, new) for text in texts]
        return None if None in made else [(Piece(text or "", place),) for text in made]

    def _slice(self, part: Parameter, found: list[Pieces], state: ShellState, file: File) -> list[Pieces] | None:
        place = ScriptPlace(file, part.start, part.end)
        start = self.number(part.operand, state, file, place)
        length = self.number(part.second, state, file, place) if part.second is not None else None
        if start is None or (part.second is not None and length is None) or "?" in file.text[part.start : part.end]:
            return None
        if _is_list(part):
            value = state.variables.get(part.name)
            dense = isinstance(value, Array) and [number for number, _ in value.elements] == list(range(len(found)))
            if part.name in _SEVERAL:
                dense, start = start != 0, start - (start > 0)
            if not dense or (length or 0) < 0 or any(piece.several for pieces in found for piece in pieces):
                return None
            start += len(found) if start < 0 else 0
            return [] if start < 0 else found[start : None if length is None else start + length]
        text = text_of(found[0]) if found else ""
        if text is None:
            return None
        start += len(text) if start < 0 else 0
        end = len(text) if length is None else length + (start if length >= 0 else len(text))
        return None if end < start <= len(text) or start < 0 else [(Piece(text[start:end], place),)]


def _is_list(part: Parameter) -> bool:
    return part.name in _SEVERAL or part.index in _SEVERAL


def _spreads(part: Parameter) -> bool:
    """Whether quotes do not hold it together: ``"$@"``, ``"${name[@]}"``."""
    return "@" in (part.name, part.index)


def _looked_up(part: Parameter, state: ShellState, place: ScriptPlace) -> list[Pieces] | None:
    """The values behind a name (several of an array); None if the script does not set it, nothing if it is not set."""
    if part.name in _SEVERAL or part.name.isdigit() or part.name in "#?$!-":
        return _positional(part, state, place)
    value: Value | None = state.variables.get(part.name)
    if value is None:
        return [(unknown_piece(Reason.ENVIRONMENT, part.name, place),)] if part.name in FROM_OUTSIDE else None
    if isinstance(value, Unset):
        return []
    if isinstance(value, tuple):
        value = Array(((0, value),))
    index = part.index or "0"
    if index in _SEVERAL:
        return [pieces for _, pieces in value.elements]
    if not (index.isascii() and index.isdigit() and len(index) < 7 and (index == "0" or index[0] != "0")):  # noqa: PLR2004
        return [(unknown_piece(Reason.EXPANSION, f"{part.name}[{index}]", place),)]
    element = value.get(int(index))
    return [] if element is None else [element]


def _positional(part: Parameter, state: ShellState, place: ScriptPlace) -> list[Pieces] | None:  # noqa: PLR0911 - a kind a line
    name, given = part.name, state.positional
    if name in "?$!-" or name == "0":
        return [(unknown_piece(Reason.COMMAND if name != "0" else Reason.ARGUMENT, name, place),)]
    if given is None:
        return None if name.isdigit() else [(replace(unknown_piece(Reason.ARGUMENT, name, place), several=True),)]
    if name == "#":
        if any(one.open for one in given):
            return [(unknown_piece(Reason.ARGUMENT, name, place),)]
        return [(Piece(str(len(given)), place),)]
    if name in _SEVERAL:
        return [
            tuple(replace(piece, several=one.open and piece.unknown is not None) for piece in one.pieces)
            for one in given
        ]
    before = given[: int(name)] if len(name) < 7 else given  # noqa: PLR2004 - no shell has a million arguments
    if any(one.open for one in before):
        return [(unknown_piece(Reason.ARGUMENT, name, place),)]
    return [before[-1].pieces] if len(before) == int(name) else []


def _apart(part: Parameter, values: list[Pieces], place: ScriptPlace) -> Items:
    """Values as they come out of a variable: several are words of their own, unless ``"$*"`` joins them."""
    found: Items = []
    joined = part.quoted and "*" in (part.name, part.index)
    uncounted = next((piece for pieces in values for piece in pieces if piece.several), None)
    if joined and uncounted is not None:
        return [replace(uncounted, quoted=True, several=False)]  # how many blanks are between is unknown too
    for number, pieces in enumerate(values):
        if number:
            found.append(Piece(" ", place, quoted=True) if joined else None)
        found += [piece.through(part.name, quoted=part.quoted) for piece in pieces]
        if part.quoted and not pieces and _spreads(part):
            found.append(Piece("", place, quoted=True))
    return found


def _length(part: Parameter, found: list[Pieces] | None, place: ScriptPlace) -> Piece:
    if found is not None and _is_list(part) and not any(pieces and pieces[0].unknown for pieces in found):
        return Piece(str(len(found)), place, quoted=part.quoted)
    text = text_of(found[0]) if found else None if found is None else ""
    if text is None or not text.isascii() or _is_list(part):
        return unknown_piece(Reason.EXPANSION, part.name, place, quoted=part.quoted)
    return Piece(str(len(text)), place, quoted=part.quoted)


def _text(part: QuotedText, file: File, *, first: bool) -> Items:
    whole = Piece(part.text, ScriptPlace(file, part.start, part.end), quoted=part.quoted)
    if part.quoted or "~" not in part.text:
        return [whole]
    found, at = list[Piece](), 0
    for match in _HOME.finditer(part.text):
        if match.start() or first:
            place = ScriptPlace(file, part.start + match.start(), part.start + match.end())
            found += [whole.part(at, match.start())] * (match.start() > at)
            found.append(unknown_piece(Reason.ENVIRONMENT, "HOME", place, quoted=True))
            at = match.end()
    return [*found, *([whole.part(at, len(part.text))] * (at < len(part.text)))]


def _split(piece: Piece) -> list[tuple[Piece | None, bool]]:
    """A piece split at blanks: parts, each with whether a word begins with it; None where a word ends."""
    if piece.quoted or piece.unknown:
        return [(piece, False)]
    found: list[tuple[Piece | None, bool]] = []
    at, apart = 0, False
    for match in _BLANKS.finditer(piece.text):
        if match.start() > at:
            found.append((piece.part(at, match.start()), apart))
        at, apart = match.end(), True
    if at < len(piece.text):
        found.append((piece.part(at, len(piece.text)), apart))
    elif apart:
        found.append((None, True))
    return found


def _finished(pieces: Pieces, place: ScriptPlace) -> Argument:
    """A field as an argument; one with a pattern for names of files is unknown."""
    plain = "".join("x" * len(piece.text) if piece.quoted else piece.text for piece in pieces)
    if _PATTERN.search(plain):
        words = "".join(piece.text for piece in pieces)
        unknown = Unknown(Reason.PATTERN, words, place)
        return Argument((Piece("", pieces[0].place, pieces[0].via, unknown=unknown),), open=True)
    return Argument(pieces, any(piece.unknown and not piece.quoted for piece in pieces))
