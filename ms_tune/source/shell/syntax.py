"""Define the syntax tree of shell scripts, with text offsets, and read words; nothing is run, and any text can be read.

The grammar is bash's (Bash Reference Manual 5.2; the tests compare with bash). No library is suitable: bashlex is
under the GPL, tree-sitter adds two compiled wheels to a base install that needs only PyYAML, and both give a tree
without values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from ms_tune.diagnostics import Location
from ms_tune.source.yaml_nodes import Document

MAX_DEPTH = 60
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DECLARING = frozenset(("export", "declare", "typeset", "local", "readonly"))
METACHARACTERS = frozenset(" \t\n\r;&|()<>")
_PARAMETER = re.compile(r"\$(?:([A-Za-z_]\w*)|([@*#?$!0-9-]))", re.ASCII)
_BRACED = re.compile(r"\$\{(#(?![}:=?+-])|!(?=[A-Za-z_]))?([A-Za-z_]\w*|\d+|[@*](?=[:%#/}])|[#?$!-](?=\}))?", re.ASCII)
_OPERATORS = re.compile(r":[-=?+]|[-=?+]|##?|%%?|/[/#%]?|:")
_PLAIN = {False: re.compile(r"[^\s;&|()<>\\'\"`$]+"), True: re.compile(r"[^\\\"`$]+")}
_SPREADS = {"@": "@", "*": "*", "#": "@"}  # all positional parameters: the elements of `@`
_EXTENDED = re.compile(r"[?*+@!]\(")  # patterns of `shopt -s extglob`
_ANSI = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_BACKTICKS = re.compile(r"`(?:\\.|[^`\\])*(?:`|\Z)", re.DOTALL)
_ANSI_QUOTES = re.compile(r"\$'((?:\\.|[^'\\])*)(?:'|\Z)", re.DOTALL)
_IN_BRACKETS = re.compile(r"\\.|'[^']*(?:'|\Z)|(?<=\s)#[^\n]*|[\"()\[\]]", re.DOTALL)
_IN_QUOTES = re.compile(r"\\.|\$\(|\"", re.DOTALL)


class File:
    """A file's text; lines and columns of offsets are computed on demand."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text

    @cached_property
    def _lines(self) -> Document:
        return Document(self.text, self.path)

    def span(self, start: int, end: int) -> Location:
        """Return the location between two offsets."""
        return self._lines.span(start, end)


class TextInside(File):
    """A script assembled within another (``eval``, ``bash -c``); all its locations are that of the command there."""

    def __init__(self, around: ScriptPlace, text: str) -> None:
        super().__init__(around.file.path, text)
        self._around = around

    def span(self, _start: int, _end: int) -> Location:
        """Return the location of the command that contains this script."""
        return self._around.span


@dataclass(frozen=True, slots=True)
class ScriptPlace:
    """A range of a file's text."""

    file: File
    start: int
    end: int

    @property
    def text(self) -> str:
        """Return the text of the range."""
        return self.file.text[self.start : self.end]

    @property
    def span(self) -> Location:
        """Return the range with lines and columns."""
        return self.file.span(self.start, self.end)


@dataclass(frozen=True, slots=True)
class QuotedText:
    """Literal characters; if ``quoted``, they are neither split nor used as a pattern."""

    text: str
    place: ScriptPlace
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """An expansion ``$name`` or ``${name...}``."""

    name: str  # the variable, `1` or `@`; empty for an unsupported form
    place: ScriptPlace
    quoted: bool
    # The operator as written; "length" for `${#name}`, "indices" for `${!name[@]}`, "unread" for unsupported forms.
    operator: str = ""
    operand: tuple[Part, ...] = ()
    second: tuple[Part, ...] | None = None  # the part after the `/` or `:` in the operand
    index: tuple[Part, ...] | None = None
    spread: str = ""  # "@" or "*" if it expands to all elements


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """An arithmetic expansion ``$((...))``; its parts may contain expansions."""

    parts: tuple[Part, ...]
    place: ScriptPlace
    quoted: bool


