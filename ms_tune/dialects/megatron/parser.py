"""What the parser of a program refuses before the program looks at anything: it prints its usage and ends with code 2.

``argparse`` (CPython 3.10 to 3.14) as ``parse_args`` of ``megatron/training/arguments.py`` uses it (core_r0.8.0, core_v0.12.1).
What is not known without running the script is never refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ms_tune.dialects.megatron.arguments import UNKNOWN, read
from ms_tune.facts.megatron import names, unregistered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.megatron.arguments import GivenArgument, ProgramArguments
    from ms_tune.source.shell.values import Argument


class ParserFault(Enum):
    """Why an argument is refused."""

    UNKNOWN = "unknown"
    UNREGISTERED = "unregistered"
    FRAMEWORK = "framework"
    MISSING = "missing"
    EXTRA = "extra"
    NUMBER = "number"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True)
class RefusedArgument:
    """An argument that the parser refuses."""

    fault: ParserFault  # why
    name: str  # the argument; empty for a word in front of all of them
    word: Argument  # the word to blame
    # What it may be: the choices, the types of number, or the framework with which it is taken.
    allowed: tuple[str, ...] = ()


def refused(command: ProgramArguments) -> Iterator[RefusedArgument]:
    """All that the parser refuses, argument by argument; the parser itself names the first, and unknown ones last."""
    for word in command.strays:
        if not word.open:
            yield RefusedArgument(ParserFault.EXTRA, "", word)
    missing = unregistered(command.release) if command.launch.name in _ASKED else {}
    for one in command.given:
        if one.name in missing and (not missing[one.name] or _is_without(command, missing[one.name])):
            fault = ParserFault.FRAMEWORK if missing[one.name] else ParserFault.UNREGISTERED
            yield RefusedArgument(fault, one.name, one.word, (missing[one.name],) if missing[one.name] else ())
            continue
        yield from _unknown(one, command.release)
        yield from _counted(one)
        if not one.definitions or one.takes == 0:
            continue
        for value in one.values[: one.takes]:
            if value.text is not None:
                yield from _number(one, value, value.text)
                yield from _choice(one, value, value.text)


_OPTION = re.compile(
    r"-[^\s\d.]"
)  # ``-split`` is none of ``--split``; ``-1e-5`` is a number that argparse takes for an option
# The program whose parser was asked, and the one that makes the same (``initialize_megatron`` without arguments of its own).
_ASKED = ("pretrain_gpt.py", "posttrain_gpt.py")


def _is_without(command: ProgramArguments, framework: str) -> bool:
    """Whether a program runs with another framework for sure."""
    given = command.last("ai_framework")
    if given is None:
        return not command.open
    return bool(given.values) and given.values[0].text not in (None, framework)


def _unknown(one: GivenArgument, release: str) -> Iterator[RefusedArgument]:
    if not one.definitions and one.name not in names(release) and _OPTION.match(one.name):
        yield RefusedArgument(ParserFault.UNKNOWN, one.name, one.word)


def _counted(one: GivenArgument) -> Iterator[RefusedArgument]:
    takes = one.takes
    if takes is None or any(value.open for value in one.values):
        return
    if takes and not one.values:
        yield RefusedArgument(ParserFault.MISSING, one.name, one.word)
    elif len(one.values) > takes and not _placeholder(one):
        yield RefusedArgument(ParserFault.EXTRA, one.name, one.values[takes])


def _number(one: GivenArgument, value: Argument, text: str) -> Iterator[RefusedArgument]:
    kinds = {definition.type for definition in one.definitions}
    if kinds <= {"int", "float"} and all(read(text, kind) is UNKNOWN for kind in kinds):
        yield RefusedArgument(ParserFault.NUMBER, one.name, value, tuple(sorted(kinds)))


def _choice(one: GivenArgument, value: Argument, text: str) -> Iterator[RefusedArgument]:
    if any(definition.choices is None for definition in one.definitions):
        return
    allowed = [choice for definition in one.definitions for choice in definition.choices or ()]
    shown = tuple(dict.fromkeys(map(str, allowed)))
    if text not in shown and not any(read(text, definition.type) in allowed for definition in one.definitions):
        yield RefusedArgument(ParserFault.CHOICE, one.name, value, shown)


def _placeholder(one: GivenArgument) -> bool:
    """Whether a value is a sentence that is to be replaced by a path: it came in several words through one variable."""
    if len(one.values) < 2 or one.values[0].via == one.word.via:  # noqa: PLR2004 - one word is no sentence
        return False
    first, second = one.values[:2]
    kinds = {definition.type for definition in one.definitions}
    if kinds and kinds <= {"int", "float"} and any(read(first.text or "", kind) is not UNKNOWN for kind in kinds):
        return False  # "2 4" is two numbers
    same_line = first.place.file is second.place.file and first.place.span.line == second.place.span.line
    return first.via == second.via and same_line
