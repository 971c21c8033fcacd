"""The commands of the shell that set something: assignments, ``export`` and its like, ``set``, ``shift``, ``unset``, ``read``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.source.shell.syntax import NAME, Assign, QuotedText, Word
from ms_tune.source.shell.values import (
    Argument,
    Array,
    Piece,
    Reason,
    ScriptPlace,
    Unknown,
    Unset,
    text_of,
    unknown_piece,
    unknown_words,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ms_tune.source.shell.expand import Expander
    from ms_tune.source.shell.values import File, Pieces, ShellState, Value

# Commands that set the variables that they are given the names of.
READING = frozenset(("read", "mapfile", "readarray", "getopts", "printf", "let", "wait"))
_ODD = frozenset("ilunA")  # options of `declare` that change what an assignment does
_SMALL = re.compile(r"0|[1-9]\d{0,5}")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)


class Locals(NamedTuple):
    """What a function has declared as its own."""

    values: dict[str, Value | None]  # what was there before, by the variable
    perhaps: set[str]  # those that it has only declared perhaps
    conditions: int  # how many unknown conditions lay around the call

    def add(self, name: str, state: ShellState, conditions: int) -> None:
        """Keep what a variable is outside of the function, once."""
        if name not in self.values:
            self.values[name] = state.variables.get(name)
            self.perhaps.update({name} if conditions > self.conditions else ())


def value_assigned(one: Assign, expander: Expander, state: ShellState, file: File) -> Pieces | list[Argument]:
    """What an assignment's value comes to: one value, or the elements of an array."""
    if isinstance(one.value, Word):
        return expander.value(one.value, state, file)
    return expander.arguments(one.value, state, file)


def store_value(one: Assign, value: Pieces | list[Argument], expander: Expander, state: ShellState, file: File) -> None:
    """Make an assignment."""
    place = ScriptPlace(file, one.start, one.end)
    old = state.variables.get(one.name)
    elements = old.elements if isinstance(old, Array) else ((0, old),) if isinstance(old, tuple) else ()
    if one.append and old is None:  # what is added to comes from outside
        before = unknown_piece(Reason.ENVIRONMENT, one.name, place, several=isinstance(value, list))
        elements = ((0, (before,)),)
    new: Value = Array(((0, (unknown_piece(Reason.EXPANSION, one.name, place, several=True),)),))
    if one.name in state.odd:
        new = (unknown_piece(Reason.EXPANSION, one.name, place),)
    elif isinstance(value, list):
        elements = elements if one.append else ()
        if not any(_is_indexed(word) for word in (one.value if isinstance(one.value, tuple) else ())):
            number = elements[-1][0] + 1 if elements else 0
            new = Array((*elements, *enumerate(map(_element, value), number)))
    elif one.index is not None or isinstance(old, Array):
        index = expander.index(one.index or (), state, place, elements)
        if index is not None and Array(elements).counted:
            known = dict(elements)
            known[index] = (*known.get(index, ()), *value) if one.append else value
            new = Array(tuple(sorted(known.items(), key=lambda item: item[0])))
    elif one.append and elements:
        new = expander.bound_value((*elements[0][1], *value), place)
    else:
        new = value
    state.variables[one.name] = new


def _is_indexed(word: Word) -> bool:
    """``[key]=value`` among the elements of an array."""
    first = word.parts[0] if word.parts else None
    return isinstance(first, QuotedText) and not first.quoted and first.text.startswith("[")


def _element(word: Argument) -> Pieces:
    unknown = word.unknown if word.open else None
    return (Piece("", unknown.place, unknown=unknown, several=True),) if unknown else word.pieces


def restore_variable(state: ShellState, name: str, value: Value | None) -> None:
    """Give a variable the value that it had before, or none."""
    if value is None:
        state.variables.pop(name, None)
    else:
        state.variables[name] = value


def declare_variables(  # noqa: PLR0913, PLR0917 - what a command stands in
    words: Sequence[Argument | Assign],
    expander: Expander,
    state: ShellState,
    file: File,
    local: Locals | None,
    conditions: int,
) -> None:
    """``export``, ``declare``, ``typeset``, ``local`` and ``readonly``.

    Args:
        words: The command and what stands behind it.
        expander: Puts values in.
        state: What holds before, and then behind it.
        file: Where it stands.
        local: What the function around it has declared as its own; None outside of functions.
        conditions: How many unknown conditions lie around it.
    """
    texts = [word.text or "" for word in words if isinstance(word, Argument)]
    command, flags = texts[0], {flag for text in texts[1:] if text.startswith("-") for flag in text[1:]}
    local = local if command not in ("export", "readonly") and "g" not in flags else None
    # All values are put in before the first of them is set.
    values = [value_assigned(one, expander, state, file) if isinstance(one, Assign) else () for one in words]
    for word, value in zip(words[1:], values[1:], strict=True):
        place = ScriptPlace(file, word.start, word.end) if isinstance(word, Assign) else word.place
        text = word.name if isinstance(word, Assign) else None if word.open else word.text
        if text is None or ("n" in flags and command != "export"):  # of a name that stands for another
            state.forget(Unknown(Reason.EXPANSION, text or command, place))
        match = _ASSIGNED.fullmatch(text or "")
        name = match[1] if match else text or ""
        if "f" in flags or not NAME.fullmatch(name):
            state.exported |= {f"{name}()"} if command == "export" and "f" in flags else set()
            continue
        if local is not None:
            local.add(name, state, conditions)
        state.odd |= {name} if _ODD & flags else set()
        if isinstance(word, Assign):
            store_value(word, value, expander, state, file)
        elif match and not match[2] and name not in state.odd:
            state.variables[name] = word.part(match.start(3), match.end(3)).pieces
        elif match or (_ODD & flags and name in state.variables and local is None):
            state.variables[name] = (unknown_piece(Reason.EXPANSION, name, place),)
        elif local is not None:
            state.variables[name] = Unset()
        state.odd |= {name} if command == "readonly" or "r" in flags else set()
        if command == "export" or "x" in flags:
            state.exported = state.exported - {name} if "n" in flags else state.exported | {name}


