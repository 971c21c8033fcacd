"""Evaluate known texts as bash does: patterns (``case``, ``${name%pattern}``), tests, ``$((...))``, ``seq``.

The rules are those of bash's manual ("Pattern Matching", "Bash Conditional Expressions", "Shell Arithmetic").
``extglob``, character classes and anything that depends on the machine are unsupported: the result is None (unknown).
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from ms_tune.source.shell.values import Piece, Pieces, Value, text_of

_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})")
# For each operator, the permitted signs of the difference between the two numbers.
_COMPARED = {"-eq": (0,), "-ne": (-1, 1), "-lt": (-1,), "-le": (-1, 0), "-gt": (1,), "-ge": (0, 1)}
_MAX_COMPARED = 40_000  # characters of the text times those of the pattern
_MAX_REPLACED = 1_000  # characters of a text in which every position is tried
_LETTERS = re.compile(r"\[([!^]?)(\]?[^\]\[\\/]*)\]")
_MOST = 3  # words in one test
_MAX_EXPRESSION = 500  # characters
_MAX_DEPTH = 10  # nested variables
_BITS = 64
_EXPRESSION = re.compile(
    r"(?:\s|0[xX][0-9a-fA-F]+\b|0[0-7]*\b|[1-9]\d*\b|[A-Za-z_]\w*|<<|>>|[<>=!]=|&&|\|\||[-+*/%<>()])*", re.ASCII
)
_SEQUENCE = re.compile(r"[-+]?\d{1,9}", re.ASCII)
_MAX_LINES = 1_000

# Per pattern character: the characters it matches (None for any), whether negated, whether it may repeat.
Pattern: TypeAlias = "list[tuple[str | None, bool, bool]]"


def read_pattern(pieces: Iterable[Piece]) -> Pattern | None:
    """Return a parsed pattern; None if it is unknown or not supported (``extglob``, character classes)."""
    found: Pattern = []
    pieces = list(pieces)
    plain = "".join("x" if piece.quoted else piece.text for piece in pieces)
    if any(piece.unknown for piece in pieces) or re.search(r"[?*+@!]\(|\\", plain):
        return None
    for piece in pieces:
        at = 0
        while at < len(piece.text):
            here, brackets = piece.text[at], None if piece.quoted else _LETTERS.match(piece.text, at)
            if brackets:
                letters = re.sub(r"(.)-(.)", _letters_between, brackets[2])
                if not brackets[2].isascii() or not letters or letters.count("-") > letters.startswith("-"):
                    return None
                found.append((letters, bool(brackets[1]), False))
            elif here == "[" and not piece.quoted:
                return None
            else:
                any_ = here in "*?" and not piece.quoted
                found.append((None if any_ else here, False, here == "*" and any_))
            at = brackets.end() if brackets else at + 1
    return found


def _letters_between(match: re.Match[str]) -> str:
    return "".join(map(chr, range(ord(match[1]), ord(match[2]) + 1)))


def _ends(pattern: Pattern, text: str) -> list[int]:
    """Return the end offsets of all prefixes of a text that match a pattern."""
    found = {0}
    for letters, negated, many in pattern:
        if many:
            found = set(range(min(found), len(text) + 1)) if found else found
        else:
            found = {at + 1 for at in found if at < len(text) and (letters is None or (text[at] in letters) != negated)}
    return sorted(found)


def matches_pattern(text: str, pattern: Pattern | None) -> bool | None:
    """Return whether a pattern matches the whole text; None if the pattern is unknown or matching is too expensive."""
    if pattern is None or len(text) * len(pattern) > _MAX_COMPARED:
        return None
    return len(text) in _ends(pattern, text)


def change_text(operator: str, text: str, pattern: Pattern, new: str) -> str | None:
    """Apply ``#`` or ``%`` (remove a prefix or suffix) or ``/`` (replace) to a value; None if the result is unknown."""
    which = -1 if len(operator) > 1 else 0  # the longest or the shortest match
    if len(text) * len(pattern) > _MAX_COMPARED or "&" in new or "\\" in new:
        return None  # since bash 5.2, "&" means the matched text
    if operator[0] == "#":
        ends = _ends(pattern, text)
        return text[ends[which] :] if ends else text
    if operator[0] == "%":
        ends = _ends(pattern[::-1], text[::-1])
        return text[: len(text) - ends[which]] if ends else text
    if operator not in ("/", "//") or not pattern or len(text) > _MAX_REPLACED:
        return None
    found, at = new if not text and 0 in _ends(pattern, text) else "", 0
    while at < len(text):
        ends = [end for end in _ends(pattern, text[at:]) if end]
        if not ends:
            found, at = found + text[at], at + 1
        elif operator == "/":
            return found + new + text[at + ends[-1] :]
        else:
            found, at = found + new, at + ends[-1]
    return found


