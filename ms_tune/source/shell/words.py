"""Reads the words of a shell script: quotes, backslashes, and what is to be put in.

Bash's grammar, as its manual has it (Bash Reference Manual 5.2, "Quoting", "Shell Parameter Expansion"). Nothing is run.
"""

from __future__ import annotations

import re

from ms_tune.source.shell.syntax import Arithmetic, Parameter, Part, QuotedText, Substitution, Word

MAX_DEPTH = 60
METACHARACTERS = frozenset(" \t\n\r;&|()<>")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPECIAL = frozenset("@*#?-$!0123456789")
_OPERATORS = (
    ":-",
    ":=",
    ":?",
    ":+",
    "-",
    "=",
    "?",
    "+",
    "##",
    "#",
    "%%",
    "%",
    "//",
    "/#",
    "/%",
    "/",
    "^^",
    "^",
    ",,",
    ",",
    ":",
)
_OF_PATTERNS = frozenset(("##", "#", "%%", "%", "//", "/#", "/%", "/", "^^", "^", ",,", ","))
_ESCAPED_IN_QUOTES = frozenset('$`"\\')
_PLAIN = re.compile(r"[^\s;&|()<>\\'\"`$}]+")
_PLAIN_IN_QUOTES = re.compile(r"[^\\\"`$}]+")
_ANSI = re.compile(r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ANSI_LETTERS = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class NotReadError(Exception):
    """The text cannot be read on from here."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset


class WordReader:
    """Reads words from a text; ``at`` is how far it has come, ``unclosed`` where a quotation mark opens that is never closed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.unclosed: int | None = None
        self._depth = 0

    def word(self, stop: str = "") -> Word:
        """The word that begins here; it ends at a blank, an operator, or one of the characters of ``stop``."""
        start = self.at
        parts = self._parts(quoted=False, stop=stop, blanks=False)
        return Word(tuple(parts), start, self.at)

    def startswith(self, words: str | tuple[str, ...]) -> bool:
        """Whether the text goes on like this."""
        return self.text.startswith(words, self.at)

    def _parts(self, *, quoted: bool, stop: str, blanks: bool) -> list[Part]:
        """Parts up to what ends them: in quotes only ``stop``, else operators and (unless ``blanks``) blanks too."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise NotReadError(self.at, "depth")
        found: list[Part] = []
        while self.at < len(self.text):
            here = self.text[self.at]
            if here in stop:
                break
            if not quoted and here in METACHARACTERS and not blanks:
                if self.startswith(("<(", ">(")):
                    found.append(self._process(quoted=quoted))
                    continue
                break
            self._part(found, here, quoted=quoted, stop=stop)
        self._depth -= 1
        return found

    def _part(self, found: list[Part], here: str, *, quoted: bool, stop: str) -> None:
        start = self.at
        if here == "\\":
            self._backslash(found, quoted=quoted, stop=stop)
        elif here == "$":
            found.append(self._dollar(quoted=quoted))
        elif here == "`":
            self.at = self._backtick_end()
            found.append(Substitution(self.text[start : self.at], start, self.at, quoted))
        elif here == "'" and not quoted:
            close = self._find("'", start + 1)
            self._left_open(start, close)
            self.at = min(close + 1, len(self.text))
            found.append(QuotedText(self.text[start + 1 : close], start + 1, close, quoted=True))
        elif here == '"' and not quoted:
            self._double(found)
        elif here == '"':  # in ${...} or $((...)) in quotes: it goes away
            self.at += 1
        else:
            match = (_PLAIN_IN_QUOTES if quoted else _PLAIN).match(self.text, start)
            self.at = match.end() if match and here != "}" else start + 1
            ends = (self.text.find(mark, start, self.at) for mark in stop)
            self.at = min((end for end in ends if end > start), default=self.at)
            found.append(QuotedText(self.text[start : self.at], start, self.at, quoted))

    def _double(self, found: list[Part]) -> None:
        start = self.at
        self.at += 1
        found.append(QuotedText("", self.at, self.at, quoted=True))  # "" is a word, if nothing else stands in it
        found += self._parts(quoted=True, stop='"', blanks=True)
        self._left_open(start, self.at)
        self.at = min(self.at + 1, len(self.text))

    def _left_open(self, start: int, close: int) -> None:
        """Note the first quotation mark that nothing closes before the text ends; what stands behind it counts as quoted."""
        if close >= len(self.text) and self.unclosed is None:
            self.unclosed = start

    def _backslash(self, found: list[Part], *, quoted: bool, stop: str) -> None:
        start = self.at
        if self.startswith(("\\\n", "\\\r\n")):
            self.at += 2 if self.text[start + 1] == "\n" else 3
            return
        behind = self.text[start + 1 : start + 2]
        self.at = min(start + 2, len(self.text))
        if not behind and not quoted:
            return  # at the very end of a script it goes away
        if not behind or (quoted and behind not in _ESCAPED_IN_QUOTES and behind not in stop):
            found.append(QuotedText(self.text[start : self.at], start, self.at, quoted=True))
        else:
            found.append(QuotedText(behind, start + 1, self.at, quoted=True))

    def _dollar(self, *, quoted: bool) -> Part:  # noqa: PLR0911 - a form a line
        start = self.at
        if self.startswith("$(("):
            found = self._arithmetic(quoted=quoted)
            if found is not None:
                return found
        if self.startswith(("$(", "$[")):
            self.at = self.closing(start + 1)
            return Substitution(self.text[start : self.at], start, self.at, quoted)
        if self.startswith("${"):
            return self._braces(quoted=quoted)
        if not quoted and self.startswith("$'"):
            return self._ansi()
        match = NAME.match(self.text, start + 1)
        if match:
            self.at = match.end()
            return Parameter(match[0], start, self.at, quoted)
        if self.text[start + 1 : start + 2] in _SPECIAL and start + 1 < len(self.text):
            self.at = start + 2
            return Parameter(self.text[start + 1], start, self.at, quoted)
        self.at = start + 1
        if not quoted and self.startswith('"'):  # a text to be translated: the quotes mean what they always do
            return QuotedText("", start, self.at, quoted=True)
        return QuotedText("$", start, self.at, quoted=True)

    def _arithmetic(self, *, quoted: bool) -> Arithmetic | None:
        start = self.at
        end = self.closing(start + 1)
        if self.text[end - 2 : end] != "))":
            return None
        parts = self.inside(start + 3, end - 2)
        self.at = end
        return Arithmetic(parts, start, end, quoted)

    def inside(self, start: int, end: int) -> tuple[Part, ...]:
        """The parts between two offsets, as they are read in double quotes."""
        reader = WordReader(self.text[:end])
        reader.at, reader._depth = start, self._depth
        return tuple(reader._parts(quoted=True, stop="", blanks=True))

    def _braces(self, *, quoted: bool) -> Parameter:
        start = self.at
        self.at += 2
        length = self.startswith("#") and self.text[self.at + 1 : self.at + 2] not in "}:-=?+"
        indirect = self.startswith("!") and NAME.match(self.text, self.at + 1) is not None
        self.at += length or indirect
        match = NAME.match(self.text, self.at)
        name = match[0] if match else self._special()
        self.at += len(name)
        index: str | None = None
        index_parts: tuple[Part, ...] = ()
        if name and self.startswith("["):
            close = min(self.closing(self.at), len(self.text))
            index, index_parts = self.text[self.at + 1 : close - 1].strip("'\""), self.inside(self.at + 1, close - 1)
            self.at = close
        operator = "length" if length else "indirect" if indirect else "" if name else "unread"
        if name and not length and not self.startswith("}"):
            operator = next((one for one in _OPERATORS if self.startswith(one) and not indirect), "unread")
            self.at += len(operator) if operator != "unread" else 0
        operand, second = self._operands(operator, quoted=quoted)
        if not self.startswith("}"):
            raise NotReadError(start, "brace")
        self.at += 1
        return Parameter(name, start, self.at, quoted, operator, operand, second, index, index_parts)

    def _operands(self, operator: str, *, quoted: bool) -> tuple[tuple[Part, ...], tuple[Part, ...] | None]:
        """What stands behind an operator; a pattern is one in double quotes, too, so that its quotes are its own."""
        apart = "/" if operator.startswith("/") else ":" if operator == ":" else ""
        quoted = quoted and operator not in _OF_PATTERNS
        operand = self._parts(quoted=quoted or apart == ":", stop=apart + "}", blanks=True)
        if not apart or not self.startswith(apart):
            return tuple(operand), None
        self.at += 1
        return tuple(operand), tuple(self._parts(quoted=quoted or apart == ":", stop="}", blanks=True))

    def _special(self) -> str:
        digits = re.compile(r"\d+").match(self.text, self.at)
        if digits:
            return digits[0]
        here, behind = self.text[self.at : self.at + 1], self.text[self.at + 1 : self.at + 2]
        several = here in ("@", "*") and behind in (":", "%", "#", "/", "^", ",")
        return here if here and here in "@*#?-$!" and (behind == "}" or several) else ""

    def _ansi(self) -> Part:
        start, at = self.at, self.at + 2
        while at < len(self.text) and self.text[at] != "'":
            at += 2 if self.text[at] == "\\" else 1
        self.at = min(at + 1, len(self.text))
        words = self.text[start + 2 : at]
        if any(match[4] for match in _ANSI.finditer(words)):
            return Substitution(self.text[start : self.at], start, self.at, quoted=True)
        decoded = _ANSI.sub(_decoded, words)
        return QuotedText(decoded, start, self.at, quoted=True)

    def _process(self, *, quoted: bool) -> Substitution:
        start = self.at
        self.at = self.closing(start + 1)
        return Substitution(self.text[start : self.at], start, self.at, quoted)

    def _backtick_end(self) -> int:
        at = self.at + 1
        while at < len(self.text) and self.text[at] != "`":
            at += 2 if self.text[at] == "\\" else 1
        return min(at + 1, len(self.text))

    def closing(self, at: int) -> int:
        """Behind what closes the bracket at an offset; the text's end if nothing does. Quotes and comments are seen."""
        opened, start = self.text[at], at
        closed = {"(": ")", "[": "]", "{": "}"}[opened]
        depth = 0
        while at < len(self.text):
            here = self.text[at]
            if here == "\\":
                at += 1
            elif here == "'":
                at = self._find("'", at + 1)
            elif here == '"':
                at = self._quote_end(at)
            elif here == "#" and self.text[at - 1] in " \t\n" and opened == "(" and depth == 1:
                at = self._find("\n", at) - 1
            elif here in (opened, closed):
                depth += 1 if here == opened else -1
                if depth == 0:
                    return at + 1
            at += 1
        self._left_open(start, at)
        return len(self.text)

    def _quote_end(self, at: int) -> int:
        """Where the double quote closes that opens at an offset; quotes inside of ``$(...)`` are their own."""
        at += 1
        while at < len(self.text) and self.text[at] != '"':
            if self.text[at] == "\\":
                at += 1
            elif self.text.startswith("$(", at) and self._depth < MAX_DEPTH:
                self._depth += 1
                at = self.closing(at + 1) - 1
                self._depth -= 1
            at += 1
        return at

    def _find(self, mark: str, at: int) -> int:
        found = self.text.find(mark, at)
        return found if found >= 0 else len(self.text)


def _decoded(match: re.Match[str]) -> str:
    letter, octal, hexadecimal, _ = match.groups()
    if letter:
        return _ANSI_LETTERS.get(letter, letter)
    return chr(int(octal, 8) & 0xFF) if octal else chr(int(hexadecimal, 16))