@dataclass(frozen=True, slots=True)
class Substitution:
    """A command substitution: ``$(...)``, backticks, ``<(...)``."""

    place: ScriptPlace
    quoted: bool


Part: TypeAlias = "QuotedText | Parameter | Arithmetic | Substitution"


@dataclass(frozen=True, slots=True)
class Word:
    """One word before expansion."""

    parts: tuple[Part, ...]
    place: ScriptPlace

    @property
    def literal(self) -> str | None:
        """Return the word if it consists of unquoted plain characters, else None."""
        texts = [part.text for part in self.parts if isinstance(part, QuotedText) and not part.quoted]
        return "".join(texts) if len(texts) == len(self.parts) else None


@dataclass(frozen=True, slots=True)
class Assign:
    """An assignment: ``name=value``, ``name+=value``, ``name[index]=value`` or ``name=(values)``."""

    name: str
    place: ScriptPlace
    value: Word | tuple[Word, ...]
    value_start: int  # opening quote included
    append: bool = False
    index: tuple[Part, ...] | None = None


@dataclass(slots=True, eq=False)
class Redirection:
    """A redirection such as ``2>file``: number, operator and word.

    The text of a here-document (``<<``) is filled in when the line that announces it has ended.
    """

    number: str
    operator: str
    to: Word | None  # None if it is not supported


class CommandKind(Enum):
    """Kind of a command; the comments describe the command's fields."""

    SIMPLE = auto()  # words, assignments first
    LIST = auto()  # inner commands in sequence, also `{ ...; }`
    AND_OR = auto()  # inner commands with "&&" or "||" as marks before all but the first
    PIPELINE = auto()  # inner commands; mark "!" if negated
    IF = auto()  # conditions and bodies alternating, then the `else` body
    FOR = auto()  # the variable's name, the words (None: the positional parameters), the body
    WHILE = auto()  # also `until`, `select` and `for ((;;))`: the condition, the body
    CASE = auto()  # the word; a body for each of the patterns, with its end (`;;`, `;&`, `;;&`) as mark
    FUNCTION = auto()  # the name, the body
    SUBSHELL = auto()  # `( ... )`: the list; mark "&" for a background command
    CONDITION = auto()  # `[[ ... ]]` and `((...))`: the content
    TEST = auto()  # one test between `[[` and `]]`: its words
    CALCULATION = auto()  # an expression: its only word


@dataclass(frozen=True, slots=True)
class Command:
    """One command with its inner commands."""

    kind: CommandKind
    place: ScriptPlace  # approximate: that of the first simple command in it
    words: tuple[Word | Assign, ...] | None = ()
    inner: tuple[Command, ...] = ()
    marks: tuple[str, ...] = ()
    name: str = ""
    patterns: tuple[tuple[Word, ...], ...] = ()
    redirections: tuple[Redirection, ...] = ()

    @property
    def plain_words(self) -> list[Word]:
        """Return the words that are not assignments."""
        return [word for word in self.words or () if isinstance(word, Word)]