def evaluate_test(words: Sequence[str | None], pattern: Pieces | None = None) -> bool | None:  # noqa: PLR0911 - a form a line
    """Return whether a test with one operator is true; None if unknown, for instance because of an unknown word.

    ``pattern`` is the last word where it is a pattern (``[[``).
    """
    if len(words) > 1 and words[0] == "!":
        inner = evaluate_test(words[1:], pattern)
        return None if inner is None else not inner
    if None in words or len(words) > _MOST:
        return None
    if len(words) < 2:  # noqa: PLR2004 - no word, or a single one that is tested for being non-empty
        return any(words)
    *first, operator, last = words
    if not first:
        return (last == "") == (operator == "-z") if operator in ("-n", "-z") else None
    if operator in ("=", "==", "!="):
        same = first[0] == last if pattern is None else matches_pattern(first[0] or "", read_pattern(pattern))
        return None if same is None else same == (operator != "!=")
    numbers = [int(one) for one in (first[0], last) if one and _NUMBER.fullmatch(one)]
    if len(numbers) < 2 or operator not in _COMPARED:  # noqa: PLR2004
        return None
    difference = numbers[0] - numbers[1]
    return (difference > 0) - (difference < 0) in _COMPARED[operator or ""]


def combine_answers(operator: str, *answers: bool | None) -> bool | None:
    """Combine answers with ``&&`` or ``||``; one answer that decides is enough, even if others are unknown."""
    decides = operator == "||"
    return decides if decides in answers else None if None in answers else not decides


# arithmetic, for the operators whose precedence is the same in Python


def calculate(text: str, variables: Mapping[str, Value], depth: int = 0) -> int | None:
    """Return the value of an arithmetic expression; None if it has an unknown value or an unsupported form."""
    names = re.findall(r"[A-Za-z_]\w*", text)
    bounded = len(text) <= _MAX_EXPRESSION and depth <= _MAX_DEPTH
    if not bounded or not _EXPRESSION.fullmatch(text) or any(map(keyword.iskeyword, names)):
        return None
    if not text.strip():
        return 0
    octal = re.sub(r"\b0(?=[0-7])", "0o", text.replace("/", "//"))
    try:
        tree = ast.parse(octal.replace("&&", " and ").replace("||", " or ").strip(), mode="eval")
        return _evaluate(tree.body, variables, depth)
    except (SyntaxError, ValueError, ZeroDivisionError, MemoryError, RecursionError):
        return None


def _evaluate(node: ast.expr, variables: Mapping[str, Value], depth: int) -> int:
    """Return the value of a part of an expression; raise ValueError if it is unknown."""
    number: int | None = None
    match node:
        case ast.Constant(value=int(number)):
            pass
        case ast.Name(id=name) if name in variables:
            text = text_of(variables[name].pieces)
            number = None if text is None else calculate(text, variables, depth + 1)
        case ast.BoolOp():
            answers = [_evaluate(one, variables, depth) != 0 for one in node.values]
            number = all(answers) if isinstance(node.op, ast.And) else any(answers)
        case ast.UnaryOp(operand=ast.BinOp(op=ast.Pow())):
            pass  # bash evaluates `-2 ** 2` to 4
        case ast.UnaryOp():
            number = _evaluate(node.operand, variables, depth) * (-1 if isinstance(node.op, ast.USub) else 1)
        case ast.Compare(left=left, ops=[sign], comparators=[right]) | ast.BinOp(left=left, op=sign, right=right):
            numbers = _evaluate(left, variables, depth), _evaluate(right, variables, depth)
            if not isinstance(sign, ast.Pow | ast.LShift | ast.RShift) or 0 <= numbers[1] < _BITS:
                number = _OPERATIONS[type(sign)](*numbers)
    if number is None:
        raise ValueError(node)
    return (int(number) + (1 << (_BITS - 1))) % (1 << _BITS) - (1 << (_BITS - 1))


def _divide(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


_OPERATIONS: dict[type, Callable[[int, int], int]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: _divide,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Pow: operator.pow,
    ast.Mod: lambda left, right: left - _divide(left, right) * right,
}


# programs whose output depends only on their arguments


def output_of(words: Sequence[str]) -> str | None:
    """Return the output of ``seq``, ``basename`` or ``dirname`` (coreutils); None for other programs and unsupported words."""
    name, path, *others = [*words, "", ""][: max(len(words), 2)]
    folder, slash, base = path.rstrip("/").rpartition("/")
    is_path = base != "" and not path.startswith("-")
    if name == "seq":
        return _print_sequence(words[1:])
    if name == "dirname" and is_path and not others:
        return f"{folder.rstrip('/') or slash or '.'}\n"
    if name == "basename" and is_path and len(others) < 2:  # noqa: PLR2004 - at most a suffix to remove
        return f"{base if [base] == others else base.removesuffix(''.join(others))}\n"
    return None


def _print_sequence(texts: Sequence[str]) -> str | None:
    numbers = [int(text) for text in texts if _SEQUENCE.fullmatch(text)]
    if not 0 < len(numbers) == len(texts) <= 3:  # noqa: PLR2004 - first, step and last
        return None
    first, step, last = (numbers[0] if numbers[1:] else 1), (numbers[1] if numbers[2:] else 1), numbers[-1]
    if not step or (last - first) // step >= _MAX_LINES:
        return None
    return "".join(f"{one}\n" for one in range(first, last + (1 if step > 0 else -1), step))
