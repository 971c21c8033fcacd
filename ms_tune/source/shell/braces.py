"""The words that braces stand for: ``--x={1,2}``, ``{1..8}`` ("Brace Expansion" of bash's manual)."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from ms_tune.source.shell.syntax import Parameter, QuotedText, Word

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ms_tune.source.shell.syntax import Part

_BRACE = re.compile(r"\{([^{}\s]*)\}")
_LEFT = re.compile(r"[{}]")
_RANGE = re.compile(
    r"(?P<first>-?\d{1,6})\.\.(?P<last>-?\d{1,6})(?:\.\.(?P<by>-?\d{1,4}))?|(?P<from>[a-zA-Z])\.\.(?P<to>[a-zA-Z])"
)
_MOST = 256  # words of one range


def _braced(words: str) -> list[str] | None:
    """The words that ``{...}`` stands for: of a list or a range, the braces left out; None for what is none or not read."""
    match = _RANGE.fullmatch(words)
    if match is None:
        return words.split(",") if "," in words and not set(words) & set("{}") else None
    if match["from"]:
        first, last, by = ord(match["from"]), ord(match["to"]), 1
        if match["from"].isupper() != match["to"].isupper():
            return None
    else:
        first, last, by = int(match["first"]), int(match["last"]), abs(int(match["by"] or 1)) or 1
    width = max(len(one) for one in (match["first"] or "", match["last"] or ""))
    padded = any(re.fullmatch(r"-?0\d+", one or "") for one in (match["first"], match["last"]))
    if abs(last - first) // by >= _MOST or (padded and "-" in words):
        return None
    numbers = range(first, last + (1 if last >= first else -1), by if last >= first else -by)
    if match["from"]:
        return [chr(number) for number in numbers]
    return [f"{number:0{width if padded else 0}d}" if padded else str(number) for number in numbers]


def without_braces(word: Word) -> Iterable[Word]:
    """The words that braces make of one; itself where it has none, or one that is not read."""
    if not any(isinstance(part, QuotedText) and not part.quoted and "{" in part.text for part in word.parts):
        return (word,)
    parts: list[Part] = []
    for part in word.parts:
        last = parts[-1] if parts else None
        if (
            isinstance(part, QuotedText)
            and isinstance(last, QuotedText)
            and not part.quoted
            and not last.quoted
            and last.end == part.start
        ):
            parts[-1] = QuotedText(last.text + part.text, last.start, part.end)
        else:
            parts.append(part)
    places: list[int] = []
    lists: list[list[str]] = []
    pieces: list[Part] = []
    for part in parts:
        at = 0
        for match in _BRACE.finditer(part.text) if isinstance(part, QuotedText) and not part.quoted else ():
            several = _braced(match[1])
            if several is not None:
                pieces.append(QuotedText(match.string[at : match.start()], part.start + at, part.start + match.start()))
                places.append(len(pieces))
                lists.append(several)
                pieces.append(QuotedText("", part.start + match.start(), part.start + match.end()))
                at = match.end()
        pieces.append(
            replace(part, text=part.text[at:], start=part.start + at) if at and isinstance(part, QuotedText) else part
        )
    unread = any(isinstance(one, QuotedText) and not one.quoted and _LEFT.search(one.text) for one in pieces)
    # Braces come first: in "$A{1,2}" the variables are A1 and A2.
    ahead = (pieces[at - 2] for at in places if at > 1 and pieces[at - 1].start == pieces[at - 1].end)
    if not lists or unread or any(isinstance(one, Parameter) for one in ahead):
        return (word,)
    return _put_together(word, pieces, places, lists)


def _put_together(word: Word, pieces: list[Part], places: list[int], lists: list[list[str]]) -> Iterator[Word]:
    for texts in product(*lists):
        made = list(pieces)
        for place, text in zip(places, texts, strict=True):
            made[place] = QuotedText(text, pieces[place].start, pieces[place].end)
        yield Word(
            tuple(one for one in made if not isinstance(one, QuotedText) or one.text or one.quoted),
            word.start,
            word.end,
        )
