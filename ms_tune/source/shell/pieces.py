"""The pieces that commands are made of: blanks and comments, words, assignments, redirections with their documents."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.source.shell.syntax import Assign, HereDocument, QuotedText, Redirection, Word
from ms_tune.source.shell.words import METACHARACTERS, NotReadError, WordReader

if TYPE_CHECKING:
    from ms_tune.source.shell.syntax import Part

ASSIGN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[([^\]\n]*)\])?(\+?)=")
_REDIRECTION = re.compile(r"(\d*|\{[A-Za-z_]\w*\})(&>>|&>|<<<|<<-|<<|<>|<&|>&|>>|>\||<|>)")


class PieceReader(WordReader):
    """Reads what stands between the words that make a command: :mod:`ms_tune.source.shell.parse` puts them together."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.comments: dict[int, str] = {}  # by their offsets
        self._here: list[HereDocument] = []

    def _blanks(self, *, newlines: bool = False) -> None:
        while self.at < len(self.text):
            here = self.text[self.at]
            if here in " \t" or (here == "\r" and self.startswith("\r\n")):
                self.at += 1
            elif self.startswith(("\\\n", "\\\r\n")):
                self.at += 2 if self.text[self.at + 1] == "\n" else 3
            elif here == "#":
                start, self.at = self.at, self._find("\n", self.at)
                self.comments[start] = self.text[start : self.at].strip()
            elif here == "\n" and newlines:
                self._newline()
            else:
                return

    def _newline(self) -> None:
        self.at += 1
        for document in self._here:
            blanks = r"\t*" if document.indented else ""
            end = re.compile(rf"^{blanks}{re.escape(document.word)}\r?$", re.MULTILINE).search(self.text, self.at)
            text = self.text[self.at : end.start() if end is not None else None]
            document.text = re.sub(r"^\t+", "", text, flags=re.MULTILINE) if document.indented else text
            self.at = end.end() if end else len(self.text)
        self._here.clear()

    def _peek(self) -> str:
        """The plain word that comes next, if it could be a reserved one."""
        at = self.at
        while at < len(self.text) and self.text[at] not in METACHARACTERS and self.text[at] not in "\\'\"`$":
            at += 1
        ended = at >= len(self.text) or self.text[at] in METACHARACTERS
        return self.text[self.at : at] if ended else ""

    def _take(self, word: str) -> None:
        self._blanks(newlines=True)
        if self._peek() != word:
            raise NotReadError(self.at, word)
        self.at += len(word)

    def _list(self) -> list[Word]:
        found: list[Word] = []
        while True:
            self._blanks()
            if self.at >= len(self.text) or self.text[self.at] in "\n;&|()":
                return found
            found.append(self._one_word())

    def _one_word(self) -> Word:
        before = self.at
        word = self.word()
        if self.at == before:
            raise NotReadError(self.at, "unexpected")
        return word

    def _assign(self, match: re.Match[str]) -> Assign:
        start, self.at = self.at, match.end()
        name, index, plus = match.groups()
        if not self.startswith("("):
            value: Word | tuple[Word, ...] = self.word()
            return Assign(name, start, value, match.end(), self.at, bool(plus), index, self._index(match, index))
        self.at += 1
        found: list[Word] = []
        while True:
            self._blanks(newlines=True)
            if self.at >= len(self.text):
                raise NotReadError(start, ")")
            if self.startswith(")"):
                self.at += 1
                return Assign(name, start, tuple(found), match.end(), self.at, bool(plus), index)
            found.append(self._one_word())

    def _index(self, match: re.Match[str], index: str | None) -> tuple[Part, ...]:
        return self.inside(match.start(2), match.end(2)) if index is not None else ()

    def _redirection(self) -> Redirection | None:
        match = _REDIRECTION.match(self.text, self.at)
        if not match or (match[0] in ("<", ">") and self.text[match.end() : match.end() + 1] == "("):
            return None  # <(...) is a word
        self.at = match.end()
        self._blanks()
        number, operator = match.groups()
        to: Word | HereDocument | None = None
        if operator in ("<<", "<<-"):
            word = self.word()
            plain = [part for part in word.parts if isinstance(part, QuotedText)]
            literal = any(part.quoted for part in plain) or "\\" in self.text[word.start : word.end]
            to = HereDocument("".join(part.text for part in plain), operator == "<<-", literal)
            self._here.append(to)
        elif self.startswith(("<(", ">(")) or (self.at < len(self.text) and self.text[self.at] not in METACHARACTERS):
            to = self.word()
        return Redirection(number, operator, to)
