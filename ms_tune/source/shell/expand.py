"""What a word of a script comes to: variables and arithmetic put in, then split into the arguments that a program gets.

As bash does it ("Shell Expansions" of its manual): what stands in no quotes is split at blanks; patterns for names of files and
``~`` need a machine, and are named unknowns.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from ms_tune.source.shell.conditions import change_text, read_pattern
from ms_tune.source.shell.syntax import NAME, Arithmetic, Parameter, QuotedText, Word
from ms_tune.source.shell.values import (
    FROM_OUTSIDE,
    Argument,
    Array,
    Piece,
    Pieces,
    Reason,
    ScriptPlace,
    Unknown,
    Unset,
    text_of,
    unknown_piece,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeGuard

    from ms_tune.source.shell.syntax import Part, Substitution
    from ms_tune.source.shell.values import File, ShellState

MAX_SIZE = 40_000  # characters and pieces of one value
MAX_WORK = 400_000  # of all values of a script together
MAX_INDEX = 1_000_000
_BLANKS = re.compile(r"[ \t\n]+")
_MAX_EXPRESSION = 500  # letters
_MAX_DEPTH = 10  # variables inside of each other
_BITS = 64
_EXPRESSION = re.compile(
    r"(?:\s|0[xX][0-9a-fA-F]+\b|0[0-7]*\b|[1-9]\d*\b|[A-Za-z_]\w*|<<|>>|[<>=!]=|&&|\|\||[-+*/%<>()])*", re.ASCII
)
_ASSIGNMENT = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)(.*)", re.DOTALL)
_ASSIGNED = re.compile(
    r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)?(?:=(?!=)|[-+*/%&|^]=|<<=|>>=|\+\+|--)|(?:\+\+|--)\s*([A-Za-z_]\w*)"
)
_BRACE = re.compile(r"[{},]")
_RANGE = re.compile(r"(?P<first>[-+]?\d+|[A-Za-z])\.\.(?P<last>[-+]?\d+|[A-Za-z])(?:\.\.(?P<step>[-+]?\d+))?", re.ASCII)
_MAX_BRACES = 100
_MAX_WORDS = 1_000  # that one word becomes
_FILE_PATTERN = re.compile(r"[*?]|\[.*\]", re.DOTALL)
_HOME = re.compile(r"(?:^|(?<=[=:]))~[\w.+-]*")
_ALTERNATIVES = frozenset((":-", "-", ":=", "=", ":+", "+", ":?", "?"))

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
        return self.join_parts(word.parts, state, ScriptPlace(file, word.start, word.end))

    def join_parts(self, parts: Sequence[Part], state: ShellState, place: ScriptPlace) -> Pieces:
        """Parts as one value; several words in them have a blank between."""
        apart = Piece(" ", place, quoted=True)
        return self.bound_value(tuple(item or apart for item in self._items(parts, state, place.file)), place)

    def bound_value(self, pieces: Pieces, place: ScriptPlace) -> Pieces:
        """A value, or an unknown one in place of one that is too large."""
        size = sum(len(piece.text) + 1 for piece in pieces)
        self._work += size
        if size > MAX_SIZE or self.exhausted:
            return (unknown_piece(Reason.BOUND, "", place, quoted=True),)
        return pieces

    def arguments(self, words: Iterable[Word], state: ShellState, file: File) -> list[Argument]:
        """The arguments that words come to."""
        found: list[Argument] = []
        for word in words:
            arguments = self._arguments(word, state, file)
            found += arguments
            self._work += sum(len(piece.text) + 1 for one in arguments for piece in one.pieces)
            if self.exhausted:
                place = ScriptPlace(file, word.start, word.end)
                return [Argument((unknown_piece(Reason.BOUND, "", place),), open=True)]
        return found

    def _arguments(self, word: Word, state: ShellState, file: File) -> list[Argument]:
        place = ScriptPlace(file, word.start, word.end)
        several = (one.parts for one in expand_braces(word))
        return [one for parts in several for one in self._fields(parts, state, place)]

    def _fields(self, parts: Sequence[Part], state: ShellState, place: ScriptPlace) -> Iterator[Argument]:
        """One word split at the blanks of what is put in."""
        if len(parts) == 2 and parts[0].start == parts[0].end and isinstance(parts[1], Parameter):  # noqa: PLR2004
            parts = parts[parts[1].spread == "@" and parts[1].quoted :]  # "$@" of nothing is no word at all
        fields: list[list[Piece]] = []
        ended = True
        for item in self._items(parts, state, place.file):
            for piece in _split_at_blanks(item) if item else (None,):
                if piece is None:
                    ended = True
                elif ended:
                    fields.append([piece])
                    ended = False
                else:
                    fields[-1].append(piece)
        return (_make_argument(tuple(one), place) for one in fields)

    def _items(self, parts: Sequence[Part], state: ShellState, file: File) -> Items:
        found: Items = []
        for number, part in enumerate(parts):
            place = ScriptPlace(file, part.start, part.end)
            if isinstance(part, QuotedText):
                found += _text_pieces(part, place, first=number == 0)
                continue
            items = self._put_in(part, state, place)
            if not part.quoted and not isinstance(state.variables.get("IFS", Unset()), Unset):
                # Words are split at other marks than blanks.
                items = [unknown_piece(Reason.EXPANSION, "IFS", place)] * bool(items)
            uncounted = next((item for item in items if item and item.several), None)
            # Of elements that may be none, nobody knows which one comes next to what stands beside them.
            found += [uncounted] if uncounted and len(parts) > 1 else items
        return found

    def _put_in(self, part: Parameter | Arithmetic | Substitution, state: ShellState, place: ScriptPlace) -> Items:
        text = place.file.text[part.start : part.end]
        if isinstance(part, Parameter):
            return self._parameter(part, state, place)
        if isinstance(part, Arithmetic):
            number = self.number(part.parts, state, place)
            if number is None:
                return [unknown_piece(Reason.ARITHMETIC, text, place, quoted=part.quoted)]
            return [Piece(str(number), place, quoted=part.quoted)]
        printed = self._printed(part, state, place.file)
        if printed is not None:
            return [replace(piece, quoted=part.quoted) for piece in printed]
        return [unknown_piece(Reason.COMMAND, text, place, quoted=part.quoted)]

    def number(self, parts: Sequence[Part], state: ShellState, place: ScriptPlace) -> int | None:
        """The value of an arithmetic expression; None if it cannot be known."""
        items = self._items(parts, state, place.file)
        text = "".join("\0" if item is None or item.unknown else item.text for item in items)
        names = {one for pair in _ASSIGNED.findall(text) for one in pair if one}
        match = _ASSIGNMENT.fullmatch(text)
        one_name = match is not None and names == {match[1]} and not names & state.odd
        number = _calculate(match[2] if match and one_name else text, state) if one_name or not names else None
        for name in names:
            piece = unknown_piece(Reason.ARITHMETIC, name, place) if number is None else Piece(str(number), place)
            state.variables[name] = (piece,)
        return number

    # variables

    def _parameter(self, part: Parameter, state: ShellState, place: ScriptPlace) -> Items:
        text = place.file.text[part.start : part.end]
        # Quotes do not hold together what spreads over words: "${@:2}", "${list[@]%.py}", "${!names@}".
        unread = unknown_piece(Reason.EXPANSION, text, place, quoted=part.quoted and "@" not in text)
        if part.operator == "unread" or (part.operator in _ALTERNATIVES and part.spread):
            return [unread]
        found = self._look_up(part, state, place)
        if part.operator in _ALTERNATIVES:
            return self._alternative(part, found, state, place)
        if part.operator == "":
            if found is None:
                reason = Reason.ARGUMENT if part.name.isdigit() else Reason.ENVIRONMENT
                return [unknown_piece(reason, part.name, place, quoted=part.quoted and part.spread != "@")]
            return _spread_values(part, found, place)
        if part.operator == "length" and found is not None:
            length = _measure(part, found)
            return [Piece(length, place, quoted=part.quoted) if length else unread]
        made = None if found is None else self._apply_operator(part, found, state, place)
        return [unread] if made is None else _spread_values(part, made, place)

    def _look_up(self, part: Parameter, state: ShellState, place: ScriptPlace) -> list[Pieces] | None:
        """The values behind a name (several of an array); None if the script does not set it, nothing if it is not set."""
        if not NAME.fullmatch(part.name):
            return _look_up_positional(part.name, state, place)
        value = state.variables.get(part.name)
        if value is None:
            return [(unknown_piece(Reason.ENVIRONMENT, part.name, place),)] if part.name in FROM_OUTSIDE else None
        if isinstance(value, Unset):
            return []
        elements = value.elements if isinstance(value, Array) else ((0, value),)
        if part.spread:
            return [pieces for _, pieces in elements]
        index = self.index(part.index, state, place, elements) if part.index is not None else 0
        several = next((pieces for _, pieces in elements if any(piece.several for piece in pieces)), None)
        if index is None or several is not None:
            return [several or (unknown_piece(Reason.EXPANSION, part.name, place),)]
        return [pieces for number, pieces in elements if number == index]

    def index(
        self, parts: Sequence[Part], state: ShellState, place: ScriptPlace, elements: Sequence[tuple[int, Pieces]]
    ) -> int | None:
        """The number that an index stands for; None if it cannot be known."""
        number = self.number(parts, state, place)
        if number is not None and number < 0 and elements:
            number += elements[-1][0] + 1
        return number if number is not None and 0 <= number < MAX_INDEX else None

    def _alternative(self, part: Parameter, found: list[Pieces] | None, state: ShellState, place: ScriptPlace) -> Items:  # noqa: PLR0911 - a case a line
        """``${name:-value}`` and its like."""
        if found is None and state.all_unknown is not None:
            return [Piece("", place, quoted=part.quoted, unknown=state.all_unknown)]
        pieces = found[0] if found else ()
        if any(piece.unknown for piece in pieces) and not any(piece.text for piece in pieces):
            if "=" in part.operator:
                state.variables[part.name] = pieces
            return _spread_values(part, [pieces], place)
        is_set = bool(found) and (part.operator[0] != ":" or any(piece.text for piece in pieces))
        operator = part.operator[-1]
        if operator == "+" and not is_set:
            return []
        if is_set and operator != "+":
            return _spread_values(part, found or [], place)
        if operator == "?":
            return [unknown_piece(Reason.ENVIRONMENT, part.name, place, quoted=part.quoted)]
        operand = self._items(part.operand, state, place.file)
        if operator != "=":
            return operand
        whole = tuple(item or Piece(" ", place, quoted=True) for item in operand)
        state.variables[part.name] = whole
        return [piece.through(part.name, quoted=part.quoted) for piece in whole]

    def _apply_operator(
        self, part: Parameter, found: list[Pieces], state: ShellState, place: ScriptPlace
    ) -> list[Pieces] | None:
        """What an operator makes of values: ``${#name}``, ``${name%pattern}``, ``${name:1:2}``; None if that is not known."""
        value = state.variables.get(part.name)
        counted = not any(piece.several for pieces in found for piece in pieces)
        texts = [text_of(pieces) for pieces in found]
        if part.operator == "indices":
            if not isinstance(value, Array) or not counted:
                return None
            return [(Piece(str(number), place),) for number, _ in value.elements]
        if part.operator == ":":
            return self._slice(part, found, state, place) if counted else None
        items = self._items(part.operand, state, place.file)
        new = self.join_parts(part.second or (), state, place)
        pattern = read_pattern(item for item in items if item) if None not in items else None
        with_quotes = part.quoted and any("'" in piece.text for piece in new)
        if pattern is None or None in texts or text_of(new) is None or with_quotes:
            return None
        made = [change_text(part.operator, text or "", pattern, text_of(new) or "") for text in texts]
        return None if None in made else [(Piece(text or "", place),) for text in made]

    def _slice(
        self, part: Parameter, found: list[Pieces], state: ShellState, place: ScriptPlace
    ) -> list[Pieces] | None:
        """``${name:start:length}`` of a text, of the positional parameters, and of an array without gaps."""
        start = self.number(part.operand, state, place)
        length = self.number(part.second, state, place) if part.second is not None else None
        text = text_of(found[0]) if found else ""
        if start is None or text is None or (part.second is not None and (length is None or length < 0)):
            return None
        start += (len(found) if part.spread else len(text)) if start < 0 else 0
        stop = None if length is None else start + length
        if start < 0 or not part.spread:
            return [(Piece(text[start:stop], place),)] if start >= 0 else None
        value = state.variables.get(part.name)
        if isinstance(value, Array) and [number for number, _ in value.elements] == list(range(len(found))):
            return found[start:stop]
        if part.name not in ("@", "*") or start == 0:
            return None
        return found[start - 1 : None if stop is None else stop - 1]


def _measure(part: Parameter, found: list[Pieces]) -> str:
    """The number of elements or of letters; nothing where that is not known."""
    if part.spread:
        return str(len(found)) if not any(piece.several for pieces in found for piece in pieces) else ""
    text = text_of(found[0]) if found else ""
    return str(len(text)) if text is not None and text.isascii() else ""


def _look_up_positional(name: str, state: ShellState, place: ScriptPlace) -> list[Pieces] | None:
    given = state.positional
    if name in ("?", "$", "!", "-", "0"):
        return [(unknown_piece(Reason.ARGUMENT if name == "0" else Reason.COMMAND, name, place),)]
    if given is None:
        return None if name.isdigit() else [(unknown_piece(Reason.ARGUMENT, name, place, several=True),)]
    if name in ("@", "*"):
        pairs = ((piece, one.open and piece.unknown is not None) for one in given for piece in one.pieces)
        marked = iter([replace(piece, several=several) for piece, several in pairs])
        return [tuple(next(marked) for _ in one.pieces) for one in given]
    before = given[: int(name)] if name != "#" and int(name) < MAX_INDEX else given
    if any(one.open for one in before):
        return [(unknown_piece(Reason.ARGUMENT, name, place),)]
    if name == "#":
        return [(Piece(str(len(given)), place),)]
    return [before[-1].pieces] if len(before) == int(name) else []


def _spread_values(part: Parameter, values: list[Pieces], place: ScriptPlace) -> Items:
    """Values as they come out of a variable: several are words of their own, unless ``"$*"`` joins them."""
    found: Items = []
    joined = part.quoted and part.spread == "*"
    uncounted = next((piece for pieces in values for piece in pieces if piece.several), None)
    if joined and uncounted is not None:
        return [replace(uncounted, quoted=True, several=False)]  # how many blanks are between is unknown too
    for number, pieces in enumerate(values):
        if number:
            found.append(Piece(" ", place, quoted=True) if joined else None)
        found += [piece.through(part.name, quoted=part.quoted) for piece in pieces]
        if part.quoted and not pieces and part.spread == "@":
            found.append(Piece("", place, quoted=True))
    return found


def _text_pieces(part: QuotedText, place: ScriptPlace, *, first: bool) -> Iterator[Piece]:
    """The pieces of a text: ``~`` in no quotes, at its beginning or behind ``=`` and ``:``, is a folder that nobody knows."""
    whole, at = Piece(part.text, place, quoted=part.quoted), 0
    for match in _HOME.finditer(part.text) if not part.quoted else ():
        if match.start() or first:
            if match.start() > at:
                yield whole.part(at, match.start())
            home = ScriptPlace(place.file, part.start + match.start(), part.start + match.end())
            yield unknown_piece(Reason.ENVIRONMENT, "HOME", home, quoted=True)
            at = match.end()
    if at < len(part.text) or not at:
        yield whole.part(at, len(part.text)) if at else whole


def _split_at_blanks(piece: Piece) -> Iterator[Piece | None]:
    """A piece split at blanks; None where a word ends."""
    if piece.quoted or piece.unknown:
        yield piece
        return
    at = 0
    for match in _BLANKS.finditer(piece.text):
        if match.start() > at:
            yield piece.part(at, match.start())
        yield None
        at = match.end()
    if at < len(piece.text):
        yield piece.part(at, len(piece.text)) if at else piece


def _make_argument(pieces: Pieces, place: ScriptPlace) -> Argument:
    """A field as an argument; one with a pattern for names of files is unknown."""
    plain = "".join("x" * len(piece.text) if piece.quoted else piece.text for piece in pieces)
    if _FILE_PATTERN.search(plain):
        unknown = Unknown(Reason.PATTERN, "".join(piece.text for piece in pieces), place)
        return Argument((Piece("", pieces[0].place, pieces[0].via, unknown=unknown),), open=True)
    return Argument(pieces, any(piece.unknown and not piece.quoted for piece in pieces))


# braces ("Brace Expansion"): one word becomes several before anything else is put in


def expand_braces(word: Word) -> list[Word]:
    """The words that ``{a,b}`` and ``{1..8}`` make of one; one that is not read where they are too many."""
    plain = "".join(part.text if _is_plain(part) else "\0" for part in word.parts)
    if "{" not in plain or "}" not in plain:
        return [word]
    unread = [replace(word, parts=(Parameter("", word.start, word.end, quoted=False, operator="unread"),))]
    if plain.count("{") > _MAX_BRACES or len(plain) > MAX_SIZE:
        return unread
    try:
        return [replace(word, parts=tuple(_join_letters(one))) for one in _alternatives(plain, _letters(word))]
    except ValueError:
        return unread


def _letters(word: Word) -> list[Part]:
    found: list[Part] = []
    for part in word.parts:
        text, start = (part.text, part.start) if _is_plain(part) else ("", 0)
        found += [QuotedText(letter, at, at + 1) for at, letter in enumerate(text, start)] if text else [part]
    return found


def _is_plain(part: Part) -> TypeGuard[QuotedText]:
    return isinstance(part, QuotedText) and not part.quoted


def _alternatives(plain: str, letters: list[Part]) -> list[list[Part]]:
    """The words that begin alike and end alike, and between have what the first pair of braces stands for."""
    for opened in (at for at, letter in enumerate(plain) if letter == "{"):
        closed, commas = _closing_brace(plain, opened)
        if closed is None:
            continue
        if commas:
            bounds = pairwise((opened, *commas, closed))
            slices = [slice(start + 1, stop) for start, stop in bounds]
            choices = [one for inner in slices for one in _alternatives(plain[inner], letters[inner])]
        elif (texts := _count(plain[opened + 1 : closed])) is not None:
            start, end = letters[opened].start, letters[closed].end
            choices = [[QuotedText(text, start, end)] for text in texts]
        else:
            continue
        rest = slice(closed + 1, None)
        ends = _alternatives(plain[rest], letters[rest])
        if len(choices) * len(ends) * len(plain) > MAX_SIZE:
            raise ValueError(plain)
        return [[*letters[:opened], *choice, *end] for choice in choices for end in ends]
    return [letters]


def _closing_brace(plain: str, opened: int) -> tuple[int | None, list[int]]:
    """Where the brace that opens at an offset is closed, and the commas that stand in no other braces."""
    depth, commas = 0, list[int]()
    for match in _BRACE.finditer(plain, opened):
        depth += {"{": 1, "}": -1, ",": 0}[match[0]]
        commas += [match.start()] if match[0] == "," and depth == 1 else []
        if not depth:
            return match.start(), commas
    return None, []


def _count(text: str) -> list[str] | None:
    """What ``1..8`` stands for, also ``a..e``, ``8..1``, ``01..10`` and ``0..8..2``; None if the text is no such thing."""
    match = _RANGE.fullmatch(text)
    if match is None or match["first"].isalpha() != match["last"].isalpha():
        return None
    first, last, step = match["first"], match["last"], abs(int(match["step"] or 1)) or 1
    if first.isalpha():
        if first.islower() != last.islower():
            raise ValueError(text)  # other signs stand between
        return [chr(one) for one in _from_to(ord(first), ord(last), step)]
    padded = any(re.match(r"-?0\d", one) for one in (first, last))
    width = max(len(first), len(last)) if padded else 0
    return [f"{one:0{width}}" for one in _from_to(int(first), int(last), step)]


def _from_to(first: int, last: int, step: int) -> range:
    if abs(last - first) // step > _MAX_WORDS:
        raise ValueError(step)
    return range(first, last + 1, step) if first <= last else range(first, last - 1, -step)


def _join_letters(letters: list[Part]) -> Iterator[Part]:
    """The letters of a text that stand beside each other as one part again."""
    before: Part | None = None
    for part in letters:
        if before is not None and _is_plain(before) and _is_plain(part) and before.end == part.start and part.text:
            before = replace(before, text=before.text + part.text, end=part.end)
            continue
        if before is not None:
            yield before
        before = part
    if before is not None:
        yield before


# arithmetic ("Shell Arithmetic" of bash's manual), where Python has the same precedences


def _calculate(text: str, state: ShellState, depth: int = 0) -> int | None:
    """The value of an expression of numbers, variables and the usual operators; None if it is another, or something is unknown."""
    names = re.findall(r"[A-Za-z_]\w*", text)
    if (
        len(text) > _MAX_EXPRESSION
        or depth > _MAX_DEPTH
        or not _EXPRESSION.fullmatch(text)
        or any(map(keyword.iskeyword, names))
    ):
        return None
    if not text.strip():
        return 0
    octal = re.sub(r"\b0(?=[0-7])", "0o", text.replace("/", "//"))
    try:
        tree = ast.parse(octal.replace("&&", " and ").replace("||", " or ").strip(), mode="eval")
        return _evaluate(tree.body, state, depth)
    except (SyntaxError, ValueError, ZeroDivisionError, MemoryError, RecursionError):
        return None


def _evaluate(node: ast.expr, state: ShellState, depth: int) -> int:
    """The value of a part of an expression; a ValueError if it is not known."""
    number: int | None = None
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        number = node.value
    elif isinstance(node, ast.Name):
        value = state.variables.get(node.id)
        text = "" if isinstance(value, Unset) else text_of(value) if isinstance(value, tuple) else None
        number = _calculate(text, state, depth + 1) if text is not None else None
    elif isinstance(node, ast.BoolOp):
        values = [_evaluate(one, state, depth) != 0 for one in node.values]
        number = all(values) if isinstance(node.op, ast.And) else any(values)
    elif isinstance(node, ast.UnaryOp) and not (
        isinstance(node.operand, ast.BinOp) and isinstance(node.operand.op, ast.Pow)
    ):
        value_of_it = _evaluate(node.operand, state, depth)  # `-2 ** 2` is 4 for bash
        number = -value_of_it if isinstance(node.op, ast.USub) else value_of_it
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        pair = _evaluate(node.left, state, depth), _evaluate(node.comparators[0], state, depth)
        number = _COMPARED[type(node.ops[0])](*pair)
    elif isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left, state, depth), _evaluate(node.right, state, depth)
        if isinstance(node.op, ast.Pow | ast.LShift | ast.RShift) and not 0 <= right < _BITS:
            raise ValueError(right)
        number = _COMBINED[type(node.op)](left, right)
    if number is None:
        raise ValueError(node)
    return (int(number) + (1 << (_BITS - 1))) % (1 << _BITS) - (1 << (_BITS - 1))


def _divide(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


_COMPARED: dict[type, Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_COMBINED: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: _divide,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Pow: operator.pow,
    ast.Mod: lambda left, right: left - _divide(left, right) * right,
}
