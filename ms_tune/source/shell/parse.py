"""Reads a shell script into its commands. Nothing is run, and no text makes it fail.

An own reader of some hundred lines, and no library: bashlex is under the GPL; tree-sitter with its grammar of bash is two
compiled wheels for every platform and Python, a third of a second's import budget gone, for a base install that has PyYAML
alone — and it would give a tree, not values: quoting, splitting and expansions would have to be written all the same. What
is read here is what bash does, and the tests ask bash.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from ms_tune.facts.query import load
from ms_tune.source.shell.pieces import ASSIGN, PieceReader
from ms_tune.source.shell.syntax import (
    AndOr,
    Assign,
    Calculation,
    Case,
    CommandGroup,
    CommandPipeline,
    ConditionCommand,
    FunctionDefinition,
    If,
    Loop,
    QuotedText,
    Redirected,
    Redirection,
    Script,
    Sequence,
    Simple,
    SyntaxProblem,
    Word,
)
from ms_tune.source.shell.words import MAX_DEPTH, METACHARACTERS, NAME, NotReadError

if TYPE_CHECKING:
    from ms_tune.source.shell.syntax import Command, Part

_RESERVED = frozenset(load("bash")["reserved"])
DECLARING = frozenset(("export", "declare", "typeset", "local", "readonly"))
_CLOSERS = frozenset(("then", "else", "elif", "fi", "do", "done", "esac", "}"))
_IN_CONDITION = re.compile(r"&&|\|\||[()<>]")


def parse(text: str, at: int = 0) -> Script:
    """The commands of a script's text from an offset on, and what of it could not be read."""
    return _ScriptParser(text, at).script()


def comments(text: str) -> list[tuple[int, str]]:
    """The comments of a script's text with the numbers of their lines; ``#!`` is none."""
    reader = _ScriptParser(text)
    reader.script()
    told = ((text.count("\n", 0, start) + 1, said) for start, said in sorted(reader.comments.items()))
    return [(line, said) for line, said in told if line > 1 or not said.startswith("#!")]


