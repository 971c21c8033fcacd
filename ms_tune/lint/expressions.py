"""What a row of a checklist refuses, as an expression: ``model.hidden_size % model.num_attention_heads != 0``.

Texts in Python's grammar, of which a small part is taken; they become nested lists, which JSON keeps, and are never given to Python. A
name without a value is :data:`UNKNOWN`, and so is everything that it takes part in. Arithmetic and order are of numbers alone, of which
``True`` is none, and equality is of two numbers or of two others. ``or`` and ``and`` are decided by one side where one side decides.
"""

from __future__ import annotations

import operator
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from ms_tune.facts.models import UNKNOWN
from ms_tune.records import Record
from ms_tune.source.yaml import is_same

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable

Tree: TypeAlias = "list[Any]"  # what is done, and the parts that it is done to

MAX_LENGTH = 600
MAX_DEPTH = 30
_MOST = 10**12  # products of settings are far below; a config must not make the linter compute with huge numbers

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
_ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_EQUALITY = {"==": operator.eq, "!=": operator.ne}
_OF_ANYTHING: dict[str, Callable[[Any, Any], Any]] = {
    "in": lambda one, others: any(is_same(one, other) for other in others),
    "not in": lambda one, others: not any(is_same(one, other) for other in others),
    "is": operator.is_,
    "is not": operator.is_not,
}
_OPERATORS = {**_ARITHMETIC, **_ORDER, **_EQUALITY, **_OF_ANYTHING}


class ExpressionError(ValueError):
    """The text is no expression of this language."""


class Expression(Record):
    """A parsed expression."""

    names: list[str]  # the key paths in it, in order, each once
    tree: Tree

    def value(self, value_of: Callable[[str], object]) -> Any:  # noqa: ANN401 - of any type
        """Its value, or :data:`UNKNOWN`; ``value_of`` tells that of a name."""
        return _evaluate(self.tree, value_of)


@cache
def parse_expression(text: str) -> Expression:
    """An expression from its text.

    Raises:
        ExpressionError: The text is not one.
    """
    import ast  # noqa: PLC0415 - slow to import, and the built-in checklists are kept with their expressions parsed

    try:
        # A text that is too long is cut, and is no expression then.
        node = ast.parse(text.strip() if len(text) <= MAX_LENGTH else "", mode="eval").body
        names: list[str] = []
        tree = _tree_of(node, names, MAX_DEPTH)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        message = f"{text[:MAX_LENGTH]!r} is no expression of a checklist"
        raise ExpressionError(message) from None
    return Expression(list(dict.fromkeys(names)), tree)


def _tree_of(node: ast.AST, names: list[str], depth: int) -> Tree:  # noqa: C901, PLR0911 - one case a form
    """What a part of an expression does, as a list; its key paths are added to ``names``.

    Raises:
        ValueError: The language has no such part.
    """
    import ast  # noqa: PLC0415 - as above

    def parts_of(*nodes: ast.AST) -> list[Tree]:
        return [_tree_of(one, names, depth - 1) for one in nodes]

    match node if depth else None:
        case ast.Name() | ast.Attribute():
            name = ast.unparse(node)
            if not all(part.isidentifier() for part in name.split(".")):
                raise ValueError
            names.append(name)
            return ["name", name]
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return ["value", value]
        case ast.Tuple(elts=parts):
            return ["tuple", *parts_of(*parts)]
        case ast.BoolOp(op=sign, values=parts):
            return ["or" if isinstance(sign, ast.Or) else "and", *parts_of(*parts)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ["not", *parts_of(operand)]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return ["-", ["value", 0], *parts_of(operand)]
        case ast.BinOp(left=left, op=sign, right=right) if word := _WORDS.get(type(sign).__name__):
            return [word, *parts_of(left, right)]
        case ast.Compare(left=left, ops=signs, comparators=others):
            words = [_WORDS[type(sign).__name__] for sign in signs]
            values = parts_of(left, *others)
            links = [[word, one, other] for word, one, other in zip(words, values, values[1:], strict=False)]
            return links[0] if len(links) == 1 else ["and", *links]
        case ast.Call(func=ast.Name(id=function), args=[argument], keywords=[]) if function in _FUNCTIONS:
            return [function, *parts_of(argument)]
    raise ValueError


# By the names of Python's classes for them.
_WORDS = dict(
    zip(
        [
            "Add",
            "Sub",
            "Mult",
            "FloorDiv",
            "Mod",
            "Lt",
            "LtE",
            "Gt",
            "GtE",
            "Eq",
            "NotEq",
            "In",
            "NotIn",
            "Is",
            "IsNot",
        ],
        ("+", "-", "*", "//", "%", "<", "<=", ">", ">=", "==", "!=", "in", "not in", "is", "is not"),
        strict=True,
    )
)


def _evaluate(tree: Tree, value_of: Callable[[str], object]) -> Any:  # noqa: ANN401 - of any type
    kind, *parts = tree
    if kind == "value":
        return parts[0]
    if kind == "name":
        return value_of(parts[0])
    if kind in ("and", "or"):
        found: object = kind == "and"
        for part in parts:
            value = _evaluate(part, value_of)
            if value is UNKNOWN:
                found = UNKNOWN
            elif bool(value) is (kind == "or"):
                return kind == "or"
        return found
    values = []
    for part in parts:
        values.append(_evaluate(part, value_of))  # noqa: PERF401 - a comprehension is one more frame for each part
    if kind in _OPERATORS:
        return _combine(kind, *values)
    return values if kind == "tuple" else UNKNOWN if values[0] is UNKNOWN else _FUNCTIONS[kind](values[0])


def _combine(sign: str, one: Any, other: Any) -> Any:  # noqa: ANN401 - of any type
    """What an operator makes of two values; :data:`UNKNOWN` where it makes nothing of them."""
    if other is True and sign in ("is", "is not"):  # what is not known is not known to be true
        return (one is True) is (sign == "is")
    if one is UNKNOWN or other is UNKNOWN:
        return UNKNOWN
    numbers = _is_number(one) + _is_number(other)
    if sign not in _OF_ANYTHING and (numbers == 1 or (numbers == 0 and sign not in _EQUALITY)):
        return UNKNOWN
    if sign in _ARITHMETIC and max(abs(one), abs(other)) > _MOST:
        return UNKNOWN
    try:
        return _OPERATORS[sign](one, other)
    except ZeroDivisionError:
        return UNKNOWN


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _largest(value: object) -> object:
    """The largest number in a list of numbers, or of lists of them."""
    rows = value if isinstance(value, list) else []
    items = [item for row in rows for item in (row if isinstance(row, list) else [row])]
    return max(items) if items and all(map(_is_number, items)) else UNKNOWN


_FUNCTIONS: dict[str, Callable[[Any], object]] = {
    "largest": _largest,
    "lower": lambda value: value.lower() if isinstance(value, str) else UNKNOWN,
    "not": operator.not_,
    "text": lambda value: value if isinstance(value, str) else UNKNOWN,
    "whole": lambda value: isinstance(value, int),
}
