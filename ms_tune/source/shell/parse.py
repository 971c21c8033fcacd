"""Parse the text of a shell script into commands; any text can be parsed, and nothing is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from ms_tune.facts.query import load
from ms_tune.source.shell.syntax import (
    DECLARING,
    MAX_DEPTH,
    NAME,
    Assign,
    Command,
    CommandKind,
    File,
    QuotedText,
    Redirection,
    Script,
    ShellSyntaxError,
    Word,
    WordReader,
)

_RESERVED = frozenset(load("bash")["reserved"])
_CLOSERS = frozenset(("then", "else", "elif", "fi", "do", "done", "esac", "}"))
_WORD_AHEAD = re.compile(r"[^\s;&|()<>\\'\"`$]*(?=[\s;&|()<>]|\Z)")  # might be a reserved word
_COMPARISON = re.compile(r"[<>]")
_EXPRESSION = re.compile(  # after `=~`
    r"(?:\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|\((?:[^()]|\([^()]*\))*\)|\[[^\]\n]*\]|[^\s\\'\"])+"
)
_ASSIGN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[([^\]\n]*)\])?(\+?)=")
_REDIRECTION = re.compile(r"(\d*|\{[A-Za-z_]\w*\})(&>>|&>|<<<|<<-|<<|<>|<&|>&|>>|>\||<|>)(?<!<(?=\())(?<!>(?=\())")


def parse(file: File, at: int = 0, end: int | None = None) -> Script:
    """Return the commands, comments and syntax errors of a script, or of a range of its text."""
    return _ScriptReader(file, at, end).script()


class _ScriptReader(WordReader):
    """Recursive-descent parser; each method reads one kind of command."""

    def __init__(self, file: File, at: int, end: int | None) -> None:
        super().__init__(file, at, end)
        self._comments: dict[int, str] = {}
        self._documents: list[Redirection] = []  # here-documents that begin on the next line
        self._nesting = 0

    def script(self) -> Script:
        found, problems, start = list[Command](), list[ShellSyntaxError](), self.at
        while True:
            before = self.at
            try:
                self._skip(newlines=True)
                if self.at >= len(self.text):
                    break
                found.append(self._read_terminated())
            except ShellSyntaxError as error:
                problems.append(error)
                self._depth = self._nesting = 0
                self._documents.clear()
                self.at = self._find("\n", max(self.at, before))
        if self.unclosed is not None:
            problems.append(ShellSyntaxError(self.unclosed, self.text[self.unclosed]))
        return Script(self._compound_of(CommandKind.LIST, start, found), tuple(problems), self._comments)

    # text between words

    def _skip(self, *, newlines: bool = False) -> None:
        """Skip blanks, comments and, at a line's end, the here-documents that the line announced."""
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

    def _read_document(self, redirection: Redirection) -> None:
        """Replace the end word of a here-document with its text; the tabs that ``<<-`` ignores are kept."""
        plain = [part for part in redirection.to.parts if isinstance(part, QuotedText)] if redirection.to else []
        word, indented = re.escape("".join(part.text for part in plain)), redirection.operator == "<<-"
        tabs = r"\t*" if indented else ""
        end = re.compile(rf"^{tabs}{word}$", re.MULTILINE).search(self.text, self.at)
        start, stop = self.at, end.start() if end else len(self.text)
        self.at = end.end() if end else len(self.text)
        redirection.to = None
        if any(part.quoted for part in plain):
            redirection.to = Word((self._letters(start, stop, quoted=True),), self._place(start, stop))
        elif not (indented and "\t" in self.text[start:stop]):
            redirection.to = Word(self._inside(start, stop, document=True), self._place(start, stop))

    def _peek(self) -> str:
        """Return the next plain word if it may be a reserved one."""
        match = _WORD_AHEAD.match(self.text, self.at)
        return match[0] if match else ""

    def _take(self, word: str) -> None:
        self._skip(newlines=True)
        if (self._peek() or self.text[self.at : self.at + 1]) != word:
            raise ShellSyntaxError(self.at, word)
        self.at += len(word)

    # commands

    def _list(self) -> Command:
        found, start = list[Command](), self.at
        while True:
            self._skip(newlines=True)
            if self.at >= len(self.text) or self._ahead((")", ";")) or self._peek() in _CLOSERS:
                return self._compound_of(CommandKind.LIST, start, found)
            found.append(self._read_terminated())

    def _read_terminated(self) -> Command:
        """Return a command together with its terminator (``;`` or ``&``); a background command becomes a subshell."""
        start, command = self.at, self._and_or()
        background = self._ahead("&") and not self._ahead("&&")
        if background or (self._ahead(";") and not self._ahead((";;", ";&"))):
            self.at += 1
        elif self.at < len(self.text) and not self._ahead(("\n", ")", ";")):
            raise ShellSyntaxError(self.at, "unexpected")
        return self._compound_of(CommandKind.SUBSHELL, start, [command], "&") if background else command

    def _compound_of(self, kind: CommandKind, start: int, inner: Sequence[Command], *marks: str) -> Command:
        """Return a command made of others, with the position of the first one."""
        place = inner[0].place if inner else self._place(start, start)
        return Command(kind, place, inner=tuple(inner), marks=marks)

    def _read_joined(self, read: Callable[[], Command], *operators: str) -> Command:
        """Return one command, or several joined by operators."""
        start, found, marks = self.at, [read()], list[str]()
        while self._ahead(operators):
            marks.append(self.text[self.at : self.at + 2])
            self.at += 2
            self._skip(newlines=True)
            found.append(read())
        if not marks:
            return found[0]
        return self._compound_of(CommandKind.AND_OR, start, found, *marks)

    def _and_or(self) -> Command:
        return self._read_joined(self._pipeline, "&&", "||")

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
        return self._compound_of(CommandKind.PIPELINE, start, found, *["!"] * negated)

    def _read_nested(self, read: Callable[[], Command]) -> Command:
        self._nesting += 1
        if self._nesting > MAX_DEPTH:
            raise ShellSyntaxError(self.at, "depth")
        found = read()
        self._nesting -= 1
        return found

    def _command(self) -> Command:
        word = self._peek()
        if word in _CLOSERS or word == "in":
            raise ShellSyntaxError(self.at, "unexpected")
        if word == "function":
            return self._read_nested(self._function)
        if not (word in _RESERVED or word in ("{", "[[") or self._ahead("(")):
            return self._read_nested(self._simple)
        found = self._read_nested(self._compound)
        self._skip()
        redirections = list[Redirection]()
        while (one := self._redirection()) is not None:
            redirections.append(one)
            self._skip()
        return replace(found, redirections=tuple(redirections)) if redirections else found

    def _compound(self) -> Command:  # noqa: PLR0911 - a kind a line
        start, word = self.at, self._peek()
        if self._ahead("((") and self.text[(end := self._closing(start)) - 2 : end] == "))":
            self.at = end
            calculation = replace(self._calculation(start + 2, end - 2), place=self._place(start))
            return self._compound_of(CommandKind.CONDITION, start, (calculation,))
        self.at += len(word) or 1
        if word == "if":
            return self._if(start)
        if word in ("for", "select"):
            return self._for(start, word)
        if word in ("while", "until"):
            return self._compound_of(CommandKind.WHILE, start, (self._list(), self._done()))
        if word == "case":
            return self._case(start)
        if word == "[[":
            return self._condition(start)
        body = self._list()
        self._take("}" if word == "{" else ")")
        return body if word == "{" else self._compound_of(CommandKind.SUBSHELL, start, (body,))

    def _calculation(self, start: int, end: int) -> Command:
        place = self._place(start, end)
        return Command(CommandKind.CALCULATION, place, (Word(self._inside(start, end), place),))

    def _if(self, start: int) -> Command:
        inner = list[Command]()
        while not inner or self._peek() == "elif":
            self.at += len("elif") if inner else 0
            inner.append(self._list())
            self._take("then")
            inner.append(self._list())
        otherwise = self._peek() == "else"
        self.at += len("else") * otherwise
        inner.append(self._list() if otherwise else self._compound_of(CommandKind.LIST, self.at, ()))
        self._take("fi")
        return self._compound_of(CommandKind.IF, start, inner)

    def _done(self) -> Command:
        self._take("do")
        body = self._list()
        self._take("done")
        return body

    def _body(self) -> Command:
        """Return the body ``do ...; done`` (after ``for`` also ``{ ...; }``)."""
        self._skip()
        self._takes(";")
        self._skip(newlines=True)
        return self._command() if self._peek() == "{" else self._done()

    def _for(self, start: int, word: str) -> Command:
        self._skip()
        if self._ahead("(("):
            return self._count(start)
        match = NAME.match(self.text, self.at)
        if not match:
            raise ShellSyntaxError(self.at, "for")
        self.at = match.end()
        self._skip(newlines=True)
        words: list[Word] | None = None
        if self._peek() == "in":
            self.at += 2
            words = []
            self._skip()
            while not self._ends():
                words.append(self.word())
                self._skip()
        body = self._body()
        if word == "select":
            loop = self._compound_of(CommandKind.WHILE, start, (self._compound_of(CommandKind.LIST, start, ()), body))
            return replace(loop, name=match[0])
        taken = tuple(words) if words is not None else None
        return Command(CommandKind.FOR, body.place, taken, (body,), name=match[0])

    def _count(self, start: int) -> Command:
        """Return ``for ((A; B; C))`` as ``((A)); while ((B)); do ...; ((C)); done``."""
        begin, self.at = self.at + 2, self._closing(self.at)
        marks = [at for at in range(begin, self.at - 2) if self.text[at] == ";"]
        first, *others = [self._calculation(low + 1, high) for low, high in pairwise((begin - 1, *marks, self.at - 2))]
        round_ = self._compound_of(CommandKind.LIST, start, (self._body(), *others[1:]))
        loop = self._compound_of(CommandKind.WHILE, start, (*others[:1], round_))
        return self._compound_of(CommandKind.LIST, start, (first, loop))

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
        found = self._compound_of(CommandKind.CASE, start, inner, *marks)
        return replace(found, words=(word,), patterns=tuple(patterns))

    # ``[[ ... ]]``

    def _condition(self, start: int) -> Command:
        extended, self._extended = self._extended, True  # its patterns use `extglob`
        self._skip(newlines=True)
        inner = self._either()
        self._take("]]")
        self._extended = extended
        return self._compound_of(CommandKind.CONDITION, start, (inner,))

    def _either(self) -> Command:
        return self._read_joined(lambda: self._read_joined(self._test, "&&"), "||")

    def _test(self) -> Command:
        start, negated, words = self.at, False, list[Word]()
        while self._peek() == "!":
            negated, self.at = not negated, self.at + 1
            self._skip(newlines=True)
        if self._takes("("):
            self._skip(newlines=True)
            found = self._read_nested(self._either)
            self._take(")")
            self._skip(newlines=True)
        else:
            while not words or (self._peek() != "]]" and not self._ahead(("&&", "||", ")"))):
                words.append(self._test_word(words))
                self._skip(newlines=True)
            place = self._place(words[0].place.start, words[-1].place.end)
            found = Command(CommandKind.TEST, place, tuple(words))
        return self._compound_of(CommandKind.PIPELINE, start, (found,), "!") if negated else found

    def _test_word(self, before: list[Word]) -> Word:
        expression = before and before[-1].literal == "=~"
        if match := (_EXPRESSION if expression else _COMPARISON).match(self.text, self.at):
            self.at = match.end()
            return Word((self._letters(match.start(), self.at, quoted=False),), self._place(match.start()))
        if self._ends() or self._peek() == "]]":
            raise ShellSyntaxError(self.at, "]]")
        return self.word()

    def _function(self) -> Command:
        """Return a definition that starts with ``function name``, with or without parentheses."""
        self.at += len("function")
        self._skip()
        name = self._peek()
        self.at += len(name)
        self._skip()
        if self._takes("("):
            self._take(")")
        self._skip(newlines=True)
        return self._named(name)

    def _named(self, name: str) -> Command:
        body = self._command()
        return Command(CommandKind.FUNCTION, body.place, inner=(body,), name=name)

    def _simple(self) -> Command:
        start = end = self.at
        words, redirections = list[Word | Assign](), list[Redirection]()
        while True:
            self._skip()
            if (one := self._redirection()) is not None:
                redirections.append(one)
            elif self._ends():
                break
            elif (match := _ASSIGN.match(self.text, self.at)) and _may_assign_after(words):
                words.append(self._assign(match))
            else:
                words.append(self.word())
            end = self.at
        first = words[0] if len(words) == 1 else None
        if self._ahead("(") and isinstance(first, Word) and first.literal:
            self.at += 1
            self._take(")")
            self._skip(newlines=True)
            return self._named(first.literal)
        if end == start:
            raise ShellSyntaxError(self.at, "unexpected")
        return Command(CommandKind.SIMPLE, self._place(start, end), tuple(words), redirections=tuple(redirections))

    def _assign(self, match: re.Match[str]) -> Assign:
        start, self.at = self.at, match.end()
        name, written, plus = match.groups()
        index = self._inside(match.start(2), match.end(2)) if written is not None else None
        if not self._takes("("):
            word = self.word()
            return Assign(name, self._place(start), word, match.end(), bool(plus), index)
        found: list[Word] = []
        self._skip(newlines=True)
        while not self._takes(")"):
            if self.at >= len(self.text):
                raise ShellSyntaxError(start, ")")
            if self._ends():
                raise ShellSyntaxError(self.at, "unexpected")
            found.append(self.word())
            self._skip(newlines=True)
        return Assign(name, self._place(start), tuple(found), match.end(), bool(plus), index)

    def _redirection(self) -> Redirection | None:
        match = _REDIRECTION.match(self.text, self.at)
        if not match:
            return None
        self.at = match.end()
        self._skip()
        found = Redirection(match[1], match[2], None if self._ends() else self.word())
        if found.operator in ("<<", "<<-"):
            self._documents.append(found)
        return found


def _may_assign_after(words: list[Word | Assign]) -> bool:
    """Return whether an assignment is allowed after these words: assignments, ``export``, ``builtin local``, ..."""
    literals = [word.literal for word in words if isinstance(word, Word)]
    rest = [word for word in literals if word not in ("builtin", "command")]
    return not literals or (bool(rest) and rest[0] in DECLARING)