class ShellSyntaxError(Exception):
    """A syntax error with its position; parsing continues on the next line."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Script:
    """A parsed script: its commands, syntax errors, and comments by offset."""

    body: Command
    problems: tuple[ShellSyntaxError, ...]
    comments: dict[int, str]


class WordReader:
    """Reader of words in a range of a file; ``at`` is its offset, ``unclosed`` the first quotation mark left open."""

    def __init__(self, file: File, at: int, end: int | None, depth: int = 0, *, in_document: bool = False) -> None:
        self.file = file
        self.text = file.text if end is None else file.text[:end]
        self.at = at
        self.unclosed: int | None = None
        self._depth = depth
        self._in_document = in_document
        self._extended = "shopt -s extglob" in file.text

    def _place(self, start: int, end: int | None = None) -> ScriptPlace:
        return ScriptPlace(self.file, start, self.at if end is None else end)

    def _ahead(self, words: str | tuple[str, ...]) -> bool:
        return self.text.startswith(words, self.at)

    def _takes(self, mark: str) -> bool:
        """Return whether the text continues with a mark, and skip it if so."""
        taken = self.text.startswith(mark, self.at)
        self.at += len(mark) * taken
        return taken

    def _find(self, mark: str, at: int) -> int:
        found = self.text.find(mark, at)
        return found if found >= 0 else len(self.text)

    def _ends(self) -> bool:
        """Return whether a word ends here; ``<(...)`` is part of a word."""
        return (self._ahead(tuple(METACHARACTERS)) and not self._ahead(("<(", ">("))) or self.at >= len(self.text)

    def word(self) -> Word:
        """Return the word that begins here."""
        start = self.at
        parts = self.parts(quoted=False)
        if self.at == start and not self._ends():
            raise ShellSyntaxError(self.at, "unexpected")
        return Word(parts, self._place(start))

    def parts(self, *, quoted: bool, stop: str | None = None) -> tuple[Part, ...]:
        """Return the parts up to a character of ``stop``, or up to the end of the word (if quoted, of the text)."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ShellSyntaxError(self.at, "depth")
        found: list[Part] = []
        while self.at < len(self.text) and self.text[self.at] not in (stop or "\0"):
            if not quoted and stop is None and self._ends():
                break
            self._part(found, quoted=quoted, stop=stop or "")
        self._depth -= 1
        return tuple(found)

    def _part(self, found: list[Part], *, quoted: bool, stop: str) -> None:
        here, start = self.text[self.at], self.at
        if here == "\\":
            self._backslash(found, quoted=quoted, stop=stop)
        elif here == "$":
            found.append(self._dollar(quoted=quoted))
        elif here == "`" and (match := _BACKTICKS.match(self.text, start)):
            self.at = match.end()
            found.append(Substitution(self._place(start), quoted))
        elif here == "'" and not quoted:
            close = self._find("'", start + 1)
            self._leave_open(start, close)
            self.at = min(close + 1, len(self.text))
            found.append(self._letters(start + 1, close, quoted=True))
        elif here == '"' and not (quoted and self._in_document):
            self.at += 1
            if not quoted:  # otherwise it is inside a quoted ${...} or $((...)) and is dropped
                # "" is a word even if it is empty
                found += (self._letters(self.at, self.at, quoted=True), *self.parts(quoted=True, stop='"'))
                self._leave_open(start, self.at)
                self.at = min(self.at + 1, len(self.text))
        elif not quoted and self._ahead(("<(", ">(")):
            self.at = self._closing(start + 1)
            found.append(Substitution(self._place(start), quoted))
        else:
            match = _PLAIN[quoted].match(self.text, start)
            self.at = match.end() if match else start + 1
            if self._extended and not quoted and (match := _EXTENDED.search(self.text, start, self.at + 1)):
                self.at = match.start() if match.start() > start else self._closing(start + 1)
            ends = (self.text.find(mark, start + 1, self.at) for mark in stop)
            self.at = min((end for end in ends if end > 0), default=self.at)
            found.append(self._letters(start, self.at, quoted=quoted))

    def _letters(self, start: int, end: int, *, quoted: bool) -> QuotedText:
        return QuotedText(self.text[start:end], self._place(start, end), quoted)

    def _leave_open(self, start: int, close: int) -> None:
        """Record the first unclosed quotation mark; the text after it counts as quoted."""
        if close >= len(self.text) and self.unclosed is None:
            self.unclosed = start

    def _backslash(self, found: list[Part], *, quoted: bool, stop: str) -> None:
        start = self.at
        self.at = min(start + 2, len(self.text))
        character = self.text[start + 1 : self.at]
        if character == "\n" or not (character or quoted):
            return  # the line continues, or the script ends
        kept = not character or (quoted and character not in "$`\\" + stop + '"' * (not self._in_document))
        found.append(self._letters(start + (not kept), self.at, quoted=True))

    def _dollar(self, *, quoted: bool) -> Part:  # noqa: PLR0911 - a form a line
        start = self.at
        if self._ahead(("$(", "$[")):
            self.at = self._closing(start + 1)
            if self.text.startswith("$((", start) and self.text[self.at - 2 : self.at] == "))":
                return Arithmetic(self._inside(start + 3, self.at - 2), self._place(start), quoted)
            return Substitution(self._place(start), quoted)
        if self._ahead("${"):
            return self._braces(quoted=quoted)
        if not quoted and (match := _ANSI_QUOTES.match(self.text, start)):
            self.at = match.end()
            if any(one[1] not in _ANSI for one in re.finditer(r"\\(.)", match[1], re.DOTALL)):
                return Substitution(self._place(start), quoted=True)  # a character given by its number
            text = re.sub(r"\\(.)", lambda one: _ANSI[one[1]], match[1])
            return QuotedText(text, self._place(start), quoted=True)
        if match := _PARAMETER.match(self.text, start):
            self.at, name = match.end(), match[1] or match[2]
            spread = _SPREADS.get(name, "")
            return Parameter(
                "@" if spread else name, self._place(start), quoted, "length" * (name == "#"), spread=spread
            )
        self.at = start + 1
        # Before a quotation mark it requests a translation of the text.
        return QuotedText("" if not quoted and self._ahead('"') else "$", self._place(start), quoted=True)

    def _inside(self, start: int, end: int, *, document: bool = False) -> tuple[Part, ...]:
        """Return the parts between two offsets, read as in double quotes."""
        return WordReader(self.file, start, end, self._depth, in_document=document).parts(quoted=True)

    def _braces(self, *, quoted: bool) -> Parameter:
        start = self.at
        match = _BRACED.match(self.text, start)
        mark, name = (match[1], match[2] or "") if match else ("", "")
        self.at = match.end() if match else start + 2
        index, spread = None, ""
        if name and self._ahead("["):
            begin, self.at = self.at + 1, self._closing(self.at)
            index, written = self._inside(begin, self.at - 1), self.text[begin : self.at - 1].strip("'\"")
            spread = written if written in ("@", "*") else ""
        operator = {"#": "length", "!": "indices"}.get(mark, "")
        known = _OPERATORS.match(self.text, self.at) if name and not operator else None
        if known:
            operator, self.at = known[0], known.end()
        elif not name or not self._ahead("}") or (operator == "indices" and not spread):
            operator = "unread"
        apart = "/" if operator.startswith("/") else ":" if operator == ":" else ""
        # A pattern keeps its own quoting even inside double quotes.
        quoted_inside = apart == ":" or (quoted and operator[:1] not in ("#", "%", "/"))
        operand = self.parts(quoted=quoted_inside, stop=apart + "}")
        second = self.parts(quoted=quoted_inside, stop="}") if apart and self._takes(apart) else None
        if not self._takes("}"):
            raise ShellSyntaxError(start, "brace")
        operator, spread = operator or "length" * (name == "#"), spread or _SPREADS.get(name, "")
        name = "@" if name in _SPREADS else name
        return Parameter(name, self._place(start), quoted, operator, operand, second, index, spread)

    def _closing(self, at: int) -> int:
        """Return the offset after the matching closing bracket, or the text's end; quotes and comments are skipped."""
        start, stack = at, list[str]()
        opened = self.text[at]
        while match := (_IN_QUOTES if stack[-1:] == ['"'] else _IN_BRACKETS).search(self.text, at):
            at, mark = match.end(), match[0][-1]
            if len(match[0]) > 1 and match[0] != "$(":
                continue  # an escaped character, a quoted text, a comment
            if stack and mark == stack[-1]:
                stack.pop()
            elif mark in ('"', opened) or (mark == "(" and stack[-1:] == ['"']):
                stack.append({"(": ")", "[": "]"}.get(mark, mark))
            if not stack:
                return at
        self._leave_open(start, len(self.text))
        return len(self.text)
