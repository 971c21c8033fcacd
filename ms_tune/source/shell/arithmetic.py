"""Shell arithmetic: 64-bit whole numbers, with the operators and precedences of bash ("Shell Arithmetic" of its manual)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F]+|\d+)(?![\w#.])|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<operator>\*\*|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|[-+*/%<>&|^!~?:(),=]))"
)
_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_ASSIGNING = frozenset(("=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "^=", "|="))
_LONGEST = 2_000
_DEEPEST = 40


class NotCalculableError(Exception):
    """The expression is not read, or a value in it is unknown."""


def calculate(
    expression: str, value_of: Callable[[str], str | None], assign: Callable[[str, str | None], None], depth: int = 0
) -> int:
    """The value of an expression.

    Args:
        expression: Its text, with everything put in.
        value_of: The value of a variable, empty if it is not set; None if it is unknown.
        assign: Told of assignments; None for a value that is not known.
        depth: How many variables lie around it.

    Raises:
        NotCalculableError: It is not an expression, or a value in it is unknown. Assignments in it have been told of.
    """
    if len(expression) > _LONGEST or depth > _DEEPEST:
        raise NotCalculableError
    reader = _ArithmeticReader(_tokens(expression), value_of, assign, depth)
    if not reader.tokens:
        return 0
    try:
        return reader.whole()
    except NotCalculableError:
        for name in assigned(expression):
            assign(name, None)
        raise


def assigned(expression: str) -> set[str]:
    """The variables that an expression may set."""
    names = re.findall(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)?(?:=(?!=)|[-+*/%&|^]=|<<=|>>=|\+\+|--)", expression)
    return {*names, *re.findall(r"(?:\+\+|--)\s*([A-Za-z_]\w*)", expression)}


def _tokens(expression: str) -> list[str]:
    found: list[str] = []
    at = 0
    while expression[at:].strip():
        match = _TOKEN.match(expression, at)
        if not match:
            return [*found, "\0"]  # no token of any rule: the expression is refused where it is met
        found.append(match[0].strip())
        at = match.end()
    return found


class _ArithmeticReader:
    """Recursive descent; ``live`` is false in what bash does not calculate either (the other half of ``&&`` and ``?:``)."""

    def __init__(
        self,
        tokens: list[str],
        value_of: Callable[[str], str | None],
        assign: Callable[[str, str | None], None],
        depth: int,
    ) -> None:
        self.tokens = tokens
        self.at = 0
        self._value_of = value_of
        self._assign = assign
        self._depth = depth
        self._nested = 0
        self._live = True

    def whole(self) -> int:
        """The value of all tokens."""
        found = self.comma()
        if self.at != len(self.tokens):
            raise NotCalculableError
        return found

    def comma(self) -> int:
        found = self._assignment()
        while self._next(","):
            found = self._assignment()
        return found

    def _next(self, *operators: str) -> str:
        if self.at < len(self.tokens) and self.tokens[self.at] in operators:
            self.at += 1
            return self.tokens[self.at - 1]
        return ""

    def _expect(self, operator: str) -> None:
        if not self._next(operator):
            raise NotCalculableError

    def _assignment(self) -> int:
        self._nested += 1
        if self._nested > _DEEPEST:
            raise NotCalculableError
        name = self.tokens[self.at] if self.at < len(self.tokens) else ""
        behind = self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else ""
        if _is_name(name) and behind in _ASSIGNING:
            self.at += 2
            value = self._assignment()
            if behind != "=":
                value = self._binary(behind[:-1], self._variable(name), value)
            self._set(name, value)
        else:
            value = self._ternary()
        self._nested -= 1
        return value

    def _set(self, name: str, value: int) -> None:
        if self._live:
            self._assign(name, str(value))

    def _ternary(self) -> int:
        condition = self._level(0)
        if not self._next("?"):
            return condition
        live = self._live
        self._live = live and condition != 0
        first = self.comma()
        self._expect(":")
        self._live = live and condition == 0
        second = self._assignment()
        self._live = live
        return first if condition else second

    def _level(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._power()
        found = self._level(level + 1)
        while operator := self._next(*_LEVELS[level]):
            live = self._live
            if operator in ("&&", "||"):
                self._live = live and (found != 0) == (operator == "&&")
            other = self._level(level + 1)
            self._live = live
            found = self._binary(operator, found, other)
        return found

    def _power(self) -> int:
        base = self._unary()
        if not self._next("**"):
            return base
        return self._binary("**", base, self._power())

    def _unary(self) -> int:
        if operator := self._next("++", "--"):
            name = self._name()
            value = self._binary(operator[0], self._variable(name), 1)
            self._set(name, value)
            return value
        if operator := self._next("-", "+", "!", "~"):
            self._nested += 1
            if self._nested > _DEEPEST:
                raise NotCalculableError
            value = self._unary()
            self._nested -= 1
            return _wrapped({"-": -value, "+": value, "!": int(not value), "~": ~value}[operator])
        return self._primary()

    def _primary(self) -> int:
        if self._next("("):
            found = self.comma()
            self._expect(")")
            return found
        token = self.tokens[self.at] if self.at < len(self.tokens) else "\0"
        if _is_name(token):
            self.at += 1
            value = self._variable(token)
            if operator := self._next("++", "--"):
                self._set(token, self._binary(operator[0], value, 1))
            return value
        if not token[0].isdigit():
            raise NotCalculableError
        self.at += 1
        return _number(token)

    def _name(self) -> str:
        token = self.tokens[self.at] if self.at < len(self.tokens) else ""
        if not _is_name(token):
            raise NotCalculableError
        self.at += 1
        return token

    def _variable(self, name: str) -> int:
        if not self._live:
            return 0
        value = self._value_of(name)
        if value is None:
            raise NotCalculableError
        return calculate(value, self._value_of, self._assign, self._depth + 1)

    def _binary(self, operator: str, left: int, right: int) -> int:
        if not self._live:
            return 0
        if operator in ("/", "%"):
            if right == 0:
                raise NotCalculableError
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            return _wrapped(quotient if operator == "/" else left - quotient * right)
        if operator == "**":
            if right < 0:
                raise NotCalculableError
            return _wrapped(pow(left, right, 1 << 64))
        if operator in ("<<", ">>"):
            if not 0 <= right < 64:  # noqa: PLR2004 - bits of a number
                raise NotCalculableError
            return _wrapped(left << right if operator == "<<" else left >> right)
        return _wrapped(_PLAIN[operator](left, right))


_DIGITS = 4000  # Python takes no number of more than 4,300
_PLAIN: dict[str, Callable[[int, int], int]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "&": lambda left, right: left & right,
    "|": lambda left, right: left | right,
    "^": lambda left, right: left ^ right,
    "==": lambda left, right: int(left == right),
    "!=": lambda left, right: int(left != right),
    "<": lambda left, right: int(left < right),
    "<=": lambda left, right: int(left <= right),
    ">": lambda left, right: int(left > right),
    ">=": lambda left, right: int(left >= right),
    "&&": lambda left, right: int(bool(left) and bool(right)),
    "||": lambda left, right: int(bool(left) or bool(right)),
}


def _is_name(token: str) -> bool:
    return token[:1].isalpha() or token[:1] == "_"


def _number(token: str) -> int:
    if len(token) > _DIGITS:
        raise NotCalculableError
    if token[:2] in ("0x", "0X"):
        return _wrapped(int(token, 16))
    if token[0] == "0" and len(token) > 1:
        if not set(token) <= set("01234567"):
            raise NotCalculableError
        return _wrapped(int(token, 8))
    return _wrapped(int(token))


def _wrapped(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
