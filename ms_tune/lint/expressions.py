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
_NONE = "{!r} is no expression of a checklist"
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
    try:
        # A text that is too long is cut, and is no expression then.
        tree = ast.parse(text.strip() if len(text) <= MAX_LENGTH else "", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(_NONE.format(text[:MAX_LENGTH])) from None
    names: list[str] = []
    todo: list[tuple[ast.expr, int]] = [(tree, 0)]
    while todo:
        node, depth = todo.pop()
        match node:
            case ast.Name() | ast.Attribute() if (name := _dotted(node)) and depth < MAX_DEPTH:
                names.append(name)
                parts: list[ast.expr] = []
            case ast.Constant(value=bool() | int() | float() | str() | None):
                parts = []
            case ast.BoolOp(values=parts) | ast.Tuple(elts=parts):
                pass
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand) if depth < MAX_DEPTH:
                parts = [operand]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                parts = [left, right]
            case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _OPERATORS for op in ops):
                parts = [left, *others]
            case ast.Call(func=ast.Name(id=function), args=[argument], keywords=[]) if function in _FUNCTIONS:
                parts = [argument]
            case _:
                raise ExpressionError(_NONE.format(text[:MAX_LENGTH]))
        todo += ((part, depth + 1) for part in reversed(parts))
    return Expression(tree, tuple(dict.fromkeys(names)))


def _dotted(node: ast.AST) -> str:
    """The key path that names with dots between them are; nothing if they are something else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else ""


def _evaluate(node: ast.expr, value_of: Callable[[str], object]) -> Any:  # noqa: ANN401, C901, PLR0911 - one case a form
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
            decisive, found = isinstance(op, ast.Or), not isinstance(op, ast.Or)
            for part in parts:
                value = _evaluate(part, value_of)
                if value is not UNKNOWN and bool(value) is decisive:
                    return decisive
                found = UNKNOWN if value is UNKNOWN else found
            return found
        case ast.BinOp(left=left, op=op, right=right):
            return _combine(type(op), _evaluate(left, value_of), _evaluate(right, value_of))
        case ast.Compare(left=left, ops=ops, comparators=others):
            one, link = _evaluate(left, value_of), True
            for sign, part in zip(ops, others, strict=True):
                other = _evaluate(part, value_of)
                link = _combine(type(sign), one, other)
                if link is not True:
                    break
                one = other
            return link
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