class _ScriptParser(PieceReader):
    """Recursive descent over the grammar of bash's manual; each method reads one kind of command."""

    def __init__(self, text: str, at: int = 0) -> None:
        super().__init__(text)
        self.at = at
        self._problems: list[SyntaxProblem] = []
        self._nesting = 0

    def script(self) -> Script:
        found: list[tuple[Command, bool]] = []
        while True:
            before = self.at
            try:
                self._blanks(newlines=True)
                if self.at >= len(self.text):
                    if self.unclosed is not None:
                        self._problems.append(SyntaxProblem(self.text[self.unclosed], self.unclosed))
                    return Script(self.text, Sequence(tuple(found)), tuple(self._problems))
                found.append(self._listed())
            except NotReadError as error:
                self._problems.append(SyntaxProblem(error.reason, error.offset))
                self._depth = self._nesting = 0
                self._here.clear()
                self.at = self._find("\n", max(self.at, before))

    def _sequence(self) -> Sequence:
        found: list[tuple[Command, bool]] = []
        while True:
            self._blanks(newlines=True)
            if self.at >= len(self.text) or self.text[self.at] in ");" or self._peek() in _CLOSERS:
                return Sequence(tuple(found))
            found.append(self._listed())

    def _listed(self) -> tuple[Command, bool]:
        """A command with what ends it, and whether it goes to the background."""
        command = self._and_or()
        self._blanks()
        background = self.startswith("&") and not self.startswith("&&")
        if background or (self.startswith(";") and not self.startswith((";;", ";&"))):
            self.at += 1
        elif self.at < len(self.text) and self.text[self.at] not in "\n);":
            raise NotReadError(self.at, "unexpected")
        return command, background

    def _and_or(self) -> Command:
        first = self._pipeline()
        rest: list[tuple[str, Command]] = []
        while True:
            self._blanks()
            if not self.startswith(("&&", "||")):
                return AndOr(first, tuple(rest)) if rest else first
            operator = self.text[self.at : self.at + 2]
            self.at += 2
            self._blanks(newlines=True)
            rest.append((operator, self._pipeline()))

    def _pipeline(self) -> Command:
        negated = False
        while self._peek() in ("!", "time"):
            negated ^= self._peek() == "!"
            self.at += len(self._peek())
            self._blanks()
            if self.startswith("-p "):
                self.at += 2
                self._blanks()
        commands = [self._command()]
        while True:
            self._blanks()
            if not self.startswith("|") or self.startswith("||"):
                break
            self.at += 2 if self.startswith("|&") else 1
            self._blanks(newlines=True)
            commands.append(self._command())
        return CommandPipeline(tuple(commands), negated) if negated or len(commands) > 1 else commands[0]

    def _command(self) -> Command:
        self._nesting += 1
        if self._nesting > MAX_DEPTH:
            raise NotReadError(self.at, "depth")
        found = self._one_command()
        self._nesting -= 1
        return found

    def _one_command(self) -> Command:
        word = self._peek()
        if word in _CLOSERS or word == "in":
            raise NotReadError(self.at, "unexpected")
        if word in _RESERVED or word in ("{", "[["):
            self.at += len(word)
            return self._compound(word)
        if self.startswith("(("):
            end = self.closing(self.at)
            if self.text[end - 2 : end] == "))":
                start = self.at
                self.at = end
                return self._redirected(Calculation(self.inside(start + 2, end - 2), start, end))
        if self.startswith("("):
            self.at += 1
            body = self._sequence()
            self._blanks(newlines=True)
            if not self.startswith(")"):
                raise NotReadError(self.at, ")")
            self.at += 1
            return self._redirected(CommandGroup(body, subshell=True))
        return self._simple()

    def _compound(self, word: str) -> Command:
        if word == "if":
            found: Command = self._if()
        elif word in ("for", "select"):
            found = self._for(word)
        elif word in ("while", "until"):
            condition = self._sequence()
            found = Loop(None, condition, self._done(), word)
        elif word == "case":
            found = self._case()
        elif word == "{":
            body = self._sequence()
            self._take("}")
            found = CommandGroup(body, subshell=False)
        elif word == "[[":
            found = self._condition()
        else:
            return self._function()
        return self._redirected(found)

    def _redirected(self, found: Command) -> Command:
        redirections: list[Redirection] = []
        self._blanks()
        while (one := self._redirection()) is not None:
            redirections.append(one)
            self._blanks()
        return Redirected(found, tuple(redirections)) if redirections else found

    def _if(self) -> If:
        branches, otherwise = [], None
        while True:
            condition = self._sequence()
            self._take("then")
            branches.append((condition, self._sequence()))
            word = self._peek()
            if word == "elif":
                self.at += len(word)
                continue
            if word == "else":
                self.at += len(word)
                otherwise = self._sequence()
            self._take("fi")
            return If(tuple(branches), otherwise)

    def _done(self) -> Sequence:
        self._take("do")
        body = self._sequence()
        self._take("done")
        return body

    def _for(self, kind: str) -> Loop:
        self._blanks()
        name = None
        words: tuple[Word, ...] | None = None
        steps: tuple[tuple[Part, ...], ...] = ()
        if self.startswith("(("):
            kind, steps = "((", self._steps()
        else:
            match = NAME.match(self.text, self.at)
            if not match:
                raise NotReadError(self.at, "for")
            name, self.at = match[0], match.end()
            self._blanks(newlines=True)
            if self._peek() == "in":
                self.at += 2
                words = tuple(self._list())
        self._blanks()
        if self.startswith(";"):
            self.at += 1
        self._blanks(newlines=True)
        if self._peek() == "{":
            self.at += 1
            body = self._sequence()
            self._take("}")
        else:
            body = self._done()
        return Loop(name, Sequence(), body, kind, words, steps)

    def _steps(self) -> tuple[tuple[Part, ...], ...]:
        """The expressions of ``for ((;;))``; none where they are not three."""
        start, end = self.at + 2, self.closing(self.at)
        self.at = end
        marks = [at for at in range(start, end - 2) if self.text[at] == ";"]
        bounds = [start - 1, *marks, end - 2]
        found = tuple(self.inside(low + 1, high) for low, high in pairwise(bounds))
        return found if len(found) == 3 else (*found, ())  # noqa: PLR2004 - another count is told where it is followed

    def _case(self) -> Case:
        self._blanks()
        word = self._one_word()
        self._take("in")
        arms: list[tuple[tuple[Word, ...], Sequence, str]] = []
        while True:
            self._blanks(newlines=True)
            if self._peek() == "esac":
                self.at += len("esac")
                return Case(word, tuple(arms))
            if self.startswith("("):
                self.at += 1
            patterns = []
            while True:
                self._blanks()
                patterns.append(self._one_word())
                self._blanks()
                if not self.startswith("|"):
                    break
                self.at += 1
            if not self.startswith(")"):
                raise NotReadError(self.at, ")")
            self.at += 1
            body = self._sequence()
            end = next((mark for mark in (";;&", ";&", ";;") if self.startswith(mark)), "")
            self.at += len(end)
            arms.append((tuple(patterns), body, end))

    def _function(self) -> FunctionDefinition:
        self._blanks()
        name = self._peek().partition("(")[0]
        self.at += len(name)
        self._blanks()
        if self.startswith("("):
            self.at = self.closing(self.at)
        self._blanks(newlines=True)
        return FunctionDefinition(name, self._command())

    def _condition(self) -> ConditionCommand:
        found: list[Word] = []
        while True:
            self._blanks(newlines=True)
            if self.at >= len(self.text):
                raise NotReadError(self.at, "]]")
            if self._peek() == "]]":
                self.at += 2
                return ConditionCommand(tuple(found))
            start = self.at
            operator = _IN_CONDITION.match(self.text, start)
            if operator:
                self.at = operator.end()
                found.append(Word((QuotedText(operator[0], start, self.at),), start, self.at))
                continue
            word = self.word()
            if word.literal == "=~":
                found.append(word)
                self._blanks()
                self.at = self._expression_end()
                word = Word((), self.at, self.at)
            elif self.at == start:
                raise NotReadError(start, "unexpected")
            found.append(word)

    def _expression_end(self) -> int:
        """Where a regular expression ends: at a blank outside of brackets and quotes."""
        at = self.at
        while at < len(self.text) and self.text[at] not in " \t\n":
            if self.text[at] in "'\"":
                at = self._find(self.text[at], at + 1)
            elif self.text[at] in "([":
                at = max(at, self.closing(at) - 1)
            at += 2 if self.text[at : at + 1] == "\\" else 1
        return min(at, len(self.text))

    def _simple(self) -> Command:
        start = self.at
        assigns: list[Assign] = []
        words: list[Word | Assign] = []
        end = start
        redirections: list[Redirection] = []
        while True:
            self._blanks()
            one = self._redirection()
            if one is not None:
                redirections.append(one)
                end = self.at
                continue
            if self.at >= len(self.text) or self.text[self.at] in METACHARACTERS:
                if self.startswith(("<(", ">(")):
                    words.append(self._one_word())
                    continue
                break
            match = ASSIGN.match(self.text, self.at)
            if match and (not words or _declares(words)):
                assign = self._assign(match)
                if words:
                    words.append(assign)
                else:
                    assigns.append(assign)
            else:
                words.append(self._one_word())
            end = self.at
        if self.startswith("(") and len(words) == 1 and not assigns:
            return self._defined(words[0])
        if not words and not assigns and end == start:
            raise NotReadError(self.at, "unexpected")
        return Simple(tuple(assigns), tuple(words), start, end, tuple(redirections))

    def _defined(self, name: Word | Assign) -> FunctionDefinition:
        self.at += 1
        self._blanks()
        literal = name.literal if isinstance(name, Word) else None
        if literal is None or not self.startswith(")"):
            raise NotReadError(self.at, "unexpected")
        self.at += 1
        self._blanks(newlines=True)
        return FunctionDefinition(literal, self._command())


def _declares(words: list[Word | Assign]) -> bool:
    """Whether assignments may stand behind these words: ``export``, ``declare -a``, ``builtin local``."""
    literals = [word.literal for word in words if isinstance(word, Word)]
    while literals and literals[0] in ("builtin", "command"):
        literals.pop(0)
    return bool(literals) and literals[0] in DECLARING
