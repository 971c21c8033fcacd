"""What a row of a checklist refuses, as an expression: ``model.hidden_size % model.num_attention_heads != 0``.

Texts in Python's grammar, of which a small part is taken; they are walked here and never given to Python. A name without a value is
:data:`UNKNOWN`, and so is everything that it takes part in. Arithmetic and order are of numbers alone, of which ``True`` is none, and
equality is of two numbers or of two others. ``or`` and ``and`` are decided by one side where one side decides.
"""

from __future__ import annotations

import ast
import operator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ms_tune.facts.models import UNKNOWN
from ms_tune.source.yaml import is_same

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_LENGTH = 600
MAX_DEPTH = 30
_MOST = 10**12  # products of settings are far below; a config must not make the linter compute with huge numbers

_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda one, others: any(is_same(one, other) for other in others),
    ast.NotIn: lambda one, others: not any(is_same(one, other) for other in others),
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_OF_ANYTHING = (ast.In, ast.NotIn, ast.Is, ast.IsNot)
_OF_EQUALS = (ast.Eq, ast.NotEq)
_OF_NUMBERS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)


class ExpressionError(ValueError):
    """The text is no expression of this language."""


class Expression(NamedTuple):
    """A parsed expression."""

    tree: ast.expr
    names: tuple[str, ...]  # the key paths in it, in order, each once

    def value(self, value_of: Callable[[str], object]) -> Any:  # noqa: ANN401 - of any type
        """Its value, or :data:`UNKNOWN`; ``value_of`` tells that of a name."""
        return _evaluate(self.tree, value_of)


@cache
def parse_expression(text: str) -> Expression:
    """An expression from its text.

    Raises:
        ExpressionError: The text is not one.
    """
    names: list[str] = []
    try:
        # A text that is too long is cut, and is no expression then.
        tree = ast.parse(text.strip() if len(text) <= MAX_LENGTH else "", mode="eval").body
        _collect_names(tree, names, MAX_DEPTH)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        message = f"{text[:MAX_LENGTH]!r} is no expression of a checklist"
        raise ExpressionError(message) from None
    return Expression(tree, tuple(dict.fromkeys(names)))


def _collect_names(node: ast.AST, names: list[str], depth: int) -> None:
    """Collect the key paths of an expression; one that the language does not have is refused with a ``ValueError``."""
    if not depth:
        raise ValueError
    match node:
        case ast.Name() | ast.Attribute():
            names.append(_dotted(node))
            return
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return
        case ast.BoolOp(values=parts) | ast.Tuple(elts=parts):
            pass
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            parts = [operand]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            parts = [left, right]
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _OPERATORS for op in ops):
            parts = [left, *others]
        case ast.Call(func=ast.Name(id=function), args=[argument], keywords=[]) if function in _FUNCTIONS:
            parts = [argument]
        case _:
            raise ValueError
    for part in parts:
        _collect_names(part, names, depth - 1)


def _dotted(node: ast.AST) -> str:
    match node:
        case ast.Attribute(value=inner, attr=name):
            return f"{_dotted(inner)}.{name}"
        case ast.Name(id=name):
            return name
    raise ValueError


def _evaluate(node: ast.expr, value_of: Callable[[str], object]) -> Any:  # noqa: ANN401, PLR0911 - of any type; one a form
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=parts):
            return tuple(_evaluate(part, value_of) for part in parts)
        case ast.UnaryOp(op=op, operand=operand):
            value = _evaluate(operand, value_of)
            if isinstance(op, ast.USub):
                return _combine(ast.Sub, 0, value)
            return UNKNOWN if value is UNKNOWN else not value
        case ast.BoolOp(op=op, values=parts):
            decisive = isinstance(op, ast.Or)
            values = [_evaluate(part, value_of) for part in parts]
            if any(value is not UNKNOWN and bool(value) is decisive for value in values):
                return decisive
            return UNKNOWN if UNKNOWN in values else not decisive
        case ast.BinOp(left=left, op=op, right=right):
            return _combine(type(op), _evaluate(left, value_of), _evaluate(right, value_of))
        case ast.Compare(left=left, ops=ops, comparators=others):
            values = [_evaluate(part, value_of) for part in (left, *others)]
            links = [_combine(type(op), *values[at : at + 2]) for at, op in enumerate(ops)]
            return next((link for link in links if link is not True), True)
        case ast.Call(func=ast.Name(id=function), args=[argument]):
            value = _evaluate(argument, value_of)
            return UNKNOWN if value is UNKNOWN else _FUNCTIONS[function](value)
    return value_of(_dotted(node))


def _combine(kind: type[ast.AST], one: Any, other: Any) -> Any:  # noqa: ANN401 - of any type
    """What an operator makes of two values; :data:`UNKNOWN` where it makes nothing of them."""
    if other is True and kind in _OF_ANYTHING:  # what is not known is not known to be true
        return (one is True) is (kind is ast.Is)
    if one is UNKNOWN or other is UNKNOWN:
        return UNKNOWN
    numbers = _is_number(one) + _is_number(other)
    if kind not in _OF_ANYTHING and (numbers == 1 or (numbers == 0 and kind not in _OF_EQUALS)):
        return UNKNOWN
    if kind in _OF_NUMBERS and max(abs(one), abs(other)) > _MOST:
        return UNKNOWN
    try:
        return _OPERATORS[kind](one, other)
    except ZeroDivisionError:
        return UNKNOWN


def _largest(value: object) -> object:
    """The largest number in a list of numbers, or of lists of them."""
    items = (
        [item for one in value for item in (one if isinstance(one, list) else [one])] if isinstance(value, list) else []
    )
    return max(items) if items and all(map(_is_number, items)) else UNKNOWN


def _text(value: object) -> object:
    return value if isinstance(value, str) else UNKNOWN


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else UNKNOWN


def _whole(value: object) -> bool:
    return isinstance(value, int)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_FUNCTIONS: dict[str, Callable[[object], object]] = {
    "largest": _largest,
    "lower": _lower,
    "text": _text,
    "whole": _whole,
}
