"""Every assignment that stands in a script, whether it is ever made or not: what checks of the environment look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.source.shell.parse import parse
from ms_tune.source.shell.syntax import Assign, Parameter, QuotedText, Simple, Word, children

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ms_tune.source.shell.syntax import Command, Part

Block = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """An assignment as it is written."""

    one: Assign  # what is assigned, and where
    text: str | None  # the value; None if something is put into it, or if it is an array
    block: Block  # the branches and bodies around it, outermost first; nothing at the top of the script
    extends: bool  # whether the value is made from the variable's own old value


def assignments(text: str) -> list[Written]:
    """The assignments of a script's text, in its order."""
    found = [
        Written(one, _plain(one), block, one.append or _uses(one.name, _parts(one)))
        for one, block in _Walk().of(parse(text).body, ())
    ]
    return sorted(found, key=lambda one: one.one.start)


class _Walk:
    """Goes through commands and numbers the blocks."""

    def __init__(self) -> None:
        self._count = 0

    def of(self, command: Command, block: Block) -> Iterator[tuple[Assign, Block]]:
        if isinstance(command, Simple):
            yield from ((one, block) for one in (*command.assigns, *command.words) if isinstance(one, Assign))
            yield from ((one, block) for one in _through_env(command))
            return
        for inside, own in children(command):
            yield from self.of(inside, self._inner(block) if own else block)

    def _inner(self, block: Block) -> Block:
        self._count += 1
        return (*block, self._count)


def _through_env(command: Simple) -> Iterator[Assign]:
    """The assignments behind ``env``, which are words to the shell."""
    words = [word for word in command.words if isinstance(word, Word)]
    if not words or words[0].literal != "env":
        return
    for word in words[1:]:
        first = word.parts[0] if word.parts else None
        name, equals, _ = (
            first.text.partition("=") if isinstance(first, QuotedText) and not first.quoted else ("", "", "")
        )
        if not equals or not name.isidentifier():
            return
        start = word.start + len(name) + 1
        rest = QuotedText(first.text[len(name) + 1 :], start, first.end) if isinstance(first, QuotedText) else None
        parts: tuple[Part, ...] = (*((rest,) if rest else ()), *word.parts[1:])
        yield Assign(name, word.start, Word(parts, start, word.end), start, word.end)


def _plain(one: Assign) -> str | None:
    if not isinstance(one.value, Word) or not all(isinstance(part, QuotedText) for part in one.value.parts):
        return None
    return "".join(part.text for part in one.value.parts if isinstance(part, QuotedText))


def _parts(one: Assign) -> Iterator[Part]:
    for word in (one.value,) if isinstance(one.value, Word) else one.value:
        yield from word.parts


def _uses(name: str, parts: Iterable[Part]) -> bool:
    return any(isinstance(part, Parameter) and (part.name == name or _uses(name, part.operand)) for part in parts)
