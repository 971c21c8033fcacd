"""Readers of environment settings. They know as much of a shell's grammar as assignments need, and run nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.config.source import decode
from ms_tune.config.yaml_nodes import Document
from ms_tune.errors import ConfigError
from ms_tune.lint.environment.settings import Assignment, Environment
from ms_tune.lint.environment.variables import FOREIGN, KNOWN
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Mapping

_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)=")
_ENV_LINE = re.compile(
    r"^[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(?P<value>[^\r\n]*)", re.MULTILINE
)
_LINE_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")
_HERE = re.compile(r"<<(?P<dash>-?)[ \t]*(?P<quote>['\"]?)(?P<word>[A-Za-z_]\w*)(?P=quote)")
_SEPARATORS = ";&|\n\r()"
_OPENING = frozenset(("if", "for", "while", "until", "case", "{"))
_CLOSING = frozenset(("fi", "done", "esac", "}"))
_BRANCHES = frozenset(("then", "else", "elif", "do"))
_DECLARING = frozenset(("export", "declare", "typeset", "local", "readonly"))


def read_env_file(path: Path) -> Environment:
    """The settings of a ``.env`` file.

    Raises:
        ConfigError: The file cannot be read.
    """
    return parse_env(_content(path), path)


def read_shell(path: Path) -> Environment:
    """The settings of a shell script: exports, plain assignments, and those in front of a command.

    Raises:
        ConfigError: The file cannot be read.
    """
    return parse_shell(_content(path), path)


def from_process(variables: Mapping[str, str]) -> Environment:
    """The settings of a process, such as ``os.environ``; variables that say nothing about MindSpore are left alone."""
    text = "".join(f"{name}={variables[name]}\n" for name in sorted((KNOWN | FOREIGN.keys()) & set(variables)))
    return parse_env(text, Path("environment"), raw=True)


def parse_env(text: str, path: Path, *, raw: bool = False) -> Environment:
    """The settings of a text of lines ``NAME=value``; ``raw`` takes quotes and ``#`` as they stand."""
    text = text.removeprefix("\ufeff")
    lines = Document(text, path)
    found = []
    for match in _ENV_LINE.finditer(text):
        start, end = match.span("value")
        words = text[start:end].rstrip()
        if not raw and not words.startswith(("'", '"')):
            words = _LINE_COMMENT.sub("", words).rstrip()
        elif not raw:
            words = words[: words.find(words[0], 1) + 1] or words
        value = words if raw else _unquoted(words)
        key = lines.span(*match.span("name"))
        found.append(Assignment(match["name"], value, key, lines.span(start, start + len(words))))
    return Environment(path, text, tuple(found), None if raw else parse_env)


def parse_shell(text: str, path: Path) -> Environment:
    """The settings of a shell script's text."""
    text = text.removeprefix("\ufeff")
    return Environment(path, text, tuple(_Scanner(text, path).scan()), parse_shell)