def set_options(words: Sequence[Argument], state: ShellState, _: ScriptPlace) -> None:
    """``set -euo pipefail -- words``."""
    at = 1
    while at < len(words):
        text = words[at].text
        if text == "--" or text is None or not text.startswith(("-", "+")):
            state.positional = tuple(words[at + (text == "--") :])
            break
        named = words[at + 1].text if text.endswith("o") and at + 1 < len(words) else ""
        if "e" in text or named == "errexit":
            state.stops_at_failure = text[0] == "-"
        at += 1 + text.endswith("o")


def shift_words(words: Sequence[Argument], state: ShellState, place: ScriptPlace) -> None:
    """``shift 2``."""
    text = words[1].text if len(words) > 1 else "1"
    count = int(text) if text is not None and _SMALL.fullmatch(text) else -1
    given = state.positional
    if given is None or count < 0 or any(one.open for one in given[:count]):
        state.positional = unknown_words(Reason.ARGUMENT, "@", place)
    elif count <= len(given):
        state.positional = given[count:]


def unset_variables(words: Sequence[Argument], state: ShellState, place: ScriptPlace) -> None:
    """``unset names``."""
    texts = [word.text for word in words[1:]]
    for text in texts:
        if text is None:
            state.forget(Unknown(Reason.EXPANSION, "unset", place))
        elif "-f" in texts:
            state.functions.pop(text, None)
        elif NAME.fullmatch(text):
            state.variables[text] = Unset()
            state.exported -= {text}
        elif not text.startswith("-"):  # an element
            name = text.partition("[")[0]
            state.variables[name] = (unknown_piece(Reason.EXPANSION, name, place, several=True),)


def read_variables(words: Sequence[Argument], state: ShellState, place: ScriptPlace, line: str | None) -> None:
    """Commands that read, print or calculate into variables: nobody knows what is in those afterwards.

    But for ``IFS=, read -ra names <<< line``, by which scripts count devices.

    Args:
        words: The command and what stands behind it.
        state: What holds before, and then behind it.
        place: Where it stands.
        line: What it reads; None where only a run could tell.
    """
    command, texts = words[0].text or "", [word.text for word in words[1:]]
    if command in ("printf", "wait") and texts[:1] not in (["-v"], ["-p"]):
        return
    if None in texts and command != "printf":
        state.forget(Unknown(Reason.INPUT, command, place))
    several = command in ("mapfile", "readarray") or any(re.fullmatch(r"-\w*a", text or "") for text in texts)
    names = {name for text in texts if text for name in NAME.findall(text)} | ({"MAPFILE"} if several else set())
    for name in names:
        state.variables[name] = (unknown_piece(Reason.INPUT, name, place, several=several),)
    separator = state.variables.get("IFS")
    mark = text_of(separator) if isinstance(separator, tuple) else None
    name = texts[-1] if texts[:-1] in (["-ra"], ["-r", "-a"]) else None
    known = line and mark and len(mark) == 1 and not mark.isspace() and "\n" not in line and not line.endswith(mark)
    if command == "read" and name and line and known:
        state.variables[name] = Array(tuple(enumerate((Piece(one, place),) for one in line.split(mark))))


# programs whose output follows from their arguments

_SEQUENCE = re.compile(r"[-+]?\d{1,9}", re.ASCII)
_MAX_LINES = 1_000


def output_of(words: Sequence[Argument]) -> Pieces | None:
    """What ``seq``, ``basename`` and ``dirname`` print (coreutils); None for another program, or what only a run could tell."""
    known = [word.text for word in words if word.text is not None and not word.open]
    if len(known) < len(words) or len(words) < 2 or known[0] not in _PRINTING:  # noqa: PLR2004 - the program and a word
        return None
    printed = _PRINTING[known[0]](*known[1:4]) if len(words) <= 4 else None  # noqa: PLR2004
    return None if printed is None else (Piece(printed, words[1].place),)


def _print_sequence(*texts: str) -> str | None:
    if not all(map(_SEQUENCE.fullmatch, texts)):
        return None
    numbers = list(map(int, texts))
    first, last = numbers[0] if numbers[1:] else 1, numbers[-1]
    step = numbers[1] if numbers[2:] else 1
    if not step or (last - first) // step >= _MAX_LINES:
        return None
    return "".join(f"{one}\n" for one in range(first, last + (1 if step > 0 else -1), step))


def _print_base_name(path: str, suffix: str = "", *others: str) -> str | None:
    name = path.rstrip("/").rpartition("/")[2]
    if not name or path.startswith("-") or others:
        return None
    return f"{name if name == suffix else name.removesuffix(suffix)}\n"


def _print_folder(path: str, *others: str) -> str | None:
    folder, slash, name = path.rstrip("/").rpartition("/")
    if not name or path.startswith("-") or others:
        return None
    return f"{folder.rstrip('/') or slash or '.'}\n"


_PRINTING: dict[str, Callable[..., str | None]] = {
    "seq": _print_sequence,
    "basename": _print_base_name,
    "dirname": _print_folder,
}
