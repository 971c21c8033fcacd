"""Reads a shell script's text into its commands. Nothing is run, and no text makes it fail."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ms_tune.facts.query import load
from ms_tune.source.shell.syntax import (
    DECLARING,
    MAX_DEPTH,
    NAME,
    Assign,
    Command,
    CommandKind,
    HereDocument,
    NotReadError,
    QuotedText,
    Redirection,
    Script,
    SyntaxProblem,
    Word,
    WordReader,
)

if TYPE_CHECKING:
    from ms_tune.source.shell.syntax import Part

_RESERVED = frozenset(load("bash")["reserved"])
_CLOSERS = frozenset(("then", "else", "elif", "fi", "do", "done", "esac", "}"))
_WORD_AHEAD = re.compile(r"[^\s;&|()<>\\'\"`$]*(?=[\s;&|()<>]|\Z)")  # could be a reserved one
_IN_CONDITION = re.compile(r"&&|\|\||[()<>]")
_EXPRESSION = re.compile(  # behind `=~`
    r"(?:\\.|'[^']*'|\"[^\"]*\"|\((?:[^()]|\([^()]*\))*\)|\[[^\]\n]*\]|[^\s\\'\"])+"
)
_ASSIGN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[([^\]\n]*)\])?(\+?)=")
_REDIRECTION = re.compile(r"(\d*|\{[A-Za-z_]\w*\})(&>>|&>|<<<|<<-|<<|<>|<&|>&|>>|>\||<|>)(?<!<(?=\())(?<!>(?=\())")


def parse(text: str, at: int = 0) -> Script:
    """The commands of a script's text from an offset on, and what of it could not be read."""
    return _ScriptReader(text, at).script()