class _Scanner:
    """Goes through a script word by word and keeps track of its blocks."""

    def __init__(self, text: str, path: Path) -> None:
        self._text = text
        self._lines = Document(text, path)
        self._at = 0
        self._block: list[int] = []
        self._count = 0
        self._first = True  # whether the next word starts a command
        self._declaring = False
        self._here: list[tuple[str, bool]] = []

    def scan(self) -> list[Assignment]:
        """Every assignment, in order."""
        found = []
        while self._at < len(self._text):
            one = self._step()
            if one is not None:
                found.append(one)
        return found

    def _step(self) -> Assignment | None:
        here = self._text[self._at]
        if here in " \t" or self._text.startswith(("\\\n", "\\\r\n"), self._at):
            self._at += 1 if here in " \t" else self._text.index("\n", self._at) - self._at + 1
        elif here == "#":
            self._at = self._line_end()
        elif here in _SEPARATORS:
            self._separator(here)
        elif match := _HERE.match(self._text, self._at):
            self._here.append((match["word"], bool(match["dash"])))
            self._at = match.end()
        else:
            return self._word()
        return None

    def _separator(self, mark: str) -> None:
        self._at += 1
        self._first, self._declaring = True, False
        if mark == "\n":
            for word, indented in self._here:
                self._skip_here(word, indented=indented)
            self._here.clear()

    def _skip_here(self, word: str, *, indented: bool) -> None:
        blanks = r"\t*" if indented else ""
        match = re.compile(rf"^{blanks}{word}[ \t]*\r?$", re.MULTILINE).search(self._text, self._at)
        self._at = match.end() if match else len(self._text)

    def _word(self) -> Assignment | None:
        start = self._at
        match = _ASSIGNMENT.match(self._text, start)
        end = self._word_end(match.end() if match else start)
        self._at = max(end, start + 1)
        word = self._text[start : self._at]
        if match and (self._first or self._declaring):
            return self._assignment(match["name"], start, match.end(), end)
        if self._first:
            self._keyword(word)
        self._declaring = self._declaring or (self._first and word in _DECLARING)
        # Behind `then` and the like another command starts; behind any other word its arguments follow.
        self._first = self._first and word in (_OPENING | _BRANCHES | {"!", "time", "env"})
        return None

    def _keyword(self, word: str) -> None:
        if word in _OPENING:
            self._count += 1
            self._block.append(self._count)
        elif word in ("else", "elif") and self._block:
            self._count += 1
            self._block[-1] = self._count
        elif word in _CLOSING and self._block:
            self._block.pop()

    def _assignment(self, name: str, start: int, value_start: int, end: int) -> Assignment:
        words = self._text[value_start:end]
        extends = bool(re.search(rf"\$\{{?{name}\b", words))
        value = None if re.search(r"[$`]", _without_single_quotes(words)) else _unquoted(words)
        key = self._lines.span(start, start + len(name))
        return Assignment(name, value, key, self._lines.span(value_start, end), tuple(self._block), extends)

    def _word_end(self, at: int) -> int:
        """Where a word ends: at a blank or an operator outside of quotes."""
        while at < len(self._text):
            here = self._text[at]
            if here in " \t" or here in _SEPARATORS:
                break
            if here == "\\":
                at += 2
            elif here in "'\"":
                close = self._closing_quote(here, at + 1)
                at = close + 1
            elif here == "`" or self._text.startswith("$(", at):
                at = self._substitution_end(at)
            else:
                at += 1
        return min(at, len(self._text))

    def _closing_quote(self, quote: str, at: int) -> int:
        while at < len(self._text) and self._text[at] != quote:
            at += 2 if quote == '"' and self._text[at] == "\\" else 1
        return at

    def _substitution_end(self, at: int) -> int:
        if self._text[at] == "`":
            close = self._text.find("`", at + 1)
            return close + 1 if close >= 0 else len(self._text)
        depth = 0
        for index in range(at + 1, len(self._text)):
            depth += {"(": 1, ")": -1}.get(self._text[index], 0)
            if depth == 0:
                return index + 1
        return len(self._text)

    def _line_end(self) -> int:
        end = self._text.find("\n", self._at)
        return end if end >= 0 else len(self._text)


def _content(path: Path) -> str:
    try:
        return decode(path.read_bytes(), path)
    except FileNotFoundError:
        raise ConfigError(msg("config.not-found"), path=path) from None
    except OSError as error:
        raise ConfigError(msg("config.unreadable", reason=error.strerror or error), path=path) from error


def _without_single_quotes(words: str) -> str:
    return re.sub(r"'[^']*'", "", words)


def _unquoted(words: str) -> str:
    """What a shell makes of quotes and backslashes."""
    parts = re.findall(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|\\(.)|([^'\"\\]+)|(.)", words, re.DOTALL)
    return "".join(
        single or re.sub(r"\\([\"\\$`])", r"\1", double) or escaped or plain
        for single, double, escaped, plain, _ in parts
    )
