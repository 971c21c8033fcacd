"""Numeric relations between settings: ``hidden_size % num_attention_heads == 0``.

A small language for checklists, parsed here and never given to Python: numbers, key paths with dots, ``+ - * // %``,
the six comparisons (chained ones too), ``and``, ``or``, ``not`` and parentheses, with Python's precedence. A key path
that has no number makes everything it takes part in unknown, and an unknown relation violates nothing; ``or`` and
``and`` are decided by one side where one side decides.
"""

from __future__ import annotations

import operator
import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Number: TypeAlias = int | float
Value: TypeAlias = int | float | bool | None  # None: unknown

MAX_LENGTH = 400
MAX_DEPTH = 30

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)|(?P<mark>//|==|!=|<=|>=|[-+*%<>()]))"
)
_WORDS = ("and", "or", "not")
_COMPARE: dict[str, Callable[[Number, Number], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_SUM: dict[str, Callable[[Number, Number], Number]] = {"+": operator.add, "-": operator.sub}
_PRODUCT: dict[str, Callable[[Number, Number], Number]] = {
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
_MOST = 10**12  # products of settings are far below; a config must not make the linter compute with huge numbers


class ExpressionError(ValueError):
    """The text is no relation of this language."""


class Expression(NamedTuple):
    """A parsed relation."""

    text: str  # as written
    names: tuple[str, ...]  # the key paths in it, in order, each once
    code: Callable[[Mapping[str, Number]], Value]  # what tells it from the values of its names

    def holds(self, values: Mapping[str, Number]) -> bool | None:
        """Whether the relation holds; None if too little is known to tell."""
        value = self.code(values)
        return None if value is None else bool(value)


@cache
def parse(text: str) -> Expression:
    """A relation from its text.

    Raises:
        ExpressionError: The text is not one.
    """
    parser = _ExpressionParser(text)
    return Expression(text, tuple(dict.fromkeys(parser.names)), parser.code)


_Code: TypeAlias = "Callable[[Mapping[str, Number]], Value]"


class _ExpressionParser:
    """Recursive descent; every level returns a function from the settings to a value."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self.names: list[str] = []
        self.code = self._either()
        if self._at != len(self._tokens):
            self._fail()

    def _fail(self) -> NoReturn:
        found = self._tokens[self._at] if self._at < len(self._tokens) else "the end"
        message = f"{self._text!r}: {found} is not expected here"
        raise ExpressionError(message)

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, *wanted: str) -> str | None:
        token = self._peek()
        if token in wanted and token:
            self._at += 1
            return token
        return None

    def _either(self) -> _Code:
        parts = [self._both()]
        while self._take("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda values: _decide(parts, values, decisive=True)

    def _both(self) -> _Code:
        parts = [self._negation()]
        while self._take("and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else lambda values: _decide(parts, values, decisive=False)

    def _negation(self) -> _Code:
        if self._take("not"):
            inner = self._nested(self._negation)
            return lambda values: None if (value := inner(values)) is None else not value
        return self._comparison()

    def _comparison(self) -> _Code:
        first = self._sum()
        links: list[tuple[str, _Code]] = []
        while sign := self._take(*_COMPARE):
            links.append((sign, self._sum()))
        return first if not links else lambda values: _chain(first, links, values)

    def _sum(self) -> _Code:
        return self._series(self._product, _SUM)

    def _product(self) -> _Code:
        return self._series(self._atom, _PRODUCT)

    def _series(self, operand: Callable[[], _Code], signs: Mapping[str, Callable[[Number, Number], Number]]) -> _Code:
        code = operand()
        while sign := self._take(*signs):
            code = _combine(signs[sign], code, operand())
        return code

    def _atom(self) -> _Code:
        if self._take("("):
            inner = self._nested(self._either)
            if not self._take(")"):
                self._fail()
            return inner
        if self._take("-"):
            return _combine(operator.sub, lambda _: 0, self._nested(self._atom))
        token = self._peek()
        if not token or token in _WORDS or not (token[0].isalnum() or token[0] == "_"):
            self._fail()
        self._at += 1
        if token[0].isdigit():
            number: Number = float(token) if "." in token else int(token)
            return lambda _: number
        self.names.append(token)
        return lambda values: values.get(token)

    def _nested(self, rule: Callable[[], _Code]) -> _Code:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail()
        code = rule()
        self._depth -= 1
        return code


def _tokens(text: str) -> list[str]:
    if len(text) > MAX_LENGTH:
        message = f"a relation has at most {MAX_LENGTH} characters"
        raise ExpressionError(message)
    tokens = []
    at = 0
    stripped = text.rstrip()
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        if match is None:
            message = f"{text!r}: {stripped[at:].strip()[:10]!r} is not part of the language"
            raise ExpressionError(message)
        tokens.append(match["number"] or match["name"] or match["mark"])
        at = match.end()
    return tokens


def _decide(parts: list[_Code], values: Mapping[str, Number], *, decisive: bool) -> bool | None:
    """``or`` (one true part is enough) and ``and`` (one false part is enough) over parts that may be unknown."""
    known = [part(values) for part in parts]
    if any(value is not None and bool(value) is decisive for value in known):
        return decisive
    return None if None in known else not decisive


def _chain(first: _Code, links: list[tuple[str, _Code]], values: Mapping[str, Number]) -> bool | None:
    left = first(values)
    for sign, code in links:
        right = code(values)
        if left is None or right is None:
            return None
        if not _COMPARE[sign](left, right):
            return False
        left = right
    return True


def _combine(function: Callable[[Number, Number], Number], left: _Code, right: _Code) -> _Code:
    def compute(values: Mapping[str, Number]) -> Value:
        one, other = left(values), right(values)
        if one is None or other is None or max(abs(one), abs(other)) > _MOST:
            return None
        try:
            return function(one, other)
        except ZeroDivisionError:
            return None

    return compute