class _ScriptReader(WordReader):
    """Recursive descent over the grammar; each method reads one kind of command."""

    def __init__(self, text: str, at: int) -> None:
        super().__init__(text, at)
        self._comments: dict[int, str] = {}
        self._documents: list[HereDocument] = []
        self._nesting = 0

    def script(self) -> Script:
        found, problems, start = list[tuple[Command, str]](), list[SyntaxProblem](), self.at
        while True:
            before = self.at
            try:
                self._skip(newlines=True)
                if self.at >= len(self.text):
                    break
                found.append(self._listed())
            except NotReadError as error:
                problems.append(SyntaxProblem(error.reason, error.offset))
                self._depth = self._nesting = 0
                self._documents.clear()
                self.at = self._find("\n", max(self.at, before))
        if self.unclosed is not None:
            problems.append(SyntaxProblem(self.text[self.unclosed], self.unclosed))
        return Script(_listing(found, start, self.at), tuple(problems), self._comments)

    # what stands between words

    def _skip(self, *, newlines: bool = False) -> None:
        """Pass over blanks, comments and, where a line has ended, the documents that it has named."""
        while self.at < len(self.text):
            here = self.text[self.at]
            if here in " \t" or self._ahead("\\\n"):
                self.at += 1 + (here == "\\")
            elif here == "#":
                start, self.at = self.at, self._find("\n", self.at)
                self._comments[start] = self.text[start : self.at].strip()
            elif here == "\n" and newlines:
                self.at += 1
                for document in self._documents:
                    self._read_document(document)
                self._documents.clear()
            else:
                return

    def _read_document(self, document: HereDocument) -> None:
        tabs = r"\t*" if document.indented else ""
        end = re.compile(rf"^{tabs}{re.escape(document.word)}$", re.MULTILINE).search(self.text, self.at)
        start, stop = self.at, end.start() if end else len(self.text)
        self.at = end.end() if end else len(self.text)
        if document.literal:
            document.parts = (QuotedText(self.text[start:stop], start, stop, quoted=True),)
        elif not (
            document.indented and "\t" in self.text[start:stop]
        ):  # tabs that do not count are not taken away here
            document.parts = self._inside(start, stop, document=True)

    def _peek(self) -> str:
        """The plain word that comes next, if it could be a reserved one."""
        match = _WORD_AHEAD.match(self.text, self.at)
        return match[0] if match else ""

    def _take(self, word: str) -> None:
        self._skip(newlines=True)
        if (self._peek() or self.text[self.at : self.at + 1]) != word:
            raise NotReadError(self.at, word)
        self.at += len(word)

    # commands

    def _list(self) -> Command:
        found, start = list[tuple[Command, str]](), self.at
        while True:
            self._skip(newlines=True)
            if self.at >= len(self.text) or self._ahead((")", ";")) or self._peek() in _CLOSERS:
                return _listing(found, start, self.at)
            found.append(self._listed())

    def _listed(self) -> tuple[Command, str]:
        """A command, and "&" if it goes to the background."""
        command = self._and_or()
        background = self._ahead("&") and not self._ahead("&&")
        if background or (self._ahead(";") and not self._ahead((";;", ";&"))):
            self.at += 1
        elif self.at < len(self.text) and not self._ahead(("\n", ")", ";")):
            raise NotReadError(self.at, "unexpected")
        return command, "&" * background

    def _and_or(self) -> Command:
        found, marks, start = [self._pipeline()], list[str](), self.at
        while self._ahead(("&&", "||")):
            marks.append(self.text[self.at : self.at + 2])
            self.at += 2
            self._skip(newlines=True)
            found.append(self._pipeline())
        if not marks:
            return found[0]
        return Command(CommandKind.AND_OR, start, self.at, inner=tuple(found), marks=tuple(marks))

    def _pipeline(self) -> Command:
        negated, start = False, self.at
        while self._peek() in ("!", "time"):
            negated ^= self._peek() == "!"
            self.at += len(self._peek())
            self._skip()
            self.at += 2 * self._ahead("-p ")
            self._skip()
        found = [self._command()]
        self._skip()
        while self._ahead("|") and not self._ahead("||"):
            self.at += 1 + self._ahead("|&")
            self._skip(newlines=True)
            found.append(self._command())
            self._skip()
        if len(found) == 1 and not negated:
            return found[0]
        marks = ("!",) * negated
        return Command(CommandKind.PIPELINE, start, self.at, inner=tuple(found), marks=marks)

    def _command(self) -> Command:
        self._nesting += 1
        if self._nesting > MAX_DEPTH:
            raise NotReadError(self.at, "depth")
        word = self._peek()
        if word in _CLOSERS or word == "in":
            raise NotReadError(self.at, "unexpected")
        if word == "function" or not (word in _RESERVED or word in ("{", "[[") or self._ahead("(")):
            self.at += len(word) * (word == "function")
            found = self._function() if word == "function" else self._simple()
        else:
            found = self._compound(word)
            self._skip()
            redirections = []
            while (one := self._redirection()) is not None:
                redirections.append(one)
                self._skip()
            found = replace(found, redirections=tuple(redirections)) if redirections else found
        self._nesting -= 1
        return found

    def _compound(self, word: str) -> Command:  # noqa: PLR0911 - a kind a line
        start = self.at
        if self._ahead("((") and self.text[(end := self._closing(start)) - 2 : end] == "))":
            self.at = end
            expression = self._inside(start + 2, end - 2)
            return Command(CommandKind.CALCULATION, start, end, expressions=(expression,))
        self.at += len(word) or 1
        if word == "if":
            return self._if(start)
        if word in ("for", "select"):
            return self._for(start, word)
        if word in ("while", "until"):
            inner = (self._list(), self._done())
            return Command(CommandKind.WHILE, start, self.at, inner=inner)
        if word == "case":
            return self._case(start)
        if word == "[[":
            return self._condition(start)
        kind = CommandKind.GROUP if word == "{" else CommandKind.SUBSHELL
        body = self._list()
        self._take("}" if word == "{" else ")")
        return Command(kind, start, self.at, inner=(body,))

    def _if(self, start: int) -> Command:
        inner, otherwise = list[Command](), None
        while not inner or self._peek() == "elif":
            self.at += len("elif") if inner else 0
            inner.append(self._list())
            self._take("then")
            inner.append(self._list())
        if self._peek() == "else":
            self.at += len("else")
            otherwise = self._list()
        self._take("fi")
        inner.append(otherwise or _listing([], self.at, self.at))
        return Command(CommandKind.IF, start, self.at, inner=tuple(inner))

    def _done(self) -> Command:
        self._take("do")
        body = self._list()
        self._take("done")
        return body

    def _for(self, start: int, word: str) -> Command:
        self._skip()
        kind, name = CommandKind.FOR if word == "for" else CommandKind.WHILE, ""
        words: list[Word] | None = None
        expressions: tuple[tuple[Part, ...], ...] = ()
        if self._ahead("(("):
            begin, self.at = self.at + 2, self._closing(self.at)
            marks = (at for at in range(begin, self.at - 2) if self.text[at] == ";")
            bounds = pairwise((begin - 1, *marks, self.at - 2))
            kind, expressions = CommandKind.COUNT, tuple(self._inside(low + 1, high) for low, high in bounds)
        elif match := NAME.match(self.text, self.at):
            name, self.at = match[0], match.end()
            self._skip(newlines=True)
            if self._peek() == "in":
                self.at += 2
                words = []
                self._skip()
                while not self._ends():
                    words.append(self.word())
                    self._skip()
        else:
            raise NotReadError(self.at, "for")
        self._skip()
        self._takes(";")
        self._skip(newlines=True)
        inner = self._command().inner if self._peek() == "{" else (self._done(),)
        if kind is CommandKind.WHILE:
            inner = (_listing([], start, start), *inner)
        taken = tuple(words) if words is not None else None
        return Command(kind, start, self.at, taken, inner, name=name, expressions=expressions)

    def _case(self, start: int) -> Command:
        self._skip()
        word = self.word()
        self._take("in")
        inner, marks, patterns = list[Command](), list[str](), list[tuple[Word, ...]]()
        self._skip(newlines=True)
        while self._peek() != "esac":
            self._takes("(")
            several = list[Word]()
            while not several or self._takes("|"):
                self._skip()
                several.append(self.word())
                self._skip()
            self._take(")")
            patterns.append(tuple(several))
            inner.append(self._list())
            marks.append(next((mark for mark in (";;&", ";&", ";;") if self._takes(mark)), ""))
            self._skip(newlines=True)
        self.at += len("esac")
        return Command(CommandKind.CASE, start, self.at, (word,), tuple(inner), tuple(marks), patterns=tuple(patterns))

    def _condition(self, start: int) -> Command:
        found: list[Word] = []
        self._skip(newlines=True)
        while self._peek() != "]]":
            if self.at >= len(self.text):
                raise NotReadError(self.at, "]]")
            before = self.at
            if match := _IN_CONDITION.match(self.text, before):
                self.at = match.end()
                found.append(Word((QuotedText(match[0], before, self.at),), before, self.at))
            else:
                found.append(self.word())
            self._skip()
            if found[-1].literal == "=~" and (match := _EXPRESSION.match(self.text, self.at)):
                self.at = match.end()
                found.append(Word((), self.at, self.at))
            self._skip(newlines=True)
        self.at += 2
        return Command(CommandKind.CONDITION, start, self.at, tuple(found))

    def _function(self) -> Command:
        """``function name``, with brackets or without."""
        self._skip()
        start, name = self.at, self._peek()
        self.at += len(name)
        self._skip()
        if self._takes("("):
            self._take(")")
        self._skip(newlines=True)
        return Command(CommandKind.FUNCTION, start, self.at, inner=(self._command(),), name=name)

    def _simple(self) -> Command:
        start = end = self.at
        words, redirections = list[Word | Assign](), list[Redirection]()
        while True:
            self._skip()
            if (one := self._redirection()) is not None:
                redirections.append(one)
            elif self._ends():
                break
            elif (match := _ASSIGN.match(self.text, self.at)) and _assigns_behind(words):
                words.append(self._assign(match))
            else:
                words.append(self.word())
            end = self.at
        first = words[0] if len(words) == 1 else None
        if self._ahead("(") and isinstance(first, Word) and first.literal:
            self.at += 1
            self._take(")")
            self._skip(newlines=True)
            return Command(CommandKind.FUNCTION, start, self.at, inner=(self._command(),), name=first.literal)
        if end == start:
            raise NotReadError(self.at, "unexpected")
        return Command(CommandKind.SIMPLE, start, end, tuple(words), redirections=tuple(redirections))

    def _assign(self, match: re.Match[str]) -> Assign:
        start, self.at = self.at, match.end()
        name, written, plus = match.groups()
        index = self._inside(match.start(2), match.end(2)) if written is not None else None
        if not self._takes("("):
            return Assign(name, start, self.word(), match.end(), self.at, bool(plus), index)
        found: list[Word] = []
        self._skip(newlines=True)
        while not self._takes(")"):
            if self.at >= len(self.text):
                raise NotReadError(start, ")")
            if self._ends():
                raise NotReadError(self.at, "unexpected")
            found.append(self.word())
            self._skip(newlines=True)
        return Assign(name, start, tuple(found), match.end(), self.at, bool(plus), index)

    def _redirection(self) -> Redirection | None:
        match = _REDIRECTION.match(self.text, self.at)
        if not match or (match[2] in ("<", ">") and not match[1] and self.text[match.end() : match.end() + 1] == "("):
            return None  # <(...) is a word
        self.at = match.end()
        self._skip()
        number, operator = match.groups()
        word = None if self._ends() else self.word()
        to: Word | HereDocument | None = word
        if operator in ("<<", "<<-"):
            plain = [part for part in word.parts if isinstance(part, QuotedText)] if word else []
            literal = any(part.quoted for part in plain)
            to = HereDocument("".join(part.text for part in plain), operator == "<<-", literal)
            self._documents.append(to)
        return Redirection(number, operator, to)


def _listing(found: list[tuple[Command, str]], start: int, end: int) -> Command:
    inner = tuple(command for command, _ in found)
    return Command(CommandKind.LIST, start, end, inner=inner, marks=tuple(mark for _, mark in found))


def _assigns_behind(words: list[Word | Assign]) -> bool:
    """Whether an assignment may stand behind these words: others, ``export``, ``declare -a``, ``builtin local``."""
    literals = [word.literal for word in words if isinstance(word, Word)]
    behind = [word for word in literals if word not in ("builtin", "command")]
    return not literals or (bool(behind) and behind[0] in DECLARING)
